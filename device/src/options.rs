//! What a device is made with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the settings say to devices: the table `[device.NAME]` of the settings file, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Key and value, in the order of the keys.
    pub values: BTreeMap<String, String>,
}

impl DeviceOptions {
    /// The value of one option.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }
}
