//! Copies between private memory and memory that another process may change under way.
//!
//! Why this is sound: a plain read or `memcpy` of bytes that someone else writes at the same time is a data race, and
//! the compiler may assume there is none: it may read a byte twice and find two values. Relaxed atomic loads and
//! stores are allowed to race, and each yields one value. So the shared side is accessed by relaxed atomics only, in
//! aligned 8-byte words with half a word and single bytes at the ends; the private side, which nobody else can reach, by ordinary
//! accesses. A copy may mix old and new bytes of a peer that writes meanwhile; it never is anything but bytes.
//!
//! Long copies on x86-64 use `rep movsb` instead, at the speed of memory: the compiler sees an opaque block that reads
//! or writes those bytes once, in an unspecified order, which is what a run of relaxed byte-wise atomics does.

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
    #[cfg(target_arch = "x86_64")]
    if out.len() >= STRING_COPY_MIN {
        // SAFETY: `out` is writable for its length; the caller vouches for `from`.
        unsafe { string_copy(from, out.as_mut_ptr(), out.len()) };
        return;
    }
    let head = from.align_offset(WORD).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    let (words, last) = rest.as_chunks_mut::<WORD>();
    let word_start = from.wrapping_add(head);
    let last_start = word_start.wrapping_add(words.len() * WORD);
    for (index, byte) in first.iter_mut().enumerate() {
        // SAFETY: index < out.len(), so the byte is within the caller's range.
        *byte = unsafe { load_byte(from.wrapping_add(index)) };
    }
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: the word lies within the caller's range and `head` has brought it to its alignment.
        *word = unsafe { load_word(word_start.wrapping_add(index * WORD)) }.to_ne_bytes();
    }
    // The values of most types are four bytes: read as such they reach whoever loads them from `out` at once, while
    // processors take long to put together what was stored byte by byte.
    let (halves, single) = last.as_chunks_mut::<HALF>();
    for half in halves.iter_mut() {
        // SAFETY: there is one at most, within the caller's range, where an aligned word would start.
        *half = unsafe { load_half(last_start) }.to_ne_bytes();
    }
    let single_start = last_start.wrapping_add(halves.len() * HALF);
    for (index, byte) in single.iter_mut().enumerate() {
        // SAFETY: as for the first bytes.
        *byte = unsafe { load_byte(single_start.wrapping_add(index)) };
    }
}

/// Copies `bytes` into shared memory.
///
/// # Safety
/// `bytes.len()` bytes from `to` must be mapped for writing, and no reference to them may exist.
#[inline]
pub(super) unsafe fn into_shared(to: *mut u8, bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= STRING_COPY_MIN {
        // SAFETY: `bytes` is readable for its length; the caller vouches for `to`.
        unsafe { string_copy(bytes.as_ptr(), to, bytes.len()) };
        return;
    }
    let head = to.align_offset(WORD).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    let (words, last) = rest.as_chunks::<WORD>();
    let word_start = to.wrapping_add(head);
    let last_start = word_start.wrapping_add(words.len() * WORD);
    for (index, &byte) in first.iter().enumerate() {
        // SAFETY: index < bytes.len(), so the byte is within the caller's range.
        unsafe { store_byte(to.wrapping_add(index), byte) };
    }
    for (index, &word) in words.iter().enumerate() {
        // SAFETY: the word lies within the caller's range and `head` has brought it to its alignment.
        unsafe { store_word(word_start.wrapping_add(index * WORD), u64::from_ne_bytes(word)) };
    }
    let (halves, single) = last.as_chunks::<HALF>();
    for &half in halves {
        // SAFETY: there is one at most, within the caller's range, where an aligned word would start.
        unsafe { store_half(last_start, u32::from_ne_bytes(half)) };
    }
    let single_start = last_start.wrapping_add(halves.len() * HALF);
    for (index, &byte) in single.iter().enumerate() {
        // SAFETY: as for the first bytes.
        unsafe { store_byte(single_start.wrapping_add(index), byte) };
    }
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
    // SAFETY: the caller vouches for both ranges; the ABI keeps the direction flag clear; the registers that the
    // instruction changes are declared.
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
