//! The methods of HAL 1.0, 1.1 and 1.2, for applications written against them.
//!
//! A device of any version answers them: arguments are taken up to the form of 1.3, results come down, and
//! statuses that only 1.3 has become `GENERAL_FAILURE` ([`OlderError`]). What the older interfaces share with
//! 1.3 (`getStatus`, `getVersionString`, `getType`, `getSupportedExtensions`, `getNumberOfCacheFilesNeeded`,
//! bursts) is on [`Device`] and [`PreparedModel`] themselves, which [`OlderDevice::device`] and
//! [`OlderPreparedModel::latest`] give.
//!
//! | HAL | here |
//! |---|---|
//! | `getCapabilities`, `_1_1`, `_1_2` | [`OlderDevice::capabilities`] and its like |
//! | `getSupportedOperations`, `_1_1`, `_1_2` | [`OlderDevice::supported_operations`] and its like |
//! | `prepareModel`, `_1_1`, `_1_2`; `prepareModelFromCache` | [`OlderDevice::prepare_model`] and its like, [`OlderDevice::prepare_model_from_cache`] |
//! | `IPreparedModelCallback::notify`, `notify_1_2` | the callback of these |
//! | `execute`, `execute_1_2`, `executeSynchronously` | [`OlderPreparedModel::execute`], [`OlderPreparedModel::execute_1_2`], [`OlderPreparedModel::execute_synchronously`] |
//! | `IExecutionCallback::notify` | the callback of [`OlderPreparedModel::execute`] |
//! | `IExecutionCallback::notify_1_2` | the callback of [`OlderPreparedModel::execute_1_2`] |
//!
//! A callback is called exactly once: before the method returns an error, or later, on a thread of this
//! library.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal_hal::versions::v1_0::ErrorStatus;
use nnhal_hal::versions::{Downcast, v1_0, v1_1, v1_2};
use nnhal_hal::{ExecutionPreference, HalVersion, MeasureTiming, OutputShape, Shape, Timing};

use crate::device::{CacheFiles, Device, PrepareOptions};
use crate::error::Error;
use crate::execution::{Completed, ExecuteOptions};
use crate::memory::Memory;
use crate::model::Model;
use crate::pending::PendingPrepare;
use crate::prepared_model::PreparedModel;
use crate::request::Request;

/// An error as the older interfaces have it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{status}: {error}")]
pub struct OlderError {
    /// The status: `GENERAL_FAILURE` for those that only 1.3 has.
    pub status: ErrorStatus,
    /// What 1.3 says, with the reason.
    #[source]
    pub error: Error,
}

impl From<Error> for OlderError {
    fn from(error: Error) -> OlderError {
        OlderError {
            status: error.status().to_v1_0().value,
            error,
        }
    }
}

type Result<T> = std::result::Result<T, OlderError>;

/// What came of preparing, told to a callback.
type Prepared = Result<OlderPreparedModel>;

/// A device through the methods of `IDevice` 1.0 to 1.2.
///
/// Models come with a memory for each of their pools, in the pools' order.
#[derive(Clone, Debug)]
pub struct OlderDevice {
    device: Device,
}

impl OlderDevice {
    /// The device through its older methods.
    #[must_use]
    pub fn new(device: Device) -> OlderDevice {
        OlderDevice { device }
    }

    /// The device through those of 1.3.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// HAL `getCapabilities`, and what of the device's figures it does not say.
    #[must_use]
    pub fn capabilities(&self) -> Downcast<v1_0::Capabilities> {
        self.device.info().capabilities.to_v1_0()
    }

    /// HAL `getCapabilities_1_1`, and what of the device's figures it does not say.
    #[must_use]
    pub fn capabilities_1_1(&self) -> Downcast<v1_1::Capabilities> {
        self.device.info().capabilities.to_v1_1()
    }

    /// HAL `getCapabilities_1_2`, and what of the device's figures it does not say.
    #[must_use]
    pub fn capabilities_1_2(&self) -> Downcast<v1_2::Capabilities> {
        self.device.info().capabilities.to_v1_2()
    }

    /// HAL `getSupportedOperations`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the model breaks a rule, or has what came after 1.0.
    pub fn supported_operations(&self, model: &v1_0::Model, pools: &[Memory]) -> Result<Vec<bool>> {
        self.supported(model.clone().into(), pools, HalVersion::V1_0)
    }

    /// HAL `getSupportedOperations_1_1`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the model breaks a rule, or has what came after 1.1.
    pub fn supported_operations_1_1(&self, model: &v1_1::Model, pools: &[Memory]) -> Result<Vec<bool>> {
        self.supported(model.clone().into(), pools, HalVersion::V1_1)
    }

    /// HAL `getSupportedOperations_1_2`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the model breaks a rule, or has what came after 1.2.
    pub fn supported_operations_1_2(&self, model: &v1_2::Model, pools: &[Memory]) -> Result<Vec<bool>> {
        self.supported(model.clone().into(), pools, HalVersion::V1_2)
    }

