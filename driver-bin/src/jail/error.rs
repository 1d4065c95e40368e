//! What goes wrong on the way into a jail.

use nnhal_os::SysError;

/// Why a process cannot give up what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JailError {
    #[error(transparent)]
    System(#[from] SysError),
    #[error("failed to {0}: {1}")]
    Step(&'static str, std::io::Error),
    #[error("system calls cannot be restricted: {0}; jail.system_calls = false leaves that out")]
    Filter(#[from] seccompiler::Error),
    #[error("the list of system calls cannot be compiled: {0}; jail.system_calls = false leaves that out")]
    Compile(#[from] seccompiler::BackendError),
    #[error("files cannot be restricted: {0}; jail.files = false leaves that out")]
    Files(#[from] landlock::RulesetError),
}
