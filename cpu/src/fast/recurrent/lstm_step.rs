//! LSTM, which is one step of its cell, where all but its input and its states is constant: the usual form,
//! with tanh as activation and without layer normalisation. What [`crate::kernels::lstm`] works out of the
//! operands each time is known here, and the gates are finished in a few passes over their sums.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::lstm::STEP_CELL;
use nnhal_hal::ops::lstm_cell::Gate;
use nnhal_hal::{Operand, OperandLifeTime, OperationType};

use super::cell::{PackedCell, constant, extents, is_omitted};
use crate::fast::exponential::{logistic, tanh};
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::recurrent::PreparedCell;
use crate::plan::Declared;

/// The activation code of tanh.
const TANH: i32 = 4;

/// What such an operation knows beside its packed weights.
#[derive(Debug)]
pub(in crate::fast) struct LstmStep {
    values: usize,
    units: usize,
    outputs: usize,
    /// Whether the cell takes as much of the new value as it forgets of its own.
    is_coupled: bool,
    /// Of the gates that there are, one behind the other.
    bias: Vec<f32>,
    peephole: Option<Peephole>,
    /// If there is a projection: what it starts from.
    projection: Option<Vec<f32>>,
    /// Bounds of the cell's values and of the projection's.
    clips: [f32; 2],
}

/// What gates see of the cell's value, for each unit.
#[derive(Debug)]
struct Peephole {
    /// Nothing for a gate that there is not.
    input: Vec<f32>,
    forget: Vec<f32>,
    output: Vec<f32>,
}

impl LstmStep {
    /// That of an operation of this form.
    pub(in crate::fast) fn of(declared: &Declared<'_>) -> Option<LstmStep> {
        if declared.operation.operation_type != OperationType::LSTM {
            return None;
        }
        let at = &STEP_CELL;
        let context: &dyn OperationContext = declared;
        let is_normalised = Gate::ALL.iter().any(|gate| !is_omitted(declared, at.norm(*gate)));
        if context.i32(20).ok()? != TANH || is_normalised {
            return None;
        }
        // A bound of 0 is none; what is below is refused when it is executed.
        let clip = |input| match context.f32(input).ok()? {
            0.0 => Some(f32::INFINITY),
            bound => (bound > 0.0).then_some(bound),
        };
        let is_coupled = is_omitted(declared, at.input_weights(Gate::Input));
        let mut bias = Vec::new();
        for gate in Gate::ALL.into_iter().skip(usize::from(is_coupled)) {
            bias.extend_from_slice(constant(declared, at.bias(gate))?);
        }
        let [_, outputs] = extents(declared, at.recurrent_weights(Gate::Forget))?;
        let [units, values] = extents(declared, at.input_weights(Gate::Forget))?;
        let gates = Gate::ALL.len() - usize::from(is_coupled);
        let projection = if is_omitted(declared, at.projection()) {
            None
        } else if is_omitted(declared, at.projection_bias()) {
            Some(vec![0.0; outputs])
        } else {
            Some(constant(declared, at.projection_bias())?.to_vec())
        };
        let step = LstmStep {
            values,
            units,
            outputs,
            is_coupled,
            bias,
            peephole: Peephole::of(declared, is_coupled)?,
            projection,
            clips: [clip(21)?, clip(22)?],
        };
        (step.bias.len() == gates * units && step.fits()).then_some(step)
    }

    /// Whether everything beside the weights has as many values as they need.
    fn fits(&self) -> bool {
        let has_all = |peephole: &Peephole| {
            let input = if self.is_coupled { 0 } else { self.units };
            [&peephole.input, &peephole.forget, &peephole.output].map(Vec::len)
                == [input, self.units, self.units]
        };
        let is_projected = match &self.projection {
            Some(bias) => bias.len() == self.outputs,
            None => self.units == self.outputs,
        };
        let has_values = ![self.values, self.units, self.outputs].contains(&0);
        has_values && is_projected && self.peephole.as_ref().is_none_or(has_all)
    }

