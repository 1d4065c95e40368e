//! What a consumer says of its sleep, in the doorbell.

/// The consumer does not sleep.
pub(super) const AWAKE: u32 = 0;
/// The consumer sleeps, or is about to after looking once more.
pub(super) const SLEEPING: u32 = 1;
/// The consumer does not sleep, and its next sleeps will be short ones, behind each of which it looks once
/// more.
pub(super) const SUPPRESSED: u32 = 2;
