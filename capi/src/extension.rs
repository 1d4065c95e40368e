//! Vendor extensions: what their types are, by the numbers that they have in this process.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use nnhal_hal::{Extension, ExtensionNameAndPrefix, Model, OperandType, TypeLayouts};

use crate::process;
use crate::result::{Failure, Outcome};

/// The layouts of standard types, and of this type's extension.
pub(crate) fn layouts(ty: OperandType) -> Outcome<TypeLayouts> {
    if !ty.is_extension() {
        return Ok(TypeLayouts::default());
    }
    let runtime = process::runtime()?;
    let registry = runtime.extensions();
    let mapping = registry
        .name(ty.extension_prefix())
        .map(|name| ExtensionNameAndPrefix {
            name: name.to_owned(),
            prefix: ty.extension_prefix(),
        });
    let model = Model {
        extension_name_to_prefix: mapping.into_iter().collect(),
        ..Model::default()
    };
    let extensions: Vec<Extension> = registry.extensions().cloned().collect();
    Ok(TypeLayouts::of(&model, &extensions))
}

/// The name of the extension with this prefix, if there is one.
pub(crate) fn name(prefix: u16) -> Option<String> {
    let runtime = process::runtime().ok()?;
    runtime.extensions().name(prefix).map(str::to_owned)
}

/// What devices say of these extensions.
pub(crate) fn all_of(mappings: &[ExtensionNameAndPrefix]) -> Vec<Extension> {
    if mappings.is_empty() {
        return Vec::new();
    }
    let Ok(runtime) = process::runtime() else {
        return Vec::new();
    };
    runtime.extensions().extensions().cloned().collect()
}

/// The number in this process of a type or operation of an extension.
pub(crate) fn number(extension: &OsStr, within: u16) -> Outcome<i32> {
    let prefix = match extension.to_str() {
        Some(name) => process::runtime()?.extensions().prefix(name),
        None => None,
    };
    let prefix = prefix.ok_or_else(|| {
        Failure::bad_data(format!(
            "no device has an extension {}, or devices define it differently",
            extension.display()
        ))
    })?;
    Ok(OperandType::extension(prefix, within).0.cast_signed())
}

/// The attributes that an application gave a compilation or an execution: hints to one device, in the form of
/// one of its extensions. A device may ignore any, and the HAL has no place for them before feature level 8,
/// so that none reaches a device: only which there are is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(BTreeSet<i32>);

impl Attributes {
    /// Adds the attribute `within` of an extension.
    pub(crate) fn add(&mut self, extension: &OsStr, within: u16) -> Outcome {
        if self.0.insert(number(extension, within)?) {
            return Ok(());
        }
        Err(Failure::bad_data(format!(
            "attribute {within} of {} was given already",
            extension.display()
        )))
    }
}
