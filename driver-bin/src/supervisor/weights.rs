//! The memories with packed weights that workers have offered to others of the same user.
//!
//! Contract: a memory is known by its user, its name and its size, and is given to workers of that user
//! alone; who the user is says the kernel, not the worker. Whatever workers ask, the table stays within the
//! settings: so many memories, so many bytes of each user. A memory is kept as long as a worker holds it;
//! nothing here maps one or looks at its bytes. What is given up is handed to the caller: freeing large
//! memories takes time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nnhal_os::shm::SharedMemory;
use nnhal_os::time::TimePoint;

use crate::settings::WeightSettings;
use crate::weights::{Answer, WeightsName};

/// Requests that a worker may make in each [`REQUEST_PERIOD`]. Preparing a model takes three, and
/// milliseconds.
const REQUESTS_IN_PERIOD: u32 = 2048;

/// See [`REQUESTS_IN_PERIOD`].
const REQUEST_PERIOD: Duration = Duration::from_secs(1);

/// A worker, and the user whose client it serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) uid: u32,
    /// Which of all workers that ever asked.
    pub(super) number: u64,
}

#[derive(Debug)]
struct Shared {
    memory: SharedMemory,
    /// How many programs of each worker use it, by number. Never empty, and no count is 0.
    holders: HashMap<u64, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    memories: u32,
    bytes: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct SharedWeights {
    memories: HashMap<(u32, WeightsName), Shared>,
    /// Of each user that has any.
    by_user: HashMap<u32, Usage>,
}

impl SharedWeights {
    /// What a worker that looks for weights is told; with [`Answer::Given`], the memory. It holds the memory
    /// then.
    pub(super) fn get(
        &mut self,
        holder: Holder,
        name: &WeightsName,
        settings: &WeightSettings,
    ) -> (Answer, Option<BorrowedFd<'_>>) {
        if !settings.share {
            return (Answer::Refused, None);
        }
        let has_room = self.has_room(holder.uid, name.size, settings);
        match self.memories.get_mut(&(holder.uid, *name)) {
            Some(shared) => {
                shared.hold(holder.number);
                (Answer::Given, Some(shared.memory.as_fd()))
            }
            None if has_room => (Answer::Wanted, None),
            None => (Answer::Refused, None),
        }
    }

    /// What a worker that offers weights, in sealed memory of the size in the name, is told. It holds the
    /// memory, which is taken, or the one that another worker has offered before and that it is given
    /// instead.
    pub(super) fn offer(
        &mut self,
        holder: Holder,
        name: &WeightsName,
        offered: &mut Option<SharedMemory>,
        settings: &WeightSettings,
    ) -> (Answer, Option<BorrowedFd<'_>>) {
        if !settings.share {
            return (Answer::Refused, None);
        }
        let has_room = self.has_room(holder.uid, name.size, settings);
        match self.memories.entry((holder.uid, *name)) {
            Entry::Occupied(entry) => {
                let shared = entry.into_mut();
                shared.hold(holder.number);
                (Answer::Given, Some(shared.memory.as_fd()))
            }
            Entry::Vacant(entry) => {
                let Some(memory) = offered.take_if(|_| has_room) else {
                    return (Answer::Refused, None);
                };
                entry.insert(Shared {
                    memory,
                    holders: HashMap::from([(holder.number, 1)]),
                });
                let usage = self.by_user.entry(holder.uid).or_default();
                usage.memories += 1;
                usage.bytes += name.size;
                (Answer::Kept, None)
            }
        }
    }

    /// One program of a worker uses a memory no more. Returns the memory if nobody does.
    pub(super) fn release(&mut self, holder: Holder, name: &WeightsName) -> Option<SharedMemory> {
        let key = (holder.uid, *name);
        let shared = self.memories.get_mut(&key)?;
        let Entry::Occupied(mut count) = shared.holders.entry(holder.number) else {
            return None;
        };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        if !shared.holders.is_empty() {
            return None;
        }
        self.give_room(holder.uid, name.size);
        self.memories.remove(&key).map(|shared| shared.memory)
    }

    /// A worker has ended, or is not listened to any more. Returns the memories that nobody uses now.
    pub(super) fn reap(&mut self, holder: Holder) -> Vec<SharedMemory> {
        let is_last = |(uid, _): &(u32, WeightsName), shared: &mut Shared| {
            *uid == holder.uid && shared.holders.remove(&holder.number).is_some() && shared.holders.is_empty()
        };
        let freed: Vec<_> = self.memories.extract_if(is_last).collect();
        let give_up = |((uid, name), shared): ((u32, WeightsName), Shared)| {
            self.give_room(uid, name.size);
            shared.memory
        };
        freed.into_iter().map(give_up).collect()
    }

