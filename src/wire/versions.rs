//! Peers of other versions: how messages grow, and who can talk with whom.

use super::codec::{CodecError, decode_in, encode_in};
use super::handshake::{self, HandshakeError, VERSIONS, Versions};
use super::samples::{self, ID};
use super::*;
use nnhal_hal::HalVersion;

fn bytes_in<T: Wire>(version: u32, value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    encode_in(version, value, &mut bytes)?;
    Ok(bytes)
}

#[derive(Clone, Debug, PartialEq)]
struct Grown {
    // The order in which they are declared means nothing.
    third: Vec<u16>,
    second: Option<u8>,
    first: u32,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Newer(Grown),
    Older,
}

crate::wire_record! {
    Grown { first: u32, second: Option<u8> = since 2, third: Vec<u16> = since 3 }
}

crate::wire_numbers! {
    Kind { 0 => Older, 7 since 2 => Newer(grown: Grown) }
}

fn grown() -> Grown {
    Grown {
        first: 0x0403_0201,
        second: Some(5),
        third: vec![6],
    }
}

#[test]
fn older_peers_are_sent_the_older_form_and_what_they_do_not_send_has_its_default() {
    let forms: [&[u8]; 3] = [
        &[1, 2, 3, 4],
        &[1, 2, 3, 4, 1, 5],
        &[1, 2, 3, 4, 1, 5, 1, 0, 0, 0, 0, 0, 0, 0, 6, 0],
    ];
    let mut expected = [grown(), grown(), grown()];
    expected[0].second = None;
    expected[0].third.clear();
    expected[1].third.clear();
    for (version, (form, expected)) in (1..).zip(forms.iter().zip(expected)) {
        assert_eq!(bytes_in(version, &grown()).unwrap(), *form);
        assert_eq!(decode_in::<Grown>(version, form).unwrap(), expected);
        // Inside of others as well.
        let list = bytes_in(version, &vec![grown(), grown()]).unwrap();
        assert_eq!(list[8..], [*form, *form].concat());
        assert_eq!(
            decode_in::<Vec<Grown>>(version, &list).unwrap(),
            [expected.clone(), expected]
        );
    }
    // A form belongs to one version.
    assert!(decode_in::<Grown>(1, forms[1]).is_err());
    assert!(decode_in::<Grown>(2, forms[0]).is_err());
}

#[test]
fn newer_variants_are_neither_sent_to_older_peers_nor_taken_from_them() {
    let newer = Kind::Newer(grown());
    let bytes = bytes_in(2, &newer).unwrap();
    assert_eq!(bytes, [7, 0, 0, 0, 1, 2, 3, 4, 1, 5]);
    assert!(decode_in::<Kind>(2, &bytes).is_ok());
    let unsent = bytes_in(1, &newer).unwrap_err();
    assert_eq!(
        unsent.to_string(),
        "Kind::Newer came with version 2 of the protocol, the other side speaks 1"
    );
    let untaken = decode_in::<Kind>(1, &bytes).unwrap_err();
    assert!(
        matches!(
            untaken,
            CodecError::Number {
                what: "Kind",
                number: 7,
                version: 1
            }
        ),
        "{untaken}"
    );
    assert_eq!(decode_in::<Kind>(1, &[0; 4]).unwrap(), Kind::Older);
}

/// The names of the calls that came after a version.
fn calls_after(version: u32) -> Vec<&'static str> {
    let mut types = Types::default();
    Envelope::describe(&mut types);
    let call = types.entries.iter().find(|entry| entry.name == "Call").unwrap();
    let newer = call.variants.iter().filter(|variant| variant.since > version);
    newer.filter_map(|variant| Some(variant.numbered?.1)).collect()
}

