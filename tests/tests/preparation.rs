//! Preparing takes a slot, heeds its deadline and its client's change of mind, and lets higher priority go
//! first: between its steps, on a device that has work to do for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nnhal_client::{
    CacheFiles, Clock, Deadline, Device, Devices, Error, ErrorStatus, ExecuteOptions, Model, ModelBuilder,
    MonotonicClock, OperationType, PrepareOptions, PreparedModel, Priority, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// Tries until other processes leave this one alone for long enough.
const ATTEMPTS: usize = 20;

/// Layers of a model that takes long to prepare.
const LAYERS: u32 = 48;

/// Units of a layer.
const UNITS: u32 = 1024;

/// The fast device packs the weights of each layer anew.
fn start() -> (TestDaemon, Device) {
    let options = DaemonOptions {
        devices: vec!["nnhal-cpu".into()],
        ..DaemonOptions::with_settings("[execution]\nslots = 1\n")
    };
    let daemon = TestDaemon::start(EXE, &options);
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device("nnhal-cpu").unwrap();
    (daemon, device)
}

/// Layers that share their weights, so that the model is small and what becomes of it is not.
fn layers(count: u32) -> Model {
    let mut model = ModelBuilder::new();
    let tensor = TensorType::float32(&[1, UNITS]);
    let weights = model.constant(
        TensorType::float32(&[UNITS, UNITS]),
        &vec![0.5_f32; (UNITS * UNITS) as usize],
    );
    let bias = model.constant(TensorType::float32(&[UNITS]), &vec![0.0_f32; UNITS as usize]);
    let no_activation = model.scalar(0_i32);
    let mut last = model.input(tensor.clone());
    for index in 1..=count {
        let next = if index == count {
            model.output(tensor.clone())
        } else {
            model.temporary(tensor.clone())
        };
        let inputs = [last, weights, bias, no_activation];
        model.operation(OperationType::FULLY_CONNECTED, &inputs, &[next]);
        last = next;
    }
    model.finish().unwrap().share_constants().unwrap()
}

/// A model that takes long to prepare, and how long that is.
fn long_model(device: &Device) -> (Model, Duration) {
    let model = layers(LAYERS);
    let started = Instant::now();
    device.prepare(&model, &PrepareOptions::new()).unwrap();
    (model, started.elapsed())
}

/// Prepares with a deadline after a quarter of the time that it takes without, until it is seen to end well
/// before the rest of it.
fn expect_early_end(
    options: &PrepareOptions,
    prepare: impl Fn(&PrepareOptions) -> Result<PreparedModel, Error>,
) {
    let mut started = Instant::now();
    prepare(options).unwrap();
    let mut whole = started.elapsed();
    for _ in 0..ATTEMPTS {
        let deadline = Deadline::after(MonotonicClock.now(), whole / 4);
        started = Instant::now();
        let outcome = prepare(&options.clone().deadline(deadline));
        let elapsed = started.elapsed();
        match outcome.map_err(|error| (error.status(), error)) {
            // The first took so long because of something else.
            Ok(_) => whole = elapsed,
            Err((ErrorStatus::MissedDeadlineTransient, _)) if elapsed < whole * 3 / 4 => return,
            // The end came late, or the call itself did.
            Err((ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent, _)) => {}
            Err((_, error)) => panic!("{error}"),
        }
    }
    panic!("none of {ATTEMPTS} preparations ended early; the whole takes {whole:?}");
}

#[test]
fn preparation_ends_between_two_steps_when_its_deadline_passes() {
    let (_daemon, device) = start();
    let model = layers(LAYERS);
    expect_early_end(&PrepareOptions::new(), |options| device.prepare(&model, options));
    device.prepare(&layers(1), &PrepareOptions::new()).unwrap();
}

#[test]
fn preparation_from_cache_ends_between_two_steps_when_its_deadline_passes() {
    let (_daemon, device) = start();
    let file = || vec![tempfile::tempfile().unwrap().into()];
    let files = Arc::new(CacheFiles {
        model: file(),
        data: file(),
        token: [3; 32],
    });
    let options = PrepareOptions::new().cache(files);
    let model = layers(LAYERS);
    device.prepare(&model, &options).unwrap();
    expect_early_end(&options, |options| {
        device.prepare_from_cache(Some(&model), options)
    });
}

#[test]
fn preparation_that_the_client_gives_up_leaves_its_slot_to_the_next() {
    let (_daemon, device) = start();
    let (long, whole) = long_model(&device);
    let short = layers(1);
    let is_left_early = (0..ATTEMPTS).any(|_| {
        drop(device.start_preparing(&long, &PrepareOptions::new()).unwrap());
        let started = Instant::now();
        device.prepare(&short, &PrepareOptions::new()).unwrap();
        started.elapsed() < whole / 2
    });
    assert!(is_left_early, "the whole takes {whole:?}");
}

#[test]
fn preparation_lets_executions_of_higher_priority_go_first() {
    let (_daemon, device) = start();
    let (long, whole) = long_model(&device);
    let high = PrepareOptions::new().priority(Priority::High);
    let short = device.prepare(&layers(1), &high).unwrap();
    let arguments = short.new_arguments().unwrap();
    let goes_first = (0..ATTEMPTS).any(|_| {
        let low = PrepareOptions::new().priority(Priority::Low);
        let mut pending = device.start_preparing(&long, &low).unwrap();
        short
            .execute(arguments.request(), &ExecuteOptions::new())
            .unwrap();
        let is_pending = pending.wait(Deadline::at(MonotonicClock.now())).is_err();
        if is_pending {
            pending.wait(Deadline::NONE).unwrap();
        }
        is_pending
    });
    assert!(goes_first, "the whole takes {whole:?}");
}
