//! The limit for so many bytes: one process writes them into shared memory, the other copies them out, and
//! back.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nnhal_os::shm::{Access, Mapping, SharedMemory};

use super::ping_pong::{Polls, poll_for};
use crate::other_side::{Caller, Invocation, Role};
use crate::{Contestant, Error, OtherSide, Result};

/// The name of the row and of its other side.
const NAME: &str = "copied_ping_pong";
/// A word of 32 bits for each direction, 128 bytes apart, since lines are fetched in pairs.
const WORDS: [u64; 2] = [0, 128];
/// Where the bytes begin that go there; those that come back are behind them.
const BYTES_FROM: u64 = 4096;
/// What a payload is rounded up to, so that no page holds bytes of both directions.
const PAGE: u64 = 4096;
/// The bytes at the beginning that are looked at.
const LOOKED_AT: usize = size_of::<u32>();

/// The other side.
pub(super) const ROLE: Role = (NAME, answer);

/// The memory of both sides, as one of them has it.
#[derive(Debug)]
struct Places {
    mapping: Mapping,
    polls: Polls,
    /// What is written next, or was copied out last.
    own: Vec<u8>,
}

impl Places {
    fn memory_bytes(payload: u64) -> u64 {
        BYTES_FROM + 2 * payload.next_multiple_of(PAGE)
    }

    fn new(memory: &SharedMemory, payload: u32, polls: Polls) -> Result<Places> {
        Ok(Places {
            mapping: Mapping::prefaulted(memory, Access::ReadWrite)?,
            polls,
            own: vec![0; payload as usize],
        })
    }

    fn bytes_at(&self, direction: usize) -> u64 {
        BYTES_FROM + direction as u64 * (self.own.len() as u64).next_multiple_of(PAGE)
    }

    /// Writes the bytes in this direction and tells the other side, which waits for `count`.
    #[inline(always)]
    fn write(&mut self, direction: usize, count: u32) -> Result<()> {
        let slice = self.mapping.as_slice();
        slice.write_at(self.bytes_at(direction), &self.own)?;
        slice
            .atomic_u32(WORDS[direction])?
            .store(count, Ordering::Release);
        Ok(())
    }

    /// Waits for `count` and copies out the bytes that came in this direction.
    #[inline(always)]
    fn copy_out(&mut self, direction: usize, count: u32) -> Result<()> {
        let slice = self.mapping.as_slice();
        poll_for(slice.atomic_u32(WORDS[direction])?, count, self.polls);
        let from = self.bytes_at(direction);
        slice.read_at(from, &mut self.own)?;
        Ok(())
    }
}

/// The ping-pong with bytes.
#[derive(Debug)]
pub struct CopiedPingPong {
    other: OtherSide,
    places: Places,
    count: u32,
}

impl CopiedPingPong {
    /// Starts the other process, for so many bytes, at least 4, polled for in this way.
    ///
    /// # Errors
    /// It cannot be started, or there is no memory.
    pub fn start(invocation: &Invocation, payload: u32, polls: Polls) -> Result<CopiedPingPong> {
        let memory = SharedMemory::create(Places::memory_bytes(u64::from(payload)))?;
        let setup: Vec<u8> = [payload, u32::from(polls == Polls::Paused)]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        Ok(CopiedPingPong {
            other: invocation.start(NAME, &setup, &[memory.as_fd()])?,
            places: Places::new(&memory, payload, polls)?,
            count: 0,
        })
    }
}

impl Contestant for CopiedPingPong {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        self.places.own.len() as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.other.begin(trips)
    }

    #[inline(always)]
    fn trip(&mut self) -> Result<()> {
        self.count = self.count.wrapping_add(1);
        let count = self.count.to_ne_bytes();
        self.places.own[..LOOKED_AT].copy_from_slice(&count);
        self.places.write(0, self.count)?;
        self.places.copy_out(1, self.count)?;
        if self.places.own[..LOOKED_AT] == count {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn answer() -> Result<()> {
    let (caller, mut setup) = Caller::setup()?;
    let number = |at: usize| {
        let bytes = setup.bytes.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let payload = number(0).unwrap_or(0);
    let polls = match number(size_of::<u32>()) {
        Some(1) => Polls::Paused,
        _ => Polls::Bare,
    };
    let size = Places::memory_bytes(u64::from(payload));
    let memory = SharedMemory::from_fd(setup.only_fd()?, size, size)?;
    let mut places = Places::new(&memory, payload, polls)?;
    let mut count = 0_u32;
    caller.serve(|trips| {
        for _ in 0..trips {
            count = count.wrapping_add(1);
            places.copy_out(0, count)?;
            places.write(1, count)?;
        }
        Ok::<(), Error>(())
    })
}
