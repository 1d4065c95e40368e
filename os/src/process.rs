//! What a process says about itself to the kernel: no new privileges, no dumps, no life beyond its parent.

use nix::sys::prctl;
use nix::sys::signal::Signal;

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
