//! Reading and writing of packets, little-endian and bounded.

/// Why bytes are not a packet. The other side is broken or hostile; the ring itself is still in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// It ends before what it announces.
    #[error("the packet ends at byte {at}, {wanted} bytes before the end of its {what}")]
    Truncated {
        /// Where it ends.
        at: usize,
        /// How many bytes are missing.
        wanted: usize,
        /// What was being read.
        what: &'static str,
    },
    /// A field has a value that means nothing.
    #[error("the packet's {what} is {value}, which means nothing")]
    Value {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// More follows than the zeros that fill its last cell.
    #[error("the packet has bytes after its end, from byte {at}")]
    Trailing {
        /// The first of them.
        at: usize,
    },
}

/// Reads a packet from its start.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], PacketError> {
        let left = self.bytes.len() - self.at;
        if length > left {
            return Err(PacketError::Truncated {
                at: self.bytes.len(),
                wanted: length - left,
                what,
            });
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    #[inline]
    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, PacketError> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4, what)?);
        Ok(u32::from_le_bytes(word))
    }

    /// So many words that follow each other.
    #[inline]
    pub(super) fn words<const N: usize>(&mut self, what: &'static str) -> Result<[u32; N], PacketError> {
        let (bytes, _) = self.take(4 * N, what)?.as_chunks::<4>();
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes) {
            *word = u32::from_le_bytes(*bytes);
        }
        Ok(words)
    }

    #[inline]
    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, PacketError> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take(8, what)?);
        Ok(u64::from_le_bytes(word))
    }

    /// A count of things that take at least `size` bytes each, which must be there.
    pub(super) fn count(&mut self, size: usize, what: &'static str) -> Result<usize, PacketError> {
        let count = self.u32(what)? as usize;
        self.expect(count, size, what)?;
        Ok(count)
    }

    /// So many things that take at least `size` bytes each must be there.
    #[inline]
    pub(super) fn expect(&self, count: usize, size: usize, what: &'static str) -> Result<(), PacketError> {
        let left = self.bytes.len() - self.at;
        let needed = count.saturating_mul(size);
        if needed > left {
            return Err(PacketError::Truncated {
                at: self.bytes.len(),
                wanted: needed - left,
                what,
            });
        }
        Ok(())
    }

    /// Values of this many bytes, after which the packet must end; all that is left if it is less.
    pub(super) fn inline(mut self, size: usize) -> Result<&'a [u8], PacketError> {
        if size >= self.bytes.len() - self.at {
            return Ok(self.rest());
        }
        let values = self.take(size, "values")?;
        self.finish()?;
        Ok(values)
    }

    /// What is left, all of it.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The packet must end here, but for the zeros that fill its last cell.
    pub(super) fn finish(self) -> Result<(), PacketError> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|byte| *byte != 0) {
            None if rest.len() < crate::fmq::PAYLOAD_BYTES => Ok(()),
            None => Err(PacketError::Trailing { at: self.at }),
            Some(offset) => Err(PacketError::Trailing { at: self.at + offset }),
        }
    }
}

/// Copies values that travel in a packet. Four bytes, one value of most types, are copied as such: calling
/// what copies many takes longer, and the processor hands on at once what is read as it was stored.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_values(from: &[u8], to: &mut [u8]) {
    match (<&[u8; 4]>::try_from(from), <&mut [u8; 4]>::try_from(&mut *to)) {
        (Ok(from), Ok(to)) => *to = *from,
        _ => to.copy_from_slice(from),
    }
}

/// Appends values that travel in a packet, as [`copy_values`] copies them.
#[inline]
pub fn put_values(buffer: &mut Vec<u8>, values: &[u8]) {
    match <[u8; 4]>::try_from(values) {
        Ok(value) => buffer.extend_from_slice(&value),
        Err(_) => buffer.extend_from_slice(values),
    }
}

#[inline]
pub(super) fn put_u32(buffer: &mut Vec<u8>, value: u32) {
    buffer.extend_from_slice(&value.to_le_bytes());
}

#[inline]
pub(super) fn put_u64(buffer: &mut Vec<u8>, value: u64) {
    buffer.extend_from_slice(&value.to_le_bytes());
}
