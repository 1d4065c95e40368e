use std::ffi::{c_int, c_void};

use ::nnhal_hal::SymmPerChannelQuantParams;

use super::arguments::{inner_list, objects, operand};
use crate::device::Device;
use crate::ffi::{ConstHandle, Handle, In, Out, guard, guard_free};
use crate::handles;
use crate::memory::Memory;
use crate::model::{Model, NewValue};
use crate::process;
use crate::result::Failure;
use crate::types::{
    ANeuralNetworksDevice, ANeuralNetworksMemory, ANeuralNetworksModel, ANeuralNetworksOperandType,
    ANeuralNetworksOperationType, ANeuralNetworksSymmPerChannelQuantParams,
};

/// Makes an empty model. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_create(model: Out<Handle<ANeuralNetworksModel>>) -> c_int {
    guard("ANeuralNetworksModel_create", || {
        model.clear("model")?;
        handles::create::<Model>(model, Model::default())
    })
}

/// Frees a model; NULL is no error. Compilations and models that use it keep it. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_free(model: Handle<ANeuralNetworksModel>) {
    guard_free("ANeuralNetworksModel_free", || handles::free::<Model>(&model));
}

/// Finishes a model, which cannot be changed any more. Operations are sorted into an order in which they can
/// run; values that were given by pointer are copied now.
///
/// `BAD_DATA` if the model breaks a rule; it is invalid then and can only be freed. `BAD_STATE` if it is
/// finished or invalid. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_finish(model: Handle<ANeuralNetworksModel>) -> c_int {
    guard("ANeuralNetworksModel_finish", || {
        handles::get::<Model>(&model, "model")?.finish()
    })
}

/// Adds an operand. The first one is operand 0.
///
/// `BAD_DATA` if the type, dimensions or quantisation are not valid; `BAD_STATE` if the model is finished.
/// Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_addOperand(
    model: Handle<ANeuralNetworksModel>,
    r#type: In<ANeuralNetworksOperandType>,
) -> c_int {
    guard("ANeuralNetworksModel_addOperand", || {
        let model = handles::get::<Model>(&model, "model")?;
        let described = r#type.read("type")?;
        model.change(|draft| draft.add_operand(operand(described)?))
    })
}

/// Gives an operand its value. Up to `ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES` bytes are copied
/// at once, more must stay as they are until the model is finished. NULL with length 0 leaves an optional
/// operand out.
///
/// `BAD_DATA` if there is no such operand or the length is not that of its value; `BAD_STATE` if the model is
/// finished. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_setOperandValue(
    model: Handle<ANeuralNetworksModel>,
    index: i32,
    buffer: In<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksModel_setOperandValue", || {
        let model = handles::get::<Model>(&model, "model")?;
        let value = if buffer.is_null() && length == 0 {
            NewValue::Omitted
        } else {
            NewValue::Bytes(buffer.bytes(length, "buffer")?)
        };
        model.set_value(index, value)
    })
}

/// Gives an operand of type `ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL` its scales, which are copied.
///
/// `BAD_DATA` if there is no such operand, it has another type, or the scales are NULL or do not fit its
/// dimensions; `BAD_STATE` if the model is finished. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    model: Handle<ANeuralNetworksModel>,
    index: i32,
    channelQuant: In<ANeuralNetworksSymmPerChannelQuantParams>,
) -> c_int {
    guard("ANeuralNetworksModel_setOperandSymmPerChannelQuantParams", || {
        let model = handles::get::<Model>(&model, "model")?;
        let given = channelQuant.read("channelQuant")?;
        let scales = inner_list(given.scales, given.scaleCount, "channelQuant has", "scales")?;
        let channel_dim = given.channelDim;
        model.set_channels(index, SymmPerChannelQuantParams { scales, channel_dim })
    })
}

/// Gives an operand a value that is in a memory and must stay as it is.
///
/// `BAD_DATA` if there is no such operand, the length is not that of its value, the range is not inside the
/// memory, or the memory was made from a description; `BAD_STATE` if the model is finished. Since feature
/// level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_setOperandValueFromMemory(
    model: Handle<ANeuralNetworksModel>,
    index: i32,
    memory: ConstHandle<ANeuralNetworksMemory>,
    offset: usize,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksModel_setOperandValueFromMemory", || {
        let model = handles::get::<Model>(&model, "model")?;
        let memory = handles::get_const::<Memory>(&memory, "memory")?;
        model.set_value(
            index,
            NewValue::Memory {
                memory,
                offset,
                length,
            },
        )
    })
}

