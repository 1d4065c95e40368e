//! What passes between the supervisor and its workers.
//!
//! Three ways, each with its reason:
//! - **A packet socket** on the worker's standard input. The supervisor says there what to be, the worker
//!   whether it is ready, and then a client's connection is handed over. From then on the worker asks there
//!   for packed weights that other workers have, in messages of a fixed size: see [`crate::weights`].
//! - **A second packet socket** for [`Command`]s, which the worker cannot send to.
//! - **the crash record**, a page of shared memory that the worker writes its last words to. The supervisor
//!   reads it as bytes, when the worker is dead.

use std::os::fd::OwnedFd;

use nnhal_device::DeviceOptions;
use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};

use crate::jail::{Birth, Identity, InForce};
use crate::settings::{
    ExecutionSettings, JailSettings, Limits, Polling, Settings, UserLimits, WeightSettings, WorkerSettings,
};

/// A worker's share of the settings: what to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerConfig {
    /// The devices that a client may be there for, with their options.
    pub(crate) devices: Vec<DeviceConfig>,
    pub(crate) workers: WorkerSettings,
    pub(crate) limits: Limits,
    pub(crate) user_limits: UserLimits,
    pub(crate) execution: ExecutionSettings,
    pub(crate) weights: WeightSettings,
    pub(crate) jail: JailSettings,
    /// Whose it becomes, if not its supervisor's user's.
    pub(crate) identity: Option<Identity>,
    /// What it begins with, as its starter knows.
    pub(crate) birth: Birth,
}

impl WorkerConfig {
    /// What the settings say.
    pub(crate) fn new(settings: &Settings, identity: Option<Identity>) -> WorkerConfig {
        let devices = settings
            .devices
            .iter()
            .map(|name| DeviceConfig::new(name, settings.device_options(name)));
        WorkerConfig {
            devices: devices.collect(),
            workers: settings.workers.clone(),
            limits: settings.limits.clone(),
            user_limits: settings.user_limits.clone(),
            execution: settings.execution.clone(),
            weights: settings.weights.clone(),
            jail: settings.jail.clone(),
            identity,
            birth: Birth::default(),
        }
    }
}

/// A device that a worker makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceConfig {
    pub(crate) name: String,
    options: Vec<DeviceOption>,
}

/// A key of [`DeviceOptions`] and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceOption {
    key: String,
    value: String,
}

impl DeviceConfig {
    fn new(name: &str, options: DeviceOptions) -> DeviceConfig {
        let options = options.values.into_iter();
        DeviceConfig {
            name: name.to_owned(),
            options: options.map(|(key, value)| DeviceOption { key, value }).collect(),
        }
    }

    /// What it is made with.
    pub(crate) fn options(&self) -> DeviceOptions {
        let options = self.options.iter();
        DeviceOptions {
            values: options
                .map(|option| (option.key.clone(), option.value.clone()))
                .collect(),
        }
    }
}

/// From a worker that starts.
#[derive(Debug)]
pub(crate) enum Report {
    /// Its devices are made, its jail is entered.
    Ready { jail: InForce },
    /// It cannot serve anyone; it ends.
    Failed { reason: String },
}

/// From the supervisor.
#[derive(Debug)]
pub(crate) enum Command {
    /// The settings have changed; execution settings apply at once.
    Reconfigure(ExecutionSettings),
    /// The driver ends: finish what runs, then end.
    Drain,
}

/// A client that is handed to a worker. Descriptors: its connection, and the table of what its user's workers
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The device whose socket the client connected to.
    pub(crate) device: String,
    /// The worker's own number outside, as it may have another one inside of its PID namespace.
    pub(crate) worker_pid: u32,
    pub(crate) supervisor_pid: u32,
    /// The client, as the kernel identified it.
    pub(crate) client: ClientIdentity,
    /// The worker's row in the table.
    pub(crate) row: u32,
}

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: i32,
}

// Both ends are of one binary, so nothing here is frozen.
nnhal::wire_numbers! {
    Report { 0 => Ready { jail: InForce }, 1 => Failed { reason: String } }
    Command { 0 => Reconfigure(settings: ExecutionSettings), 1 => Drain }
    Polling { 0 => Adaptive, 1 => Fixed }
}

