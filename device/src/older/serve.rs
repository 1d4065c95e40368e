//! A device of an older version as a device of the driver.

use std::sync::Arc;

use nnhal_hal::validate::{Slice, ValidModel};
use nnhal_hal::versions::v1_0::ErrorStatus as OldStatus;
use nnhal_hal::versions::{Downcast, Inexpressible, Loss};
use nnhal_hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceStatus, DeviceType, Failure, HalVersion,
    NumberOfCacheFiles, OperandType, OperationSupport,
};

use super::execution::OlderModel;
use super::failure::{refused, silence};
use super::preparation_callback;
use super::{v1_0, v1_1, v1_2};
use crate::{CACHE_FILES, Device, PrepareOptions, PreparedModel};

/// The target of what is logged of preparing models: NNAPI's tag for it.
const COMPILATION: &str = "compilation";

/// What is said of the release of a device that cannot say it itself: the NDK's word.
const UNKNOWN: &str = "UNKNOWN";

/// Makes a device of one of HAL 1.0, under this name.
///
/// # Errors
///
/// `GENERAL_FAILURE` if the device does not say what it is, or what it says breaks a rule.
pub fn serve_v1_0(name: &str, device: Arc<dyn v1_0::Device>) -> Result<Arc<dyn Device>, Failure> {
    let capabilities = answer(name, "getCapabilities", device.capabilities())?;
    let description = Description::unknown(capabilities.into());
    serve(name, Older::V1_0(device), description)
}

/// Makes a device of one of HAL 1.1, under this name.
///
/// # Errors
///
/// As [`serve_v1_0`].
pub fn serve_v1_1(name: &str, device: Arc<dyn v1_1::Device>) -> Result<Arc<dyn Device>, Failure> {
    let capabilities = answer(name, "getCapabilities_1_1", device.capabilities_1_1())?;
    let description = Description::unknown(capabilities.into());
    serve(name, Older::V1_1(device), description)
}

/// Makes a device of one of HAL 1.2, under this name.
///
/// # Errors
///
/// As [`serve_v1_0`].
pub fn serve_v1_2(name: &str, device: Arc<dyn v1_2::Device>) -> Result<Arc<dyn Device>, Failure> {
    let description = Description {
        version: answer(name, "getVersionString", device.version_string())?,
        device_type: answer(name, "getType", device.device_type())?,
        capabilities: answer(name, "getCapabilities_1_2", device.capabilities_1_2())?.into(),
        extensions: answer(name, "getSupportedExtensions", device.supported_extensions())?,
        cache_files: CACHE_FILES,
    };
    serve(name, Older::V1_2(device), description)
}

/// What an older device says of itself.
struct Description {
    version: String,
    device_type: DeviceType,
    capabilities: Capabilities,
    extensions: Vec<nnhal_hal::Extension>,
    cache_files: NumberOfCacheFiles,
}

impl Description {
    /// That of a device that can only say how fast it is. A cache would take its next release for this one.
    fn unknown(capabilities: Capabilities) -> Description {
        Description {
            version: UNKNOWN.to_owned(),
            device_type: DeviceType::Other,
            capabilities,
            extensions: Vec::new(),
            cache_files: NumberOfCacheFiles::default(),
        }
    }
}

fn serve(name: &str, device: Older, description: Description) -> Result<Arc<dyn Device>, Failure> {
    let wrong = |reason: &str| Err(Failure::general(format!("device {name}: {reason}")));
    if description.version.is_empty() {
        return wrong("its version string is empty; it must name the release");
    }
    let listed = &description.capabilities.operand_performance;
    if !listed.is_sorted_by(|left, right| left.operand_type < right.operand_type) {
        return wrong("its performance figures are not sorted by operand type, or name a type twice");
    }
    let is_of_1_2 =
        |ty: OperandType| !ty.is_extension() && ty.since().is_some_and(|since| since <= HalVersion::V1_2);
    if let Some(entry) = listed.iter().find(|entry| !is_of_1_2(entry.operand_type)) {
        return wrong(&format!(
            "it has performance figures for {}, which is no type of HAL 1.2",
            entry.operand_type
        ));
    }
    Ok(Arc::new(Served {
        info: DeviceInfo {
            name: name.to_owned(),
            version: description.version,
            device_type: description.device_type,
            hal_version: device.version(),
            capabilities: description.capabilities,
            extensions: description.extensions,
            cache_files: description.cache_files,
        },
        device,
    }))
}

/// What an older device answered, or the failure that follows.
fn answer<T>(name: &str, method: &str, result: Result<T, OldStatus>) -> Result<T, Failure> {
    result.map_err(|status| refused(name, method, status))
}

/// A device of one of the older versions.
#[derive(Debug)]
enum Older {
    V1_0(Arc<dyn v1_0::Device>),
    V1_1(Arc<dyn v1_1::Device>),
    V1_2(Arc<dyn v1_2::Device>),
}

impl Older {
    fn version(&self) -> HalVersion {
        match self {
            Older::V1_0(_) => HalVersion::V1_0,
            Older::V1_1(_) => HalVersion::V1_1,
            Older::V1_2(_) => HalVersion::V1_2,
        }
    }

