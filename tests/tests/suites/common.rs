//! What the suites have in common: sizes and seeds, a daemon that is looked after, another client of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Once;
use std::time::Duration;

use nix::sys::resource::Resource;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    Burst, BurstOptions, Device, Devices, ExecuteOptions, Input, Model, ModelBuilder, OperationType, Output,
    PrepareOptions, PreparedModel, TensorType,
};
use nnhal_os::rlimit;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, fds_of, group_of, is_alive, shared_mappings};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// The device that all executions are on.
pub(crate) const DEVICE: &str = "nnhal-cpu";

/// What the variable says, or this.
pub(crate) fn sized<T: FromStr>(variable: &str, short: T) -> T {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => short,
    }
}

/// The seed of what a suite draws.
pub(crate) fn seed() -> u64 {
    sized("NNHAL_TEST_SEED", 1)
}

/// Sends a signal to a process that may be gone.
pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = is_sent(pid, signal);
}

/// Sends a signal to a process that may be gone. Returns whether the kernel took it.
#[must_use]
pub(crate) fn is_sent(pid: u32, signal: Signal) -> bool {
    kill(Pid::from_raw(pid.cast_signed()), signal).is_ok()
}

/// Whether strace, which follows several processes, has noted the end of this one.
pub(crate) fn has_noted_end(trace: &Path, pid: u32) -> bool {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .any(|(number, event)| number == pid.to_string() && event.trim_start().starts_with("+++ "))
}

/// The directories of a suite. All that its processes write goes there.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    /// What was in `/dev/shm` before: it is the whole machine's.
    shared_before: Vec<String>,
}

impl Place {
    pub(crate) fn new() -> Place {
        static RAISE: Once = Once::new();
        // Crowds of clients are in this process. All tests of it have the same limit, whichever is first.
        RAISE.call_once(|| {
            rlimit::raise_to_hard(Resource::RLIMIT_NOFILE).unwrap();
        });
        let place = Place {
            directory: tempfile::tempdir().unwrap(),
            shared_before: names_in(Path::new(SHARED)),
        };
        std::fs::create_dir(place.temporary()).unwrap();
        place
    }

    /// Where the sockets are.
    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// The clients' compilation cache.
    pub(crate) fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    /// What the processes take for the directory of temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    /// What strace writes.
    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    pub(crate) fn options(&self) -> DaemonOptions {
        DaemonOptions {
            environment: vec![("TMPDIR".to_owned(), OsString::from(self.temporary()))],
            ..DaemonOptions::default()
        }
    }

    /// Fails if anything is left that no process needs any more.
    pub(crate) fn expect_no_files(&self) {
        for path in [self.runtime_dir(), self.temporary()] {
            let left = names_in(&path);
            assert!(left.is_empty(), "{} has {left:?}", path.display());
        }
        // Entries stay, what somebody was making when he died does not.
        let abandoned: Vec<_> = names_in(&self.cache())
            .into_iter()
            .filter(|name| name.starts_with(TEMPORARY))
            .collect();
        assert!(abandoned.is_empty(), "the cache has {abandoned:?}");
        let shared: Vec<_> = names_in(Path::new(SHARED))
            .into_iter()
            .filter(|name| name.contains("nnhal") && !self.shared_before.contains(name))
            .collect();
        assert!(shared.is_empty(), "{SHARED} has {shared:?}");
    }
}

/// Where the C library puts memories that have names.
const SHARED: &str = "/dev/shm";

/// How names in a cache begin that are no entries yet.
const TEMPORARY: &str = ".making-";

