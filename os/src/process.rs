//! What a process says about itself to the kernel: no new privileges, no dumps, no life beyond its parent.
//! And how it ends.

use std::sync::OnceLock;

use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::SysError;

/// Gives up for ever, for this thread and all that come from it, the gain of privileges by exec. Seccomp and
/// Landlock ask for it.
pub fn set_no_new_privs() -> Result<(), SysError> {
    prctl::set_no_new_privs().map_err(SysError::of("prctl(PR_SET_NO_NEW_PRIVS)"))
}

/// Makes this process dumpable and open to ptrace by its own user, or not. Exec sets it back.
pub fn set_dumpable(dumpable: bool) -> Result<(), SysError> {
    prctl::set_dumpable(dumpable).map_err(SysError::of("prctl(PR_SET_DUMPABLE)"))
}

/// Whether this process is dumpable.
pub fn is_dumpable() -> Result<bool, SysError> {
    prctl::get_dumpable().map_err(SysError::of("prctl(PR_GET_DUMPABLE)"))
}

/// Has the kernel send `signal` when the thread that started this process ends; `None` turns it off.
///
/// The parent may have ended before this call: compare `getppid` with the expected parent afterwards.
pub fn set_parent_death_signal(signal: Option<Signal>) -> Result<(), SysError> {
    prctl::set_pdeathsig(signal).map_err(SysError::of("prctl(PR_SET_PDEATHSIG)"))
}

/// The exit code of an abort where no signal can tell it: see [`exit_when_aborted`].
const ABORTED: i32 = 128 + Signal::SIGABRT as i32;

static REPORT: OnceLock<fn()> = OnceLock::new();

/// Has an abort end this process with the code 134, after `report`, which runs in a signal's handler: it may
/// take no lock and allocate nothing. Only the first call counts.
///
/// The first process of a PID namespace ignores every signal that has no handler, the one of an abort
/// included. The C library then ends it by some other signal, which would tell of another mistake.
pub fn exit_when_aborted(report: fn()) -> Result<(), SysError> {
    extern "C" fn exit(_: libc::c_int) {
        if let Some(report) = REPORT.get() {
            report();
        }
        // SAFETY: it ends the process and touches nothing of it; a signal's handler may call it.
        unsafe { libc::_exit(ABORTED) }
    }
    let _ = REPORT.set(report);
    let action = SigAction::new(SigHandler::Handler(exit), SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: the handler calls what may be called in a handler, and does not return.
    unsafe { sigaction(Signal::SIGABRT, &action) }
        .map(drop)
        .map_err(SysError::of("sigaction(SIGABRT)"))
}

/// Ends this process by an access to memory that it does not have, as a wild pointer does.
pub fn fault() -> ! {
    // SAFETY: a new mapping replaces none. If there can be none, its address is one that no process has.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    loop {
        // SAFETY: nothing is read, since the page may not be: that ends this process.
        unsafe { page.cast::<u8>().read_volatile() };
    }
}
