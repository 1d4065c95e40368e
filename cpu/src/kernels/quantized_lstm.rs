//! QUANTIZED_LSTM: one LSTM step with signed 8-bit inputs and outputs and a 16-bit cell.
//!
//! The arithmetic is that of the HAL's reference, which is TFLite's integer LSTM: the products with the
//! input, with the last output and with the cell are each brought to a gate's intermediate scale and summed
//! in 16 bits; layer normalisation brings the sum, or its scale is taken as it is, to 16 bits with three
//! integer bits; logistic function and hyperbolic tangent are taken in 16-bit fixed point.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::lstm_cell::Gate;
use nnhal_hal::ops::quantized_lstm::{
    CELL, HIDDEN_SCALE, INTERMEDIATE_SCALES, cell_scale_exponent, positive_scale,
};

use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::fixed_point_functions::{logistic_16, tanh_16};
use super::quantized_layer_norm::LayerNorm;
use crate::kernel::{Inputs, Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::QUANTIZED_LSTM, step)];

/// Integer bits of the gates' sums.
const GATE_BITS: u32 = 3;

/// A matrix of weights with the rescaling of its products.
struct Matrix<'a> {
    weights: &'a [i8],
    zero_point: i32,
    rescale: Multiplier,
}

impl Matrix<'_> {
    /// The rescaled product of row `unit` with a vector, `bias` added before.
    fn product(&self, unit: usize, vector: &[i8], bias: i32) -> i32 {
        let row = &self.weights[unit * vector.len()..][..vector.len()];
        let sum = row.iter().zip(vector).fold(bias, |sum, (weight, value)| {
            sum.wrapping_add(i32::from(*weight) * (i32::from(*value) - self.zero_point))
        });
        self.rescale.apply(sum)
    }
}

struct GateWeights<'a> {
    input: Matrix<'a>,
    recurrent: Matrix<'a>,
    peephole: Option<(&'a [i16], Multiplier)>,
    norm: Option<LayerNorm<'a>>,
    bias: &'a [i32],
}

impl<'a> GateWeights<'a> {
    /// The gate's operands; `None` for an input gate that is coupled to the forget gate.
    fn new(inputs: &Inputs<'a>, gate: Gate) -> Result<Option<GateWeights<'a>>, KernelError> {
        if gate == Gate::Input && inputs.optional(CELL.input_weights(gate)).is_none() {
            return Ok(None);
        }
        let intermediate = positive_scale(inputs.rules(), INTERMEDIATE_SCALES + gate as usize)?;
        let matrix = |weights: usize, values: usize| -> Result<Matrix<'a>, KernelError> {
            let (weights, values) = (inputs.tensor(weights)?, inputs.tensor(values)?);
            Ok(Matrix {
                weights: weights.data()?,
                zero_point: values.zero_point(),
                rescale: Multiplier::new(f64::from(weights.scale() * values.scale() / intermediate)),
            })
        };
        let bias = inputs.data(CELL.bias(gate))?;
        let peephole = match CELL.peephole(gate).and_then(|at| inputs.optional(at)) {
            Some(weights) => {
                let cell_scale = inputs.tensor(CELL.cell_state)?.scale();
                let rescale = Multiplier::new(f64::from(cell_scale * weights.scale() / intermediate));
                Some((weights.data()?, rescale))
            }
            None => None,
        };
        let norm = match inputs.optional(CELL.norm(gate)) {
            Some(weights) => Some(LayerNorm::new(weights.data()?, bias, weights.scale())),
            None => None,
        };
        Ok(Some(GateWeights {
            input: matrix(CELL.input_weights(gate), 0)?,
            recurrent: matrix(CELL.recurrent_weights(gate), CELL.output_state)?,
            peephole,
            norm,
            bias,
        }))
    }

