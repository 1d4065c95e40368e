//! Models of the HAL, built function by function.

use nnhal_client::Memory as SharedMemory;
use nnhal_hal::{ExtraParams, Operand, OperandLifeTime, Subgraph};

use crate::Library;
use crate::error::Result;
use crate::functions::{ChannelScales, OperandType};
use crate::library::{OwnedMemory, OwnedModel};

/// A model that was built and finished through the library.
#[derive(Debug)]
pub struct Model {
    pub(crate) owned: OwnedModel,
}

impl Model {
    /// Builds and finishes it, and those inside it. `pools` are the memories of its pools.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn new(library: Library, model: &nnhal_hal::Model, pools: &[SharedMemory]) -> Result<Model> {
        let pools = pools.iter().map(|pool| OwnedMemory::new(library, pool, false));
        let pools = pools.collect::<Result<Vec<_>>>()?;
        Model::of_graph(library, model, &model.main, &pools)
    }

    fn of_graph(
        library: Library,
        model: &nnhal_hal::Model,
        graph: &Subgraph,
        pools: &[OwnedMemory],
    ) -> Result<Model> {
        let functions = library.functions;
        let object = library.made(|place| (functions.Model_create)(place))?;
        let built = Model {
            owned: OwnedModel { library, object },
        };
        for (index, operand) in graph.operands.iter().enumerate() {
            built.add_operand(index as i32, operand)?;
            built.set_value(model, index as i32, operand, pools)?;
        }
        for operation in &graph.operations {
            library.checked((functions.Model_addOperation)(
                object,
                operation.operation_type.0.cast_signed(),
                operation.inputs.len() as u32,
                operation.inputs.as_ptr(),
                operation.outputs.len() as u32,
                operation.outputs.as_ptr(),
            ))?;
        }
        library.checked((functions.Model_identifyInputsAndOutputs)(
            object,
            graph.input_indexes.len() as u32,
            graph.input_indexes.as_ptr(),
            graph.output_indexes.len() as u32,
            graph.output_indexes.as_ptr(),
        ))?;
        library.checked((functions.Model_relaxComputationFloat32toFloat16)(
            object,
            model.relax_computation_float32_to_float16,
        ))?;
        library.checked((functions.Model_finish)(object))?;
        Ok(built)
    }

    fn add_operand(&self, index: i32, operand: &Operand) -> Result<()> {
        let OwnedModel { library, object } = self.owned;
        let ty = type_of(operand, &operand.dimensions);
        library.checked((library.functions.Model_addOperand)(object, &raw const ty))?;
        let ExtraParams::ChannelQuant(channels) = &operand.extra_params else {
            return Ok(());
        };
        let params = ChannelScales {
            channel_dim: channels.channel_dim,
            scale_count: channels.scales.len() as u32,
            scales: channels.scales.as_ptr(),
        };
        let set = library.functions.Model_setOperandSymmPerChannelQuantParams;
        library.checked(set(object, index, &raw const params))
    }

    /// The bytes of constants stay with `model`, which outlives the building.
    fn set_value(
        &self,
        model: &nnhal_hal::Model,
        index: i32,
        operand: &Operand,
        pools: &[OwnedMemory],
    ) -> Result<()> {
        let OwnedModel { library, object } = self.owned;
        let functions = library.functions;
        let (offset, length) = (operand.location.offset as usize, operand.location.length as usize);
        library.checked(match operand.lifetime {
            OperandLifeTime::NoValue => (functions.Model_setOperandValue)(object, index, std::ptr::null(), 0),
            OperandLifeTime::ConstantCopy => {
                let bytes = &model.operand_values[offset..offset + length];
                (functions.Model_setOperandValue)(object, index, bytes.as_ptr().cast(), length)
            }
            OperandLifeTime::ConstantReference => {
                let pool = &pools[operand.location.pool_index as usize];
                let set = functions.Model_setOperandValueFromMemory;
                set(object, index, pool.object, offset, length)
            }
            OperandLifeTime::Subgraph => {
                let inner = Model::of_graph(library, model, &model.referenced[offset], pools)?;
                (functions.Model_setOperandValueFromModel)(object, index, inner.owned.object)
            }
            OperandLifeTime::TemporaryVariable
            | OperandLifeTime::SubgraphInput
            | OperandLifeTime::SubgraphOutput => 0,
        })
    }

    /// Which of `operations` operations any of these devices can run.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn supported_operations(&self, operations: usize, devices: &[&str]) -> Result<Vec<bool>> {
        let OwnedModel { library, object } = self.owned;
        let devices = devices.iter().map(|name| library.device_named(name));
        let devices = devices.collect::<Result<Vec<_>>>()?;
        let mut supported = vec![false; operations];
        library.checked((library.functions.Model_getSupportedOperationsForDevices)(
            object,
            devices.as_ptr(),
            devices.len() as u32,
            supported.as_mut_ptr(),
        ))?;
        Ok(supported)
    }
}

/// An operand with these dimensions, as the library wants it told. It points to them.
pub(crate) fn type_of(operand: &Operand, dimensions: &[u32]) -> OperandType {
    OperandType {
        code: operand.operand_type.0.cast_signed(),
        dimension_count: dimensions.len() as u32,
        dimensions: if dimensions.is_empty() {
            std::ptr::null()
        } else {
            dimensions.as_ptr()
        },
        scale: operand.scale,
        zero_point: operand.zero_point,
    }
}
