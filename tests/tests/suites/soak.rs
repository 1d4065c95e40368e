//! Clients of mixed behaviour for a long time: threat T35.
//!
//! Eight clients come and go beside one that stays: some make every call, some are killed, some lose their
//! workers, some say nothing or nonsense. Nothing of what the supervisor has may grow, and the latency of the
//! client that stays must not, either. A line is fitted to each of these by least squares. Its slope is
//! distinguishable from 0 if it is more than [`ERRORS`] standard errors. How long anything takes is looked at
//! in the long form only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal::wire::directory;
use nnhal_client::{Clock, Deadline, MonotonicClock};
use nnhal_conformance::generator::choices::Random;
use nnhal_os::socket::Connection;
use nnhal_tests::{SetOnDrop, TIMEOUT, fds_of};

use crate::client::{Client, Said};
use crate::common::{DEVICE, Place, Stage, seed, send, sized};

/// Seconds of the short form.
const SECONDS: u64 = 8;

/// Clients beside the one that stays.
const CLIENTS: u64 = 8;

/// Parts of the time, over which samples are averaged: so few that neighbours hardly depend on each other.
const PARTS: usize = 30;

/// Standard errors that a slope may be from 0: what chance exceeds once in 1,000 fits of 30 values.
const ERRORS: f64 = 3.7;

/// Memory comes in pages, and the C library takes several at a time. Less than this in all is no growth.
const NO_GROWTH_BYTES: f64 = 256.0 * 1024.0;

/// What the last minute's p99 may be of the second one's.
const P99_RATIO: f64 = 1.1;

/// A moment of the driver.
struct Sample {
    seconds: f64,
    resident: f64,
    fds: f64,
    p99_micros: f64,
}

/// A line through values.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// For each second.
    slope: f64,
    error: f64,
}

impl Line {
    /// By least squares.
    fn through(points: &[(f64, f64)]) -> Line {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sxx: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let sxy: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = sxy / sxx;
        let off = |point: &(f64, f64)| (point.1 - y - slope * (point.0 - x)).powi(2);
        let squares: f64 = points.iter().map(off).sum();
        Line {
            slope,
            error: (squares / (n - 2.0) / sxx).sqrt(),
        }
    }

    fn grows(&self) -> bool {
        self.slope > ERRORS * self.error
    }
}

