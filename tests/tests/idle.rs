//! Workers give back the memory of executions that nobody has asked for in a while, and go on when somebody
//! does.

use nnhal_client::{
    Arguments, BurstOptions, Device, Devices, ExecuteOptions, ExecutionPreference, ModelBuilder,
    OperationType, PrepareOptions, PreparedModel, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, anonymous_bytes, thread_heaps, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const ELEMENTS: u32 = 2 << 20;

/// What an execution takes at least: input, output and what is between them.
const HELD: u64 = 3 * 4 * ELEMENTS as u64;

/// What a burst takes before it is used: all but the input.
const HELD_UNUSED: u64 = 2 * 4 * ELEMENTS as u64;

/// What else may come and go in a worker.
const SLACK: u64 = HELD / 4;

struct Bench {
    _daemon: TestDaemon,
    device: Device,
    worker: u32,
    prepared: PreparedModel,
    arguments: Arguments,
}

/// A model whose executions take [`HELD`] bytes and give three times what goes in.
fn prepare(device: &Device, preference: ExecutionPreference) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let tensor = TensorType::float32(&[ELEMENTS]);
    let x = model.input(tensor.clone());
    let no_activation = model.scalar(0_i32);
    let sum = model.temporary(tensor.clone());
    let result = model.output(tensor);
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.operation(OperationType::ADD, &[sum, x, no_activation], &[result]);
    let options = PrepareOptions::new().preference(preference);
    device.prepare(&model.finish().unwrap(), &options).unwrap()
}

impl Bench {
    /// A model whose executions take [`HELD`] bytes, prepared.
    fn new(settings: &str) -> Bench {
        let options = DaemonOptions {
            devices: vec!["nnhal-reference".into()],
            ..DaemonOptions::with_settings(settings)
        };
        let daemon = TestDaemon::start(EXE, &options);
        let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
        let device = devices.device("nnhal-reference").unwrap();
        let prepared = prepare(&device, ExecutionPreference::FastSingleAnswer);
        let mut arguments = prepared.new_arguments().unwrap();
        arguments.write(0, &vec![1.0_f32; ELEMENTS as usize]).unwrap();
        Bench {
            worker: device.worker().pid,
            _daemon: daemon,
            device,
            prepared,
            arguments,
        }
    }

    fn memory(&self) -> u64 {
        anonymous_bytes(self.worker)
    }

    fn expect_result(&mut self) {
        let last = self.arguments.read::<f32>(0).unwrap();
        assert!(last.iter().all(|value| *value == 3.0));
    }

    /// Has executions made until they are seen to hold memory beside what there was `before`, waits until it
    /// is given back, and executes once more.
    fn expect_memory_to_come_and_go(&mut self, before: u64, mut execute: impl FnMut(&Arguments)) {
        for _ in 0..2 {
            wait_until("an execution holds memory", || {
                execute(&self.arguments);
                self.memory() >= before + HELD - SLACK
            });
            wait_until("the memory is given back", || self.memory() <= before + SLACK);
        }
        execute(&self.arguments);
        self.expect_result();
    }
}

const SOON: &str = "[execution]\nidle_release_ms = 50\n";

#[test]
fn idle_burst_gives_its_memory_back() {
    let mut bench = Bench::new(SOON);
    let before = bench.memory();
    let mut burst = bench.prepared.burst(&BurstOptions::new()).unwrap();
    bench.expect_memory_to_come_and_go(before, |arguments| {
        burst
            .execute(arguments.request(), &ExecuteOptions::new())
            .unwrap();
    });
}

#[test]
fn burst_that_is_not_used_has_memory_for_a_while() {
    let bench = Bench::new(SOON);
    let before = bench.memory();
    let (mut burst, mut looks) = (None, 0);
    wait_until("a burst holds memory before it is used", || {
        // It begins on a thread of its own, and may have given its memory back before it is looked at.
        if looks % 16 == 0 {
            drop(burst.take());
            burst = Some(bench.prepared.burst(&BurstOptions::new()).unwrap());
        }
        looks += 1;
        bench.memory() >= before + HELD_UNUSED - SLACK
    });
    wait_until("the memory is given back", || bench.memory() <= before + SLACK);
}

#[test]
fn idle_worker_gives_the_memory_of_its_executions_back() {
    let mut bench = Bench::new(SOON);
    let prepared = bench.prepared.clone();
    let before = bench.memory();
    bench.expect_memory_to_come_and_go(before, |arguments| {
        prepared
            .execute(arguments.request(), &ExecuteOptions::new())
            .unwrap();
    });
}

/// Of the heaps that the C library makes for threads, each keeps some hundred kilobytes whatever is given
/// back.
#[cfg(target_env = "gnu")]
#[test]
fn threads_of_a_worker_have_one_heap() {
    let bench = Bench::new(SOON);
    let mut burst = bench.prepared.burst(&BurstOptions::new()).unwrap();
    let options = ExecuteOptions::new();
    burst.execute(bench.arguments.request(), &options).unwrap();
    bench
        .prepared
        .execute(bench.arguments.request(), &options)
        .unwrap();
    assert_eq!(thread_heaps(bench.worker), 0);
    // This test runs in a thread of a process that has not asked for that.
    assert!(thread_heaps(std::process::id()) > 0);
}

#[test]
fn burst_keeps_its_memory_where_none_is_to_be_given_back() {
    let bench = Bench::new("[execution]\nidle_release_ms = 0\n");
    let before = bench.memory();
    let mut burst = bench.prepared.burst(&BurstOptions::new()).unwrap();
    let options = ExecuteOptions::new();
    burst.execute(bench.arguments.request(), &options).unwrap();
    let after_the_first = bench.memory();
    assert!(after_the_first >= before + HELD - SLACK);
    let mut other = bench.prepared.burst(&BurstOptions::new()).unwrap();
    other.execute(bench.arguments.request(), &options).unwrap();
    assert!(bench.memory() >= after_the_first + HELD - SLACK);
}

/// Has a model for sustained speed executed, then again and again one for fast single answers, whose memory
/// is given back each time while that of the first stays.
fn expect_memory_to_stay(bench: &Bench, sustain: impl FnOnce(&PreparedModel)) {
    let before = bench.memory();
    let sustained = prepare(&bench.device, ExecutionPreference::SustainedSpeed);
    sustain(&sustained);
    for _ in 0..2 {
        wait_until("both executions hold memory", || {
            let request = bench.arguments.request();
            bench.prepared.execute(request, &ExecuteOptions::new()).unwrap();
            bench.memory() >= before + 2 * HELD - SLACK
        });
        wait_until("the memory of one is given back", || {
            bench.memory() <= before + HELD + SLACK
        });
        assert!(
            bench.memory() >= before + HELD - SLACK,
            "that of the other is kept"
        );
    }
}

#[test]
fn models_for_sustained_speed_keep_their_memory_through_pauses() {
    let bench = Bench::new(SOON);
    let run = |sustained: &PreparedModel| {
        sustained
            .execute(bench.arguments.request(), &ExecuteOptions::new())
            .unwrap();
    };
    expect_memory_to_stay(&bench, run);
}

#[test]
fn bursts_for_sustained_speed_keep_their_memory_through_pauses() {
    let bench = Bench::new(SOON);
    let mut burst = None;
    expect_memory_to_stay(&bench, |sustained| {
        let opened = burst.insert(sustained.burst(&BurstOptions::new()).unwrap());
        opened
            .execute(bench.arguments.request(), &ExecuteOptions::new())
            .unwrap();
    });
}
