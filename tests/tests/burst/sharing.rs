//! Many bursts of one client, which few threads of its worker serve.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    Burst, BurstOptions, Device, ErrorKind, ErrorStatus, ExecuteOptions, Memory, ModelBuilder, OperationType,
    PrepareOptions, PreparedModel, RegisteredRequest, Request, TensorType,
};
use nnhal_tests::{
    Activity, DaemonOptions, TIMEOUT, TestDaemon, activities_of, burst_threads, endless_loop, wait_until,
};

use crate::common::{EXE, REFERENCE, add, open, prepare};

/// More rounds than a worker needs to see what a burst's executions are like.
const ROUNDS: usize = 40;

/// A daemon whose workers have one thread that serves several bursts.
fn start_with_one_shared_poller() -> TestDaemon {
    TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[execution]\nshared_pollers = 1\n"),
    )
}

fn bursts(prepared: &PreparedModel, count: usize) -> Vec<Burst> {
    (0..count)
        .map(|_| prepared.burst(&BurstOptions::new()).unwrap())
        .collect()
}

fn options() -> ExecuteOptions {
    ExecuteOptions::new().wait_at_most(Duration::from_secs(60))
}

/// Executes on each in turn.
fn execute_each(bursts: &mut [Burst], rounds: usize) {
    for round in 0..rounds {
        for (number, burst) in bursts.iter_mut().enumerate() {
            let value = (round * 1000 + number) as f32;
            assert_eq!(add(burst, value).unwrap(), value + 1.0);
        }
    }
}

/// The threads of the worker that did something meanwhile.
fn busy_threads(device: &Device, work: impl FnOnce()) -> Vec<i32> {
    let now = || -> BTreeMap<i32, Activity> { activities_of(device.worker().pid) };
    let before = now();
    work();
    let after = now();
    after
        .into_iter()
        .filter(|(thread, activity)| before.get(thread) != Some(activity))
        .map(|(thread, _)| thread)
        .collect()
}

/// Repeats `work` until so many threads of the worker did it, twice in a row: once may be by chance. Tests
/// that run beside this one may take the processors from them, so that short tasks seem long.
fn expect_busy_threads(device: &Device, expected: usize, mut work: impl FnMut()) {
    wait_until(&format!("{expected} threads serve all bursts"), || {
        (0..2).all(|_| busy_threads(device, &mut work).len() == expected)
    });
}

#[test]
fn one_thread_serves_all_bursts_of_short_tasks() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let mut bursts = bursts(&prepare(&device, 1), 12);
    execute_each(&mut bursts, ROUNDS);
    expect_busy_threads(&device, 1, || execute_each(&mut bursts, ROUNDS));
    // Whichever goes, that of the shared poller among them, the others are served on.
    while bursts.len() > 1 {
        bursts.remove(0);
        execute_each(&mut bursts, 2);
    }
    execute_each(&mut bursts, ROUNDS);
    expect_busy_threads(&device, 1, || execute_each(&mut bursts, ROUNDS));
}

#[test]
fn bursts_have_threads_of_their_own_where_there_may_be_as_many() {
    let settings = DaemonOptions::with_settings("[execution]\nshared_pollers = 64\n");
    let daemon = TestDaemon::start(EXE, &settings);
    let device = open(&daemon, REFERENCE);
    let mut bursts = bursts(&prepare(&device, 1), 5);
    execute_each(&mut bursts, ROUNDS);
    expect_busy_threads(&device, 5, || execute_each(&mut bursts, ROUNDS));
}

/// `output = input * input` of square matrices that take much longer than a microsecond.
fn prepare_long(device: &Device) -> (PreparedModel, Request) {
    const SIDE: u32 = 128;
    let mut model = ModelBuilder::new();
    let shape = TensorType::float32(&[SIDE, SIDE]);
    let x = model.input(shape.clone());
    let bias = model.constant(TensorType::float32(&[SIDE]), &[0.0_f32; SIDE as usize]);
    let no_activation = model.scalar(0_i32);
    let product = model.output(shape);
    model.operation(
        OperationType::FULLY_CONNECTED,
        &[x, x, bias, no_activation],
        &[product],
    );
    let prepared = device.prepare(&model.finish().unwrap(), &PrepareOptions::new());
    let bytes = u64::from(4 * SIDE * SIDE);
    let memory = Memory::new(2 * bytes).unwrap();
    let request = Request::new()
        .input(&memory, 0..bytes)
        .output(&memory, bytes..2 * bytes);
    (prepared.unwrap(), request)
}

