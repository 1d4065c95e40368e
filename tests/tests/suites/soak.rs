//! Clients of mixed behaviour for a long time: threat T35.
//!
//! Eight clients come and go beside one that stays: some make every call, some are killed, some lose their
//! workers, some say nothing or nonsense. Memory and descriptors of no process that stays may grow, nor the
//! latency of the client that does. Each of these has a slope with its standard error. It is distinguishable
//! from 0 if it is more than [`ERRORS`] of them. Slopes are printed always, and judged in the long form only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal::wire::directory;
use nnhal_client::{Clock, Deadline, MonotonicClock};
use nnhal_conformance::generator::choices::Random;
use nnhal_os::socket::Connection;
use nnhal_tests::{DaemonOptions, SetOnDrop, TIMEOUT, fds_of};

use crate::client::{Client, Said};
use crate::common::{DEVICE, Place, Stage, seed, send, sized};

/// Seconds of the short form.
const SECONDS: u64 = 8;

/// Clients beside the one that stays.
const CLIENTS: u64 = 8;

/// Parts of the time, over which samples are averaged.
const PARTS: usize = 30;

/// The first of them, which are left out: what is made once is made then.
const FIRST_PARTS: usize = 6;

/// Standard errors that a slope may be from 0: what chance exceeds once in 2,000 fits of as many values as
/// parts are left.
const ERRORS: f64 = 3.8;

/// As alike as neighbours are taken for at most: beyond, there is one value and no error.
const MOST_ALIKE: f64 = 0.95;

/// What the last minute's p99 may be of the second one's.
const P99_RATIO: f64 = 1.1;

/// The processes that stay.
const PROCESSES: [&str; 3] = [
    "the supervisor",
    "the client that stays",
    "the worker of the client that stays",
];

/// What a process has.
#[derive(Clone, Copy)]
struct Held {
    resident: f64,
    fds: f64,
}

impl Held {
    fn by(pid: u32) -> Held {
        Held {
            resident: resident(pid) as f64,
            fds: fds_of(pid) as f64,
        }
    }
}

/// A moment of the driver.
#[derive(Clone, Copy)]
struct Sample {
    seconds: f64,
    held: [Held; PROCESSES.len()],
    /// Workers of the driver.
    workers: f64,
    p99_micros: f64,
}

/// A slope of values over time.
#[derive(Clone, Copy, Debug)]
struct Slope {
    /// For each second.
    slope: f64,
    error: f64,
}

impl Slope {
    /// By least squares. Neighbours are alike where the machine has more to do for a while. So many values
    /// count for fewer, as many as if each depended on the one before as the residuals do.
    fn of_line(points: &[(f64, f64)]) -> Slope {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sxx: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let sxy: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = sxy / sxx;
        let residuals: Vec<f64> = points
            .iter()
            .map(|point| point.1 - y - slope * (point.0 - x))
            .collect();
        let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
        let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let seen = if squares > 0.0 { products / squares } else { 0.0 };
        // Of few values it comes out too small (Kendall).
        let alike = (seen + (1.0 + 4.0 * seen) / n).clamp(0.0, MOST_ALIKE);
        let error = (squares / (n - 2.0) / sxx).sqrt();
        Slope {
            slope,
            error: error * ((1.0 + alike) / (1.0 - alike)).sqrt(),
        }
    }

    /// By the steps from one value to the next, for what keeps the most that it ever was, as the memory of a
    /// process does: that rises by single steps, ever more seldom, without growing. What grows has steps all
    /// the time.
    fn of_steps(points: &[(f64, f64)]) -> Slope {
        let steps: Vec<f64> = points
            .windows(2)
            .map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0))
            .collect();
        let n = steps.len() as f64;
        let slope = steps.iter().sum::<f64>() / n;
        let squares: f64 = steps.iter().map(|step| (step - slope).powi(2)).sum();
        Slope {
            slope,
            error: (squares / (n - 1.0) / n).sqrt(),
        }
    }

    fn grows(&self) -> bool {
        self.slope > ERRORS * self.error
    }
}