    fn supported(&self, model: nnhal_hal::Model, pools: &[Memory], version: HalVersion) -> Result<Vec<bool>> {
        let model = checked(model, pools, version)?;
        let answers = self.device.supported_operations(&model)?;
        Ok(answers.iter().map(|answer| answer.is_supported()).collect())
    }

    /// HAL `prepareModel`, whose callback is `notify`.
    ///
    /// # Errors
    /// What is found before the work starts; the callback has been told too. `INVALID_ARGUMENT` as above.
    pub fn prepare_model(
        &self,
        model: &v1_0::Model,
        pools: &[Memory],
        callback: impl FnOnce(Prepared) + Send + 'static,
    ) -> Result<()> {
        let options = PrepareOptions::new();
        self.prepare(
            (model.clone().into(), pools, HalVersion::V1_0),
            &options,
            callback,
        )
    }

    /// HAL `prepareModel_1_1`, whose callback is `notify`.
    ///
    /// # Errors
    /// As [`OlderDevice::prepare_model`].
    pub fn prepare_model_1_1(
        &self,
        model: &v1_1::Model,
        pools: &[Memory],
        preference: ExecutionPreference,
        callback: impl FnOnce(Prepared) + Send + 'static,
    ) -> Result<()> {
        let options = PrepareOptions::new().preference(preference);
        self.prepare(
            (model.clone().into(), pools, HalVersion::V1_1),
            &options,
            callback,
        )
    }

    /// HAL `prepareModel_1_2`, whose callback is `notify_1_2`; with files and token if the result is to be
    /// cached.
    ///
    /// # Errors
    /// As [`OlderDevice::prepare_model`].
    pub fn prepare_model_1_2(
        &self,
        model: &v1_2::Model,
        pools: &[Memory],
        preference: ExecutionPreference,
        cache: Option<Arc<CacheFiles>>,
        callback: impl FnOnce(Prepared) + Send + 'static,
    ) -> Result<()> {
        let mut options = PrepareOptions::new().preference(preference);
        if let Some(cache) = cache {
            options = options.cache(cache);
        }
        self.prepare(
            (model.clone().into(), pools, HalVersion::V1_2),
            &options,
            callback,
        )
    }

    /// HAL `prepareModelFromCache`, whose callback is `notify_1_2`.
    ///
    /// # Errors
    /// `GENERAL_FAILURE` if the files do not hold what was asked for; the callback has been told too.
    pub fn prepare_model_from_cache(
        &self,
        cache: Arc<CacheFiles>,
        callback: impl FnOnce(Prepared) + Send + 'static,
    ) -> Result<()> {
        let options = PrepareOptions::new().cache(cache);
        let launched = self.device.start_preparing_from_cache(None, &options);
        notify_prepared(launched.map_err(OlderError::from), HalVersion::V1_2, callback)
    }

    fn prepare(
        &self,
        (model, pools, version): (nnhal_hal::Model, &[Memory], HalVersion),
        options: &PrepareOptions,
        callback: impl FnOnce(Prepared) + Send + 'static,
    ) -> Result<()> {
        let launched = checked(model, pools, version)
            .and_then(|model| Ok(self.device.start_preparing(&model, options)?));
        notify_prepared(launched, version, callback)
    }
}

/// The model in the form of 1.3, if all that it has is of its version.
fn checked(model: nnhal_hal::Model, pools: &[Memory], version: HalVersion) -> Result<Model> {
    for (index, operation) in model.main.operations.iter().enumerate() {
        let kind = operation.operation_type;
        if let Some(since) = kind.since().filter(|since| *since > version) {
            let message = format!(
                "operation {index} of a model of HAL {version} is {kind}, which came with HAL {since}"
            );
            return Err(Error::argument(message).into());
        }
    }
    for (index, operand) in model.main.operands.iter().enumerate() {
        if let Some(obstacle) = operand.obstacle(version) {
            let message = format!("operand {index} of a model of HAL {version} {obstacle}");
            return Err(Error::argument(message).into());
        }
    }
    check_kinds(pools, version)?;
    Ok(Model::from_hal(model, pools.to_vec()))
}

/// Hardware buffers came with 1.2.
fn check_kinds(memories: &[Memory], version: HalVersion) -> Result<()> {
    let buffer = memories.iter().position(Memory::is_hardware_buffer);
    match buffer.filter(|_| version < HalVersion::V1_2) {
        None => Ok(()),
        Some(index) => {
            let message = format!(
                "pool {index} is a hardware buffer, which came with HAL 1.2; HAL {version} has shared memory only"
            );
            Err(Error::argument(message).into())
        }
    }
}

/// A callback that is called once, by whoever comes first.
struct Once<F>(Arc<Mutex<Option<F>>>);

impl<F> Once<F> {
    fn new(callback: F) -> (Once<F>, Once<F>) {
        let shared = Arc::new(Mutex::new(Some(callback)));
        (Once(Arc::clone(&shared)), Once(shared))
    }

