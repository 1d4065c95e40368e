//! What can be set: the settings file, read at the start and again on SIGHUP.
//!
//! Every value has a default, so that no file is needed. A key that there is not is an error: a misspelt
//! limit would otherwise be no limit.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nnhal_device::DeviceOptions;
use serde::{Deserialize, Serialize};

use crate::device::registry::DeviceRegistry;

/// The most that the kernel takes as the weight of a control group.
const MAX_CPU_WEIGHT: u32 = 10_000;

/// The settings of a driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The devices to serve, by name; empty for those that the binary serves by default. Read at the start
    /// only.
    pub devices: Vec<String>,
    /// Where to publish the sockets; empty for [`nnhal::wire::directory::runtime_dir`]. Read at the start
    /// only.
    pub runtime_dir: PathBuf,
    /// Who is served.
    pub clients: ClientSettings,
    /// Worker processes.
    pub workers: WorkerSettings,
    /// What one client may use. Applies to workers that start afterwards.
    pub limits: Limits,
    /// What all clients of one user may use together. Applies to workers that start afterwards.
    pub user_limits: UserLimits,
    /// How work is run. Applies at once.
    pub execution: ExecutionSettings,
    /// Packed weights that workers share.
    pub weights: WeightSettings,
    /// What keeps workers and the supervisor from doing harm.
    pub jail: JailSettings,
    /// Options of devices, by name. Applies to workers that start afterwards.
    pub device: BTreeMap<String, BTreeMap<String, OptionValue>>,
}

/// The value of a device's option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Any number.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// Who is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSettings {
    /// Clients at once, of all users.
    pub max: u32,
    /// Clients at once of one user.
    pub max_per_user: u32,
    /// The last of all places, which are kept for users who have no client. At most a fourth of all places;
    /// none where no others may connect.
    pub reserved: u32,
    /// Whether other users than the driver's own may connect. The runtime directory and the sockets are then
    /// open to them.
    pub other_users: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        // A worker's start costs a few milliseconds and megabytes; a thousand is what a small machine bears.
        ClientSettings {
            max: 1024,
            max_per_user: 256,
            reserved: 64,
            other_users: false,
        }
    }
}

/// Worker processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Workers that are kept started for clients to come.
    pub spare: u32,
    /// How long a worker may take to start, in milliseconds.
    pub start_timeout_ms: u64,
    /// How long a client may take for its hello, in milliseconds.
    pub hello_timeout_ms: u64,
    /// How long workers may take to finish what they do when the driver ends, in milliseconds.
    pub drain_timeout_ms: u64,
    /// How long a worker may outlive its client, in milliseconds.
    pub linger_timeout_ms: u64,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            spare: 1,
            start_timeout_ms: 10_000,
            hello_timeout_ms: 5_000,
            drain_timeout_ms: 5_000,
            linger_timeout_ms: 2_000,
        }
    }
}

/// What one client may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of all memories that it shares, by their declared sizes.
    pub shared_bytes: u64,
    /// Bytes of constants that one model has outside of sealed memory; they are copied.
    pub constant_bytes: u64,
    /// Bytes of all its device buffers.
    pub buffer_bytes: u64,
    /// Bytes of address space of its worker, the driver's own included; 0 for no limit.
    pub address_space_bytes: u64,
    /// Memories, prepared models, device buffers, fences and outcomes of fenced executions, of each kind.
    pub objects: u32,
    /// Bursts; each has a thread of its own, which may rest while another serves it.
    pub bursts: u32,
    /// Calls that have not been answered.
    pub calls: u32,
    /// Threads that run calls, beside those of bursts.
    pub threads: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            shared_bytes: 16 << 30,
            constant_bytes: 4 << 30,
            buffer_bytes: 4 << 30,
            address_space_bytes: 64 << 30,
            objects: 4096,
            bursts: 64,
            calls: 1024,
            threads: 32,
        }
    }
}

