//! Which mapped memory a bus error was about.
//!
//! Memory that its owner cuts short gives a bus error where it is touched, which ends the process. Before
//! that, a report can say which memory it was. Its table is what a signal's handler can read: atomics, at
//! fixed places.

use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::{SysError, memfd};

/// How many memories can have names at a time. Further ones have none.
const MOST: usize = 4096;

/// `si_code` of an address behind which there is no memory. The C library does not name it.
const BUS_ADRERR: i32 = 2;

/// [`Entry::start`] of an entry that nobody uses.
const FREE: usize = 0;
/// [`Entry::start`] of one whose other fields are being written: no page begins there.
const CLAIMED: usize = 1;

static NAMED: [Entry; MOST] = [const { Entry::new() }; MOST];
/// Where an entry was last given back or taken.
static HINT: AtomicUsize = AtomicUsize::new(0);
static REPORT: OnceLock<fn(&BusError)> = OnceLock::new();
/// A page behind which there never is anything: see [`report_bus_errors`].
static NOTHING: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

#[derive(Debug)]
struct Entry {
    start: AtomicUsize,
    length: AtomicUsize,
    name: AtomicU64,
}

impl Entry {
    const fn new() -> Entry {
        Entry {
            start: AtomicUsize::new(FREE),
            length: AtomicUsize::new(0),
            name: AtomicU64::new(0),
        }
    }
}

/// A bus error, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError {
    /// The memory, if it has a name.
    pub memory: Option<FaultyMemory>,
    /// Whether nothing is behind the address, as when a file was cut short. Otherwise the hardware has lost
    /// what was there, or the address is none.
    pub nothing_there: bool,
}

/// The memory of a [`BusError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultyMemory {
    /// As it was given to [`Mapping::named`](super::Mapping::named).
    pub name: u64,
    /// Bytes that were mapped.
    pub size: u64,
    /// Which of them was touched.
    pub offset: u64,
}

/// A name of mapped memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Name {
    /// Its entry, if there was a free one.
    entry: Option<&'static Entry>,
}

impl Name {
    pub(super) fn new(start: usize, length: usize, name: u64) -> Name {
        let first = HINT.load(Ordering::Relaxed);
        let entry = (0..MOST).find_map(|step| {
            let index = (first + step) % MOST;
            let entry = NAMED.get(index)?;
            let is_free = entry.start.load(Ordering::Relaxed) == FREE;
            let claimed = is_free
                && (entry.start)
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if claimed {
                HINT.store(index + 1, Ordering::Relaxed);
            }
            claimed.then_some(entry)
        });
        if let Some(entry) = entry {
            entry.length.store(length, Ordering::Relaxed);
            entry.name.store(name, Ordering::Relaxed);
            entry.start.store(start, Ordering::Release);
        }
        Name { entry }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.start.store(FREE, Ordering::Release);
        }
    }
}

/// The memory with a name that has this address.
fn memory_at(address: usize) -> Option<FaultyMemory> {
    NAMED.iter().find_map(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        if start == FREE || start == CLAIMED {
            return None;
        }
        let size = entry.length.load(Ordering::Relaxed);
        let offset = address.checked_sub(start).filter(|offset| *offset < size)?;
        Some(FaultyMemory {
            name: entry.name.load(Ordering::Relaxed),
            size: size as u64,
            offset: offset as u64,
        })
    })
}

/// Has a bus error end this process by `SIGBUS`, after `report`.
///
/// Returning would try the access again. Its memory may be there by then, and the process would go on after
/// it has told of its end. The first process of a PID namespace ignores what it sends itself. So the handler
/// touches an empty file, while the signal is blocked: the kernel then ends any process. Only the first call
/// counts.
///
/// The report runs in a signal's handler: it may take no lock and allocate nothing.
///
/// # Errors
/// The system refuses.
pub fn report_bus_errors(report: fn(&BusError)) -> Result<(), SysError> {
    /// Whether a thread tells of its error already, and then ends the process.
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    extern "C" fn tell_and_exit(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        while IS_TOLD.swap(true, Ordering::AcqRel) {
            crate::cpu::relax();
        }
        // SAFETY: the kernel gives a handler that asks for it (SA_SIGINFO) what it knows of the signal, for
        // as long as the handler runs.
        let info = unsafe { &*info };
        // SAFETY: what it knows of a bus error has an address.
        let address = unsafe { info.si_addr() } as usize;
        let code = info.si_code;
        if let Some(report) = REPORT.get() {
            // Of one that a process has sent there is no address.
            let is_access = code > 0;
            report(&BusError {
                memory: is_access.then(|| memory_at(address)).flatten(),
                nothing_there: code == BUS_ADRERR,
            });
        }
        loop {
            // SAFETY: nothing is read, since nothing is there, nor at null: that ends this process.
            unsafe { NOTHING.load(Ordering::Relaxed).read_volatile() };
        }
    }
    if REPORT.set(report).is_err() {
        return Ok(());
    }
    NOTHING.store(map_nothing()?, Ordering::Relaxed);
    // On the thread's own stack, which has not overflowed: where registers are many, another that is as small
    // as may be has no room beside them.
    let handler = SigHandler::SigAction(tell_and_exit);
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler reads atomics, calls what may be called in a handler, and does not return.
    unsafe { sigaction(Signal::SIGBUS, &action) }
        .map(drop)
        .map_err(SysError::of("sigaction(SIGBUS)"))
}

/// Maps the first page of an empty file, for good.
fn map_nothing() -> Result<*mut u8, SysError> {
    let file = memfd::create(c"nnhal-nothing")?;
    // SAFETY: a new mapping replaces none, and nobody reads this one but to fail.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            1,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(SysError::last("mmap"));
    }
    Ok(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known_by_its_addresses_while_it_has_a_name() {
        // Addresses that no memory of another test has.
        let start = 1 << 62;
        let name = Name::new(start, 4096, 7);
        let at = |offset| {
            Some(FaultyMemory {
                name: 7,
                size: 4096,
                offset,
            })
        };
        assert_eq!(memory_at(start), at(0));
        assert_eq!(memory_at(start + 4095), at(4095));
        assert_eq!(memory_at(start + 4096), None);
        assert_eq!(memory_at(start - 1), None);
        drop(name);
        assert_eq!(memory_at(start), None);
        let others: Vec<_> = (1..=MOST as u64 + 1)
            .map(|name| Name::new(start + 4096 * name as usize, 4096, name))
            .collect();
        assert!(others.iter().filter(|name| name.entry.is_none()).count() >= 1);
        assert_eq!(memory_at(start + 4096).map(|memory| memory.name), Some(1));
    }
}