nnhal::wire_record! {
    WorkerConfig {
        devices: Vec<DeviceConfig>,
        workers: WorkerSettings,
        limits: Limits,
        user_limits: UserLimits,
        execution: ExecutionSettings,
        weights: WeightSettings,
        jail: JailSettings,
        identity: Option<Identity>,
        birth: Birth,
    }
    Birth { user_outside: Option<Identity>, refused: String }
    DeviceConfig { name: String, options: Vec<DeviceOption> }
    DeviceOption { key: String, value: String }
    WorkerSettings {
        spare: u32,
        start_timeout_ms: u64,
        hello_timeout_ms: u64,
        drain_timeout_ms: u64,
        linger_timeout_ms: u64,
    }
    Limits {
        shared_bytes: u64,
        constant_bytes: u64,
        buffer_bytes: u64,
        address_space_bytes: u64,
        objects: u32,
        bursts: u32,
        calls: u32,
        threads: u32,
    }
    UserLimits {
        threads: u32,
        descriptors: u32,
        unread_descriptors: u32,
        shared_bytes: u64,
        buffer_bytes: u64,
        memory_bytes: u64,
        cpu_weight: u32,
    }
    ExecutionSettings {
        slots: u32,
        threads: u32,
        polling_window_us: u64,
        polling: Polling,
        shared_pollers: u32,
        hang_limit_ms: u64,
        fence_timeout_ms: u64,
        idle_release_ms: u64,
    }
    WeightSettings {
        share: bool,
        min_bytes: u64,
        max: u32,
        max_per_user: u32,
        max_bytes_per_user: u64,
    }
    JailSettings { system_calls: bool, files: bool, namespaces: bool, user: String }
    Identity { uid: u32, gid: u32 }
    InForce { parts: Vec<String>, not_permitted: Vec<String>, lacking: Vec<String> }
    Assignment { device: String, worker_pid: u32, supervisor_pid: u32, client: ClientIdentity, row: u32 }
    ClientIdentity { uid: u32, gid: u32, pid: i32 }
}

/// A page that outlives the worker that writes to it.
#[derive(Debug)]
pub(crate) struct CrashRecord {
    mapping: Mapping,
}

impl CrashRecord {
    const SIZE: u64 = 4096;
    const TEXT: u64 = 2;
    const MAX_TEXT: usize = 1024;

    /// A new one, and the descriptor for the other side.
    pub(crate) fn create() -> Result<(CrashRecord, OwnedFd), ShmError> {
        let memory = SharedMemory::create(Self::SIZE)?;
        let mapping = Mapping::new(&memory, Access::ReadWrite)?;
        Ok((CrashRecord { mapping }, memory.into()))
    }

    /// The other side's.
    pub(crate) fn open(fd: OwnedFd) -> Result<CrashRecord, ShmError> {
        let memory = SharedMemory::from_fd(fd, Self::SIZE, Self::SIZE)?;
        Ok(CrashRecord {
            mapping: Mapping::new(&memory, Access::ReadWrite)?,
        })
    }

    /// Writes down why this process ends, if nothing is written there yet. Allocates nothing.
    pub(crate) fn note(&self, text: &str) {
        let page = self.mapping.as_slice();
        let mut length = [0; 2];
        if page.read_at(0, &mut length).is_err() || length != [0; 2] {
            return;
        }
        let end = text.floor_char_boundary(Self::MAX_TEXT);
        let bytes = text.as_bytes().get(..end).unwrap_or_default();
        // The text first: a process killed in between has said nothing. The range lies within the page.
        let _ = page.write_at(Self::TEXT, bytes);
        let _ = page.write_at(0, &(bytes.len() as u16).to_le_bytes());
    }

    /// What the other process wrote last. Whatever it is, it comes out as a short line of text.
    pub(crate) fn last_words(&self) -> String {
        let page = self.mapping.as_slice();
        let mut length = [0; 2];
        if page.read_at(0, &mut length).is_err() {
            return String::new();
        }
        let mut bytes = vec![0; usize::from(u16::from_le_bytes(length)).min(Self::MAX_TEXT)];
        if page.read_at(Self::TEXT, &mut bytes).is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_the_first_ones_noted() {
        let (here, fd) = CrashRecord::create().unwrap();
        let there = CrashRecord::open(fd).unwrap();
        assert_eq!(here.last_words(), "");
        there.note("CONV_2D\nhung");
        there.note("something that followed from it");
        assert_eq!(here.last_words(), "CONV_2D hung");
    }

    #[test]
    fn last_words_of_a_hostile_worker_are_bounded_text() {
        let (here, fd) = CrashRecord::create().unwrap();
        let there = CrashRecord::open(fd).unwrap();
        there.mapping.as_slice().write_at(0, &[0xFF; 4096]).unwrap();
        assert!(here.last_words().chars().count() <= CrashRecord::MAX_TEXT);
        let (here, fd) = CrashRecord::create().unwrap();
        CrashRecord::open(fd).unwrap().note(&"é".repeat(4000));
        assert_eq!(here.last_words().len(), CrashRecord::MAX_TEXT);
    }

    #[test]
    fn config_carries_device_options_as_text() {
        let settings: Settings =
            toml::from_str("devices = [\"nnhal-empty\"]\n[device.nnhal-empty]\nafter = 3").unwrap();
        let config = WorkerConfig::new(&settings, None);
        assert_eq!(config.devices[0].options().get("after"), Some("3"));
    }
}
