//! Packed weights that this worker shares with others of the same user.
//!
//! Contract: what is given back holds the same bytes as what was to be shared, in memory that nobody can
//! change; or nothing is, and the worker goes on with what it has. Neither the supervisor nor another worker
//! can make it wait for long, or compute with other weights: what another worker has offered is compared byte
//! for byte. A supervisor that is gone, does not answer in time or says something unexpected is not asked
//! again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal_os::buffer::{ALIGNMENT, AlignedSlice};
use nnhal_os::shm::{SealedBytes, SharedMemory, ShmError};
use nnhal_os::socket::{Connection, SocketError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

use super::cache_colouring::coloured;
use crate::settings::WeightSettings;
use crate::weights::{self, ANSWER_BYTES, Answer, WeightRequest, WeightsName};

/// How long the supervisor may take for an answer: mostly it takes less than a thousandth of this.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// Until when to look for a place for weights: for half of the time that is left before it is too late to ask
/// for an answer, as they shall be offered, too. `None` if there is no deadline.
fn looking_until(deadline: Deadline, now: TimePoint) -> Option<TimePoint> {
    let left = deadline.remaining(now)?;
    Some(now.saturating_add(left.saturating_sub(ANSWER_TIMEOUT) / 2))
}

/// Why weights are not shared.
#[derive(Debug, thiserror::Error)]
enum NotShared {
    #[error("the supervisor gave no answer: {0}")]
    Unanswered(#[from] SocketError),
    #[error("the supervisor's answer makes no sense")]
    Unexpected,
    #[error("the shared memory is of no use: {0}")]
    Memory(#[from] ShmError),
    #[error("another worker offers others under their name")]
    Differ,
}

/// The way to packed weights that other workers have.
#[derive(Debug)]
pub(crate) struct Weights {
    /// To the supervisor; none if nothing is shared.
    connection: Option<Connection>,
    /// Held from a request to its answer.
    exchange: Mutex<()>,
    is_given_up: AtomicBool,
    min_bytes: u64,
}

/// Says that a program uses shared weights, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    weights: Arc<Weights>,
    name: WeightsName,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(connection) = self.weights.asked() {
            // Without it the supervisor keeps the memory until this process ends.
            let _ = connection.send(&WeightRequest::Release(self.name).encode(), &[], NOW);
        }
    }
}

/// What is to be shared: parts, each from a multiple of [`ALIGNMENT`] on, and zeros up to the next.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    length: u64,
}

impl<'a> Parts<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Parts<'a> {
        let padded = |part: &&[u8]| part.len().next_multiple_of(ALIGNMENT) as u64;
        Parts {
            parts,
            length: parts.iter().map(padded).sum(),
        }
    }

    fn name(&self, device: (&str, &str)) -> WeightsName {
        weights::name(device, self.parts, SharedMemory::sealed_aligned_size(self.length))
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        self.parts.iter().all(|part| {
            let Some((same, after)) = rest.split_at_checked(part.len()) else {
                return false;
            };
            let Some((zeros, after)) = after.split_at_checked(padding(part).len()) else {
                return false;
            };
            rest = after;
            same == *part && zeros == padding(part)
        })
    }
}

/// What follows a part up to the next one.
fn padding(part: &[u8]) -> &'static [u8] {
    const ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
    &ZEROS[..part.len().next_multiple_of(ALIGNMENT) - part.len()]
}

impl Weights {
    /// By this connection to the supervisor, if the settings have weights shared.
    pub(crate) fn new(connection: Connection, settings: &WeightSettings) -> Weights {
        Weights {
            connection: settings.share.then_some(connection),
            exchange: Mutex::new(()),
            is_given_up: AtomicBool::new(false),
            min_bytes: settings.min_bytes,
        }
    }

    /// The same bytes as `parts`, which the device of this name and version has packed, in memory that other
    /// workers use too or may use from now on: each part from a multiple of [`ALIGNMENT`] on, the last one
    /// followed by zeros up to the next. None if they are not shared, or there is no time until `deadline` to
    /// ask for them. The hold is to be kept as long as they are used.
    pub(crate) fn share(
        self: &Arc<Self>,
        device: (&str, &str),
        parts: &[&[u8]],
        deadline: Deadline,
    ) -> Option<(AlignedSlice, Hold)> {
        let parts = Parts::new(parts);
        if parts.length == 0 || parts.length < self.min_bytes {
            return None;
        }
        let connection = self.asked()?;
        match self.try_share(connection, &parts, device, deadline) {
            Ok(shared) => shared,
            Err(reason) => {
                tracing::info!(target: tags::COMPILATION, %reason, "packed weights are not shared");
                None
            }
        }
    }

