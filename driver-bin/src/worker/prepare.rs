//! Preparing models, and saying which operations a device supports.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::wire::{Event, MemoryHandle, PrepareModel, PrepareModelFromCache, PreparedModelHandle, Reply};
use nnhal_device::{Control, Interruption, PrepareOptions, PreparedModel};
use nnhal_hal::validate::{ModelError, ValidModel};
use nnhal_hal::{
    CacheToken, ConstantPools, ErrorStatus, ExecutionPreference, Failure, Model, OperationSupport, Place,
    Priority,
};
use nnhal_os::buffer::AlignedSlice;

use super::calls::OpenCall;
use super::client::Client;
use super::limits::RunLimits;
use super::memory::{ConstantPool, Memory, constant_pools};
use super::prepared::Prepared;
use super::weights::Hold;
use crate::cache::{self, CacheError, CacheHandles, Kept, KeptPools, Key};
use crate::scheduler::Ticket;
use crate::trace;

/// HAL `getSupportedOperations`.
pub(crate) fn supported_operations(
    client: &Arc<Client>,
    call: OpenCall,
    mut model: Model,
    pools: &[MemoryHandle],
) {
    let memories = match client.resolve_pools(&mut model, pools) {
        Ok(memories) => memories,
        Err(failure) => return client.outbox.reply(call.id(), Err(failure)),
    };
    let shared = Arc::clone(client);
    client.submit(Priority::Medium, call, move |call| {
        let result = support(&shared, model, &memories);
        shared
            .outbox
            .reply(call.id(), result.map(Reply::SupportedOperations));
    });
}

fn support(
    client: &Client,
    model: Model,
    memories: &[Arc<Memory>],
) -> Result<Vec<OperationSupport>, Failure> {
    let (model, pools) = validate(client, model, memories)?;
    let mut support = ask_device(client, &model, &pools);
    // A device that does not answer for an operation does not support it.
    let unanswered = || OperationSupport::Unsupported {
        reason: "the device gave no answer".to_owned(),
    };
    support.resize_with(model.model().main.operations.len(), unanswered);
    Ok(support)
}

/// What the device answers, but for what came after its version of the HAL, whatever it says of that.
fn ask_device(client: &Client, model: &ValidModel, pools: &dyn ConstantPools) -> Vec<OperationSupport> {
    let info = client.device.info();
    let mut support = client.device.supported_operations(model, pools);
    if model.version() <= info.hal_version {
        return support;
    }
    let refusals = model.compliant_with(info.hal_version).operations;
    for (answer, refusal) in support.iter_mut().zip(refusals) {
        if let Some(reason) = refusal {
            let reason = format!("device {} is of HAL {}: {reason}", info.name, info.hal_version);
            *answer = OperationSupport::Unsupported { reason };
        }
    }
    support
}

/// HAL `prepareModel`. The reply says whether it was launched, which it is if the arguments are valid; the
/// event says what came of it.
pub(crate) fn prepare_model(
    client: &Arc<Client>,
    call: OpenCall,
    mut arguments: Box<PrepareModel>,
    fds: Vec<OwnedFd>,
) {
    let checked = check_codes(&arguments).and_then(|codes| {
        Ok((
            codes,
            client.resolve_pools(&mut arguments.model, &arguments.pools)?,
        ))
    });
    let ((preference, priority), memories) = match checked {
        Ok(checked) => checked,
        Err(failure) => return client.outbox.reply(call.id(), Err(failure)),
    };
    let shared = Arc::clone(client);
    let limits = RunLimits::from_hal(arguments.deadline_ns, None);
    let in_time = limits.check_not_past();
    let target = Target::of_call(client, &arguments, fds);
    client.submit(priority, call, move |call| {
        let launch = Launch::new(&shared, call);
        let codes = (preference, priority);
        launch.finish(in_time.map_err(NotPrepared::Failed).and_then(|()| {
            let (handle, saved) = in_slot(&shared, call, (priority, limits), |control| {
                let (model, pools) =
                    validate(&shared, arguments.model, &memories).map_err(NotPrepared::Refused)?;
                launch.announce();
                let new = New {
                    model: Arc::clone(&model),
                    pools: &pools,
                    compiled: None,
                };
                let (handle, device_model) = prepare(&shared, new, codes, control)?;
                Ok::<_, NotPrepared>((handle, (device_model, model, pools)))
            })?;
            if let Some(target) = target {
                let (device_model, model, pools) = saved;
                let compiled = device_model.compiled();
                let kept = Kept {
                    model: model.model(),
                    pools: &pools,
                    compiled: compiled.as_ref(),
                };
                target.save(&shared, kept, codes);
            }
            Ok(handle)
        }));
    });
}

