//! What the kernel says of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::TIMEOUT;

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// The fields of `/proc/PID/stat` after the name, which may contain anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(proc(pid, "stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Whether there is such a process and it has not ended.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields.first().is_some_and(|state| state != "Z" && state != "X"))
}

/// The processes whose parent is `pid`, those that have ended and wait to be reaped included.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let parent = pid.to_string();
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&child| stat(child).is_some_and(|fields| fields.get(1) == Some(&parent)))
        .collect()
}

/// How many descriptors a process has open.
#[must_use]
pub fn fds_of(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "fd")).map_or(0, Iterator::count)
}

/// The processes of a group that have not ended: a daemon's, whoever their parents are by now.
#[must_use]
pub fn group_of(leader: u32) -> Vec<u32> {
    let group = leader.to_string();
    let is_of_group = |fields: Vec<String>| {
        let is_over = matches!(fields.first().map(String::as_str), Some("Z" | "X"));
        !is_over && fields.get(2) == Some(&group)
    };
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| stat(pid).is_some_and(is_of_group))
        .collect()
}

/// How many mappings of shared memories a process has.
#[must_use]
pub fn shared_mappings(pid: u32) -> usize {
    let maps = std::fs::read_to_string(proc(pid, "maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

/// The inodes of the shared memories that a process has mapped.
#[must_use]
pub fn memory_numbers(pid: u32) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(proc(pid, "maps")).unwrap_or_default();
    maps.lines()
        .filter(|line| line.contains("memfd:"))
        .filter_map(|line| Some(line.split_whitespace().nth(4)?.to_owned()))
        .collect()
}

/// Memory of a process that it shares with no other, in bytes.
#[must_use]
pub fn private_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(proc(pid, "smaps_rollup")).unwrap_or_default();
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    text.lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(kilobytes)
        .sum::<u64>()
        * 1024
}

/// How many heaps the C library has made for threads of a process: each reserves 64 MiB from a multiple of
/// that on, and uses the first of it.
///
/// # Panics
///
/// If the kernel does not say.
#[must_use]
pub fn thread_heaps(pid: u32) -> usize {
    const RESERVED: u64 = 64 << 20;
    let maps = std::fs::read_to_string(proc(pid, "maps")).expect("the memory of a process that runs");
    let lines = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some((address(start)?, address(end)?, rest.get(..4)?))
    });
    let lines: Vec<_> = lines.collect();
    let is_heap = |pair: &&[(u64, u64, &str)]| {
        matches!(pair, [(start, used, "rw-p"), (rest, end, "---p")]
            if start % RESERVED == 0 && used == rest && end - start == RESERVED)
    };
    lines.windows(2).filter(is_heap).count()
}

/// Memory of a process that no file stands behind, in bytes.
///
/// # Panics
///
/// If the kernel does not say.
#[must_use]
pub fn anonymous_bytes(pid: u32) -> u64 {
    resident(pid, "RssAnon:")
}

/// Memory that others share with a process, of which it has touched the pages, in bytes.
///
/// # Panics
///
/// If the kernel does not say.
#[must_use]
pub fn shared_bytes(pid: u32) -> u64 {
    resident(pid, "RssShmem:")
}

fn resident(pid: u32, kind: &str) -> u64 {
    let status = std::fs::read_to_string(proc(pid, "status")).expect("a process");
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let line = status.lines().find(|line| line.starts_with(kind));
    line.and_then(kilobytes).expect("a kernel that counts it") * 1024
}

/// What a thread has done since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// How long it ran, in nanoseconds.
    pub run_ns: u64,
    /// How often it gave its processor up, to wait for something.
    pub voluntary_switches: u64,
    /// How often the processor was taken from it.
    pub involuntary_switches: u64,
}

/// What each thread of a process has done so far, by its number.
#[must_use]
pub fn activities_of(pid: u32) -> BTreeMap<i32, Activity> {
    let tasks = std::fs::read_dir(proc(pid, "task"));
    let activity = |task: std::fs::DirEntry| {
        let number = task.file_name().to_str()?.parse().ok()?;
        Some((number, activity_in(&task.path())?))
    };
    tasks
        .into_iter()
        .flatten()
        .filter_map(|task| activity(task.ok()?))
        .collect()
}

/// How many threads of a process serve bursts.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn burst_threads(pid: u32) -> usize {
    burst_thread_ids(pid).len()
}

/// The ids of those threads.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn burst_thread_ids(pid: u32) -> BTreeSet<u32> {
    let tasks = std::fs::read_dir(proc(pid, "task")).expect("the threads of a process");
    let id_of_burst = |task: DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let is_burst = name.trim_end() == "burst";
        is_burst.then(|| task.file_name().to_str()?.parse().ok())?
    };
    tasks.filter_map(|task| id_of_burst(task.ok()?)).collect()
}

/// `None` if the thread has ended.
fn activity_in(task: &Path) -> Option<Activity> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let count = |key: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    };
    // Run time in nanoseconds, then waiting time.
    let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Activity {
        run_ns: times.split_whitespace().next()?.parse().ok()?,
        voluntary_switches: count("voluntary_ctxt_switches")?,
        involuntary_switches: count("nonvoluntary_ctxt_switches")?,
    })
}

/// Looks again and again until `condition` holds.
///
/// # Panics
///
/// If it does not within [`TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    while !condition() {
        assert!(
            !deadline.is_past(MonotonicClock.now()),
            "waited in vain until {what}"
        );
        // Nothing announces what is looked for here; parking gives the processor to others for a moment.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
