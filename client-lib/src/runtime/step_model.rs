//! A model of some of a model's operations.

use nnhal_hal::{DataLocation, MemoryPool, Operand, OperandLifeTime, Subgraph};

use super::control_flow::all_referenced;
use super::result::{RuntimeError, RuntimeResult};
use crate::memory::Memory;
use crate::model::{Model, append};

/// Some operations of a model as a model of their own.
#[derive(Debug)]
pub(super) struct StepModel {
    pub(super) model: Model,
    /// For each input of the step, the operand of the whole model's main graph.
    pub(super) inputs: Vec<u32>,
    /// For each output.
    pub(super) outputs: Vec<u32>,
}

impl StepModel {
    /// Takes these operations, in rising order, out of a valid model. What others need of their results
    /// (`is_exported`, by operand) becomes an output; if nobody needs anything, the first result does, for a
    /// model must give something.
    ///
    /// # Errors
    /// Indexes that do not fit; not after validation.
    pub(super) fn extract(
        source: &Model,
        operations: &[usize],
        is_exported: &dyn Fn(u32) -> bool,
    ) -> RuntimeResult<StepModel> {
        let hal = source.hal();
        let mut extraction = Extraction::new(source, operations);
        let mut graph = Subgraph::default();
        let mut indexes = vec![None; hal.main.operands.len()];
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let mut written = vec![false; hal.main.operands.len()];
        let taken = || operations.iter().map(|&index| &hal.main.operations[index]);
        for &output in taken().flat_map(|operation| &operation.outputs) {
            written[output as usize] = true;
        }
        let is_needed = written
            .iter()
            .enumerate()
            .any(|(operand, written)| *written && is_exported(operand as u32));
        let first = taken().flat_map(|operation| &operation.outputs).copied().next();
        for operation in taken() {
            for &operand in operation.inputs.iter().chain(&operation.outputs) {
                if indexes[operand as usize].is_some() {
                    continue;
                }
                let at = graph.operands.len() as u32;
                let mut copy = hal.main.operands[operand as usize].clone();
                copy.number_of_consumers = 0;
                match copy.lifetime {
                    OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
                        if written[operand as usize] =>
                    {
                        let is_output = is_exported(operand) || (!is_needed && first == Some(operand));
                        if is_output {
                            graph.output_indexes.push(at);
                            outputs.push(operand);
                            copy.lifetime = OperandLifeTime::SubgraphOutput;
                        } else {
                            copy.lifetime = OperandLifeTime::TemporaryVariable;
                        }
                    }
                    OperandLifeTime::TemporaryVariable
                    | OperandLifeTime::SubgraphOutput
                    | OperandLifeTime::SubgraphInput => {
                        graph.input_indexes.push(at);
                        inputs.push(operand);
                        copy.lifetime = OperandLifeTime::SubgraphInput;
                    }
                    _ => extraction.relocate(&mut copy)?,
                }
                graph.operands.push(copy);
                indexes[operand as usize] = Some(at);
            }
            let renamed = |operands: &[u32]| -> Vec<u32> {
                let operands = operands.iter();
                operands
                    .filter_map(|&operand| indexes[operand as usize])
                    .collect()
            };
            let operation = nnhal_hal::Operation {
                operation_type: operation.operation_type,
                inputs: renamed(&operation.inputs),
                outputs: renamed(&operation.outputs),
            };
            for &input in &operation.inputs {
                graph.operands[input as usize].number_of_consumers += 1;
            }
            graph.operations.push(operation);
        }
        Ok(StepModel {
            model: extraction.finish(graph)?,
            inputs,
            outputs,
        })
    }
}

/// What a model of some operations takes over from the whole one beside them.
struct Extraction<'a> {
    source: &'a Model,
    target: nnhal_hal::Model,
    pools: Vec<Memory>,
    /// By pool of the source.
    pool_indexes: Vec<Option<u32>>,
    /// The graphs that are taken over, rising.
    graphs: Vec<usize>,
}

