//! Clients of bursts that name what nobody gave them, free what is in use, or cut a memory short.

use std::os::fd::AsFd;
use std::time::Duration;

use nnhal::burst::{Pool, ResultBody, decode_result, encode_fire, encode_register, encode_unregister};
use nnhal::fmq::ReceiveError;
use nnhal::wire::{Call, Handle, MemoryDescription, Object, Reply};
use nnhal_hal::ErrorStatus;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{is_alive, shared_floats, wait_until};

use crate::raw::{Raw, Xorshift, bystander, expect_unharmed, header, start};

#[test]
fn r03_freeing_memory_of_a_live_burst_is_harmless() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    raw.expect_success();
    let freed = raw.memory;
    let unknown = Handle {
        index: 4711,
        generation: 1,
    };
    let mut free = |memory| {
        let object = Object::Memory(memory);
        raw.client.call(Call::Release { object }, &[])
    };
    assert_eq!(free(freed), Ok(Reply::Done));
    for gone in [freed, unknown.into()] {
        assert_eq!(free(gone).unwrap_err().status, ErrorStatus::InvalidArgument);
    }
    raw.general(1, &[Pool::Memory(freed)], &[]);
    raw.expect_refusal(1, "memory");
    let (memory, _mapping) = shared_floats(&[1.0; 12]);
    raw.memory = raw.client.register(&memory);
    raw.expect_success();
}

#[test]
fn memory_freed_beside_queued_requests_for_it_refuses_those_behind() {
    const QUEUED: u32 = 8;
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    for round in 1..50 {
        encode_register(
            &mut raw.buffer,
            round,
            0,
            &raw.request,
            &[Pool::Memory(raw.memory)],
        );
        assert_eq!(raw.exchange(), (round, ErrorStatus::None, String::new()));
        for sequence in 1..=QUEUED {
            encode_fire(&mut raw.buffer, &header(sequence), 0, &[]);
            raw.end.producer.send(&raw.buffer).unwrap();
        }
        let object = Object::Memory(raw.memory);
        assert_eq!(raw.client.call(Call::Release { object }, &[]), Ok(Reply::Done));
        let mut is_freed = false;
        for sequence in 1..=QUEUED {
            let (answered, status, detail) = raw.receive();
            assert_eq!(answered, sequence);
            is_freed |= status != ErrorStatus::None;
            assert_eq!(is_freed, detail.contains("was freed"), "{status:?} {detail}");
        }
        encode_fire(&mut raw.buffer, &header(9), 0, &[]);
        raw.expect_refusal(9, "was freed");
        let (memory, _mapping) = shared_floats(&[1.0; 12]);
        raw.memory = raw.client.register(&memory);
    }
}

#[test]
fn names_that_nobody_gave_are_refused() {
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    encode_fire(&mut raw.buffer, &header(1), 7, &[]);
    raw.expect_refusal(1, "no request is registered under 7");
    encode_unregister(&mut raw.buffer, 2, 65_535);
    raw.expect_refusal(2, "no request is registered under 65535");
    let memory = Pool::Memory(raw.memory);
    encode_register(&mut raw.buffer, 3, 5000, &raw.request, &[memory]);
    raw.expect_refusal(3, "5000 is no number for a registered request");
    let unknown = Pool::Memory(Handle::from_bits(u64::MAX).into());
    raw.general(4, &[unknown], &[]);
    raw.expect_refusal(4, "memory");
    raw.general(5, &[], &[]);
    raw.expect_refusal(5, "pool");
    raw.general(6, &[Pool::InlineInputs(48), Pool::InlineInputs(48)], &[0; 48]);
    raw.expect_refusal(6, "two pools for inputs");
    raw.general(7, &[Pool::InlineInputs(u32::MAX)], &[]);
    raw.expect_refusal(7, "cannot travel in a burst's packet");
    // Inputs and outputs in the same inline pool, and fewer bytes than announced.
    raw.general(8, &[Pool::InlineInputs(4096)], &[0; 16]);
    assert_ne!(raw.exchange().1, ErrorStatus::None);
    raw.expect_success();
    expect_unharmed(&daemon, other);
}

#[test]
fn guessed_tokens_and_memories_are_never_hits() {
    const GUESSES: u32 = 20_000;
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let own = raw.memory;
    let mut random = Xorshift::new();
    for guess in 0..GUESSES {
        // Small indexes are where objects are, as is what was freed.
        let state = random.next();
        let handle = Handle {
            index: (state % 8) as u32,
            generation: (state >> 32) as u32 % 8,
        };
        let pool = match guess % 4 {
            0 if own.0 == handle => continue,
            0 => Pool::Memory(handle.into()),
            1 => Pool::Memory(Handle::from_bits(state).into()),
            2 => Pool::Buffer((state % 64) as u32),
            _ => Pool::Buffer((state >> 32) as u32),
        };
        raw.general(guess + 1, &[pool], &[]);
        let (_, status, detail) = raw.exchange();
        assert_eq!(status, ErrorStatus::InvalidArgument, "T15: {pool:?}: {detail}");
    }
    raw.expect_success();
    expect_unharmed(&daemon, other);
}

#[test]
fn memory_that_is_cut_short_harms_its_owner_only() {
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 16).unwrap();
    let description = MemoryDescription {
        name: "mmap_fd".into(),
        fds: 1,
        size: 1 << 16,
        offset: 0,
        protection: 3,
    };
    let memory = match raw
        .client
        .call(Call::RegisterMemory(description), &[file.as_fd()])
    {
        Ok(Reply::Memory(memory)) => memory,
        // A driver need not take memory that can shrink.
        _ => return,
    };
    raw.general(1, &[Pool::Memory(memory)], &[]);
    assert_eq!(raw.exchange().1, ErrorStatus::None);
    file.set_len(0).unwrap();
    raw.general(2, &[Pool::Memory(memory)], &[]);
    raw.end.producer.send(&raw.buffer).unwrap();
    let mut packet = raw.end.consumer.new_packet();
    let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(1));
    match raw.end.consumer.receive(&mut packet, deadline) {
        Ok(()) => {
            let (header, _) = decode_result(packet.bytes(), &mut ResultBody::default()).unwrap();
            assert_ne!(header.status, ErrorStatus::None);
        }
        Err(ReceiveError::TimedOut | ReceiveError::Closed) => {
            let worker = raw.worker();
            wait_until("the worker has died of it", || !is_alive(worker));
        }
        Err(error) => panic!("{error}"),
    }
    expect_unharmed(&daemon, other);
}