/// Why there is no prepared model.
enum NotPrepared {
    /// The arguments are wrong: nothing was launched.
    Refused(Failure),
    /// What was launched did not succeed.
    Failed(Failure),
}

impl From<Failure> for NotPrepared {
    fn from(failure: Failure) -> NotPrepared {
        NotPrepared::Failed(failure)
    }
}

impl From<Interruption> for NotPrepared {
    fn from(interruption: Interruption) -> NotPrepared {
        NotPrepared::Failed(interruption.into())
    }
}

/// The two answers to a call that prepares a model: that it was launched, and what has come of it.
struct Launch<'a> {
    client: &'a Client,
    id: u64,
    is_announced: Cell<bool>,
}

impl<'a> Launch<'a> {
    fn new(client: &'a Client, call: &OpenCall) -> Launch<'a> {
        Launch {
            client,
            id: call.id(),
            is_announced: Cell::new(false),
        }
    }

    /// Says that the arguments are valid.
    fn announce(&self) {
        if !self.is_announced.replace(true) {
            self.client.outbox.reply(self.id, Ok(Reply::Launched));
        }
    }

    /// Says what has come of it. Whatever ended it before the arguments had been looked at, a deadline or the
    /// client, says nothing against them, so it counts as launched.
    fn finish(&self, outcome: Result<PreparedModelHandle, NotPrepared>) {
        let result = match outcome {
            Err(NotPrepared::Refused(failure)) => return self.client.outbox.reply(self.id, Err(failure)),
            Err(NotPrepared::Failed(failure)) => Err(failure),
            Ok(handle) => Ok(handle),
        };
        self.announce();
        self.client.outbox.event(self.id, Event::Prepared(result));
    }
}

/// Does work of a call in a slot of its own, which it gives back whatever comes of the work.
fn in_slot<T, E: From<Interruption>>(
    client: &Client,
    call: &OpenCall,
    (priority, limits): (Priority, RunLimits),
    work: impl FnOnce(&Control<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let ticket = Ticket::new(&client.scheduler, priority);
    client.watchdog.watch(ticket.observer());
    call.works_as(ticket.observer())?;
    ticket.enter(limits.deadline)?;
    client.watchdog.work_starts();
    let outcome = work(&Control::new(&ticket, limits.deadline, limits.loop_timeout));
    ticket.leave();
    outcome
}

/// Where a prepared model is to be saved.
struct Target {
    handles: CacheHandles,
    token: CacheToken,
}

impl Target {
    /// None if the client wants nothing saved, or gives no files to save it in: neither is an error.
    fn of_call(client: &Client, arguments: &PrepareModel, fds: Vec<OwnedFd>) -> Option<Target> {
        let needed = client.device.info().cache_files;
        if !needed.is_caching_supported() || arguments.cache.is_empty() {
            return None;
        }
        match CacheHandles::new(&arguments.cache, fds, needed) {
            Ok(handles) => Some(Target {
                handles,
                token: arguments.token,
            }),
            Err(error) => {
                tracing::info!(target: tags::COMPILATION, %error, "a prepared model is not saved");
                None
            }
        }
    }

    fn save(&self, client: &Client, kept: Kept<'_>, (preference, priority): (ExecutionPreference, Priority)) {
        let key = key(client, self.token);
        let codes = (preference as i32, priority as i32);
        let limit = client.limits.constant_bytes;
        let _writes = trace::span(SpanKind::WriteCache, 0, 0);
        if let Err(error) = cache::save(&self.handles, &key, kept, codes, limit) {
            tracing::info!(target: tags::COMPILATION, %error, "a prepared model is not saved");
        }
    }
}

fn key(client: &Client, token: CacheToken) -> Key<'_> {
    Key {
        device: identity(client),
        token,
    }
}

/// Name and version of the device, which name the form of what it compiles.
fn identity(client: &Client) -> (&str, &str) {
    let info = client.device.info();
    (&info.name, &info.version)
}

/// HAL `prepareModelFromCache`. Whatever is wrong with the files is found before the launch.
pub(crate) fn prepare_model_from_cache(
    client: &Arc<Client>,
    call: OpenCall,
    arguments: PrepareModelFromCache,
    fds: Vec<OwnedFd>,
) {
    let info = client.device.info();
    if !info.cache_files.is_caching_supported() {
        let failure = Failure::general(format!("device {} does not cache compilations", info.name));
        return client.outbox.reply(call.id(), Err(failure));
    }
    let handles = match CacheHandles::new(&arguments.cache, fds, info.cache_files) {
        Ok(handles) => handles,
        Err(error) => {
            let failure = Failure::invalid_argument(error.to_string());
            return client.outbox.reply(call.id(), Err(failure));
        }
    };
    let limits = RunLimits::from_hal(arguments.deadline_ns, None);
    let in_time = limits.check_not_past();
    let shared = Arc::clone(client);
    client.submit(Priority::Medium, call, move |call| {
        let launch = Launch::new(&shared, call);
        launch.finish(in_time.map_err(NotPrepared::Failed).and_then(|()| {
            // What the model was prepared for is known once it has been read.
            let restored = in_slot(&shared, call, (Priority::Medium, limits), |control| {
                restore(&shared, &handles, arguments.token, control)
            });
            let Restored {
                model,
                pools,
                compiled,
                codes,
            } = restored?;
            launch.announce();
            in_slot(&shared, call, (codes.1, limits), |control| {
                let new = New {
                    model,
                    pools: &pools,
                    compiled,
                };
                let (handle, _) = prepare(&shared, new, codes, control)?;
                Ok(handle)
            })
        }));
    });
}

/// What was kept of a prepared model, and how it was prepared.
struct Restored {
    model: Arc<ValidModel>,
    pools: KeptPools,
    compiled: Option<AlignedSlice>,
    codes: (ExecutionPreference, Priority),
}

/// The model in the files, validated as if the client had sent it.
fn restore(
    client: &Client,
    handles: &CacheHandles,
    token: CacheToken,
    control: &Control<'_>,
) -> Result<Restored, NotPrepared> {
    let miss = |error: &dyn std::fmt::Display| {
        NotPrepared::Refused(Failure::general(format!(
            "the cache does not hold the model: {error}; prepare it anew"
        )))
    };
    let limit = client.limits.constant_bytes;
    let reads = trace::span(SpanKind::ReadCache, 0, 0);
    let entry = match cache::load(handles, &key(client, token), limit, &|| control.checkpoint()) {
        Ok(entry) => entry,
        Err(CacheError::Interrupted(interruption)) => return Err(interruption.into()),
        Err(error) => return Err(miss(&error)),
    };
    drop(reads);
    let codes = ExecutionPreference::from_code(entry.preference).zip(Priority::from_code(entry.priority));
    let codes = codes.ok_or_else(|| miss(&"it was prepared in a way that there is not"))?;
    control.checkpoint()?;
    let extensions = &client.device.info().extensions;
    let _validates = trace::span(SpanKind::Validate, 0, 0);
    let model =
        ValidModel::new(Arc::new(entry.model), &entry.pools, extensions).map_err(|error| miss(&error))?;
    Ok(Restored {
        model: Arc::new(model),
        pools: entry.pools,
        compiled: entry.compiled,
        codes,
    })
}

fn check_codes(arguments: &PrepareModel) -> Result<(ExecutionPreference, Priority), Failure> {
    let preference = ExecutionPreference::from_code(arguments.preference).ok_or_else(|| {
        Failure::invalid_argument(format!(
            "execution preference {} must be 0 (low power), 1 (fast single answer) or 2 (sustained speed)",
            arguments.preference
        ))
    })?;
    let priority = Priority::from_code(arguments.priority).ok_or_else(|| {
        Failure::invalid_argument(format!(
            "priority {} must be 0 (low), 1 (medium) or 2 (high)",
            arguments.priority
        ))
    })?;
    Ok((preference, priority))
}

fn validate(
    client: &Client,
    model: Model,
    memories: &[Arc<Memory>],
) -> Result<(Arc<ValidModel>, Vec<ConstantPool>), Failure> {
    let _validates = trace::span(SpanKind::Validate, 0, 0);
    let pools = constant_pools(&model, memories, &client.limits)?;
    let model = ValidModel::new(Arc::new(model), &pools, &client.device.info().extensions)
        .map_err(|error| model_failure(&error))?;
    Ok((Arc::new(model), pools))
}

/// A valid model to make ready.
struct New<'a> {
    model: Arc<ValidModel>,
    pools: &'a dyn ConstantPools,
    /// What a cache has of it.
    compiled: Option<AlignedSlice>,
}

