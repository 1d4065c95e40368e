//! The devices that a driver binary knows.

use std::fmt;
use std::sync::Arc;

use nnhal_device::{Device, DeviceOptions, Needs};
use nnhal_hal::{DeviceInfo, Failure};

use super::{cpu, empty};

/// Makes a device. Called once in each worker, while files can still be opened. Threads that it starts end
/// before it returns: others would stay outside of the jail, so that the worker does not start.
pub type CreateDevice = fn(&DeviceOptions) -> Result<Arc<dyn Device>, Failure>;

/// A device that a driver binary can serve.
#[derive(Clone, Copy)]
pub struct DeviceEntry {
    /// `{VENDOR}-{DEVICE_NAME}`, the name that [`Device::info`] gives too.
    pub name: &'static str,
    /// Makes it.
    pub create: CreateDevice,
    /// Whether a driver whose settings name no devices serves it.
    pub by_default: bool,
    /// What it needs of the system while it serves a client.
    pub needs: Needs,
}

impl fmt::Debug for DeviceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEntry")
            .field("name", &self.name)
            .field("by_default", &self.by_default)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// The devices that a driver binary knows. Which of them it serves is for its settings to say; by default
/// those that are registered so.
#[derive(Clone, Debug, Default)]
pub struct DeviceRegistry {
    entries: Vec<DeviceEntry>,
}

impl DeviceRegistry {
    /// A registry without devices, for a vendor's own.
    #[must_use]
    pub fn new() -> DeviceRegistry {
        DeviceRegistry::default()
    }

    /// The devices of this library: `nnhal-reference`, `nnhal-cpu`, and `nnhal-empty` for tests.
    #[must_use]
    pub fn of_nnhal() -> DeviceRegistry {
        DeviceRegistry::new()
            .with(DeviceEntry {
                name: cpu::REFERENCE,
                create: cpu::create_reference,
                by_default: true,
                needs: Needs::NONE,
            })
            .with(DeviceEntry {
                name: cpu::FAST,
                create: cpu::create_fast,
                by_default: true,
                needs: Needs::NONE,
            })
            .with(DeviceEntry {
                name: empty::NAME,
                create: empty::create,
                by_default: false,
                needs: Needs::NONE,
            })
    }

    /// The same registry with one more device.
    ///
    /// # Panics
    ///
    /// If the name is not a device name or is taken: a mistake in the binary, not in its input.
    #[must_use]
    pub fn with(mut self, entry: DeviceEntry) -> DeviceRegistry {
        assert!(
            DeviceInfo::is_valid_name(entry.name),
            "{:?} is no device name",
            entry.name
        );
        assert!(
            self.get(entry.name).is_none(),
            "{:?} is registered twice",
            entry.name
        );
        self.entries.push(entry);
        self
    }

    /// The device with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DeviceEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The names of all devices.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().map(|entry| entry.name)
    }

    /// The names of the devices that are served by default.
    pub fn default_names(&self) -> impl Iterator<Item = &'static str> {
        let served = self.entries.iter().filter(|entry| entry.by_default);
        served.map(|entry| entry.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_give_the_name_they_are_registered_under() {
        for name in DeviceRegistry::of_nnhal().names() {
            let entry = *DeviceRegistry::of_nnhal().get(name).unwrap();
            let device = (entry.create)(&DeviceOptions::default()).unwrap();
            assert_eq!(device.info().name, name);
            assert!(!device.info().version.is_empty());
            assert!(device.info().cache_files.is_valid());
        }
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn device_registered_twice_is_a_mistake() {
        let entry = DeviceEntry {
            name: cpu::REFERENCE,
            create: cpu::create_reference,
            by_default: true,
            needs: Needs::NONE,
        };
        let _ = DeviceRegistry::of_nnhal().with(entry);
    }
}