    fn take(&self) -> Option<F> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Has `callback` told what comes of preparing, or at once that it was not launched.
fn notify_prepared(
    launched: Result<PendingPrepare>,
    version: HalVersion,
    callback: impl FnOnce(Prepared) + Send + 'static,
) -> Result<()> {
    let (later, now) = Once::new(callback);
    let launched = launched.and_then(|pending| {
        let launched = pending.on_end(move |outcome| {
            if let Some(callback) = later.take() {
                let prepared = outcome.map(|model| OlderPreparedModel { model, version });
                callback(prepared.map_err(OlderError::from));
            }
        });
        Ok(launched?)
    });
    if let Err(error) = &launched
        && let Some(callback) = now.take()
    {
        callback(Err(error.clone()));
    }
    launched
}

/// A prepared model through the methods of `IPreparedModel` 1.0 and 1.2. Requests come with a memory for each
/// of their pools, in the pools' order.
#[derive(Clone, Debug)]
pub struct OlderPreparedModel {
    model: PreparedModel,
    /// Of the method that prepared it.
    version: HalVersion,
}

impl OlderPreparedModel {
    /// The prepared model through the methods of 1.3.
    #[must_use]
    pub fn latest(&self) -> &PreparedModel {
        &self.model
    }

    /// HAL `execute`, whose callback is `notify`.
    ///
    /// # Errors
    /// What is found before the work starts; the callback has been told too. `INVALID_ARGUMENT` if the
    /// request breaks a rule; for models of 1.0 and 1.1 also if an output's dimensions are open.
    pub fn execute(
        &self,
        request: &v1_0::Request,
        memories: &[Memory],
        callback: impl FnOnce(ErrorStatus) + Send + 'static,
    ) -> Result<()> {
        let told = move |status: ErrorStatus, _: Vec<OutputShape>, _: Timing| callback(status);
        self.execute_1_2(request, memories, MeasureTiming::No, told)
    }

    /// HAL `execute_1_2`, whose callback is `notify_1_2`: the status, the shapes of all outputs if there are
    /// any, and the timing.
    ///
    /// # Errors
    /// As [`OlderPreparedModel::execute`].
    pub fn execute_1_2(
        &self,
        request: &v1_0::Request,
        memories: &[Memory],
        measure: MeasureTiming,
        callback: impl FnOnce(ErrorStatus, Vec<OutputShape>, Timing) + Send + 'static,
    ) -> Result<()> {
        let (later, now) = Once::new(callback);
        let launched = self.request(request, memories).and_then(|request| {
            let pending = self.model.start(&request, &options(measure))?;
            let launched = pending.on_end(move |outcome| {
                let Some(callback) = later.take() else { return };
                match outcome {
                    Ok(completed) => callback(ErrorStatus::None, completed.output_shapes, completed.timing),
                    Err(error) => {
                        let shapes = error.output_shapes().to_vec();
                        callback(OlderError::from(error).status, shapes, Timing::NONE);
                    }
                }
            });
            Ok(launched?)
        });
        if let Err(error) = &launched
            && let Some(callback) = now.take()
        {
            callback(error.status, Vec::new(), Timing::NONE);
        }
        launched
    }

    /// HAL `executeSynchronously`.
    ///
    /// # Errors
    /// As [`OlderPreparedModel::execute`], and whatever the execution ends with; the shapes that are needed
    /// with `OUTPUT_INSUFFICIENT_SIZE` are [`Error::output_shapes`].
    pub fn execute_synchronously(
        &self,
        request: &v1_0::Request,
        memories: &[Memory],
        measure: MeasureTiming,
    ) -> Result<Completed> {
        let request = self.request(request, memories)?;
        Ok(self.model.execute(&request, &options(measure))?)
    }

    fn request(&self, request: &v1_0::Request, memories: &[Memory]) -> Result<Request> {
        if self.version < HalVersion::V1_2 {
            self.check_outputs(request)?;
        }
        check_kinds(memories, self.version)?;
        Ok(Request::from_hal(request.clone().into(), memories.to_vec()))
    }

    /// Before 1.2, model and request together give every dimension of an output.
    fn check_outputs(&self, request: &v1_0::Request) -> Result<()> {
        for (index, (declared, given)) in self.model.outputs().iter().zip(&request.outputs).enumerate() {
            let shapes = (Shape::new(declared.dimensions()), Shape::new(&given.dimensions));
            // What contradicts itself, the driver refuses.
            let (Ok(declared_shape), Ok(given)) = shapes else {
                continue;
            };
            let Some(known) = declared_shape.combine(&given) else {
                continue;
            };
            if declared.operand_type().is_tensor() && (known.rank() == 0 || !known.is_fully_specified()) {
                let message = format!(
                    "output {index} has dimensions {known:?}; for a model of HAL {} they must all be given",
                    self.version
                );
                return Err(Error::argument(message).into());
            }
        }
        Ok(())
    }
}

fn options(measure: MeasureTiming) -> ExecuteOptions {
    match measure {
        MeasureTiming::No => ExecuteOptions::new(),
        MeasureTiming::Yes => ExecuteOptions::new().measure_timing(),
    }
}
