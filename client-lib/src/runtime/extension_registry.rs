//! The vendor extensions that the devices of the runtime have, and the prefixes by which this process knows
//! them.

use nnhal::diag::tags;
use nnhal_hal::{Extension, Model, tflite};

use super::device::RuntimeDevice;
use super::result::{RuntimeError, RuntimeResult};

/// The vendor extensions of all devices. One that two devices define differently can be used on neither.
#[derive(Clone, Debug, Default)]
pub struct ExtensionRegistry {
    /// An extension's prefix is its place, counted from 1.
    extensions: Vec<Extension>,
    /// Names, with the devices that differ.
    disabled: Vec<(String, [String; 2])>,
}

impl ExtensionRegistry {
    pub(super) fn of(devices: &[RuntimeDevice]) -> ExtensionRegistry {
        let mut registry = ExtensionRegistry::default();
        let mut owners: Vec<&str> = Vec::new();
        for device in devices {
            for extension in &device.info().extensions {
                match registry.position(&extension.name) {
                    None => {
                        registry.extensions.push(extension.clone());
                        owners.push(device.name());
                    }
                    Some(at) if is_same(&registry.extensions[at], extension) => {}
                    Some(at) => {
                        let pair = [owners[at].to_owned(), device.name().to_owned()];
                        tracing::warn!(
                            target: tags::MANAGER, extension = extension.name,
                            ?pair,
                            "extension disabled: two definitions"
                        );
                        registry.disabled.push((extension.name.clone(), pair));
                    }
                }
            }
        }
        registry
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.extensions.iter().position(|known| known.name == name)
    }

    fn is_disabled(&self, name: &str) -> bool {
        self.disabled.iter().any(|(disabled, _)| disabled == name)
    }

    /// The extension with this name; `None` if no device has it, or if devices disagree about it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Extension> {
        let found = self.extensions.get(self.position(name)?)?;
        (!self.is_disabled(name)).then_some(found)
    }

    /// The prefix of the extension's types and operations in models of this process, from 1 upward. nnhal's
    /// own has the one that it has in every valid model, so that its types are the same before and after.
    #[must_use]
    pub fn prefix(&self, name: &str) -> Option<u16> {
        self.get(name)?;
        if name == tflite::NAME {
            return Some(tflite::PREFIX);
        }
        u16::try_from(self.position(name)? + 1).ok()
    }

    /// The name of the extension with this prefix.
    #[must_use]
    pub fn name(&self, prefix: u16) -> Option<&str> {
        let mut names = self.extensions().map(|known| known.name.as_str());
        names.find(|name| self.prefix(name) == Some(prefix))
    }

    /// Those that can be used.
    pub fn extensions(&self) -> impl Iterator<Item = &Extension> {
        let known = self.extensions.iter();
        known.filter(|extension| !self.is_disabled(&extension.name))
    }

    /// Refuses a model that uses an extension that devices disagree about.
    pub(super) fn check(&self, model: &Model) -> RuntimeResult<()> {
        for used in &model.extension_name_to_prefix {
            let found = self.disabled.iter().find(|(name, _)| *name == used.name);
            if let Some((name, [one, other])) = found {
                return Err(RuntimeError::bad_data(format!(
                    "the model uses the vendor extension {name}, which {one} and {other} define differently; it can \
                     be used on no device while both are there"
                )));
            }
        }
        Ok(())
    }
}

/// Whether two devices mean the same by a name: the order in which they list types says nothing.
fn is_same(one: &Extension, other: &Extension) -> bool {
    let sorted = |extension: &Extension| {
        let mut types = extension.operand_types.clone();
        types.sort_by_key(|ty| ty.number);
        types
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{ExtensionNameAndPrefix, ExtensionOperandTypeInformation};

    use super::*;
    use crate::devices_options::DevicesOptions;
    use crate::runtime::result::ResultCode;

    fn device(name: &str, extensions: &[(&str, u32)]) -> RuntimeDevice {
        let mut info = (*RuntimeDevice::cpu().info()).clone();
        info.name = name.to_owned();
        info.extensions = extensions
            .iter()
            .map(|(name, byte_size)| Extension {
                name: (*name).to_owned(),
                operand_types: vec![ExtensionOperandTypeInformation {
                    number: 0,
                    is_tensor: false,
                    byte_size: *byte_size,
                }],
            })
            .collect();
        let devices = DevicesOptions::new().without_private_driver();
        RuntimeDevice::of_driver(Arc::new(info), devices.private().open().unwrap())
    }

    #[test]
    fn own_extension_has_the_prefix_of_valid_models() {
        let registry = ExtensionRegistry::of(&[device("a", &[(tflite::NAME, 8), ("com.a.other", 4)])]);
        assert_eq!(registry.prefix(tflite::NAME), Some(tflite::PREFIX));
        assert_eq!(registry.name(tflite::PREFIX), Some(tflite::NAME));
        assert_eq!((registry.name(1), registry.name(2)), (None, Some("com.a.other")));
        assert_eq!(ExtensionRegistry::of(&[]).name(tflite::PREFIX), None);
    }

    #[test]
    fn extension_that_two_devices_define_differently_is_disabled() {
        let devices = [
            device("a-one", &[("com.a.same", 4), ("com.a.torn", 4)]),
            device(
                "a-two",
                &[("com.a.torn", 8), ("com.a.same", 4), ("com.a.last", 1)],
            ),
        ];
        let registry = ExtensionRegistry::of(&devices);
        assert_eq!(registry.prefix("com.a.same"), Some(1));
        assert_eq!(registry.prefix("com.a.torn"), None);
        assert_eq!(registry.prefix("com.a.last"), Some(3));
        assert_eq!(registry.name(3), Some("com.a.last"));
        assert_eq!(
            (registry.name(2), registry.name(0), registry.name(9)),
            (None, None, None)
        );
        assert_eq!(registry.extensions().count(), 2);

        let model = |name: &str| Model {
            extension_name_to_prefix: vec![ExtensionNameAndPrefix {
                name: name.to_owned(),
                prefix: 1,
            }],
            ..Model::default()
        };
        assert!(registry.check(&model("com.a.same")).is_ok());
        let error = registry.check(&model("com.a.torn")).unwrap_err();
        assert_eq!(error.code(), ResultCode::BadData);
        assert!(
            error.to_string().contains("a-one and a-two define differently"),
            "{error}"
        );
    }
}
