//! `nnhal explain`: which device runs which operation of a model, and why not another.

use std::io::Write as _;

use nnhal_client::ExecutionPreference;
use nnhal_client::runtime::{CompilationOptions, Runtime, RuntimeDevice, RuntimeOptions};

use crate::arguments::{ExplainArguments, Preference};
use crate::driver;
use crate::error::Error;

/// Compiles the model and prints what the runtime did with it.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<(), Error> {
    let model = super::import(&arguments.model)?;
    let model = nnhal_client::Model::from_hal(model.model, Vec::new()).share_constants()?;
    let runtime = Runtime::with(RuntimeOptions::new().devices(driver::devices_options()))?;
    let mut options = CompilationOptions::new().preference(preference(arguments.preference));
    if !arguments.device.is_empty() {
        let devices = arguments.device.iter().map(|name| device(&runtime, name));
        options = options.devices(&devices.collect::<Result<Vec<_>, _>>()?);
    }
    let compilation = runtime.compile(&model, &options)?;
    write!(std::io::stdout().lock(), "{}", compilation.explain())?;
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
