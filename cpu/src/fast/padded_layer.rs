//! A convolution that pads its input itself.

use std::sync::Arc;

use super::FusedStep;
use super::convolution::patches::{Around, Patches};
use super::layer::Layer;
use crate::kernel::{KernelContext, KernelError};

/// A convolution behind a PAD, which is padding of its own.
#[derive(Debug)]
pub(crate) struct PaddedLayer {
    layer: Arc<Layer>,
    patches: Patches,
}

impl PaddedLayer {
    /// A layer that reads an image with this around it, if it can put that there itself.
    pub(crate) fn of(layer: Arc<Layer>, around: &Around) -> Option<PaddedLayer> {
        let patches = layer.behind_padding(around)?;
        Some(PaddedLayer { layer, patches })
    }
}

impl FusedStep for PaddedLayer {
    fn name(&self) -> &'static str {
        "as padding of the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        self.layer.run_padded(context, &self.patches).map(|()| true)
    }
}
