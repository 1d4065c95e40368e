//! States of a model in its worker's memory: from call to call, in and out by name, and across the worker's
//! death.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    Deadline, Device, Devices, Error, ErrorKind, ExecuteOptions, Input, Memory, Output, PrepareOptions,
    Remedy, Request, StatefulModel, StatefulOptions, States, StatesCopy, TfliteModel,
};
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const FAST: &str = "nnhal-cpu";
const ELEMENTS: usize = 6;

fn start() -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::default())
}

fn open_device(daemon: &TestDaemon) -> Device {
    Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(FAST)
        .unwrap()
}

/// The variable `total` begins with 1.5 and each call adds its input; `last` is the input of the call before,
/// and begins with -2.
fn counter() -> TfliteModel {
    let file = "../tflite/tests/operators/resource_variables/model.tflite";
    TfliteModel::load(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn open(daemon: &TestDaemon, recovers: bool) -> StatefulModel {
    let options = StatefulOptions::new().recover(recovers);
    StatefulModel::open(&open_device(daemon), &counter(), &options).unwrap()
}

/// Calls the model with as many times this value.
fn add(model: &mut StatefulModel, value: f32) -> Result<(), Error> {
    let mut rooms = vec![[0.0_f32; ELEMENTS]; counter().outputs.len()];
    let mut outputs: Vec<Output<'_>> = rooms.iter_mut().map(Output::from).collect();
    model.run(
        &[Input::from(&[value; ELEMENTS])],
        &mut outputs,
        &ExecuteOptions::new(),
    )?;
    Ok(())
}

fn bytes(value: f32) -> Vec<u8> {
    [value; ELEMENTS]
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

#[track_caller]
fn expect(model: &mut StatefulModel, total: f32, last: f32) {
    assert_eq!(model.value("total").unwrap(), bytes(total));
    assert_eq!(model.value("last").unwrap(), bytes(last));
}

fn kill_worker(model: &StatefulModel) -> u32 {
    let worker = model.device().worker().pid;
    kill(Pid::from_raw(worker.cast_signed()), Signal::SIGKILL).unwrap();
    worker
}

#[track_caller]
fn expect_lost(error: &Error, worker: u32, expected: Option<u64>) {
    let ErrorKind::StatesLost { states, restored, .. } = error.kind() else {
        panic!("{error}")
    };
    assert!(
        states.contains(&"total".to_owned()) && states.contains(&"last".to_owned()),
        "{states:?}"
    );
    assert_eq!(*restored, expected);
    assert!(error.is_dead_object());
    assert_eq!(error.process().unwrap().pid, worker);
    let remedy = if expected.is_some() {
        Remedy::Retry
    } else {
        Remedy::Reconnect
    };
    assert_eq!(error.remedy(), remedy);
    assert!(error.to_string().contains("was killed by SIGKILL"), "{error}");
}

#[test]
fn states_go_on_from_call_to_call_and_in_and_out_by_name() {
    let daemon = start();
    let mut model = open(&daemon, false);
    expect(&mut model, 1.5, -2.0);
    for call in 1..=5 {
        add(&mut model, 2.0).unwrap();
        expect(&mut model, 1.5 + 2.0 * call as f32, 2.0);
        assert_eq!(model.calls(), call);
    }
    let copy = model.copy().unwrap();
    assert_eq!(copy.value("total"), Some(&bytes(11.5)[..]));
    model.set_value("total", &bytes(100.0)).unwrap();
    add(&mut model, 1.0).unwrap();
    expect(&mut model, 101.0, 1.0);
    model.reset().unwrap();
    assert_eq!(model.calls(), 0);
    expect(&mut model, 1.5, -2.0);
    // What was written to a file, say, and in another model's worker.
    let mut other = open(&daemon, false);
    let copy = StatesCopy::new(copy.values().to_vec());
    other.restore(&copy, 5).unwrap();
    assert_eq!(other.calls(), 5);
    add(&mut other, 0.5).unwrap();
    expect(&mut other, 12.0, 0.5);
    expect(&mut model, 1.5, -2.0);
}

#[test]
fn what_is_no_value_of_a_state_is_refused_and_changes_nothing() {
    let daemon = start();
    let mut model = open(&daemon, false);
    add(&mut model, 1.0).unwrap();
    let unknown = model.value("totals").unwrap_err().to_string();
    assert!(
        unknown.contains("no state \"totals\"") && unknown.contains("\"total\""),
        "{unknown}"
    );
    let short = model.set_value("total", &[0; 4]).unwrap_err().to_string();
    assert!(short.contains("\"total\" has 24 bytes, 4 were given"), "{short}");
    let copy = model.copy().unwrap();
    let mut fewer = copy.values().to_vec();
    fewer.pop();
    let mut renamed = copy.values().to_vec();
    renamed[0].0 = "sum".to_owned();
    let mut longer = copy.values().to_vec();
    longer[0].1.push(0);
    for wrong in [fewer, renamed, longer] {
        let error = model.restore(&StatesCopy::new(wrong), 1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    }
    expect(&mut model, 2.5, 1.0);
    assert_eq!(model.calls(), 1);
}

#[test]
fn what_is_refused_leaves_the_last_copy_current() {
    let daemon = start();
    let mut model = open(&daemon, true);
    add(&mut model, 1.0).unwrap();
    model.keep_copy().unwrap();
    model.set_value("totals", &bytes(7.0)).unwrap_err();
    model.set_value("total", &[0; 4]).unwrap_err();
    kill_worker(&model);
    add(&mut model, 10.0).unwrap();
    expect(&mut model, 12.5, 10.0);
}

#[test]
fn recovery_that_fails_is_tried_again_from_the_same_copy() {
    let directory = tempfile::tempdir().unwrap();
    let start = || TestDaemon::start_in(directory.path(), EXE, &DaemonOptions::default());
    let mut daemon = start();
    let mut model = open(&daemon, true);
    add(&mut model, 1.0).unwrap();
    model.keep_copy().unwrap();
    kill_worker(&model);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let error = add(&mut model, 10.0).unwrap_err();
    assert!(!matches!(error.kind(), ErrorKind::StatesLost { .. }), "{error}");
    let _daemon = start();
    add(&mut model, 10.0).unwrap();
    expect(&mut model, 12.5, 10.0);
}

#[test]
fn call_that_fails_leaves_the_states_as_they_were() {
    let daemon = start();
    let mut model = open(&daemon, false);
    add(&mut model, 1.0).unwrap();
    let passed = ExecuteOptions::new().deadline(Deadline::from_raw(1));
    let mut rooms = vec![[0.0_f32; ELEMENTS]; counter().outputs.len()];
    let mut outputs: Vec<Output<'_>> = rooms.iter_mut().map(Output::from).collect();
    model
        .run(&[Input::from(&[9.0_f32; ELEMENTS])], &mut outputs, &passed)
        .unwrap_err();
    expect(&mut model, 2.5, 1.0);
    add(&mut model, 1.0).unwrap();
    expect(&mut model, 3.5, 1.0);
}

#[test]
fn states_without_a_copy_are_lost_with_the_worker_until_the_program_says_how_to_go_on() {
    let daemon = start();
    for recovers in [false, true] {
        let mut model = open(&daemon, recovers);
        add(&mut model, 1.0).unwrap();
        let copy = model.copy().unwrap();
        add(&mut model, 1.0).unwrap();
        let worker = kill_worker(&model);
        for _ in 0..3 {
            expect_lost(&add(&mut model, 1.0).unwrap_err(), worker, None);
            expect_lost(&model.value("total").unwrap_err(), worker, None);
            expect_lost(&model.set_value("total", &bytes(0.0)).unwrap_err(), worker, None);
            expect_lost(&model.copy().unwrap_err(), worker, None);
        }
        model.restore(&copy, 1).unwrap();
        assert_ne!(model.device().worker().pid, worker);
        add(&mut model, 4.0).unwrap();
        expect(&mut model, 6.5, 4.0);
        kill_worker(&model);
        model.reset().unwrap();
        expect(&mut model, 1.5, -2.0);
        add(&mut model, 1.0).unwrap();
        expect(&mut model, 2.5, 1.0);
    }
}

#[test]
fn stream_goes_on_from_its_last_copy_and_says_where_that_is() {
    let daemon = start();
    let mut model = open(&daemon, true);
    for _ in 0..3 {
        add(&mut model, 1.0).unwrap();
    }
    model.keep_copy().unwrap();
    for _ in 0..2 {
        add(&mut model, 10.0).unwrap();
    }
    let worker = kill_worker(&model);
    expect_lost(&add(&mut model, 10.0).unwrap_err(), worker, Some(3));
    assert_eq!(model.calls(), 3);
    expect(&mut model, 4.5, 1.0);
    add(&mut model, 10.0).unwrap();
    expect(&mut model, 14.5, 10.0);
    // The copy is as good a second time.
    let worker = kill_worker(&model);
    expect_lost(&add(&mut model, 10.0).unwrap_err(), worker, Some(3));
    // Nothing has changed the states since: the next death is not noticed.
    kill_worker(&model);
    add(&mut model, 10.0).unwrap();
    expect(&mut model, 14.5, 10.0);
    assert_eq!(model.calls(), 4);
}

#[test]
fn stream_that_keeps_a_copy_of_every_call_survives_workers_that_die_in_the_middle() {
    const CALLS: u32 = 150;
    let daemon = start();
    let mut model = open(&daemon, true);
    model.keep_copy().unwrap();
    let (worker, is_done) = (
        AtomicU32::new(model.device().worker().pid),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                let victim = worker.load(Ordering::SeqCst);
                kill(Pid::from_raw(victim.cast_signed()), Signal::SIGKILL).unwrap();
                wait_until("another worker serves the stream", || {
                    worker.load(Ordering::SeqCst) != victim || is_done.load(Ordering::SeqCst)
                });
                if is_done.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for call in 1..=CALLS {
            // A copy that could not be taken leaves the one before, and an error that says so.
            let outcome = add(&mut model, 1.0).and_then(|()| model.keep_copy().map(drop));
            if let Err(error) = outcome {
                assert!(matches!(error.kind(), ErrorKind::StatesLost { .. }), "{error}");
                // What the states have seen is what counts.
                while model.calls() < u64::from(call) || model.copy().is_err() {
                    let _ = add(&mut model, 1.0);
                }
                model.keep_copy().unwrap();
            }
            worker.store(model.device().worker().pid, Ordering::SeqCst);
        }
        is_done.store(true, Ordering::SeqCst);
    });
    assert_eq!(model.calls(), u64::from(CALLS));
    expect(&mut model, 1.5 + CALLS as f32, 1.0);
}

#[test]
fn requests_of_a_program_take_turns_and_several_models_keep_states_of_their_own() {
    let daemon = start();
    let (device, file) = (open_device(&daemon), counter());
    let prepared = device.prepare(&file.model, &PrepareOptions::new()).unwrap();
    let size = ELEMENTS as u64 * 4;
    let memory = Memory::new(size * (1 + file.outputs.len() as u64)).unwrap();
    memory.write(0, &[1.0_f32; ELEMENTS]).unwrap();
    let mut own = Request::new().input(&memory, 0..size);
    for at in 1..=file.outputs.len() as u64 {
        own = own.output(&memory, at * size..(at + 1) * size);
    }
    let mut all = [0, 1].map(|_| States::allocate(&device, &prepared, &file.states).unwrap());
    for (at, states) in all.iter_mut().enumerate() {
        let requests = [0, 1].map(|turn| states.bind(own.clone(), turn));
        for _ in 0..=at * 2 {
            prepared
                .execute(&requests[states.turn()], &ExecuteOptions::new())
                .unwrap();
            states.end_turn();
        }
    }
    assert_eq!(all[0].value("total").unwrap(), bytes(2.5));
    assert_eq!(all[1].value("total").unwrap(), bytes(4.5));
    let copy = all[1].copy().unwrap();
    all[0].restore(&copy).unwrap();
    assert_eq!(all[0].value("total").unwrap(), bytes(4.5));
}
