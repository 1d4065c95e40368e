//! What the environment says, to programs that may believe it.

use std::ffi::OsString;

/// Whether this process has rights that whoever started it may lack: its executable is set-user-ID or has
/// capabilities (`AT_SECURE`). Its environment and the path to it are then that user's, who must not lead it.
#[must_use]
pub fn is_foreign() -> bool {
    // SAFETY: the function has no preconditions; it reads what the kernel gave this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of a variable. None is set where the environment [is foreign](is_foreign).
#[must_use]
pub fn var_os(name: &str) -> Option<OsString> {
    if is_foreign() {
        None
    } else {
        std::env::var_os(name)
    }
}

/// As [`var_os`], if the value is text.
#[must_use]
pub fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_without_further_rights_has_its_environment() {
        assert!(!is_foreign());
        assert_eq!(var_os("PATH"), std::env::var_os("PATH"));
        assert_eq!(var("nnhal=none"), None);
    }
}
