//! The functions of the library, as a program that opens it finds them.
//!
//! This is the only module that knows the library as foreign code. The list below is this crate's own account
//! of the interface, taken from the public API and not from the library's sources, so that calling by it
//! tests the binary interface; a test holds it to the header.
//!
//! The functions are declared as safe to call, for the other modules of this crate alone: each gives them
//! NULL, an object of the library, or the address of values that outlive what the library does with them.
#![allow(unsafe_code, reason = "opens a library and takes its symbols for functions")]

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::error::OpenError;

/// An object of the library, of which only the address is known here.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    _private: [u8; 0],
}

/// A pointer to an object of the library.
pub(crate) type Pointer = *mut Object;

/// `ANeuralNetworksOperandType`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OperandType {
    pub(crate) code: i32,
    pub(crate) dimension_count: u32,
    pub(crate) dimensions: *const u32,
    pub(crate) scale: f32,
    pub(crate) zero_point: i32,
}

/// `ANeuralNetworksSymmPerChannelQuantParams`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ChannelScales {
    pub(crate) channel_dim: u32,
    pub(crate) scale_count: u32,
    pub(crate) scales: *const f32,
}

macro_rules! functions {
    ($($prefix:ident { $($name:ident($($parameter:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions, by their names without the prefix.
        #[allow(non_snake_case, reason = "the names are the public interface's own")]
        #[derive(Debug)]
        pub(crate) struct Functions {
            $($(pub(crate) $name: extern "C" fn($($parameter),*) $(-> $result)?,)*)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, OpenError> {
                Ok(Functions {
                    $($($name: {
                        let name = concat!(stringify!($prefix), stringify!($name));
                        // SAFETY: the function of this name has these parameters and this result in the
                        // public API, in whose name the library was opened; a test compares them with the
                        // header.
                        let symbol = unsafe {
                            library.get::<extern "C" fn($($parameter),*) $(-> $result)?>(name.as_bytes())
                        };
                        *symbol.map_err(|error| OpenError::missing(name, &error))?
                    },)*)*
                })
            }
        }

        /// The functions by their whole names, with the types of their parameters.
        #[cfg(test)]
        const LIST: &[(&str, &[&str])] = &[
            $($((concat!(stringify!($prefix), stringify!($name)), &[$(stringify!($parameter)),*]),)*)*
        ];
    };
}

functions! {
    ANeuralNetworks {
        _getDeviceCount(*mut u32) -> c_int;
        _getDevice(u32, *mut Pointer) -> c_int;
        Device_getName(Pointer, *mut *const c_char) -> c_int;
        Memory_createFromFd(usize, c_int, c_int, usize, *mut Pointer) -> c_int;
        Memory_free(Pointer);
        Model_create(*mut Pointer) -> c_int;
        Model_free(Pointer);
        Model_finish(Pointer) -> c_int;
        Model_addOperand(Pointer, *const OperandType) -> c_int;
        Model_setOperandValue(Pointer, i32, *const c_void, usize) -> c_int;
        Model_setOperandValueFromMemory(Pointer, i32, Pointer, usize, usize) -> c_int;
        Model_setOperandValueFromModel(Pointer, i32, Pointer) -> c_int;
        Model_setOperandSymmPerChannelQuantParams(Pointer, i32, *const ChannelScales) -> c_int;
        Model_addOperation(Pointer, i32, u32, *const u32, u32, *const u32) -> c_int;
        Model_identifyInputsAndOutputs(Pointer, u32, *const u32, u32, *const u32) -> c_int;
        Model_relaxComputationFloat32toFloat16(Pointer, bool) -> c_int;
        Model_getSupportedOperationsForDevices(Pointer, *const Pointer, u32, *mut bool) -> c_int;
        Compilation_create(Pointer, *mut Pointer) -> c_int;
        Compilation_createForDevices(Pointer, *const Pointer, u32, *mut Pointer) -> c_int;
        Compilation_free(Pointer);
        Compilation_finish(Pointer) -> c_int;
        Execution_create(Pointer, *mut Pointer) -> c_int;
        Execution_free(Pointer);
        Execution_setInput(Pointer, i32, *const OperandType, *const c_void, usize) -> c_int;
        Execution_setInputFromMemory(Pointer, i32, *const OperandType, Pointer, usize, usize) -> c_int;
        Execution_setOutput(Pointer, i32, *const OperandType, *mut c_void, usize) -> c_int;
        Execution_setOutputFromMemory(Pointer, i32, *const OperandType, Pointer, usize, usize) -> c_int;
        Execution_setMeasureTiming(Pointer, bool) -> c_int;
        Execution_setLoopTimeout(Pointer, u64) -> c_int;
        Execution_setReusable(Pointer, bool) -> c_int;
        Execution_compute(Pointer) -> c_int;
        Execution_burstCompute(Pointer, Pointer) -> c_int;
        Execution_startCompute(Pointer, *mut Pointer) -> c_int;
        Execution_startComputeWithDependencies(Pointer, *const Pointer, u32, u64, *mut Pointer) -> c_int;
        Execution_getDuration(Pointer, i32, *mut u64) -> c_int;
        Execution_getOutputOperandRank(Pointer, i32, *mut u32) -> c_int;
        Execution_getOutputOperandDimensions(Pointer, i32, *mut u32) -> c_int;
        Burst_create(Pointer, *mut Pointer) -> c_int;
        Burst_free(Pointer);
        Event_wait(Pointer) -> c_int;
        Event_free(Pointer);
    }
    nnhal_ {
        last_error() -> *const c_char;
    }
}

impl Functions {
    /// Opens the library and finds its functions. It is never closed: its threads and those of its drivers'
    /// connections run to the end of the process.
    pub(crate) fn open(name: &OsStr) -> Result<&'static Functions, OpenError> {
        // SAFETY: what loading a library runs is trusted as far as the user who named it does;
        // libneuralnetworks.so runs nothing when it is opened.
        let opened = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL) };
        let library = opened.map_err(|error| OpenError::unopened(name, &error))?;
        let functions = Functions::of(&library)?;
        std::mem::forget(library);
        Ok(Box::leak(Box::new(functions)))
    }
}

/// A text of the library; empty for NULL.
pub(crate) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: it is not NULL, and comes from a function of the library that gives a text that ends with NUL
    // and stays at least until this thread's next call.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    OsStr::from_bytes(text.to_bytes()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters of a function in the header.
    fn parameters<'a>(header: &'a str, name: &str) -> Option<Vec<&'a str>> {
        let (_, after) = header.split_once(&format!("{name}("))?;
        let (list, _) = after.split_once(')')?;
        let parameters = list.split(',').map(str::trim);
        Some(parameters.filter(|parameter| *parameter != "void").collect())
    }

    /// What a parameter of the header is here. Constant pointers and others are alike in a call, and so are
    /// those to objects.
    fn is_alike(in_header: &str, here: &str) -> bool {
        let stars = in_header.matches('*').count();
        let stars_here = here.matches('*').count() + usize::from(here.contains("Pointer"));
        let scalar = [
            ("size_t", "usize"),
            ("uint64_t", "u64"),
            ("uint32_t", "u32"),
            ("int32_t", "i32"),
            ("bool", "bool"),
            ("ANeuralNetworksOperationType", "i32"),
            ("int ", "c_int"),
        ];
        let found = scalar.iter().find(|(c, _)| in_header.contains(c));
        stars == stars_here && (stars > 0 || found.is_some_and(|(_, rust)| *rust == here))
    }

    #[test]
    fn list_is_that_of_the_header() {
        let header = include_str!("../../include/NeuralNetworks.h");
        for (name, here) in LIST {
            let in_header = parameters(header, name).unwrap_or_else(|| panic!("{name} is not in the header"));
            assert_eq!(in_header.len(), here.len(), "{name}: {in_header:?}, {here:?}");
            for (in_header, here) in in_header.iter().zip(*here) {
                assert!(is_alike(in_header, here), "{name}: {in_header}, {here}");
            }
        }
    }

    #[test]
    fn library_that_is_not_there_or_another_is_refused_by_name() {
        let error = Functions::open(OsStr::new("/nowhere/libneuralnetworks.so")).unwrap_err();
        assert!(
            error.to_string().contains("/nowhere/libneuralnetworks.so"),
            "{error}"
        );
        let error = Functions::open(OsStr::new("libm.so.6")).unwrap_err();
        assert!(
            error.to_string().contains("ANeuralNetworks_getDeviceCount"),
            "{error}"
        );
    }
}
