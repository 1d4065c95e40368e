//! Deadlines, priorities and preferences across processes (cases Q of the VTS inventory; T16, T19, T20).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nnhal_client::{
    Arguments, BurstOptions, Clock, Completed, Deadline, Device, Devices, Error, ErrorStatus, ExecuteOptions,
    Model, ModelBuilder, MonotonicClock, OperationType, PrepareOptions, PreparedModel, Priority, TensorType,
    Timing,
};
use nnhal_os::time::TimePoint;
use nnhal_tests::{DaemonOptions, SetOnDrop, TIMEOUT, TestDaemon, endless_loop, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

fn start(device: &str, settings: &str) -> (TestDaemon, Device) {
    let options = DaemonOptions {
        devices: vec![device.into()],
        ..DaemonOptions::with_settings(settings)
    };
    let daemon = TestDaemon::start(EXE, &options);
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device(device).unwrap();
    (daemon, device)
}

/// `output = input * (operations + 1)`.
fn sums(operations: u32, elements: u32) -> Model {
    let mut model = ModelBuilder::new();
    let input = model.input(TensorType::float32(&[elements]));
    let no_activation = model.scalar(0_i32);
    let mut last = input;
    for index in 1..=operations {
        let ty = TensorType::float32(&[elements]);
        let next = if index == operations {
            model.output(ty)
        } else {
            model.temporary(ty)
        };
        model.operation(OperationType::ADD, &[last, input, no_activation], &[next]);
        last = next;
    }
    model.finish().unwrap()
}

fn prepare(device: &Device, model: &Model, priority: Priority) -> PreparedModel {
    let options = PrepareOptions::new().priority(priority);
    device.prepare(model, &options).unwrap()
}

fn ones(prepared: &PreparedModel, elements: u32) -> Arguments {
    let mut arguments = prepared.new_arguments().unwrap();
    arguments.write(0, &vec![1.0_f32; elements as usize]).unwrap();
    arguments
}

fn now() -> Deadline {
    Deadline::at(MonotonicClock.now())
}

/// Tries until both executions meet.
const ATTEMPTS: usize = 20;

const FAR: Deadline = Deadline::from_raw(u64::MAX);

fn is_missed(error: &Error) -> bool {
    matches!(
        error.status(),
        ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent
    )
}

fn expect_done_or_missed(case: &str, outcome: &Result<Completed, Error>) {
    match outcome {
        Ok(completed) => {
            assert_eq!(completed.timing, Timing::NONE, "{case}, Q11");
            let shapes = &completed.output_shapes;
            assert!(
                shapes.is_empty() || shapes.iter().all(|shape| shape.is_sufficient),
                "{case}, Q11"
            );
        }
        Err(error) => {
            assert!(is_missed(error), "{case}: {error}");
            assert!(error.output_shapes().is_empty(), "{case}, Q11");
        }
    }
}

/// Q01, and what N034 asks.
#[test]
fn preparing_heeds_priority_and_deadline() {
    let (_daemon, device) = start("nnhal-reference", "");
    let model = sums(2, 4);
    for priority in [Priority::Low, Priority::High] {
        prepare(&device, &model, priority);
    }
    let soon = || Deadline::after(MonotonicClock.now(), Duration::from_millis(5));
    for (case, deadline) in [("Q02", now()), ("Q03", soon())] {
        let options = PrepareOptions::new().deadline(deadline);
        let mut launched = device.start_preparing(&model, &options).expect(case);
        if let Err(error) = launched.wait(Deadline::NONE) {
            assert!(is_missed(&error), "{case}: {error}");
        }
    }
    let options = PrepareOptions::new().deadline(FAR);
    device.prepare(&model, &options).expect("Q04");
}

/// N048 is about the same.
#[test]
fn executions_heed_their_deadline() {
    let (_daemon, device) = start("nnhal-reference", "");
    let prepared = prepare(&device, &sums(2, 4), Priority::Medium);
    let arguments = ones(&prepared, 4);
    let soon = || Deadline::after(MonotonicClock.now(), Duration::from_millis(5));
    for (case, deadline) in [("Q05", now()), ("Q06", soon()), ("Q07", FAR)] {
        let options = ExecuteOptions::new().deadline(deadline);
        let mut launched = prepared.start(arguments.request(), &options).expect(case);
        expect_done_or_missed(case, &launched.wait(Deadline::NONE));
    }
    for (case, deadline) in [("Q08", now()), ("Q09", soon()), ("Q10", FAR)] {
        let options = ExecuteOptions::new().deadline(deadline);
        expect_done_or_missed(case, &prepared.execute(arguments.request(), &options));
    }
    let options = ExecuteOptions::new().deadline(FAR);
    prepared.execute(arguments.request(), &options).expect("Q10");
    assert_eq!(arguments.read::<f32>(0).unwrap(), [3.0; 4]);
    let past = ExecuteOptions::new().deadline(Deadline::from_raw(1));
    let error = prepared.execute(arguments.request(), &past).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlinePersistent, "T19");
}