/// Gives an operand of type `ANEURALNETWORKS_MODEL` its value: a finished model, for IF or WHILE to run.
///
/// `BAD_STATE` if that model is not finished, or this one is; `BAD_DATA` if there is no such operand or it
/// has another type. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_setOperandValueFromModel(
    model: Handle<ANeuralNetworksModel>,
    index: i32,
    value: ConstHandle<ANeuralNetworksModel>,
) -> c_int {
    guard("ANeuralNetworksModel_setOperandValueFromModel", || {
        let model = handles::get::<Model>(&model, "model")?;
        let value = handles::get_const::<Model>(&value, "value")?;
        model.change(|_| Ok(()))?;
        let value = value.finished().map_err(|failure| Failure {
            text: format!("value: {}", failure.text).into(),
            ..failure
        })?;
        model.set_value(index, NewValue::Model(value))
    })
}

/// Adds an operation: what it computes, the operands that it reads and those that it writes, in the order of
/// its signature. Operations may be added in any order.
///
/// `BAD_DATA` if there is no such operation or operand, or the operands do not fit the signature; `BAD_STATE`
/// if the model is finished. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_addOperation(
    model: Handle<ANeuralNetworksModel>,
    r#type: ANeuralNetworksOperationType,
    inputCount: u32,
    inputs: In<u32>,
    outputCount: u32,
    outputs: In<u32>,
) -> c_int {
    guard("ANeuralNetworksModel_addOperation", || {
        let model = handles::get::<Model>(&model, "model")?;
        let inputs = inputs.list(inputCount, "inputs")?;
        let outputs = outputs.list(outputCount, "outputs")?;
        model.add_operation(r#type, inputs, outputs)
    })
}

/// Says which operands are the model's inputs and outputs, in the order in which executions give them.
///
/// `BAD_DATA` if there is no such operand, one is listed twice, or one has a value; `BAD_STATE` if the model
/// is finished. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_identifyInputsAndOutputs(
    model: Handle<ANeuralNetworksModel>,
    inputCount: u32,
    inputs: In<u32>,
    outputCount: u32,
    outputs: In<u32>,
) -> c_int {
    guard("ANeuralNetworksModel_identifyInputsAndOutputs", || {
        let model = handles::get::<Model>(&model, "model")?;
        let inputs = inputs.list(inputCount, "inputs")?;
        let outputs = outputs.list(outputCount, "outputs")?;
        model.change(|draft| draft.identify(inputs, outputs))
    })
}

/// Says whether 32-bit floats may be computed with the range and precision of 16-bit floats. Not allowed by
/// default.
///
/// `BAD_STATE` if the model is finished. Since feature level 28.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_relaxComputationFloat32toFloat16(
    model: Handle<ANeuralNetworksModel>,
    allow: bool,
) -> c_int {
    guard("ANeuralNetworksModel_relaxComputationFloat32toFloat16", || {
        handles::get::<Model>(&model, "model")?.change(|draft| {
            draft.relax(allow);
            Ok(())
        })
    })
}

/// Tells for each operation of a finished model, in the order in which they were added, whether any of the
/// devices can run it. `supportedOps` has room for all of them.
///
/// `BAD_DATA` if there are no devices or one is listed twice; `BAD_STATE` if the model is not finished. Since
/// feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksModel_getSupportedOperationsForDevices(
    model: ConstHandle<ANeuralNetworksModel>,
    devices: In<ConstHandle<ANeuralNetworksDevice>>,
    numDevices: u32,
    supportedOps: Out<bool>,
) -> c_int {
    guard("ANeuralNetworksModel_getSupportedOperationsForDevices", || {
        let model = handles::get_const::<Model>(&model, "model")?;
        supportedOps.expect("supportedOps")?;
        let devices = super::device::distinct(objects::<Device>(devices, numDevices, "devices")?)?;
        let model = model.finished()?;
        let supported = process::runtime()?.supported_operations(model.model(), &devices)?;
        supportedOps.write_all(&model.in_added_order(&supported));
        Ok(())
    })
}
