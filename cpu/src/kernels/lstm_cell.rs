//! The LSTM cell that LSTM and the sequence LSTMs share, in float32.
//!
//! A step, with `x` the input, `h` the last output and `c` the cell's value: each gate's sum is
//! `weights * x + recurrent_weights * h + bias`; the input and forget gates see `c` through their peephole
//! weights before it changes, the output gate after. With layer normalisation a sum, without its bias, is
//! brought to mean 0 and variance 1, multiplied by the normalisation weights, and the bias comes last.
//! Without an input gate of its own a cell takes `1 - forget` of the new value. The projection, where there
//! is one, makes the output.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::lstm_cell::{CellInputs, Gate};

use super::cell_activation::{CellActivation, EXACT};
use super::recurrent::{FloatInputs, Items, PreparedCell, add_product, dot, steps};
use crate::kernel::{Inputs, KernelError, Pace};

/// What keeps the variance of a layer from being 0.
const NORMALISATION_EPSILON: f32 = 1e-8;

/// The scalars of an LSTM operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Of a cell's new value and of what it gives out.
    activation: CellActivation,
    /// Bounds of the cell's values and of the projection's; 0 sets none.
    cell_clip: f32,
    projection_clip: f32,
}

impl Settings {
    /// The activation code and the two bounds, which follow each other from input `first`.
    pub(super) fn new(inputs: &Inputs<'_>, first: usize) -> Result<Settings, KernelError> {
        let bound = |input| match inputs.f32(input)? {
            bound if bound >= 0.0 => Ok(bound),
            bound => Err(KernelError::from(OpError::input(
                input,
                format!("(clip) is {bound}, must be 0 (no bound) or above"),
            ))),
        };
        Ok(Settings {
            activation: CellActivation::from_code(first, inputs.i32(first)?)?,
            cell_clip: bound(first + 1)?,
            projection_clip: bound(first + 2)?,
        })
    }
}

fn clip(values: &mut [f32], bound: f32) {
    if bound > 0.0 {
        for value in values {
            *value = value.clamp(-bound, bound);
        }
    }
}

struct GateWeights<'a> {
    input: &'a [f32],
    recurrent: &'a [f32],
    aux: Option<&'a [f32]>,
    peephole: Option<&'a [f32]>,
    norm: Option<&'a [f32]>,
    bias: &'a [f32],
}

impl<'a> GateWeights<'a> {
    /// The gate's operands; `None` for an input gate that is coupled to the forget gate.
    fn new(
        inputs: &FloatInputs<'a>,
        at: &CellInputs,
        gate: Gate,
    ) -> Result<Option<GateWeights<'a>>, KernelError> {
        let optional = |index: Option<usize>| match index {
            Some(index) => inputs.optional(index),
            None => Ok(None),
        };
        if gate == Gate::Input && inputs.optional(at.input_weights(gate))?.is_none() {
            return Ok(None);
        }
        Ok(Some(GateWeights {
            input: inputs.required(at.input_weights(gate))?,
            recurrent: inputs.required(at.recurrent_weights(gate))?,
            aux: optional(at.aux(gate))?,
            peephole: optional(at.peephole(gate))?,
            norm: inputs.optional(at.norm(gate))?,
            bias: inputs.required(at.bias(gate))?,
        }))
    }

    /// What sums start from.
    fn start(&self, sums: &mut [f32]) {
        if self.norm.is_some() {
            sums.fill(0.0);
        } else {
            sums.copy_from_slice(self.bias);
        }
    }

    /// The sums before peephole and normalisation.
    fn sum(&self, step: &Step<'_>, output: &[f32], sums: &mut [f32]) {
        self.start(sums);
        add_product(sums, self.input, step.input);
        if let (Some(weights), Some(aux)) = (self.aux, step.aux) {
            add_product(sums, weights, aux);
        }
        add_product(sums, self.recurrent, output);
    }

    /// Adds what the gate sees of the cell, and normalises.
    fn finish(&self, cell: &[f32], sums: &mut [f32]) {
        if let Some(peephole) = self.peephole {
            for ((sum, weight), value) in sums.iter_mut().zip(peephole).zip(cell) {
                *sum += weight * value;
            }
        }
        if let Some(norm) = self.norm {
            normalise(sums);
            for ((sum, weight), bias) in sums.iter_mut().zip(norm).zip(self.bias) {
                *sum = *sum * weight + bias;
            }
        }
    }
}