    fn give_up(&self, connection: &Connection) {
        self.is_given_up.store(true, Ordering::Relaxed);
        connection.shutdown();
    }

    /// Whom to ask, if it is worth it.
    fn asked(&self) -> Option<&Connection> {
        let is_asked = !self.is_given_up.load(Ordering::Relaxed);
        self.connection.as_ref().filter(|_| is_asked)
    }

    fn try_share(
        self: &Arc<Self>,
        connection: &Connection,
        parts: &Parts<'_>,
        device: (&str, &str),
        deadline: Deadline,
    ) -> Result<Option<(AlignedSlice, Hold)>, NotShared> {
        // An answer that is not waited for would be taken for the next one.
        let is_late = || deadline.is_past(MonotonicClock.now().saturating_add(ANSWER_TIMEOUT));
        if is_late() {
            return Ok(None);
        }
        let name = parts.name(device);
        let hold = || Hold {
            weights: Arc::clone(self),
            name,
        };
        match self.ask(connection, &WeightRequest::Get(name), &[])? {
            Reply::Given(fd) => return used(fd, parts, hold()).map(Some),
            Reply::Refused => return Ok(None),
            Reply::Agreed => {}
        }
        let make = || SharedMemory::create_sealed_aligned(parts.parts, ALIGNMENT as u64);
        let until = looking_until(deadline, MonotonicClock.now());
        let is_enough = || until.is_some_and(|until| MonotonicClock.now() >= until);
        let memory = coloured(parts.length, make, is_enough)?;
        if is_late() {
            return Ok(None);
        }
        match self.ask(connection, &WeightRequest::Offer(name), &[memory.as_fd()])? {
            // Another worker was faster.
            Reply::Given(fd) => used(fd, parts, hold()).map(Some),
            Reply::Refused => Ok(None),
            Reply::Agreed => {
                let hold = hold();
                tracing::debug!(target: tags::COMPILATION, bytes = parts.length, "packed weights are offered to others");
                mapped(&memory, parts).map(|slice| Some((slice, hold)))
            }
        }
    }

