//! A fast message queue alone: one cell there and back, both sides awake.

use std::os::fd::AsFd;
use std::time::Duration;

use nnhal::fmq::{ChannelEnd, ChannelSize, PAYLOAD_BYTES, Packet, WaitSettings};
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::Deadline;

use crate::other_side::{Caller, Invocation, Role, default_deadline};
use crate::{Contestant, Error, OtherSide, Result};

const NAME: &str = "fmq";

/// The other side.
pub(super) const ROLE: Role = (NAME, answer);

const SIZE: ChannelSize = ChannelSize {
    outgoing: 16,
    incoming: 16,
};

/// Long enough to stay awake through a round.
const WAIT: WaitSettings = WaitSettings::Fixed {
    window: Duration::from_millis(10),
};

/// The queue.
#[derive(Debug)]
pub struct Fmq {
    other: OtherSide,
    end: ChannelEnd,
    packet: Packet,
    bytes: [u8; PAYLOAD_BYTES],
    count: u64,
    deadline: Deadline,
}

impl Fmq {
    /// Starts the other process.
    ///
    /// # Errors
    /// It cannot be started, or there is no memory.
    pub fn start(invocation: &Invocation) -> Result<Fmq> {
        let (end, memory) = ChannelEnd::create(SIZE, WAIT)?;
        Ok(Fmq {
            other: invocation.start(NAME, &[], &[memory.as_fd()])?,
            packet: end.consumer.new_packet(),
            end,
            bytes: [0; PAYLOAD_BYTES],
            count: 0,
            deadline: default_deadline(),
        })
    }
}

impl Contestant for Fmq {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        PAYLOAD_BYTES as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.deadline = default_deadline();
        self.other.begin(trips)
    }

    #[inline(always)]
    fn trip(&mut self) -> Result<()> {
        self.count += 1;
        let count = self.count.to_ne_bytes();
        self.bytes[..8].copy_from_slice(&count);
        self.end.producer.send(&self.bytes)?;
        self.end.consumer.receive(&mut self.packet, self.deadline)?;
        self.end.producer.release(self.end.producer.sent());
        if self.packet.bytes()[..8] == count {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn answer() -> Result<()> {
    let (caller, mut setup) = Caller::setup()?;
    let size = ChannelEnd::memory_size(SIZE)?;
    let memory = SharedMemory::from_fd(setup.only_fd()?, size, size)?;
    let mut end = ChannelEnd::open(&memory, WAIT)?;
    let mut packet = end.consumer.new_packet();
    caller.serve(|trips| {
        let deadline = default_deadline();
        for _ in 0..trips {
            end.consumer.receive(&mut packet, deadline)?;
            // One request at a time: this one shows that the answer before was read.
            end.producer.release(end.producer.sent());
            end.producer.send(packet.bytes())?;
        }
        Ok(())
    })
}
