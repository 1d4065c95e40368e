//! Recording how long the two sides of a burst wait, for the tests of what decides how long to poll.
//!
//! Both sides poll for as long as a wait takes, so that what is recorded is when packets come and not when
//! somebody has got up. A client's wait is its call; a worker's, from the end of a call to the beginning of
//! the next, as the client's clock has it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nnhal_bench::conditions::Conditions;
use nnhal_bench::{Error, Result, models, program};
use nnhal_client::{BurstOptions, Device, ExecuteOptions, Memory, PrepareOptions, Request, WaitSettings};

/// Longer than any wait here.
const WINDOW: Duration = Duration::from_secs(1);
const DRIVER: &str = "[execution]\npolling = \"fixed\"\npolling_window_us = 1000000\n";

/// Executions that are recorded, after some that are not.
const EXECUTIONS: usize = 1000;
const BEFORE: usize = 200;
const NUMBERS_IN_A_LINE: usize = 12;
const VALUE_BYTES: u64 = 4;

/// What a client does.
struct Scenario {
    name: &'static str,
    what: &'static str,
    /// How many values it adds each time.
    values: u32,
    /// What it does before each execution, of which it is told the number.
    think: fn(usize),
    /// Whether threads that compute have all processors besides.
    is_busy: bool,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "steady",
        what: "one value is added, again and again",
        values: 1,
        think: |_| {},
        is_busy: false,
    },
    Scenario {
        name: "large",
        what: "65,536 values are added, again and again",
        values: 65_536,
        think: |_| {},
        is_busy: false,
    },
    Scenario {
        name: "thinking",
        what: "one value is added, and 200 us are computed in between",
        values: 1,
        think: |_| compute(Duration::from_micros(200)),
        is_busy: false,
    },
    Scenario {
        name: "series",
        what: "one value is added 20 times, and 5 ms are slept in between",
        values: 1,
        think: |number| {
            if number.is_multiple_of(20) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        },
        is_busy: false,
    },
    Scenario {
        name: "frames",
        what: "one value is added, and 4 ms are slept in between",
        values: 1,
        think: |_| std::thread::park_timeout(Duration::from_millis(4)),
        is_busy: false,
    },
    Scenario {
        name: "busy",
        what: "one value is added, and 20 us are computed in between, while as many threads compute as there are processors",
        values: 1,
        think: |_| compute(Duration::from_micros(20)),
        is_busy: true,
    },
];

/// Computes nothing for so long.
fn compute(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// Writes a file for each side of each scenario into a directory.
///
/// # Errors
/// The driver's; a file cannot be written.
pub(super) fn record(directory: &Path) -> Result<()> {
    let settings = tempfile::NamedTempFile::new().map_err(Error::io("make a settings file"))?;
    std::fs::write(settings.path(), DRIVER).map_err(Error::io("write a settings file"))?;
    let devices = program::own_driver_with(Some(settings.path()))?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(1, device.name());
    for scenario in &SCENARIOS {
        let waits = waits(&device, scenario)?;
        for (side, waits) in ["client", "worker"].into_iter().zip(waits) {
            let path = directory.join(format!("{}-{side}.txt", scenario.name));
            let text = text(scenario, side, &waits, &conditions);
            std::fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
        }
    }
    Ok(())
}

/// The waits of the client and of its worker.
fn waits(device: &Device, scenario: &Scenario) -> Result<[Vec<u64>; 2]> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let processors = if scenario.is_busy {
            nnhal_os::sched::online_cpus()
        } else {
            0
        };
        for _ in 0..processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    compute(Duration::from_micros(100));
                }
            });
        }
        let waits = execute(device, scenario);
        is_over.store(true, Ordering::Relaxed);
        waits
    })
}

fn execute(device: &Device, scenario: &Scenario) -> Result<[Vec<u64>; 2]> {
    let prepared = device.prepare(&models::add(scenario.values)?, &PrepareOptions::new())?;
    let wait = WaitSettings::Fixed { window: WINDOW };
    let mut burst = prepared.burst(&BurstOptions::new().wait(wait))?;
    let bytes = u64::from(scenario.values) * VALUE_BYTES;
    let memory = Memory::new(2 * bytes)?;
    let request = Request::new()
        .input(&memory, 0..bytes)
        .output(&memory, bytes..2 * bytes);
    let registered = burst.register(&request)?;
    let [mut client, mut worker] = [const { Vec::new() }; 2];
    let mut last = Instant::now();
    for number in 0..BEFORE + EXECUTIONS {
        (scenario.think)(number);
        let start = Instant::now();
        burst.fire(&registered, &ExecuteOptions::new())?;
        let end = Instant::now();
        worker.push(start.duration_since(last).as_nanos() as u64);
        client.push(end.duration_since(start).as_nanos() as u64);
        last = end;
    }
    Ok([client, worker].map(|waits| waits[BEFORE..].to_vec()))
}

fn text(scenario: &Scenario, side: &str, waits: &[u64], conditions: &Conditions) -> String {
    let mut text = format!(
        "# How long the {side} waited for each packet, in nanoseconds: {}.\n\
         # By `cargo bench --bench waiting -- --record DIRECTORY`; {}, {} processors, kernel {}, load before {}.\n",
        scenario.what, conditions.cpu, conditions.cpus_online, conditions.kernel, conditions.load_before
    );
    for line in waits.chunks(NUMBERS_IN_A_LINE) {
        let numbers: Vec<String> = line.iter().map(u64::to_string).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", numbers.join(" "));
    }
    text
}
