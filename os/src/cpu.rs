//! What the processor is told of a program's intents.

/// Tells the processor that this is a waiting loop (`pause` on x86, `isb` on aarch64).
///
/// It saves power and leaves the core to a sibling hyperthread; on Skylake and later it takes about 140
/// cycles, so it is also the longest a poll can be late.
#[inline(always)]
pub fn relax() {
    core::hint::spin_loop();
}

/// Has the processor wait until what it has loaded is there, so that no more than one poll is under way at a
/// time: `lfence` on x86-64, some 20 cycles; as [`relax`] elsewhere.
///
/// Without it many loads wait for the line once another processor has it, and those that were begun too soon
/// are done again.
#[inline(always)]
pub fn relax_briefly() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction touches nothing, and every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    relax();
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Tells the processor that what has just been written at `start` is for another processor to read:
/// `cldemote` for each cache line on x86-64, nothing elsewhere.
///
/// Intel's processors since Sapphire Rapids move the lines into the cache that all cores share, from where
/// the reader has them sooner than out of the writer's own; all others take the instruction for none. It is a
/// hint that cannot fail, wherever `start` points.
#[inline(always)]
pub fn demote(start: *const u8, length: usize) {
    for_each_line(start, length, |line| {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction changes nothing but where a line is cached and raises no fault, whatever
        // the address.
        unsafe {
            // Without `nomem`, so that what has been written is written before.
            core::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    });
}

/// Tells the processor that what is at `start` is about to be written: each of its cache lines is taken from
/// the processors that have it, while this one goes on: `prefetchw` on x86-64, which processors that lack it
/// take for no instruction. It is a hint that cannot fail, wherever `start` points.
#[inline(always)]
pub fn prefetch_to_write(start: *const u8, length: usize) {
    for_each_line(start, length, |line| {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction changes nothing but where a line is cached and raises no fault, whatever
        // the address.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, nomem, preserves_flags));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, nomem, preserves_flags));
        }
        #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
        let _ = line;
    });
}

/// Calls `each` with the addresses of the cache lines that so many bytes from `start` on are in.
#[inline(always)]
fn for_each_line(start: *const u8, length: usize, mut each: impl FnMut(usize)) {
    if length == 0 {
        return;
    }
    let last = start.addr().saturating_add(length - 1);
    let mut line = start.addr() & !(LINE_BYTES - 1);
    loop {
        each(line);
        if last - line < LINE_BYTES {
            break;
        }
        line += LINE_BYTES;
    }
}

/// How many bytes the second-level cache of a processor holds, as the C library tells; `None` where it cannot
/// say.
#[must_use]
pub fn second_level_cache() -> Option<usize> {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        // SAFETY: the call takes a number and returns one.
        let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
        usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    None
}

/// Of `arch_prctl`: which parts of the processor's state the process may use, and asking for one more.
/// `asm/prctl.h`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ARCH_GET_XCOMP_PERM: libc::c_int = 0x1022;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;

/// The number of the part that AMX's tiles are, of 8 KiB.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const TILE_DATA: libc::c_ulong = 18;

/// Asks the kernel for the tiles of AMX, for all threads of this process and those that they start; says
/// whether they may be used. `false` on processors and kernels without them (Linux has them since 5.16).
///
/// From then on the kernel refuses alternative signal stacks of less than some 11 KiB (what `AT_MINSIGSTKSZ`
/// says is enough), so this is for programs that know which threads they have, not for libraries.
pub fn permit_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the call takes two numbers and changes nothing but what the kernel saves of this process's
    // threads.
    unsafe {
        libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
    }
    may_use_tiles()
}

/// Whether this process may use AMX's tiles: [`permit_tiles`] has asked for them and the kernel agreed.
#[must_use]
pub fn may_use_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut permitted: u64 = 0;
        // SAFETY: the kernel writes eight bytes to `permitted`, which lives for the call.
        let done = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &raw mut permitted) };
        done == 0 && permitted & (1 << TILE_DATA) != 0
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_change_nothing_wherever_they_point() {
        for hint in [demote, prefetch_to_write] {
            let bytes = [7_u8; 3 * LINE_BYTES];
            hint(&raw const bytes[5], 2 * LINE_BYTES);
            assert_eq!(bytes, [7; 3 * LINE_BYTES]);
            hint(std::ptr::null(), LINE_BYTES);
            hint(usize::MAX as *const u8, LINE_BYTES);
        }
    }

    #[test]
    fn the_second_level_cache_holds_whole_lines() {
        assert!(second_level_cache().is_none_or(|bytes| bytes >= LINE_BYTES && bytes % LINE_BYTES == 0));
    }

    #[test]
    fn tiles_are_permitted_once_they_are_asked_for() {
        let permitted = permit_tiles();
        assert_eq!(may_use_tiles(), permitted);
    }

    #[test]
    fn lines_are_those_that_the_bytes_are_in() {
        let lines = |start: usize, length| {
            let mut found: Vec<usize> = Vec::new();
            for_each_line(start as *const u8, length, |line| found.push(line));
            found
        };
        assert!(lines(128, 0).is_empty() && lines(130, 0).is_empty());
        assert_eq!(lines(usize::MAX - 1, 64), [usize::MAX - 63]);
        assert_eq!(lines(128, 64), [128]);
        assert_eq!(lines(130, 63), [128, 192]);
        assert_eq!(lines(191, 1), [128]);
    }
}