    fn has_room(&self, uid: u32, size: u64, settings: &WeightSettings) -> bool {
        let usage = self.by_user.get(&uid).copied().unwrap_or_default();
        self.memories.len() < settings.max as usize
            && usage.memories < settings.max_per_user
            && usage
                .bytes
                .checked_add(size)
                .is_some_and(|bytes| bytes <= settings.max_bytes_per_user)
    }

    fn give_room(&mut self, uid: u32, size: u64) {
        if let Entry::Occupied(mut usage) = self.by_user.entry(uid) {
            let left = Usage {
                memories: usage.get().memories.saturating_sub(1),
                bytes: usage.get().bytes.saturating_sub(size),
            };
            if left.memories == 0 {
                usage.remove();
            } else {
                usage.insert(left);
            }
        }
    }
}

impl Shared {
    fn hold(&mut self, number: u64) {
        let count = self.holders.entry(number).or_default();
        *count = count.saturating_add(1);
    }
}

/// Bounds how much of the supervisor's time one worker's requests take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<TimePoint>,
    requests: u32,
}

impl Pace {
    /// Counts a request that was asked now. Returns whether it may be answered: whoever asks too fast is not
    /// a worker as it should be.
    pub(super) fn allows(&mut self, now: TimePoint) -> bool {
        if self
            .since
            .is_none_or(|since| since.saturating_add(REQUEST_PERIOD) <= now)
        {
            *self = Pace {
                since: Some(now),
                requests: 0,
            };
        }
        self.requests += 1;
        self.requests <= REQUESTS_IN_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use nnhal_os::time::{Clock, MonotonicClock};

    use super::*;
    use crate::weights::name_of;

    const SIZE: u64 = 1000;

    fn worker(uid: u32, number: u64) -> Holder {
        Holder { uid, number }
    }

    fn memory(byte: u8) -> Option<SharedMemory> {
        Some(SharedMemory::create_sealed(&[byte; SIZE as usize]).unwrap())
    }

    fn name(text: &str) -> WeightsName {
        name_of(text, SIZE)
    }

    /// The first byte of what a worker is given, or what it is told instead.
    fn get(table: &mut SharedWeights, holder: Holder, text: &str) -> Result<u8, Answer> {
        let (answer, fd) = table.get(holder, &name(text), &WeightSettings::default());
        byte_of(answer, fd)
    }

    fn byte_of(answer: Answer, fd: Option<BorrowedFd<'_>>) -> Result<u8, Answer> {
        assert_eq!(answer == Answer::Given, fd.is_some());
        let fd = fd.ok_or(answer)?.try_clone_to_owned().unwrap();
        let memory = SharedMemory::from_sealed_fd(fd, SIZE).unwrap();
        Ok(memory.read_to_vec(0, 1).unwrap()[0])
    }

    fn offer(table: &mut SharedWeights, holder: Holder, text: &str, byte: u8) -> Result<u8, Answer> {
        let settings = WeightSettings::default();
        let mut offered = memory(byte);
        let (answer, fd) = table.offer(holder, &name(text), &mut offered, &settings);
        assert_eq!(answer == Answer::Kept, offered.is_none());
        byte_of(answer, fd)
    }

    fn assert_empty(table: &SharedWeights) {
        assert_eq!((table.memories.len(), table.by_user.len()), (0, 0));
    }

    #[test]
    fn weights_are_given_to_workers_of_the_same_user_and_to_no_other() {
        let mut table = SharedWeights::default();
        let (first, second) = (worker(1, 10), worker(1, 11));
        assert_eq!(get(&mut table, first, "a"), Err(Answer::Wanted));
        assert_eq!(offer(&mut table, first, "a", 7), Err(Answer::Kept));
        assert_eq!(get(&mut table, second, "a"), Ok(7));
        assert_eq!(get(&mut table, second, "b"), Err(Answer::Wanted));
        for other in [worker(2, 20), worker(0, 21), worker(u32::MAX, 22)] {
            assert_eq!(get(&mut table, other, "a"), Err(Answer::Wanted), "T31: {other:?}");
            assert_eq!(offer(&mut table, other, "a", 66), Err(Answer::Kept));
        }
        // What others offer under the same name changes nothing.
        assert_eq!(get(&mut table, second, "a"), Ok(7), "T31");
    }

    #[test]
    fn of_two_that_offer_the_same_the_first_is_kept() {
        let mut table = SharedWeights::default();
        assert_eq!(offer(&mut table, worker(1, 10), "a", 7), Err(Answer::Kept));
        assert_eq!(offer(&mut table, worker(1, 11), "a", 8), Ok(7));
        // It holds what it was given.
        table.reap(worker(1, 10));
        assert_eq!(get(&mut table, worker(1, 12), "a"), Ok(7));
    }

    #[test]
    fn names_of_another_size_are_other_names() {
        let mut table = SharedWeights::default();
        offer(&mut table, worker(1, 10), "a", 7).unwrap_err();
        let settings = WeightSettings::default();
        let (answer, fd) = table.get(worker(1, 11), &name_of("a", SIZE + 1), &settings);
        assert_eq!((answer, fd.is_some()), (Answer::Wanted, false));
    }

    #[test]
    fn memory_is_forgotten_when_nobody_holds_it_any_more() {
        let mut table = SharedWeights::default();
        let (first, second) = (worker(1, 10), worker(1, 11));
        for ends in [true, false] {
            offer(&mut table, first, "a", 7).unwrap_err();
            offer(&mut table, first, "b", 7).unwrap_err();
            get(&mut table, second, "a").unwrap();
            get(&mut table, second, "a").unwrap();
            let leave = |table: &mut SharedWeights, holder, times| {
                for _ in 0..times {
                    table.release(holder, &name("a"));
                    table.release(holder, &name("b"));
                }
                if ends {
                    table.reap(holder);
                }
            };
            leave(&mut table, first, 1);
            assert_eq!(table.memories.len(), 1, "the second has the first memory still");
            leave(&mut table, second, if ends { 0 } else { 2 });
            assert_empty(&table);
        }
    }

    #[test]
    fn nobody_gives_up_what_another_holds() {
        let mut table = SharedWeights::default();
        offer(&mut table, worker(1, 10), "a", 7).unwrap_err();
        for stranger in [worker(1, 11), worker(2, 10), worker(2, 12)] {
            table.release(stranger, &name("a"));
            table.release(stranger, &name("unknown"));
            table.reap(stranger);
        }
        assert_eq!(get(&mut table, worker(1, 13), "a"), Ok(7));
    }

    #[test]
    fn there_are_never_more_memories_or_bytes_than_the_settings_say() {
        let unbounded = WeightSettings {
            max: u32::MAX,
            max_per_user: u32::MAX,
            max_bytes_per_user: u64::MAX,
            ..WeightSettings::default()
        };
        let bounds = [
            WeightSettings {
                max: 3,
                ..unbounded.clone()
            },
            WeightSettings {
                max_per_user: 3,
                ..unbounded.clone()
            },
            WeightSettings {
                max_bytes_per_user: 4 * SIZE - 1,
                ..unbounded
            },
        ];
        for settings in bounds {
            let mut table = SharedWeights::default();
            let first = worker(1, 10);
            let offer = |table: &mut SharedWeights, text: &str| {
                let name = name(text);
                table.offer(first, &name, &mut memory(1), &settings).0
            };
            let answers = ["a", "b", "c", "d", "e"].map(|text| offer(&mut table, text));
            assert_eq!(answers[..3], [Answer::Kept; 3]);
            assert_eq!(answers[3..], [Answer::Refused; 2]);
            assert_eq!(table.get(first, &name("d"), &settings).0, Answer::Refused);
            let huge = name_of("huge", u64::MAX);
            assert_eq!(table.get(first, &huge, &settings).0, Answer::Refused);
            assert_eq!(table.get(first, &name("a"), &settings).0, Answer::Given);
            if settings.max != 3 {
                let answer = table.get(worker(2, 20), &name("d"), &settings).0;
                assert_eq!(answer, Answer::Wanted, "another user has room of its own");
            }
            table.release(first, &name("b"));
            assert_eq!(offer(&mut table, "d"), Answer::Kept);
            table.reap(first);
            assert_empty(&table);
        }
    }

    #[test]
    fn nothing_is_shared_when_it_is_switched_off() {
        let mut table = SharedWeights::default();
        offer(&mut table, worker(1, 10), "a", 7).unwrap_err();
        let off = WeightSettings {
            share: false,
            ..WeightSettings::default()
        };
        for text in ["a", "b"] {
            let name = name(text);
            assert_eq!(table.get(worker(1, 11), &name, &off).0, Answer::Refused);
            let (answer, _) = table.offer(worker(1, 11), &name, &mut memory(1), &off);
            assert_eq!(answer, Answer::Refused);
        }
    }

    #[test]
    fn who_asks_without_end_is_not_answered_without_end() {
        let mut pace = Pace::default();
        let start = MonotonicClock.now();
        let allowed = (0..3 * REQUESTS_IN_PERIOD).filter(|_| pace.allows(start)).count();
        assert_eq!(allowed as u32, REQUESTS_IN_PERIOD);
        assert!(pace.allows(start.saturating_add(REQUEST_PERIOD)));
    }
}
