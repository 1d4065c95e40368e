//! What all threads that work for the client share.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::fence::Fence;
use nnhal::wire::{ExecutionHandle, FenceHandle, MemoryHandle, PreparedModelHandle, RequestWithMemories};
use nnhal_device::Device;
use nnhal_hal::{Failure, Model, Place, Priority, Request, RequestPool};
use nnhal_os::SysError;

use super::buffer::Buffers;
use super::burst::Bursts;
use super::calls::{Calls, OpenCall, no_thread};
use super::fenced::Fenced;
use super::idle::IdleRelease;
use super::job::RequestPools;
use super::memory::{Memories, Memory};
use super::outbox::Outbox;
use super::pool::Pool;
use super::prepared::Prepared;
use super::table::{OBJECTS, Table, no_such, too_many};
use super::watchdog::Watchdog;
use super::weights::Weights;
use crate::cores::WorkerCores;
use crate::link::WorkerConfig;
use crate::scheduler::Scheduler;
use crate::settings::Limits;
use crate::usage::{Permit, Quotas};

/// The client of a worker, and all that is its own.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) outbox: Outbox,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) limits: Limits,
    /// What the user's clients may have together.
    quotas: Quotas,
    pub(crate) calls: Arc<Calls>,
    pub(crate) pool: Pool,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) idle_release: Arc<IdleRelease>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) bursts: Bursts,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) weights: Arc<Weights>,
    models: Mutex<Table<Arc<Prepared>>>,
    /// Each with the descriptor that it keeps.
    fenced: Mutex<Table<(Arc<Fenced>, Permit)>>,
    fences: Mutex<Table<(Fence, Permit)>>,
}

impl Client {
    pub(crate) fn new(
        (connection, version): (nnhal_os::socket::Connection, u32),
        device: Arc<dyn Device>,
        config: &WorkerConfig,
        wake: &OwnedFd,
        (cores, weights): (Arc<WorkerCores>, Arc<Weights>),
    ) -> Result<Client, SysError> {
        let wake = || nnhal_os::fds::duplicate_of(wake);
        let slots = match config.execution.slots {
            0 => crate::processors::processors() as u32,
            slots => slots,
        };
        let limits = config.limits.clone();
        cores.set_most(config.execution.threads);
        let quotas = cores.quotas().clone();
        Ok(Client {
            outbox: Outbox::new(connection, version, wake()?, quotas.clone()),
            device,
            calls: Arc::new(Calls::new(limits.calls, wake()?)),
            pool: Pool::new(limits.threads, quotas.clone()),
            scheduler: Scheduler::new(slots, cores),
            watchdog: Arc::new(Watchdog::new(config.execution.hang_limit(), wake()?)),
            idle_release: Arc::new(IdleRelease::new(config.execution.idle_release())),
            memories: Arc::new(Memories::new(&limits, quotas.clone())),
            bursts: Bursts::new(limits.bursts, config.execution.shared_pollers, quotas.clone()),
            buffers: Arc::new(Buffers::new(&limits, quotas.clone())),
            weights,
            fenced: Mutex::new(Table::new(limits.objects)),
            fences: Mutex::new(Table::new(limits.objects)),
            models: Mutex::new(Table::new(limits.objects)),
            limits,
            quotas,
        })
    }

    /// Has a thread of the pool run the rest of a call; answers it if there is none.
    pub(crate) fn submit(
        &self,
        priority: Priority,
        call: OpenCall,
        work: impl FnOnce(&OpenCall) + Send + 'static,
    ) {
        if let Err(call) = call.run_on(&self.pool, priority, work) {
            self.outbox.reply(call.id(), Err(no_thread()));
        }
    }

    fn models(&self) -> MutexGuard<'_, Table<Arc<Prepared>>> {
        // The table is whole between any two statements of this module.
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_model(&self, prepared: Prepared) -> Result<PreparedModelHandle, Failure> {
        let handle = self.models().insert(Arc::new(prepared));
        Ok(handle
            .map_err(|full| too_many("prepared models", full, OBJECTS))?
            .into())
    }

    pub(crate) fn model(&self, handle: PreparedModelHandle) -> Result<Arc<Prepared>, Failure> {
        self.models()
            .get(handle.0)
            .cloned()
            .ok_or_else(|| no_such("prepared model", handle.0))
    }

