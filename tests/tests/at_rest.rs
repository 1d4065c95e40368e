//! While nothing is sent, a client and its worker make no wake-ups: no thread of either runs.
//!
//! A file of its own: the client is this process, in which no other test may run beside.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use nix::unistd::gettid;
use nnhal_client::{
    Burst, BurstOptions, Device, Devices, ExecuteOptions, Input, ModelBuilder, OperationType, Output,
    PrepareOptions, PreparedModel, TensorType,
};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{Activity, DaemonOptions, TestDaemon, activities_of};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// Enough for `nnhal-cpu` to have helper threads.
const ELEMENTS: u32 = 200_000;

/// How long nothing is sent.
const REST: Duration = Duration::from_secs(1);

/// What ends by itself wakes its thread once more: rings are looked at 10 ms after the last packet, memory is
/// given back after `idle_release_ms`, here 5 s. Of so many rests one has none of that; what recurs within
/// [`REST`] is in each.
const RESTS: usize = 5;

/// An application with all that it can have open: a burst that has been used, and a connection that has
/// carried messages.
struct Application {
    prepared: PreparedModel,
    burst: Burst,
}

impl Application {
    fn open(device: &Device) -> Application {
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::float32(&[ELEMENTS]));
        let sum = model.output(TensorType::float32(&[ELEMENTS]));
        let no_activation = model.scalar(0_i32);
        model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
        let prepared = device
            .prepare(&model.finish().unwrap(), &PrepareOptions::new())
            .unwrap();
        Application {
            burst: prepared.burst(&BurstOptions::new()).unwrap(),
            prepared,
        }
    }

    fn execute(&mut self) {
        let input = vec![1.5_f32; ELEMENTS as usize];
        let mut sum = vec![0.0_f32; ELEMENTS as usize];
        let options = ExecuteOptions::new();
        // More than the packets after which a ring's consumer suppresses notification.
        for _ in 0..300 {
            self.burst
                .run(&[Input::from(&input)], &mut [Output::from(&mut sum)], &options)
                .unwrap();
        }
        self.prepared
            .run(&[Input::from(&input)], &mut [Output::from(&mut sum)], &options)
            .unwrap();
        assert_eq!(sum, [3.0; ELEMENTS as usize]);
    }
}

/// What the threads of client and worker have done so far, the one that asks left out.
fn activities(worker: u32) -> [BTreeMap<i32, Activity>; 2] {
    let mut own = activities_of(std::process::id());
    own.remove(&gettid().as_raw());
    let worker = activities_of(worker);
    assert!(!own.is_empty() && !worker.is_empty());
    [own, worker]
}

/// What they have done before and after nothing was sent for a while.
fn rest(worker: u32) -> [[BTreeMap<i32, Activity>; 2]; 2] {
    let before = activities(worker);
    let end = Deadline::after(MonotonicClock.now(), REST);
    // The time of rest is what is measured, not waited for.
    while let Some(left) = end.remaining(MonotonicClock.now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
    [before, activities(worker)]
}

fn expect_rest(daemon: &TestDaemon, name: &str) {
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device(name).unwrap();
    let worker = device.worker().pid;
    let (say_executed, executed) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut application = Application::open(&device);
            say_executed.send(()).unwrap();
            application.execute();
            say_executed.send(()).unwrap();
            // Until the other end is gone.
            let _ = ended.recv();
        });
        executed.recv().unwrap();
        let before = activities(worker);
        executed.recv().unwrap();
        let after = activities(worker);
        for (before, after) in before.iter().zip(&after) {
            assert_ne!(before, after, "{name}: executions are seen");
        }
        let mut last = None;
        let has_rested = (0..RESTS).any(|_| {
            let [before, after] = last.insert(rest(worker));
            before == after
        });
        assert!(has_rested, "{name}: woke up while nothing was sent: {last:#?}");
        drop(end);
    });
}

#[test]
fn client_and_worker_that_have_nothing_to_do_make_no_wake_ups() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    for device in ["nnhal-reference", "nnhal-cpu"] {
        expect_rest(&daemon, device);
    }
}
