//! Clients whose packets mean nothing, or not what they should. Whatever they send, it is their own burst or
//! worker that ends, and never the supervisor or another client.

use nnhal::burst::{
    Fencing, Pool, RequestHeader, encode_fire, encode_general, encode_register, encode_register_fenced,
};
use nnhal::fence::{Fence, FenceState};
use nnhal::fmq::ChannelSize;
use nnhal::wire::{BurstHandle, Call, Handle, Message, Reply};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, RequestPool};
use nnhal_tests::shared_floats;

use crate::raw::{Raw, SIZE, bystander, expect_unharmed, header, soon, start};

#[test]
fn packets_that_mean_nothing_are_answered_and_the_burst_goes_on() {
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let mut garbage: u64 = 0x9e37_79b9_7f4a_7c15;
    for length in (1..=SIZE.outgoing as usize * 56).step_by(7) {
        raw.buffer.clear();
        for _ in 0..length {
            garbage = garbage.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            raw.buffer.push((garbage >> 56) as u8);
        }
        // Each kind of packet, with no meaning after it.
        raw.buffer[0] = (length % 6) as u8;
        let (_, status, _) = raw.exchange();
        assert_ne!(status, ErrorStatus::None, "{length} bytes");
    }
    raw.expect_success();
    // A count that the packet cannot hold.
    raw.general(3, &[Pool::Memory(raw.memory)], &[]);
    raw.buffer[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    raw.expect_refusal(3, "before the end of its input");
    raw.expect_success();
    expect_unharmed(&daemon, other);
}

#[test]
fn cancelling_at_random_ends_what_is_named_and_nothing_else() {
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let cancel = |burst: BurstHandle, sequence: u32, raw: &mut Raw| {
        raw.client.call(Call::CancelBurst { burst, sequence }, &[])
    };
    for sequence in [0, 1, 8, 10, i32::MAX as u32, 1 << 31, u32::MAX - 1, u32::MAX] {
        assert_eq!(cancel(raw.burst, sequence, &mut raw), Ok(Reply::Done));
        raw.expect_success();
        // The one that was named, if it has not been before.
        raw.general(sequence, &[Pool::Memory(raw.memory)], &[]);
        let (answered, status, detail) = raw.exchange();
        assert_eq!(answered, sequence);
        match status {
            ErrorStatus::None => {}
            _ => assert!(detail.contains("cancelled"), "{detail}"),
        }
        raw.expect_success();
    }
    // It has not come yet: the wish is for it alone.
    assert_eq!(cancel(raw.burst, 12, &mut raw), Ok(Reply::Done));
    raw.expect_success();
    // One for an earlier request is not instead of it.
    assert_eq!(cancel(raw.burst, 8, &mut raw), Ok(Reply::Done));
    raw.general(12, &[Pool::Memory(raw.memory)], &[]);
    raw.expect_refusal(12, "cancelled");
    raw.expect_success();
    for (index, generation) in [(0, 0), (0, 77), (1, 1), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
        let guessed = BurstHandle::from(Handle { index, generation });
        if guessed != raw.burst {
            let refused = cancel(guessed, 9, &mut raw).unwrap_err();
            assert_eq!(refused.status, ErrorStatus::InvalidArgument);
        }
    }
    let gone = raw.burst;
    raw.begin_anew();
    assert!(cancel(gone, 9, &mut raw).is_err());
    raw.expect_success();
    expect_unharmed(&daemon, other);
}

/// What may change in a request with no harm: its sequence, its deadline, and where in its memory each of two
/// inputs and the output is.
const FREE_WORDS: [usize; 6] = [1, 2, 3, 7, 12, 18];

/// The lengths of the arguments. None at all stands for the whole memory.
const LENGTHS: [usize; 3] = [8, 13, 19];

/// The numbers of extents that the arguments give: none. Before the zero that says so, a one makes it an
/// unknown extent.
const RANKS: [usize; 3] = [9, 14, 20];

/// Values that the HAL's tests put into packets: too many of something, an unknown extent, no such pool, and
/// another choice of timing.
const WRONG_WORDS: [u32; 4] = [10, 0, i32::MAX as u32, 1];

#[test]
fn b01_request_without_one_of_its_words_is_refused() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let words = raw.words();
    for index in 0..words.len() {
        let mut shorter = words.clone();
        shorter.remove(index);
        raw.expect_words_refused(&words, &shorter, &format!("without word {index}"));
    }
    raw.expect_success();
}