#[test]
fn bursts_of_long_executions_keep_their_threads() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let mut short = bursts(&prepare(&device, 1), 4);
    let (prepared, request) = prepare_long(&device);
    let mut long = prepared.burst(&BurstOptions::new()).unwrap();
    let request = long.register(&request).unwrap();
    let mut execute = || {
        execute_each(&mut short, ROUNDS);
        for _ in 0..10 {
            long.fire(&request, &options()).unwrap();
        }
    };
    execute();
    expect_busy_threads(&device, 2, execute);
}

#[test]
fn request_without_a_slot_holds_up_no_burst_that_shares_its_thread() {
    let settings = DaemonOptions::with_settings("[execution]\nshared_pollers = 1\nslots = 1\n");
    let daemon = TestDaemon::start(EXE, &settings);
    let device = open(&daemon, REFERENCE);
    let mut bursts = bursts(&prepare(&device, 1), 4);
    execute_each(&mut bursts, ROUNDS);
    expect_busy_threads(&device, 1, || execute_each(&mut bursts, ROUNDS));
    let memory = Memory::new(8).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);

    let endless = device.prepare(&endless_loop(), &PrepareOptions::new()).unwrap();
    let mut arguments = endless.new_arguments().unwrap();
    arguments.write(0, &[1.0_f32]).unwrap();
    let endless = endless
        .start(arguments.request(), &options().loop_timeout(TIMEOUT))
        .unwrap();
    let (waiting, others) = bursts.split_first_mut().unwrap();
    let is_late = |burst: &mut Burst| {
        // Not when the loop ends, which is much later.
        let options = options().wait_at_most(Duration::from_secs(20));
        let outcome = burst.execute(&request, &options.timeout(Duration::from_millis(50)));
        outcome.is_err_and(|error| error.status() == ErrorStatus::MissedDeadlineTransient)
    };
    wait_until("the loop has the slot", || is_late(&mut others[0]));
    let registered = waiting.register(&request).unwrap();
    waiting.submit(&registered, &options()).unwrap();
    for other in &mut *others {
        assert!(is_late(other));
    }
    endless.cancel();
    waiting
        .next_finished(&options())
        .unwrap()
        .unwrap()
        .result
        .unwrap();
    execute_each(&mut bursts, ROUNDS);
}

#[test]
fn bursts_of_other_priority_are_served_by_others() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let of = |priority| {
        let options = PrepareOptions::new().priority(priority);
        let prepared = device.prepare(&crate::common::add_one(1), &options).unwrap();
        bursts(&prepared, 3)
    };
    // Not low: the system has those wait for whatever else runs here, and their tasks are not short then.
    let mut all: Vec<Burst> = [nnhal_hal::Priority::Medium, nnhal_hal::Priority::High]
        .into_iter()
        .flat_map(of)
        .collect();
    execute_each(&mut all, ROUNDS);
    expect_busy_threads(&device, 2, || execute_each(&mut all, ROUNDS));
}

/// Bursts with several requests in flight on each, each with values of its own.
struct Fleet {
    bursts: Vec<(Burst, Vec<RegisteredRequest>)>,
    memory: Memory,
}

impl Fleet {
    const DEPTH: usize = 4;

    fn new(prepared: &PreparedModel, count: usize) -> Fleet {
        let memory = Memory::new((count * Fleet::DEPTH * 8) as u64).unwrap();
        let burst = |number: usize| {
            let mut burst = prepared
                .burst(&BurstOptions::new().in_flight(Fleet::DEPTH as u32))
                .unwrap();
            let requests = (0..Fleet::DEPTH).map(|slot| {
                let at = Fleet::place(number, slot);
                let request = Request::new()
                    .input(&memory, at..at + 4)
                    .output(&memory, at + 4..at + 8);
                burst.register(&request).unwrap()
            });
            let requests = requests.collect();
            (burst, requests)
        };
        Fleet {
            bursts: (0..count).map(burst).collect(),
            memory: memory.clone(),
        }
    }

