//! A convolution of floats with the operations behind it that its epilogue computes.

use std::sync::Arc;

use crate::fast::candidate::{Candidate, Candidates};
use crate::fast::epilogue_operations::EpilogueOperations;
use crate::fast::float_layer::FloatWeights;
use crate::fast::layer::Layer;
use crate::fast::{FusedStep, convolution};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;

/// Such a convolution, by the operands of its graph.
#[derive(Debug)]
pub(super) struct LayerWithEpilogue {
    input: u32,
    layer: Arc<Layer>,
    epilogue_operations: EpilogueOperations,
    name: &'static str,
}

impl LayerWithEpilogue {
    /// The first of some operations, a convolution, with as many behind it as its epilogue computes; with how
    /// many all are.
    pub(super) fn longest(candidates: &Candidates<'_, '_>) -> Option<(LayerWithEpilogue, usize)> {
        let first = candidates.all.first()?;
        let FloatWeights::Matrix(weights) = first.float_layer()?.weights else {
            return None;
        };
        let ends_within = |operand, count| candidates.ends_within(operand, count);
        let epilogue_operations = epilogue_operations(candidates.all, ends_within)?;
        let count = 1 + epilogue_operations.operations();
        let layer = LayerWithEpilogue {
            input: *first.declared.operation.inputs.first()?,
            layer: Arc::clone(first.layer.as_ref()?),
            epilogue_operations,
            name: weights.name_with_epilogue(),
        };
        Some((layer, count))
    }
}

impl FusedStep for LayerWithEpilogue {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let inputs = &context.inputs;
        let epilogue = self.epilogue_operations.ready(|at| inputs.operand(at));
        let (Some(layer), Some(input), Some(epilogue), Some(output)) = (
            self.layer.float_layer(),
            inputs.operand(self.input),
            epilogue,
            context.outputs.bytes(0),
        ) else {
            return Ok(false);
        };
        let (FloatWeights::Matrix(weights), Ok(input), Ok(output)) = (
            layer.weights,
            bytemuck::try_cast_slice(input),
            bytemuck::try_cast_slice_mut(output),
        ) else {
            return Ok(false);
        };
        if input.len() != layer.inputs() {
            return Ok(false);
        }
        let memory = (&mut *context.scratch, context.team);
        convolution::run_f32(weights, layer.patches, input, (output, epilogue), memory)?;
        Ok(true)
    }
}

/// The operations behind the first one of some, a layer, that its epilogue computes. None if it is depthwise,
/// or has an activation, as few layers do that such operations follow on, or a part of a vector in its rows.
pub(in crate::fast) fn epilogue_operations(
    operations: &[Candidate<'_>],
    ends_within: impl Fn(u32, usize) -> bool,
) -> Option<EpilogueOperations> {
    let (first, after) = operations.split_first()?;
    let elements = first.elements?;
    let layer = first.float_layer()?;
    let columns = layer.patches.output.channels as usize;
    if layer.range != Activation::None.range() || !columns.is_multiple_of(layer.columns_at_once()?) {
        return None;
    }
    let alike = after
        .iter()
        .take_while(|operation| operation.elements == Some(elements))
        .map(|operation| operation.declared);
    EpilogueOperations::longest(alike, first.output()?, (elements, columns), |operand, count| {
        ends_within(operand, count + 1)
    })
}

#[cfg(test)]
#[path = "layer_with_epilogue_tests.rs"]
mod tests;