#[test]
fn b02_request_with_a_word_too_many_is_refused() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let words = raw.words();
    for index in 0..=words.len() {
        for wrong in WRONG_WORDS {
            if RANKS.contains(&index) && wrong == 1 {
                continue;
            }
            let mut longer = words.clone();
            longer.insert(index, wrong);
            raw.expect_words_refused(&words, &longer, &format!("{wrong} before word {index}"));
        }
    }
    raw.expect_success();
}

#[test]
fn b03_request_with_one_word_replaced_is_refused() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let words = raw.words();
    for index in (0..words.len()).filter(|index| !FREE_WORDS.contains(index)) {
        for wrong in WRONG_WORDS {
            if LENGTHS.contains(&index) && wrong == 0 {
                continue;
            }
            let mut changed = words.clone();
            changed[index] = wrong;
            raw.expect_words_refused(&words, &changed, &format!("{wrong} for word {index}"));
        }
    }
    raw.expect_success();
}

#[test]
fn b04_result_that_the_queue_cannot_hold_is_told_and_the_burst_goes_on() {
    let daemon = start();
    for incoming in [1, 2] {
        let size = ChannelSize { incoming, ..SIZE };
        let mut raw = Raw::open_with(&daemon, size);
        let unknown = Pool::Memory(Handle::from_bits(u64::MAX).into());
        // The text of this refusal is longer than the queue.
        raw.general(1, &[unknown; 12], &[]);
        let (sequence, status, detail) = raw.exchange();
        assert_eq!((sequence, status), (1, ErrorStatus::GeneralFailure), "{detail}");
        assert!(detail.contains("the result queue"), "{detail}");
        raw.expect_success();
        // And so are the values of this success, which come in the packet.
        let mut request = raw.request.clone();
        request.pools.push(RequestPool::Memory { size: 0 });
        let output = &mut request.outputs[0].location;
        (output.pool_index, output.offset) = (1, 0);
        let pools = [Pool::Memory(raw.memory), Pool::InlineOutputs(4096)];
        encode_general(&mut raw.buffer, &header(2), &request, &pools, &[]);
        let (sequence, status, detail) = raw.exchange();
        assert_eq!((sequence, status), (2, ErrorStatus::GeneralFailure), "{detail}");
        assert!(detail.contains("the result queue"), "{detail}");
        raw.expect_success();
    }
}

#[test]
fn b05_what_a_result_does_not_say_is_zero() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    // A refusal first, whose text must not shine through.
    let unknown = Pool::Memory(Handle::from_bits(u64::MAX).into());
    raw.general(1, &[unknown], &[]);
    raw.expect_refusal(1, "memory");
    raw.general(2, &[Pool::Memory(raw.memory)], &[]);
    raw.end.producer.send(&raw.buffer).unwrap();
    let mut packet = raw.end.consumer.new_packet();
    raw.end.consumer.receive(&mut packet, soon()).unwrap();
    // Status, flags, two bytes of nothing, the sequence, and nothing up to the end of the cell.
    let (said, rest) = packet.bytes().split_at(8);
    assert_eq!(said, [0, 0, 0, 0, 2, 0, 0, 0]);
    assert!(!rest.is_empty() && rest.iter().all(|byte| *byte == 0), "{rest:?}");
}

