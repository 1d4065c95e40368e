//! A client's end of a burst, spoken by hand, for clients that speak it wrongly.

use std::os::fd::AsFd;

use nnhal::burst::{Fencing, Pool, RequestHeader, ResultBody, decode_result, encode_general};
use nnhal::fmq::{ChannelEnd, ChannelSize, WaitSettings};
use nnhal::wire::{BurstHandle, Call, MemoryHandle, Object, PreparedModelHandle, Reply};
use nnhal_hal::{ErrorStatus, MeasureTiming, Request, Timing};
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model, is_alive, request_in_one_memory, shared_floats,
};

use crate::common::{EXE, REFERENCE, add, open, prepare};

pub(crate) const SIZE: ChannelSize = ChannelSize {
    outgoing: 16,
    incoming: 64,
};

/// A worker that polls for its next request for long, so that it looks at what nobody announces.
pub(crate) fn start() -> TestDaemon {
    let options = DaemonOptions {
        devices: vec![REFERENCE.to_owned()],
        ..DaemonOptions::with_settings("[execution]\npolling_window_us = 60000000\n")
    };
    TestDaemon::start(EXE, &options)
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

pub(crate) fn header(sequence: u32) -> RequestHeader {
    RequestHeader {
        sequence,
        measure: MeasureTiming::No,
        fencing: Fencing::No,
        deadline_ns: None,
    }
}

/// The client's end of a burst of a model that adds two times four floats.
pub(crate) struct Raw {
    pub(crate) client: RawClient,
    pub(crate) end: ChannelEnd,
    pub(crate) rings: SharedMemory,
    pub(crate) memory: MemoryHandle,
    model: PreparedModelHandle,
    pub(crate) burst: BurstHandle,
    /// Executes the model on that memory.
    pub(crate) request: Request,
    pub(crate) buffer: Vec<u8>,
}

impl Raw {
    pub(crate) fn open(daemon: &TestDaemon) -> Raw {
        Raw::open_with(daemon, SIZE)
    }

    pub(crate) fn open_with(daemon: &TestDaemon, size: ChannelSize) -> Raw {
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
    pub(crate) fn begin_anew(&mut self) {
        let call = Call::Release {
            object: Object::Burst(self.burst),
        };
        self.client.call(call, &[]).unwrap();
        let (end, rings) = ChannelEnd::create(SIZE, WaitSettings::Sleep).unwrap();
        self.burst = configured(&mut self.client, self.model, &rings);
        (self.end, self.rings) = (end, rings);
    }

    /// Sends what is in `buffer` and returns the sequence and status of the answer, with its text.
    pub(crate) fn exchange(&mut self) -> (u32, ErrorStatus, String) {
        self.end.producer.send(&self.buffer).unwrap();
        self.receive()
    }

    /// The sequence and status of the next answer, with its text. A failure has no timing, and no shapes
    /// unless they say how much room an output needs.
    pub(crate) fn receive(&mut self) -> (u32, ErrorStatus, String) {
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
    pub(crate) fn expect_words_refused(&mut self, original: &[u32], words: &[u32], what: &str) {
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
    pub(crate) fn words(&mut self) -> Vec<u32> {
        self.general(5, &[Pool::Memory(self.memory)], &[]);
        let (words, _) = self.buffer.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[track_caller]
    pub(crate) fn expect_refusal(&mut self, sequence: u32, part: &str) {
        let (answered, status, detail) = self.exchange();
        assert_eq!(answered, sequence, "{detail}");
        assert_ne!(status, ErrorStatus::None);
        assert!(detail.contains(part), "{part:?} is missing in {detail:?}");
    }

    pub(crate) fn general(&mut self, sequence: u32, pools: &[Pool], inline: &[u8]) {
        encode_general(&mut self.buffer, &header(sequence), &self.request, pools, inline);
    }

    /// The burst still does what it is for.
    #[track_caller]
    pub(crate) fn expect_success(&mut self) {
        self.general(9, &[Pool::Memory(self.memory)], &[]);
        assert_eq!(self.exchange(), (9, ErrorStatus::None, String::new()));
    }

    pub(crate) fn worker(&self) -> u32 {
        self.client.welcome.worker_pid
    }
}

pub(crate) fn configured(
    client: &mut RawClient,
    model: PreparedModelHandle,
    rings: &SharedMemory,
) -> BurstHandle {
    match configure(client, model, rings) {
        Ok(Reply::Burst(burst)) => burst,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn configure(
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
pub(crate) fn bystander(daemon: &TestDaemon) -> nnhal_client::Burst {
    let mut burst = prepare(&open(daemon, REFERENCE), 1)
        .burst(&nnhal_client::BurstOptions::new())
        .unwrap();
    assert_eq!(add(&mut burst, 1.0).unwrap(), 2.0);
    burst
}

#[track_caller]
pub(crate) fn expect_unharmed(daemon: &TestDaemon, mut bystander: nnhal_client::Burst) {
    assert_eq!(add(&mut bystander, 2.0).unwrap(), 3.0);
    assert!(is_alive(daemon.pid()));
    open(daemon, REFERENCE).status().unwrap();
}

/// Random numbers.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    pub(crate) fn new() -> Xorshift {
        Xorshift(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
