//! A device: what it is, what it can run, and preparing models on it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nnhal::wire::{self, Call, PrepareModel, PrepareModelFromCache, Reply};
use nnhal_hal::{
    BufferDesc, BufferRole, CacheToken, DeviceInfo, DeviceStatus, ExecutionPreference, OperationSupport,
    Priority,
};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::driver_process::Process;
use crate::drivers::Drivers;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::pending::PendingPrepare;
use crate::prepared_model::PreparedModel;
use crate::trace::WorkerSpans;

/// A device, through a worker process of its own. Clones are handles on the same worker, which ends with the
/// last of them and of everything made with them.
///
/// After a fork the child cannot use it; it opens the device anew.
#[derive(Clone, Debug)]
pub struct Device {
    connection: Arc<Connection>,
    /// Among which it was found.
    drivers: Drivers,
}

impl Device {
    pub(crate) fn new(connection: Arc<Connection>, drivers: Drivers) -> Device {
        Device { connection, drivers }
    }

    /// What the device says of itself: HAL `getType`, `getVersionString`, `getCapabilities`,
    /// `getSupportedExtensions`, `getNumberOfCacheFilesNeeded`. Constant, and known without asking.
    #[must_use]
    pub fn info(&self) -> &Arc<DeviceInfo> {
        self.connection.device()
    }

    /// `{VENDOR}-{DEVICE_NAME}`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.connection.device().name
    }

    /// The process that serves this handle and nobody else.
    #[must_use]
    pub fn worker(&self) -> Process {
        self.connection.worker()
    }

    /// A descriptor of that process, if the driver gave one: it becomes readable when the process ends.
    pub(crate) fn worker_pidfd(&self) -> Option<OwnedFd> {
        self.connection.link().worker_pidfd()
    }

    /// The process that accepted the connection; it may be gone by now.
    #[must_use]
    pub fn supervisor(&self) -> Process {
        self.connection.supervisor()
    }

    /// The directory where the driver publishes its devices. Other processes of this user find them there
    /// with [`DevicesOptions::runtime_dir`](crate::DevicesOptions::runtime_dir); those of a private driver
    /// for as long as this process keeps it.
    #[must_use]
    pub fn runtime_dir(&self) -> &Path {
        self.connection.socket_path().parent().unwrap_or(Path::new(""))
    }

    /// Whether the driver is a private one of this process.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.connection.driver().is_some()
    }

    /// Why the worker can be used no more, if so: the error that every further call would have.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.connection.link().ended_with()
    }

    /// The drivers among which it was found.
    pub(crate) fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// Has the worker record spans of time from now on: what it waits for, copies and runs, and how long each
    /// operation takes, as far as the device tells. It costs two readings of the clock for each.
    ///
    /// # Errors
    /// It records already, for this program or for the file that `NNHAL_TRACE` names; its driver is older
    /// than traces.
    pub fn record_spans(&self) -> Result<WorkerSpans> {
        self.connection.record_spans()
    }

    /// HAL `getStatus`.
    ///
    /// # Errors
    /// Only what keeps the driver from answering.
    pub fn status(&self) -> Result<DeviceStatus> {
        let link = self.connection.link();
        match link.call(Call::GetStatus, &[])? {
            (Reply::Status(status), _) => Ok(status),
            (other, _) => Err(link.misplaced("GetStatus", &other)),
        }
    }

    /// HAL `getSupportedOperations`: for each operation of the main graph whether the device can run it, and
    /// why not. What is supported is what [`Device::prepare`] accepts.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the model breaks a rule, or uses a vendor extension that this application may
    /// not use.
    pub fn supported_operations(&self, model: &Model) -> Result<Vec<OperationSupport>> {
        self.drivers.options().application.check(model.hal())?;
        let link = self.connection.link();
        let pools = self.pools(model)?;
        let call = Call::GetSupportedOperations {
            model: model.hal().clone(),
            pools,
        };
        let name = call.name();
        let supported = match link.call(call, &[])? {
            (Reply::SupportedOperations(supported), _) => supported,
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        let expected = model.hal().main.operations.len();
        if supported.len() == expected {
            Ok(supported)
        } else {
            Err(link.misplaced(
                name,
                &format!("{} answers for {expected} operations", supported.len()),
            ))
        }
    }

    /// HAL `prepareModel`: makes a model ready to be executed, and waits until it is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the model breaks a rule, or uses a vendor extension that this application may
    /// not use ([`crate::DevicesOptions::extension_allowlist`]); `GENERAL_FAILURE` if the device cannot run
    /// it; each with the operation and the reason; `MISSED_DEADLINE_*`, `RESOURCE_EXHAUSTED_*`.
    pub fn prepare(&self, model: &Model, options: &PrepareOptions) -> Result<PreparedModel> {
        self.start_preparing(model, options)?
            .wait(options.wait_deadline())
    }

    /// As [`Device::prepare`], without waiting for the end.
    ///
    /// # Errors
    /// Those that are found before the work starts.
    pub fn start_preparing(&self, model: &Model, options: &PrepareOptions) -> Result<PendingPrepare> {
        self.drivers.options().application.check(model.hal())?;
        let prepare = PrepareModel {
            model: model.hal().clone(),
            pools: self.pools(model)?,
            preference: options.preference as i32,
            priority: options.priority as i32,
            deadline_ns: options.deadline.to_hal(),
            cache: options.cache_files(),
            token: options.cache.as_ref().map_or([0; 32], |cache| cache.token),
        };
        let fds = options.cache_fds();
        let call = Call::PrepareModel(Box::new(prepare));
        let pending = self
            .connection
            .link()
            .launch(call, &fds, None, options.wait_deadline())?;
        Ok(PendingPrepare::new(
            pending,
            &self.connection,
            Some(model),
            options.preference,
        ))
    }

    /// HAL `prepareModelFromCache`: makes a model ready from what preparing it before has left in the files
    /// of [`PrepareOptions::cache`]. With `model` given, which must be the one that was prepared then, the
    /// prepared model knows the types of its arguments, which [`PreparedModel::run`] needs.
    ///
    /// # Errors
    /// `GENERAL_FAILURE` if the files do not hold what was asked for; prepare the model itself then.
    pub fn prepare_from_cache(
        &self,
        model: Option<&Model>,
        options: &PrepareOptions,
    ) -> Result<PreparedModel> {
        self.start_preparing_from_cache(model, options)?
            .wait(options.wait_deadline())
    }

    /// As [`Device::prepare_from_cache`], without waiting for the end.
    ///
    /// # Errors
    /// Those that are found before the work starts, what is wrong with the files among them.
    pub fn start_preparing_from_cache(
        &self,
        model: Option<&Model>,
        options: &PrepareOptions,
    ) -> Result<PendingPrepare> {
        if let Some(model) = model {
            self.drivers.options().application.check(model.hal())?;
        }
        let prepare = PrepareModelFromCache {
            deadline_ns: options.deadline.to_hal(),
            cache: options.cache_files(),
            token: options.cache.as_ref().map_or([0; 32], |cache| cache.token),
        };
        let fds = options.cache_fds();
        let deadline = options.wait_deadline();
        let call = Call::PrepareModelFromCache(prepare);
        let pending = self.connection.link().launch(call, &fds, None, deadline)?;
        Ok(PendingPrepare::new(
            pending,
            &self.connection,
            model,
            options.preference,
        ))
    }

    /// HAL `allocate`: memory of the device for the given inputs and outputs of prepared models. Roles name
    /// models by their index in `prepared_models`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the roles contradict each other or the models; `GENERAL_FAILURE` if the device
    /// cannot do it.
    pub fn allocate(
        &self,
        desc: &BufferDesc,
        prepared_models: &[&PreparedModel],
        input_roles: &[BufferRole],
        output_roles: &[BufferRole],
    ) -> Result<Buffer> {
        let prepared_models = prepared_models
            .iter()
            .map(|model| model.handle_on(&self.connection))
            .collect::<Result<Vec<_>>>()?;
        let call = Call::Allocate {
            desc: desc.clone(),
            prepared_models,
            input_roles: input_roles.to_vec(),
            output_roles: output_roles.to_vec(),
        };
        let link = self.connection.link();
        let name = call.name();
        match link.call(call, &[])? {
            (Reply::Allocated(allocated), _) => Ok(Buffer::new(&self.connection, allocated)),
            (other, _) => Err(link.misplaced(name, &other)),
        }
    }

    fn pools(&self, model: &Model) -> Result<Vec<wire::MemoryHandle>> {
        model
            .pools()
            .iter()
            .map(|memory| memory.handle_on(&self.connection))
            .collect()
    }
}

