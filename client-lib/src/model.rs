//! Models as this library passes them on: the HAL's model and the memories of its pools.

use std::sync::Arc;

use nnhal_hal::{DataLocation, DeviceInfo, MemoryPool, OperandLifeTime, TypeLayouts};

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::TensorType;

/// Constants up to this size stay inside the model, as the NDK has it; larger ones go into memories where the
/// model as a whole is larger than [`INLINE_CONSTANTS`].
pub(crate) const SMALL_CONSTANT: usize = 128;

/// Constants of this size together may all stay inside the model: it then fits into one packet.
pub(crate) const INLINE_CONSTANTS: usize = 16 * 1024;

/// Alignment of constants in memories: a cache line, which is enough for any vector instruction.
pub(crate) const ALIGNMENT: usize = 64;

/// A model: a graph of operations over operands, and the constants in it. Cheap to clone.
///
/// Nothing is checked here: the driver checks every rule, and says which one is broken and where.
#[derive(Clone, Debug)]
pub struct Model {
    hal: Arc<nnhal_hal::Model>,
    pools: Arc<[Memory]>,
}

impl Model {
    /// A model in the HAL's own form, with a memory for each of its pools.
    #[must_use]
    pub fn from_hal(model: nnhal_hal::Model, pools: Vec<Memory>) -> Model {
        Model {
            hal: Arc::new(model),
            pools: pools.into(),
        }
    }

    /// A model in the HAL's own form, with the bytes of each of its pools. They are copied into memory that
    /// nobody can change any more, which a driver uses in place.
    ///
    /// # Errors
    /// The system has no memory, or a pool is empty.
    pub fn with_pool_bytes<B: AsRef<[u8]>>(
        model: nnhal_hal::Model,
        pools: impl IntoIterator<Item = B>,
    ) -> Result<Model> {
        let pools = pools.into_iter().map(|bytes| Memory::sealed(&[bytes.as_ref()]));
        Ok(Model::from_hal(model, pools.collect::<Result<Vec<_>>>()?))
    }

    /// The same model with its larger constants in sealed memory instead of inside the model, if there are
    /// enough of them to be worth it. A model that is prepared this way is not limited to the size of a
    /// message, and the driver uses the constants in place.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn share_constants(self) -> Result<Model> {
        if self.hal.operand_values.len() <= INLINE_CONSTANTS {
            return Ok(self);
        }
        // Copied only if somebody else has a handle on it: constants may be most of what this process has.
        let mut model = Arc::unwrap_or_clone(self.hal);
        let whole = std::mem::take(&mut model.operand_values);
        let memory = Memory::sealed(&[&whole])?;
        let pool_index = u32::try_from(model.pools.len())
            .map_err(|_| Error::argument("the model has more pools than an index can count"))?;
        let mut small = Vec::new();
        for graph in std::iter::once(&mut model.main).chain(&mut model.referenced) {
            for operand in &mut graph.operands {
                if operand.lifetime != OperandLifeTime::ConstantCopy {
                    continue;
                }
                let DataLocation { offset, length, .. } = operand.location;
                let bytes = (offset as usize)
                    .checked_add(length as usize)
                    .and_then(|end| whole.get(offset as usize..end));
                match bytes {
                    Some(bytes) if bytes.len() <= SMALL_CONSTANT => {
                        operand.location.offset = append(&mut small, bytes)?;
                    }
                    // A location outside is left for the driver to refuse: it is outside of the memory as
                    // well.
                    _ => {
                        operand.lifetime = OperandLifeTime::ConstantReference;
                        operand.location.pool_index = pool_index;
                    }
                }
            }
        }
        model.operand_values = small;
        model.pools.push(MemoryPool { size: memory.size() });
        let mut pools = self.pools.to_vec();
        pools.push(memory);
        Ok(Model::from_hal(model, pools))
    }

    /// The same model, whose 32-bit floats may be computed with the range and precision of 16-bit floats if
    /// `is_relaxed`.
    #[must_use]
    pub fn relax_float32_to_float16(self, is_relaxed: bool) -> Model {
        let mut model = Arc::unwrap_or_clone(self.hal);
        model.relax_computation_float32_to_float16 = is_relaxed;
        Model {
            hal: Arc::new(model),
            pools: self.pools,
        }
    }

    /// The model in the HAL's own form.
    #[must_use]
    pub fn hal(&self) -> &nnhal_hal::Model {
        &self.hal
    }

    /// The same, shared.
    #[cfg(feature = "runtime")]
    pub(crate) fn shared_hal(&self) -> Arc<nnhal_hal::Model> {
        Arc::clone(&self.hal)
    }

    /// The memories of its pools.
    #[must_use]
    pub fn pools(&self) -> &[Memory] {
        &self.pools
    }

    /// The types of the main graph's inputs, in argument order.
    #[must_use]
    pub fn inputs(&self) -> Vec<TensorType> {
        types(&self.hal.main, &self.hal.main.input_indexes)
    }

    /// The types of the main graph's outputs, in argument order.
    #[must_use]
    pub fn outputs(&self) -> Vec<TensorType> {
        types(&self.hal.main, &self.hal.main.output_indexes)
    }
}

