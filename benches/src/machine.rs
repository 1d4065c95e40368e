//! What the machine is, and where the threads of a measurement run.

use std::fs;

use nnhal_os::{SysError, sched};

/// The priority of measured threads under SCHED_FIFO.
const PRIORITY: i32 = 50;

/// How the threads of a process are scheduled while they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// First in, first out, before all normal threads.
    Fifo,
    /// As any other process, since real time is not permitted.
    Normal,
    /// As any other process, since nobody asked for more.
    NormalAsAsked,
}

impl Scheduling {
    /// As conditions name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheduling::Fifo => "SCHED_FIFO",
            Scheduling::Normal => "normal (SCHED_FIFO is not permitted)",
            Scheduling::NormalAsAsked => "normal",
        }
    }
}

/// Keeps all threads that a process has now on one processor, under SCHED_FIFO where that is permitted.
///
/// # Errors
/// The process belongs to another user, or is gone.
pub fn settle(pid: u32, cpu: usize) -> Result<Scheduling, SysError> {
    let mut scheduling = Scheduling::Fifo;
    for thread in threads(pid) {
        sched::pin_thread_to(thread, cpu)?;
        if sched::set_fifo_of(thread, PRIORITY).is_err() {
            scheduling = Scheduling::Normal;
        }
    }
    Ok(scheduling)
}

/// Keeps all threads that a process has now on one processor, scheduled as they are.
///
/// # Errors
/// The process belongs to another user, or is gone.
pub fn pin(pid: u32, cpu: usize) -> Result<Scheduling, SysError> {
    for thread in threads(pid) {
        sched::pin_thread_to(thread, cpu)?;
    }
    Ok(Scheduling::NormalAsAsked)
}

/// The threads of a process.
fn threads(pid: u32) -> Vec<i32> {
    let names = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The two processors that the two sides of a row run on; the same one twice if only one is allowed.
///
/// # Errors
/// The system does not say.
pub fn processors() -> Result<[usize; 2], SysError> {
    let allowed = sched::allowed_cpus()?;
    let first = allowed.first().copied().unwrap_or(0);
    Ok([first, allowed.get(1).copied().unwrap_or(first)])
}

/// The name of the processor.
#[must_use]
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown")
        .to_owned()
}

/// The kernel's version.
#[must_use]
pub fn kernel() -> String {
    read_line("/proc/sys/kernel/osrelease")
}

/// How many threads want to run, averaged over the last minute.
#[must_use]
pub fn load() -> String {
    read_line("/proc/loadavg")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// What a process has that no other shares, in KiB; `None` if it cannot be looked at.
#[must_use]
pub fn private_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    lines
        .map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}
