//! Vendor extensions: named sets of operand types and operations.

use serde::{Deserialize, Serialize};

/// HAL `Model::ExtensionNameAndPrefix`: which extension a prefix stands for in one model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExtensionNameAndPrefix {
    /// The extension's name, in reverse-domain form.
    pub name: String,
    /// The high 16 bits of its operand and operation types in this model; 0 is reserved.
    pub prefix: u16,
}

/// HAL `Extension::OperandTypeInformation`: one operand type of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExtensionOperandTypeInformation {
    /// The number inside the extension.
    pub number: u16,
    /// Whether operands of the type have dimensions.
    pub is_tensor: bool,
    /// Bytes of a scalar, or of one element of a tensor.
    pub byte_size: u32,
}

/// HAL `Extension`: what a device says of an extension it supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Reverse-domain name: characters a-z, 0-9, `_` and `.`, at least one dot.
    pub name: String,
    /// Its operand types.
    pub operand_types: Vec<ExtensionOperandTypeInformation>,
}

impl Extension {
    /// Whether `name` has the form that the HAL asks of extension names.
    #[must_use]
    pub fn is_valid_name(name: &str) -> bool {
        name.contains('.')
            && name
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
    }
}
