//! What is to happen when a test ends, also by a panic.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when dropped, so that the threads of a scope end that run until it is set.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that is killed when dropped, if it has not ended.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
