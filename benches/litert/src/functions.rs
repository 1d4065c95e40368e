//! The functions of LiteRT's C API that one model takes, as a program that opens `libLiteRt.so` finds them.
//!
//! This is the only module that knows the library as foreign code. The declarations are this crate's own
//! account of the public headers (`litert/c/`) of LiteRT 2.3.
//!
//! The functions are declared as safe to call, for the other modules of this crate alone: each gives them an
//! object of the library, or the address of values that outlive what the library does with them.
#![allow(unsafe_code, reason = "opens a library and takes its symbols for functions")]

use std::ffi::{OsStr, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::error::Error;

/// The LiteRT whose headers the declarations agree with.
pub(crate) const VERSION: &str = "2.3";

/// `kLiteRtEnvOptionTagAutoRegisterAccelerators`: what an environment looks for, as bits of accelerators.
pub(crate) const AUTO_REGISTER_ACCELERATORS: c_int = 24;
/// `kLiteRtHwAcceleratorCpu`: XNNPACK, and LiteRT's own kernels for what that cannot compute.
pub(crate) const CPU: c_int = 1;
/// `kLiteRtTensorBufferLockModeRead`.
pub(crate) const READ: c_int = 0;
/// `kLiteRtTensorBufferLockModeWrite`.
pub(crate) const WRITE: c_int = 1;

const MAX_RANK: usize = 8;

/// An object of the library, of which only the address is known here.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    _private: [u8; 0],
}

/// A pointer to an object of the library.
pub(crate) type Pointer = *mut Object;

/// `LiteRtAny` that holds an integer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Integer {
    /// `kLiteRtAnyTypeInt`.
    kind: c_int,
    value: i64,
}

impl From<c_int> for Integer {
    fn from(value: c_int) -> Integer {
        Integer {
            kind: 2,
            value: i64::from(value),
        }
    }
}

/// `LiteRtEnvOption` with an integer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EnvironmentOption {
    pub(crate) tag: c_int,
    pub(crate) value: Integer,
}

/// `LiteRtLayout`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// The rank in seven bits, and one that says whether there are strides.
    rank_and_has_strides: u32,
    dimensions: [i32; MAX_RANK],
    strides: [u32; MAX_RANK],
}

/// `LiteRtRankedTensorType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TensorType {
    pub(crate) element_type: c_int,
    pub(crate) layout: Layout,
}

// What the headers assert of them.
const _: () = assert!(size_of::<EnvironmentOption>() == 24);
const _: () = assert!(std::mem::offset_of!(EnvironmentOption, value) == 8);
const _: () = assert!(size_of::<Layout>() == 68);
const _: () = assert!(size_of::<TensorType>() == 72);

macro_rules! functions {
    ($($name:ident($($parameter:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, by their names without `LiteRt`.
        #[allow(non_snake_case, reason = "the names are the public interface's own")]
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: extern "C" fn($($parameter),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: &Library, path: &OsStr) -> Result<Functions, Error> {
                Ok(Functions {
                    $($name: {
                        let name = concat!("LiteRt", stringify!($name));
                        // SAFETY: the function of this name has these parameters and this result in the
                        // public headers of the library, in whose name it was opened.
                        let symbol = unsafe {
                            library.get::<extern "C" fn($($parameter),*) $(-> $result)?>(name.as_bytes())
                        };
                        *symbol.map_err(|source| Error::missing(path, name, VERSION, source))?
                    },)*
                })
            }
        }
    };
}

functions! {
    CreateEnvironment(c_int, *const EnvironmentOption, *mut Pointer) -> c_int;
    DestroyEnvironment(Pointer);
    CreateModelFromFile(Pointer, *const c_char, *mut Pointer) -> c_int;
    DestroyModel(Pointer);
    GetModelSignature(Pointer, usize, *mut Pointer) -> c_int;
    GetNumSignatureInputs(Pointer, *mut usize) -> c_int;
    GetNumSignatureOutputs(Pointer, *mut usize) -> c_int;
    GetSignatureInputTensorByIndex(Pointer, usize, *mut Pointer) -> c_int;
    GetSignatureOutputTensorByIndex(Pointer, usize, *mut Pointer) -> c_int;
    GetTensorIndex(Pointer, *mut u32) -> c_int;
    GetRankedTensorType(Pointer, *mut TensorType) -> c_int;
    CreateOptions(*mut Pointer) -> c_int;
    DestroyOptions(Pointer);
    SetOptionsHardwareAccelerators(Pointer, c_int) -> c_int;
    CreateOpaqueOptions(*const c_char, *mut c_void, extern "C" fn(*mut c_void), *mut Pointer) -> c_int;
    AddOpaqueOptions(Pointer, Pointer) -> c_int;
    CreateCompiledModel(Pointer, Pointer, Pointer, *mut Pointer) -> c_int;
    DestroyCompiledModel(Pointer);
    GetCompiledModelInputTensorLayout(Pointer, usize, usize, *mut Layout) -> c_int;
    GetCompiledModelOutputTensorLayouts(Pointer, usize, usize, *mut Layout, bool) -> c_int;
    GetCompiledModelInputBufferRequirements(Pointer, usize, usize, *mut Pointer) -> c_int;
    GetCompiledModelOutputBufferRequirements(Pointer, usize, usize, *mut Pointer) -> c_int;
    CreateManagedTensorBufferFromRequirements(Pointer, *const TensorType, Pointer, *mut Pointer) -> c_int;
    DestroyTensorBuffer(Pointer);
    GetTensorBufferPackedSize(Pointer, *mut usize) -> c_int;
    LockTensorBuffer(Pointer, *mut *mut c_void, c_int) -> c_int;
    UnlockTensorBuffer(Pointer) -> c_int;
    RunCompiledModel(Pointer, usize, usize, *mut Pointer, usize, *mut Pointer) -> c_int;
}

impl Functions {
    /// Opens the library and finds its functions. It is never closed: its threads may run to the end of the
    /// process.
    pub(crate) fn open(path: &OsStr) -> Result<&'static Functions, Error> {
        // SAFETY: what loading a library runs is trusted as far as the user who named it does.
        let opened = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = opened.map_err(|source| Error::unopened(path, source))?;
        let functions = Functions::of(&library, path)?;
        std::mem::forget(library);
        Ok(Box::leak(Box::new(functions)))
    }
}

/// Writes to the memory of a buffer that is locked for writing and has at least as many bytes.
pub(crate) fn write(place: *mut c_void, bytes: &[u8]) {
    // SAFETY: the library has given the address of the locked buffer's memory, which is at least as long, and
    // which nobody else uses until it is unlocked.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
}

/// What the memory of a buffer holds that is locked for reading and has at least so many bytes.
pub(crate) fn read(place: *const c_void, count: usize) -> Vec<u8> {
    // SAFETY: the library has given the address of the locked buffer's memory, which is at least as long, and
    // which nobody writes until it is unlocked.
    let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), count) };
    bytes.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_that_is_not_there_or_another_is_refused_by_name() {
        let error = Functions::open(OsStr::new("/nowhere/libLiteRt.so")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/libLiteRt.so"), "{error}");
        let error = Functions::open(OsStr::new("libm.so.6")).unwrap_err();
        assert!(error.to_string().contains("LiteRtCreateEnvironment"), "{error}");
    }
}
