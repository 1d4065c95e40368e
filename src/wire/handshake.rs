//! The first message each way, in a layout that no version may change.
//!
//! A client opens with its magic number and the range of versions it speaks. The driver answers with its own
//! range, a verdict, and behind that a text (when it refuses) or the encoded [`super::Welcome`] (when it
//! accepts). Integers are little-endian.
//!
//! | hello: offset | bytes | |
//! |--:|--:|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 4 | newest version the client speaks |
//! | 12 | 4 | oldest version the client speaks |
//! | 16 | | room for later versions; ignored |
//!
//! | answer: offset | bytes | |
//! |--:|--:|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 4 | newest version the driver speaks |
//! | 12 | 4 | oldest version the driver speaks |
//! | 16 | 4 | verdict: 0 accepted, otherwise the number of a [`Refusal`] |
//! | 20 | 4 | the version both go on with; 0 if refused |
//! | 24 | | [`super::Welcome`], or the reason as UTF-8 |

use nnhal_hal::{HalVersion, MAX_NUMBER_OF_CACHE_FILES, NumberOfCacheFiles};

use super::Welcome;
use super::codec::{self, CodecError};
use super::protocol_version::LEVELS_SINCE;

pub use super::protocol_version::{CANCEL_BURST_SINCE, FENCED_BURSTS_SINCE, VERSIONS, Versions};

/// Opens every hello and every answer.
pub const MAGIC: [u8; 8] = *b"nnhalctl";

/// Bytes of a hello.
pub const HELLO_SIZE: usize = 16;

/// Bytes of an answer before its text or welcome.
pub const ANSWER_HEAD: usize = 24;

/// Why a driver does not serve a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They have no version in common.
    Version,
    /// The driver serves as many clients as it may, in all or of this user; try again later.
    Busy,
    /// The driver is ending.
    ShuttingDown,
    /// This user may not use the driver.
    NotAllowed,
    /// The driver could not start a worker.
    NoWorker,
    /// Something else, from a later release.
    Other(u32),
}

impl Refusal {
    const KNOWN: [Refusal; 5] = [
        Refusal::Version,
        Refusal::Busy,
        Refusal::ShuttingDown,
        Refusal::NotAllowed,
        Refusal::NoWorker,
    ];

    fn code(self) -> u32 {
        match self {
            Refusal::Version => 1,
            Refusal::Busy => 2,
            Refusal::ShuttingDown => 3,
            Refusal::NotAllowed => 4,
            Refusal::NoWorker => 5,
            Refusal::Other(code) => code,
        }
    }

    fn from_code(code: u32) -> Refusal {
        Refusal::KNOWN
            .into_iter()
            .find(|known| known.code() == code)
            .unwrap_or(Refusal::Other(code))
    }

    /// Whether the same client may be served if it tries again.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Refusal::Busy | Refusal::ShuttingDown | Refusal::NoWorker)
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The other side is not nnhal.
    #[error("the other side does not speak nnhal's control protocol")]
    NotNnhal,
    /// No version in common.
    #[error("the driver speaks protocol {driver}, this client {client}; {}", advice(*.driver, *.client))]
    Version {
        /// What the driver speaks.
        driver: Versions,
        /// What the client speaks.
        client: Versions,
    },
    /// The driver refuses for another reason.
    #[error("the driver refused the connection: {reason}")]
    Refused {
        /// What kind of reason.
        refusal: Refusal,
        /// The driver's words.
        reason: String,
    },
    /// The driver accepted, and then its welcome was unreadable.
    #[error("the driver's welcome is malformed: {0}")]
    Welcome(#[from] CodecError),
    /// The driver's device wants more cache files than the HAL lets it.
    #[error(
        "the driver's device wants {} and {} cache files, and may have {MAX_NUMBER_OF_CACHE_FILES} of each kind",
        .0.model, .0.data
    )]
    CacheFiles(NumberOfCacheFiles),
}

