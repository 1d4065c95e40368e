//! An allocator that counts. Part of the test daemon and of the tests that ask it, not of the library.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The system's allocator, with each allocation counted.
#[derive(Debug)]
pub(crate) struct CountingAllocator;

/// Counts the allocations of all processes that share it.
static SHARED: OnceLock<&'static AtomicU32> = OnceLock::new();

thread_local! {
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has taken, less those that it has given back, and the most there were of them.
    static BYTES: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// Has the allocations of all threads counted there too, from now on.
#[allow(dead_code, reason = "each binary uses its part")]
pub(crate) fn share(counter: &'static AtomicU32) {
    // Only the first one counts.
    let _ = SHARED.set(counter);
}

/// How many allocations the calling thread has made so far.
#[allow(dead_code, reason = "each binary uses its part")]
pub(crate) fn of_this_thread() -> u64 {
    OF_THREAD.get()
}

/// What `work` needs: the most bytes that the calling thread has taken for it at any moment.
#[allow(dead_code, reason = "each binary uses its part")]
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = BYTES.get().0;
    BYTES.set((before, before));
    let result = work();
    let peak = BYTES.get().1 - before;
    (result, peak.unsigned_abs())
}

fn change(bytes: i64) {
    let _ = BYTES.try_with(|counts| {
        let (now, most) = counts.get();
        counts.set((now + bytes, most.max(now + bytes)));
    });
}

fn count() {
    // A thread that is ending may have no count any more.
    let _ = OF_THREAD.try_with(|count| count.set(count.get() + 1));
    if let Some(shared) = SHARED.get() {
        shared.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract; counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        change(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        change(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        change(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        change(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
