//! Bytes to messages and back: the one place that knows the encoding.
//!
//! The encoding is bincode's with integers of fixed size, so that what a message claims to hold and the bytes that it
//! occupies are the same thing. Decoding allocates for a string or a block of bytes only what a limit allows that is
//! at most four times the size of what arrived; lists grow as their elements are decoded, from at most the 1 MiB that
//! serde reserves ahead. Bytes that are left over are an error.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian, NoLimit};
use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest encoded message, [`crate::wire::Inbox`] refuses longer ones unread. Models are the only messages that
/// come near: a graph of a million operations fits, and large constants belong into pools.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// What is wrong with bytes, or with a value that cannot become bytes.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are no message.
    #[error("failed to decode a message: {0}")]
    Decode(#[from] DecodeError),
    /// The value has no encoding.
    #[error("failed to encode a message: {0}")]
    Encode(#[from] EncodeError),
    /// Something follows the message.
    #[error("{extra} bytes follow the end of a message")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
    /// Longer than [`MAX_MESSAGE`].
    #[error(
        "a message of {length} bytes is longer than the {MAX_MESSAGE} bytes that are accepted; put large constants into memory pools"
    )]
    TooLong {
        /// How long.
        length: u64,
    },
}

const ENCODING: Configuration<LittleEndian, Fixint, NoLimit> =
    bincode::config::standard().with_fixed_int_encoding();

/// Appends the encoding of `value` to `bytes`.
///
/// # Errors
///
/// [`CodecError::TooLong`] beyond [`MAX_MESSAGE`]; then `bytes` is as it was.
pub fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = bytes.len();
    if let Err(error) = bincode::serde::encode_into_std_write(value, bytes, ENCODING) {
        bytes.truncate(start);
        return Err(error.into());
    }
    let length = bytes.len() - start;
    if length > MAX_MESSAGE {
        bytes.truncate(start);
        return Err(CodecError::TooLong {
            length: length as u64,
        });
    }
    Ok(())
}

/// The encoding of `value`.
///
/// # Errors
///
/// As [`encode_into`].
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// The value that `bytes` encode, all of them.
///
/// # Errors
///
/// Anything but the exact encoding of a `T` is a [`CodecError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    // The limit is a type, hence the steps.
    match bytes.len() {
        0..=0x400 => decode_within::<T, 0x400>(bytes),
        0x401..=0x1000 => decode_within::<T, 0x1000>(bytes),
        0x1001..=0x4000 => decode_within::<T, 0x4000>(bytes),
        0x4001..=0x1_0000 => decode_within::<T, 0x1_0000>(bytes),
        0x1_0001..=0x4_0000 => decode_within::<T, 0x4_0000>(bytes),
        0x4_0001..=0x10_0000 => decode_within::<T, 0x10_0000>(bytes),
        0x10_0001..=0x40_0000 => decode_within::<T, 0x40_0000>(bytes),
        0x40_0001..=0x100_0000 => decode_within::<T, 0x100_0000>(bytes),
        0x100_0001..=MAX_MESSAGE => decode_within::<T, MAX_MESSAGE>(bytes),
        length => Err(CodecError::TooLong {
            length: length as u64,
        }),
    }
}

fn decode_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, CodecError> {
    let encoding: Configuration<LittleEndian, Fixint, Limit<LIMIT>> = ENCODING.with_limit::<LIMIT>();
    let (value, used) = bincode::serde::decode_from_slice(bytes, encoding)?;
    match bytes.len() - used {
        0 => Ok(value),
        extra => Err(CodecError::TrailingBytes { extra }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_survives_at_every_step_of_the_limit() {
        for length in [
            0_usize, 1000, 1015, 1016, 1017, 1024, 5000, 70_000, 300_000, 5_000_000, 20_000_000,
        ] {
            let value = "x".repeat(length);
            assert!(
                decode::<String>(&encode(&value).unwrap()).unwrap() == value,
                "{length}"
            );
        }
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = encode(&7_u32).unwrap();
        bytes.push(0);
        assert!(matches!(
            decode::<u32>(&bytes),
            Err(CodecError::TrailingBytes { extra: 1 })
        ));
    }

    #[test]
    fn length_beyond_the_bytes_is_refused() {
        for claim in [u64::MAX, 1 << 40, 1 << 24, 100] {
            let mut bytes = encode(&claim).unwrap();
            bytes.extend_from_slice(b"short");
            assert!(decode::<String>(&bytes).is_err());
            assert!(decode::<Vec<u32>>(&bytes).is_err());
            assert!(decode::<Vec<Vec<Vec<String>>>>(&bytes).is_err());
        }
    }

    #[test]
    fn encode_beyond_the_cap_is_refused_and_leaves_nothing() {
        let mut bytes = vec![1];
        let error = encode_into(&"x".repeat(MAX_MESSAGE), &mut bytes).unwrap_err();
        assert!(matches!(error, CodecError::TooLong { .. }), "{error}");
        assert_eq!(bytes, [1]);
        assert!(matches!(
            decode::<String>(&vec![0; MAX_MESSAGE + 1]),
            Err(CodecError::TooLong { .. })
        ));
    }
}
