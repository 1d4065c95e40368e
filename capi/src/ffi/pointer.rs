//! Pointers as the caller hands them over.
//!
//! The types here stand in the signatures of the exported functions, where they are pointers to the caller. A
//! value of them comes into being at no other place than in a call of those, so each has the caller's
//! promise, which is that of every C interface: it is NULL, or points to as many values as the interface
//! says, for as long as the call lasts. NULL is told before anything is read. Addresses of objects are looked
//! up and never followed ([`crate::handles`]).
#![allow(unsafe_code, reason = "reads and writes what the caller's pointers point to")]

use std::ffi::{CStr, OsString, c_char, c_void};
use std::os::unix::ffi::OsStringExt as _;

use super::{CallerBuffer, CallerBytes};
use crate::result::{Failure, Outcome};

/// Values that any bytes of their size are.
///
/// # Safety
/// Only for types that have no invalid bytes and no padding that is read.
pub unsafe trait Plain: Copy {}

// SAFETY: any four bytes are a number.
unsafe impl Plain for u32 {}
// SAFETY: any four bytes are a number.
unsafe impl Plain for f32 {}
// SAFETY: any byte is a number.
unsafe impl Plain for u8 {}
// SAFETY: a pointer that may have any value, which is never followed.
unsafe impl<T> Plain for ConstHandle<T> {}

/// A pointer to values that a function reads.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `UNEXPECTED_NULL` if it is NULL.
    pub(crate) fn expect(self, name: &str) -> Outcome {
        self.required(name).map(drop)
    }

    fn required(self, name: &str) -> Outcome<*const T> {
        if self.is_null() {
            Err(Failure::null(name))
        } else {
            Ok(self.0)
        }
    }
}

impl<T: Plain> In<T> {
    /// The value.
    pub(crate) fn read(self, name: &str) -> Outcome<T> {
        let pointer = self.required(name)?;
        // SAFETY: it is not NULL, so the caller has promised a value; it need not be aligned.
        Ok(unsafe { pointer.read_unaligned() })
    }

    /// The value, unless the pointer is NULL.
    pub(crate) fn optional(self) -> Option<T> {
        // Most arguments come without a type, and the text of a failure costs more than the rest of the call.
        if self.is_null() {
            return None;
        }
        self.read("").ok()
    }

    /// A list of this many values.
    pub(crate) fn list(self, count: u32, name: &str) -> Outcome<Vec<T>> {
        let pointer = self.required(name)?;
        let at = |index: u32| {
            let pointer = pointer.wrapping_add(index as usize);
            // SAFETY: below the number of values that the caller has promised.
            unsafe { pointer.read_unaligned() }
        };
        Ok((0..count).map(at).collect())
    }
}

impl In<c_char> {
    /// The text up to its NUL.
    pub(crate) fn text(self, name: &str) -> Outcome<OsString> {
        let pointer = self.required(name)?;
        // SAFETY: it is not NULL, so the caller has promised a text that ends with NUL.
        let text = unsafe { CStr::from_ptr(pointer) };
        Ok(OsString::from_vec(text.to_bytes().to_vec()))
    }
}

impl In<c_void> {
    /// This many bytes, which the caller leaves alone for longer than this call.
    pub(crate) fn bytes(self, length: usize, name: &str) -> Outcome<CallerBytes> {
        let pointer: *const u8 = self.required(name)?.cast();
        expect_range(pointer.addr(), length, name)?;
        Ok(CallerBytes::new(pointer, length))
    }
}

/// A pointer to where a function writes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `UNEXPECTED_NULL` if it is NULL.
    pub(crate) fn expect(self, name: &str) -> Outcome {
        if self.is_null() {
            Err(Failure::null(name))
        } else {
            Ok(())
        }
    }

    /// Writes the value; does nothing if the pointer is NULL.
    pub(crate) fn write(self, value: T) {
        if !self.is_null() {
            // SAFETY: it is not NULL, so the caller has promised room for a value; it need not be aligned.
            unsafe { self.0.write_unaligned(value) }
        }
    }
}

impl<T: Copy> Out<T> {
    /// Writes values one after the other.
    pub(crate) fn write_all(self, values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            Out(self.0.wrapping_add(index)).write(*value);
        }
    }
}

impl Out<c_void> {
    /// Room for this many bytes, which the caller leaves alone for longer than this call.
    pub(crate) fn room(self, length: usize, name: &str) -> Outcome<CallerBuffer> {
        self.expect(name)?;
        expect_range(self.0.addr(), length, name)?;
        Ok(CallerBuffer::new(self.0.cast(), length))
    }
}

/// Refuses a range of bytes that no process can have.
fn expect_range(address: usize, length: usize, name: &str) -> Outcome {
    if isize::try_from(length).is_ok() && address.checked_add(length).is_some() {
        return Ok(());
    }
    Err(Failure::bad_data(format!(
        "{name} has {length} bytes from {address:#x}, which is more than there is"
    )))
}

impl<T> Out<Handle<T>> {
    /// Writes NULL, so that a call that fails leaves no pointer behind. `UNEXPECTED_NULL` if it is NULL
    /// itself.
    pub(crate) fn clear(self, name: &str) -> Outcome {
        self.expect(name)?;
        self.write(Handle::with_address(0));
        Ok(())
    }
}

/// A pointer to an object of this library.
#[repr(transparent)]
#[derive(Debug)]
pub struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    pub(crate) fn address(&self) -> usize {
        self.0.addr()
    }

    /// `UNEXPECTED_NULL` if it is NULL.
    pub(crate) fn expect(&self, name: &str) -> Outcome {
        expect_given(self.address(), name)
    }

    /// The pointer that has this address; it is never followed.
    pub(crate) fn with_address(address: usize) -> Handle<T> {
        Handle(std::ptr::without_provenance_mut(address))
    }
}

/// A pointer to an object of this library that the function does not change.
#[repr(transparent)]
#[derive(Debug)]
pub struct ConstHandle<T>(*const T);

impl<T> Clone for ConstHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ConstHandle<T> {}

impl<T> ConstHandle<T> {
    pub(crate) fn address(&self) -> usize {
        self.0.addr()
    }

    /// `UNEXPECTED_NULL` if it is NULL.
    pub(crate) fn expect(&self, name: &str) -> Outcome {
        expect_given(self.address(), name)
    }
}

fn expect_given(address: usize, name: &str) -> Outcome {
    if address == 0 {
        Err(Failure::null(name))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_that_no_process_can_have_is_refused() {
        let mut byte = 0_u8;
        let place = Out::<c_void>((&raw mut byte).cast());
        let bytes = In::<c_void>((&raw const byte).cast());
        for length in [isize::MAX as usize + 1, usize::MAX] {
            assert!(place.room(length, "buffer").is_err());
            assert!(bytes.bytes(length, "buffer").is_err());
        }
        // One that wraps around the end of the address space.
        let last = Out::<c_void>(std::ptr::without_provenance_mut(usize::MAX - 7));
        assert!(last.room(9, "buffer").is_err());
        assert!(place.room(1, "buffer").is_ok() && bytes.bytes(1, "buffer").is_ok());
    }
}
