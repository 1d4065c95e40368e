//! Objects of the library that this program must give back.

use std::ffi::c_int;

use crate::error::Error;
use crate::functions::Pointer;

/// An object, destroyed when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Owned {
    pointer: Pointer,
    destroy: extern "C" fn(Pointer),
}

impl Owned {
    /// What `create`, a call of the function of this name, makes.
    pub(crate) fn new(
        function: &'static str,
        destroy: extern "C" fn(Pointer),
        create: impl FnOnce(*mut Pointer) -> c_int,
    ) -> Result<Owned, Error> {
        let pointer = made(function, create)?;
        Ok(Owned { pointer, destroy })
    }

    /// The object, for calls as long as this lives.
    pub(crate) fn pointer(&self) -> Pointer {
        self.pointer
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        (self.destroy)(self.pointer);
    }
}

/// The outcome of a call of the function of this name, which returned `status`.
pub(crate) fn checked(function: &'static str, status: c_int) -> Result<(), Error> {
    if status == 0 {
        Ok(())
    } else {
        Err(Error::Call { function, status })
    }
}

/// The pointer that `give`, a call of the function of this name, stores.
pub(crate) fn made(
    function: &'static str,
    give: impl FnOnce(*mut Pointer) -> c_int,
) -> Result<Pointer, Error> {
    let mut pointer = std::ptr::null_mut();
    checked(function, give(&raw mut pointer))?;
    Ok(pointer)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn destroy(_: Pointer) {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn object_is_destroyed_once_and_one_that_was_not_made_is_not() {
        let error = Owned::new("LiteRtCreateModelFromFile", destroy, |_| 500).unwrap_err();
        assert!(error.to_string().contains("LiteRtCreateModelFromFile"), "{error}");
        assert!(error.to_string().contains("500"), "{error}");
        assert_eq!(DESTROYED.load(Ordering::Relaxed), 0);
        drop(Owned::new("LiteRtCreateModelFromFile", destroy, |_| 0).unwrap());
        assert_eq!(DESTROYED.load(Ordering::Relaxed), 1);
    }
}
