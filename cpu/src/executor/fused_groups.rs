//! Operations that are not computed one by one: those that follow each other and are computed together, and
//! those that only give memory another shape.
//!
//! Not inlined, as is all that most operations of small models are without: a caller that has it all inside
//! saves and prepares more than such an operation takes.

use nnhal_hal::{Operation, SubgraphIndex};
use nnhal_os::buffer::OutOfMemory;
use nnhal_os::time::{Clock, MonotonicClock};

use super::ExecutionError;
use super::fusion::FusedGroup;
use super::program::{Step, Work};
use super::run::{Frame, Graphs, Memory, Runner, execution_error};
use crate::fast::PlannedStep;
use crate::kernel::{KernelContext, KernelError, Value, Values};

impl Runner<'_> {
    /// Runs the operations that are computed together from this one on, or this one alone; returns how many
    /// they are.
    #[inline(never)]
    pub(super) fn several(
        &mut self,
        (at, index): (SubgraphIndex, usize),
        graphs @ (subgraph, graph): Graphs<'_>,
        frame: &mut Frame,
    ) -> Result<usize, ExecutionError> {
        let (operation, step) = (&subgraph.operations[index], &graph.steps[index]);
        let started = self.options.observer.map(|_| MonotonicClock.now());
        let failed = |error| execution_error((at, index), operation, error);
        let mut group = None;
        let most = self.team.most();
        let parted = step.parted.iter().filter(|parted| parted.suits(most));
        for some in parted.chain(&step.group) {
            if self.run_group((at, index), some, frame).map_err(failed)? {
                group = Some(some);
                break;
            }
        }
        let count = match group {
            Some(group) => group.operations(),
            None if step.renames
                && self
                    .rename(operation, step, frame)
                    .map_err(|error| failed(error.into()))? =>
            {
                1
            }
            None => {
                self.operation((at, index), graphs, frame)?;
                1
            }
        };
        if let Some(started) = started {
            self.tell(at, index..index + count, started);
        }
        for step in &graph.steps[index..index + count] {
            if !step.releases.is_empty() {
                self.release(step, frame);
            }
        }
        Ok(count)
    }

    /// Gives the memory of an operation's input to its output; says whether it did, which it does unless the
    /// input is not as declared.
    #[inline(never)]
    pub(super) fn rename(
        &mut self,
        operation: &Operation,
        step: &Step,
        frame: &mut Frame,
    ) -> Result<bool, OutOfMemory> {
        let (input, output) = (operation.inputs[0] as usize, operation.outputs[0] as usize);
        let fixed = step.fixed.as_ref();
        let Some(fixed) = fixed.filter(|fixed| fixed.apply_to(Values::all(&frame.values))) else {
            return Ok(false);
        };
        if frame.values[input].shared.is_some() {
            return Ok(false);
        }
        let memory = std::mem::take(&mut frame.values[input].buffer);
        let value = &mut frame.values[output];
        self.memory
            .give_back(std::mem::replace(&mut value.buffer, memory));
        fixed.give(std::slice::from_mut(value), |_, _| {})?;
        Ok(true)
    }

    /// Computes the operations from `first` on together; says whether it did, which it does unless something
    /// is not there.
    #[inline(never)]
    pub(super) fn run_group(
        &mut self,
        (at, first): (SubgraphIndex, usize),
        group: &FusedGroup,
        frame: &mut Frame,
    ) -> Result<bool, KernelError> {
        let graphs @ (_, graph) = self.subgraph(at);
        for number in group.before() {
            self.options.interrupt.check()?;
            match self.alone(graphs, first + number, frame) {
                Ok(()) => {}
                Err(KernelError::Interrupted(interrupted)) => return Err(interrupted.into()),
                // One by one they are computed again, which tells what is wrong.
                Err(_) => return Ok(false),
            }
        }
        let last = &graph.steps[first + group.operations() - 1];
        let (Some(fixed), Some((values, output))) = (
            &last.fixed,
            Values::but(&mut frame.values, group.output() as usize),
        ) else {
            return Ok(false);
        };
        let bytes = |at: u32| match graph.constants.get(at as usize)? {
            Some(constant) => Some(constant.bytes.bytes()),
            None => values
                .get(at as usize)
                .filter(|value| value.present)
                .map(Value::bytes),
        };
        let give = |output: &mut Value, memory: &mut Memory| {
            fixed.give(std::slice::from_mut(output), |value, bytes| {
                memory.reuse(&mut value.buffer, bytes)
            })
        };
        match group {
            FusedGroup::Elements(fused) if fused.applies_to(bytes) => {
                give(output, self.memory)?;
                Ok(fused.run(bytes, output.buffer.bytes_mut(), self.team))
            }
            FusedGroup::Rows(chain) => {
                let layer = |number: usize| graph.steps[first + number].float_layer();
                let Some(ready) = chain.ready(layer, bytes, self.team) else {
                    return Ok(false);
                };
                give(output, self.memory)?;
                let scratch = &mut self.memory.scratch;
                let interrupt = self.options.interrupt;
                ready.run(output.buffer.bytes_mut(), (scratch, self.team), interrupt)
            }
            FusedGroup::Layer(layer) => {
                let Some(ready) = layer.ready(graph.steps[first].float_layer(), bytes) else {
                    return Ok(false);
                };
                give(output, self.memory)?;
                ready.run(output.buffer.bytes_mut(), (&mut self.memory.scratch, self.team))
            }
            FusedGroup::Padded(convolution) => {
                let Work::Planned { step, shape } = &last.work else {
                    return Ok(false);
                };
                let applies = convolution.outputs().apply_to(values);
                if applies {
                    let sizes = (*shape, Some(convolution.outputs()));
                    let run =
                        |context: &mut KernelContext<'_>| step.run_padded(context, convolution.patches());
                    let output = std::slice::from_mut(output);
                    self.compute_into(graphs, convolution.operation(), run, sizes, values, output)?;
                }
                Ok(applies)
            }
            FusedGroup::Offset(offset) => {
                let Some(input) = bytes(offset.input()).filter(|input| offset.applies_to(input)) else {
                    return Ok(false);
                };
                give(output, self.memory)?;
                offset.run((input, output.buffer.bytes_mut()), self.team);
                Ok(true)
            }
            FusedGroup::Magnitude(magnitude) => {
                let Some(input) = bytes(magnitude.input()) else {
                    return Ok(false);
                };
                give(output, self.memory)?;
                Ok(magnitude.run(input, output.buffer.bytes_mut()))
            }
            FusedGroup::DynamicallyQuantized(dynamically_quantized) => {
                let step = graph.steps[first + dynamically_quantized.layer()].planned();
                let Some(layer) = step.and_then(PlannedStep::integer_layer) else {
                    return Ok(false);
                };
                give(output, self.memory)?;
                let memory = (&mut self.memory.scratch, self.team);
                Ok(dynamically_quantized.run(layer, bytes, output.buffer.bytes_mut(), memory)?)
            }
            FusedGroup::Elements(_) => Ok(false),
        }
    }
}
