//! QUANTIZED_16BIT_LSTM: one LSTM step with unsigned 8-bit activations and a 16-bit cell.
//!
//! The arithmetic is that of the HAL's reference, which is TFLite's: the gates' sums are brought to 16 bits
//! with three integer bits, the cell has four, logistic function and hyperbolic tangent are taken in 16-bit
//! fixed point.
//!
//! One thing is not what the operands' names say: the reference joins each gate's recurrent and input weights
//! to one row, in this order, but the values to one column with the input first, and multiplies row and
//! column as they stand. Models are made for these results, so they are what this kernel gives.

use nnhal_hal::OperationType;
use nnhal_hal::ops::quantized_16bit_lstm::{BIASES, CELL_STATE, LAST_OUTPUT, WEIGHTS};

use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::fixed_point_functions::{logistic_16, multiply_16, tanh_16};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::QUANTIZED_16BIT_LSTM, step)];

/// Integer bits of the gates' sums and of what tanh takes of the cell.
const GATE_BITS: u32 = 3;
/// Integer bits of the cell.
const CELL_BITS: u32 = 4;
/// Zero point of the input and of the output.
const ZERO_POINT: i32 = 128;

struct Weights<'a> {
    input: &'a [u8],
    recurrent: &'a [u8],
    bias: &'a [i32],
    zero_point: i32,
    rescale: Multiplier,
}

impl Weights<'_> {
    /// The gate's sum for one unit, in 16 bits. `values` are the input and, after it, the last output.
    fn sum(&self, unit: usize, values: &[u8]) -> i16 {
        let (first, rest) = values.split_at(self.bias.len());
        let recurrent = product(&self.recurrent[unit * first.len()..], first, self.zero_point);
        let own = product(&self.input[unit * rest.len()..], rest, self.zero_point);
        let sum = self.bias[unit].wrapping_add(recurrent).wrapping_add(own);
        saturate(self.rescale.apply(sum))
    }
}

fn product(weights: &[u8], values: &[u8], zero_point: i32) -> i32 {
    weights.iter().zip(values).fold(0_i32, |sum, (weight, value)| {
        sum.wrapping_add((i32::from(*weight) - zero_point) * (i32::from(*value) - ZERO_POINT))
    })
}

fn saturate(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

fn step(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let first = inputs.tensor(WEIGHTS.start)?;
    let zero_point = first.zero_point();
    // A sum has the biases' scale; its new one is 2^-12.
    let rescale = Multiplier::new(4096.0 * f64::from(inputs.tensor(BIASES.start)?.scale()));
    let gate = |number: usize| -> Result<Weights<'_>, KernelError> {
        Ok(Weights {
            input: inputs.data(WEIGHTS.start + number)?,
            recurrent: inputs.data(WEIGHTS.start + 4 + number)?,
            bias: inputs.data(BIASES.start + number)?,
            zero_point,
            rescale,
        })
    };
    let [input_gate, forget_gate, cell_gate, output_gate] = [gate(0)?, gate(1)?, gate(2)?, gate(3)?];
    let input = inputs.tensor(0)?;
    let values = input.shape.dim(1) as usize;
    let last = inputs.tensor(LAST_OUTPUT)?;
    let units = last.shape.dim(1) as usize;
    let (input, last) = (input.data::<u8>()?, last.data::<u8>()?);
    let cells = inputs.data::<i16>(CELL_STATE)?;
    let [new_cells, outputs] = context.outputs.tensors([0, 1])?;
    let (new_cells, outputs) = (new_cells.into_data::<i16>()?, outputs.into_data::<u8>()?);
    let [read] = context.scratch.carve::<u8, 1>([values + units])?;
    for (index, (new_cell, output)) in new_cells.iter_mut().zip(outputs).enumerate() {
        let (batch, unit) = (index / units, index % units);
        if unit == 0 {
            read[..values].copy_from_slice(&input[batch * values..][..values]);
            read[values..].copy_from_slice(&last[batch * units..][..units]);
        }
        let logistic = |gate: &Weights<'_>| logistic_16(gate.sum(unit, read), GATE_BITS);
        let new_value = tanh_16(cell_gate.sum(unit, read), GATE_BITS);
        let taken = multiply_16(logistic(&input_gate), new_value);
        let kept = multiply_16(logistic(&forget_gate), cells[index]);
        let taken = rounding_divide_by_power_of_two(i32::from(taken), CELL_BITS as i32);
        *new_cell = saturate(taken + i32::from(kept));
        let of_cell = saturate(i32::from(*new_cell) << (CELL_BITS - GATE_BITS));
        let activation = multiply_16(logistic(&output_gate), tanh_16(of_cell, GATE_BITS));
        let steps = rounding_divide_by_power_of_two(i32::from(activation), 8);
        *output = (steps.clamp(-128, 127) + ZERO_POINT) as u8;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    const WEIGHT_SCALE: f32 = 1.0 / 256.0;

    /// One unit on one input value, all weights `weight` steps above their zero point.
    fn step(input: u8, weight: u8, cell: i16, scale: f32) -> Result<Vec<Computed>, String> {
        let quantized = |scale, zero_point| {
            Operand::new(T::TENSOR_QUANT8_ASYMM, &[1, 1]).with_quantization(scale, zero_point)
        };
        let activation = quantized(1.0 / 128.0, 128);
        let bias = Operand::new(T::TENSOR_INT32, &[1]).with_quantization(WEIGHT_SCALE / 128.0, 0);
        let cell_operand = Operand::new(T::TENSOR_QUANT16_SYMM, &[1, 1]).with_quantization(scale, 0);
        let operation =
            OneOperation::new(OperationType::QUANTIZED_16BIT_LSTM).operand(activation.clone(), &[input]);
        let operation = (0..8).fold(operation, |operation, _| {
            operation.operand(quantized(WEIGHT_SCALE, 100), &[100 + weight])
        });
        (0..4)
            .fold(operation, |operation, _| {
                operation.operand(bias.clone(), &[0_i32])
            })
            .operand(cell_operand.clone(), &[cell])
            .operand(activation.clone(), &[128_u8])
            .output_operand(cell_operand)
            .output_operand(activation)
            .run()
    }

    #[test]
    fn zero_input_keeps_half_of_the_cell() {
        let outputs = step(128, 50, 2048, 1.0 / 2048.0).unwrap();
        // logistic(0) * 1.0 = 0.5; tanh(0.5) / 2 = 0.231.
        assert_eq!(outputs[0].data::<i16>(), [1024]);
        assert_eq!(outputs[1].data::<u8>(), [128 + 30]);
    }

    #[test]
    fn cell_saturates_at_the_end_of_its_range() {
        let outputs = step(255, 155, i16::MAX, 1.0 / 2048.0).unwrap();
        assert!(outputs[0].data::<i16>()[0] > 20_000);
        let outputs = step(255, 155, i16::MIN, 1.0 / 2048.0).unwrap();
        assert!(outputs[0].data::<i16>()[0] < -20_000);
    }

    #[test]
    fn other_scales_give_an_error() {
        assert!(step(128, 50, 0, 1.0 / 1024.0).unwrap_err().contains("input 13"));
    }
}
