//! Convolutions of floats of which everything is known, as what computes several operations takes them.

use super::convolution::patches::Patches;
use super::depthwise::PackedDepthwise;
use super::matmul::float_matrix::FloatMatrix;

/// A layer of 32-bit floats of which everything is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatLayer<'a> {
    pub(super) weights: FloatWeights<'a>,
    pub(super) patches: &'a Patches,
    /// What results are clamped to.
    pub(super) range: (f32, f32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FloatWeights<'a> {
    Matrix(&'a FloatMatrix),
    Depthwise(&'a PackedDepthwise),
}

impl FloatLayer<'_> {
    /// As they are packed: for tiles half as many again, and what is then too large for a chain is faster by
    /// itself, too.
    pub(super) fn matrix_bytes(&self) -> usize {
        match self.weights {
            FloatWeights::Matrix(weights) => weights.packed().bytes().len(),
            FloatWeights::Depthwise(_) => 0,
        }
    }

    /// How many images [`super::Layer::cost`] is of.
    pub(super) fn images(&self) -> u64 {
        match self.weights {
            FloatWeights::Matrix(_) => u64::from(self.patches.input.batch).max(1),
            FloatWeights::Depthwise(_) => 1,
        }
    }

    /// Whether it takes its input row by row: depthwise, or single pixels.
    pub(super) fn takes_rows(&self) -> bool {
        match self.weights {
            FloatWeights::Matrix(_) => self.patches.are_pixels(),
            FloatWeights::Depthwise(_) => true,
        }
    }

    /// How many columns its epilogue finishes at once; none if it has no epilogue.
    pub(super) fn columns_at_once(&self) -> Option<usize> {
        match self.weights {
            FloatWeights::Matrix(weights) => Some(weights.columns_at_once()),
            FloatWeights::Depthwise(_) => None,
        }
    }

    /// Elements of its input.
    pub(super) fn inputs(&self) -> usize {
        self.patches.image_size(&self.patches.input) * self.patches.input.batch as usize
    }
}
