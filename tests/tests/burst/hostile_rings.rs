//! Clients that spoil the rings of their burst: cells that change while being read, memory that is no ring.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nnhal::burst::{Pool, ResultBody, decode_result, encode_fire, encode_register};
use nnhal::fmq::{ChannelEnd, ReceiveError, WaitSettings};
use nnhal::wire::{Call, Reply};
use nnhal_hal::ErrorStatus;
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, burst_threads, wait_until};

use crate::common::{EXE, REFERENCE, add};
use crate::raw::{Raw, SIZE, Xorshift, bystander, configure, expect_unharmed, header, start};

/// Bytes of the cells' sequence words, which come before their payload.
const SEQUENCE_BYTES: u64 = 8;

/// Flips bits in the cells of both rings until `is_over`; those of the payload only, or all. Returns how
/// many.
fn flip_cells(raw: &SharedMemory, random: &mut Xorshift, all: bool, is_over: &AtomicBool) -> u32 {
    const LIMIT: u32 = 500_000;
    let mapping = Mapping::new(raw, Access::ReadWrite).unwrap();
    let cells = u64::from(SIZE.outgoing + SIZE.incoming);
    for flips in 0..LIMIT {
        if flips % 64 == 0 && is_over.load(Ordering::Relaxed) {
            return flips;
        }
        let state = random.next();
        let first = if all { 0 } else { SEQUENCE_BYTES };
        let byte = first + (state >> 32) % (64 - first);
        let at = 4096 + (state % cells) * 64 + byte;
        let mut value = [0];
        mapping.as_slice().read_at(at, &mut value).unwrap();
        value[0] ^= 1 << ((state >> 48) % 8);
        mapping.as_slice().write_at(at, &value).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    LIMIT
}

impl Raw {
    /// Sends requests until the burst or the flipping of its bits has ended.
    fn send_until(&mut self, is_over: &AtomicBool) {
        let mut body = ResultBody::default();
        let mut packet = self.end.consumer.new_packet();
        let memory = Pool::Memory(self.memory);
        for number in (0..16).cycle() {
            if number % 3 == 0 {
                encode_register(&mut self.buffer, 3, number, &self.request, &[memory]);
            } else if number % 3 == 1 {
                encode_fire(&mut self.buffer, &header(4), number - 1, &[]);
            } else {
                self.general(5, &[memory], &[]);
            }
            let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(100));
            let received = match self.end.producer.send(&self.buffer) {
                Ok(()) => self.end.consumer.receive(&mut packet, soon),
                Err(_) => Err(ReceiveError::Closed),
            };
            match received {
                // What it says may be flipped as well.
                Ok(()) => {
                    let _ = decode_result(packet.bytes(), &mut body);
                    self.end.producer.release(self.end.producer.sent());
                }
                Err(_) => break,
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn bits_that_flip_while_they_are_read_end_their_burst_at_most() {
    const FLIPS: u32 = 10_000_000;
    let options = DaemonOptions {
        devices: vec![REFERENCE.to_owned()],
        ..DaemonOptions::default()
    };
    let daemon = TestDaemon::start(EXE, &options);
    let mut other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let mut random = Xorshift::new();
    let (mut flips, mut rounds) = (0, 0_u32);
    while flips < FLIPS {
        let is_over = AtomicBool::new(false);
        let rings = raw.rings.try_clone().unwrap();
        flips += std::thread::scope(|scope| {
            let flipping = scope.spawn(|| flip_cells(&rings, &mut random, rounds % 8 == 7, &is_over));
            raw.send_until(&is_over);
            flipping.join().unwrap()
        });
        rounds += 1;
        assert_eq!(
            raw.client.call(Call::GetStatus, &[]),
            Ok(Reply::Status(nnhal_hal::DeviceStatus::Available)),
            "T6, after {flips} flips"
        );
        assert_eq!(add(&mut other, 3.0).unwrap(), 4.0, "T6");
        raw.begin_anew();
    }
    raw.expect_success();
    expect_unharmed(&daemon, other);
}

#[test]
fn ring_that_is_overwritten_ends_the_burst_and_nothing_else() {
    for byte in [0x01, 0x5a, 0xff] {
        let daemon = start();
        let other = bystander(&daemon);
        let mut raw = Raw::open(&daemon);
        raw.expect_success();
        let worker = raw.worker();
        assert_eq!(burst_threads(worker), 1);
        let mapping = Mapping::new(&raw.rings, Access::ReadWrite).unwrap();
        // The cells of both rings come after the page that has their controls.
        let start = 4096;
        let garbage = vec![byte; (raw.rings.size() - start) as usize];
        mapping.as_slice().write_at(start, &garbage).unwrap();
        // A request in a cell that is as it should be has the worker look at the next.
        raw.general(10, &[Pool::Memory(raw.memory)], &[]);
        raw.end.producer.send(&raw.buffer).unwrap();
        wait_until("the worker gives the burst up", || burst_threads(worker) == 0);
        assert_eq!(
            raw.client.call(Call::GetStatus, &[]).unwrap(),
            Reply::Status(nnhal_hal::DeviceStatus::Available)
        );
        expect_unharmed(&daemon, other);
    }
}

#[test]
fn rings_that_are_no_rings_or_can_shrink_are_refused() {
    let daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let model = client.prepare(add_model(4)).unwrap();
    let zeros = SharedMemory::create(1 << 16).unwrap();
    let failure = configure(&mut client, model, &zeros).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::InvalidArgument);
    let (_end, rings) = ChannelEnd::create(SIZE, WaitSettings::Sleep).unwrap();
    // The same bytes in a file, which could be cut short under the worker.
    let file = tempfile::tempfile().unwrap();
    let mut bytes = vec![0; rings.size() as usize];
    rings.read_at(0, &mut bytes).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let file = SharedMemory::from_fd(file.into(), rings.size(), u64::MAX).unwrap();
    let failure = configure(&mut client, model, &file).unwrap_err();
    assert!(failure.detail.contains("sealed against shrinking"), "{failure}");
    configure(&mut client, model, &rings).unwrap();
}
