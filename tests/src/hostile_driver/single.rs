//! The same without sockets: one spoilt message for the decoder, one spoilt ring for its other end.

use std::sync::Arc;

use nnhal::burst::{ResultBody, decode_result, encode_success};
use nnhal::fmq::{ChannelEnd, ChannelSize, WaitSettings};
use nnhal::wire::{Envelope, Message, codec, handshake};
use nnhal_conformance::generator::choices::Random;
use nnhal_hal::Timing;
use nnhal_os::shm::{Access, Mapping};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::answers::{Answers, welcome};
use super::lies::{once_in, shapes, spoil};
use super::rings::scribble;
use super::shared::{Shared, soon};

/// Reads spoilt messages and results, `count` of them.
pub fn read_messages(seed: u64, count: u64) {
    let mut random = Random::new(seed);
    let mut answers = Answers::new(Random::new(seed), Arc::default());
    let mut body = ResultBody::default();
    for _ in 0..count {
        let mut bytes = match random.below(4) {
            0 => {
                let welcome = welcome(&mut random);
                handshake::accept(handshake::VERSIONS, handshake::VERSIONS.newest, &welcome)
                    .unwrap_or_default()
            }
            1 => {
                let mut bytes = Vec::new();
                let shapes = shapes(&mut random, 2);
                let mut pairs = shapes
                    .iter()
                    .map(|shape| (&shape.dimensions[..], shape.is_sufficient));
                encode_success(&mut bytes, 7, Timing::NONE, Some(&mut pairs), &[1; 40]);
                bytes
            }
            _ => codec::encode(&answers.any_message()).unwrap_or_default(),
        };
        for _ in 0..=random.below(3) {
            spoil(&mut random, &mut bytes);
        }
        // What comes of it does not matter: it is an error, or a message that could have been sent.
        let _ = codec::decode::<Message>(&bytes);
        let _ = codec::decode::<Envelope>(&bytes);
        let _ = handshake::read_answer(&bytes, handshake::VERSIONS);
        if let Ok((_, rest)) = decode_result(&bytes, &mut body) {
            assert!(rest.len() <= bytes.len());
        }
    }
}

/// Uses rings whose words are overwritten all the time, `count` times.
///
/// # Panics
/// If they cannot be made, or a wait outlasts its deadline.
pub fn use_rings(seed: u64, count: u64) {
    let mut random = Random::new(seed);
    let shared = Shared::default();
    let size = ChannelSize {
        outgoing: 64,
        incoming: 64,
    };
    let mut left = count;
    while left > 0 {
        let (mut own, memory) = ChannelEnd::create(size, WaitSettings::Sleep).expect("rings");
        let mut theirs = ChannelEnd::open(&memory, WaitSettings::Sleep).expect("rings");
        let whole = Mapping::new(&memory, Access::ReadWrite).expect("a mapping");
        let mut packet = own.consumer.new_packet();
        for _ in 0..40 {
            left = left.saturating_sub(1);
            if once_in(&mut random, 2) {
                let _ = theirs.producer.send(&vec![3; 1 + random.below(600) as usize]);
            }
            scribble(&mut random, &whole, &shared);
            let _ = own.producer.send(&vec![5; 1 + random.below(600) as usize]);
            own.producer
                .release(own.producer.sent().saturating_sub(u64::from(random.below(3))));
            let now = MonotonicClock.now();
            let limit = soon();
            if own.consumer.receive(&mut packet, Deadline::at(now)).is_ok() {
                assert!(packet.bytes().len() <= 64 * 56);
            }
            assert!(
                !limit.is_past(MonotonicClock.now()),
                "a wait outlasted its deadline"
            );
        }
    }
}
