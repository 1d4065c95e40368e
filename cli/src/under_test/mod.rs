//! What `nnhal vts` tests: a device, the runtime, the C API, or kernels in this process, each as an
//! implementation of the HAL.

mod capi;
mod device;
mod device_arguments;
mod runtime;

use std::io::Write as _;
use std::sync::Arc;

use nnhal_client::Device;
use nnhal_conformance::implementation::{Form, Implementation};
use nnhal_conformance::in_process::InProcess;
use nnhal_cpu::KernelSet;
use nnhal_hal::tflite;

use self::capi::CapiUnderTest;
pub(crate) use self::device::DeviceUnderTest;
use self::runtime::{RuntimeSetting, RuntimeUnderTest, Seen};
use crate::arguments::{MemoryKind, Via, VtsArguments};
use crate::driver;
use crate::error::Error;
use crate::in_process::Kernels;

/// What is known of the implementation that is tested.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Its name in reports.
    pub(crate) name: String,
    /// The kernels in this process whose bytes it gives, if a device computes every model with one set of
    /// them.
    pub(crate) kernels: Option<KernelSet>,
    /// Whether it has the extension with what TFLite computes and NNAPI lacks.
    pub(crate) has_extension: bool,
}

/// What is done with an implementation, whichever it is.
pub(crate) trait Task {
    /// What comes of it.
    type Output;

    /// Does it; each thread makes an implementation of its own.
    fn run<I: Implementation>(
        self,
        subject: &Subject,
        make: impl Fn() -> Result<I, String> + Sync,
    ) -> Result<Self::Output, Error>;
}

/// Where the arguments of executions are, if they go through the driver.
pub(crate) fn memory(arguments: &VtsArguments) -> Result<MemoryKind, Error> {
    match (arguments.via, arguments.memory) {
        (Via::Device, None | Some(MemoryKind::Shared)) => Ok(MemoryKind::Shared),
        (Via::Device, Some(MemoryKind::Device)) => Ok(MemoryKind::Device),
        (Via::Device, Some(MemoryKind::Own)) => Err(Error::Result(
            "a device is tested with `--memory shared` or `device`; own memory is the runtime's and the C API's".into(),
        )),
        (Via::Runtime | Via::Capi, None | Some(MemoryKind::Own)) => Ok(MemoryKind::Own),
        (Via::Runtime | Via::Capi, Some(MemoryKind::Shared)) => Ok(MemoryKind::Shared),
        (Via::Runtime | Via::Capi, Some(MemoryKind::Device)) => Err(Error::Result(
            "the runtime and the C API are tested with `--memory own` or `shared`".into(),
        )),
    }
}

/// Does `task` with the implementation that the arguments name, which executes in these forms. Without forms,
/// it is the executor in this process.
pub(crate) fn with_subject<T: Task>(
    arguments: &VtsArguments,
    forms: &[Form],
    task: T,
) -> Result<T::Output, Error> {
    let memory = memory(arguments)?;
    match arguments.via {
        Via::Device if forms.is_empty() => {
            let kernels = Kernels::of_device(arguments.device.as_deref())?;
            let subject = Subject {
                name: kernels.device.to_owned(),
                // There are no others to compare them with.
                kernels: None,
                has_extension: true,
            };
            task.run(&subject, || Ok(InProcess::new(kernels.set)))
        }
        Via::Runtime | Via::Capi if forms.is_empty() => Err(Error::Result(
            "the runtime and the C API are not tested without a driver; leave --path out".into(),
        )),
        Via::Device => {
            let devices = driver::devices()?;
            // Opened once for all, so that an unknown name fails before anything runs, and one private driver
            // serves.
            let device = driver::device(&devices, arguments.device.as_deref())?;
            let subject = Subject {
                name: device.name().to_owned(),
                kernels: Kernels::of_device(Some(device.name()))
                    .ok()
                    .map(|kernels| kernels.set),
                has_extension: has_extension(&device),
            };
            task.run(&subject, || {
                DeviceUnderTest::open(&devices, device.name(), forms, memory)
                    .map_err(|error| error.to_string())
            })
        }
        Via::Runtime => {
            let seen = Arc::new(Seen::default());
            let setting = RuntimeSetting {
                devices: driver::devices_options(),
                device: arguments.device.clone(),
                is_split: arguments.split,
                forms: forms.to_vec(),
                memory,
                seen: Arc::clone(&seen),
            };
            let subject = Subject {
                name: match &arguments.device {
                    Some(device) => format!("{device}, through the runtime"),
                    None => "the runtime".to_owned(),
                },
                kernels: None,
                has_extension: false,
            };
            let output = task.run(&subject, || RuntimeUnderTest::open(&setting))?;
            writeln!(std::io::stderr(), "{seen}")?;
            Ok(output)
        }
        Via::Capi => {
            let library = capi::open(arguments.library.as_deref())?;
            let device = capi::device(library, arguments.device.as_deref())?;
            let subject = Subject {
                name: format!("{device}, through the C API"),
                kernels: None,
                has_extension: false,
            };
            let implementation = CapiUnderTest {
                library,
                device,
                forms: forms.to_vec(),
                memory,
            };
            task.run(&subject, || Ok(implementation.clone()))
        }
    }
}

/// Whether a device has the extension with what TFLite computes and NNAPI lacks.
pub(crate) fn has_extension(device: &Device) -> bool {
    let mut extensions = device.info().extensions.iter();
    extensions.any(|extension| extension.name == tflite::NAME)
}
