//! A model that LiteRT has compiled for the processor, with its buffers.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::functions::{AUTO_REGISTER_ACCELERATORS, CPU, EnvironmentOption, Functions, Pointer};
use crate::owned::{Owned, checked, made};
use crate::signature::{SIGNATURE, Signature};

/// A model that is ready to run. What is declared later is destroyed later.
#[derive(Debug)]
pub(crate) struct Session {
    functions: &'static Functions,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    compiled: Owned,
    /// The compiled model refers to it.
    _model: Owned,
    _environment: Owned,
}

impl Session {
    /// Compiles the model in a file for so many threads.
    pub(crate) fn open(functions: &'static Functions, path: &Path, threads: usize) -> Result<Session, Error> {
        let environment = environment(functions)?;
        let model = model(functions, &environment, path)?;
        let before = threads_of_this_process()?;
        let compiled = compile(functions, &environment, &model, threads)?;
        // The caller's thread computes, too.
        let found = (threads_of_this_process()? + 1).saturating_sub(before);
        if found != threads {
            return Err(Error::Threads {
                wanted: threads,
                found,
            });
        }
        let signature = Signature::of(functions, &environment, &model, &compiled)?;
        Ok(Session {
            functions,
            inputs: signature.inputs()?,
            outputs: signature.outputs()?,
            compiled,
            _model: model,
            _environment: environment,
        })
    }

    /// The buffers of the inputs.
    pub(crate) fn inputs(&self) -> &[Buffer] {
        &self.inputs
    }

    /// The buffers of the outputs.
    pub(crate) fn outputs(&self) -> &[Buffer] {
        &self.outputs
    }

    /// A call of the model, which can be made again and again.
    pub(crate) fn call(&self) -> impl FnMut() -> Result<(), Error> + use<'_> {
        let mut inputs: Vec<Pointer> = self.inputs.iter().map(Buffer::pointer).collect();
        let mut outputs: Vec<Pointer> = self.outputs.iter().map(Buffer::pointer).collect();
        let (run, compiled) = (self.functions.RunCompiledModel, self.compiled.pointer());
        move || {
            let status = run(
                compiled,
                SIGNATURE,
                inputs.len(),
                inputs.as_mut_ptr(),
                outputs.len(),
                outputs.as_mut_ptr(),
            );
            checked("LiteRtRunCompiledModel", status)
        }
    }
}

/// An environment that knows the processor alone: others are libraries of their own, with threads of their
/// own.
fn environment(functions: &'static Functions) -> Result<Owned, Error> {
    let option = EnvironmentOption {
        tag: AUTO_REGISTER_ACCELERATORS,
        value: CPU.into(),
    };
    Owned::new("LiteRtCreateEnvironment", functions.DestroyEnvironment, |place| {
        (functions.CreateEnvironment)(1, &raw const option, place)
    })
}

fn model(functions: &'static Functions, environment: &Owned, path: &Path) -> Result<Owned, Error> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Path { path: path.into() })?;
    Owned::new("LiteRtCreateModelFromFile", functions.DestroyModel, |place| {
        (functions.CreateModelFromFile)(environment.pointer(), name.as_ptr(), place)
    })
}

fn compile(
    functions: &'static Functions,
    environment: &Owned,
    model: &Owned,
    threads: usize,
) -> Result<Owned, Error> {
    // It is read while the model is compiled.
    let processor = CString::new(format!("num_threads = {threads}\n")).expect("there is no NUL in it");
    let options = options(functions, &processor)?;
    Owned::new(
        "LiteRtCreateCompiledModel",
        functions.DestroyCompiledModel,
        |place| {
            (functions.CreateCompiledModel)(environment.pointer(), model.pointer(), options.pointer(), place)
        },
    )
}

/// Options for the processor. Its own are a text, of which the options keep the address.
fn options(functions: &'static Functions, processor: &CString) -> Result<Owned, Error> {
    let options = Owned::new("LiteRtCreateOptions", functions.DestroyOptions, |place| {
        (functions.CreateOptions)(place)
    })?;
    checked(
        "LiteRtSetOptionsHardwareAccelerators",
        (functions.SetOptionsHardwareAccelerators)(options.pointer(), CPU),
    )?;
    let text = processor.as_ptr().cast_mut().cast();
    let for_processor = made("LiteRtCreateOpaqueOptions", |place| {
        (functions.CreateOpaqueOptions)(c"xnnpack".as_ptr(), text, leave, place)
    })?;
    // From here on they are the other options'.
    checked(
        "LiteRtAddOpaqueOptions",
        (functions.AddOpaqueOptions)(options.pointer(), for_processor),
    )?;
    Ok(options)
}

/// Destroys nothing: the text is its caller's.
extern "C" fn leave(_: *mut c_void) {}

fn threads_of_this_process() -> Result<usize, Error> {
    let path = Path::new("/proc/self/task");
    let tasks = std::fs::read_dir(path).map_err(|source| Error::Read {
        path: path.into(),
        source,
    })?;
    Ok(tasks.count())
}