/// Averages over parts of the time, the first of which is left out: what is made once is made then.
fn averages(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let size = samples.len().div_ceil(PARTS).max(1);
    let average = |part: &[Sample]| {
        let mean = |of: &dyn Fn(&Sample) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        (mean(&|sample| sample.seconds), mean(&of))
    };
    samples.chunks(size).skip(1).map(average).collect()
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// One client after the other until the time is up, each of another kind.
fn come_and_go(place: &Place, number: u64, is_over: &AtomicBool, clients: &AtomicU64) {
    let mut random = Random::new(seed().wrapping_mul(CLIENTS).wrapping_add(number));
    while !is_over.load(Ordering::Relaxed) {
        clients.fetch_add(1, Ordering::Relaxed);
        match random.below(5) {
            // It hangs up at once, or says nonsense.
            0 => {
                let path = directory::socket_path(&place.runtime_dir(), DEVICE);
                let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
                let connection = Connection::connect(&path, deadline).unwrap();
                if random.below(2) == 0 {
                    let bytes: Vec<u8> = (0..64).map(|_| random.below(256) as u8).collect();
                    let _ = connection.send(&bytes, &[], deadline);
                }
            }
            // It, or its worker, is killed at one of its steps.
            kind @ (1 | 2) => {
                let mut client = Client::start_told(place);
                let (mut worker, mut steps) = (None, random.below(18));
                while let Some(said) = client.next() {
                    match said {
                        Said::Worker(pid) => worker = Some(pid),
                        Said::At(_) if steps > 0 => {
                            steps -= 1;
                            client.go_on();
                        }
                        Said::At(_) => {
                            let victim = if kind == 1 { Some(client.pid()) } else { worker };
                            client.go_on();
                            victim.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
                        }
                        _ => {}
                    }
                }
                let end = client.end();
                assert!(!end.text.contains("panicked"), "{end:?}");
            }
            // Nothing happens to it.
            _ => {
                let mut client = Client::start_brief(place);
                while let Some(said) = client.next() {
                    assert!(!matches!(said, Said::Failed(..)), "{said:?}");
                }
                let end = client.end();
                assert!(end.status.success(), "{end:?}");
            }
        }
    }
}

/// Looks at the driver once a second, or more often in the short form, while the client that stays computes.
fn watch(stage: &mut Stage, time: Duration) -> Vec<Sample> {
    let began = MonotonicClock.now();
    let every = (time / 600).clamp(Duration::from_millis(50), Duration::from_secs(1));
    let (mut samples, mut latencies) = (Vec::new(), Vec::new());
    loop {
        let since = MonotonicClock.now();
        stage.bystander.computes();
        let now = MonotonicClock.now();
        latencies.push(now.saturating_since(since));
        let seconds = now.saturating_since(began);
        if seconds >= every * (samples.len() as u32 + 1) {
            latencies.sort_unstable();
            let p99 = latencies[latencies.len() * 99 / 100];
            latencies.clear();
            samples.push(Sample {
                seconds: seconds.as_secs_f64(),
                resident: resident(stage.daemon.pid()) as f64,
                fds: fds_of(stage.daemon.pid()) as f64,
                p99_micros: p99.as_secs_f64() * 1e6,
            });
        }
        if seconds >= time {
            return samples;
        }
        // As an application that computes now and then, which leaves the processors to others.
        std::thread::park_timeout(Duration::from_micros(500));
    }
}

/// The median of what a minute's samples say.
fn p99_of_minute(samples: &[Sample], minute: u64) -> f64 {
    let is_in = |sample: &&Sample| sample.seconds as u64 / 60 == minute;
    let mut found: Vec<_> = samples
        .iter()
        .filter(is_in)
        .map(|sample| sample.p99_micros)
        .collect();
    found.sort_unstable_by(f64::total_cmp);
    found.get(found.len() / 2).copied().unwrap_or(f64::NAN)
}

#[test]
fn driver_stays_as_it_is_however_long_clients_come_and_go() {
    let minutes: f64 = sized("NNHAL_TEST_SOAK_MINUTES", 0.0);
    let is_long = minutes > 0.0;
    let time = if is_long {
        Duration::from_secs_f64(minutes * 60.0)
    } else {
        Duration::from_secs(SECONDS)
    };
    let place = Place::new();
    let mut stage = Stage::new(&place);
    let (is_over, clients) = (AtomicBool::new(false), AtomicU64::new(0));
    let samples = std::thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        for number in 0..CLIENTS {
            let (place, is_over, clients) = (&place, &is_over, &clients);
            scope.spawn(move || come_and_go(place, number, is_over, clients));
        }
        watch(&mut stage, time)
    });
    stage.expect_as_before("a soak");
    let lines = [
        (
            "resident bytes",
            Line::through(&averages(&samples, |sample| sample.resident)),
        ),
        (
            "descriptors",
            Line::through(&averages(&samples, |sample| sample.fds)),
        ),
        (
            "p99 in us",
            Line::through(&averages(&samples, |sample| sample.p99_micros)),
        ),
    ];
    println!(
        "{} clients in {} s, {} samples (seed {}); all is as before",
        clients.into_inner(),
        time.as_secs(),
        samples.len(),
        seed()
    );
    for (what, line) in lines {
        println!("{what}: {:.4} +- {:.4} a second", line.slope, line.error);
    }
    if !is_long {
        return;
    }
    let [(_, memory), (_, fds), (_, latency)] = lines;
    assert!(
        !memory.grows() || memory.slope * time.as_secs_f64() < NO_GROWTH_BYTES,
        "the supervisor's memory grows: {memory:?}"
    );
    assert!(!fds.grows(), "the supervisor's descriptors grow: {fds:?}");
    assert!(!latency.grows(), "the latency grows: {latency:?}");
    if minutes >= 4.0 {
        let (second, last) = (
            p99_of_minute(&samples, 1),
            p99_of_minute(&samples, minutes as u64 - 1),
        );
        println!("p99 of the second minute {second:.0} us, of the last one {last:.0} us");
        assert!(
            last <= P99_RATIO * second,
            "{last} us are more than {P99_RATIO} x {second} us"
        );
    }
}

#[test]
fn line_has_its_slope_and_error() {
    let exact: Vec<_> = (0..10)
        .map(|x| (f64::from(x), 3.0 * f64::from(x) + 1.0))
        .collect();
    let line = Line::through(&exact);
    assert!((line.slope - 3.0).abs() < 1e-9 && line.error < 1e-9 && line.grows());
    let noise: Vec<_> = (0..40).map(|x| (f64::from(x), f64::from(x % 2))).collect();
    assert!(!Line::through(&noise).grows());
}
