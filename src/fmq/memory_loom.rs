//! A ring in loom's model of memory, where futexes are a mutex and a condition.

use loom::sync::{Condvar, Mutex};

use super::layout::{AWAKE, Cell, Control, Doorbell, PAYLOAD_WORDS, Progress};
use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::{SysError, futex};
use crate::time::Deadline;

#[derive(Debug)]
pub(super) struct RingMemory {
    cells: Vec<Cell>,
    control: Control,
    model: FutexModel,
}

impl RingMemory {
    pub(super) fn new(capacity: u32) -> Self {
        let cell = |_| Cell {
            sequence: AtomicU64::new(0),
            payload: std::array::from_fn::<_, PAYLOAD_WORDS, _>(|_| AtomicU64::new(0)),
        };
        Self {
            cells: (0..capacity).map(cell).collect(),
            control: Control {
                progress: Progress {
                    consumed: AtomicU64::new(0),
                },
                doorbell: Doorbell {
                    sleeper: AtomicU32::new(AWAKE),
                    closed: AtomicU32::new(0),
                    rung_at: AtomicU64::new(0),
                },
            },
            model: FutexModel::new(),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.cells.len() as u32
    }

    pub(super) fn cell(&self, position: u64) -> &Cell {
        &self.cells[position as usize % self.cells.len()]
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    pub(super) fn sleep(&self, expected: u32, _deadline: Deadline) -> Result<futex::Wait, SysError> {
        Ok(self.model.wait(&self.control.doorbell.sleeper, expected))
    }

    pub(super) fn wake(&self) {
        self.model.wake();
    }
}

/// What a futex does: the value is compared and the thread queued in one step, as seen by wakers.
#[derive(Debug)]
struct FutexModel {
    queue: Mutex<()>,
    woken: Condvar,
}

impl FutexModel {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn wait(&self, word: &AtomicU32, expected: u32) -> futex::Wait {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return futex::Wait::Changed;
        }
        drop(self.woken.wait(queue).unwrap());
        futex::Wait::Woken
    }

    fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}
