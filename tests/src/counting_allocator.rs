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
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
