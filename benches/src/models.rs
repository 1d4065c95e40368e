//! The models that are executed.

use nnhal_client::{
    Device, ExecuteOptions, Input, Model, ModelBuilder, OperationType, Output, PrepareOptions, PreparedModel,
    TensorType,
};

use crate::{Error, Result};

/// Bytes of one value.
pub const VALUE_BYTES: u32 = 4;

/// What is added.
pub const ADDEND: f32 = 1.5;

/// Adds the input to itself and the sum to that, in so many operations on so many values.
///
/// # Errors
/// Never, for counts that fit.
pub fn chain(operations: u32, count: u32) -> Result<Model> {
    let mut model = ModelBuilder::new();
    let input = model.input(TensorType::float32(&[count]));
    let no_activation = model.scalar(0_i32);
    let mut last = input;
    for index in 1..=operations {
        let ty = TensorType::float32(&[count]);
        let next = if index == operations {
            model.output(ty)
        } else {
            model.temporary(ty)
        };
        model.operation(OperationType::ADD, &[last, input, no_activation], &[next]);
        last = next;
    }
    Ok(model.finish()?)
}

/// Adds a constant to so many values: the least that a model can do.
///
/// # Errors
/// Never, for counts that fit.
pub fn add(count: u32) -> Result<Model> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[count]));
    let y = model.constant(TensorType::float32(&[1]), &[ADDEND]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[count]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    Ok(model.finish()?)
}

/// Prepares [`add`] of one value.
///
/// # Errors
/// The device cannot prepare it.
pub fn prepare_add(device: &Device) -> Result<PreparedModel> {
    Ok(device.prepare(&add(1)?, &PrepareOptions::new())?)
}

/// Executes what [`prepare_add`] has prepared, and looks at the answer. `bench` is who does.
///
/// # Errors
/// The execution fails, or its answer is wrong.
pub fn run_add(prepared: &PreparedModel, bench: &str) -> Result<()> {
    let mut sum = [0.0_f32];
    prepared.run(
        &[Input::from(&[1.0_f32])],
        &mut [Output::from(&mut sum)],
        &ExecuteOptions::new(),
    )?;
    if sum == [1.0 + ADDEND] {
        Ok(())
    } else {
        Err(Error::wrong_answer(bench))
    }
}
