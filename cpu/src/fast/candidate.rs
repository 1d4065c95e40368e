//! Operations that may be computed with a layer of floats.

use std::sync::Arc;

use super::float_layer::FloatLayer;
use super::layer::Layer;
use crate::plan::Declared;

/// An operation that may be computed with others.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'d> {
    pub(crate) declared: Declared<'d>,
    /// What it is, if it is a layer.
    pub(crate) layer: Option<Arc<Layer>>,
    /// How many elements its only output has, if that is known.
    pub(crate) elements: Option<usize>,
}

impl Candidate<'_> {
    pub(super) fn output(&self) -> Option<u32> {
        self.declared.operation.outputs.first().copied()
    }

    /// What it is, if it is a convolution of floats of which everything is known.
    pub(super) fn float_layer(&self) -> Option<FloatLayer<'_>> {
        self.layer.as_ref()?.float_layer()
    }
}
