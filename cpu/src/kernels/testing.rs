//! For the unit tests of kernels: a model of one operation, run on given values.
//!
//! Every input is given at run time unless the test says otherwise, so that what a kernel or a shape rule
//! must check is not caught by model validation before.

use std::cell::Cell;
use std::sync::Arc;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    DataLocation, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape,
    SubgraphIndex, tflite,
};

use crate::{Execution, Interrupt, Interrupted, KernelSet, Program, RunOptions};

/// An operation with the values of its inputs.
pub(crate) struct OneOperation {
    operation: OperationType,
    inputs: Vec<(Operand, Option<Vec<u8>>)>,
    outputs: Vec<Operand>,
    is_relaxed: bool,
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
            is_relaxed: false,
        }
    }

    /// In a model that may be computed with the range and precision of half floats.
    pub(crate) fn relaxed(mut self) -> OneOperation {
        self.is_relaxed = true;
        self
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

    /// Makes constants of all inputs but the first, as far as they have elements.
    pub(crate) fn with_constants(mut self) -> OneOperation {
        for (operand, bytes) in self.inputs.iter_mut().skip(1) {
            if bytes.as_ref().is_some_and(|bytes| !bytes.is_empty()) {
                operand.lifetime = OperandLifeTime::ConstantCopy;
            }
        }
        self
    }

    /// Validates, prepares and runs.
    ///
    /// # Errors
    /// The message of whatever refused the operation.
    pub(crate) fn run(self) -> Result<Vec<Computed>, String> {
        self.run_by(KernelSet::Reference, &RunOptions::default())
    }

    /// The same with these kernels and options.
    pub(crate) fn run_by(
        self,
        kernels: KernelSet,
        options: &RunOptions<'_>,
    ) -> Result<Vec<Computed>, String> {
        let mut execution = Execution::new(Arc::new(self.program(kernels)?));
        let given = self
            .inputs
            .iter()
            .filter(|(operand, _)| operand.lifetime == OperandLifeTime::SubgraphInput)
            .filter_map(|(operand, bytes)| Some((operand, bytes.as_ref()?)));
        for (index, (operand, bytes)) in given.enumerate() {
            let shape = Shape::new(&operand.dimensions).map_err(|error| error.to_string())?;
            execution
                .input(index, &shape)
                .map_err(|error| error.to_string())?
                .copy_from_slice(bytes);
        }
        execution.run(options).map_err(|error| error.to_string())?;
        Ok((0..self.outputs.len())
            .filter_map(|index| execution.output(index))
            .map(|(shape, bytes)| Computed {
                dims: shape.dims().to_vec(),
                bytes: bytes.to_vec(),
            })
            .collect())
    }

    /// Validates and prepares.
    fn program(&self, kernels: KernelSet) -> Result<Program, String> {
        let model =
            ValidModel::new(Arc::new(self.model()), &NoPools, &[]).map_err(|error| error.to_string())?;
        Program::with_kernels(Arc::new(model), &NoPools, kernels).map_err(|error| error.to_string())
    }

    /// What computes it by the fast kernels, for people to read.
    pub(crate) fn kernel_name(&self) -> &'static str {
        let program = self.program(KernelSet::Fast).unwrap();
        program.kernel_name(SubgraphIndex::Main, 0, 1)
    }

    /// Whether the fast kernels have packed weights for it.
    pub(crate) fn is_packed(&self) -> bool {
        self.program(KernelSet::Fast).unwrap().compiled().is_some()
    }

    /// Runs and gives the dimensions and elements of the only output.
    pub(crate) fn run_one<T: bytemuck::Pod>(self) -> Result<(Vec<u32>, Vec<T>), String> {
        let outputs = self.run()?;
        assert_eq!(outputs.len(), 1);
        Ok((outputs[0].dims.clone(), outputs[0].data()))
    }

    fn model(&self) -> Model {
        let mut model = Model {
            relax_computation_float32_to_float16: self.is_relaxed,
            ..Model::default()
        };
        if self.operation.is_extension() {
            model.extension_name_to_prefix.push(tflite::mapping());
        }
        let main = &mut model.main;
        for (index, (operand, bytes)) in (0_u32..).zip(&self.inputs) {
            let mut operand = operand.clone();
            operand.number_of_consumers = 1;
            if let Some(bytes) = bytes {
                if operand.lifetime == OperandLifeTime::ConstantCopy {
                    operand.location = append(&mut model.operand_values, bytes);
                } else {
                    main.input_indexes.push(index);
                }
            }
            main.operands.push(operand);
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

/// Adds a constant to the store, aligned for every type.
fn append(store: &mut Vec<u8>, bytes: &[u8]) -> DataLocation {
    store.resize(store.len().next_multiple_of(8), 0);
    let offset = store.len() as u32;
    store.extend_from_slice(bytes);
    DataLocation {
        pool_index: 0,
        offset,
        length: bytes.len() as u32,
    }
}

/// A deadline that passes after so many checks.
struct ChecksLeft(Cell<u32>);

impl Interrupt for ChecksLeft {
    fn check(&self) -> Result<(), Interrupted> {
        let left = self.0.get().checked_sub(1).ok_or(Interrupted::DeadlineMissed)?;
        self.0.set(left);
        Ok(())
    }
}

/// The operation must ask several times whether to go on, and end when the answer is no.
pub(crate) fn ends_by_the_deadline(operation: OneOperation) {
    let checks = ChecksLeft(Cell::new(3));
    let options = RunOptions {
        interrupt: &checks,
        ..RunOptions::default()
    };
    let error = operation.run_by(KernelSet::Reference, &options).err();
    assert_eq!(error, Some(Interrupted::DeadlineMissed.to_string()));
}