/// Averages over parts of the time but the first ones, of values with their moments.
fn averages<T>(samples: &[T], of: impl Fn(&T) -> (f64, f64)) -> Vec<(f64, f64)> {
    let size = samples.len().div_ceil(PARTS).max(1);
    let average = |part: &[T]| {
        let mean = |of: &dyn Fn(&T) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        (mean(&|sample| of(sample).0), mean(&|sample| of(sample).1))
    };
    samples
        .chunks_exact(size)
        .skip(FIRST_PARTS)
        .map(average)
        .collect()
}

/// The supervisor's descriptors, each with the moment, but for those that come and go with workers: how many
/// of these there are is a matter of how busy the machine is. What a worker has is told by the steps from one
/// moment to the next, so that what grows slowly is not taken for theirs.
fn without_those_for_workers(samples: &[Sample]) -> Vec<(f64, f64)> {
    let fds = |sample: &Sample| sample.held[0].fds;
    let steps = samples
        .windows(2)
        .map(|pair| (pair[1].workers - pair[0].workers, fds(&pair[1]) - fds(&pair[0])));
    let (products, squares) = steps.fold((0.0, 0.0), |(products, squares), (workers, fds)| {
        (products + workers * fds, squares + workers * workers)
    });
    let each = if squares > 0.0 { products / squares } else { 0.0 };
    samples
        .iter()
        .map(|sample| (sample.seconds, fds(sample) - each * sample.workers))
        .collect()
}

/// Resident memory of a process, in bytes, but for pages of files, which the kernel takes and gives as it
/// likes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let of = |name| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(kilobytes).unwrap_or(0)
    };
    (of("RssAnon:") + of("RssShmem:")) * 1024
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
fn watch(stage: &Stage, place: &Place, time: Duration) -> Vec<Sample> {
    let period = (time / 600).clamp(Duration::from_millis(50), Duration::from_secs(1));
    let mut client = Client::start_to_stay(place, period);
    let Some(Said::Worker(worker)) = client.next() else {
        panic!("it has a worker");
    };
    let processes = [stage.daemon.pid(), client.pid(), worker];
    let began = MonotonicClock.now();
    let mut samples = Vec::new();
    loop {
        client.go_on();
        let Some(Said::Latency(p99_micros)) = client.next() else {
            panic!("the client that stays was harmed: {:?}", client.end());
        };
        let seconds = MonotonicClock.now().saturating_since(began);
        samples.push(Sample {
            seconds: seconds.as_secs_f64(),
            held: processes.map(Held::by),
            workers: stage.daemon.workers().len() as f64,
            p99_micros,
        });
        if seconds >= time {
            let end = client.end();
            assert!(end.status.success(), "{end:?}");
            return samples;
        }
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
    // Clients that are killed, and their workers, are no news.
    let options = DaemonOptions {
        log: Some("error".to_owned()),
        ..place.options()
    };
    let mut stage = Stage::start(&place, &options);
    let (is_over, clients) = (AtomicBool::new(false), AtomicU64::new(0));
    let samples = std::thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        for number in 0..CLIENTS {
            let (place, is_over, clients) = (&place, &is_over, &clients);
            scope.spawn(move || come_and_go(place, number, is_over, clients));
        }
        watch(&stage, &place, time)
    });
    stage.expect_as_before("a soak");
    println!(
        "{} clients in {} s, {} samples (seed {}); all is as before",
        clients.into_inner(),
        time.as_secs(),
        samples.len(),
        seed()
    );
    // The kernel does not show everything of a process to everybody.
    let is_seen = |held: &Held| held.resident > 0.0 && held.fds > 0.0;
    let is_all_seen = samples.iter().flat_map(|sample| &sample.held).all(is_seen);
    assert!(
        !is_long || is_all_seen,
        "not all processes can be looked at: run it as root"
    );
    let mut growing = Vec::new();
    let mut judge = |what: String, points: &[(f64, f64)], fit: fn(&[(f64, f64)]) -> Slope| {
        let slope = fit(points);
        println!("{what}: {:+.4} +- {:.4} a second", slope.slope, slope.error);
        if slope.grows() {
            let values: Vec<_> = points.iter().map(|(_, value)| value.round()).collect();
            println!("{what}, part by part: {values:?}");
            growing.push(what);
        }
    };
    for (index, name) in PROCESSES.into_iter().enumerate() {
        let memory = averages(&samples, |sample| (sample.seconds, sample.held[index].resident));
        let fds = match index {
            0 => averages(&without_those_for_workers(&samples), |point| *point),
            _ => averages(&samples, |sample| (sample.seconds, sample.held[index].fds)),
        };
        judge(format!("resident bytes of {name}"), &memory, Slope::of_steps);
        judge(format!("descriptors of {name}"), &fds, Slope::of_line);
    }
    let latency = averages(&samples, |sample| (sample.seconds, sample.p99_micros));
    judge(
        "p99 of the client that stays, in us".to_owned(),
        &latency,
        Slope::of_line,
    );
    if !is_long {
        return;
    }
    assert!(growing.is_empty(), "what grows: {growing:?}");
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

