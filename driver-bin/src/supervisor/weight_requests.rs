//! What workers ask about packed weights, answered.
//!
//! Contract: whatever a worker sends costs it at most the right to ask: one that sends what is no request,
//! does not take its answers or asks too fast is listened to no more. It goes on serving its client.
//!
//! Each worker that asks is listened to by a thread of its own. Descriptors come with requests, and with
//! some the mere closing waits for whoever made them, such as the server of a file system; and freeing a
//! large memory takes its time. Who waits then is the thread of the worker that sent it.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::diag::tags;
use nnhal_os::shm::{SharedMemory, ShmError};
use nnhal_os::socket::{Connection, SocketError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::reaper::Place;
use super::weights::{Holder, Pace, SharedWeights};
use crate::settings::WeightSettings;
use crate::weights::{Answer, WEIGHT_REQUEST_BYTES, WeightRequest};

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// A request has one at most; of more the system keeps none.
const MOST_FDS: usize = 2;

/// What a thread needs that listens.
const STACK_BYTES: usize = 128 * 1024;

/// Why a worker is listened to no more.
#[derive(Debug, thiserror::Error)]
enum Unheard {
    #[error("it sent {length} bytes with {fds} descriptors, which is no request")]
    NoRequest { length: usize, fds: usize },
    #[error("it makes too many requests")]
    TooFast,
    #[error("what it offered are no weights: {0}")]
    Offer(#[from] ShmError),
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Why nobody can listen to a worker.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
    #[error("its user has no number here, so that it may be any of several")]
    Nobody,
}

#[derive(Debug)]
struct Common {
    weights: SharedWeights,
    settings: WeightSettings,
    /// How many workers have asked so far.
    holders: u64,
    /// Those of them that have not ended.
    living: HashSet<u64>,
    /// Stands for all users that have no number here, if there can be any: some of them may be different
    /// ones.
    nobody: Option<u32>,
}

/// The threads that listen to workers, and what they have in common.
#[derive(Clone, Debug)]
pub(super) struct Listeners(Arc<Mutex<Common>>);

impl Listeners {
    /// `nobody` is [`nnhal_os::peer::unnumbered_uid`].
    pub(super) fn new(settings: WeightSettings, nobody: Option<u32>) -> Listeners {
        Listeners(Arc::new(Mutex::new(Common {
            weights: SharedWeights::default(),
            settings,
            holders: 0,
            living: HashSet::new(),
            nobody,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Common> {
        // It is whole between any two statements of this module.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings have changed.
    pub(super) fn reconfigure(&self, settings: WeightSettings) {
        self.lock().settings = settings;
    }

    fn new_holder(&self, uid: u32) -> Holder {
        let mut common = self.lock();
        common.holders += 1;
        let number = common.holders;
        common.living.insert(number);
        Holder { uid, number }
    }

    /// A worker has ended, or is listened to no more. Returns the memories that nobody holds now.
    pub(super) fn reap(&self, holder: Holder) -> Vec<SharedMemory> {
        let mut common = self.lock();
        common.living.remove(&holder.number);
        common.weights.reap(holder)
    }

    /// What there is for somebody who lives.
    fn common_of(&self, holder: Holder) -> Result<MutexGuard<'_, Common>, Unheard> {
        let common = self.lock();
        if common.living.contains(&holder.number) {
            Ok(common)
        } else {
            Err(SocketError::Closed.into())
        }
    }

    /// Has a thread listen to a worker, which serves a client of this user, until it ends or says something
    /// unexpected. The thread has the client's place as long as it lives.
    pub(super) fn listen(
        &self,
        (pid, uid): (i32, u32),
        place: Place,
        connection: &Connection,
    ) -> Result<Holder, ListenError> {
        if self.lock().nobody == Some(uid) {
            return Err(ListenError::Nobody);
        }
        let connection = connection.try_clone()?;
        let (listeners, holder) = (self.clone(), self.new_holder(uid));
        std::thread::Builder::new()
            .name("weights".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let (reason, freed) = listeners.answer_all(holder, &connection);
                connection.discard_unread();
                drop(connection);
                drop(place);
                // That takes its time but needs nobody.
                drop(freed);
                match reason {
                    Unheard::Socket(SocketError::Closed) => {}
                    reason => {
                        tracing::warn!(target: tags::DRIVER, uid, pid, %reason, "the worker shares no more weights");
                    }
                }
            })
            .map(|_| holder)
            .map_err(|error| {
                drop(self.reap(holder));
                ListenError::Thread(error)
            })
    }

    /// Answers until there is a reason not to; returns it, and the memories that nobody holds then. The
    /// worker notices that nobody listens, and prepares its models alone.
    fn answer_all(&self, holder: Holder, connection: &Connection) -> (Unheard, Vec<SharedMemory>) {
        let mut pace = Pace::default();
        let reason = loop {
            if let Err(reason) = self.answer_next(holder, connection, &mut pace) {
                break reason;
            }
        };
        connection.shutdown();
        (reason, self.reap(holder))
    }

    fn answer_next(&self, holder: Holder, connection: &Connection, pace: &mut Pace) -> Result<(), Unheard> {
        let mut bytes = [0; WEIGHT_REQUEST_BYTES];
        // Ends with the worker, if not before.
        let received = connection.receive_with(&mut bytes, MOST_FDS, Deadline::NONE)?;
        if !pace.allows(MonotonicClock.now()) {
            return Err(Unheard::TooFast);
        }
        let no_request = Unheard::NoRequest {
            length: received.length,
            fds: received.fds.len(),
        };
        let request = bytes.get(..received.length).and_then(WeightRequest::decode);
        let mut fds: Vec<OwnedFd> = received.fds;
        let (answer, memory) = match (request, fds.pop(), fds.is_empty()) {
            (Some(WeightRequest::Get(name)), None, _) => {
                let Common {
                    weights, settings, ..
                } = &mut *self.common_of(holder)?;
                let (answer, fd) = weights.get(holder, &name, settings);
                (answer, fd.map(|fd| fd.try_clone_to_owned()))
            }
            (Some(WeightRequest::Offer(name)), Some(fd), true) => {
                let mut offered = Some(SharedMemory::from_sealed_fd(fd, name.size)?);
                let Common {
                    weights, settings, ..
                } = &mut *self.common_of(holder)?;
                let (answer, fd) = weights.offer(holder, &name, &mut offered, settings);
                (answer, fd.map(|fd| fd.try_clone_to_owned()))
            }
            (Some(WeightRequest::Release(name)), None, _) => {
                let freed = self.lock().weights.release(holder, &name);
                drop(freed);
                return Ok(());
            }
            _ => return Err(no_request),
        };
        // Without a descriptor to spare, the worker holds what it is not given until it ends.
        let (answer, memory) = match memory.transpose() {
            Ok(memory) => (answer, memory),
            Err(_) => (Answer::Refused, None),
        };
        tracing::debug!(target: tags::DRIVER, uid = holder.uid, ?answer, "a request for weights");
        let fds: Vec<_> = memory.iter().map(std::os::fd::AsFd::as_fd).collect();
        Ok(connection.send(&answer.encode(), &fds, NOW)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use nnhal_os::shm::SharedMemory;

    use super::*;
    use crate::weights::{ANSWER_BYTES, WeightsName, name_of};

    const SIZE: u64 = 100;

    const NOBODY: u32 = 65_534;

    fn listeners() -> Listeners {
        Listeners::new(WeightSettings::default(), Some(NOBODY))
    }

    #[test]
    fn users_that_are_all_named_alike_share_nothing() {
        let (here, _there) = Connection::pair().unwrap();
        let listen = |listeners: Listeners, uid| listeners.listen((1, uid), Place::default(), &here);
        assert!(matches!(listen(listeners(), NOBODY), Err(ListenError::Nobody)));
        listen(listeners(), 1).unwrap();
        // Where all users have numbers, that one is a user like any other.
        listen(Listeners::new(WeightSettings::default(), None), NOBODY).unwrap();
    }

    #[test]
    fn worker_that_has_ended_holds_nothing_whatever_it_said_before() {
        let listeners = listeners();
        let mut talk = Talk::new(&listeners);
        let memory = SharedMemory::create_sealed(&[1; SIZE as usize]).unwrap();
        let name = name_of("a", SIZE);
        talk.ask(&WeightRequest::Offer(name).encode(), &[memory.as_fd()]);
        assert!(listeners.reap(talk.holder).is_empty());
        assert!(matches!(
            talk.heed(&listeners),
            Err(Unheard::Socket(SocketError::Closed))
        ));
        assert!(listeners.reap(talk.holder).is_empty());
    }

    /// The supervisor's side of one worker's socket, and the worker's.
    struct Talk {
        here: Connection,
        there: Connection,
        pace: Pace,
        holder: Holder,
    }

    impl Talk {
        fn new(listeners: &Listeners) -> Talk {
            let (here, there) = Connection::pair().unwrap();
            Talk {
                here,
                there,
                pace: Pace::default(),
                holder: listeners.new_holder(1),
            }
        }

        fn ask(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
            self.there.send(bytes, fds, NOW).unwrap();
        }

        /// Answers one request, which is there.
        fn heed(&mut self, listeners: &Listeners) -> Result<(), Unheard> {
            listeners.answer_next(self.holder, &self.here, &mut self.pace)
        }

        fn answer(&self) -> Option<(Answer, Vec<OwnedFd>)> {
            let mut bytes = [0; ANSWER_BYTES];
            let received = self.there.receive(&mut bytes, NOW).ok()?;
            Some((Answer::decode(&bytes[..received.length]).unwrap(), received.fds))
        }
    }

    fn name() -> WeightsName {
        name_of("weights", SIZE)
    }

    fn memory() -> SharedMemory {
        SharedMemory::create_sealed(&[3; SIZE as usize]).unwrap()
    }

    #[test]
    fn requests_are_answered_in_their_order() {
        let listeners = listeners();
        let (mut first, mut second) = (Talk::new(&listeners), Talk::new(&listeners));
        first.ask(&WeightRequest::Get(name()).encode(), &[]);
        first.ask(&WeightRequest::Offer(name()).encode(), &[memory().as_fd()]);
        first.ask(&WeightRequest::Release(name()).encode(), &[]);
        first.ask(&WeightRequest::Offer(name()).encode(), &[memory().as_fd()]);
        (0..4).for_each(|_| first.heed(&listeners).unwrap());
        let answers = [(); 4].map(|()| first.answer().map(|(answer, fds)| (answer, fds.len())));
        let kept = Some((Answer::Kept, 0));
        assert_eq!(answers, [Some((Answer::Wanted, 0)), kept, kept, None]);
        second.ask(&WeightRequest::Get(name()).encode(), &[]);
        second.heed(&listeners).unwrap();
        let (answer, mut fds) = second.answer().unwrap();
        let memory = SharedMemory::from_sealed_fd(fds.pop().unwrap(), SIZE).unwrap();
        assert_eq!((answer, fds.len()), (Answer::Given, 0));
        assert_eq!(memory.read_to_vec(0, SIZE).unwrap(), [3; SIZE as usize]);
    }

    #[test]
    fn what_is_no_request_ends_the_listening_and_leaves_no_descriptor() {
        let get = WeightRequest::Get(name()).encode();
        let offer = WeightRequest::Offer(name()).encode();
        let unsealed = SharedMemory::create(SIZE).unwrap();
        let other_size = SharedMemory::create_sealed(&[3; SIZE as usize + 1]).unwrap();
        let memory = memory();
        let memory = memory.as_fd();
        let cases: [(&[u8], Vec<BorrowedFd<'_>>); 9] = [
            (&[], vec![]),
            (&[0; WEIGHT_REQUEST_BYTES], vec![]),
            (&[0xFF; 4096], vec![memory; 8]),
            (&get[..WEIGHT_REQUEST_BYTES - 1], vec![]),
            (&get, vec![memory]),
            (&offer, vec![]),
            (&offer, vec![memory, memory]),
            (&offer, vec![unsealed.as_fd()]),
            (&offer, vec![other_size.as_fd()]),
        ];
        for (bytes, fds) in cases {
            let listeners = listeners();
            let mut talk = Talk::new(&listeners);
            let (reader, writer) = std::io::pipe().unwrap();
            let mut all = fds.clone();
            // The end of what comes with it can be seen.
            if !fds.is_empty() {
                all.push(writer.as_fd());
            }
            for fds in [fds, all] {
                talk.ask(bytes, &fds);
                talk.heed(&listeners).unwrap_err();
                assert!(talk.answer().is_none(), "{bytes:?}");
            }
            drop((talk, writer));
            let mut reader = std::fs::File::from(OwnedFd::from(reader));
            assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn worker_that_floods_is_not_listened_to_for_long() {
        let listeners = listeners();
        let mut talk = Talk::new(&listeners);
        let unheard = loop {
            talk.ask(&WeightRequest::Release(name()).encode(), &[]);
            if let Err(unheard) = talk.heed(&listeners) {
                break unheard;
            }
        };
        assert!(matches!(unheard, Unheard::TooFast), "{unheard}");
    }

    #[test]
    fn worker_that_takes_no_answers_keeps_nobody_waiting() {
        let listeners = listeners();
        let mut first = Talk::new(&listeners);
        first.ask(&WeightRequest::Offer(name()).encode(), &[memory().as_fd()]);
        first.heed(&listeners).unwrap();
        let mut talk = Talk::new(&listeners);
        let unheard = loop {
            talk.ask(&WeightRequest::Get(name()).encode(), &[]);
            if let Err(unheard) = talk.heed(&listeners) {
                break unheard;
            }
        };
        assert!(
            matches!(
                unheard,
                Unheard::Socket(SocketError::TimedOut { .. }) | Unheard::TooFast
            ),
            "{unheard}"
        );
        // Others are served on.
        let mut third = Talk::new(&listeners);
        third.ask(&WeightRequest::Get(name()).encode(), &[]);
        third.heed(&listeners).unwrap();
        assert_eq!(third.answer().unwrap().0, Answer::Given);
    }

    #[test]
    fn worker_that_is_not_listened_to_any_more_holds_nothing_and_notices() {
        for ends in [true, false] {
            let listeners = listeners();
            let Talk {
                here, there, holder, ..
            } = Talk::new(&listeners);
            let offer = WeightRequest::Offer(name()).encode();
            there.send(&offer, &[memory().as_fd()], NOW).unwrap();
            let there = if ends {
                drop(there);
                None
            } else {
                there.send(b"nonsense", &[], NOW).unwrap();
                Some(there)
            };
            let (reason, _) = listeners.answer_all(holder, &here);
            assert_eq!(
                matches!(reason, Unheard::Socket(SocketError::Closed)),
                ends,
                "{reason}"
            );
            let mut other = Talk::new(&listeners);
            other.ask(&WeightRequest::Get(name()).encode(), &[]);
            other.heed(&listeners).unwrap();
            assert_eq!(other.answer().unwrap().0, Answer::Wanted);
            if let Some(there) = there {
                let kept = there.receive(&mut [0; ANSWER_BYTES], NOW).unwrap();
                assert_eq!(kept.length, ANSWER_BYTES);
                let error = there.receive(&mut [0; ANSWER_BYTES], NOW).unwrap_err();
                assert!(matches!(error, SocketError::Closed), "{error}");
            }
        }
    }

    #[test]
    fn settings_that_change_hold_at_once() {
        let listeners = listeners();
        listeners.reconfigure(WeightSettings {
            share: false,
            ..WeightSettings::default()
        });
        let mut talk = Talk::new(&listeners);
        talk.ask(&WeightRequest::Get(name()).encode(), &[]);
        talk.heed(&listeners).unwrap();
        assert_eq!(talk.answer().unwrap().0, Answer::Refused);
    }
}