/// What all clients of one user may use together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLimits {
    /// Threads of workers; 0 for half of what the system lets the driver have. Helper threads of `nnhal-cpu`
    /// have at most half of them.
    pub threads: u32,
    /// Descriptors that workers keep: of memories, fences, and outcomes of fenced executions.
    pub descriptors: u32,
    /// Descriptors that have been sent to clients and that they have not read. The kernel counts these
    /// against the driver's user.
    pub unread_descriptors: u32,
    /// Bytes of all memories that they share, by their declared sizes.
    pub shared_bytes: u64,
    /// Bytes of all their device buffers.
    pub buffer_bytes: u64,
    /// Bytes of memory that workers have, as the kernel counts them; 0 for no limit. Holds where a control
    /// group was delegated to the driver, as the next one does.
    pub memory_bytes: u64,
    /// How much of the processors they have beside those of other users, from 1 to 10,000.
    pub cpu_weight: u32,
}

impl Default for UserLimits {
    fn default() -> Self {
        // As much as some clients may have that use all of theirs.
        UserLimits {
            threads: 0,
            descriptors: 65_536,
            unread_descriptors: 1024,
            shared_bytes: 128 << 30,
            buffer_bytes: 16 << 30,
            memory_bytes: 0,
            cpu_weight: 100,
        }
    }
}

/// How work is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionSettings {
    /// Pieces of work of one client that run at once; 0 for the number of processors.
    pub slots: u32,
    /// Threads that one execution computes with at most, if its device can use several and processors are
    /// free; 0 for the number of processors.
    pub threads: u32,
    /// How long a burst looks for its next request before it sleeps, at most, in microseconds; twice that
    /// towards the end of long waits that are alike. Bursts that are opened afterwards have it, and
    /// [`ExecutionSettings::polling`].
    pub polling_window_us: u64,
    /// Whether bursts look for that long each time.
    pub polling: Polling,
    /// How many threads of bursts may serve other bursts, too, that have brief executions and are of the same
    /// kind; 0 for half of the processors. With as many as there may be bursts, each burst keeps its own.
    /// Applies to workers that start afterwards. Files that call it `burst_hosts` are read, too.
    #[serde(alias = "burst_hosts")]
    pub shared_pollers: u32,
    /// After how long without a checkpoint work is taken for hung, in milliseconds; 0 for never.
    pub hang_limit_ms: u64,
    /// How long an execution waits for its fences at most, in milliseconds; 0 for ever.
    pub fence_timeout_ms: u64,
    /// After how long without work its scratch memory is given back, in milliseconds; 0 for never.
    pub idle_release_ms: u64,
}

impl Default for ExecutionSettings {
    fn default() -> Self {
        // The longest single operation of the reference kernels, a large convolution on a slow processor,
        // takes seconds.
        ExecutionSettings {
            slots: 0,
            threads: 0,
            polling_window_us: 50,
            polling: Polling::Adaptive,
            shared_pollers: 0,
            hang_limit_ms: 60_000,
            fence_timeout_ms: 60_000,
            idle_release_ms: 5_000,
        }
    }
}

impl ExecutionSettings {
    /// [`ExecutionSettings::hang_limit_ms`] as a duration, if there is one.
    #[must_use]
    pub fn hang_limit(&self) -> Option<Duration> {
        (self.hang_limit_ms != 0).then(|| Duration::from_millis(self.hang_limit_ms))
    }

    /// [`ExecutionSettings::fence_timeout_ms`] as a duration, if there is one.
    #[must_use]
    pub fn fence_timeout(&self) -> Option<Duration> {
        (self.fence_timeout_ms != 0).then(|| Duration::from_millis(self.fence_timeout_ms))
    }

    /// [`ExecutionSettings::idle_release_ms`] as a duration, if there is one.
    #[must_use]
    pub fn idle_release(&self) -> Option<Duration> {
        (self.idle_release_ms != 0).then(|| Duration::from_millis(self.idle_release_ms))
    }
}

/// How the time that a burst looks for its next request follows from
/// [`ExecutionSettings::polling_window_us`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Polling {
    /// It follows the measured times, and the setting is the most.
    #[default]
    Adaptive,
    /// It is the setting, whatever was measured, for those who want every request seen at once and have the
    /// processors.
    Fixed,
}

/// Packed weights that workers share: one copy in memory for all clients of one user that prepare the same
/// model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightSettings {
    /// Whether they are shared. `false` applies at once, `true` to workers that start afterwards.
    pub share: bool,
    /// How many bytes a model's packed weights must have to be shared. Applies to workers that start
    /// afterwards.
    pub min_bytes: u64,
    /// Memories with shared weights at once, of all users. Applies at once, as the following do.
    pub max: u32,
    /// Of one user.
    pub max_per_user: u32,
    /// Bytes of one user's memories with shared weights.
    pub max_bytes_per_user: u64,
}