#[test]
fn r01_r02_request_without_an_argument_is_refused_and_the_burst_goes_on() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let whole = raw.request.clone();
    let mut requests = Vec::new();
    for input in 0..whole.inputs.len() {
        let mut request = whole.clone();
        request.inputs.remove(input);
        requests.push((
            request,
            "INVALID_ARGUMENT: the request has 1 inputs, the model has 2",
        ));
    }
    let mut request = whole.clone();
    request.outputs.clear();
    requests.push((
        request,
        "INVALID_ARGUMENT: the request has 0 outputs, the model has 1",
    ));
    let pools = [Pool::Memory(raw.memory)];
    for (request, expected) in requests {
        for measure in [MeasureTiming::No, MeasureTiming::Yes] {
            let header = RequestHeader { measure, ..header(7) };
            encode_general(&mut raw.buffer, &header, &request, &pools, &[]);
            let refused = (7, ErrorStatus::InvalidArgument, expected.to_owned());
            assert_eq!(raw.exchange(), refused);
        }
        encode_register(&mut raw.buffer, 8, 0, &request, &pools);
        assert_eq!(
            raw.exchange(),
            (8, ErrorStatus::InvalidArgument, expected.to_owned())
        );
    }
    raw.expect_success();
}

#[test]
fn request_that_is_sent_again_is_refused_if_more_follows_it() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let pools = [Pool::Memory(raw.memory), Pool::InlineInputs(32)];
    for argument in &mut raw.request.inputs {
        argument.location.pool_index = 1;
    }
    for round in 0..3 {
        raw.general(2 * round + 1, &pools, &[0; 32]);
        assert_eq!(raw.exchange().1, ErrorStatus::None);
        let mut longer = [0; 33];
        longer[32] = 1;
        raw.general(2 * round + 2, &pools, &longer);
        assert_ne!(raw.exchange().1, ErrorStatus::None);
    }
}

#[test]
fn refused_packet_between_two_requests_leaves_none_of_its_own_behind() {
    let daemon = start();
    let mut raw = Raw::open(&daemon);
    let (other, mapping) = shared_floats(&[1.0; 12]);
    let other = Pool::Memory(raw.client.register(&other));
    let sums = || {
        let mut sums = [0; 16];
        mapping.as_slice().read_at(32, &mut sums).unwrap();
        sums
    };
    let before = sums();
    // All of the other request is there, but more follows it, or its number is none.
    for refused in ["general", "registered", "number"] {
        mapping.as_slice().write_at(32, &before).unwrap();
        raw.expect_success();
        match refused {
            "general" => raw.general(1, &[other], &[]),
            "registered" => encode_register(&mut raw.buffer, 1, 0, &raw.request, &[other]),
            _ => encode_register(&mut raw.buffer, 1, u16::MAX, &raw.request, &[other]),
        }
        if refused != "number" {
            raw.buffer.push(1);
        }
        assert_ne!(raw.exchange().1, ErrorStatus::None);
        assert_eq!(sums(), before);
        raw.general(2, &[other], &[]);
        assert_eq!(raw.exchange(), (2, ErrorStatus::None, String::new()));
        let after = sums();
        let (values, _) = after.as_chunks::<4>();
        assert!(
            values.iter().all(|value| f32::from_ne_bytes(*value) == 2.0),
            "{after:?}"
        );
    }
}

/// The fence of a request; `None` if that has ended.
fn fence_of(raw: &mut Raw, burst: BurstHandle, sequence: u32) -> Result<Option<Fence>, Failure> {
    let id = raw
        .client
        .send(Call::GetBurstFence { burst, sequence }, &[])
        .unwrap();
    match raw.client.receive().unwrap() {
        (Message::Reply { id: answered, result }, mut fds) if answered == id => {
            let Reply::BurstFence { has_fence } = result? else {
                panic!("another reply");
            };
            assert_eq!(fds.len(), usize::from(has_fence));
            Ok(fds.pop().map(|fd| Fence::from_fd(fd).unwrap()))
        }
        (other, _) => panic!("{other:?}"),
    }
}

impl Raw {
    fn register_fenced(&mut self) {
        let pools = [Pool::Memory(self.memory)];
        encode_register_fenced(&mut self.buffer, 1, 5, &self.request, &pools);
        assert_eq!(self.exchange(), (1, ErrorStatus::None, String::new()));
    }

    fn fire_fenced(&mut self, sequence: u32, fencing: Fencing, number: u16) -> ErrorStatus {
        let header = RequestHeader {
            fencing,
            ..header(sequence)
        };
        encode_fire(&mut self.buffer, &header, number, &[]);
        let (answered, status, _) = self.exchange();
        assert_eq!(answered, sequence);
        status
    }
}