fn points(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
    values
        .into_iter()
        .enumerate()
        .map(|(x, y)| (x as f64, y))
        .collect()
}

#[test]
fn line_has_its_slope_and_error() {
    let line = Slope::of_line(&points((0..10).map(|x| f64::from(3 * x + 1))));
    assert!((line.slope - 3.0).abs() < 1e-9 && line.error < 1e-9 && line.grows());
    let noise = points((0..40).map(|x| f64::from(x % 2)));
    assert!(!Slope::of_line(&noise).grows());
    let still = points([7.0; 24]);
    assert!(!Slope::of_line(&still).grows() && !Slope::of_steps(&still).grows());
}

#[test]
fn values_that_depend_on_each_other_have_a_larger_error() {
    // Others begin to use the machine, once.
    let once = Slope::of_line(&points((0..24).map(|x| if x < 12 { 20.0 } else { 30.0 })));
    assert!(once.slope > 0.0 && !once.grows(), "{once:?}");
}

#[test]
fn single_steps_are_no_growth_and_many_are() {
    let steps_at = |at: &[usize]| {
        let height = |x| at.iter().filter(|&&step| step <= x).count() as f64 * 4096.0;
        Slope::of_steps(&points((0..24).map(height)))
    };
    assert!(!steps_at(&[12]).grows() && !steps_at(&[2, 3, 9, 20]).grows());
    let leak = Slope::of_steps(&points((0..24).map(|x| f64::from(x + x % 2) * 4096.0)));
    assert!(leak.grows(), "{leak:?}");
}

/// Samples of a supervisor with so many descriptors beside ten for each worker. The workers become more all
/// the time, as where a machine has less to do.
fn supervised(beside: impl Fn(f64) -> f64) -> Vec<Sample> {
    let nothing = Held {
        resident: 0.0,
        fds: 0.0,
    };
    let sample = |second: u32| {
        let seconds = f64::from(second);
        let workers = f64::from(second * 7 % 5 + second / 200);
        let supervisor = Held {
            fds: 10.0 * workers + beside(seconds),
            ..nothing
        };
        Sample {
            seconds,
            held: [supervisor, nothing, nothing],
            workers,
            p99_micros: 0.0,
        }
    };
    (0..1800).map(sample).collect()
}

#[test]
fn descriptors_that_workers_have_are_no_growth_and_others_are() {
    let grows = |beside: fn(f64) -> f64| {
        let points = without_those_for_workers(&supervised(beside));
        Slope::of_line(&averages(&points, |point| *point)).grows()
    };
    assert!(!grows(|_| 20.0));
    assert!(grows(|seconds| (seconds / 300.0).floor()));
}