    /// The gate's sums for one batch.
    fn sum(&self, batch: &Batch<'_>, cell: &[i16], sums: &mut [i16]) {
        for (unit, sum) in sums.iter_mut().enumerate() {
            // With layer normalisation the bias comes after it.
            let bias = if self.norm.is_some() { 0 } else { self.bias[unit] };
            let own = saturate(self.input.product(unit, batch.input, bias));
            let recurrent = self.recurrent.product(unit, batch.last_output, 0);
            *sum = saturate(recurrent.saturating_add(i32::from(own)));
        }
        if let Some((weights, rescale)) = self.peephole {
            for ((sum, weight), value) in sums.iter_mut().zip(weights).zip(cell) {
                let seen = rescale.apply(i32::from(*weight) * i32::from(*value));
                *sum = saturate(seen.saturating_add(i32::from(*sum)));
            }
        }
        if let Some(norm) = &self.norm {
            norm.apply(sums);
        }
    }
}

fn saturate(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

/// What one batch reads.
struct Batch<'a> {
    input: &'a [i8],
    last_output: &'a [i8],
}

/// What makes the output of the gated cell.
struct Hidden<'a> {
    rescale: Multiplier,
    zero_point: i32,
    projection: Option<(Matrix<'a>, Option<&'a [i32]>)>,
    output_zero_point: i32,
    /// The bound of the projection in output steps; 0 sets none.
    clip: i32,
}