#[test]
fn asking_for_fences_at_random_gets_few_and_each_is_told_its_end() {
    let daemon = start();
    let other = bystander(&daemon);
    let mut raw = Raw::open(&daemon);
    let burst = raw.burst;
    raw.register_fenced();
    // Nothing fenced has ended, so all of it may be to come.
    let asked = [0, 1, 2, 3, 4, i32::MAX as u32, u32::MAX];
    let fences = asked.map(|sequence| fence_of(&mut raw, burst, sequence).unwrap().unwrap());
    let state = |index: usize| fences[index].state().unwrap();
    // What is not fenced ends without telling.
    raw.general(1, &[Pool::Memory(raw.memory)], &[]);
    assert_eq!(raw.exchange().1, ErrorStatus::None);
    assert!((0..asked.len()).all(|index| state(index) == FenceState::Pending));
    assert_eq!(raw.fire_fenced(2, Fencing::Fenced, 5), ErrorStatus::None);
    let of_two = [0, 1, 2, 3, 6].map(state);
    use FenceState::{Failed, Pending, Signalled};
    assert_eq!(of_two, [Failed, Failed, Signalled, Pending, Failed]);
    // One that is not registered, and one behind it.
    assert_ne!(raw.fire_fenced(3, Fencing::Fenced, 77), ErrorStatus::None);
    assert_ne!(raw.fire_fenced(4, Fencing::Behind, 5), ErrorStatus::None);
    assert_eq!([3, 4].map(state), [Failed; 2]);
    assert_eq!(raw.fire_fenced(5, Fencing::Fenced, 5), ErrorStatus::None);
    assert_eq!(raw.fire_fenced(6, Fencing::Behind, 5), ErrorStatus::None);
    assert!(fence_of(&mut raw, burst, 6).unwrap().is_none());
    // One whose outputs were not checked for it.
    let pools = [Pool::Memory(raw.memory)];
    encode_register(&mut raw.buffer, 7, 6, &raw.request, &pools);
    assert_eq!(raw.exchange().1, ErrorStatus::None);
    assert_eq!(
        raw.fire_fenced(7, Fencing::Fenced, 6),
        ErrorStatus::InvalidArgument
    );
    assert_eq!(
        raw.fire_fenced(8, Fencing::Behind, 6),
        ErrorStatus::InvalidArgument
    );
    // Back in time.
    assert_eq!(raw.fire_fenced(1, Fencing::Fenced, 5), ErrorStatus::None);
    raw.expect_success();
    for (index, generation) in [(0, 0), (0, 77), (1, 1), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
        let guessed = BurstHandle::from(Handle { index, generation });
        if guessed != burst {
            let refused = fence_of(&mut raw, guessed, 9).unwrap_err();
            assert_eq!(refused.status, ErrorStatus::InvalidArgument);
        }
    }
    // More than a burst may have.
    let mut many = vec![fences[5].clone()];
    let refused = loop {
        match fence_of(&mut raw, burst, 1000) {
            Ok(fence) => many.push(fence.unwrap()),
            Err(failure) => break failure,
        }
    };
    assert_eq!(
        refused.status,
        ErrorStatus::ResourceExhaustedTransient,
        "{refused}"
    );
    assert_eq!(many.len(), 64);
    raw.expect_success();
    // They fail with the burst, and with it nothing else does.
    raw.begin_anew();
    let wait = |fence: &Fence| fence.wait(soon()).unwrap();
    assert!(many.iter().all(|fence| wait(fence) == Failed));
    assert!(fence_of(&mut raw, burst, 1).is_err());
    raw.expect_success();
    // Whoever else has one is told if the client dies.
    let burst = raw.burst;
    let last = fence_of(&mut raw, burst, 10).unwrap().unwrap();
    assert_eq!(last.state().unwrap(), Pending);
    drop(raw);
    assert_eq!(wait(&last), Failed);
    expect_unharmed(&daemon, other);
}
