//! A client that stays: it executes now and then, and says how long that takes.

use std::path::Path;
use std::time::Duration;

use nnhal_client::{
    BurstOptions, Clock, Devices, ExecuteOptions, Input, ModelBuilder, MonotonicClock, OperationType, Output,
    PrepareOptions, TensorType,
};

use crate::dialogue::{is_allowed, say};
use crate::session::{LIMIT, text};

/// Between executions: an application that computes now and then leaves the processors to others.
const PAUSE: Duration = Duration::from_micros(500);

/// Executes for a `period` each time that it is told to go on, and says the 99th percentile of what an
/// execution takes in it, in microseconds.
///
/// # Panics
///
/// If an execution fails, or has a wrong result.
pub(crate) fn run(runtime_dir: &Path, device: &str, period: Duration) {
    let device = Devices::open_in(runtime_dir).and_then(|devices| devices.device(device));
    let device = device.expect("a device");
    say(&format!("worker {}", device.worker().pid));
    let mut model = ModelBuilder::new();
    let shape = || TensorType::float32(&[1]);
    let x = model.input(shape());
    let one = model.constant(shape(), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(shape());
    model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
    let prepared = device.prepare(&model.finish().unwrap(), &PrepareOptions::new());
    let mut burst = prepared.and_then(|prepared| prepared.burst(&BurstOptions::new()));
    let burst = burst.as_mut().expect("a burst");
    let options = ExecuteOptions::new().wait_at_most(LIMIT);
    // What this process keeps must not be what is seen to grow: it is written to once, so that it is there.
    let mut latencies = vec![Duration::ZERO; (period.as_micros() / PAUSE.as_micros()) as usize + 1];
    let mut value = 0.0_f32;
    while is_allowed() {
        latencies.clear();
        let began = MonotonicClock.now();
        let mut now = began;
        while now.saturating_since(began) < period {
            std::thread::park_timeout(PAUSE);
            let since = MonotonicClock.now();
            let mut sum = [0.0_f32];
            let run = burst.run(&[Input::from(&[value])], &mut [Output::from(&mut sum)], &options);
            run.map_err(text).expect("an execution");
            assert_eq!(sum, [value + 1.0]);
            value = (value + 1.0) % 1000.0;
            now = MonotonicClock.now();
            latencies.push(now.saturating_since(since));
        }
        latencies.sort_unstable();
        let p99 = latencies[latencies.len() * 99 / 100];
        say(&format!("latency {}", p99.as_secs_f64() * 1e6));
    }
}
