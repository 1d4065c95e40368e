//! What a worker gives up before it meets its client.
//!
//! The supervisor starts workers with their standard descriptors only; everything else it has open closes on
//! exec. Here a worker takes from itself what it does not need from then on. The order counts: each step may
//! be the last one that still allows what a later one forbids.

use nix::sys::resource::Resource;
use nnhal_os::{SysError, process, rlimit};

use crate::settings::Limits;

/// Descriptors of a worker's own, beside those of a client's objects.
const OWN_FDS: u64 = 64;

/// Enters the jail, for good.
pub(crate) fn enter(limits: &Limits) -> Result<(), SysError> {
    process::set_no_new_privs()?;
    // Other processes of the same user cannot read this one's memory or descriptors.
    process::set_dumpable(false)?;
    rlimit::lower_to(Resource::RLIMIT_CORE, 0)?;
    // Memories, fences and outcomes keep one descriptor each.
    rlimit::lower_to(Resource::RLIMIT_NOFILE, u64::from(limits.objects) * 3 + OWN_FDS)?;
    rlimit::lower_to(Resource::RLIMIT_MEMLOCK, 0)?;
    if limits.address_space_bytes != 0 {
        rlimit::lower_to(Resource::RLIMIT_AS, limits.address_space_bytes)?;
    }
    Ok(())
}