/// The names in a directory; none if there is none.
pub(crate) fn names_in(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// `output = input + 1`.
pub(crate) fn add_one() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let y = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

/// A client in this process, which nothing is to happen to.
pub(crate) struct Bystander {
    pub(crate) device: Device,
    burst: Burst,
    rounds: f32,
}

impl Bystander {
    pub(crate) fn open(runtime_dir: &Path) -> Bystander {
        Bystander::on(Devices::open_in(runtime_dir).unwrap().device(DEVICE).unwrap())
    }

    pub(crate) fn on(device: Device) -> Bystander {
        let model = add_one();
        let prepared = device.prepare(&model, &PrepareOptions::new()).unwrap();
        let burst = prepared.burst(&BurstOptions::new()).unwrap();
        Bystander {
            device,
            burst,
            rounds: 0.0,
        }
    }

    /// What it executes.
    pub(crate) fn prepared(&self) -> PreparedModel {
        self.burst.model().clone()
    }

    /// Computes, and fails if the result is wrong or late.
    pub(crate) fn computes(&mut self) {
        self.rounds += 1.0;
        let mut sum = [0.0_f32];
        let options = ExecuteOptions::new().wait_at_most(TIMEOUT);
        let run = self.burst.run(
            &[Input::from(&[self.rounds])],
            &mut [Output::from(&mut sum)],
            &options,
        );
        run.unwrap_or_else(|error| panic!("a bystander was harmed: {error}"));
        assert_eq!(sum, [self.rounds + 1.0], "a bystander has a wrong result");
    }
}

/// What a daemon has when nobody asks it for anything: it, a bystander's worker, a spare one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtRest {
    processes: usize,
    fds: usize,
    mappings: usize,
}

impl AtRest {
    fn of(daemon: &TestDaemon) -> AtRest {
        AtRest {
            processes: group_of(daemon.pid()).len(),
            fds: fds_of(daemon.pid()),
            mappings: shared_mappings(daemon.pid()),
        }
    }
}

/// So often in turn a daemon that is at rest is seen to be unchanged.
const UNCHANGED: u32 = 50;

/// A daemon with a bystander.
pub(crate) struct Stage {
    pub(crate) daemon: TestDaemon,
    pub(crate) bystander: Bystander,
    at_rest: AtRest,
}

impl Stage {
    pub(crate) fn new(place: &Place) -> Stage {
        Stage::start(place, &place.options())
    }

    pub(crate) fn start(place: &Place, options: &DaemonOptions) -> Stage {
        let daemon = TestDaemon::start_in(&place.runtime_dir(), EXE, options);
        let bystander = Bystander::open(&place.runtime_dir());
        // What is made for the first client stays.
        Bystander::open(&place.runtime_dir()).computes();
        let mut at_rest = AtRest::of(&daemon);
        let mut unchanged = 0;
        expect_soon("the daemon is at rest", || {
            let before = std::mem::replace(&mut at_rest, AtRest::of(&daemon));
            unchanged = if at_rest == before { unchanged + 1 } else { 0 };
            (at_rest.processes == 3 && unchanged >= UNCHANGED, at_rest)
        });
        Stage {
            daemon,
            bystander,
            at_rest,
        }
    }

    /// The workers that do not serve the bystander.
    pub(crate) fn others(&self) -> Vec<u32> {
        let its = self.bystander.device.worker().pid;
        self.daemon
            .workers()
            .into_iter()
            .filter(|&pid| pid != its)
            .collect()
    }

    /// A new client is served, the old one too, and nothing is left of those that were here meanwhile.
    pub(crate) fn expect_as_before(&mut self, what: &str) {
        let goes_on = self.goes_on_as_before(what);
        assert!(goes_on, "{what}: the daemon has ended");
    }

    /// The same of a daemon that may end meanwhile: then it is `false`.
    pub(crate) fn goes_on_as_before(&mut self, what: &str) -> bool {
        Bystander::open(&self.daemon.runtime_dir()).computes();
        self.bystander.computes();
        let mut goes_on = true;
        expect_soon(
            &format!("{what}: what the daemon has is {:?} again", self.at_rest),
            || {
                goes_on = is_alive(self.daemon.pid());
                let found = AtRest::of(&self.daemon);
                (found == self.at_rest || !goes_on, found)
            },
        );
        goes_on
    }
}

/// Waits until the state is as it should be.
fn expect_soon(what: &str, mut look: impl FnMut() -> (bool, AtRest)) {
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    loop {
        match look() {
            (true, _) => return,
            (false, found) if deadline.is_past(MonotonicClock.now()) => {
                panic!("waited in vain until {what}, it is {found:?}")
            }
            // Nothing announces it.
            (false, _) => std::thread::park_timeout(Duration::from_millis(1)),
        }
    }
}
