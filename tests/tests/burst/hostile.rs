//! Clients that speak the protocol of bursts wrongly. Whatever they send, it is their own burst or worker
//! that ends, and never the supervisor or another client.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nnhal::burst::{
    Pool, RequestHeader, ResultBody, decode_result, encode_fire, encode_general, encode_register,
    encode_unregister,
};
use nnhal::fmq::{ChannelEnd, ChannelSize, ReceiveError, WaitSettings};
use nnhal::wire::{
    BurstHandle, Call, Handle, MemoryDescription, MemoryHandle, Object, PreparedModelHandle, Reply,
};
use nnhal_hal::{ErrorStatus, MeasureTiming, Request, RequestPool, Timing};
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model, is_alive, request_in_one_memory, shared_floats,
    wait_until,
};

use crate::common::{EXE, REFERENCE, add, burst_threads, open, prepare};

const SIZE: ChannelSize = ChannelSize {
    outgoing: 16,
    incoming: 64,
};

/// A worker that polls for its next request for long, so that it looks at what nobody announces.
fn start() -> TestDaemon {
    let options = DaemonOptions {
        devices: vec![REFERENCE.to_owned()],
        ..DaemonOptions::with_settings("[execution]\npolling_window_us = 60000000\n")
    };
    TestDaemon::start(EXE, &options)
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

fn header(sequence: u32) -> RequestHeader {
    RequestHeader {
        sequence,
        measure: MeasureTiming::No,
        deadline_ns: None,
    }
}

/// The client's end of a burst of a model that adds two times four floats.
struct Raw {
    client: RawClient,
    end: ChannelEnd,
    rings: SharedMemory,
    memory: MemoryHandle,
    model: PreparedModelHandle,
    burst: BurstHandle,
    /// Executes the model on that memory.
    request: Request,
    buffer: Vec<u8>,
}

impl Raw {
    fn open(daemon: &TestDaemon) -> Raw {
        Raw::open_with(daemon, SIZE)
    }

    fn open_with(daemon: &TestDaemon, size: ChannelSize) -> Raw {
        let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
        let model = client.prepare(add_model(4)).unwrap();
        let (memory, _mapping) = shared_floats(&[1.0; 12]);
        let memory = client.register(&memory);
        let (end, rings) = ChannelEnd::create(size, WaitSettings::Sleep).unwrap();
        let burst = configured(&mut client, model, &rings);
        Raw {
            client,
            model,
            burst,
            end,
            rings,
            memory,
            request: request_in_one_memory(memory, 2, 1, 16).request,
            buffer: Vec::new(),
        }
    }

    /// Leaves this burst and makes another, of the same client.
    fn begin_anew(&mut self) {
        let call = Call::Release {
            object: Object::Burst(self.burst),
        };
        self.client.call(call, &[]).unwrap();
        let (end, rings) = ChannelEnd::create(SIZE, WaitSettings::Sleep).unwrap();
        self.burst = configured(&mut self.client, self.model, &rings);
        (self.end, self.rings) = (end, rings);
    }

    /// Sends what is in `buffer` and returns the sequence and status of the answer, with its text.
    fn exchange(&mut self) -> (u32, ErrorStatus, String) {
        self.end.producer.send(&self.buffer).unwrap();
        self.receive()
    }

    /// The sequence and status of the next answer, with its text. A failure has no timing, and no shapes
    /// unless they say how much room an output needs.
    fn receive(&mut self) -> (u32, ErrorStatus, String) {
        let mut packet = self.end.consumer.new_packet();
        self.end.consumer.receive(&mut packet, soon()).unwrap();
        let mut body = ResultBody::default();
        let (header, _) = decode_result(packet.bytes(), &mut body).unwrap();
        if header.status != ErrorStatus::None {
            let needs_room = header.status == ErrorStatus::OutputInsufficientSize;
            assert_eq!((header.has_shapes, header.timing), (needs_room, Timing::NONE));
        }
        (header.sequence, header.status, body.detail)
    }

    /// Sends a packet of these words, which must be refused if it is not the same as `original`: packets are
    /// filled up with zeros.
    #[track_caller]
    fn expect_words_refused(&mut self, original: &[u32], words: &[u32], what: &str) {
        let filled = |words: &[u32]| {
            let used = words
                .iter()
                .rposition(|word| *word != 0)
                .map_or(0, |last| last + 1);
            words[..used].to_vec()
        };
        if filled(original) == filled(words) {
            return;
        }
        self.buffer.clear();
        self.buffer
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let (_, status, detail) = self.exchange();
        assert_ne!(status, ErrorStatus::None, "{what}");
        assert!(!detail.is_empty(), "{what}");
    }

    /// A good request as words.
    fn words(&mut self) -> Vec<u32> {
        self.general(5, &[Pool::Memory(self.memory)], &[]);
        let (words, _) = self.buffer.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[track_caller]
    fn expect_refusal(&mut self, sequence: u32, part: &str) {
        let (answered, status, detail) = self.exchange();
        assert_eq!(answered, sequence, "{detail}");
        assert_ne!(status, ErrorStatus::None);
        assert!(detail.contains(part), "{part:?} is missing in {detail:?}");
    }

    fn general(&mut self, sequence: u32, pools: &[Pool], inline: &[u8]) {
        encode_general(&mut self.buffer, &header(sequence), &self.request, pools, inline);
    }

    /// The burst still does what it is for.
    #[track_caller]
    fn expect_success(&mut self) {
        self.general(9, &[Pool::Memory(self.memory)], &[]);
        assert_eq!(self.exchange(), (9, ErrorStatus::None, String::new()));
    }

    fn worker(&self) -> u32 {
        self.client.welcome.worker_pid
    }
}

fn configured(client: &mut RawClient, model: PreparedModelHandle, rings: &SharedMemory) -> BurstHandle {
    match configure(client, model, rings) {
        Ok(Reply::Burst(burst)) => burst,
        other => panic!("{other:?}"),
    }
}

fn configure(
    client: &mut RawClient,
    prepared_model: PreparedModelHandle,
    rings: &SharedMemory,
) -> Result<Reply, nnhal_hal::Failure> {
    let call = Call::ConfigureBurst {
        prepared_model,
        polling_window_ns: None,
    };
    client.call(call, &[rings.as_fd()])
}

/// Another client's burst, which shall not notice anything.
fn bystander(daemon: &TestDaemon) -> nnhal_client::Burst {
    let mut burst = prepare(&open(daemon, REFERENCE), 1)
        .burst(&nnhal_client::BurstOptions::new())
        .unwrap();
    assert_eq!(add(&mut burst, 1.0).unwrap(), 2.0);
    burst
}

#[track_caller]
fn expect_unharmed(daemon: &TestDaemon, mut bystander: nnhal_client::Burst) {
    assert_eq!(add(&mut bystander, 2.0).unwrap(), 3.0);
    assert!(is_alive(daemon.pid()));
    open(daemon, REFERENCE).status().unwrap();
}

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

/// Random numbers.
struct Xorshift(u64);

impl Xorshift {
    fn new() -> Xorshift {
        Xorshift(0x2545_F491_4F6C_DD1D)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

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