impl<'a> Hidden<'a> {
    fn new(inputs: &Inputs<'a>) -> Result<Hidden<'a>, KernelError> {
        let scale = positive_scale(inputs.rules(), HIDDEN_SCALE)?;
        let zero_point = inputs.i32(HIDDEN_SCALE - 1)?;
        if !(-128..=127).contains(&zero_point) {
            let message = format!("(hidden_state_zero_point) is {zero_point}, must be from -128 to 127");
            return Err(OpError::input(HIDDEN_SCALE - 1, message).into());
        }
        let output = inputs.tensor(CELL.output_state)?;
        let projection = match inputs.optional(CELL.projection()) {
            Some(weights) => {
                let matrix = Matrix {
                    weights: weights.data()?,
                    zero_point,
                    rescale: Multiplier::new(f64::from(weights.scale() * scale / output.scale())),
                };
                let bias = match inputs.optional(CELL.projection_bias()) {
                    Some(bias) => Some(bias.data()?),
                    None => None,
                };
                Some((matrix, bias))
            }
            None => None,
        };
        Ok(Hidden {
            // Both factors, the gate and the cell's tanh, have 15 fractional bits.
            rescale: Multiplier::new(2_f64.powi(-30) / f64::from(scale)),
            zero_point,
            projection,
            output_zero_point: output.zero_point(),
            clip: clip_steps(inputs, 25, output.scale(), i32::from(i8::MAX))?,
        })
    }

    /// The hidden value of one unit.
    fn value(&self, gate: i16, of_cell: i16) -> i8 {
        let product = self.rescale.apply(i32::from(gate) * i32::from(of_cell));
        product.saturating_add(self.zero_point).clamp(-128, 127) as i8
    }

    fn output(&self, hidden: &[i8], output: &mut [i8]) {
        let Some((matrix, bias)) = &self.projection else {
            output.copy_from_slice(hidden);
            return;
        };
        let range = if self.clip > 0 {
            (self.output_zero_point - self.clip).max(-128)..=(self.output_zero_point + self.clip).min(127)
        } else {
            -128..=127
        };
        for (at, value) in output.iter_mut().enumerate() {
            let product = matrix.product(at, hidden, bias.map_or(0, |bias| bias[at]));
            let steps = product.saturating_add(self.output_zero_point);
            *value = steps.clamp(*range.start(), *range.end()) as i8;
        }
    }
}

/// A bound given as a real number in an optional input, in steps of this scale; 0 if there is none.
fn clip_steps(inputs: &Inputs<'_>, input: usize, scale: f32, most: i32) -> Result<i32, KernelError> {
    if inputs.optional(input).is_none() {
        return Ok(0);
    }
    let bound = inputs.f32(input)?;
    if bound.is_nan() || bound < 0.0 {
        let message = format!("(clip) is {bound}, must be 0 (no bound) or above");
        return Err(OpError::input(input, message).into());
    }
    // The conversion saturates.
    Ok(((bound / scale) as i32).min(most))
}

fn step(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let gate = |gate| {
        GateWeights::new(&inputs, gate)?
            .ok_or_else(|| KernelError::from(OpError::input(CELL.input_weights(gate), "is omitted")))
    };
    let input_gate = GateWeights::new(&inputs, Gate::Input)?;
    let (forget_gate, cell_gate, output_gate) = (gate(Gate::Forget)?, gate(Gate::Cell)?, gate(Gate::Output)?);
    let hidden = Hidden::new(&inputs)?;
    // Fractional bits of the cell.
    let cell_bits = -cell_scale_exponent(inputs.rules())?;
    let cell_clip = clip_steps(
        &inputs,
        24,
        inputs.tensor(CELL.cell_state)?.scale(),
        i32::from(i16::MAX),
    )?;
    let (input, last) = (inputs.tensor(0)?, inputs.tensor(CELL.output_state)?);
    let cell_state = inputs.tensor(CELL.cell_state)?;
    let (values, outputs, units) = [input, last, cell_state]
        .map(|tensor| tensor.shape.dim(1) as usize)
        .into();
    let batches = input.shape.dim(0) as usize;
    let [gates] = context.scratch.carve::<i16, 1>([4 * units])?;
    let [output_state, new_cells, output] = context.outputs.tensors([0, 1, 2])?;
    let (output_state, new_cells) = (output_state.into_data::<i8>()?, new_cells.into_data::<i16>()?);
    new_cells.copy_from_slice(cell_state.data()?);
    let (input, last) = (input.data::<i8>()?, last.data::<i8>()?);
    for batch in 0..batches {
        let read = Batch {
            input: &input[batch * values..][..values],
            last_output: &last[batch * outputs..][..outputs],
        };
        let cell = &mut new_cells[batch * units..][..units];
        let (first, rest) = gates.split_at_mut(2 * units);
        let (taken, kept) = first.split_at_mut(units);
        let (new_value, given) = rest.split_at_mut(units);
        forget_gate.sum(&read, cell, kept);
        cell_gate.sum(&read, cell, new_value);
        if let Some(input_gate) = &input_gate {
            input_gate.sum(&read, cell, taken);
        }
        for (unit, value) in cell.iter_mut().enumerate() {
            let keep = logistic_16(kept[unit], GATE_BITS);
            let take = match input_gate {
                Some(_) => logistic_16(taken[unit], GATE_BITS),
                None => i16::MAX - keep,
            };
            let product = |left: i16, right: i16, shift| {
                rounding_divide_by_power_of_two(i32::from(left) * i32::from(right), shift)
            };
            let old = product(keep, *value, 15);
            let new = product(take, tanh_16(new_value[unit], GATE_BITS), 30 - cell_bits);
            *value = saturate(i32::from(saturate(old)) + i32::from(saturate(new)));
            if cell_clip > 0 {
                *value = i32::from(*value).clamp(-cell_clip, cell_clip) as i16;
            }
        }
        output_gate.sum(&read, cell, given);
        // The input gate is done with; its memory takes the hidden values.
        let hidden_values: &mut [i8] = &mut bytemuck::cast_slice_mut(taken)[..units];
        for (unit, value) in hidden_values.iter_mut().enumerate() {
            let of_cell = tanh_16(cell[unit], (15 - cell_bits) as u32);
            *value = hidden.value(logistic_16(given[unit], GATE_BITS), of_cell);
        }
        hidden.output(hidden_values, &mut output_state[batch * outputs..][..outputs]);
    }
    output.into_data::<i8>()?.copy_from_slice(output_state);
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    struct Case {
        cell_scale: f32,
        intermediate_scale: f32,
        hidden: (i32, f32),
        cell_clip: f32,
        output_dims: [u32; 2],
    }

    const CASE: Case = Case {
        cell_scale: 1.0 / 32768.0,
        intermediate_scale: 1.0 / 4096.0,
        hidden: (0, 1.0 / 128.0),
        cell_clip: 0.0,
        output_dims: [1, 1],
    };

    /// One unit without projection, peephole or normalisation; the input's gates see 0, the cell is at one
    /// half.
    fn step(case: &Case) -> Result<Vec<Computed>, String> {
        let weights = Operand::new(T::TENSOR_QUANT8_SYMM, &[1, 1]).with_quantization(1.0 / 128.0, 0);
        let state = |dims| {
            Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims)
                .with_quantization(1.0 / 128.0, case.hidden.0.clamp(-128, 127))
        };
        let cell = Operand::new(T::TENSOR_QUANT16_SYMM, &[1, 1]).with_quantization(case.cell_scale, 0);
        let zero = case.hidden.0.clamp(-128, 127) as i8;
        let mut operation = OneOperation::new(OperationType::QUANTIZED_LSTM).operand(state(&[1, 1]), &[zero]);
        for _ in 0..8 {
            operation = operation.operand(weights.clone(), &[64_i8]);
        }
        for _ in 0..3 {
            operation = operation
                .omitted_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[0]).with_quantization(1.0, 0));
        }
        for _ in 0..4 {
            operation = operation.tensor(T::TENSOR_INT32, &[1], &[0_i32]);
        }
        operation = operation
            .omitted_operand(Operand::new(T::TENSOR_QUANT8_SYMM, &[0]).with_quantization(1.0, 0))
            .omitted(T::TENSOR_INT32)
            .operand(
                state(&case.output_dims),
                &vec![zero; case.output_dims[1] as usize],
            )
            .operand(cell.clone(), &[16384_i16]);
        for _ in 0..4 {
            operation = operation
                .omitted_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[0]).with_quantization(1.0, 0));
        }
        operation = operation.f32(case.cell_clip).f32(0.0);
        for _ in 0..4 {
            operation = operation.f32(case.intermediate_scale);
        }
        operation
            .i32(case.hidden.0)
            .f32(case.hidden.1)
            .output_operand(state(&[0, 0]))
            .output_operand(cell)
            .output_operand(state(&[0, 0]))
            .run()
    }

    #[test]
    fn gates_that_see_nothing_keep_half_of_the_cell() {
        let outputs = step(&CASE).unwrap();
        assert_eq!(outputs[1].data::<i16>(), [8192]);
        // tanh(0.25) / 2 = 0.1225, in steps of 1/128.
        assert_eq!(outputs[0].data::<i8>(), [16]);
        assert_eq!(outputs[2].data::<i8>(), [16]);
    }

    #[test]
    fn outputs_without_projection_have_the_hidden_zero_point() {
        let case = Case {
            hidden: (-20, 1.0 / 128.0),
            ..CASE
        };
        assert_eq!(step(&case).unwrap()[2].data::<i8>(), [-4]);
    }

    #[test]
    fn clip_bounds_the_cell() {
        let case = Case {
            cell_clip: 0.125,
            ..CASE
        };
        assert_eq!(step(&case).unwrap()[1].data::<i16>(), [4096]);
    }

    #[test]
    fn scales_zero_points_and_dimensions_that_do_not_fit_give_an_error() {
        let refused = |case: Case| step(&case).unwrap_err();
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let case = Case {
                intermediate_scale: scale,
                ..CASE
            };
            assert!(refused(case).contains("input 26"), "{scale}");
        }
        for (hidden, place) in [((300, 1.0), "input 30"), ((0, 0.0), "input 31")] {
            assert!(refused(Case { hidden, ..CASE }).contains(place));
        }
        for cell_scale in [1.0 / 65536.0, 1.0 / 256.0, 0.001] {
            assert!(refused(Case { cell_scale, ..CASE }).contains("input 19"));
        }
        let case = Case {
            output_dims: [1, 2],
            ..CASE
        };
        assert!(refused(case).contains("must be [1, 1]"));
    }
}
