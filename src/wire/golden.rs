//! The bytes of every message, pinned.

use super::codec::{CodecError, decode, decode_in, encode, encode_in};
use super::encoding::SEEN;
use super::handshake::{self, Refusal, Versions};
use super::samples::{ID, calls, messages, welcome};
use super::*;
use crate::golden::{Encoded, as_ever};
use nnhal_hal::{DeviceStatus, DeviceType, ErrorStatus, HalVersion};

const FILE: &str = "src/wire/golden.hex";

/// Of the handshakes.
const VERSIONS: Versions = Versions { newest: 2, oldest: 1 };

/// Enumerations all of whose values are not in the messages.
fn enumerations() -> Vec<Encoded> {
    let statuses = [
        DeviceStatus::Available,
        DeviceStatus::Busy,
        DeviceStatus::Offline,
        DeviceStatus::Unknown,
    ];
    let types = [
        DeviceType::Other,
        DeviceType::Cpu,
        DeviceType::Gpu,
        DeviceType::Accelerator,
    ];
    let versions = [
        HalVersion::V1_0,
        HalVersion::V1_1,
        HalVersion::V1_2,
        HalVersion::V1_3,
    ];
    let levels = [HalVersion::Level6, HalVersion::Level7];
    let with_levels = [&versions[..], &levels].concat();
    vec![
        as_ever(("every DeviceStatus".into(), encode(&statuses.to_vec()).unwrap())),
        as_ever(("every DeviceType".into(), encode(&types.to_vec()).unwrap())),
        as_ever(("every HalVersion".into(), encode(&versions.to_vec()).unwrap())),
        Encoded {
            name: "every HalVersion".into(),
            version: 3,
            bytes: encode(&with_levels).unwrap(),
        },
        as_ever((
            "every ErrorStatus".into(),
            encode(&ErrorStatus::ALL.to_vec()).unwrap(),
        )),
    ]
}

fn handshakes() -> Vec<(String, Vec<u8>)> {
    let refusals = [
        (Refusal::Busy, "too many clients"),
        (Refusal::ShuttingDown, "ending"),
        (Refusal::NotAllowed, "not this user"),
        (Refusal::NoWorker, "no process"),
    ];
    let mut entries = vec![
        ("hello".into(), handshake::hello(VERSIONS).to_vec()),
        (
            "welcome".into(),
            handshake::accept(VERSIONS, 2, &welcome()).unwrap(),
        ),
    ];
    for (refusal, reason) in refusals {
        let bytes = handshake::refuse(VERSIONS, refusal, reason);
        entries.push((format!("refusal {refusal:?}"), bytes));
    }
    let newer = Versions { newest: 5, oldest: 4 };
    let bytes = handshake::refuse_version(VERSIONS, newer);
    entries.push(("refusal Version".into(), bytes));
    entries
}

/// The names of all variants of all enumerations.
fn variants() -> Vec<String> {
    let mut types = Types::default();
    Welcome::describe(&mut types);
    Envelope::describe(&mut types);
    Message::describe(&mut types);
    let all = types.entries.iter().flat_map(|entry| {
        let names = entry.variants.iter().filter_map(|variant| variant.numbered);
        names.map(|(_, name)| format!("{}::{name}", entry.name))
    });
    all.collect()
}

/// A value in every version that has it. What can be decoded is encoded in the same way.
fn in_every_version<T: Wire>(name: &str, value: &T) -> Vec<Encoded> {
    let encode = |version| {
        let mut bytes = Vec::new();
        match encode_in(version, value, &mut bytes) {
            Err(CodecError::TooNew { .. }) => return None,
            result => result.unwrap(),
        }
        let mut again = Vec::new();
        let decoded = decode_in::<T>(version, &bytes).unwrap();
        encode_in(version, &decoded, &mut again).unwrap();
        assert_eq!(again, bytes, "{name}");
        let name = name.to_owned();
        Some(Encoded { name, version, bytes })
    };
    (handshake::VERSIONS.oldest..=handshake::VERSIONS.newest)
        .filter_map(encode)
        .collect()
}

#[test]
fn bytes_of_every_message_are_as_ever() {
    SEEN.take();
    let mut entries: Vec<_> = handshakes().into_iter().map(as_ever).collect();
    entries.extend(enumerations());
    entries.extend(in_every_version("structure Welcome", &welcome()));
    for (detail, call) in calls() {
        let name = match detail {
            "" => format!("call {}", call.name()),
            detail => format!("call {} of {detail}", call.name()),
        };
        let envelope = Envelope { id: ID, call };
        assert_eq!(decode::<Envelope>(&encode(&envelope).unwrap()).unwrap(), envelope);
        entries.extend(in_every_version(&name, &envelope));
    }
    for (name, message) in messages() {
        assert_eq!(decode::<Message>(&encode(&message).unwrap()).unwrap(), message);
        entries.extend(in_every_version(&name, &message));
    }
    let seen = SEEN.take();
    for variant in variants() {
        assert!(seen.contains(variant.as_str()), "no golden bytes have {variant}");
    }
    crate::golden::check(FILE, &entries);
}

#[test]
fn statuses_travel_by_their_numbers_of_the_hal() {
    for status in ErrorStatus::ALL {
        assert_eq!(encode(&status).unwrap(), status.code().to_le_bytes());
    }
}