#[test]
fn endless_work_is_aborted_at_its_deadline() {
    let (_daemon, device) = start("nnhal-empty", "[device.nnhal-empty]\nfault = \"loop\"\n");
    let prepared = prepare(&device, &sums(1, 4), Priority::Medium);
    let arguments = ones(&prepared, 4);
    let options = || ExecuteOptions::new().timeout(Duration::from_millis(200));
    let synchronous = prepared.execute(arguments.request(), &options()).unwrap_err();
    let mut launched = prepared.start(arguments.request(), &options()).unwrap();
    let asynchronous = launched.wait(Deadline::NONE).unwrap_err();
    let fenced = prepared
        .execute_fenced(arguments.request(), &[], &options())
        .unwrap();
    let fenced = fenced.wait(Deadline::NONE).unwrap_err();
    for error in [synchronous, asynchronous, fenced] {
        assert_eq!(error.status(), ErrorStatus::MissedDeadlineTransient, "{error}");
    }
}

/// T16: by every way, and the worker goes on.
#[test]
fn endless_loop_is_ended_by_the_loop_timeout() {
    const LIMIT: Duration = Duration::from_millis(100);
    for name in ["nnhal-reference", "nnhal-cpu"] {
        let (_daemon, device) = start(name, "");
        let prepared = prepare(&device, &endless_loop(), Priority::Medium);
        let arguments = ones(&prepared, 1);
        let request = arguments.request();
        let options = ExecuteOptions::new().loop_timeout(LIMIT).wait_at_most(TIMEOUT);
        let far = || Deadline::after(MonotonicClock.now(), TIMEOUT);
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        let expect_missed = |way: &str, work: &mut dyn FnMut() -> Error| {
            let started = Instant::now();
            let error = work();
            let took = started.elapsed();
            assert!(is_missed(&error), "{name}, {way}: {error}");
            let overrun = took.checked_sub(LIMIT).expect("not before the limit");
            println!("{name}, {way}: {} ms too long", overrun.as_millis());
            assert!(overrun < Duration::from_secs(5), "{name}, {way}: {overrun:?}");
        };
        expect_missed("synchronous", &mut || {
            prepared.execute(request, &options).unwrap_err()
        });
        expect_missed("asynchronous", &mut || {
            prepared
                .start(request, &options)
                .unwrap()
                .wait(far())
                .unwrap_err()
        });
        expect_missed("fenced", &mut || {
            let launched = prepared.execute_fenced(request, &[], &options).unwrap();
            launched.wait(far()).unwrap_err()
        });
        expect_missed("burst", &mut || burst.execute(request, &options).unwrap_err());
        device.status().unwrap();
        let after = prepare(&device, &sums(1, 1), Priority::Medium);
        after
            .execute(ones(&after, 1).request(), &ExecuteOptions::new())
            .unwrap();
    }
}

