//! Clients of a driver that lies, in a process of their own, which may crash or hang.
//!
//!     nnhal-test-hostile messages|rings|rust SEED COUNT FILE
//!     nnhal-test-hostile c SEED COUNT FILE LIBRARY
//!
//! It runs cases from SEED on until COUNT messages and states of rings were spoilt, and prints how many that
//! were, and how often clients in Rust were found asleep. FILE always has the cases that are running, eight
//! bytes each. A case that does not end in time is told, and the process aborts.

mod c_api;
mod cases;
mod rust_api;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nnhal_os::eventfd;
use nnhal_tests::hostile_driver::{HostileDriver, single};

use self::cases::Cases;

/// How many cases run at once: most of them wait most of the time.
const THREADS: usize = 8;

/// Messages and states of one case without sockets.
const SINGLES: u64 = 200;

fn main() {
    // A panic is a crash, wherever it is.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seed, wanted, file, rest @ ..] = &arguments[..] else {
        panic!("nnhal-test-hostile KIND SEED COUNT FILE [LIBRARY]");
    };
    let threads = if kind == "rust" { THREADS } else { 1 };
    let [seed, wanted] = [seed, wanted].map(|number| number.parse().expect("a number"));
    let cases = Cases::new(seed, wanted, File::create(file).expect("a file"), threads);
    // How often clients in Rust were found asleep.
    let asleep = AtomicU64::new(0);
    let over = eventfd::create().expect("an eventfd");
    std::thread::scope(|scope| {
        scope.spawn(|| cases.watch(&over));
        match (kind.as_str(), rest) {
            ("messages", []) => cases.run(0, |seed| {
                single::read_messages(seed, SINGLES);
                SINGLES
            }),
            ("rings", []) => cases.run(0, |seed| {
                single::use_rings(seed, SINGLES);
                SINGLES
            }),
            ("rust", []) => std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (cases, asleep) = (&cases, &asleep);
                    scope.spawn(move || {
                        asleep.fetch_add(rust_cases(cases, thread), Ordering::Relaxed);
                    });
                }
            }),
            ("c", [library]) => c_api::run(&cases, Path::new(library)),
            _ => panic!("no such kind of cases"),
        }
        eventfd::add(&over, 1).expect("an eventfd");
    });
    println!("{} {}", cases.spoilt(), asleep.load(Ordering::Relaxed));
}

/// Clients of a driver of this thread's own. Returns how often it found one asleep.
fn rust_cases(cases: &Cases, thread: usize) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let driver = HostileDriver::start(directory.path(), 0, 0);
    cases.run(thread, |seed| {
        let before = driver.spoilt();
        driver.begin_case(seed);
        rust_api::run(seed, directory.path());
        driver.spoilt() - before
    });
    driver.found_asleep()
}