impl Default for WeightSettings {
    fn default() -> Self {
        // What is smaller than the least is not worth two messages. Each memory costs the supervisor a
        // descriptor.
        WeightSettings {
            share: true,
            min_bytes: 256 * 1024,
            max: 1024,
            max_per_user: 64,
            max_bytes_per_user: 4 << 30,
        }
    }
}

/// What the driver's processes give up. Each part that is on holds as far as the kernel has it. Applies to
/// workers that start afterwards, and to a supervisor at its start only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JailSettings {
    /// Whether system calls are restricted to lists (seccomp).
    pub system_calls: bool,
    /// Whether files, and other processes, are out of reach (Landlock).
    pub files: bool,
    /// Whether a worker has namespaces of its own.
    pub namespaces: bool,
    /// The user that a driver which runs as root gives its workers to, by name or number; empty for `nnhal`,
    /// or 65534 if there is no such user. Read at the start only.
    pub user: String,
}

impl Default for JailSettings {
    fn default() -> Self {
        JailSettings {
            system_calls: true,
            files: true,
            namespaces: true,
            user: String::new(),
        }
    }
}

/// What is wrong with settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("failed to read the settings file {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not as it should be.
    #[error("the settings file {} is wrong: {source}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where, and what was expected.
        source: Box<toml::de::Error>,
    },
    /// A device that the binary does not know.
    #[error("there is no device {name:?}; this driver has {known}")]
    UnknownDevice {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A value makes no sense.
    #[error("{key} must be at least {minimum}")]
    TooSmall {
        /// Which one.
        key: &'static str,
        /// The least that works.
        minimum: u64,
    },
    /// A value is more than there can be.
    #[error("{key} must be at most {maximum}")]
    TooLarge {
        /// Which one.
        key: &'static str,
        /// The most that works.
        maximum: u64,
    },
}

