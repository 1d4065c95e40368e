//! One case: what its seed draws, carried out in this process.

use std::process::ExitCode;

use nnhal_client::Devices;
use nnhal_conformance::generator::choices::{Choices, Random};
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_conformance::implementation::Form;

use super::outcome::Outcome;
use super::scenarios::SCENARIOS;
use crate::arguments::{MemoryKind, StressArguments};
use crate::driver;
use crate::error::Error;
use crate::in_process::Kernels;
use crate::under_test::{DeviceUnderTest, Subject};

/// The ways to execute.
pub(super) const FORMS: [Form; 4] = [Form::Synchronous, Form::Burst, Form::Asynchronous, Form::Fenced];

/// Why a case is no success.
pub(super) type Checked = Result<(), String>;

/// Runs the case of the seed on the device that the arguments name, and tells by the exit code how it ended.
pub(crate) fn run_one(arguments: &StressArguments) -> Result<ExitCode, Error> {
    use std::io::Write as _;
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

/// What a scenario works with.
pub(super) struct Case {
    pub(super) devices: Devices,
    pub(super) random: Random,
    /// What the results of this device are compared with.
    pub(super) subject: Subject,
    pub(super) under_test: DeviceUnderTest,
}

impl Case {
    fn open(device: &str, seed: u64) -> Result<Case, Error> {
        let devices = driver::devices()?;
        let mut random = Random::new(seed);
        let memory = match random.below(2) {
            0 => MemoryKind::Shared,
            _ => MemoryKind::Device,
        };
        let under_test = DeviceUnderTest::open(&devices, device, &FORMS, memory)?;
        let subject = Subject {
            name: device.to_owned(),
            kernels: Kernels::of_device(Some(device)).ok().map(|kernels| kernels.set),
        };
        Ok(Case {
            devices,
            random,
            subject,
            under_test,
        })
    }

    /// One of them.
    pub(super) fn pick<'a, T, const N: usize>(&mut self, items: &'a [T; N]) -> &'a T {
        // The number is below N.
        &items[self.random.below(N as u32) as usize]
    }

    /// A random model with a request.
    pub(super) fn model(&mut self) -> Generated {
        loop {
            let mut choices = Choices::from_seed(self.random.bits());
            if let Some(generated) = Recipe::default().generate(&mut choices) {
                return generated;
            }
        }
    }

    /// How the worker died, if it is dead. The call asks it for something, since only calls notice.
    fn death(&self) -> Option<nnhal_client::Error> {
        let device = self.under_test.device_in_use();
        let asked = device.status().err();
        device
            .ended()
            .or(asked)
            .filter(nnhal_client::Error::is_dead_object)
    }
}
