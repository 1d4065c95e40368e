//! What an execution preference changes: a model for low power has its worker sleep at once between the
//! requests of a burst, where one for fast single answers has it look for the next. That models for sustained
//! speed keep their memory is shown with that of the others, in `idle.rs`. And what the driver's setting for
//! polling changes.

use std::fs;
use std::sync::{Mutex, PoisonError};

use nnhal_client::{
    Burst, BurstOptions, Devices, ExecuteOptions, ExecutionPreference, Input, ModelBuilder, OperationType,
    Output, PrepareOptions, PreparedModel, TensorType,
};
use nnhal_os::sched;
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

/// Tests that look at who polls take turns: one that polls on all processors would be seen by the others.
static TURN: Mutex<()> = Mutex::new(());

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
    states_of(pid, "").iter().all(|state| *state == 'S')
}

/// The states of those of a process's threads whose names begin so.
fn states_of(pid: u32, name: &str) -> Vec<char> {
    let state = |line: &String| {
        let (before, fields) = line.rsplit_once(')')?;
        let (_, found) = before.split_once('(')?;
        found
            .starts_with(name)
            .then(|| fields.trim_start().chars().next())?
    };
    of_threads(pid, "stat").iter().filter_map(state).collect()
}

/// A model whose worker is looked at.
struct Subject {
    prepared: PreparedModel,
    worker: u32,
    /// Dropped last.
    _daemon: TestDaemon,
}

impl Subject {
    fn start(settings: &str, preference: ExecutionPreference) -> Subject {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(settings));
        let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
        let device = devices.device("nnhal-reference").unwrap();
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::float32(&[1]));
        let y = model.output(TensorType::float32(&[1]));
        model.operation(OperationType::RELU, &[x], &[y]);
        let options = PrepareOptions::new().preference(preference);
        Subject {
            prepared: device.prepare(&model.finish().unwrap(), &options).unwrap(),
            worker: device.worker().pid,
            _daemon: daemon,
        }
    }

    fn burst(&self) -> Burst {
        self.prepared.burst(&BurstOptions::new()).unwrap()
    }

    /// How long the worker, which sleeps, computes for one execution and until it sleeps again, in
    /// nanoseconds.
    fn effort(&self, burst: &mut Burst) -> u64 {
        wait_until("the worker sleeps", || is_asleep(self.worker));
        let before = computed(self.worker);
        let mut output = [0.0_f32];
        burst
            .run(
                &[Input::from(&[1.0_f32])],
                &mut [Output::from(&mut output)],
                &ExecuteOptions::new(),
            )
            .unwrap();
        wait_until("the worker sleeps", || is_asleep(self.worker));
        computed(self.worker) - before
    }
}

/// The most that the first executions of three bursts take of a worker that may look for the next request for
/// 200 ms.
fn effort(preference: ExecutionPreference) -> u64 {
    let subject = Subject::start("[execution]\npolling_window_us = 200000\n", preference);
    let efforts = (0..3).map(|_| subject.effort(&mut subject.burst()));
    efforts.max().unwrap()
}

/// Whether nobody looks for requests here; then says so.
fn is_single_processor() -> bool {
    let is_single = std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2);
    if is_single {
        println!("SKIPPED: on a single processor nobody looks for requests");
    }
    is_single
}

#[test]
fn worker_of_a_model_for_low_power_does_not_look_for_the_next_request() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let slept = effort(ExecutionPreference::LowPower);
    assert!(slept < 20_000_000, "{slept} ns");
    if is_single_processor() {
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

#[test]
fn worker_with_a_fixed_window_polls_for_all_of_it_though_that_was_in_vain_each_time() {
    if is_single_processor() {
        return;
    }
    let settings = "[execution]\npolling_window_us = 30000\npolling = \"fixed\"\n";
    let subject = Subject::start(settings, ExecutionPreference::FastSingleAnswer);
    let mut burst = subject.burst();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // One that adapts would have given up after the first of these waits. Polls may be faster than when they
    // were counted, or be counted while others had the processor.
    let mut efforts: Vec<u64> = (0..9).map(|_| subject.effort(&mut burst)).collect();
    efforts.sort_unstable();
    assert!(efforts[4] > 10_000_000, "{efforts:?} ns");
}

#[test]
fn no_more_bursts_of_a_worker_poll_than_there_are_processors() {
    if is_single_processor() {
        return;
    }
    const MORE: usize = 2;
    let processors = sched::online_cpus();
    let bursts = processors + MORE;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = format!(
        "[limits]\nbursts = {bursts}\n[execution]\npolling_window_us = 20000000\npolling = \"fixed\"\n"
    );
    let subject = Subject::start(&settings, ExecutionPreference::FastSingleAnswer);
    let _bursts: Vec<_> = (0..bursts).map(|_| subject.burst()).collect();
    wait_until(
        "as many poll as there are processors, and the others sleep",
        || {
            let mut states = states_of(subject.worker, "burst");
            states.sort_unstable();
            let expected = ['R', 'S'].into_iter().zip([processors, MORE]);
            states
                == expected
                    .flat_map(|(state, count)| vec![state; count])
                    .collect::<Vec<_>>()
        },
    );
}
