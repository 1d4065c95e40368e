//! What messages are put into and got from: the one place that knows bincode.
//!
//! The encoding is bincode's with integers of fixed size. A count is checked against the bytes that are there
//! before anything is allocated for it.

use bincode::config::{Configuration, Fixint, LittleEndian};
use bincode::de::{Decoder, DecoderImpl, read};
use bincode::enc::{Encoder, EncoderImpl, write};
use bincode::error::{DecodeError, EncodeError};

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

/// Where a [`Wire`](super::Wire) is put.
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

impl<'a> Writer<'a> {
    /// Appends to bytes, in a version of the protocol.
    pub(super) fn new(bytes: &'a mut Vec<u8>, version: u32) -> Self {
        Writer {
            encoder: EncoderImpl::new(Sink(bytes), ENCODING),
            version,
        }
    }

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

/// Where a [`Wire`](super::Wire) is got from.
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
    /// Takes from bytes, in a version of the protocol.
    pub(super) fn new(bytes: &'a [u8], version: u32) -> Self {
        Reader {
            decoder: DecoderImpl::new(Source(bytes), ENCODING, ()),
            version,
        }
    }

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
    pub(super) fn left(&mut self) -> usize {
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
