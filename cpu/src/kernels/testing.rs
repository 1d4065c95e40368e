//! For the unit tests of kernels: a model of one operation, run on given values.
//!
//! Every input is given at run time unless the test says otherwise, so that what a kernel or a shape rule must check
//! is not caught by model validation before.

use std::sync::Arc;

use nnhal::hal::{Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape};
use nnhal::validate::ValidModel;

use crate::{Execution, Program, RunOptions};

/// An operation with the values of its inputs.
pub(crate) struct OneOperation {
    operation: OperationType,
    inputs: Vec<(Operand, Option<Vec<u8>>)>,
    outputs: Vec<Operand>,
}

/// What an operation gave for one output.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) dims: Vec<u32>,
    pub(crate) bytes: Vec<u8>,
}

impl Computed {
    /// The elements; unaligned bytes are copied.
    pub(crate) fn data<T: bytemuck::Pod>(&self) -> Vec<T> {
        self.bytes
            .chunks_exact(size_of::<T>())
            .map(bytemuck::pod_read_unaligned)
            .collect()
    }
}

impl OneOperation {
    pub(crate) fn new(operation: OperationType) -> OneOperation {
        OneOperation {
            operation,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// One more input, a tensor without quantisation.
    pub(crate) fn tensor<T: bytemuck::Pod>(self, ty: OperandType, dims: &[u32], data: &[T]) -> OneOperation {
        self.operand(Operand::new(ty, dims), data)
    }

    /// One more input with this declaration. Its lifetime is set here; dimensions must be those of the data.
    pub(crate) fn operand<T: bytemuck::Pod>(mut self, operand: Operand, data: &[T]) -> OneOperation {
        let bytes = bytemuck::cast_slice(data).to_vec();
        self.inputs
            .push((operand.with_lifetime(OperandLifeTime::SubgraphInput), Some(bytes)));
        self
    }

    /// One more input, an `INT32` scalar.
    pub(crate) fn i32(self, value: i32) -> OneOperation {
        self.tensor(OperandType::INT32, &[], &[value])
    }

    /// One more input, a `FLOAT32` scalar.
    pub(crate) fn f32(self, value: f32) -> OneOperation {
        self.tensor(OperandType::FLOAT32, &[], &[value])
    }

    /// One more input, left out with lifetime `NO_VALUE`.
    pub(crate) fn omitted(self, ty: OperandType) -> OneOperation {
        let dims: &[u32] = if ty.is_tensor() { &[0] } else { &[] };
        self.omitted_operand(Operand::new(ty, dims))
    }

    /// The same with this declaration.
    pub(crate) fn omitted_operand(mut self, operand: Operand) -> OneOperation {
        self.inputs
            .push((operand.with_lifetime(OperandLifeTime::NoValue), None));
        self
    }

    /// One more output, a tensor of this type; dimensions 0 are open.
    pub(crate) fn output(self, ty: OperandType, dims: &[u32]) -> OneOperation {
        self.output_operand(Operand::new(ty, dims))
    }

    /// One more output with this declaration.
    pub(crate) fn output_operand(mut self, operand: Operand) -> OneOperation {
        self.outputs
            .push(operand.with_lifetime(OperandLifeTime::SubgraphOutput));
        self
    }

    /// Validates, prepares and runs.
    ///
    /// # Errors
    /// The message of whatever refused the operation.
    pub(crate) fn run(self) -> Result<Vec<Computed>, String> {
        let model =
            ValidModel::new(Arc::new(self.model()), &NoPools, &[]).map_err(|error| error.to_string())?;
        let program = Program::new(Arc::new(model), &NoPools).map_err(|error| error.to_string())?;
        let mut execution = Execution::new(Arc::new(program));
        let given = self
            .inputs
            .iter()
            .filter_map(|(operand, bytes)| Some((operand, bytes.as_ref()?)));
        for (index, (operand, bytes)) in given.enumerate() {
            let shape = Shape::new(&operand.dimensions).map_err(|error| error.to_string())?;
            execution
                .input(index, shape)
                .map_err(|error| error.to_string())?
                .copy_from_slice(bytes);
        }
        execution
            .run(&RunOptions::default())
            .map_err(|error| error.to_string())?;
        Ok((0..self.outputs.len())
            .filter_map(|index| execution.output(index))
            .map(|(shape, bytes)| Computed {
                dims: shape.dims().to_vec(),
                bytes: bytes.to_vec(),
            })
            .collect())
    }

    /// Runs and gives the dimensions and elements of the only output.
    pub(crate) fn run_one<T: bytemuck::Pod>(self) -> Result<(Vec<u32>, Vec<T>), String> {
        let outputs = self.run()?;
        assert_eq!(outputs.len(), 1);
        Ok((outputs[0].dims.clone(), outputs[0].data()))
    }

    fn model(&self) -> Model {
        let mut model = Model::default();
        let main = &mut model.main;
        for (index, (operand, bytes)) in (0_u32..).zip(&self.inputs) {
            let mut operand = operand.clone();
            operand.number_of_consumers = 1;
            main.operands.push(operand);
            if bytes.is_some() {
                main.input_indexes.push(index);
            }
        }
        let inputs: Vec<u32> = (0..self.inputs.len() as u32).collect();
        let outputs: Vec<u32> = (0..self.outputs.len() as u32)
            .map(|index| index + self.inputs.len() as u32)
            .collect();
        main.operands.extend(self.outputs.iter().cloned());
        main.output_indexes.clone_from(&outputs);
        main.operations.push(Operation {
            operation_type: self.operation,
            inputs,
            outputs,
        });
        model
    }
}
