//! One case: what its seed draws, carried out in this process.

use std::io::Write as _;
use std::process::ExitCode;

use super::case::Case;
use super::outcome::Outcome;
use super::scenarios::SCENARIOS;
use crate::arguments::StressArguments;
use crate::error::Error;

/// Runs the case of the seed on the device that the arguments name, and tells by the exit code how it ended.
pub(crate) fn run_one(arguments: &StressArguments) -> Result<ExitCode, Error> {
    let Some(device) = arguments.device.first() else {
        return Err(Error::Result("a case needs a device".into()));
    };
    let mut case = Case::open(device, arguments.seed)?;
    let (name, scenario) = *case.pick(&SCENARIOS);
    let outcome = match scenario(&mut case) {
        Ok(()) => Outcome::Success,
        Err(text) => {
            let mut said = std::io::stderr().lock();
            writeln!(said, "{name}: {text}")?;
            match case.death() {
                Some(death) => {
                    writeln!(said, "{death}")?;
                    Outcome::Crash
                }
                None => Outcome::Failure,
            }
        }
    };
    Ok(ExitCode::from(outcome.code()))
}
