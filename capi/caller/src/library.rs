//! The library, and what calls of it have in common.

use std::ffi::{OsStr, c_int};

use nnhal_client::Memory as SharedMemory;

use crate::error::{CallError, OpenError, Result};
use crate::functions::{self, Functions, Pointer};

/// The library, opened. Copies are the same.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    pub(crate) functions: &'static Functions,
}

impl Library {
    /// Opens the library: a path, or a name that the loader looks for. It stays open as long as this process.
    ///
    /// # Errors
    /// It is not there, or lacks a function.
    pub fn open(name: impl AsRef<OsStr>) -> std::result::Result<Library, OpenError> {
        Ok(Library {
            functions: Functions::open(name.as_ref())?,
        })
    }

    /// The devices, by name.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn device_names(self) -> Result<Vec<String>> {
        let mut count = 0;
        self.checked((self.functions._getDeviceCount)(&raw mut count))?;
        (0..count).map(|index| Ok(self.device(index)?.1)).collect()
    }

    fn device(self, index: u32) -> Result<(Pointer, String)> {
        let device = self.made(|place| (self.functions._getDevice)(index, place))?;
        let mut name = std::ptr::null();
        self.checked((self.functions.Device_getName)(device, &raw mut name))?;
        Ok((device, functions::text(name)))
    }

    /// The device with this name.
    pub(crate) fn device_named(self, name: &str) -> Result<Pointer> {
        let mut index = 0;
        loop {
            // The library's own error ends the search.
            let (device, its_name) = self.device(index)?;
            if its_name == name {
                return Ok(device);
            }
            index += 1;
        }
    }

    /// The outcome of a function that returned this.
    pub(crate) fn checked(self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(CallError::new(code, self.last_error()))
    }

    /// What went wrong in this thread's last call that failed.
    pub(crate) fn last_error(self) -> String {
        functions::text((self.functions.last_error)())
    }

    /// What a function writes where it is told to.
    pub(crate) fn made(self, make: impl FnOnce(*mut Pointer) -> c_int) -> Result<Pointer> {
        let mut object = std::ptr::null_mut();
        self.checked(make(&raw mut object))?;
        Ok(object)
    }
}

/// Defines objects of the library that are freed with their owners.
macro_rules! owners {
    ($($(#[$attribute:meta])* $owner:ident = $free:ident;)*) => {$(
        $(#[$attribute])*
        #[derive(Debug)]
        pub(crate) struct $owner {
            pub(crate) library: Library,
            pub(crate) object: Pointer,
        }

        impl Drop for $owner {
            fn drop(&mut self) {
                (self.library.functions.$free)(self.object);
            }
        }
    )*};
}

owners! {
    /// A model.
    OwnedModel = Model_free;
    /// A compilation.
    OwnedCompilation = Compilation_free;
    /// An execution.
    OwnedExecution = Execution_free;
    /// A burst.
    OwnedBurst = Burst_free;
    /// An event.
    OwnedEvent = Event_free;
    /// A memory.
    OwnedMemory = Memory_free;
}

impl OwnedMemory {
    /// The library's object for a memory of this process.
    pub(crate) fn new(library: Library, memory: &SharedMemory, is_writable: bool) -> Result<OwnedMemory> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        const PROT_READ: c_int = 1;
        const PROT_READ_WRITE: c_int = 3;
        let fd = memory.as_fd().as_raw_fd();
        let protection = if is_writable { PROT_READ_WRITE } else { PROT_READ };
        let size = memory.size() as usize;
        let create = library.functions.Memory_createFromFd;
        let object = library.made(|place| create(size, protection, fd, 0, place))?;
        Ok(OwnedMemory { library, object })
    }

    /// Memory of a size, and the library's object for it.
    pub(crate) fn with_room(library: Library, size: usize) -> Result<(SharedMemory, OwnedMemory)> {
        let memory = SharedMemory::new(size.max(1) as u64)
            .map_err(|error| CallError::unmappable(error.to_string()))?;
        let object = OwnedMemory::new(library, &memory, true)?;
        Ok((memory, object))
    }
}