impl Settings {
    /// Reads a settings file.
    ///
    /// # Errors
    ///
    /// [`SettingsError`], naming the file and the line.
    pub fn read(path: &Path) -> Result<Settings, SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
            path: path.to_owned(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| SettingsError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Checks what the form alone does not say, and fills in which devices are served.
    ///
    /// # Errors
    ///
    /// [`SettingsError`].
    pub fn check(&mut self, registry: &DeviceRegistry) -> Result<(), SettingsError> {
        if self.devices.is_empty() {
            self.devices.extend(registry.default_names().map(str::to_owned));
        }
        let mut seen = HashSet::new();
        self.devices.retain(|name| seen.insert(name.clone()));
        for name in self.devices.iter().chain(self.device.keys()) {
            if registry.get(name).is_none() {
                let known = registry.names().collect::<Vec<_>>().join(", ");
                return Err(SettingsError::UnknownDevice {
                    name: name.clone(),
                    known,
                });
            }
        }
        let minimums = [
            ("clients.max", u64::from(self.clients.max), 1),
            ("clients.max_per_user", u64::from(self.clients.max_per_user), 1),
            ("workers.start_timeout_ms", self.workers.start_timeout_ms, 100),
            ("workers.hello_timeout_ms", self.workers.hello_timeout_ms, 100),
            ("limits.objects", u64::from(self.limits.objects), 1),
            ("limits.calls", u64::from(self.limits.calls), 1),
            ("limits.threads", u64::from(self.limits.threads), 1),
            (
                "user_limits.cpu_weight",
                u64::from(self.user_limits.cpu_weight),
                1,
            ),
            (
                "user_limits.unread_descriptors",
                u64::from(self.user_limits.unread_descriptors),
                1,
            ),
        ];
        for (key, value, minimum) in minimums {
            if value < minimum {
                return Err(SettingsError::TooSmall { key, minimum });
            }
        }
        if self.user_limits.cpu_weight > MAX_CPU_WEIGHT {
            return Err(SettingsError::TooLarge {
                key: "user_limits.cpu_weight",
                maximum: u64::from(MAX_CPU_WEIGHT),
            });
        }
        Ok(())
    }

    /// The options of one device.
    #[must_use]
    pub fn device_options(&self, name: &str) -> DeviceOptions {
        let text = |value: &OptionValue| match value {
            OptionValue::Flag(value) => value.to_string(),
            OptionValue::Whole(value) => value.to_string(),
            OptionValue::Number(value) => value.to_string(),
            OptionValue::Text(value) => value.clone(),
        };
        let options = self.device.get(name).into_iter().flatten();
        DeviceOptions {
            values: options.map(|(key, value)| (key.clone(), text(value))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, SettingsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.toml");
        std::fs::write(&path, text).unwrap();
        let mut settings = Settings::read(&path)?;
        settings.check(&DeviceRegistry::of_nnhal())?;
        Ok(settings)
    }

    #[test]
    fn empty_file_gives_the_defaults_and_the_default_devices() {
        let settings = read("").unwrap();
        assert_eq!(settings.devices, ["nnhal-reference", "nnhal-cpu"]);
        assert_eq!(settings.limits, Limits::default());
    }

    #[test]
    fn shared_pollers_are_read_by_the_name_of_before() {
        for name in ["shared_pollers", "burst_hosts"] {
            let settings = read(&format!("[execution]\n{name} = 3\n")).unwrap();
            assert_eq!(settings.execution.shared_pollers, 3);
        }
    }

    #[test]
    fn documentation_states_the_defaults() {
        let text = include_str!("../../docs/settings.md");
        let (_, rest) = text.split_once("```toml\n").unwrap();
        let (file, _) = rest.split_once("```").unwrap();
        let mut documented: Settings = toml::from_str(file).unwrap();
        assert!(
            documented
                .device
                .remove("NAME")
                .is_some_and(|options| options.is_empty())
        );
        assert_eq!(documented, Settings::default());
        let keys = |value: &toml::Value| {
            let table = value.as_table().unwrap();
            let of = |(key, value): (&String, &toml::Value)| match value.as_table() {
                Some(table) => table.keys().map(|inner| format!("{key}.{inner}")).collect(),
                None => vec![key.clone()],
            };
            table
                .iter()
                .flat_map(of)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let defaults = toml::Value::try_from(Settings::default()).unwrap();
        let file = toml::Value::Table(toml::from_str(file).unwrap());
        let mut stated = keys(&file);
        stated.remove("device.NAME");
        assert_eq!(stated, keys(&defaults));
    }

    #[test]
    fn device_that_is_named_twice_is_served_once() {
        let settings =
            read("devices = [\"nnhal-cpu\", \"nnhal-empty\", \"nnhal-cpu\", \"nnhal-empty\"]\n").unwrap();
        assert_eq!(settings.devices, ["nnhal-cpu", "nnhal-empty"]);
    }

    #[test]
    fn values_and_device_options_are_read() {
        let settings = read(
            "devices = [\"nnhal-empty\"]\n[limits]\nbursts = 3\n[execution]\npolling = \"fixed\"\n[device.nnhal-empty]\nfault = \"hang\"\nafter = 2\n",
        )
        .unwrap();
        assert_eq!(settings.limits.bursts, 3);
        assert_eq!(settings.execution.polling, Polling::Fixed);
        let options = settings.device_options("nnhal-empty");
        assert_eq!(
            (options.get("fault"), options.get("after")),
            (Some("hang"), Some("2"))
        );
        assert_eq!(
            settings.device_options("nnhal-reference"),
            DeviceOptions::default()
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, mention) in [
            ("[limits]\nburst = 3", "burst"),
            ("[limits]\nbursts = \"many\"", "bursts"),
            ("[execution]\npolling = \"always\"", "always"),
            ("devices = [\"nnhal-none\"]", "nnhal-none"),
            ("[device.ACME-npu]\n", "ACME-npu"),
            ("[clients]\nmax = 0", "clients.max"),
            (
                "[user_limits]\ncpu_weight = 0",
                "user_limits.cpu_weight must be at least 1",
            ),
            (
                "[user_limits]\ncpu_weight = 10001",
                "user_limits.cpu_weight must be at most 10000",
            ),
            ("[limits", "limits"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(mention), "{error}");
        }
        let error = Settings::read(Path::new("/nonexistent/settings.toml")).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/settings.toml"),
            "{error}"
        );
    }
}
