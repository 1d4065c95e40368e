//! What an execution preference changes: a model for low power has its worker sleep at once between the requests of a
//! burst, where one for fast single answers has it look for the next. That models for sustained speed keep their memory
//! is shown with that of the others, in `idle.rs`.

use std::fs;

use nnhal_client::{
    BurstOptions, Devices, ExecuteOptions, ExecutionPreference, Input, ModelBuilder, OperationType, Output,
    PrepareOptions, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// The files `name` of all threads of a process.
fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let files = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join(name)).ok());
    files.collect()
}

/// How long a process has computed, in nanoseconds.
fn computed(pid: u32) -> u64 {
    let threads = of_threads(pid, "schedstat");
    let times = threads
        .iter()
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    times.sum()
}

fn is_asleep(pid: u32) -> bool {
    let threads = of_threads(pid, "stat");
    let mut states = threads.iter().filter_map(|line| line.rsplit_once(')'));
    states.all(|(_, fields)| fields.trim_start().starts_with('S'))
}

/// How long the worker of a burst computes for one execution and until it sleeps, in nanoseconds: the most of three
/// bursts. It may look for the next request for 200 ms.
fn effort(preference: ExecutionPreference) -> u64 {
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[execution]\npolling_window_us = 200000\n"),
    );
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device("nnhal-reference").unwrap();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let y = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::RELU, &[x], &[y]);
    let options = PrepareOptions::new().preference(preference);
    let prepared = device.prepare(&model.finish().unwrap(), &options).unwrap();
    let worker = device.worker().pid;
    let efforts = (0..3).map(|_| {
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        wait_until("the worker sleeps", || is_asleep(worker));
        let before = computed(worker);
        let mut output = [0.0_f32];
        burst
            .run(
                &[Input::from(&[1.0_f32])],
                &mut [Output::from(&mut output)],
                &ExecuteOptions::new(),
            )
            .unwrap();
        wait_until("the worker sleeps", || is_asleep(worker));
        computed(worker) - before
    });
    efforts.max().unwrap()
}

#[test]
fn worker_of_a_model_for_low_power_does_not_look_for_the_next_request() {
    let slept = effort(ExecutionPreference::LowPower);
    assert!(slept < 20_000_000, "{slept} ns");
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        println!("SKIPPED: on a single processor nobody looks for requests");
        return;
    }
    for preference in [
        ExecutionPreference::FastSingleAnswer,
        ExecutionPreference::SustainedSpeed,
    ] {
        // Nobody looks while others want the processors.
        wait_until("a worker looks for the next request", || {
            effort(preference) > 4 * slept
        });
    }
}