    /// Computes the operation with its packed weights.
    pub(in crate::fast) fn run(
        &self,
        context: &mut KernelContext<'_>,
        cell: &PackedCell,
    ) -> Result<(), KernelError> {
        let cell = cell.with(context.team);
        let inputs = &context.inputs;
        let (all, states): (&[f32], &[f32]) = (inputs.data(0)?, inputs.data(STEP_CELL.output_state)?);
        let cells: &[f32] = inputs.data(STEP_CELL.cell_state)?;
        let [gates, gated] = context.scratch.carve([4 * self.units, self.units])?;
        let [scratch, output_states, cell_states, outputs] = context.outputs.tensors([0, 1, 2, 3])?;
        // Room to compute in, which is not needed.
        if is_seen(scratch.operand) {
            scratch.bytes.fill(0);
        }
        let (output_states, cell_states) =
            (output_states.into_data::<f32>()?, cell_states.into_data::<f32>()?);
        let outputs = outputs.into_data::<f32>()?;
        let is_coupled = usize::from(self.is_coupled);
        let batches = all
            .chunks_exact(self.values)
            .zip(states.chunks_exact(self.outputs));
        let batches = batches.zip(cells.chunks_exact(self.units));
        let results = cell_states
            .chunks_exact_mut(self.units)
            .zip(output_states.chunks_exact_mut(self.outputs))
            .zip(outputs.chunks_exact_mut(self.outputs));
        for (((input, state), before), ((after, output_state), output)) in batches.zip(results) {
            let sums = &mut gates[is_coupled * self.units..];
            sums.copy_from_slice(&self.bias);
            cell.add_to_gates(input, None, state, sums);
            dispatch(Finish {
                step: self,
                gates: &mut *gates,
                cell: (before, after),
                gated: &mut *gated,
            });
            match &self.projection {
                Some(bias) => {
                    output.copy_from_slice(bias);
                    cell.add_projection(gated, output, self.clips[1]);
                }
                None => output.copy_from_slice(gated),
            }
            output_state.copy_from_slice(output);
        }
        Ok(())
    }
}

/// Whether anybody may look at what an operation gives out.
fn is_seen(output: &Operand) -> bool {
    output.lifetime != OperandLifeTime::TemporaryVariable || output.number_of_consumers > 0
}

impl Peephole {
    /// What an operation says of it, if that is constant.
    fn of(declared: &Declared<'_>, is_coupled: bool) -> Option<Option<Peephole>> {
        let weights = |gate| {
            let input = STEP_CELL.peephole(gate)?;
            constant(declared, input).map(<[f32]>::to_vec)
        };
        if is_omitted(declared, STEP_CELL.peephole(Gate::Forget)?) {
            return Some(None);
        }
        Some(Some(Peephole {
            input: if is_coupled {
                Vec::new()
            } else {
                weights(Gate::Input)?
            },
            forget: weights(Gate::Forget)?,
            output: weights(Gate::Output)?,
        }))
    }
}

/// Makes the cell's new value and what it gives out, before projection, of the sums of the gates.
struct Finish<'a> {
    step: &'a LstmStep,
    gates: &'a mut [f32],
    /// Before the step and after.
    cell: (&'a [f32], &'a mut [f32]),
    gated: &'a mut [f32],
}

impl Work for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let step = self.step;
        let (first, last) = self.gates.split_at_mut(2 * step.units);
        let (take, keep) = first.split_at_mut(step.units);
        let (new, out) = last.split_at_mut(step.units);
        let (before, after) = self.cell;
        let peephole = step.peephole.as_ref();
        open::<S>(keep, peephole.map(|weights| (&weights.forget[..], before)));
        if step.is_coupled {
            for (take, keep) in take.iter_mut().zip(&*keep) {
                *take = 1.0 - keep;
            }
        } else {
            open::<S>(take, peephole.map(|weights| (&weights.input[..], before)));
        }
        // In passes over few slices each, for which the compiler makes vectors.
        for (new, take) in new.iter_mut().zip(&*take) {
            *new = take * tanh::<S>(*new);
        }
        for (keep, before) in keep.iter_mut().zip(before) {
            *keep *= before;
        }
        for ((after, kept), new) in after.iter_mut().zip(&*keep).zip(&*new) {
            *after = clamp(kept + new, step.clips[0]);
        }
        open::<S>(out, peephole.map(|weights| (&weights.output[..], &*after)));
        for ((gated, out), cell) in self.gated.iter_mut().zip(&*out).zip(&*after) {
            *gated = out * tanh::<S>(*cell);
        }
    }
}

/// The value of magnitude `bound` at most that is nearest; a NaN stays one. Without the branch to a panic
/// that the standard library's function has, which keeps loops from becoming loops over vectors.
#[inline(always)]
fn clamp(value: f32, bound: f32) -> f32 {
    let value = if value < -bound { -bound } else { value };
    if value > bound { bound } else { value }
}

/// How far gates are open, of their sums and of what they see of the cell.
#[inline(always)]
fn open<S: Instructions>(gates: &mut [f32], seen: Option<(&[f32], &[f32])>) {
    match seen {
        Some((weights, cell)) => {
            for ((gate, weight), value) in gates.iter_mut().zip(weights).zip(cell) {
                *gate = logistic::<S>(*gate + weight * value);
            }
        }
        None => {
            for gate in gates {
                *gate = logistic::<S>(*gate);
            }
        }
    }
}
