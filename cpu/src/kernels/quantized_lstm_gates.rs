//! The gates of LSTM cells with signed 8-bit inputs and 16-bit sums.
//!
//! The products with the input, with the last output and with the cell are each brought to a gate's
//! intermediate scale and summed in 16 bits; layer normalisation brings the sum, or its scale is taken as it
//! is, to 16 bits with three integer bits (HAL reference, TFLite's integer LSTM).

use nnhal_hal::ops::lstm_cell::Gate;
use nnhal_hal::ops::quantized_lstm::{CELL, INTERMEDIATE_SCALES, positive_scale};

use super::fixed_point::Multiplier;
use super::quantized_layer_norm::LayerNorm;
use crate::kernel::{Inputs, KernelError};

/// Integer bits of the gates' sums.
pub(super) const GATE_BITS: u32 = 3;

/// A matrix of weights with the rescaling of its products.
pub(super) struct Matrix<'a> {
    pub(super) weights: &'a [i8],
    pub(super) zero_point: i32,
    pub(super) rescale: Multiplier,
}

impl Matrix<'_> {
    /// The rescaled product of row `unit` with a vector, `bias` added before.
    pub(super) fn product(&self, unit: usize, vector: &[i8], bias: i32) -> i32 {
        let row = &self.weights[unit * vector.len()..][..vector.len()];
        let sum = row.iter().zip(vector).fold(bias, |sum, (weight, value)| {
            sum.wrapping_add(i32::from(*weight) * (i32::from(*value) - self.zero_point))
        });
        self.rescale.apply(sum)
    }
}

/// What makes the sums of one gate.
pub(super) struct GateWeights<'a> {
    input: Matrix<'a>,
    recurrent: Matrix<'a>,
    peephole: Option<(&'a [i16], Multiplier)>,
    norm: Option<LayerNorm<'a>>,
    bias: &'a [i32],
}

impl<'a> GateWeights<'a> {
    /// The gate's operands; `None` for an input gate that is coupled to the forget gate.
    pub(super) fn new(inputs: &Inputs<'a>, gate: Gate) -> Result<Option<GateWeights<'a>>, KernelError> {
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
    pub(super) fn sum(&self, item: &Item<'_>, cell: &[i16], sums: &mut [i16]) {
        for (unit, sum) in sums.iter_mut().enumerate() {
            // With layer normalisation the bias comes after it.
            let bias = if self.norm.is_some() { 0 } else { self.bias[unit] };
            let own = saturate(self.input.product(unit, item.input, bias));
            let recurrent = self.recurrent.product(unit, item.last_output, 0);
            *sum = saturate(recurrent.saturating_add(i32::from(own)));
        }
        if let Some((weights, rescale)) = self.peephole {
            for (unit, (sum, value)) in sums.iter_mut().zip(cell).enumerate() {
                let Some(at) = item.peepholes.weight(unit) else {
                    break;
                };
                let seen = rescale.apply(i32::from(weights[at]) * i32::from(*value));
                *sum = saturate(seen.saturating_add(i32::from(*sum)));
            }
        }
        if let Some(norm) = &self.norm {
            norm.apply(sums);
        }
    }
}

/// A value of 32 bits in 16, clamped.
pub(super) fn saturate(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

/// What a step of one batch reads.
pub(super) struct Item<'a> {
    pub(super) input: &'a [i8],
    pub(super) last_output: &'a [i8],
    pub(super) peepholes: Peepholes,
}

/// Which units see the cell by which peephole weight.
#[derive(Clone, Copy)]
pub(super) struct Peepholes {
    /// The place of the batch's first unit.
    pub(super) first: usize,
    /// Units from this place on see nothing.
    pub(super) count: usize,
    /// The weights repeat after so many places.
    pub(super) period: usize,
}

impl Peepholes {
    /// Each unit by its own weight.
    pub(super) fn of_all(units: usize) -> Peepholes {
        Peepholes {
            first: 0,
            count: units,
            period: units,
        }
    }

    /// The number of the unit's weight, if it sees the cell.
    pub(super) fn weight(&self, unit: usize) -> Option<usize> {
        let place = self.first + unit;
        (place < self.count).then(|| place % self.period)
    }
}