/// Prepares a valid model. The checkpoint before it is that after validation.
fn prepare(
    client: &Client,
    New {
        model,
        pools,
        compiled,
    }: New<'_>,
    (preference, priority): (ExecutionPreference, Priority),
    control: &Control<'_>,
) -> Result<(PreparedModelHandle, Arc<dyn PreparedModel>), Failure> {
    control.checkpoint()?;
    check_supported(client, &model, pools)?;
    let options = PrepareOptions {
        preference,
        priority,
        control,
    };
    let (device, shared) = (&client.device, Arc::clone(&model));
    let compiles = trace::span(SpanKind::Compile, 0, 0);
    let (device_model, hold) = match compiled {
        None => {
            let own = device.prepare(Arc::clone(&shared), pools, &options)?;
            share_weights(client, own, (shared, pools), &options)?
        }
        Some(compiled) => {
            let common = client
                .weights
                .share(identity(client), &[compiled.bytes()], control.deadline());
            let (compiled, hold) = match common {
                Some((common, hold)) => (common, Some(hold)),
                None => (compiled, None),
            };
            (device.restore(shared, pools, compiled, &options)?, hold)
        }
    };
    drop(compiles);
    let prepared = Prepared::new(
        model,
        (Arc::clone(&device_model), hold),
        (preference, priority),
        &client.scheduler,
        &client.watchdog,
    );
    Ok((client.add_model(prepared)?, device_model))
}

