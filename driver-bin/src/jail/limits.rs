//! Limits on resources.

use nix::sys::resource::Resource;
use nnhal_os::{SysError, rlimit};

use crate::settings::Limits;

/// Descriptors of a worker's own, beside those of a client's objects.
const OWN_FDS: u64 = 64;

/// Lowers the limits of this process, for good.
pub(super) fn lower(limits: &Limits) -> Result<(), SysError> {
    rlimit::lower_to(Resource::RLIMIT_CORE, 0)?;
    // Memories, fences and outcomes keep one descriptor each.
    rlimit::lower_to(Resource::RLIMIT_NOFILE, u64::from(limits.objects) * 3 + OWN_FDS)?;
    rlimit::lower_to(Resource::RLIMIT_MEMLOCK, 0)?;
    if limits.address_space_bytes != 0 {
        rlimit::lower_to(Resource::RLIMIT_AS, limits.address_space_bytes)?;
    }
    Ok(())
}
