//! What a case works with: a device, and random numbers that its seed gives.

use nnhal_client::Devices;
use nnhal_conformance::generator::choices::{Choices, Random};
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_conformance::implementation::Form;

use crate::arguments::MemoryKind;
use crate::driver;
use crate::error::Error;
use crate::in_process::Kernels;
use crate::under_test::{DeviceUnderTest, Subject};

/// The ways to execute.
pub(super) const FORMS: [Form; 4] = [Form::Synchronous, Form::Burst, Form::Asynchronous, Form::Fenced];

/// Why a case is no success.
pub(super) type Checked = Result<(), String>;

/// What a scenario works with.
pub(super) struct Case {
    pub(super) devices: Devices,
    pub(super) random: Random,
    /// What the results of this device are compared with.
    pub(super) subject: Subject,
    pub(super) under_test: DeviceUnderTest,
    /// How the worker of another connection of the case died.
    pub(super) death_of_another: Option<nnhal_client::Error>,
}

impl Case {
    pub(super) fn open(device: &str, seed: u64) -> Result<Case, Error> {
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
            // The models of stress are NNAPI's.
            has_extension: false,
        };
        Ok(Case {
            devices,
            random,
            subject,
            under_test,
            death_of_another: None,
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

    /// How a worker of the case died, if one is dead.
    pub(super) fn death(&mut self) -> Option<nnhal_client::Error> {
        let other = self.death_of_another.take();
        other.or_else(|| death_of(&self.under_test))
    }
}

/// How the worker of a connection died, if it is dead. The call asks it for something, since only calls
/// notice.
pub(super) fn death_of(under_test: &DeviceUnderTest) -> Option<nnhal_client::Error> {
    let device = under_test.device_in_use();
    let asked = device.status().err();
    device
        .ended()
        .or(asked)
        .filter(nnhal_client::Error::is_dead_object)
}