/// The same prepared model with weights in memory that other workers use too, in place of those that the
/// device has packed just now. It stays as it is if they are not shared.
fn share_weights(
    client: &Client,
    own: Arc<dyn PreparedModel>,
    (model, pools): (Arc<ValidModel>, &dyn ConstantPools),
    options: &PrepareOptions<'_>,
) -> Result<(Arc<dyn PreparedModel>, Option<Hold>), Failure> {
    let common = own.compiled().and_then(|compiled| {
        client
            .weights
            .share(identity(client), &compiled.parts, options.control.deadline())
    });
    let Some((common, hold)) = common else {
        return Ok((own, None));
    };
    match client.device.restore(model, pools, common, options) {
        Ok(restored) => {
            drop(own);
            // Of what is free now, the heap would keep the smaller pieces.
            nnhal_os::heap::give_back_free();
            Ok((restored, Some(hold)))
        }
        Err(failure) => {
            // It may have been interrupted, which ends the whole preparation.
            options.control.checkpoint()?;
            tracing::info!(target: tags::COMPILATION, %failure, "the device takes no shared weights");
            Ok((own, None))
        }
    }
}

/// A model with an operation that the device does not support is refused with the device's reason. The model
/// is valid all the same, hence not `INVALID_ARGUMENT`: a runtime may take it elsewhere.
fn check_supported(client: &Client, model: &ValidModel, pools: &dyn ConstantPools) -> Result<(), Failure> {
    let support = ask_device(client, model, pools);
    for (index, support) in support.into_iter().enumerate() {
        let OperationSupport::Unsupported { reason } = support else {
            continue;
        };
        let operation = model
            .model()
            .main
            .operations
            .get(index)
            .map(|operation| operation.operation_type);
        let name = operation
            .map(|operation| operation.to_string())
            .unwrap_or_default();
        return Err(Failure::new(
            ErrorStatus::GeneralFailure,
            format!("operation {index} ({name}) is not supported: {reason}"),
        )
        .at(Place {
            operation: u32::try_from(index).ok(),
            ..Place::default()
        }));
    }
    Ok(())
}

/// What is wrong with a model, as a failure that names the place.
fn model_failure(error: &ModelError) -> Failure {
    use nnhal_hal::SubgraphIndex;
    let subgraph = |graph: &SubgraphIndex| match graph {
        SubgraphIndex::Main => None,
        SubgraphIndex::Referenced(index) => u32::try_from(*index).ok(),
    };
    let place = match error {
        ModelError::Model { .. } => Place::default(),
        ModelError::Graph { graph, .. } => Place {
            subgraph: subgraph(graph),
            ..Place::default()
        },
        ModelError::Operand { graph, operand, .. } => Place {
            subgraph: subgraph(graph),
            operand: u32::try_from(*operand).ok(),
            ..Place::default()
        },
        ModelError::Operation { graph, index, .. } => Place {
            subgraph: subgraph(graph),
            operation: u32::try_from(*index).ok(),
            ..Place::default()
        },
    };
    Failure::invalid_argument(error.to_string()).at(place)
}
