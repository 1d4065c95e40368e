//! A ring in loom's model of memory, where futexes are a mutex and a condition.
//!
//! Loom knows no time, and lets a load see an old value for as long as nothing orders it behind the new one.
//! What takes the place of time in `suppression.rs`, that a store is seen within a short sleep, is put in
//! here: behind such a sleep, its thread sees what was stored before ([`loom::thread::yield_now`] does that),
//! and from its beginning nobody sees a word of before it, since there is a fence between that word and the
//! sleep ([`SleeperWord`]).

use loom::sync::{Condvar, Mutex};

use super::layout::{Cell, Control, Doorbell, PAYLOAD_WORDS, Progress};
use super::sync::{AtomicU32, AtomicU64, Ordering, SleeperWord};
use super::words::AWAKE;
use nnhal_os::time::Deadline;
use nnhal_os::{SysError, futex};

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
                    sleeper: SleeperWord::new(AWAKE),
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

    /// A sleep with a deadline may last until then in every execution, and ends then: how long that is makes
    /// no difference.
    pub(super) fn sleep(&self, expected: u32, deadline: Deadline) -> Result<futex::Wait, SysError> {
        let sleeper = &self.control.doorbell.sleeper;
        Ok(if deadline.is_none() {
            self.model.wait(sleeper, expected)
        } else {
            self.model.doze(sleeper, expected)
        })
    }

    /// The model of sleeping on several words looks at them now and then. Whoever wakes a thread changes the
    /// word that it sleeps on, so a wake-up that is lost leaves it looking for ever, which loom reports.
    pub(super) fn sleep_on_any<'a>(
        rings: impl Iterator<Item = &'a RingMemory>,
        expected: u32,
        deadline: Deadline,
    ) -> Result<futex::Wait, SysError> {
        let words: Vec<&SleeperWord> = rings.map(|ring| &ring.control.doorbell.sleeper).collect();
        let has_changed = || words.iter().any(|word| word.load(Ordering::Relaxed) != expected);
        if has_changed() {
            return Ok(futex::Wait::Changed);
        }
        if !deadline.is_none() {
            words.iter().for_each(|word| word.settle());
            loom::thread::yield_now();
            return Ok(futex::Wait::TimedOut);
        }
        while !has_changed() {
            loom::thread::yield_now();
        }
        Ok(futex::Wait::Woken)
    }

    pub(super) fn wake(&self) {
        self.model.wake();
    }
}

/// What a futex does: the value is compared and the thread queued in one step, as seen by wakers.
#[derive(Debug)]
struct FutexModel {
    /// How often there was a wake.
    queue: Mutex<u32>,
    woken: Condvar,
}

impl FutexModel {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::new(0),
            woken: Condvar::new(),
        }
    }

    fn wait(&self, word: &SleeperWord, expected: u32) -> futex::Wait {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return futex::Wait::Changed;
        }
        drop(self.woken.wait(queue).unwrap());
        futex::Wait::Woken
    }

    /// A sleep that others may or may not end while they run.
    fn doze(&self, word: &SleeperWord, expected: u32) -> futex::Wait {
        let wakes = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return futex::Wait::Changed;
        }
        word.settle();
        let before = *wakes;
        drop(wakes);
        loom::thread::yield_now();
        if *self.queue.lock().unwrap() == before {
            futex::Wait::TimedOut
        } else {
            futex::Wait::Woken
        }
    }

    fn wake(&self) {
        *self.queue.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}
