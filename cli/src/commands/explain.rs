//! `nnhal explain`: which device runs which operation of a model, and why not another.

use std::io::Write as _;

use nnhal::hal::SubgraphIndex;
use nnhal_client::ExecutionPreference;
use nnhal_client::runtime::{CompilationOptions, Runtime, RuntimeDevice, RuntimeOptions};
use nnhal_cpu::KernelSet;

use crate::arguments::{ExplainArguments, Preference};
use crate::driver;
use crate::error::Error;
use crate::in_process::{InProcess, Kernels};

/// Compiles the model and prints what the runtime did with it.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<(), Error> {
    let model = super::import(&arguments.model)?;
    let model_here = model.model.clone();
    let model = nnhal_client::Model::from_hal(model.model, Vec::new()).share_constants()?;
    let runtime = Runtime::with(RuntimeOptions::new().devices(driver::devices_options()))?;
    let mut options = CompilationOptions::new().preference(preference(arguments.preference));
    if !arguments.device.is_empty() {
        let devices = arguments.device.iter().map(|name| device(&runtime, name));
        options = options.devices(&devices.collect::<Result<Vec<_>, _>>()?);
    }
    let compilation = runtime.compile(&model, &options)?;
    let explanation = compilation.explain();
    let mut out = std::io::stdout().lock();
    write!(out, "{explanation}")?;
    let is_fast = |at: &usize| {
        let operation = explanation.operations.get(*at);
        operation.is_some_and(|operation| operation.device == Kernels::FAST)
    };
    let operations: Vec<usize> = (0..explanation.operations.len()).filter(is_fast).collect();
    if operations.is_empty() {
        return Ok(());
    }
    // The same program as the device makes of it.
    let program = InProcess::new(model_here, KernelSet::Fast)?;
    writeln!(out, "kernels of {}:", Kernels::FAST)?;
    for at in operations {
        writeln!(
            out,
            "  operation {at} {}: {}",
            explanation.operations[at].operation,
            program.program().kernel_name(SubgraphIndex::Main, at)
        )?;
    }
    Ok(())
}

fn device(runtime: &Runtime, name: &str) -> Result<RuntimeDevice, Error> {
    let found = runtime.device(name).cloned();
    found.ok_or_else(|| {
        let names: Vec<&str> = runtime.devices().iter().map(RuntimeDevice::name).collect();
        Error::Result(format!(
            "there is no device {name}; there are {}",
            names.join(", ")
        ))
    })
}

fn preference(preference: Preference) -> ExecutionPreference {
    match preference {
        Preference::LowPower => ExecutionPreference::LowPower,
        Preference::Fast => ExecutionPreference::FastSingleAnswer,
        Preference::Sustained => ExecutionPreference::SustainedSpeed,
    }
}