#[test]
fn endless_preparation_is_aborted_at_its_deadline() {
    let (_daemon, device) = start("nnhal-empty", "[device.nnhal-empty]\nprepare = \"loop\"\n");
    let deadline = Deadline::after(MonotonicClock.now(), Duration::from_millis(200));
    let options = PrepareOptions::new().deadline(deadline);
    let error = device.prepare(&sums(1, 4), &options).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlineTransient, "{error}");
}

#[test]
fn what_cannot_be_in_time_is_refused_before_it_starts() {
    const ELEMENTS: u32 = 65536;
    let (_daemon, device) = start("nnhal-reference", "");
    let prepared = prepare(&device, &sums(100, ELEMENTS), Priority::Medium);
    let arguments = ones(&prepared, ELEMENTS);
    let measured = ExecuteOptions::new().measure_timing();
    let runs = (0..3).map(|_| prepared.execute(arguments.request(), &measured).unwrap().timing);
    let fastest = runs.map(|timing| timing.time_on_device_us).min().unwrap();
    let too_little = ExecuteOptions::new().timeout(Duration::from_micros(fastest / 8));
    let error = prepared.execute(arguments.request(), &too_little).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlinePersistent, "{error}");
    let enough = ExecuteOptions::new().timeout(TIMEOUT);
    prepared.execute(arguments.request(), &enough).unwrap();
}

