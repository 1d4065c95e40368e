//! Bytes to messages and back.
//!
//! The encoding is bincode's (`encoding.rs`). Which fields and numbers a message has, and in
//! which order, is said by its [`Wire`], never by the order in its Rust type: see
//! [`wire_record!`](crate::wire_record) and [`wire_numbers!`](crate::wire_numbers). Both sides encode and
//! decode in the version that they have agreed on.
//!
//! A count is checked against the bytes that are there before anything is allocated for it: each element
//! takes [`Wire::LEAST`] bytes, so lists take at most a few times the memory of what arrived. Bytes that are
//! left over are an error.

use super::protocol_version::VERSIONS;
use super::value::Wire;

pub use super::encoding::{CodecError, MAX_MESSAGE, Reader, Writer};

/// Appends the encoding of `value` in a version of the protocol to `bytes`.
///
/// # Errors
///
/// [`CodecError::TooLong`] beyond [`MAX_MESSAGE`], [`CodecError::TooNew`] if the version lacks it; then
/// `bytes` is as it was.
pub fn encode_in<T: Wire>(version: u32, value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = bytes.len();
    let mut writer = Writer::new(bytes, version);
    let mut result = value.put(&mut writer);
    let length = bytes.len() - start;
    if result.is_ok() && length > MAX_MESSAGE {
        result = Err(CodecError::TooLong {
            length: length as u64,
        });
    }
    if result.is_err() {
        bytes.truncate(start);
    }
    result
}

/// The encoding of `value` in the newest version.
///
/// # Errors
///
/// As [`encode_in`].
pub fn encode<T: Wire>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    encode_in(VERSIONS.newest, value, &mut bytes)?;
    Ok(bytes)
}

/// The value that `bytes` encode in a version of the protocol, all of them.
///
/// # Errors
///
/// Anything but the exact encoding of a `T` is a [`CodecError`].
pub fn decode_in<T: Wire>(version: u32, bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLong {
            length: bytes.len() as u64,
        });
    }
    let mut reader = Reader::new(bytes, version);
    let value = T::get(&mut reader)?;
    match reader.left() {
        0 => Ok(value),
        extra => Err(CodecError::TrailingBytes { extra }),
    }
}

/// The value that `bytes` encode in the newest version.
///
/// # Errors
///
/// As [`decode_in`].
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_in(VERSIONS.newest, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn count_beyond_the_bytes_is_refused() {
        for claim in [u64::MAX, 1 << 63, 1 << 40, 1 << 24, 100, 6] {
            let mut bytes = encode(&claim).unwrap();
            bytes.extend_from_slice(b"short");
            for refused in [
                decode::<String>(&bytes).err(),
                decode::<Vec<u8>>(&bytes).err(),
                decode::<Vec<u32>>(&bytes).err(),
                decode::<Vec<Vec<Vec<String>>>>(&bytes).err(),
            ] {
                assert!(
                    matches!(refused, Some(CodecError::Count { left: 5, .. })),
                    "{refused:?}"
                );
            }
        }
    }

    #[test]
    fn values_have_one_encoding() {
        assert!(decode::<bool>(&[2]).is_err());
        assert!(decode::<Option<u8>>(&[2, 0]).is_err());
        assert!(decode::<Result<u8, u8>>(&[2, 0, 0, 0, 0]).is_err());
        let text = decode::<String>(&[2, 0, 0, 0, 0, 0, 0, 0, b'a', 0xFF]);
        assert!(matches!(text, Err(CodecError::Text { at: 1 })), "{text:?}");
    }

    #[test]
    fn encode_beyond_the_cap_is_refused_and_leaves_nothing() {
        let mut bytes = vec![1];
        let error = encode_in(VERSIONS.newest, &"x".repeat(MAX_MESSAGE), &mut bytes).unwrap_err();
        assert!(matches!(error, CodecError::TooLong { .. }), "{error}");
        assert_eq!(bytes, [1]);
        assert!(matches!(
            decode::<String>(&vec![0; MAX_MESSAGE + 1]),
            Err(CodecError::TooLong { .. })
        ));
    }
}
