//! Rings of a burst: results that lie, and words that no driver writes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nnhal::burst::{
    Pool, RequestBody, RequestPacket, claimed_sequence, decode_request, encode_failure, encode_success,
};
use nnhal::fmq::{CELL_BYTES, ChannelEnd, ReceiveError, WaitSettings};
use nnhal_conformance::generator::choices::Random;
use nnhal_hal::{ErrorStatus, Timing};
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::lies::{odd_number, once_in, shapes, spoil};
use super::shared::Shared;

/// How long a burst without requests is served.
const IDLE_TICKS: u32 = 40;
const TICK: Duration = Duration::from_millis(25);

/// Where the words of the two rings are: of requests, and of results.
const WORDS: [u64; 2] = [1024, 2048];

/// Where the client says that it sleeps on the results' doorbell, and what it says then.
const SLEEPER: u64 = WORDS[1] + 128;
const SLEEPING: u32 = 1;

/// How long it is waited for a client to fall asleep, which polls before.
const FALLS_ASLEEP: Duration = Duration::from_millis(20);

/// How long a driver stops that stops: longer than its clients wait for it.
const STOP: Duration = Duration::from_millis(150);

/// Serves the rings in this memory on a thread of its own.
pub(super) fn serve(fd: OwnedFd, random: Random, shared: &Arc<Shared>) {
    let Ok(size) = std::fs::File::from(fd.try_clone().expect("a descriptor")).metadata() else {
        return;
    };
    let Ok(memory) = SharedMemory::from_fd(fd, size.len(), size.len()) else {
        return;
    };
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let end = ChannelEnd::open(&memory, WaitSettings::Sleep);
        let whole = Mapping::new(&memory, Access::ReadWrite);
        if let (Ok(end), Ok(whole)) = (end, whole) {
            let mut rings = Rings {
                end,
                whole,
                random,
                shared,
                inline_outputs: HashMap::new(),
                reply: Vec::new(),
            };
            rings.run();
        }
    });
}

struct Rings {
    end: ChannelEnd,
    whole: Mapping,
    random: Random,
    shared: Arc<Shared>,
    /// How many bytes of outputs travel inside of the results of registered requests.
    inline_outputs: HashMap<u16, usize>,
    reply: Vec<u8>,
}

impl Rings {
    fn run(&mut self) {
        let mut packet = self.end.consumer.new_packet();
        let mut body = RequestBody::default();
        let mut idle = 0;
        while idle < IDLE_TICKS {
            let tick = Deadline::after(MonotonicClock.now(), TICK);
            match self.end.consumer.receive(&mut packet, tick) {
                Ok(()) => idle = 0,
                Err(ReceiveError::TimedOut) => idle += 1,
                Err(_) => return,
            }
            if once_in(&mut self.random, 6) {
                scribble(&mut self.random, &self.whole, &self.shared);
            }
            if idle > 0 {
                continue;
            }
            let sequence = claimed_sequence(packet.bytes());
            let inline = match decode_request(packet.bytes(), &mut body) {
                Ok(RequestPacket::Register { layout, .. }) => {
                    let size = body.pools.iter().find_map(|pool| match pool {
                        Pool::InlineOutputs(size) => Some(*size as usize),
                        _ => None,
                    });
                    self.inline_outputs.insert(layout, size.unwrap_or(0));
                    0
                }
                Ok(RequestPacket::Fire { layout, .. }) => {
                    self.inline_outputs.get(&layout).copied().unwrap_or(0)
                }
                _ => 0,
            };
            if once_in(&mut self.random, 3) && self.client_sleeps() {
                self.disturb_sleep();
            }
            if !self.answer(sequence, inline) {
                return;
            }
        }
    }

