//! What processes do while they are looked at: allocations and system calls.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

/// Where a driver's processes count what they allocate.
pub(crate) struct Counter {
    directory: tempfile::TempDir,
    file: File,
}

impl Counter {
    pub(crate) fn new() -> Counter {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("allocations");
        std::fs::write(&path, [0; 4]).unwrap();
        Counter {
            file: File::open(path).unwrap(),
            directory,
        }
    }

    pub(crate) fn environment(&self) -> Vec<(String, std::ffi::OsString)> {
        let path = self.directory.path().join("allocations");
        vec![("NNHAL_TEST_ALLOCATIONS".to_owned(), path.into())]
    }

    pub(crate) fn allocations(&self) -> u32 {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        u32::from_ne_bytes(bytes)
    }
}

/// The system calls of a process or thread, traced from outside.
struct Trace {
    strace: Child,
    directory: tempfile::TempDir,
}

impl Trace {
    /// `None`, with a note, where tracing is not possible.
    fn attach(arguments: &[&str]) -> Option<Trace> {
        let directory = tempfile::tempdir().unwrap();
        let started = Command::new("strace")
            .arg("-o")
            .arg(directory.path().join("calls"))
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn();
        let mut strace = match started {
            Ok(strace) => strace,
            Err(error) => {
                eprintln!("SKIPPED: strace cannot be started: {error}");
                return None;
            }
        };
        let mut said = String::new();
        let mut stderr = BufReader::new(strace.stderr.take().unwrap());
        while !said.contains("attached") {
            if stderr.read_line(&mut said).unwrap() == 0 {
                let _ = strace.wait();
                eprintln!("SKIPPED: strace cannot trace: {said}");
                return None;
            }
        }
        // Its further words are dropped as long as somebody could read them.
        strace.stderr = Some(stderr.into_inner());
        Some(Trace { strace, directory })
    }

    /// Ends the tracing; how many calls of each name there were.
    fn end(mut self) -> SystemCalls {
        let pid = Pid::from_raw(self.strace.id().cast_signed());
        kill(pid, Signal::SIGINT).unwrap();
        self.strace.wait().unwrap();
        calls_in(&self.directory.path().join("calls"))
    }
}

/// How many system calls of each name there were.
pub(crate) type SystemCalls = BTreeMap<String, u64>;

fn calls_in(path: &Path) -> SystemCalls {
    let mut calls = SystemCalls::new();
    let text = std::fs::read_to_string(path).unwrap();
    // A line is a call with its arguments, after the number of the thread if several are traced. A call that
    // another thread's interrupted has a second line for its end, with its name in front of ` resumed>`.
    let begun = text.lines().filter(|line| !line.contains(" resumed>"));
    let called = begun.filter_map(|line| line.split_once('('));
    for (before, _) in called {
        let name = before.split_whitespace().last().unwrap_or_default();
        *calls.entry(name.to_owned()).or_default() += 1;
    }
    calls
}

pub(crate) fn total(calls: &SystemCalls) -> u64 {
    calls.values().sum()
}

/// The system calls of this thread and of the whole worker while `work` is done.
pub(crate) fn system_calls_of(worker: u32, work: impl FnOnce()) -> Option<[SystemCalls; 2]> {
    let there = Trace::attach(&["-f", "-p", &worker.to_string()])?;
    let here = Trace::attach(&["-p", &gettid().to_string()])?;
    work();
    Some([here.end(), there.end()])
}
