//! What a waiting loop says to the processor.

/// Tells the processor that this is a waiting loop (`pause` on x86, `isb` on aarch64).
///
/// It saves power and leaves the core to a sibling hyperthread; on Skylake and later it takes about 140 cycles, so
/// it is also the longest a poll can be late.
#[inline(always)]
pub fn relax() {
    core::hint::spin_loop();
}
