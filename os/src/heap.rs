//! The heap of this process.

/// Gives memory that is free on the heap back to the kernel.
///
/// The C library keeps what it was given back, up to tens of megabytes for each thread that allocates, in
/// case it is asked for again. To be called by processes that are going to be idle; where the C library has
/// no such call, nothing happens.
pub fn give_back_free() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function has no preconditions and takes its own locks; it touches free memory only.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Has all threads that are made from now on allocate from one heap.
///
/// The C library makes one for each of several threads, and of each keeps some hundred kilobytes at its end
/// that [`give_back_free`] does not give back. To be called by processes that are many and whose threads
/// allocate seldom; where the C library has no such call, nothing happens.
pub fn have_one() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function has no preconditions and takes its own locks; it sets how many heaps there may
        // be.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_stays_as_it_is() {
        let kept = vec![7_u8; 1 << 20];
        drop(vec![1_u8; 1 << 20]);
        give_back_free();
        assert!(kept.iter().all(|byte| *byte == 7));
    }
}