fn types(graph: &nnhal_hal::Subgraph, indexes: &[u32]) -> Vec<TensorType> {
    indexes
        .iter()
        .filter_map(|&index| graph.operands.get(index as usize))
        .map(TensorType::from)
        .collect()
}

/// The types of a model's inputs and outputs, as a prepared model keeps them.
#[derive(Clone, Debug)]
pub(crate) struct ArgumentTypes {
    pub(crate) inputs: Arc<[TensorType]>,
    pub(crate) outputs: Arc<[TensorType]>,
    /// What types of extensions are on the device.
    pub(crate) layouts: TypeLayouts,
}

impl ArgumentTypes {
    pub(crate) fn of(model: &Model, device: &DeviceInfo) -> ArgumentTypes {
        ArgumentTypes {
            inputs: model.inputs().into(),
            outputs: model.outputs().into(),
            layouts: TypeLayouts::of(model.hal(), &device.extensions),
        }
    }
}

/// Appends a constant at a multiple of 4 bytes, and returns where it is.
pub(crate) fn append(values: &mut Vec<u8>, bytes: &[u8]) -> Result<u32> {
    values.resize(values.len().next_multiple_of(4), 0);
    let offset = u32::try_from(values.len())
        .map_err(|_| Error::argument("the constants inside the model exceed 4 GiB"))?;
    values.extend_from_slice(bytes);
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType};

    use super::*;

    fn constant(offset: u32, length: u32) -> Operand {
        let mut operand = Operand::new(OperandType::TENSOR_QUANT8_SYMM, &[length])
            .with_lifetime(OperandLifeTime::ConstantCopy);
        operand.location = DataLocation {
            pool_index: 0,
            offset,
            length,
        };
        operand
    }

    #[test]
    fn shared_constants_keep_their_bytes() {
        let mut model = nnhal_hal::Model {
            operand_values: (0..40_000_u32).map(|value| value as u8).collect(),
            ..nnhal_hal::Model::default()
        };
        model.main.operands = vec![constant(3, 9), constant(1000, 30_000)];
        let before: Vec<Vec<u8>> = model
            .main
            .operands
            .iter()
            .map(|operand| {
                model
                    .constant_bytes(operand, &nnhal_hal::NoPools)
                    .unwrap()
                    .to_vec()
            })
            .collect();
        let shared = Model::from_hal(model, Vec::new()).share_constants().unwrap();
        let pools: Vec<Vec<u8>> = shared
            .pools()
            .iter()
            .map(|memory| {
                let mut bytes = vec![0; memory.size() as usize];
                memory.read_at(0, &mut bytes).unwrap();
                bytes
            })
            .collect();
        assert_eq!(pools.len(), 1);
        assert!(shared.hal().operand_values.len() < 100);
        for (operand, before) in shared.hal().main.operands.iter().zip(before) {
            assert_eq!(shared.hal().constant_bytes(operand, &pools), Some(&before[..]));
        }
    }

    #[test]
    fn constants_outside_the_model_stay_outside() {
        let mut model = nnhal_hal::Model {
            operand_values: vec![0; 20_000],
            ..nnhal_hal::Model::default()
        };
        model.main.operands = vec![constant(u32::MAX, 9), constant(19_999, 2)];
        let shared = Model::from_hal(model, Vec::new()).share_constants().unwrap();
        let pools = vec![vec![0_u8; 20_000]];
        for operand in &shared.hal().main.operands {
            assert_eq!(shared.hal().constant_bytes(operand, &pools), None);
        }
    }
}