#[test]
fn peer_of_the_version_before_talks_with_this_one() {
    // Its hello: versions 2 to 2.
    let hello = b"nnhalctl\x02\0\0\0\x02\0\0\0";
    let version = VERSIONS.agree(handshake::read_hello(hello).unwrap());
    assert_eq!(version, Some(2));
    let older = Versions { newest: 2, oldest: 2 };
    let answer = handshake::accept(VERSIONS, 2, &samples::welcome()).unwrap();
    assert_eq!(
        handshake::read_answer(&answer, older).unwrap(),
        (2, samples::welcome())
    );
    assert_eq!(calls_after(2), ["CancelBurst", "GetBurstFence"]);
    // What both versions have has the golden bytes in both.
    for (_, call) in samples::calls() {
        let envelope = Envelope { id: ID, call };
        let bytes = bytes_in(3, &envelope).unwrap();
        if calls_after(2).contains(&envelope.call.name()) {
            let unknown = decode_in::<Envelope>(2, &bytes).unwrap_err();
            // Behind the id.
            let number = bytes[8];
            assert_eq!(
                unknown.to_string(),
                format!("there is no call number {number} in version 2 of the protocol")
            );
            let unsent = bytes_in(2, &envelope).unwrap_err();
            assert!(matches!(unsent, CodecError::TooNew { since: 3, .. }), "{unsent}");
        } else {
            assert_eq!(bytes_in(2, &envelope).unwrap(), bytes);
            assert_eq!(decode_in::<Envelope>(2, &bytes).unwrap(), envelope);
        }
    }
    for (name, message) in samples::messages() {
        let bytes = bytes_in(3, &message).unwrap();
        if name.contains("BurstFence") {
            let unsent = bytes_in(2, &message).unwrap_err();
            assert!(matches!(unsent, CodecError::TooNew { since: 3, .. }), "{unsent}");
            continue;
        }
        assert_eq!(bytes_in(2, &message).unwrap(), bytes, "{name}");
        assert_eq!(decode_in::<Message>(2, &bytes).unwrap(), message, "{name}");
    }
    // The versions of the HAL that it does not know are not sent to it.
    let unsent = bytes_in(2, &HalVersion::Level7).unwrap_err();
    assert!(matches!(unsent, CodecError::TooNew { since: 3, .. }), "{unsent}");
}

#[test]
fn peer_of_the_version_after_talks_with_this_one() {
    // Its hello: versions 3 to 4, and what later versions may add.
    let hello = b"nnhalctl\x04\0\0\0\x03\0\0\0more";
    assert_eq!(VERSIONS.agree(handshake::read_hello(hello).unwrap()), Some(3));
    // Its answer to this client, in the older form.
    let newer = Versions { newest: 4, oldest: 3 };
    let answer = handshake::accept(newer, 3, &samples::welcome()).unwrap();
    assert_eq!(
        handshake::read_answer(&answer, VERSIONS).unwrap(),
        (3, samples::welcome())
    );
    // A call that it should not have made can be answered.
    let mut bytes = 7_u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[18, 0, 0, 0, 1, 2, 3]);
    let unknown = decode_in::<Envelope>(3, &bytes).unwrap_err();
    assert!(
        matches!(
            unknown,
            CodecError::UnknownCall {
                id: 7,
                number: 18,
                version: 3
            }
        ),
        "{unknown}"
    );
}

#[test]
fn peers_two_versions_apart_are_refused_with_both_versions() {
    let newer = Versions { newest: 5, oldest: 4 };
    assert_eq!(VERSIONS.agree(newer), None);
    let answer = handshake::refuse_version(VERSIONS, newer);
    let text = "the driver speaks protocol 2 to 3, this client 4 to 5; use a newer driver";
    assert_eq!(std::str::from_utf8(&answer[handshake::ANSWER_HEAD..]), Ok(text));
    match handshake::read_answer(&answer, newer) {
        Err(error @ HandshakeError::Version { .. }) => assert_eq!(error.to_string(), text),
        other => panic!("{other:?}"),
    }
    let answer = handshake::refuse_version(newer, VERSIONS);
    let error = handshake::read_answer(&answer, VERSIONS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the driver speaks protocol 4 to 5, this client 2 to 3; use a newer client library"
    );
}