    /// Asks, and waits for the answer. Without one that makes sense nothing is asked any more.
    fn ask(
        &self,
        connection: &Connection,
        request: &WeightRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply, NotShared> {
        // Nothing is changed that could be half done.
        let _exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = exchange(connection, request, fds);
        if reply.is_err() {
            // What it answers later shall not be taken for the answer to something else.
            self.give_up(connection);
        }
        reply
    }
}

/// What an answer means for the request.
enum Reply {
    /// Another worker's memory, to be used.
    Given(OwnedFd),
    /// Nobody has them, so they may be offered; or what was offered is kept.
    Agreed,
    /// Not this time.
    Refused,
}

fn exchange(
    connection: &Connection,
    request: &WeightRequest,
    fds: &[BorrowedFd<'_>],
) -> Result<Reply, NotShared> {
    let deadline = Deadline::after(MonotonicClock.now(), ANSWER_TIMEOUT);
    connection.send(&request.encode(), fds, deadline)?;
    let mut bytes = [0; ANSWER_BYTES];
    let mut received = connection.receive(&mut bytes, deadline)?;
    let answer = bytes.get(..received.length).and_then(Answer::decode);
    let (answer, fd) = (answer.ok_or(NotShared::Unexpected)?, received.fds.pop());
    match (answer, fd, request, received.fds.is_empty()) {
        (Answer::Given, Some(fd), _, true) => Ok(Reply::Given(fd)),
        (Answer::Refused, None, ..) => Ok(Reply::Refused),
        (Answer::Wanted, None, WeightRequest::Get(_), _)
        | (Answer::Kept, None, WeightRequest::Offer(_), _) => Ok(Reply::Agreed),
        _ => Err(NotShared::Unexpected),
    }
}

/// The memory that another worker has offered, if it holds these parts.
fn used(fd: OwnedFd, parts: &Parts<'_>, hold: Hold) -> Result<(AlignedSlice, Hold), NotShared> {
    let memory = SharedMemory::from_sealed_fd(fd, hold.name.size)?;
    let slice = mapped(&memory, parts)?;
    if !parts.are_in(slice.bytes()) {
        return Err(NotShared::Differ);
    }
    tracing::debug!(target: tags::COMPILATION, bytes = parts.length, "packed weights are another worker's");
    Ok((slice, hold))
}

fn mapped(memory: &SharedMemory, parts: &Parts<'_>) -> Result<AlignedSlice, NotShared> {
    let bytes = Arc::new(SealedBytes::map(memory)?);
    let length = usize::try_from(parts.length).map_err(|_| NotShared::Unexpected)?;
    AlignedSlice::sealed(bytes, 0..length).ok_or(NotShared::Unexpected)
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use super::*;
    use crate::weights::WEIGHT_REQUEST_BYTES;

    const DEVICE: (&str, &str) = ("device", "1");

    const PARTS: [&[u8]; 3] = [&[1; 100], &[2; 64], &[3; 5]];

    #[test]
    fn a_place_is_looked_for_in_half_of_the_time_before_it_is_too_late_to_ask() {
        let now = MonotonicClock.now();
        let until = |left| looking_until(Deadline::after(now, left), now);
        assert_eq!(looking_until(Deadline::NONE, now), None);
        let half = now.saturating_add(Duration::from_millis(20));
        assert_eq!(until(ANSWER_TIMEOUT + Duration::from_millis(40)), Some(half));
        assert_eq!(until(ANSWER_TIMEOUT / 2), Some(now));
    }

    fn expected() -> Vec<u8> {
        let mut expected = [PARTS[0], &[0; 28], PARTS[1], PARTS[2]].concat();
        expected.resize(256, 0);
        expected
    }

    fn settings(min_bytes: u64) -> WeightSettings {
        WeightSettings {
            min_bytes,
            ..WeightSettings::default()
        }
    }

    /// The worker's side, and the supervisor's.
    fn pair() -> (Arc<Weights>, Connection) {
        let (here, there) = Connection::pair().unwrap();
        (Arc::new(Weights::new(here, &settings(1))), there)
    }

    fn share(weights: &Arc<Weights>) -> Option<(AlignedSlice, Hold)> {
        weights.share(DEVICE, &PARTS, Deadline::NONE)
    }

    fn next(there: &Connection) -> Option<(WeightRequest, Vec<OwnedFd>)> {
        let mut bytes = [0; WEIGHT_REQUEST_BYTES];
        let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(20));
        let received = there.receive(&mut bytes, deadline).ok()?;
        Some((
            WeightRequest::decode(&bytes[..received.length]).unwrap(),
            received.fds,
        ))
    }

    /// A supervisor that gives each request the next of these answers, and returns the requests with what
    /// came with them once the worker asks no more.
    fn supervisor(
        there: Connection,
        answers: Vec<(Vec<u8>, Option<SharedMemory>)>,
    ) -> JoinHandle<Vec<(WeightRequest, Vec<OwnedFd>)>> {
        std::thread::spawn(move || {
            let mut answers = answers.into_iter();
            let mut asked = Vec::new();
            while let Some(request) = next(&there) {
                if !matches!(request.0, WeightRequest::Release(_))
                    && let Some((answer, memory)) = answers.next()
                {
                    let fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
                    there.send(&answer, &fds, Deadline::NONE).unwrap();
                }
                asked.push(request);
            }
            asked
        })
    }

    fn say(answer: Answer) -> (Vec<u8>, Option<SharedMemory>) {
        (answer.encode().to_vec(), None)
    }

    fn give(bytes: &[u8]) -> (Vec<u8>, Option<SharedMemory>) {
        let memory = SharedMemory::create_sealed(bytes).unwrap();
        (Answer::Given.encode().to_vec(), Some(memory))
    }

    #[test]
    fn what_nobody_has_is_offered_and_used() {
        let (weights, there) = pair();
        let supervisor = supervisor(there, vec![say(Answer::Wanted), say(Answer::Kept)]);
        let (slice, hold) = share(&weights).unwrap();
        assert_eq!(slice.bytes(), expected());
        drop(hold);
        drop(weights);
        let mut asked = supervisor.join().unwrap();
        let name = *asked[0].0.name();
        assert_eq!(name.size, 256);
        let requests: Vec<_> = asked.iter().map(|(request, _)| *request).collect();
        assert_eq!(
            requests,
            [
                WeightRequest::Get(name),
                WeightRequest::Offer(name),
                WeightRequest::Release(name)
            ]
        );
        let memory = SharedMemory::from_sealed_fd(asked[1].1.pop().unwrap(), 256).unwrap();
        assert_eq!(memory.read_to_vec(0, 256).unwrap(), expected());
        assert_eq!(slice.bytes(), expected(), "it is there as long as it is used");
    }

    #[test]
    fn what_another_has_is_used_also_if_it_came_first() {
        for answers in [
            vec![give(&expected())],
            vec![say(Answer::Wanted), give(&expected())],
        ] {
            let (weights, there) = pair();
            let supervisor = supervisor(there, answers);
            let (slice, hold) = share(&weights).unwrap();
            assert_eq!(slice.bytes(), expected());
            drop((slice, hold, weights));
            let (last, _) = supervisor.join().unwrap().pop().unwrap();
            assert!(matches!(last, WeightRequest::Release(_)), "{last:?}");
        }
    }

    #[test]
    fn same_weights_have_the_same_name_in_one_part_or_many() {
        let whole = expected();
        let names = [&PARTS[..], &[&whole]].map(|parts| Parts::new(parts).name(DEVICE));
        assert_eq!(names[0], names[1]);
        assert!(Parts::new(&[&whole]).are_in(&whole) && Parts::new(&PARTS).are_in(&whole));
    }

    #[test]
    fn other_weights_under_the_same_name_are_not_used() {
        for at in [0, 99, 100, 127, 128, 255] {
            let mut bytes = expected();
            bytes[at] ^= 1;
            let (weights, there) = pair();
            let supervisor = supervisor(there, vec![give(&bytes), give(&expected())]);
            assert!(share(&weights).is_none(), "byte {at}");
            // The next model may be luckier.
            assert!(share(&weights).is_some());
            drop(weights);
            let asked = supervisor.join().unwrap();
            assert!(matches!(asked[1].0, WeightRequest::Release(_)), "{asked:?}");
        }
    }

    #[test]
    fn memories_of_another_size_or_that_can_be_changed_are_not_used() {
        let given = |memory| vec![(Answer::Given.encode().to_vec(), Some(memory))];
        let long = [&expected()[..], &[0]].concat();
        let open = SharedMemory::create(256).unwrap();
        for answers in [vec![give(&expected()[..255])], vec![give(&long)], given(open)] {
            let (weights, there) = pair();
            let supervisor = supervisor(there, answers);
            assert!(share(&weights).is_none());
            drop(weights);
            let (last, _) = supervisor.join().unwrap().pop().unwrap();
            assert!(matches!(last, WeightRequest::Release(_)), "{last:?}");
        }
    }

    #[test]
    fn supervisor_that_makes_no_sense_or_is_gone_is_not_asked_again() {
        for answer in [
            say(Answer::Given),
            say(Answer::Kept),
            (vec![0; ANSWER_BYTES], None),
            (vec![], None),
            (vec![1; ANSWER_BYTES + 1], None),
            (Answer::Wanted.encode().to_vec(), give(&[0]).1),
        ] {
            let (weights, there) = pair();
            let supervisor = supervisor(there, vec![answer]);
            assert!(share(&weights).is_none() && share(&weights).is_none());
            assert_eq!(supervisor.join().unwrap().len(), 1);
        }
        let (weights, there) = pair();
        drop(there);
        assert!(share(&weights).is_none() && weights.asked().is_none());
    }

    #[test]
    fn supervisor_that_does_not_answer_is_not_waited_for_twice() {
        let (weights, there) = pair();
        let start = MonotonicClock.now();
        let limit = Deadline::after(start, ANSWER_TIMEOUT);
        assert!(share(&weights).is_none());
        assert!(limit.is_past(MonotonicClock.now()));
        assert!(next(&there).is_some());
        assert!(share(&weights).is_none());
        assert!(next(&there).is_none(), "it was not asked again");
    }

    #[test]
    fn preparation_that_must_be_done_earlier_asks_nobody() {
        let (weights, there) = pair();
        let soon = Deadline::after(MonotonicClock.now(), ANSWER_TIMEOUT / 2);
        assert!(weights.share(DEVICE, &PARTS, NOW).is_none());
        assert!(weights.share(DEVICE, &PARTS, soon).is_none());
        drop(weights);
        assert!(next(&there).is_none());
    }

    #[test]
    fn small_weights_and_those_of_settings_that_say_so_are_not_shared() {
        let off = WeightSettings {
            share: false,
            ..settings(1)
        };
        for settings in [settings(257), off] {
            let (here, there) = Connection::pair().unwrap();
            let weights = Arc::new(Weights::new(here, &settings));
            assert!(share(&weights).is_none());
            drop(weights);
            assert!(next(&there).is_none(), "nobody was asked");
        }
        let (weights, _there) = pair();
        assert!(weights.share(DEVICE, &[], Deadline::NONE).is_none());
    }
}