    /// The names of its methods in messages.
    fn supported_operations_name(&self) -> &'static str {
        match self {
            Older::V1_0(_) => "getSupportedOperations",
            Older::V1_1(_) => "getSupportedOperations_1_1",
            Older::V1_2(_) => "getSupportedOperations_1_2",
        }
    }

    fn prepare_name(&self) -> &'static str {
        match self {
            Older::V1_0(_) => "prepareModel",
            Older::V1_1(_) => "prepareModel_1_1",
            Older::V1_2(_) => "prepareModel_1_2",
        }
    }

    fn supported_operations(
        &self,
        part: Slice,
        pools: &dyn ConstantPools,
    ) -> Result<Result<Vec<bool>, OldStatus>, Inexpressible> {
        Ok(match self {
            Older::V1_0(device) => device.supported_operations(&part.into_model_1_0()?.value, pools),
            Older::V1_1(device) => device.supported_operations_1_1(&part.into_model_1_1()?.value, pools),
            Older::V1_2(device) => device.supported_operations_1_2(&part.into_model_1_2()?.value, pools),
        })
    }

    /// Launches preparing a model. Returns what the launch gave, and what the model lost on its way down.
    fn prepare(
        &self,
        model: &ValidModel,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
        callback: super::PreparedModelCallback,
    ) -> Result<(OldStatus, Vec<Loss>), Inexpressible> {
        let preference = options.preference;
        Ok(match self {
            Older::V1_0(device) => {
                let Downcast { value, losses } = model.to_v1_0()?;
                (device.prepare_model(&value, pools, callback), losses)
            }
            Older::V1_1(device) => {
                let Downcast { value, losses } = model.to_v1_1()?;
                (
                    device.prepare_model_1_1(&value, pools, preference, callback),
                    losses,
                )
            }
            Older::V1_2(device) => {
                let Downcast { value, losses } = model.to_v1_2()?;
                (
                    device.prepare_model_1_2(&value, pools, preference, callback),
                    losses,
                )
            }
        })
    }
}

/// A device of an older version in the form of [`Device`].
#[derive(Debug)]
struct Served {
    info: DeviceInfo,
    device: Older,
}

impl Served {
    /// What the device answers for the operations of a part of a model; why nothing of it is supported
    /// otherwise.
    fn ask(&self, part: Slice, pools: &dyn ConstantPools) -> Result<Vec<bool>, String> {
        let (name, method) = (&self.info.name, self.device.supported_operations_name());
        let expected = part.operations.len();
        let answered = self.device.supported_operations(part, pools);
        let answers = answered
            .map_err(|error| error.to_string())?
            .map_err(|status| refused(name, method, status).detail)?;
        if answers.len() == expected {
            return Ok(answers);
        }
        Err(format!(
            "device {name} gave {} answers for {expected} operations to {method}",
            answers.len()
        ))
    }
}

impl Device for Served {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn status(&self) -> DeviceStatus {
        match &self.device {
            Older::V1_0(device) => device.status(),
            Older::V1_1(device) => device.status(),
            Older::V1_2(device) => device.status(),
        }
    }

    fn supported_operations(&self, model: &ValidModel, pools: &dyn ConstantPools) -> Vec<OperationSupport> {
        let version = self.info.hal_version;
        let compliance = model.compliant_with(version);
        let of_version = |reason: &str| format!("device {} is of HAL {version}: {reason}", self.info.name);
        let operations = compliance.operations.iter();
        let in_the_way = compliance.operands.first();
        let in_the_way = in_the_way.map(|(index, reason)| of_version(&format!("operand {index} {reason}")));
        let mut answers: Vec<_> = operations
            .map(|refusal| refusal.as_deref().map(of_version).or_else(|| in_the_way.clone()))
            .map(|reason| {
                reason.map_or(OperationSupport::Supported, |reason| {
                    OperationSupport::Unsupported { reason }
                })
            })
            .collect();
        let Some(part) = model.slice(version).filter(|_| in_the_way.is_none()) else {
            return answers;
        };
        let indexes = part.operations.clone();
        let asked = self.ask(part, pools);
        for (number, index) in indexes.into_iter().enumerate() {
            let reason = match &asked {
                Ok(supported) if supported.get(number) == Some(&true) => continue,
                Ok(_) => format!(
                    "device {} does not support it; its interface has no place for reasons",
                    self.info.name
                ),
                Err(reason) => reason.clone(),
            };
            if let Some(answer) = answers.get_mut(index) {
                *answer = OperationSupport::Unsupported { reason };
            }
        }
        answers
    }

    fn prepare(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        let (name, method) = (&self.info.name, self.device.prepare_name());
        let (callback, awaited) = preparation_callback::preparing();
        let launched = self.device.prepare(&model, pools, options, callback);
        let (launched, losses) = launched
            .map_err(|error| Failure::general(format!("device {name} cannot run the model: {error}")))?;
        if !losses.is_empty() {
            // A client decides how often this is said.
            let losses: Vec<String> = losses.iter().map(ToString::to_string).collect();
            let version = self.info.hal_version;
            tracing::debug!(target: COMPILATION, device = name, %version, "the model lost on its way down: {}", losses.join("; "));
        }
        if launched != OldStatus::None {
            return Err(refused(name, method, launched));
        }
        let outcome = awaited
            .wait(options.control.deadline())
            .map_err(|why| silence(name, method, why))?;
        options.control.checkpoint()?;
        let prepared = outcome.map_err(|status| refused(name, method, status))?;
        let version = self.info.hal_version;
        Ok(Arc::new(OlderModel::new(name, version, model, prepared)))
    }
}
