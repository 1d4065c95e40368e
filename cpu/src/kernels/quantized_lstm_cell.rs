//! The cell of LSTM layers with signed 8-bit inputs and outputs and 16-bit state, for QUANTIZED_LSTM and the
//! extension's UNIDIRECTIONAL_SEQUENCE_LSTM.
//!
//! The arithmetic is that of the HAL's reference, which is TFLite's integer LSTM: logistic function and
//! hyperbolic tangent of the gates' sums are taken in 16-bit fixed point, and so are the cell's values.

use std::ops::RangeInclusive;

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::lstm_cell::Gate;
use nnhal_hal::ops::quantized_lstm::{CELL, HIDDEN_SCALE, cell_scale_exponent, positive_scale};

use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::fixed_point_functions::{logistic_16, tanh_16};
use super::quantized_lstm_gates::{GATE_BITS, GateWeights, Item, Matrix, saturate};
use crate::kernel::{Inputs, KernelError};

/// What makes the output of the gated cell.
struct Hidden<'a> {
    rescale: Multiplier,
    zero_point: i32,
    projection: Option<(Matrix<'a>, Option<&'a [i32]>)>,
    output_zero_point: i32,
    /// What the projection's results are clamped to.
    range: RangeInclusive<i32>,
}

/// Whose rules count where they differ: in the bound of the projection, and in peepholes beside one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// What the operands' names say: the bound lies around the output's zero point, all units have peepholes.
    Named,
    /// What TFLite's kernel does: the bound lies around a stored 0, as many units as outputs have peepholes.
    Tflite,
}

impl<'a> Hidden<'a> {
    fn new(inputs: &Inputs<'a>, rules: Rules) -> Result<Hidden<'a>, KernelError> {
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
        let centre = match rules {
            Rules::Named => output.zero_point(),
            Rules::Tflite => 0,
        };
        let clip = clip_steps(inputs, 25, output.scale(), i32::from(i8::MAX))?;
        let range = match clip {
            0 => -128..=127,
            clip => (centre - clip).max(-128)..=(centre + clip).min(127),
        };
        Ok(Hidden {
            // Both factors, the gate and the cell's tanh, have 15 fractional bits.
            rescale: Multiplier::new(2_f64.powi(-30) / f64::from(scale)),
            zero_point,
            projection,
            output_zero_point: output.zero_point(),
            range,
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
        for (at, value) in output.iter_mut().enumerate() {
            let product = matrix.product(at, hidden, bias.map_or(0, |bias| bias[at]));
            let steps = product.saturating_add(self.output_zero_point);
            *value = steps.clamp(*self.range.start(), *self.range.end()) as i8;
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

/// A cell with its weights.
pub(super) struct Cell<'a> {
    input_gate: Option<GateWeights<'a>>,
    forget_gate: GateWeights<'a>,
    cell_gate: GateWeights<'a>,
    output_gate: GateWeights<'a>,
    hidden: Hidden<'a>,
    /// Fractional bits of the cell's values.
    bits: i32,
    /// The bound of the cell's values in steps; 0 sets none.
    clip: i32,
}

impl<'a> Cell<'a> {
    pub(super) fn new(inputs: &Inputs<'a>, rules: Rules) -> Result<Cell<'a>, KernelError> {
        let gate = |gate| {
            GateWeights::new(inputs, gate)?
                .ok_or_else(|| KernelError::from(OpError::input(CELL.input_weights(gate), "is omitted")))
        };
        let scale = inputs.tensor(CELL.cell_state)?.scale();
        Ok(Cell {
            input_gate: GateWeights::new(inputs, Gate::Input)?,
            forget_gate: gate(Gate::Forget)?,
            cell_gate: gate(Gate::Cell)?,
            output_gate: gate(Gate::Output)?,
            hidden: Hidden::new(inputs, rules)?,
            bits: -cell_scale_exponent(inputs.rules())?,
            clip: clip_steps(inputs, 24, scale, i32::from(i16::MAX))?,
        })
    }

    /// One step of one batch: replaces the cell's values and writes the output. `gates` is room for four sums
    /// of each unit.
    pub(super) fn step(&self, item: &Item<'_>, cell: &mut [i16], gates: &mut [i16], output: &mut [i8]) {
        let units = cell.len();
        let (first, rest) = gates.split_at_mut(2 * units);
        let (taken, kept) = first.split_at_mut(units);
        let (new_value, given) = rest.split_at_mut(units);
        self.forget_gate.sum(item, cell, kept);
        self.cell_gate.sum(item, cell, new_value);
        if let Some(input_gate) = &self.input_gate {
            input_gate.sum(item, cell, taken);
        }
        for (unit, value) in cell.iter_mut().enumerate() {
            let keep = logistic_16(kept[unit], GATE_BITS);
            let take = match self.input_gate {
                Some(_) => logistic_16(taken[unit], GATE_BITS),
                None => i16::MAX - keep,
            };
            let product = |left: i16, right: i16, shift| {
                rounding_divide_by_power_of_two(i32::from(left) * i32::from(right), shift)
            };
            let old = product(keep, *value, 15);
            let new = product(take, tanh_16(new_value[unit], GATE_BITS), 30 - self.bits);
            *value = saturate(i32::from(saturate(old)) + i32::from(saturate(new)));
            if self.clip > 0 {
                *value = i32::from(*value).clamp(-self.clip, self.clip) as i16;
            }
        }
        self.output_gate.sum(item, cell, given);
        // The input gate is done with; its memory takes the hidden values.
        let hidden_values: &mut [i8] = &mut bytemuck::cast_slice_mut(taken)[..units];
        for (unit, value) in hidden_values.iter_mut().enumerate() {
            let of_cell = tanh_16(cell[unit], (15 - self.bits) as u32);
            *value = self.hidden.value(logistic_16(given[unit], GATE_BITS), of_cell);
        }
        self.hidden.output(hidden_values, output);
    }
}
