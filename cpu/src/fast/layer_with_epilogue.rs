//! A convolution of floats with the operations behind it that its epilogue computes.

use super::convolution;
use super::epilogue::Epilogue;
use super::epilogue_operations::EpilogueOperations;
use super::steps::{FloatLayer, FloatWeights};
use super::strip_chain::Candidate;
use crate::kernel::KernelError;
use crate::kernels::activation_range::Activation;
use crate::scratch::Scratch;
use crate::threads::Team;

/// Such a convolution, by the operands of its graph.
#[derive(Debug)]
pub(crate) struct LayerWithEpilogue {
    input: u32,
    epilogue_operations: EpilogueOperations,
    name: &'static str,
}

impl LayerWithEpilogue {
    /// The first of some operations, a convolution, with as many behind it as its epilogue computes.
    /// `ends_within(operand, count)` says whether no other than the first `count` read an operand.
    pub(crate) fn longest(
        operations: &[Candidate<'_>],
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<LayerWithEpilogue> {
        let (first, _) = operations.split_first()?;
        let FloatWeights::Matrix(weights) = first.layer?.weights else {
            return None;
        };
        Some(LayerWithEpilogue {
            input: *first.declared.operation.inputs.first()?,
            epilogue_operations: epilogue_operations(operations, ends_within)?,
            name: weights.name_with_epilogue(),
        })
    }

    /// How many operations these are.
    pub(crate) fn operations(&self) -> usize {
        1 + self.epilogue_operations.operations()
    }

    /// The operand that they compute.
    pub(crate) fn output(&self) -> u32 {
        self.epilogue_operations.output()
    }

    /// What computes them, for people to read.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether everything that they read is there, given the layer and the bytes of the operands that are.
    pub(crate) fn ready<'v>(
        &self,
        layer: Option<FloatLayer<'v>>,
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
    ) -> Option<ReadyLayer<'v>> {
        let layer = layer?;
        let input: &[f32] = bytemuck::try_cast_slice(bytes(self.input)?).ok()?;
        let patches = layer.patches;
        let whole = patches.image_size(&patches.input) * patches.input.batch as usize;
        let epilogue = self.epilogue_operations.ready(bytes)?;
        (input.len() == whole).then_some(ReadyLayer {
            layer,
            input,
            epilogue,
        })
    }
}

/// The operations behind the first one of some, a layer, that its epilogue computes. None if it is depthwise,
/// or has an activation, as few layers do that such operations follow on, or a part of a vector in its rows.
pub(super) fn epilogue_operations(
    operations: &[Candidate<'_>],
    ends_within: impl Fn(u32, usize) -> bool,
) -> Option<EpilogueOperations> {
    let (first, after) = operations.split_first()?;
    let elements = first.elements?;
    let layer = first.layer?;
    let FloatWeights::Matrix(weights) = layer.weights else {
        return None;
    };
    let columns = layer.patches.output.channels as usize;
    if layer.range != Activation::None.range() || !columns.is_multiple_of(weights.columns_at_once()) {
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

/// The same with everything that it reads.
pub(crate) struct ReadyLayer<'v> {
    layer: FloatLayer<'v>,
    input: &'v [f32],
    epilogue: Epilogue<'v>,
}

impl ReadyLayer<'_> {
    /// Computes the result; says whether it did, which it does unless the memory is not that of floats.
    pub(crate) fn run(
        &self,
        output: &mut [u8],
        memory: (&mut Scratch, &Team<'_>),
    ) -> Result<bool, KernelError> {
        let (FloatWeights::Matrix(weights), Ok(output)) =
            (self.layer.weights, bytemuck::try_cast_slice_mut(output))
        else {
            return Ok(false);
        };
        convolution::run_f32(
            weights,
            self.layer.patches,
            self.input,
            (output, self.epilogue),
            memory,
        )?;
        Ok(true)
    }
}

#[cfg(test)]
#[path = "layer_with_epilogue_tests.rs"]
mod tests;