/// How a model is to be prepared.
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    preference: ExecutionPreference,
    priority: Priority,
    deadline: Deadline,
    cache: Option<Arc<CacheFiles>>,
    wait: Option<Duration>,
}

impl PrepareOptions {
    /// Fast single answers, medium priority, no deadline, no cache.
    #[must_use]
    pub fn new() -> PrepareOptions {
        PrepareOptions::default()
    }

    /// What executions shall be good at.
    #[must_use]
    pub fn preference(mut self, preference: ExecutionPreference) -> PrepareOptions {
        self.preference = preference;
        self
    }

    /// Which models of this process go first.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> PrepareOptions {
        self.priority = priority;
        self
    }

    /// When the driver shall give up, with `MISSED_DEADLINE_*`.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> PrepareOptions {
        self.deadline = deadline;
        self
    }

    /// Where to save the result, or to take it from.
    #[must_use]
    pub fn cache(mut self, files: Arc<CacheFiles>) -> PrepareOptions {
        self.cache = Some(files);
        self
    }

    /// The longest to wait for the answer; without it, for as long as
    /// [`DevicesOptions::work_timeout`](crate::DevicesOptions::work_timeout) says, or until the worker ends.
    #[must_use]
    pub fn wait_at_most(mut self, duration: Duration) -> PrepareOptions {
        self.wait = Some(duration);
        self
    }

    /// What the prepared model depends on beside the model.
    pub(crate) fn codes(&self) -> [u8; 2] {
        // Both are below 3.
        [self.preference as u8, self.priority as u8]
    }

    fn wait_deadline(&self) -> Deadline {
        self.wait
            .map_or(Deadline::NONE, |wait| Deadline::after(MonotonicClock.now(), wait))
    }

    fn cache_files(&self) -> wire::CacheFiles {
        self.cache
            .as_ref()
            .map_or_else(wire::CacheFiles::default, |cache| {
                wire::CacheFiles::new(cache.model.len(), cache.data.len())
            })
    }

    fn cache_fds(&self) -> Vec<BorrowedFd<'_>> {
        let files = self.cache.iter();
        files
            .flat_map(|cache| cache.model.iter().chain(&cache.data))
            .map(AsFd::as_fd)
            .collect()
    }
}

/// Open files that a driver saves a prepared model in, as many of each kind as
/// [`nnhal_hal::DeviceInfo::cache_files`] says, readable and writable.
#[derive(Debug)]
pub struct CacheFiles {
    /// Files for what must not be tampered with.
    pub model: Vec<OwnedFd>,
    /// Files for constants.
    pub data: Vec<OwnedFd>,
    /// Names what is saved: the model and everything else that the result depends on.
    pub token: CacheToken,
}
