//! Limits of a process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::SysError;

/// Sets the soft and the hard limit of `resource` to `value`, or to the present hard limit if that is lower.
///
/// A process may lower its limits but not raise a hard one, so asking for more than is allowed keeps what is
/// allowed. Returns the limit now in force.
pub fn lower_to(resource: Resource, value: u64) -> Result<u64, SysError> {
    let (_, hard) = getrlimit(resource).map_err(SysError::of("getrlimit"))?;
    let limit = value.min(hard);
    setrlimit(resource, limit, limit).map_err(SysError::of("setrlimit"))?;
    Ok(limit)
}

/// The bytes of address space that this process may have at most; the maximum if nothing says so.
#[must_use]
pub fn address_space() -> u64 {
    getrlimit(Resource::RLIMIT_AS).map_or(u64::MAX, |(soft, _)| soft)
}

/// Raises the soft limit of `resource` as far as the hard one allows, and returns it.
pub fn raise_to_hard(resource: Resource) -> Result<u64, SysError> {
    let (soft, hard) = getrlimit(resource).map_err(SysError::of("getrlimit"))?;
    if soft < hard {
        setrlimit(resource, hard, hard).map_err(SysError::of("setrlimit"))?;
    }
    Ok(hard)
}