/// Brings values to mean 0 and variance 1.
fn normalise(values: &mut [f32]) {
    let count = values.len() as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum::<f32>()
        / count;
    let factor = 1.0 / (variance + NORMALISATION_EPSILON).sqrt();
    for value in values {
        *value = (*value - mean) * factor;
    }
}

/// What a cell reads in one step of one batch.
struct Step<'a> {
    input: &'a [f32],
    aux: Option<&'a [f32]>,
}

/// A cell with its weights.
pub(super) struct Cell<'a> {
    input: Option<GateWeights<'a>>,
    forget: GateWeights<'a>,
    new_value: GateWeights<'a>,
    output: GateWeights<'a>,
    projection: Option<(&'a [f32], Option<&'a [f32]>)>,
    settings: Settings,
    units: usize,
    /// What computes with the weights in their place.
    prepared: Option<&'a dyn PreparedCell>,
}

/// What a cell remembers from step to step, for all batches.
pub(super) struct State<'a> {
    pub(super) output: &'a mut [f32],
    pub(super) cell: &'a mut [f32],
}

/// A pass over a sequence: what is read, in which direction, and where the outputs go.
pub(super) struct Pass<'a> {
    pub(super) input: (&'a [f32], Items),
    pub(super) aux: Option<(&'a [f32], Items)>,
    pub(super) backward: bool,
    pub(super) output: (&'a mut [f32], Items),
    /// Four values for each unit.
    pub(super) gates: &'a mut [f32],
    pub(super) pace: Pace<'a>,
}

impl<'a> Cell<'a> {
    pub(super) fn new(
        inputs: &FloatInputs<'a>,
        at: &CellInputs,
        (settings, prepared): (Settings, Option<&'a dyn PreparedCell>),
    ) -> Result<Cell<'a>, KernelError> {
        let gate = |gate| {
            GateWeights::new(inputs, at, gate)?
                .ok_or_else(|| KernelError::from(OpError::input(at.input_weights(gate), "is omitted")))
        };
        let forget = gate(Gate::Forget)?;
        Ok(Cell {
            input: GateWeights::new(inputs, at, Gate::Input)?,
            new_value: gate(Gate::Cell)?,
            output: gate(Gate::Output)?,
            projection: match inputs.optional(at.projection())? {
                Some(weights) => Some((weights, inputs.optional(at.projection_bias())?)),
                None => None,
            },
            settings,
            units: forget.bias.len(),
            forget,
            prepared,
        })
    }

    /// Every step of every batch; `state` goes from the initial to the final one.
    ///
    /// # Errors
    /// The execution has been interrupted.
    pub(super) fn run(&self, state: &mut State<'_>, pass: &mut Pass<'_>) -> Result<(), KernelError> {
        let shape = pass.input.1.shape;
        let outputs = pass.output.1.values;
        for step in steps(shape.steps, pass.backward) {
            for batch in 0..shape.batches as usize {
                let read = Step {
                    input: &pass.input.0[pass.input.1.range(step, batch)],
                    aux: pass.aux.map(|(data, items)| &data[items.range(step, batch)]),
                };
                pass.pace.work(4 * self.units * (read.input.len() + outputs))?;
                let output = &mut state.output[batch * outputs..][..outputs];
                let cell = &mut state.cell[batch * self.units..][..self.units];
                self.step(&read, output, cell, pass.gates);
                pass.output.0[pass.output.1.range(step, batch)].copy_from_slice(output);
            }
        }
        Ok(())
    }

    fn step(&self, read: &Step<'_>, output: &mut [f32], cell: &mut [f32], gates: &mut [f32]) {
        let functions = self.prepared.map_or(&EXACT, PreparedCell::functions);
        self.sum_gates(read, output, gates);
        let (first, last) = gates.split_at_mut(2 * self.units);
        let (input_gate, forget_gate) = first.split_at_mut(self.units);
        let (new_value, output_gate) = last.split_at_mut(self.units);
        self.forget.finish(cell, forget_gate);
        self.new_value.finish(cell, new_value);
        (functions.logistic)(forget_gate);
        match &self.input {
            Some(input) => {
                input.finish(cell, input_gate);
                (functions.logistic)(input_gate);
            }
            None => {
                for (take, keep) in input_gate.iter_mut().zip(&*forget_gate) {
                    *take = 1.0 - keep;
                }
            }
        }
        let activation = self.settings.activation;
        activation.apply(functions, new_value);
        let taken = input_gate.iter().zip(&*new_value);
        for ((value, keep), (take, new)) in cell.iter_mut().zip(&*forget_gate).zip(taken) {
            *value = keep * *value + take * new;
        }
        clip(cell, self.settings.cell_clip);
        self.output.finish(cell, output_gate);
        (functions.logistic)(output_gate);
        // Their room is free again.
        let activated = new_value;
        activated.copy_from_slice(cell);
        activation.apply(functions, activated);
        for (gate, value) in output_gate.iter_mut().zip(&*activated) {
            *gate *= value;
        }
        match self.projection {
            Some((weights, bias)) => {
                self.project(weights, bias, output_gate, output);
            }
            None => output.copy_from_slice(output_gate),
        }
    }

    /// The sums of all gates before peephole and normalisation, in the order in which operands list the
    /// gates.
    fn sum_gates(&self, read: &Step<'_>, output: &[f32], gates: &mut [f32]) {
        let weights = [
            self.input.as_ref(),
            Some(&self.forget),
            Some(&self.new_value),
            Some(&self.output),
        ];
        let given = weights.into_iter().zip(gates.chunks_exact_mut(self.units));
        for (weights, sums) in given.filter_map(|(weights, sums)| Some((weights?, sums))) {
            if self.prepared.is_some() {
                weights.start(sums);
            } else {
                weights.sum(read, output, sums);
            }
        }
        if let Some(prepared) = self.prepared {
            let coupled = if self.input.is_none() { self.units } else { 0 };
            prepared.add_to_gates(read.input, read.aux, output, &mut gates[coupled..]);
        }
    }

    /// Makes the output out of the gated values, within its bounds.
    fn project(&self, weights: &[f32], bias: Option<&[f32]>, gated: &[f32], output: &mut [f32]) {
        let starts = |at: usize| bias.map_or(0.0, |bias| bias[at]);
        if let Some(prepared) = self.prepared {
            output
                .iter_mut()
                .enumerate()
                .for_each(|(at, value)| *value = starts(at));
            let bound = self.settings.projection_clip;
            let bound = if bound > 0.0 { bound } else { f32::INFINITY };
            return prepared.add_projection(gated, output, bound);
        }
        for (at, value) in output.iter_mut().enumerate() {
            *value = dot(&weights[at * self.units..][..self.units], gated) + starts(at);
        }
        clip(output, self.settings.projection_clip);
    }
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn normalised_values_have_mean_0_and_variance_1_even_if_all_equal() {
        let mut values = [1.0, 2.0, 3.0, 6.0];
        normalise(&mut values);
        assert!(values.iter().sum::<f32>().abs() < 1e-6);
        assert!((values.iter().map(|value| value * value).sum::<f32>() / 4.0 - 1.0).abs() < 1e-6);
        let mut equal = [5.0; 3];
        normalise(&mut equal);
        assert_eq!(equal, [0.0; 3]);
    }
}
