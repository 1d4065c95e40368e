//! Bytes to messages and back: the one place that knows the encoding.
//!
//! The encoding is bincode's with integers of fixed size. Which fields and numbers a message has, and in
//! which order, is said by its [`Wire`], never by the order in its Rust type: see
//! [`wire_record!`](crate::wire_record) and [`wire_numbers!`](crate::wire_numbers). Both sides encode and
//! decode in the version that they have agreed on.
//!
//! A count is checked against the bytes that are there before anything is allocated for it: each element
//! takes [`Wire::LEAST`] bytes, so lists take at most a few times the memory of what arrived. Bytes that are
//! left over are an error.

use bincode::config::{Configuration, Fixint, LittleEndian};
use bincode::de::{Decoder, DecoderImpl, read};
use bincode::enc::{Encoder, EncoderImpl, write};
use bincode::error::{DecodeError, EncodeError};

use super::handshake::VERSIONS;
use super::value::Wire;

/// The longest encoded message, [`crate::wire::Inbox`] refuses longer ones unread. Models are the only
/// messages that come near: a graph of a million operations fits, and large constants belong into pools.
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
    /// A count of more than the message can hold.
    #[error("a message claims {count} elements or bytes where {left} bytes are left")]
    Count {
        /// What it claims.
        count: u64,
        /// The bytes behind the count.
        left: usize,
    },
    /// A text that is not UTF-8.
    #[error("a text of a message is not UTF-8 from byte {at} on")]
    Text {
        /// The first byte that is wrong.
        at: usize,
    },
    /// A number that means nothing in the version of the protocol.
    #[error("a message has {number} for {what}, which means nothing in version {version} of the protocol")]
    Number {
        /// The type.
        what: &'static str,
        /// The number.
        number: u32,
        /// The version.
        version: u32,
    },
    /// A call that is not in the version of the protocol. It can be answered, and the connection is as good
    /// as before.
    #[error("there is no call number {number} in version {version} of the protocol")]
    UnknownCall {
        /// The id under which it was called.
        id: u64,
        /// The number.
        number: u32,
        /// The version.
        version: u32,
    },
    /// A value that the other side is too old for.
    #[error("{what} came with version {since} of the protocol, the other side speaks {version}")]
    TooNew {
        /// The value.
        what: &'static str,
        /// The first version that has it.
        since: u32,
        /// The version that was agreed on.
        version: u32,
    },
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

#[cfg(test)]
thread_local! {
    /// The variants that this thread has encoded, for the test that there are golden bytes of all.
    pub(super) static SEEN: std::cell::RefCell<std::collections::BTreeSet<&'static str>> =
        std::cell::RefCell::default();
}

type Encoding = Configuration<LittleEndian, Fixint>;

const ENCODING: Encoding = bincode::config::standard().with_fixed_int_encoding();

/// Appends the encoding of `value` in a version of the protocol to `bytes`.
///
/// # Errors
///
/// [`CodecError::TooLong`] beyond [`MAX_MESSAGE`], [`CodecError::TooNew`] if the version lacks it; then
/// `bytes` is as it was.
pub fn encode_in<T: Wire>(version: u32, value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = bytes.len();
    let mut writer = Writer {
        encoder: EncoderImpl::new(Sink(bytes), ENCODING),
        version,
    };
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
    let mut reader = Reader {
        decoder: DecoderImpl::new(Source(bytes), ENCODING, ()),
        version,
    };
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

/// Where a [`Wire`] is put.
pub struct Writer<'a> {
    encoder: EncoderImpl<Sink<'a>, Encoding>,
    version: u32,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Writer<'_> {
    /// The version of the protocol that is written.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Writes the number of a variant, `what`, which came with version `since`.
    ///
    /// # Errors
    /// [`CodecError::TooNew`] in a version before that.
    #[inline]
    pub fn number(&mut self, number: u32, since: u32, what: &'static str) -> Result<(), CodecError> {
        #[cfg(test)]
        SEEN.with_borrow_mut(|seen| seen.insert(what));
        if self.version < since {
            return Err(CodecError::TooNew {
                what,
                since,
                version: self.version,
            });
        }
        self.value(&number)
    }

    #[inline]
    pub(super) fn value<T: bincode::Encode>(&mut self, value: &T) -> Result<(), CodecError> {
        Ok(value.encode(&mut self.encoder)?)
    }

    /// Writes bytes as they are.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        Ok(write::Writer::write(self.encoder.writer(), bytes)?)
    }
}

/// Where a [`Wire`] is got from.
pub struct Reader<'a> {
    decoder: DecoderImpl<Source<'a>, Encoding, ()>,
    version: u32,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// The version of the protocol that is read.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The number of a variant.
    ///
    /// # Errors
    /// The message ends before.
    #[inline]
    pub fn number(&mut self) -> Result<u32, CodecError> {
        self.value()
    }

    #[inline]
    pub(super) fn value<T: bincode::Decode<()>>(&mut self) -> Result<T, CodecError> {
        Ok(T::decode(&mut self.decoder)?)
    }

    /// A count of elements that take at least `least` bytes each, which must be there.
    #[inline]
    pub(super) fn count(&mut self, least: usize) -> Result<usize, CodecError> {
        let count: u64 = self.value()?;
        let left = self.left();
        match usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(least.max(1)))
        {
            Some(needed) if needed <= left => Ok(count as usize),
            _ => Err(CodecError::Count { count, left }),
        }
    }

    /// Bytes as they are, as many as [`Reader::count`] has found to be there.
    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let left = self.left();
        let source = self.decoder.reader();
        let (bytes, rest) = source.0.split_at_checked(count).ok_or(CodecError::Count {
            count: count as u64,
            left,
        })?;
        source.0 = rest;
        Ok(bytes)
    }

    #[inline]
    fn left(&mut self) -> usize {
        self.decoder.reader().0.len()
    }
}

/// Appends to bytes.
struct Sink<'a>(&'a mut Vec<u8>);

impl write::Writer for Sink<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// What has not been read yet.
struct Source<'a>(&'a [u8]);

impl read::Reader for Source<'_> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<(), DecodeError> {
        match self.0.split_at_checked(into.len()) {
            Some((bytes, rest)) => {
                into.copy_from_slice(bytes);
                self.0 = rest;
            }
            None => {
                return Err(DecodeError::UnexpectedEnd {
                    additional: into.len() - self.0.len(),
                });
            }
        }
        Ok(())
    }
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
