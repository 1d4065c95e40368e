//! What a device says of itself once and for all, and of the operations of a model.

use serde::{Deserialize, Serialize};

use super::{Capabilities, DeviceType, Extension, HalVersion, MAX_NUMBER_OF_CACHE_FILES};

/// The answers of `getType`, `getVersionString`, `getCapabilities`, `getSupportedExtensions` and
/// `getNumberOfCacheFilesNeeded`: constant for the life of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// `{VENDOR}-{DEVICE_NAME}`, see [`DeviceInfo::is_valid_name`].
    pub name: String,
    /// Names the release: not empty, another one whenever compiled results could change.
    pub version: String,
    /// The kind of device.
    pub device_type: DeviceType,
    /// The newest HAL version whose models and calls the device takes.
    pub hal_version: HalVersion,
    /// How fast it is, relative to the reference CPU.
    pub capabilities: Capabilities,
    /// The vendor extensions it supports.
    pub extensions: Vec<Extension>,
    /// How many cache files it needs.
    pub cache_files: NumberOfCacheFiles,
}

impl DeviceInfo {
    /// Whether `name` has the form that the HAL asks of device names: exactly one `-`, neither first nor
    /// last. The name is also the name of a file, hence ASCII letters, digits, `_` and `.` only, at most 64
    /// bytes.
    #[must_use]
    pub fn is_valid_name(name: &str) -> bool {
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        };
        name.len() <= 64
            && name
                .split_once('-')
                .is_some_and(|(vendor, device)| is_part(vendor) && is_part(device))
    }
}

/// The answer of `getNumberOfCacheFilesNeeded`. Two zeros mean that the device does not cache compilations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NumberOfCacheFiles {
    /// Files for what must not be tampered with, such as code; at most [`MAX_NUMBER_OF_CACHE_FILES`].
    pub model: u32,
    /// Files for constants; at most [`MAX_NUMBER_OF_CACHE_FILES`].
    pub data: u32,
}

impl NumberOfCacheFiles {
    /// Whether the device caches compilations at all.
    #[must_use]
    pub fn is_caching_supported(self) -> bool {
        self.model != 0 || self.data != 0
    }

    /// Whether both numbers are within the HAL's limit.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.model <= MAX_NUMBER_OF_CACHE_FILES && self.data <= MAX_NUMBER_OF_CACHE_FILES
    }
}

/// Whether a device can run an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperationSupport {
    /// It can; preparing the model will not fail because of it.
    Supported,
    /// It cannot.
    Unsupported {
        /// Why not, for people.
        reason: String,
    },
}

impl OperationSupport {
    /// The answer as the HAL gives it.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        matches!(self, OperationSupport::Supported)
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceInfo;

    #[test]
    fn device_names_have_exactly_one_inner_hyphen() {
        assert!(DeviceInfo::is_valid_name("nnhal-reference"));
        assert!(DeviceInfo::is_valid_name("ACME-npu_2.1"));
        for name in [
            "", "-", "nnhal", "-cpu", "nnhal-", "a-b-c", "a-../b", "a/b-c", "a-b c", ".a-b", "a-\u{e9}",
        ] {
            assert!(!DeviceInfo::is_valid_name(name), "{name:?}");
        }
        assert!(!DeviceInfo::is_valid_name(&format!("a-{}", "b".repeat(63))));
    }
}
