//! The models that are executed.

use nnhal_client::{Model, ModelBuilder, OperationType, TensorType};

use crate::Result;

/// What is added.
pub const ADDEND: f32 = 1.5;

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
