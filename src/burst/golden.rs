//! The bytes of every packet, pinned.

use std::num::NonZeroU64;

use super::*;
use crate::wire::Handle;
use nnhal_hal::{
    DataLocation, ErrorStatus, MeasureTiming, OutputShape, Request, RequestArgument, RequestPool, Timing,
};

const FILE: &str = "src/burst/golden.hex";
const SEQUENCE: u32 = 0x0403_0201;
const LAYOUT: u16 = 0x0102;

fn header() -> RequestHeader {
    RequestHeader {
        sequence: SEQUENCE,
        measure: MeasureTiming::Yes,
        fencing: Fencing::No,
        deadline_ns: NonZeroU64::new(0x1122_3344_5566_7788),
    }
}

fn body() -> (Request, Vec<Pool>) {
    let argument = |start: u32, dimensions: &[u32]| RequestArgument {
        has_no_value: false,
        location: DataLocation {
            pool_index: start,
            offset: start + 1,
            length: start + 2,
        },
        dimensions: dimensions.to_vec(),
    };
    let omitted = RequestArgument {
        has_no_value: true,
        ..RequestArgument::default()
    };
    let memory = Handle {
        index: 3,
        generation: 4,
    };
    let pools = vec![
        Pool::Memory(memory.into()),
        Pool::Buffer(7),
        Pool::InlineInputs(4),
        Pool::InlineOutputs(8),
    ];
    let request = Request {
        inputs: vec![argument(0x10, &[5, 6]), omitted],
        outputs: vec![argument(0x20, &[])],
        pools: vec![RequestPool::Token(0); pools.len()],
    };
    (request, pools)
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let (request, pools) = body();
    let encoded = |name: &str, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let mut read = RequestBody::default();
        let packet = decode_request(&bytes, &mut read).unwrap();
        assert_eq!(claimed_sequence(&bytes), SEQUENCE);
        // The name starts with the packet's kind: a new one needs an entry.
        let (kind, has_body) = match packet {
            RequestPacket::General { .. } => ("general", true),
            RequestPacket::Register { .. } => ("register", true),
            RequestPacket::Fire { .. } => ("fire", false),
            RequestPacket::Unregister { .. } => ("unregister", false),
        };
        assert_eq!(Some(kind), name.split(' ').next());
        if has_body {
            let arguments = (read.request.inputs, read.request.outputs);
            assert_eq!(arguments, body_arguments());
            assert_eq!(read.pools, body().1);
        }
        (format!("request {name}"), bytes)
    };
    let fire = |bytes: &mut Vec<u8>, fencing| {
        let header = RequestHeader { fencing, ..header() };
        encode_fire(bytes, &header, LAYOUT, &[]);
    };
    vec![
        encoded("general", &|bytes| {
            encode_general(bytes, &header(), &request, &pools, &[0xA1, 0xA2, 0xA3, 0xA4]);
        }),
        encoded("register", &|bytes| {
            encode_register(bytes, SEQUENCE, LAYOUT, &request, &pools);
        }),
        encoded("fire", &|bytes| {
            encode_fire(bytes, &header(), LAYOUT, &[0xB1, 0xB2])
        }),
        encoded("register fenced", &|bytes| {
            encode_register_fenced(bytes, SEQUENCE, LAYOUT, &request, &pools);
        }),
        encoded("fire fenced", &|bytes| fire(bytes, Fencing::Fenced)),
        encoded("fire behind another", &|bytes| fire(bytes, Fencing::Behind)),
        encoded("unregister", &|bytes| encode_unregister(bytes, SEQUENCE, LAYOUT)),
    ]
}

fn body_arguments() -> (Vec<RequestArgument>, Vec<RequestArgument>) {
    let (request, _) = body();
    (request.inputs, request.outputs)
}

fn results() -> Vec<(String, Vec<u8>)> {
    let timing = Timing {
        time_on_device_us: 0x31,
        time_in_driver_us: 0x32,
    };
    let shapes = [
        OutputShape {
            dimensions: vec![2, 3],
            is_sufficient: true,
        },
        OutputShape {
            dimensions: Vec::new(),
            is_sufficient: false,
        },
    ];
    let success = |timing, with_shapes: bool, inline: &[u8]| {
        let mut bytes = Vec::new();
        let mut pairs = shapes
            .iter()
            .map(|shape| (&shape.dimensions[..], shape.is_sufficient));
        let pairs: Option<&mut dyn ExactSizeIterator<Item = (&[u32], bool)>> =
            if with_shapes { Some(&mut pairs) } else { None };
        encode_success(&mut bytes, SEQUENCE, timing, pairs, inline);
        bytes
    };
    let failure = |status, shapes: &[OutputShape]| {
        let mut bytes = Vec::new();
        encode_failure(&mut bytes, SEQUENCE, status, shapes, "zu spät");
        bytes
    };
    let entries = [
        ("success", success(Timing::NONE, false, &[0xC1, 0xC2, 0xC3])),
        ("success with timing and shapes", success(timing, true, &[0xC4])),
        ("failure", failure(ErrorStatus::MissedDeadlineTransient, &[])),
        (
            "failure with shapes",
            failure(ErrorStatus::OutputInsufficientSize, &shapes),
        ),
    ];
    for (name, bytes) in &entries {
        let mut read = ResultBody::default();
        let (header, _) = decode_result(bytes, &mut read).unwrap();
        assert_eq!(header.sequence, SEQUENCE, "{name}");
        assert_eq!(header.has_shapes, read.shapes == shapes, "{name}");
    }
    entries
        .map(|(name, bytes)| (format!("result {name}"), bytes))
        .into()
}

#[test]
fn bytes_of_every_packet_are_as_ever() {
    let mut entries = requests();
    entries.extend(results());
    let entries: Vec<_> = entries.into_iter().map(crate::golden::as_ever).collect();
    crate::golden::check(FILE, &entries);
}
