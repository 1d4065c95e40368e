//! Bytes of the caller that outlive the call that named them: values of operands, and arguments of
//! executions.
//!
//! The interface has the caller keep them where they are, and not touch them, until the model is freed or the
//! execution has ended. That promise is what the blocks here stand on.
#![allow(unsafe_code, reason = "reads and writes bytes of the caller")]

/// Bytes that the caller keeps for reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerBytes {
    address: *const u8,
    length: usize,
}

/// Memory that the caller keeps for writing. There is one value for it, so that its bytes have one reference
/// at a time.
#[derive(Debug)]
pub(crate) struct CallerBuffer {
    address: *mut u8,
    length: usize,
}

// SAFETY: the caller's promise holds for the process, not for a thread.
unsafe impl Send for CallerBytes {}
// SAFETY: as above; they are only read.
unsafe impl Sync for CallerBytes {}
// SAFETY: as above.
unsafe impl Send for CallerBuffer {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for CallerBuffer {}

impl CallerBytes {
    /// `address` is not null; the caller promises `length` bytes there, no more than `isize::MAX` and not
    /// beyond the end of the address space.
    pub(super) fn new(address: *const u8, length: usize) -> CallerBytes {
        CallerBytes { address, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The bytes. The caller of the interface has promised that they stay.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the address is not null and the length fits, and the caller keeps so many bytes there
        // unchanged as long as this object of the interface may use them; bytes need no alignment and have no
        // invalid values.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }
    }

    /// The first of the bytes.
    pub(crate) fn first(self, length: usize) -> CallerBytes {
        CallerBytes {
            address: self.address,
            length: self.length.min(length),
        }
    }
}

impl CallerBuffer {
    /// `address` is not null; the caller promises `length` bytes there, no more than `isize::MAX` and not
    /// beyond the end of the address space.
    pub(super) fn new(address: *mut u8, length: usize) -> CallerBuffer {
        CallerBuffer { address, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The first of the room.
    pub(crate) fn first(self, length: usize) -> CallerBuffer {
        CallerBuffer {
            address: self.address,
            length: self.length.min(length),
        }
    }

    /// The room as bytes. `self` is taken mutably so that one value gives one slice at a time; that no two
    /// rooms of an execution overlap, nor one with its inputs, is for [`overlap`] to find out before.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the address is not null and the length fits, and the caller keeps so many writable bytes
        // there for this execution alone until it has ended; this value is the only one for them, and
        // borrowed mutably; other ranges of the same execution were found not to overlap.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.length) }
    }

    /// A copy of what is in the room, which other ranges of the same execution may overlap.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.length];
        // SAFETY: the caller keeps so many bytes there, and `copy` is this library's own and as long.
        unsafe { std::ptr::copy(self.address, copy.as_mut_ptr(), self.length) }
        copy
    }

    /// Copies bytes into the room, which other ranges of the same execution may overlap.
    pub(crate) fn copy_from(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.length);
        // SAFETY: the caller keeps so many writable bytes there, and `bytes` are this library's own.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address, length) }
    }
}

/// Whether a room for writing shares bytes with another one or with bytes for reading.
pub(crate) fn overlap(read: &[CallerBytes], written: &[&CallerBuffer]) -> bool {
    let range = |address: usize, length: usize| (address, address.saturating_add(length));
    let rooms: Vec<_> = written
        .iter()
        .map(|room| range(room.address.addr(), room.length))
        .collect();
    let disjoint = |a: &(usize, usize), b: &(usize, usize)| a.1 <= b.0 || b.1 <= a.0;
    rooms.iter().enumerate().any(|(index, room)| {
        let others = rooms[index + 1..].iter();
        let inputs = read.iter().map(|bytes| range(bytes.address.addr(), bytes.length));
        others.copied().chain(inputs).any(|other| !disjoint(room, &other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_found_among_outputs_and_with_inputs() {
        let mut bytes = [0_u8; 16];
        let start = bytes.as_mut_ptr();
        let room = |offset: usize, length| CallerBuffer::new(start.wrapping_add(offset), length);
        let read = |offset: usize, length| CallerBytes::new(start.wrapping_add(offset), length);
        assert!(!overlap(&[read(0, 8), read(4, 4)], &[&room(8, 4), &room(12, 4)]));
        assert!(overlap(&[], &[&room(8, 4), &room(11, 4)]));
        assert!(overlap(&[read(0, 9)], &[&room(8, 4)]));
    }
}