impl<'a> Extraction<'a> {
    fn new(source: &'a Model, operations: &[usize]) -> Extraction<'a> {
        let hal = source.hal();
        let main = &hal.main;
        let mut graphs: Vec<usize> = operations
            .iter()
            .flat_map(|&index| all_referenced(hal, main, &main.operations[index]))
            .collect();
        graphs.sort_unstable();
        graphs.dedup();
        Extraction {
            source,
            target: nnhal_hal::Model {
                relax_computation_float32_to_float16: hal.relax_computation_float32_to_float16,
                extension_name_to_prefix: hal.extension_name_to_prefix.clone(),
                ..nnhal_hal::Model::default()
            },
            pools: Vec::new(),
            pool_indexes: vec![None; hal.pools.len()],
            graphs,
        }
    }

    /// Points a constant to its bytes, or a subgraph operand to its graph, in the new model.
    fn relocate(&mut self, operand: &mut Operand) -> RuntimeResult<()> {
        let DataLocation {
            pool_index,
            offset,
            length,
        } = operand.location;
        match operand.lifetime {
            OperandLifeTime::ConstantCopy => {
                let values = &self.source.hal().operand_values;
                let bytes = (offset as usize)
                    .checked_add(length as usize)
                    .and_then(|end| values.get(offset as usize..end))
                    .ok_or_else(outside)?;
                operand.location.offset = append(&mut self.target.operand_values, bytes)?;
            }
            OperandLifeTime::ConstantReference => {
                operand.location.pool_index = self.pool(pool_index as usize)?;
            }
            OperandLifeTime::Subgraph => {
                let found = self.graphs.binary_search(&(offset as usize));
                operand.location.offset = found.map_err(|_| outside())? as u32;
            }
            _ => {}
        }
        Ok(())
    }

    fn pool(&mut self, pool: usize) -> RuntimeResult<u32> {
        let (Some(index), Some(memory)) = (self.pool_indexes.get_mut(pool), self.source.pools().get(pool))
        else {
            return Err(outside());
        };
        if let Some(known) = *index {
            return Ok(known);
        }
        let new = self.pools.len() as u32;
        *index = Some(new);
        self.pools.push(memory.clone());
        self.target.pools.push(MemoryPool { size: memory.size() });
        Ok(new)
    }

    fn finish(mut self, main: Subgraph) -> RuntimeResult<Model> {
        for at in self.graphs.clone() {
            let mut graph = self.source.hal().referenced[at].clone();
            for operand in &mut graph.operands {
                self.relocate(operand)?;
            }
            self.target.referenced.push(graph);
        }
        self.target.main = main;
        Ok(Model::from_hal(self.target, self.pools))
    }
}

fn outside() -> RuntimeError {
    RuntimeError::bad_data("the model refers to a constant, pool or graph that it does not have")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::OperationType;
    use nnhal_hal::validate::ValidModel;

    use super::*;
    use crate::model_builder::ModelBuilder;
    use crate::tensor::TensorType;

    /// Two additions of a constant, one after the other, and a RELU of the input that nobody reads.
    fn model() -> Model {
        let ty = || TensorType::float32(&[4]);
        let mut model = ModelBuilder::new();
        let x = model.input(ty());
        let one = model.constant(ty(), &[1.0_f32; 4]);
        let ten = model.constant(ty(), &[10.0_f32; 4]);
        let none = model.scalar(0_i32);
        let between = model.temporary(ty());
        let unread = model.temporary(ty());
        let y = model.output(ty());
        model.operation(OperationType::ADD, &[x, one, none], &[between]);
        model.operation(OperationType::ADD, &[between, ten, none], &[y]);
        model.operation(OperationType::RELU, &[x], &[unread]);
        model.finish().unwrap()
    }

    fn valid(model: &Model) -> ValidModel {
        ValidModel::new(Arc::new(model.hal().clone()), &nnhal_hal::NoPools, &[]).unwrap()
    }

    #[test]
    fn parts_are_valid_models_that_keep_their_constants() {
        let whole = model();
        let operands = &whole.hal().main.operations;
        let (between, y) = (operands[0].outputs[0], operands[1].outputs[0]);
        let first = StepModel::extract(&whole, &[0], &|operand| operand == between).unwrap();
        assert_eq!(first.inputs, whole.hal().main.input_indexes);
        assert_eq!(first.outputs, [between]);
        let second = StepModel::extract(&whole, &[1], &|operand| operand == y).unwrap();
        assert_eq!((second.inputs, second.outputs), (vec![between], vec![y]));
        for (part, value) in [(&first.model, 1.0_f32), (&second.model, 10.0)] {
            valid(part);
            let hal = part.hal();
            let mut constants = hal
                .main
                .operands
                .iter()
                .filter(|operand| operand.lifetime.is_constant());
            let bytes = hal
                .constant_bytes(constants.next().unwrap(), &nnhal_hal::NoPools)
                .unwrap();
            assert_eq!(bytes, [value; 4].map(f32::to_ne_bytes).concat());
        }
    }

    #[test]
    fn part_whose_results_nobody_reads_gives_its_first() {
        let whole = model();
        let unread = whole.hal().main.operations[2].outputs[0];
        let part = StepModel::extract(&whole, &[2], &|_| false).unwrap();
        valid(&part.model);
        assert_eq!(part.outputs, [unread]);
    }
}
