//! How a model is to be compiled.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nnhal_hal::{CacheToken, DeviceInfo, ExecutionPreference, Operation, Priority};

use super::device::RuntimeDevice;

/// Whether a device may be given an operation of the main graph, by its index there.
pub type OperationFilter = Arc<dyn Fn(&DeviceInfo, usize, &Operation) -> bool + Send + Sync>;

/// Whether models are divided between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Partitioning {
    /// Models run on the CPU of this process, unless devices are named.
    Never,
    /// Models are divided; where that fails, or a driver refuses, the CPU of this process takes over. What
    /// becomes of a model whose worker died is for [`Recovery`] to say.
    #[default]
    WithFallback,
    /// Models are divided; a failure is reported.
    WithoutFallback,
}

/// What to do when the process that serves a device dies.
///
/// The model may be what killed it. So the CPU of this process computes it only if the application says so,
/// since a model that is not trusted has nothing between itself and the application there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The call fails. The next compilation uses the device again.
    #[default]
    None,
    /// The device is opened again, what it had is prepared again, device memories get back the values that
    /// this process gave them, and the execution is repeated, at most so often. An execution that needs a
    /// value that died with the process fails all the same.
    Reopen {
        /// How often one execution is repeated.
        attempts: u32,
    },
    /// The CPU of this process takes over where it may for other failures: for models that are trusted.
    OnCpu,
}

impl Recovery {
    pub(super) fn attempts(self) -> u32 {
        match self {
            Recovery::None | Recovery::OnCpu => 0,
            Recovery::Reopen { attempts } => attempts,
        }
    }
}

/// How to compile a model.
#[derive(Clone, Default)]
pub struct CompilationOptions {
    pub(super) devices: Option<Vec<RuntimeDevice>>,
    pub(super) preference: ExecutionPreference,
    pub(super) priority: Priority,
    pub(super) timeout: Option<Duration>,
    pub(super) caching: Option<(PathBuf, CacheToken)>,
    pub(super) partitioning: Option<Partitioning>,
    pub(super) recovery: Option<Recovery>,
    pub(super) filter: Option<OperationFilter>,
}

impl std::fmt::Debug for CompilationOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompilationOptions")
            .field("devices", &self.devices)
            .field("preference", &self.preference)
            .field("priority", &self.priority)
            .field("timeout", &self.timeout)
            .field("caching", &self.caching)
            .field("partitioning", &self.partitioning)
            .field("recovery", &self.recovery)
            .field("is_filtered", &self.filter.is_some())
            .finish()
    }
}

impl CompilationOptions {
    /// All devices, fast single answers, medium priority, no time limit, no cache.
    #[must_use]
    pub fn new() -> CompilationOptions {
        CompilationOptions::default()
    }

    /// These devices and no others: nothing falls back to the CPU of this process, which runs operations only
    /// if it is among them.
    #[must_use]
    pub fn devices(mut self, devices: &[RuntimeDevice]) -> CompilationOptions {
        self.devices = Some(devices.to_vec());
        self
    }

    /// What executions shall be good at; devices are chosen by it too.
    #[must_use]
    pub fn preference(mut self, preference: ExecutionPreference) -> CompilationOptions {
        self.preference = preference;
        self
    }

    /// Which models of this process go first.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> CompilationOptions {
        self.priority = priority;
        self
    }

    /// The longest that compiling may take; for a single device that is named only.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> CompilationOptions {
        self.timeout = Some(timeout);
        self
    }

    /// A directory in which devices that cache compilations keep what they prepared, and a token that names
    /// the model and everything else that the result depends on. A cache that cannot be used costs time and
    /// nothing else.
    #[must_use]
    pub fn caching(mut self, directory: impl Into<PathBuf>, token: CacheToken) -> CompilationOptions {
        self.caching = Some((directory.into(), token));
        self
    }

    /// Whether the model is divided; what the runtime's options say if not set.
    #[must_use]
    pub fn partitioning(mut self, partitioning: Partitioning) -> CompilationOptions {
        self.partitioning = Some(partitioning);
        self
    }

    /// What to do when the process that serves a device dies; what the runtime's options say if not set.
    #[must_use]
    pub fn recovery(mut self, recovery: Recovery) -> CompilationOptions {
        self.recovery = Some(recovery);
        self
    }

    /// Keeps operations away from devices that support them: `filter` says whether a device may be given an
    /// operation.
    #[must_use]
    pub fn filter(mut self, filter: OperationFilter) -> CompilationOptions {
        self.filter = Some(filter);
        self
    }
}
