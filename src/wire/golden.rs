//! The bytes of every message, pinned.

use super::codec::{SEEN, decode, encode};
use super::handshake::{self, Refusal, Versions};
use super::samples::{ID, calls, messages, welcome};
use super::*;
use nnhal_hal::{DeviceStatus, DeviceType, ErrorStatus, HalVersion};

const FILE: &str = "src/wire/golden.hex";

/// Of the handshakes: the frozen layout is older than both.
const VERSIONS: Versions = Versions { newest: 2, oldest: 1 };

/// Enumerations all of whose values are not in the messages.
fn enumerations() -> Vec<(String, Vec<u8>)> {
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
    vec![
        ("every DeviceStatus".into(), encode(&statuses.to_vec()).unwrap()),
        ("every DeviceType".into(), encode(&types.to_vec()).unwrap()),
        ("every HalVersion".into(), encode(&versions.to_vec()).unwrap()),
        (
            "every ErrorStatus".into(),
            encode(&ErrorStatus::ALL.to_vec()).unwrap(),
        ),
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

#[test]
fn bytes_of_every_message_are_as_ever() {
    SEEN.take();
    let mut entries = handshakes();
    for (detail, call) in calls() {
        let name = match detail {
            "" => format!("call {}", call.name()),
            detail => format!("call {} of {detail}", call.name()),
        };
        let envelope = Envelope { id: ID, call };
        let bytes = encode(&envelope).unwrap();
        assert_eq!(decode::<Envelope>(&bytes).unwrap(), envelope);
        entries.push((name, bytes));
    }
    for (name, message) in messages() {
        let bytes = encode(&message).unwrap();
        assert_eq!(decode::<Message>(&bytes).unwrap(), message);
        entries.push((name, bytes));
    }
    entries.extend(enumerations());
    let seen = SEEN.take();
    for variant in variants() {
        assert!(seen.contains(variant.as_str()), "no golden bytes have {variant}");
    }
    crate::golden::check(FILE, &entries);
}