fn advice(driver: Versions, client: Versions) -> &'static str {
    if driver.oldest > client.newest {
        "use a newer client library"
    } else {
        "use a newer driver"
    }
}

/// A client's first message.
#[must_use]
pub fn hello(versions: Versions) -> [u8; HELLO_SIZE] {
    let mut bytes = [0; HELLO_SIZE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&versions.newest.to_le_bytes());
    bytes[12..].copy_from_slice(&versions.oldest.to_le_bytes());
    bytes
}

/// The versions in a client's first message.
///
/// # Errors
///
/// [`HandshakeError::NotNnhal`] if it is no hello.
pub fn read_hello(bytes: &[u8]) -> Result<Versions, HandshakeError> {
    read_versions(bytes).ok_or(HandshakeError::NotNnhal)
}

/// The driver's answer to a client that it serves. One that knows no version of the HAL after 1.3 takes a
/// newer device for one of 1.3, and asks it for nothing else.
///
/// # Errors
///
/// [`CodecError`] if the welcome cannot be encoded.
pub fn accept(driver: Versions, version: u32, welcome: &Welcome) -> Result<Vec<u8>, CodecError> {
    let mut bytes = answer_head(driver, 0, version);
    if version < LEVELS_SINCE && welcome.device.hal_version > HalVersion::V1_3 {
        let mut older = welcome.clone();
        older.device.hal_version = HalVersion::V1_3;
        codec::encode_in(version, &older, &mut bytes)?;
    } else {
        codec::encode_in(version, welcome, &mut bytes)?;
    }
    Ok(bytes)
}

/// The driver's answer to a client that it does not serve.
#[must_use]
pub fn refuse(driver: Versions, refusal: Refusal, reason: &str) -> Vec<u8> {
    let mut bytes = answer_head(driver, refusal.code(), 0);
    bytes.extend_from_slice(reason.as_bytes());
    bytes
}

/// The driver's answer to a client that speaks none of its versions. The text names both, for clients that do
/// not word it themselves.
#[must_use]
pub fn refuse_version(driver: Versions, client: Versions) -> Vec<u8> {
    let reason = HandshakeError::Version { driver, client };
    refuse(driver, Refusal::Version, &reason.to_string())
}

/// What a driver answered a client that speaks `client`.
///
/// # Errors
///
/// Whatever is not a welcome in a version that the client speaks.
pub fn read_answer(bytes: &[u8], client: Versions) -> Result<(u32, Welcome), HandshakeError> {
    let driver = read_versions(bytes).ok_or(HandshakeError::NotNnhal)?;
    let verdict = read_u32(bytes, 16).ok_or(HandshakeError::NotNnhal)?;
    let version = read_u32(bytes, 20).ok_or(HandshakeError::NotNnhal)?;
    let rest = bytes.get(ANSWER_HEAD..).ok_or(HandshakeError::NotNnhal)?;
    match verdict {
        0 if (client.oldest..=client.newest).contains(&version) => {
            let welcome: Welcome = codec::decode_in(version, rest)?;
            let files = welcome.device.cache_files;
            if files.is_valid() {
                Ok((version, welcome))
            } else {
                Err(HandshakeError::CacheFiles(files))
            }
        }
        0 => Err(HandshakeError::Version { driver, client }),
        code => match Refusal::from_code(code) {
            Refusal::Version => Err(HandshakeError::Version { driver, client }),
            refusal => Err(HandshakeError::Refused {
                refusal,
                reason: String::from_utf8_lossy(rest).into_owned(),
            }),
        },
    }
}

fn answer_head(driver: Versions, verdict: u32, version: u32) -> Vec<u8> {
    let mut bytes = hello(driver).to_vec();
    bytes.extend_from_slice(&verdict.to_le_bytes());
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes
}

