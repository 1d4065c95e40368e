//! The unit that supports little: element-wise arithmetic on floats.

use nnhal_device::hal::{Failure, OperandType, Operation, OperationType};

use crate::unit::{Kernel, Refusal, View};
use crate::value::Value;

/// Compiles ADD, MUL and RELU. Their signatures hold already: what is left to check is what this unit cannot
/// do.
pub(crate) fn compile(view: &View<'_>, operation: &Operation) -> Result<Box<dyn Kernel>, Refusal> {
    let function: fn(f32, f32) -> f32 = match operation.operation_type {
        OperationType::ADD => |left, right| left + right,
        OperationType::MUL => |left, right| left * right,
        OperationType::RELU => {
            check_floats(view, operation, 1)?;
            return Ok(Box::new(Relu));
        }
        _ => return Err(Refusal::Unknown),
    };
    check_floats(view, operation, 2)?;
    check_equal_dimensions(view, operation)?;
    check_activation(view, operation)?;
    Ok(Box::new(Binary { function }))
}

fn unsupported(reason: String) -> Result<(), Refusal> {
    Err(Refusal::Unsupported(reason))
}

fn check_floats(view: &View<'_>, operation: &Operation, count: usize) -> Result<(), Refusal> {
    for (index, &input) in operation.inputs.iter().take(count).enumerate() {
        let ty = view.operand(input).operand_type;
        if ty != OperandType::TENSOR_FLOAT32 {
            return unsupported(format!(
                "input {index} is {ty}, this device has TENSOR_FLOAT32 only"
            ));
        }
    }
    Ok(())
}

fn check_equal_dimensions(view: &View<'_>, operation: &Operation) -> Result<(), Refusal> {
    let [left, right] = [0, 1].map(|index| &view.operand(operation.inputs[index]).dimensions);
    if left != right || left.is_empty() || left.contains(&0) {
        return unsupported(format!(
            "the inputs have dimensions {left:?} and {right:?}, this device needs equal ones that the model gives"
        ));
    }
    Ok(())
}

fn check_activation(view: &View<'_>, operation: &Operation) -> Result<(), Refusal> {
    let activation = operation.inputs.get(2).and_then(|&index| view.constant(index));
    if activation != Some(&0_i32.to_le_bytes()) {
        return unsupported("it has a fused activation, or one that the model does not fix".to_owned());
    }
    Ok(())
}

#[derive(Debug)]
struct Binary {
    function: fn(f32, f32) -> f32,
}

impl Kernel for Binary {
    fn run(&self, inputs: &[&Value], output: &mut Value) -> Result<(), Failure> {
        let &[left, right, ..] = inputs else {
            return Err(Failure::general("an operation of two inputs has fewer"));
        };
        let bytes = output.resize(*left.shape(), left.bytes().len())?;
        let pairs = floats(left).zip(floats(right));
        for (room, (left, right)) in bytes.chunks_exact_mut(4).zip(pairs) {
            room.copy_from_slice(&(self.function)(left, right).to_le_bytes());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Relu;

impl Kernel for Relu {
    fn run(&self, inputs: &[&Value], output: &mut Value) -> Result<(), Failure> {
        let &[input, ..] = inputs else {
            return Err(Failure::general("an operation of one input has none"));
        };
        let bytes = output.resize(*input.shape(), input.bytes().len())?;
        for (room, value) in bytes.chunks_exact_mut(4).zip(floats(input)) {
            room.copy_from_slice(&value.max(0.0).to_le_bytes());
        }
        Ok(())
    }
}

/// A value's floats. Its memory need not be aligned for them.
fn floats(value: &Value) -> impl Iterator<Item = f32> {
    let words = value.bytes().chunks_exact(4);
    words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}
