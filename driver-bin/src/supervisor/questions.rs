//! What workers ask about packed weights, answered.
//!
//! Contract: nothing here waits for a worker, and whatever a worker sends costs it its questions at most: one that sends
//! what is no question, does not take its answers or asks too fast is listened to no more. It goes on serving its client.

use std::os::fd::OwnedFd;

use nnhal::diag::tags;
use nnhal::shm::ShmError;
use nnhal::sys::socket::{Connection, SocketError};
use nnhal::time::{Clock, Deadline, MonotonicClock};

use super::weights::{Holder, Pace, SharedWeights};
use super::workers::Workers;
use crate::settings::WeightSettings;
use crate::weights::{Answer, QUESTION_BYTES, Question};

/// Questions of one worker that are answered before anything else is looked at.
const QUESTIONS_AT_ONCE: usize = 16;

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// Why a worker is listened to no more.
#[derive(Debug, thiserror::Error)]
enum Unheard {
    #[error("it sent {length} bytes with {fds} descriptors, which is no question")]
    NoQuestion { length: usize, fds: usize },
    #[error("it asks too many questions")]
    TooFast,
    #[error("what it offered are no weights: {0}")]
    Offer(#[from] ShmError),
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Answers what a worker has asked.
pub(super) fn answer(
    workers: &mut Workers,
    weights: &mut SharedWeights,
    settings: &WeightSettings,
    pid: i32,
) {
    let Some((holder, connection, pace)) = workers.asking_mut(pid) else {
        return;
    };
    match answer_some(connection, pace, weights, (holder, settings)) {
        Ok(()) => {}
        Err(Unheard::Socket(SocketError::Closed)) => workers.ignore_questions(pid),
        Err(reason) => {
            tracing::warn!(target: tags::DRIVER, pid, %reason, "the worker shares no more weights");
            workers.ignore_questions(pid);
        }
    }
}

fn answer_some(
    connection: &Connection,
    pace: &mut Pace,
    weights: &mut SharedWeights,
    (holder, settings): (Holder, &WeightSettings),
) -> Result<(), Unheard> {
    for _ in 0..QUESTIONS_AT_ONCE {
        let mut bytes = [0; QUESTION_BYTES];
        let received = match connection.receive(&mut bytes, NOW) {
            Ok(received) => received,
            Err(SocketError::TimedOut { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !pace.allows(MonotonicClock.now()) {
            return Err(Unheard::TooFast);
        }
        let no_question = Unheard::NoQuestion {
            length: received.length,
            fds: received.fds.len(),
        };
        let question = bytes.get(..received.length).and_then(Question::decode);
        let mut fds: Vec<OwnedFd> = received.fds;
        let (answer, fd) = match (question, fds.pop(), fds.is_empty()) {
            (Some(Question::Get(name)), None, _) => weights.get(holder, &name, settings),
            (Some(Question::Offer(name)), Some(memory), true) => {
                weights.offer(holder, &name, memory, settings)?
            }
            (Some(Question::Release(name)), None, _) => {
                weights.release(holder, &name);
                continue;
            }
            _ => return Err(no_question),
        };
        tracing::debug!(target: tags::DRIVER, pid = holder.pid, uid = holder.uid, ?answer, "a question for weights");
        let sent = connection.send(&answer.encode(), fd.as_slice(), NOW);
        if let (Err(_), Answer::Given) = (&sent, answer)
            && let Some(question) = question
        {
            weights.release(holder, question.name());
        }
        sent?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use nnhal::shm::SharedMemory;

    use super::*;
    use crate::weights::{ANSWER_BYTES, WeightsName, name_of};

    const SIZE: u64 = 100;
    const FIRST: Holder = Holder { uid: 1, pid: 10 };
    const SECOND: Holder = Holder { uid: 1, pid: 11 };

    /// The supervisor's side of one worker's socket, and the worker's.
    struct Talk {
        here: Connection,
        there: Connection,
        pace: Pace,
        holder: Holder,
    }

    impl Talk {
        fn new(holder: Holder) -> Talk {
            let (here, there) = Connection::pair().unwrap();
            Talk {
                here,
                there,
                pace: Pace::default(),
                holder,
            }
        }

        fn ask(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
            self.there.send(bytes, fds, NOW).unwrap();
        }

        fn heed(&mut self, weights: &mut SharedWeights) -> Result<(), Unheard> {
            let settings = WeightSettings::default();
            answer_some(&self.here, &mut self.pace, weights, (self.holder, &settings))
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
    fn questions_are_answered_in_their_order() {
        let mut weights = SharedWeights::default();
        let (mut first, mut second) = (Talk::new(FIRST), Talk::new(SECOND));
        first.ask(&Question::Get(name()).encode(), &[]);
        first.ask(&Question::Offer(name()).encode(), &[memory().as_fd()]);
        first.ask(&Question::Release(name()).encode(), &[]);
        first.ask(&Question::Offer(name()).encode(), &[memory().as_fd()]);
        first.heed(&mut weights).unwrap();
        let answers = [(); 4].map(|()| first.answer().map(|(answer, fds)| (answer, fds.len())));
        let kept = Some((Answer::Kept, 0));
        assert_eq!(answers, [Some((Answer::Wanted, 0)), kept, kept, None]);
        second.ask(&Question::Get(name()).encode(), &[]);
        second.heed(&mut weights).unwrap();
        let (answer, mut fds) = second.answer().unwrap();
        let memory = SharedMemory::from_sealed_fd(fds.pop().unwrap(), SIZE).unwrap();
        assert_eq!((answer, fds.len()), (Answer::Given, 0));
        assert_eq!(memory.read_to_vec(0, SIZE).unwrap(), [3; SIZE as usize]);
    }

    #[test]
    fn what_is_no_question_ends_the_questions_and_leaves_no_descriptor() {
        let get = Question::Get(name()).encode();
        let offer = Question::Offer(name()).encode();
        let unsealed = SharedMemory::create(SIZE).unwrap();
        let other_size = SharedMemory::create_sealed(&[3; SIZE as usize + 1]).unwrap();
        let memory = memory();
        let memory = memory.as_fd();
        let cases: [(&[u8], Vec<BorrowedFd<'_>>); 9] = [
            (&[], vec![]),
            (&[0; QUESTION_BYTES], vec![]),
            (&[0xFF; 4096], vec![memory; 8]),
            (&get[..QUESTION_BYTES - 1], vec![]),
            (&get, vec![memory]),
            (&offer, vec![]),
            (&offer, vec![memory, memory]),
            (&offer, vec![unsealed.as_fd()]),
            (&offer, vec![other_size.as_fd()]),
        ];
        for (bytes, fds) in cases {
            let mut weights = SharedWeights::default();
            let mut talk = Talk::new(FIRST);
            let (reader, writer) = std::io::pipe().unwrap();
            let mut all = fds.clone();
            // The end of what comes with it can be seen.
            if !fds.is_empty() {
                all.push(writer.as_fd());
            }
            for fds in [fds, all] {
                talk.ask(bytes, &fds);
                talk.heed(&mut weights).unwrap_err();
                assert!(talk.answer().is_none(), "{bytes:?}");
            }
            drop((talk, writer));
            let mut reader = std::fs::File::from(OwnedFd::from(reader));
            assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn worker_that_floods_is_not_listened_to_for_long_and_takes_no_room() {
        let mut weights = SharedWeights::default();
        let mut talk = Talk::new(FIRST);
        let mut asked = 0;
        let unheard = loop {
            // As many as the socket holds, and nothing is read of the answers, which are none.
            while talk
                .there
                .send(&Question::Release(name()).encode(), &[], NOW)
                .is_ok()
            {
                asked += 1;
            }
            if let Err(unheard) = talk.heed(&mut weights) {
                break unheard;
            }
        };
        assert!(matches!(unheard, Unheard::TooFast), "{unheard}");
        println!("{asked} questions were asked");
    }

    #[test]
    fn worker_that_takes_no_answers_blocks_nobody() {
        let mut weights = SharedWeights::default();
        let mut first = Talk::new(FIRST);
        first.ask(&Question::Offer(name()).encode(), &[memory().as_fd()]);
        first.heed(&mut weights).unwrap();
        let mut talk = Talk::new(SECOND);
        let unheard = loop {
            talk.ask(&Question::Get(name()).encode(), &[]);
            if let Err(unheard) = talk.heed(&mut weights) {
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
        let mut third = Talk::new(Holder { uid: 1, pid: 12 });
        third.ask(&Question::Get(name()).encode(), &[]);
        third.heed(&mut weights).unwrap();
        assert_eq!(third.answer().unwrap().0, Answer::Given);
    }

    #[test]
    fn worker_that_is_gone_is_not_asked_again() {
        let mut weights = SharedWeights::default();
        let Talk {
            here,
            there,
            mut pace,
            ..
        } = Talk::new(FIRST);
        drop(there);
        let settings = WeightSettings::default();
        let error = answer_some(&here, &mut pace, &mut weights, (FIRST, &settings)).unwrap_err();
        assert!(matches!(error, Unheard::Socket(SocketError::Closed)), "{error}");
    }
}
