//! The C API, as the conformance procedures see it: every case goes through the functions of the shared
//! library.

use std::path::{Path, PathBuf};

use nnhal::wire::ExecutionResult;
use nnhal_capi_caller::{Arguments, CallError, Compilation, Computation, ExecutionSettings, Library, Model};
use nnhal_client::Memory;
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as ConformancePreparedModel,
};
use nnhal_hal::{Failure, MeasureTiming, OperationSupport, Timing};

use crate::arguments::MemoryKind;
use crate::error::Error;

/// The device that runs what no driver may have, such as control flow of sizes that are not known.
const CPU: &str = "nnapi-reference";

/// The library's file.
const LIBRARY: &str = "libneuralnetworks.so";

/// The library: the one that is named, else the one beside this executable, else the one that the loader
/// finds.
pub(crate) fn open(named: Option<&Path>) -> Result<Library, Error> {
    let beside = || {
        let beside = std::env::current_exe().ok()?.with_file_name(LIBRARY);
        beside.is_file().then_some(beside)
    };
    let library = match named {
        // The loader takes a name without a slash for one that it is to look for.
        Some(named) => std::path::absolute(named)?,
        None => beside().unwrap_or_else(|| PathBuf::from(LIBRARY)),
    };
    Library::open(library).map_err(|error| Error::Result(error.to_string()))
}

/// The device that is tested: the one that is named, else the library's first.
pub(crate) fn device(library: Library, named: Option<&str>) -> Result<String, Error> {
    let names = library
        .device_names()
        .map_err(|error| Error::Result(error.to_string()))?;
    let drivers = names.iter().filter(|name| *name != CPU);
    let found = match named {
        Some(named) => names.iter().find(|name| *name == named),
        None => drivers.clone().next(),
    };
    found.cloned().ok_or_else(|| {
        Error::Result(format!(
            "the C API has no device {}; it has {}. It looks for drivers as docs/settings.md says",
            named.unwrap_or("of a driver"),
            names.join(", ")
        ))
    })
}

/// The C API, for one named device, or where that cannot run a model, for all.
#[derive(Clone)]
pub(crate) struct CapiUnderTest {
    pub(crate) library: Library,
    pub(crate) device: String,
    pub(crate) forms: Vec<Form>,
    pub(crate) memory: MemoryKind,
}

impl Implementation for CapiUnderTest {
    type Prepared = CompilationUnderTest;

    fn forms(&self) -> &[Form] {
        &self.forms
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        let operations = model.model.main.operations.len();
        let answers = built(self.library, model)?
            .and_then(|built| built.supported_operations(operations, &[&self.device, CPU]));
        Ok(answers.map_err(|error| failure(&error)).map(|answers| {
            let support = |is_supported| {
                if is_supported {
                    OperationSupport::Supported
                } else {
                    OperationSupport::Unsupported {
                        reason: format!("neither {} nor {CPU} can run it", self.device),
                    }
                }
            };
            answers.into_iter().map(support).collect()
        }))
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<CompilationUnderTest> {
        let arguments = match self.memory {
            MemoryKind::Own => Arguments::Own,
            MemoryKind::Shared | MemoryKind::Device => Arguments::Memories,
        };
        let compiled = built(self.library, model)?.and_then(|built| {
            let for_device = Compilation::new(&built, &model.model, Some(&self.device));
            for_device
                .map(|compilation| CompilationUnderTest {
                    compilation,
                    arguments,
                    can_be_measured: true,
                })
                .or_else(|_| {
                    Ok(CompilationUnderTest {
                        compilation: Compilation::new(&built, &model.model, None)?,
                        arguments,
                        can_be_measured: false,
                    })
                })
        });
        Ok(compiled.map_err(|error: CallError| failure(&error)))
    }
}

/// A compiled model.
pub(crate) struct CompilationUnderTest {
    compilation: Compilation,
    arguments: Arguments,
    /// Only what is compiled for one named device can be.
    can_be_measured: bool,
}

impl ConformancePreparedModel for CompilationUnderTest {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        let settings = ExecutionSettings {
            computation: match call.form {
                Form::Synchronous => Computation::Synchronous,
                Form::Asynchronous => Computation::Asynchronous,
                Form::Burst => Computation::Burst,
                Form::Fenced => Computation::Fenced,
            },
            arguments: self.arguments,
            is_measured: self.can_be_measured && call.measure == MeasureTiming::Yes,
            loop_timeout: call
                .loop_timeout
                .map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
        };
        let mut outputs = vec![0; call.outputs];
        let result = match self
            .compilation
            .execute(call.request, &settings, call.inputs, &mut outputs)
        {
            Ok((output_shapes, timing)) => ExecutionResult {
                outcome: Ok(()),
                output_shapes,
                timing,
            },
            Err(error) => ExecutionResult {
                outcome: Err(failure(&error)),
                output_shapes: error.output_shapes,
                timing: Timing::NONE,
            },
        };
        Ok(ExecutionAnswer { result, outputs })
    }
}

fn failure(error: &CallError) -> Failure {
    Failure::new(error.status(), error.text.clone())
}

/// The model, built through the functions; its pools are in sealed memories.
fn built(library: Library, model: &ModelWithPools) -> Result<Result<Model, CallError>, Breakdown> {
    let pools = model.pools.iter().map(|bytes| Memory::sealed(&[bytes]));
    let pools = pools
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Breakdown(error.to_string()))?;
    Ok(Model::new(library, &model.model, &pools))
}