fn read_versions(bytes: &[u8]) -> Option<Versions> {
    if bytes.get(..8)? != MAGIC {
        return None;
    }
    Some(Versions {
        newest: read_u32(bytes, 8)?,
        oldest: read_u32(bytes, 12)?,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::properties::welcome;

    const OLD: Versions = Versions { newest: 2, oldest: 1 };
    const NEW: Versions = Versions { newest: 5, oldest: 3 };

    #[test]
    fn versions_agree_on_the_newest_common_one() {
        assert_eq!(OLD.agree(OLD), Some(2));
        assert_eq!(OLD.agree(Versions { newest: 9, oldest: 2 }), Some(2));
        assert_eq!(OLD.agree(NEW), None);
        assert_eq!(NEW.agree(OLD), None);
    }

    #[test]
    fn welcome_arrives() {
        assert_eq!(read_hello(&hello(VERSIONS)).unwrap(), VERSIONS);
        let answer = accept(VERSIONS, 2, &welcome()).unwrap();
        assert_eq!(read_answer(&answer, VERSIONS).unwrap(), (2, welcome()));
    }

    #[test]
    fn device_of_a_later_feature_level_is_one_of_1_3_for_older_clients() {
        let mut newest = welcome();
        newest.device.hal_version = HalVersion::LATEST;
        let told = |version| {
            let answer = accept(VERSIONS, version, &newest).unwrap();
            read_answer(&answer, VERSIONS).unwrap().1
        };
        assert_eq!(told(LEVELS_SINCE - 1), welcome());
        assert_eq!(told(LEVELS_SINCE), newest);
    }

    #[test]
    fn device_that_wants_more_cache_files_than_it_may_is_refused() {
        let mut welcome = welcome();
        for (model, data, is_valid) in [
            (32, 32, true),
            (33, 0, false),
            (0, 33, false),
            (u32::MAX, u32::MAX, false),
        ] {
            welcome.device.cache_files = NumberOfCacheFiles { model, data };
            let answer = accept(VERSIONS, VERSIONS.oldest, &welcome).unwrap();
            let read = read_answer(&answer, VERSIONS);
            assert_eq!(read.is_ok(), is_valid, "{model}, {data}: {read:?}");
        }
    }

    #[test]
    fn refusal_for_the_version_names_both() {
        let newer = read_answer(&refuse(NEW, Refusal::Version, ""), OLD).unwrap_err();
        assert_eq!(
            newer.to_string(),
            "the driver speaks protocol 3 to 5, this client 1 to 2; use a newer client library"
        );
        let older = read_answer(&refuse(OLD, Refusal::Version, ""), NEW).unwrap_err();
        assert!(older.to_string().ends_with("use a newer driver"), "{older}");
    }

    #[test]
    fn acceptance_in_a_version_the_client_does_not_speak_is_refused() {
        let answer = accept(NEW, 4, &welcome()).unwrap();
        assert!(matches!(
            read_answer(&answer, OLD),
            Err(HandshakeError::Version { .. })
        ));
    }

    #[test]
    fn refusal_carries_its_reason() {
        for refusal in [Refusal::Busy, Refusal::ShuttingDown, Refusal::Other(99)] {
            match read_answer(&refuse(OLD, refusal, "because"), OLD) {
                Err(HandshakeError::Refused {
                    refusal: read,
                    reason,
                }) => {
                    assert_eq!((read, reason.as_str()), (refusal, "because"));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn truncated_or_foreign_messages_are_refused() {
        let answer = accept(VERSIONS, 2, &welcome()).unwrap();
        for length in 0..answer.len() {
            assert!(read_answer(&answer[..length], VERSIONS).is_err(), "{length}");
        }
        let greeting = hello(VERSIONS);
        for length in 0..greeting.len() {
            assert!(read_hello(&greeting[..length]).is_err(), "{length}");
        }
        assert!(matches!(
            read_hello(b"GET / HTTP/1.1\r\n"),
            Err(HandshakeError::NotNnhal)
        ));
    }
}