    fn place(burst: usize, slot: usize) -> u64 {
        ((burst * Fleet::DEPTH + slot) * 8) as u64
    }

    /// Submits as many as may be in flight on each burst, then takes all results.
    fn run(&mut self, round: usize) {
        let value = |burst, slot| (round * 10_000 + burst * 100 + slot) as f32;
        for (number, (burst, requests)) in self.bursts.iter_mut().enumerate() {
            for (slot, request) in requests.iter().enumerate() {
                let at = Fleet::place(number, slot);
                self.memory.write(at, &[value(number, slot)]).unwrap();
                burst.submit(request, &options()).unwrap();
            }
        }
        for (number, (burst, _)) in self.bursts.iter_mut().enumerate() {
            for slot in 0..Fleet::DEPTH {
                let finished = burst.next_finished(&options()).unwrap().unwrap();
                finished.result.unwrap();
                let at = Fleet::place(number, slot) + 4;
                let sum: Vec<f32> = self.memory.read(at, 1).unwrap();
                assert_eq!(sum, [value(number, slot) + 1.0]);
            }
        }
    }
}

#[test]
fn many_requests_in_flight_on_many_bursts_each_have_their_values() {
    let daemon = start_with_one_shared_poller();
    let mut fleet = Fleet::new(&prepare(&open(&daemon, REFERENCE), 1), 30);
    (0..300).for_each(|round| fleet.run(round));
}

#[test]
fn threads_of_a_client_share_the_poller_while_bursts_come_and_go() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut bursts = bursts(&prepared, 4);
                    execute_each(&mut bursts, 20);
                }
            });
        }
    });
    let mut last = bursts(&prepared, 1);
    execute_each(&mut last, ROUNDS);
}

/// Tells others to end when it is dropped, be it by a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Requests that are in flight on a burst that always has some: one that is carried out, and one behind it.
/// No more, so that its tasks are short in a driver that is not optimised, too.
const WAITING: usize = 2;

/// Keeps requests in flight on a burst until it is told to end.
fn saturate(fleet: &mut Fleet, is_over: &AtomicBool) {
    let (burst, requests) = fleet.bursts.first_mut().unwrap();
    for request in requests.iter().cycle() {
        if burst.in_flight() == WAITING {
            burst.next_finished(&options()).unwrap().unwrap().result.unwrap();
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        burst.submit(request, &options()).unwrap();
    }
}

#[test]
fn bursts_that_always_have_requests_let_others_have_their_turn_that_pause() {
    let daemon = start_with_one_shared_poller();
    let prepared = prepare(&open(&daemon, REFERENCE), 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        for _ in 0..2 {
            let mut fleet = Fleet::new(&prepared, 1);
            let is_over = &is_over;
            scope.spawn(move || saturate(&mut fleet, is_over));
        }
        let mut others = bursts(&prepared, 3);
        execute_each(&mut others, ROUNDS);
        // While one executes, the others pause for longer than they are taken for busy.
        for _ in 0..3 {
            for other in &mut others {
                execute_each(std::slice::from_mut(other), 5 * ROUNDS);
            }
        }
    });
}

#[test]
fn bursts_end_though_others_always_have_requests() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        for _ in 0..2 {
            let mut fleet = Fleet::new(&prepared, 1);
            let is_over = &is_over;
            scope.spawn(move || saturate(&mut fleet, is_over));
        }
        for _ in 0..3 {
            let mut others = bursts(&prepared, 3);
            execute_each(&mut others, ROUNDS);
            drop(others);
            wait_until("the threads of released bursts have ended", || {
                burst_threads(device.worker().pid) == 2
            });
        }
    });
}

#[test]
fn death_of_the_worker_ends_all_bursts() {
    let daemon = start_with_one_shared_poller();
    let device = open(&daemon, REFERENCE);
    let mut bursts = bursts(&prepare(&device, 1), 6);
    execute_each(&mut bursts, ROUNDS);
    let pid = i32::try_from(device.worker().pid).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    for burst in &mut bursts {
        let error = add(burst, 1.0).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DeadObject { .. }), "{error}");
    }
}
