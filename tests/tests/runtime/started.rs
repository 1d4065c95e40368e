//! Executions that were started and go on in their driver: who waits for them, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use nnhal_client::runtime::{
    Compilation, CompilationOptions, OutputBuffer, Recovery, ResultCode, RunEvent, RunInput,
};
use nnhal_client::{Clock, Deadline, ExecuteOptions, Memory, MonotonicClock};
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

use crate::common::{EXE, REFERENCE, bytes, chain, floats, kill_workers, on, runtime, start};

/// Its executions go on until they are asked to end.
const ENDLESS: &str = "nnhal-empty";

fn launch(compilation: &Compilation, output: &OutputBuffer) -> RunEvent {
    let input = bytes(&[1.0; 4]);
    let inputs = [RunInput::bytes(&input)];
    let outputs = std::slice::from_ref(output);
    compilation
        .start(&inputs, outputs, &ExecuteOptions::new())
        .unwrap()
}

/// Starts two, by a message and by a ring, and has several threads wait for both when their worker dies.
fn outlive(recovery: Recovery) -> [RunEvent; 2] {
    let settings = format!("devices = [\"{ENDLESS}\"]\n[device.{ENDLESS}]\nfault = \"loop\"\n");
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(&settings));
    let runtime = runtime(&daemon);
    let options = CompilationOptions::new()
        .filter(Arc::new(|device, _, _| device.name == ENDLESS))
        .recovery(recovery);
    let compilation = runtime.compile(&chain(1, false), &options).unwrap();
    let events = [(); 2].map(|()| launch(&compilation, &OutputBuffer::bytes(16)));
    let soon = || Deadline::after(MonotonicClock.now(), Duration::from_millis(5));
    std::thread::scope(|scope| {
        for event in &events {
            assert!(!event.is_finished());
            let wait = |deadline: Deadline| scope.spawn(move || event.wait(deadline));
            let (patient, impatient): (Vec<_>, Vec<_>) =
                (0..3).map(|_| (wait(Deadline::NONE), wait(soon()))).unzip();
            for waited in impatient {
                let error = waited.join().unwrap().unwrap_err();
                assert_eq!(error.code(), ResultCode::MissedDeadlineTransient, "{error}");
            }
            assert!(patient.iter().all(|waits| !waits.is_finished()));
        }
        kill_workers(&daemon);
    });
    events
}

#[test]
fn several_threads_wait_each_for_as_long_as_it_may() {
    for event in outlive(Recovery::None) {
        for _ in 0..2 {
            let error = event.wait(Deadline::NONE).unwrap_err();
            assert_eq!(error.code(), ResultCode::DeadObject, "{error}");
        }
    }
}

#[test]
fn cpu_takes_over_from_a_driver_that_died() {
    for event in outlive(Recovery::OnCpu) {
        let finished = event.wait(Deadline::NONE).unwrap();
        assert!(finished.fallback.is_some() && event.is_finished());
        let mut output = [0; 16];
        event.output(0, &mut output).unwrap();
        assert_eq!(floats(&output), [2.0; 4]);
    }
}

#[test]
fn execution_goes_on_without_its_event() {
    let (_daemon, runtime) = start();
    let options = on(&runtime, &[REFERENCE]);
    let compilation = runtime.compile(&chain(1, false), &options).unwrap();
    for _ in 0..5 {
        let memory = Memory::new(16).unwrap();
        let output = OutputBuffer::Memory {
            memory: memory.clone(),
            offset: 0,
            length: 16,
            dimensions: Vec::new(),
        };
        drop(launch(&compilation, &output));
        wait_until("the output is there", || {
            memory.read::<f32>(0, 4).unwrap() == [2.0; 4]
        });
    }
}
