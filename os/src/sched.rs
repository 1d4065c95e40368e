//! Where and how a thread runs: processors it may use, its nice value, real-time scheduling to measure.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::SysError;
use super::time::{Clock, MonotonicClock, TimePoint};

/// The processors the calling thread may run on, in ascending order.
pub fn allowed_cpus() -> Result<Vec<usize>, SysError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(SysError::of("sched_getaffinity"))?;
    Ok((0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect())
}

/// How many processors the machine has online, whichever of them this thread may use; 1 if that cannot be
/// found out. As it was when this was first asked for: it reads files, which a process in a jail cannot.
pub fn online_cpus() -> usize {
    /// 0 before that. No lock is taken, which a child of `fork()` could find held.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let known = COUNT.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let count = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let count = count.ok().flatten().and_then(|count| usize::try_from(count).ok());
    let count = count.unwrap_or(1).max(1);
    match COUNT.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => count,
        Err(known) => known,
    }
}

/// How often the system has taken the processor from the calling thread and given it to another, a yield of
/// the thread's own included; 0 if that cannot be found out.
pub fn preemptions() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| usage.involuntary_context_switches().unsigned_abs())
}

/// Keeps the calling thread on one processor.
pub fn pin_to(cpu: usize) -> Result<(), SysError> {
    pin_thread_to(0, cpu)
}

/// Keeps a thread of any process, by its id, on one processor; 0 is the calling one.
///
/// # Errors
/// `EPERM` for a process of another user, `ESRCH` if there is no such thread.
pub fn pin_thread_to(thread: i32, cpu: usize) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    set.set(cpu).map_err(SysError::of("sched_setaffinity"))?;
    sched_setaffinity(Pid::from_raw(thread), &set).map_err(SysError::of("sched_setaffinity"))
}

/// The processor the calling thread runs on at this moment.
pub fn current_cpu() -> Result<usize, SysError> {
    sched_getcpu().map_err(SysError::of("getcpu"))
}

/// Puts the calling thread under first-in first-out real-time scheduling. For measurements only: such a
/// thread that never sleeps starves its processor.
///
/// # Errors
/// `EPERM` without CAP_SYS_NICE or a real-time limit.
pub fn set_fifo(priority: i32) -> Result<(), SysError> {
    set_fifo_of(0, priority)
}

/// As [`set_fifo`], for a thread of any process by its id; 0 is the calling one.
///
/// # Errors
/// As [`set_fifo`]; `ESRCH` if there is no such thread.
pub fn set_fifo_of(thread: i32, priority: i32) -> Result<(), SysError> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` lives for the call.
    let done = unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &param) };
    if done == 0 {
        Ok(())
    } else {
        Err(SysError::last("sched_setscheduler(SCHED_FIFO)"))
    }
}

/// The nice value of threads that others go before: beside one that wants the same processor they have a
/// tenth of it, and mostly give it up at once when that one wakes.
pub const NICE: i32 = 10;

/// Gives the calling thread the nice value [`NICE`], for good: lowering it again needs a privilege. Threads
/// that it starts have the same.
///
/// # Errors
/// `EACCES` if it has a higher one already.
pub fn become_nice() -> Result<(), SysError> {
    // SAFETY: the call takes numbers only; 0 is the calling thread.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    if done == 0 {
        Ok(())
    } else {
        Err(SysError::last("setpriority"))
    }
}

/// Offers the processor to another thread that is ready to run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// How long a thread that works at low priority keeps its processor from others that are ready to run.
pub const YIELD_PERIOD: Duration = Duration::from_micros(200);

/// For threads with the nice value [`NICE`], now and then while they work: offers the processor to others
/// after [`YIELD_PERIOD`]. The system does not always do so by itself. A thread that wakes, but had run for
/// longer than its fair share before it slept, waits for the next tick, or until the nice thread sleeps.
/// Returns whether it was time.
pub fn yield_in_time() -> bool {
    thread_local! {
        static YIELDED: Cell<TimePoint> = const { Cell::new(TimePoint::EPOCH) };
    }
    let is_time = MonotonicClock.now().saturating_since(YIELDED.get()) >= YIELD_PERIOD;
    if is_time {
        yield_now();
        // Behind it: how long others had the processor does not count.
        YIELDED.set(MonotonicClock.now());
    }
    is_time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_yields_once_in_its_period() {
        let yields = || {
            let started = MonotonicClock.now();
            let yields = [yield_in_time(), yield_in_time()];
            (yields, MonotonicClock.now().saturating_since(started))
        };
        // Unless others take the processor from it between the two.
        let is_once = || match std::thread::spawn(yields).join().unwrap() {
            (yields, took) if took < YIELD_PERIOD => Some(yields == [true, false]),
            _ => None,
        };
        assert_eq!(
            std::iter::repeat_with(is_once).take(1000).flatten().next(),
            Some(true)
        );
    }

    #[test]
    fn pinned_thread_runs_on_its_processor() {
        // A thread of its own, so that the test harness keeps its affinity.
        std::thread::spawn(|| {
            let cpu = *allowed_cpus().unwrap().last().unwrap();
            pin_to(cpu).unwrap();
            assert_eq!(current_cpu().unwrap(), cpu);
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
        })
        .join()
        .unwrap();
    }
}
