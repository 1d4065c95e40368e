use std::ffi::{c_char, c_int, c_void};

use ::nnhal_hal::ExtraParams;

use crate::compilation::Compilation;
use crate::device::Device;
use crate::execution::Execution;
use crate::extension;
use crate::ffi::{ConstHandle, Handle, In, Out, guard};
use crate::handles;
use crate::model::Model;
use crate::result::{Failure, Outcome};
use crate::types::{
    ANeuralNetworksCompilation, ANeuralNetworksDevice, ANeuralNetworksExecution, ANeuralNetworksModel,
    ANeuralNetworksOperationType,
};

/// Whether a device supports a vendor's extension.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_getExtensionSupport(
    device: ConstHandle<ANeuralNetworksDevice>,
    extensionName: In<c_char>,
    isExtensionSupported: Out<bool>,
) -> c_int {
    guard("ANeuralNetworksDevice_getExtensionSupport", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        let name = extensionName.text("extensionName")?;
        isExtensionSupported.expect("isExtensionSupported")?;
        let is_supported = name
            .to_str()
            .is_some_and(|name| device.device.supports_extension(name));
        isExtensionSupported.write(is_supported);
        Ok(())
    })
}

/// The number that an operand type of an extension has in models of this process.
///
/// `BAD_DATA` if no device has the extension.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_getExtensionOperandType(
    model: Handle<ANeuralNetworksModel>,
    extensionName: In<c_char>,
    operandCodeWithinExtension: u16,
    r#type: Out<i32>,
) -> c_int {
    guard("ANeuralNetworksModel_getExtensionOperandType", || {
        number(&model, extensionName, operandCodeWithinExtension, r#type)
    })
}

/// The number that an operation of an extension has in models of this process.
///
/// `BAD_DATA` if no device has the extension.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_getExtensionOperationType(
    model: Handle<ANeuralNetworksModel>,
    extensionName: In<c_char>,
    operationCodeWithinExtension: u16,
    r#type: Out<ANeuralNetworksOperationType>,
) -> c_int {
    guard("ANeuralNetworksModel_getExtensionOperationType", || {
        number(&model, extensionName, operationCodeWithinExtension, r#type)
    })
}

fn number(model: &Handle<ANeuralNetworksModel>, name: In<c_char>, within: u16, place: Out<i32>) -> Outcome {
    handles::get::<Model>(model, "model")?;
    let name = name.text("extensionName")?;
    place.expect("type")?;
    place.write(extension::number(&name, within)?);
    Ok(())
}

/// Gives an operand of an extension's type its parameters, whose form the extension defines. They are copied.
/// NULL with length 0 takes them away.
///
/// `BAD_DATA` if there is no such operand or its type is of no extension; `BAD_STATE` if the model is
/// finished.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_setOperandExtensionData(
    model: Handle<ANeuralNetworksModel>,
    index: i32,
    data: In<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksModel_setOperandExtensionData", || {
        let model = handles::get::<Model>(&model, "model")?;
        let params = match (data.is_null(), length) {
            (true, 0) => ExtraParams::None,
            (false, 0) => return Err(Failure::bad_data("length is 0, data is not NULL")),
            _ => ExtraParams::Extension(data.bytes(length, "data")?.as_slice().to_vec()),
        };
        model.change(|draft| draft.set_extension_data(index, params))
    })
}

/// Checks the data of an attribute, which no device is given.
fn check_attribute(data: In<c_void>, length: usize) -> Outcome {
    if data.is_null() && length == 0 {
        return Ok(());
    }
    data.bytes(length, "data").map(drop)
}

/// Gives a compilation a hint for its device, in the form of a vendor's extension. Devices may ignore hints,
/// and all devices of this library do.
///
/// `BAD_DATA` unless the compilation was made for exactly one named device, if no device has the extension,
/// or if the attribute was given already; `BAD_STATE` if the compilation is finished. Since feature level
/// 1000008.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_addExtensionAttribute(
    compilation: Handle<ANeuralNetworksCompilation>,
    extensionName: In<c_char>,
    attributeCodeWithinExtension: u16,
    data: In<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksCompilation_addExtensionAttribute", || {
        let compilation = handles::get::<Compilation>(&compilation, "compilation")?;
        let name = extensionName.text("extensionName")?;
        check_attribute(data, length)?;
        compilation.add_attribute(&name, attributeCodeWithinExtension)
    })
}

/// As `ANeuralNetworksCompilation_addExtensionAttribute` for an execution; `BAD_STATE` if its computation has
/// started. Since feature level 1000008.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_addExtensionAttribute(
    execution: Handle<ANeuralNetworksExecution>,
    extensionName: In<c_char>,
    attributeCodeWithinExtension: u16,
    data: In<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksExecution_addExtensionAttribute", || {
        let execution = handles::get::<Execution>(&execution, "execution")?;
        let name = extensionName.text("extensionName")?;
        check_attribute(data, length)?;
        execution.add_attribute(&name, attributeCodeWithinExtension)
    })
}
