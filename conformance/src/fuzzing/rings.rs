//! Rings of a burst: what either side reads of a memory that the other side writes as it likes.

use nnhal::fmq::{ChannelEnd, ChannelSize, Packet, WaitSettings};
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::seeds::packets;

/// Few cells, so that positions wrap soon.
const SIZE: ChannelSize = ChannelSize {
    outgoing: 8,
    incoming: 4,
};

/// One side with its room for a packet.
struct Side {
    end: ChannelEnd,
    packet: Packet,
}

impl Side {
    fn new(end: ChannelEnd) -> Side {
        let packet = end.consumer.new_packet();
        Side { end, packet }
    }

    /// Takes what there is. A ring holds no more packets than cells, whatever its peer writes there.
    fn receive_all(&mut self) {
        let most = SIZE.outgoing.max(SIZE.incoming);
        let mut received = 0;
        while self.end.consumer.try_receive(&mut self.packet) == Ok(true) {
            received += 1;
            assert!(received <= most, "a ring gave more packets than it has cells");
        }
        let now = Deadline::at(MonotonicClock.now());
        let _ = self.end.consumer.receive(&mut self.packet, now);
    }
}

/// Does to the memory of two rings what the packets of `bytes` say. The first byte of each is the kind: bytes
/// to overwrite, from an offset on; a packet for either side to send; or to receive.
pub fn rings(bytes: &[u8]) {
    let wait = WaitSettings::Sleep;
    let (client, memory) = ChannelEnd::create(SIZE, wait).expect("the rings");
    let mapping = Mapping::new(&memory, Access::ReadWrite).expect("the memory of the rings");
    let mut client = Side::new(client);
    let mut worker = None;
    for step in packets(bytes) {
        let Some((kind, rest)) = step.split_first() else {
            continue;
        };
        match (kind % 4, rest.split_first_chunk()) {
            (0, Some((offset, rest))) => {
                let _ = mapping
                    .as_slice()
                    .write_at(u64::from(u16::from_le_bytes(*offset)), rest);
            }
            (1, _) => drop(client.end.producer.send(rest)),
            (2, _) => {
                if let Some(worker) = side_of_worker(&mut worker, &memory) {
                    let _ = worker.end.producer.send(rest);
                }
            }
            _ => {
                client.receive_all();
                if let Some(worker) = side_of_worker(&mut worker, &memory) {
                    worker.receive_all();
                }
            }
        }
    }
}

/// The worker's side, which is opened when it is first used; `None` if the memory is none of rings by then.
fn side_of_worker<'a>(side: &'a mut Option<Side>, memory: &SharedMemory) -> Option<&'a mut Side> {
    if side.is_none() {
        *side = ChannelEnd::open(memory, WaitSettings::Sleep).ok().map(Side::new);
    }
    side.as_mut()
}
