//! What is generated.

use nnhal_hal::Request;

use crate::implementation::ModelWithPools;

/// A model with a request for it.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The model.
    pub model: ModelWithPools,
    /// The request: pool 0 for inputs, pool 1 for outputs.
    pub request: Request,
    /// The bytes of the inputs' pool.
    pub inputs: Vec<u8>,
    /// Size of the outputs' pool.
    pub outputs_size: usize,
}
