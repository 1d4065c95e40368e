//! Copies between private memory and memory that another process may change under way.
//!
//! Why this is sound: a plain read or `memcpy` of bytes that someone else writes at the same time is a data
//! race, and the compiler may assume there is none: it may read a byte twice and find two values. Relaxed
//! atomic loads and stores are allowed to race, and each yields one value. So the shared side is accessed by
//! relaxed atomics only, in aligned 8-byte words with half words and single bytes at the ends (the values of
//! most types are four bytes: copied as such they reach whoever loads them at once, while processors take
//! long to put together what was stored byte by byte); the private side, which nobody else can reach, by
//! ordinary accesses. A copy may mix old and new bytes of a peer that writes meanwhile; it never is anything
//! but bytes.
//!
//! Long copies on x86-64 use `rep movsb` instead, at the speed of memory: the compiler sees an opaque block
//! that reads or writes those bytes once, in an unspecified order, which is what a run of relaxed byte-wise
//! atomics does.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();
const HALF: usize = size_of::<u32>();

/// From this length on the string instruction is faster than the loop of words.
#[cfg(target_arch = "x86_64")]
const STRING_COPY_MIN: usize = 1024;

/// Copies `out.len()` bytes from shared memory.
///
/// # Safety
/// That many bytes from `from` must be mapped for reading, and no `&mut` to them may exist.
#[inline]
pub(super) unsafe fn out_of_shared(from: *const u8, out: &mut [u8]) {
    if let Ok(half) = <&mut [u8; HALF]>::try_from(&mut *out)
        && from.addr().is_multiple_of(HALF)
    {
        // One value of most types, for which the loops below are long.
        // SAFETY: these are the caller's bytes, and aligned.
        *half = unsafe { load_half(from) }.to_ne_bytes();
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if out.len() >= STRING_COPY_MIN {
        // SAFETY: `out` is writable for its length; the caller vouches for `from`.
        unsafe { string_copy(from, out.as_mut_ptr(), out.len()) };
        return;
    }
    let mut at = from;
    let (first, half) = unaligned(from, out.len());
    let (first, rest) = out.split_at_mut(first);
    for byte in first {
        // SAFETY: it is one of the caller's bytes, as is all below: the parts of `out` follow each other, and
        // `at` with them.
        *byte = unsafe { load_byte(at) };
        at = at.wrapping_add(1);
    }
    let (half, rest) = rest.split_at_mut(half);
    for half in half.as_chunks_mut::<HALF>().0 {
        // SAFETY: as above; the bytes before have brought it to its alignment.
        *half = unsafe { load_half(at) }.to_ne_bytes();
        at = at.wrapping_add(HALF);
    }
    let (words, rest) = rest.as_chunks_mut::<WORD>();
    for word in words {
        // SAFETY: as above.
        *word = unsafe { load_word(at) }.to_ne_bytes();
        at = at.wrapping_add(WORD);
    }
    let (half, last) = rest.as_chunks_mut::<HALF>();
    for half in half {
        // SAFETY: as above; only words are before it, or so few bytes that there is none.
        *half = unsafe { load_half(at) }.to_ne_bytes();
        at = at.wrapping_add(HALF);
    }
    for byte in last {
        // SAFETY: as above.
        *byte = unsafe { load_byte(at) };
        at = at.wrapping_add(1);
    }
}

/// Copies `bytes` into shared memory.
///
/// # Safety
/// `bytes.len()` bytes from `to` must be mapped for writing, and no reference to them may exist.
#[inline]
pub(super) unsafe fn into_shared(to: *mut u8, bytes: &[u8]) {
    if let Ok(half) = <[u8; HALF]>::try_from(bytes)
        && to.addr().is_multiple_of(HALF)
    {
        // SAFETY: these are the caller's bytes, and aligned.
        unsafe { store_half(to, u32::from_ne_bytes(half)) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= STRING_COPY_MIN {
        // SAFETY: `bytes` is readable for its length; the caller vouches for `to`.
        unsafe { string_copy(bytes.as_ptr(), to, bytes.len()) };
        return;
    }
    let mut at = to;
    let (first, half) = unaligned(to, bytes.len());
    let (first, rest) = bytes.split_at(first);
    for &byte in first {
        // SAFETY: it is one of the caller's bytes, as is all below: the parts of `bytes` follow each other,
        // and `at` with them.
        unsafe { store_byte(at, byte) };
        at = at.wrapping_add(1);
    }
    let (half, rest) = rest.split_at(half);
    for &half in half.as_chunks::<HALF>().0 {
        // SAFETY: as above; the bytes before have brought it to its alignment.
        unsafe { store_half(at, u32::from_ne_bytes(half)) };
        at = at.wrapping_add(HALF);
    }
    let (words, rest) = rest.as_chunks::<WORD>();
    for &word in words {
        // SAFETY: as above.
        unsafe { store_word(at, u64::from_ne_bytes(word)) };
        at = at.wrapping_add(WORD);
    }
    let (half, last) = rest.as_chunks::<HALF>();
    for &half in half {
        // SAFETY: as above; only words are before it, or so few bytes that there is none.
        unsafe { store_half(at, u32::from_ne_bytes(half)) };
        at = at.wrapping_add(HALF);
    }
    for &byte in last {
        // SAFETY: as above.
        unsafe { store_byte(at, byte) };
        at = at.wrapping_add(1);
    }
}

/// Of `length` bytes from `start` on: how many single ones, and how many of half a word, are in front of the
/// first aligned word. If there is none, the halves and bytes behind it are all the rest: then what begins
/// there is aligned for the halves, or shorter than one.
#[inline(always)]
fn unaligned(start: *const u8, length: usize) -> (usize, usize) {
    let first = start.align_offset(HALF).min(length);
    let is_between = !start.wrapping_add(first).addr().is_multiple_of(WORD);
    let half = if is_between && length - first >= HALF {
        HALF
    } else {
        0
    };
    (first, half)
}

/// # Safety
/// The byte must be mapped for reading.
#[inline(always)]
unsafe fn load_byte(at: *const u8) -> u8 {
    // SAFETY: the caller vouches for the byte; a relaxed load of it is allowed on read-only memory.
    unsafe { AtomicU8::from_ptr(at.cast_mut()) }.load(Relaxed)
}

/// # Safety
/// The 4 bytes must be aligned and mapped for reading.
#[inline(always)]
unsafe fn load_half(at: *const u8) -> u32 {
    // SAFETY: the caller vouches for the bytes; a relaxed load of them is allowed on read-only memory.
    unsafe { AtomicU32::from_ptr(at.cast_mut().cast()) }.load(Relaxed)
}

/// # Safety
/// The 8 bytes must be aligned and mapped for reading.
#[inline(always)]
unsafe fn load_word(at: *const u8) -> u64 {
    // SAFETY: the caller vouches for the word; a relaxed load of it is allowed on read-only memory.
    unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Relaxed)
}

/// # Safety
/// The byte must be mapped for writing.
#[inline(always)]
unsafe fn store_byte(at: *mut u8, byte: u8) {
    // SAFETY: the caller vouches for the byte.
    unsafe { AtomicU8::from_ptr(at) }.store(byte, Relaxed);
}

/// # Safety
/// The 4 bytes must be aligned and mapped for writing.
#[inline(always)]
unsafe fn store_half(at: *mut u8, half: u32) {
    // SAFETY: the caller vouches for the bytes.
    unsafe { AtomicU32::from_ptr(at.cast()) }.store(half, Relaxed);
}

/// # Safety
/// The 8 bytes must be aligned and mapped for writing.
#[inline(always)]
unsafe fn store_word(at: *mut u8, word: u64) {
    // SAFETY: the caller vouches for the word.
    unsafe { AtomicU64::from_ptr(at.cast()) }.store(word, Relaxed);
}

/// # Safety
/// `length` bytes must be readable from `from` and writable from `to`, and the two must not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn string_copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller vouches for both ranges; the ABI keeps the direction flag clear; the registers that
    // the instruction changes are declared.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_from_and_to_every_alignment() {
        let source: Vec<u8> = (1..=64).collect();
        let shared: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let start: *mut u8 = shared.as_ptr().cast_mut().cast();
        for offset in 0..24 {
            for length in 0..=40 {
                shared.iter().for_each(|word| word.store(0, Relaxed));
                let at = start.wrapping_add(offset);
                let mut all = [0_u8; 64];
                let mut out = vec![0; length];
                // SAFETY: the words are 64 bytes, at least `offset + length`, and only accessed atomically.
                unsafe { into_shared(at, &source[..length]) };
                // SAFETY: as above.
                unsafe { out_of_shared(at, &mut out) };
                // SAFETY: as above.
                unsafe { out_of_shared(start, &mut all) };
                assert_eq!(out, source[..length]);
                let mut expected = [0; 64];
                expected[offset..][..length].copy_from_slice(&source[..length]);
                assert_eq!(all, expected, "{length} bytes at {offset}");
            }
        }
    }

    #[test]
    fn copy_races_with_a_writer_and_yields_only_bytes_it_wrote() {
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2000 {
                    let value = if round % 2 == 0 { u64::MAX } else { 0 };
                    words.iter().for_each(|word| word.store(value, Relaxed));
                }
            });
            let mut out = [1_u8; 512];
            for _ in 0..2000 {
                // SAFETY: the words are 512 bytes that live for the scope and are only accessed atomically.
                unsafe { out_of_shared(words.as_ptr().cast(), &mut out) };
                assert!(out.iter().all(|&byte| byte == 0 || byte == u8::MAX));
            }
        });
    }
}
