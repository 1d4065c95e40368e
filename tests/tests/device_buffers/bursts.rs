//! Device buffers as arguments of bursts.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use nnhal::burst::{self, Fencing, Pool, RequestHeader, ResultBody};
use nnhal::fmq::{ChannelEnd, ChannelSize, WaitSettings};
use nnhal::wire::{Call, Object, PreparedModelHandle, Reply, RequestWithMemories};
use nnhal_hal::{ErrorStatus, MeasureTiming, RequestPool};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{TIMEOUT, add_model};

use crate::bench::{Bench, floats, request, role};

#[test]
fn bursts_read_and_write_device_buffers() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let (memory, mapping) = bench.share(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let buffer = bench
        .allocate(&[model], &[role(0, 0)], &[role(0, 0)], &[])
        .unwrap();
    let mut burst = Burst::configure(&mut bench, model);
    let write = request(memory, [None, None, Some(buffer.token)], 2);
    let read = request(memory, [Some(buffer.token), None, None], 2);
    assert_eq!(burst.general(&read), ErrorStatus::GeneralFailure, "E05");
    assert_eq!(burst.general(&write), ErrorStatus::None);
    assert_eq!(bench.copy_to(buffer, 2), Ok(vec![11.0, 22.0]));
    assert_eq!(burst.register(&read), ErrorStatus::None);
    for _ in 0..3 {
        assert_eq!(burst.fire(None), ErrorStatus::None);
        assert_eq!(floats(&mapping, 6)[4..], [21.0, 42.0]);
    }
    assert_eq!(burst.register(&write), ErrorStatus::None);
    assert_eq!(
        burst.fire(Some(NonZeroU64::MIN)),
        ErrorStatus::MissedDeadlinePersistent
    );
    assert_eq!(bench.copy_to(buffer, 2), Err(ErrorStatus::GeneralFailure));
    assert_eq!(burst.fire(None), ErrorStatus::None);
    let release = Call::Release {
        object: Object::Buffer(buffer.buffer),
    };
    bench.client.call(release, &[]).unwrap();
    assert_eq!(burst.fire(None), ErrorStatus::InvalidArgument, "freed");
    assert_eq!(burst.general(&write), ErrorStatus::InvalidArgument, "E01");
}

/// A burst, spoken by hand.
struct Burst {
    end: ChannelEnd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Burst {
    fn configure(bench: &mut Bench, model: PreparedModelHandle) -> Burst {
        let size = ChannelSize {
            outgoing: 64,
            incoming: 64,
        };
        let (end, memory) = ChannelEnd::create(size, WaitSettings::Sleep).unwrap();
        let call = Call::ConfigureBurst {
            prepared_model: model,
            polling_window_ns: None,
        };
        let configured = bench.client.call(call, &[memory.as_fd()]);
        assert!(matches!(configured, Ok(Reply::Burst(_))), "{configured:?}");
        Burst {
            end,
            buffer: Vec::new(),
            sequence: 0,
        }
    }

    fn header(&mut self, deadline_ns: Option<NonZeroU64>) -> RequestHeader {
        self.sequence += 1;
        RequestHeader {
            sequence: self.sequence,
            measure: MeasureTiming::No,
            fencing: Fencing::No,
            deadline_ns,
        }
    }

    fn general(&mut self, request: &RequestWithMemories) -> ErrorStatus {
        let header = self.header(None);
        burst::encode_general(&mut self.buffer, &header, &request.request, &pools(request), &[]);
        self.answer()
    }

    fn register(&mut self, request: &RequestWithMemories) -> ErrorStatus {
        let sequence = self.header(None).sequence;
        burst::encode_register(&mut self.buffer, sequence, 0, &request.request, &pools(request));
        self.answer()
    }

    fn fire(&mut self, deadline_ns: Option<NonZeroU64>) -> ErrorStatus {
        let header = self.header(deadline_ns);
        burst::encode_fire(&mut self.buffer, &header, 0, &[]);
        self.answer()
    }

    fn answer(&mut self) -> ErrorStatus {
        self.end.producer.send(&self.buffer).unwrap();
        let mut packet = self.end.consumer.new_packet();
        let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
        self.end.consumer.receive(&mut packet, deadline).unwrap();
        let mut body = ResultBody::default();
        let (header, _) = burst::decode_result(packet.bytes(), &mut body).unwrap();
        assert_eq!(header.sequence, self.sequence);
        header.status
    }
}

fn pools(request: &RequestWithMemories) -> Vec<Pool> {
    let mut memories = request.memories.iter();
    let pool = |pool: &RequestPool| match *pool {
        RequestPool::Memory { .. } => Pool::Memory(*memories.next().unwrap()),
        RequestPool::Token(token) => Pool::Buffer(token),
    };
    request.request.pools.iter().map(pool).collect()
}