/// T19: nothing is run for them, by any way of asking.
#[test]
fn deadline_that_is_past_is_refused_at_once() {
    const CALLS: usize = 200;
    let (_daemon, device) = start("nnhal-reference", "");
    let prepared = prepare(&device, &sums(1, 4), Priority::Medium);
    let arguments = ones(&prepared, 4);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let past = ExecuteOptions::new().deadline(Deadline::at(TimePoint::from_nanos(1)));
    let median = |way: &str, call: &mut dyn FnMut() -> Error| {
        let mut times: Vec<Duration> = (0..CALLS)
            .map(|_| {
                let started = Instant::now();
                let error = call();
                assert!(is_missed(&error), "{way}: {error}");
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!(
            "T19: {way}: refused after {} us, 99 of 100 after {} us",
            times[CALLS / 2].as_micros(),
            times[CALLS * 99 / 100].as_micros()
        );
    };
    median("synchronous", &mut || {
        prepared.execute(arguments.request(), &past).unwrap_err()
    });
    median("burst", &mut || {
        burst.execute(arguments.request(), &past).unwrap_err()
    });
    // Nothing was computed.
    assert!(
        arguments
            .read::<f32>(0)
            .unwrap()
            .iter()
            .all(|value| *value != 2.0)
    );
}

#[test]
fn high_priority_goes_first_and_low_priority_goes_on_where_it_was() {
    const ELEMENTS: u32 = 1 << 18;
    const OPERATIONS: u32 = 400;
    let (_daemon, device) = start("nnhal-reference", "[execution]\nslots = 1\n");
    let low = prepare(&device, &sums(OPERATIONS, ELEMENTS), Priority::Low);
    let high = prepare(&device, &sums(1, 4), Priority::High);
    let long = ones(&low, ELEMENTS);
    let short = ones(&high, 4);
    high.execute(short.request(), &ExecuteOptions::new()).unwrap();
    let has_ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&has_ended);
    let options = ExecuteOptions::new().measure_timing();
    let launched = low.start(long.request(), &options).unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    launched
        .on_end(move |outcome| {
            end.store(true, Ordering::SeqCst);
            said.send(outcome).unwrap();
        })
        .unwrap();
    let mut before_the_end = 0;
    while before_the_end < 5 {
        high.execute(short.request(), &ExecuteOptions::new()).unwrap();
        assert!(
            !has_ended.load(Ordering::SeqCst),
            "after {before_the_end} executions"
        );
        before_the_end += 1;
    }
    let completed = heard.recv_timeout(TIMEOUT).unwrap().unwrap();
    assert!(completed.timing.time_on_device_us <= completed.timing.time_in_driver_us);
    let results = long.read::<f32>(0).unwrap();
    assert!(results.iter().all(|result| *result == (OPERATIONS + 1) as f32));
}

#[test]
fn measured_times_contain_the_time_in_which_an_execution_was_suspended() {
    const ELEMENTS: u32 = 1 << 14;
    const HIGH: u32 = 20;
    let (_daemon, device) = start("nnhal-reference", "[execution]\nslots = 1\n");
    let low = prepare(&device, &sums(4000, ELEMENTS), Priority::Low);
    let high = prepare(&device, &sums(30, ELEMENTS), Priority::High);
    let (long, short) = (ones(&low, ELEMENTS), ones(&high, ELEMENTS));
    let measured = ExecuteOptions::new().measure_timing();
    let on_device = |outcome: Result<Completed, Error>| outcome.unwrap().timing.time_on_device_us;
    on_device(high.execute(short.request(), &measured));
    let has_shown = (0..ATTEMPTS).any(|_| {
        let mut launched = low.start(long.request(), &measured).unwrap();
        // From the end of the first on the low one has the slot, if it is not at an end.
        on_device(high.execute(short.request(), &measured));
        let of_others: u64 = (0..HIGH)
            .map(|_| on_device(high.execute(short.request(), &measured)))
            .sum();
        if launched.wait(now()).is_ok() {
            return false;
        }
        let timing = launched.wait(Deadline::NONE).unwrap().timing;
        assert!(
            timing.time_on_device_us > of_others,
            "{timing:?}, others ran for {of_others} us meanwhile"
        );
        true
    });
    assert!(has_shown, "the long execution always ended before the short ones");
}

/// How long the slowest of a hundred executions takes.
fn p99(prepared: &PreparedModel, elements: u32) -> Duration {
    let arguments = ones(prepared, elements);
    let times = (0..100).map(|_| {
        let started = Instant::now();
        prepared
            .execute(arguments.request(), &ExecuteOptions::new())
            .unwrap();
        started.elapsed()
    });
    times.max().unwrap()
}

#[test]
fn low_priority_makes_progress_beside_high_priority_without_end() {
    const ELEMENTS: u32 = 4096;
    let (_daemon, device) = start("nnhal-reference", "[execution]\nslots = 1\n");
    let low = prepare(&device, &sums(50, ELEMENTS), Priority::Low);
    let high = prepare(&device, &sums(50, ELEMENTS), Priority::High);
    let alone = p99(&high, ELEMENTS);
    let is_over = AtomicBool::new(false);
    let executed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let arguments = ones(&high, ELEMENTS);
                while !is_over.load(Ordering::Relaxed) {
                    high.execute(arguments.request(), &ExecuteOptions::new()).unwrap();
                    executed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("the load is there", || executed.load(Ordering::Relaxed) > 3);
        let arguments = ones(&low, ELEMENTS);
        let started = Instant::now();
        let options = ExecuteOptions::new().wait_at_most(TIMEOUT);
        let outcome = low.execute(arguments.request(), &options);
        let low_took = started.elapsed();
        // Low priority without end, and others that are urgent.
        let beside = std::thread::scope(|scope| {
            let _over = SetOnDrop(&is_over);
            scope.spawn(|| {
                let arguments = ones(&low, ELEMENTS);
                while !is_over.load(Ordering::Relaxed) {
                    low.execute(arguments.request(), &ExecuteOptions::new()).unwrap();
                }
            });
            let beside = p99(&high, ELEMENTS);
            is_over.store(true, Ordering::Relaxed);
            beside
        });
        println!(
            "T20: low priority took {} us; the p99 of high priority is {} us beside three others of high and one of \
             low priority, {} us alone",
            low_took.as_micros(),
            beside.as_micros(),
            alone.as_micros()
        );
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|error| panic!("T20: after {:?}: {error}", started.elapsed()));
    });
}