    pub(crate) fn remove_model(&self, handle: PreparedModelHandle) -> Result<(), Failure> {
        let removed = self.models().remove(handle.0);
        removed
            .map(drop)
            .ok_or_else(|| no_such("prepared model", handle.0))
    }

    fn fenced_table(&self) -> MutexGuard<'_, Table<(Arc<Fenced>, Permit)>> {
        // The table is whole between any two statements of this module.
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_fenced(&self, fenced: Arc<Fenced>) -> Result<ExecutionHandle, Failure> {
        let permit = self.quotas.descriptor()?;
        let handle = self.fenced_table().insert((fenced, permit));
        Ok(handle
            .map_err(|full| too_many("fenced executions", full, OBJECTS))?
            .into())
    }

    pub(crate) fn fenced(&self, handle: ExecutionHandle) -> Result<Arc<Fenced>, Failure> {
        self.fenced_table()
            .get(handle.0)
            .map(|(fenced, _)| Arc::clone(fenced))
            .ok_or_else(|| no_such("fenced execution", handle.0))
    }

    pub(crate) fn remove_fenced(&self, handle: ExecutionHandle) -> Result<(), Failure> {
        let removed = self.fenced_table().remove(handle.0);
        removed
            .map(drop)
            .ok_or_else(|| no_such("fenced execution", handle.0))
    }

    fn fences(&self) -> MutexGuard<'_, Table<(Fence, Permit)>> {
        // The table is whole between any two statements of this module.
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_fence(&self, fds: Vec<OwnedFd>) -> Result<FenceHandle, Failure> {
        let fence = Fence::from_handle(fds.into_iter().next());
        let fence = fence.map_err(|error| Failure::invalid_argument(error.to_string()))?;
        let permit = self.quotas.descriptor()?;
        Ok(self
            .fences()
            .insert((fence, permit))
            .map_err(|full| too_many("fences", full, OBJECTS))?
            .into())
    }

    pub(crate) fn fence(&self, handle: FenceHandle) -> Result<Fence, Failure> {
        self.fences()
            .get(handle.0)
            .map(|(fence, _)| fence.clone())
            .ok_or_else(|| no_such("fence", handle.0))
    }

    pub(crate) fn remove_fence(&self, handle: FenceHandle) -> Result<(), Failure> {
        let removed = self.fences().remove(handle.0);
        removed.map(drop).ok_or_else(|| no_such("fence", handle.0))
    }

    /// Gives back scratch memory of models that do not run.
    pub(crate) fn release_memory(&self) {
        let models: Vec<_> = self.models().iter().cloned().collect();
        models.iter().for_each(|model| model.release_memory());
        nnhal_os::heap::give_back_free();
    }

    /// Puts the true sizes of its pools into a model, whatever the client wrote there.
    pub(crate) fn resolve_pools(
        &self,
        model: &mut Model,
        handles: &[MemoryHandle],
    ) -> Result<Vec<Arc<Memory>>, Failure> {
        if model.pools.len() != handles.len() {
            return Err(Failure::invalid_argument(format!(
                "the model has {} pools, {} memories came with it",
                model.pools.len(),
                handles.len()
            )));
        }
        let memories = self.memories.get_all(handles)?;
        for (pool, memory) in model.pools.iter_mut().zip(&memories) {
            pool.size = memory.size();
        }
        Ok(memories)
    }

    /// Puts the true sizes of its pools into a request, whatever the client wrote there. Returns the memories
    /// by pool.
    pub(crate) fn resolve_request(
        &self,
        request: RequestWithMemories,
    ) -> Result<(Request, RequestPools), Failure> {
        let RequestWithMemories {
            mut request,
            memories,
        } = request;
        let mut handles = memories.iter();
        let mut pools = Vec::new();
        for (index, pool) in request.pools.iter_mut().enumerate() {
            let RequestPool::Memory { size } = pool else {
                pools.push(None);
                continue;
            };
            let place = Place {
                pool: u32::try_from(index).ok(),
                ..Place::default()
            };
            let handle = handles.next().ok_or_else(|| {
                Failure::invalid_argument(format!("pool {index} of the request came without its memory"))
                    .at(place)
            })?;
            let memory = self.memories.get(*handle).map_err(|failure| failure.at(place))?;
            *size = memory.size();
            pools.push(Some(memory));
        }
        match handles.len() {
            0 => Ok((request, pools)),
            extra => Err(Failure::invalid_argument(format!(
                "{extra} memories more than pools came with the request"
            ))),
        }
    }
}