    /// Whether the client sleeps on the doorbell, as it does before long if it has no answer.
    fn client_sleeps(&self) -> bool {
        let deadline = Deadline::after(MonotonicClock.now(), FALLS_ASLEEP);
        loop {
            let mut word = [0; 4];
            let read = self.whole.as_slice().read_at(SLEEPER, &mut word);
            if read.is_ok() && u32::from_le_bytes(word) == SLEEPING {
                self.shared.found_asleep.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            if deadline.is_past(MonotonicClock.now()) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Does to a client that sleeps what no driver does. The answer follows.
    fn disturb_sleep(&mut self) {
        self.shared.count();
        match self.random.below(4) {
            // It is woken for nothing, again and again.
            0 => {
                for _ in 0..=self.random.below(40) {
                    self.end.producer.notify();
                    if !self.client_sleeps() {
                        break;
                    }
                }
            }
            // The word says that it is awake, so that the answer wakes nobody.
            1 => {
                let _ = self.whole.as_slice().write_at(SLEEPER, &0_u32.to_le_bytes());
            }
            // That it sleeps in a way that there is none of, or spares the driver its fence.
            2 => {
                let word = (odd_number(&mut self.random) as u32).saturating_add(2);
                let _ = self.whole.as_slice().write_at(SLEEPER, &word.to_le_bytes());
            }
            // The driver stops.
            _ => std::thread::park_timeout(STOP),
        }
    }

    /// Answers a request; tells whether it goes on.
    fn answer(&mut self, sequence: u32, inline: usize) -> bool {
        let outputs: Vec<u8> = (0..inline).map(|_| self.random.bits() as u8).collect();
        let (mut sequence, mut outputs) = (sequence, outputs);
        let is_spoilt = once_in(&mut self.random, 3);
        if is_spoilt {
            self.shared.count();
            match self.random.below(8) {
                0 => sequence = odd_number(&mut self.random) as u32,
                1 => sequence = sequence.wrapping_sub(1 + self.random.below(3)),
                2 => outputs.truncate(self.random.below(outputs.len() as u32 + 1) as usize),
                3 => outputs.resize(self.random.below(4000) as usize, 7),
                // Never.
                4 => return true,
                5 => return false,
                _ => {}
            }
        }
        let mut shapes = shapes(&mut self.random, 1);
        match self.random.below(6) {
            0 => {
                let status = [ErrorStatus::OutputInsufficientSize, ErrorStatus::GeneralFailure]
                    [self.random.below(2) as usize];
                encode_failure(&mut self.reply, sequence, status, &shapes, "as you like");
            }
            1 => {
                let mut pairs = shapes
                    .drain(..)
                    .map(|shape| (shape.dimensions, shape.is_sufficient))
                    .collect::<Vec<_>>();
                let mut pairs = pairs
                    .iter_mut()
                    .map(|(dimensions, enough)| (&dimensions[..], *enough));
                let timing = Timing {
                    time_on_device_us: 1,
                    time_in_driver_us: u64::MAX,
                };
                encode_success(&mut self.reply, sequence, timing, Some(&mut pairs), &outputs);
            }
            _ => encode_success(&mut self.reply, sequence, Timing::NONE, None, &outputs),
        }
        if is_spoilt && once_in(&mut self.random, 2) {
            spoil(&mut self.random, &mut self.reply);
        }
        let repetitions = if is_spoilt && once_in(&mut self.random, 4) {
            1 + self.random.below(60)
        } else {
            1
        };
        for _ in 0..repetitions {
            if !self.reply.is_empty() && self.end.producer.send(&self.reply).is_err() {
                break;
            }
        }
        true
    }
}

/// Writes where only the client or nobody may.
pub(super) fn scribble(random: &mut Random, whole: &Mapping, shared: &Shared) {
    shared.count();
    let size = whole.size();
    let ring = WORDS[random.below(2) as usize];
    let number = odd_number(random);
    let cell = 4096 + u64::from(random.below((size.saturating_sub(4096) / CELL_BYTES as u64) as u32)) * 64;
    let (at, bytes) = match random.below(10) {
        // How many cells the consumer has read.
        0 => (ring, number.to_le_bytes().to_vec()),
        // The doorbell, the end, the time.
        1 => (ring + 128, (number as u32).to_le_bytes().to_vec()),
        2 => (ring + 132, (number as u32).to_le_bytes().to_vec()),
        3 => (ring + 136, number.to_le_bytes().to_vec()),
        // The sequence word of a cell: of some packet, of many cells.
        4 | 5 => {
            let word = (u64::from(random.below(600)) << 16) + u64::from(random.below(40));
            (cell, word.to_le_bytes().to_vec())
        }
        6 => (cell, number.to_le_bytes().to_vec()),
        7 => (cell + 8, (0..56).map(|_| random.bits() as u8).collect()),
        8 => (u64::from(random.below(4000)), vec![random.bits() as u8; 64]),
        _ => {
            let all = size.min(9000) as usize;
            (0, (0..all).map(|_| random.bits() as u8).collect())
        }
    };
    // What would be outside is left.
    let _ = whole.as_slice().write_at(at, &bytes);
}
