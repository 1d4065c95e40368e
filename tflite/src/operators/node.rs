//! One operator of a file, as its mapping sees it.

use std::borrow::Cow;

use nnhal_hal::{Operand, OperandLifeTime, OperandType, OperationType};

use crate::error::ImportError;
use crate::file::decode_options;
use crate::file::options::Options;
use crate::file::tables::Operator;
use crate::graph::Id;
use crate::graph_import::GraphImport;
use crate::tensor::{ElementType, Tensor};
use crate::values;

/// Why an operator cannot be mapped.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What NNAPI lacks or demands.
    Reason(String),
    /// An operator inside a graph that this one refers to.
    Inner(Box<ImportError>),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Reason(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Refusal {
        Refusal::Reason(reason.to_owned())
    }
}

/// An operator and the graph that its operations go to.
#[derive(Debug)]
pub(crate) struct Node<'n, 'm, 'f, 'a> {
    pub(crate) graph: &'n mut GraphImport<'m, 'f, 'a>,
    operator: &'f Operator<'a>,
    index: usize,
}

impl<'n, 'm, 'f, 'a> Node<'n, 'm, 'f, 'a> {
    pub(crate) fn new(
        graph: &'n mut GraphImport<'m, 'f, 'a>,
        operator: &'f Operator<'a>,
        index: usize,
    ) -> Self {
        Node {
            graph,
            operator,
            index,
        }
    }

    /// The operator's index in its graph.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The operator's table.
    pub(crate) fn operator(&self) -> &'f Operator<'a> {
        self.operator
    }

    /// The options, all at their defaults if the file has none.
    pub(crate) fn options<T: Options<'a>>(&self) -> Result<T, Refusal> {
        Ok(decode_options(self.operator)?)
    }

    /// Number of inputs, absent optional ones included.
    pub(crate) fn input_count(&self) -> usize {
        self.operator.inputs.len()
    }

    /// Number of outputs.
    pub(crate) fn output_count(&self) -> usize {
        self.operator.outputs.len()
    }

    /// Whether there is an input `number`.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.input_index(number).is_ok()
    }

    /// The tensor index of an input.
    pub(crate) fn input_index(&self, number: usize) -> Result<usize, Refusal> {
        let index = self
            .operator
            .inputs
            .get(number)
            .and_then(|index| usize::try_from(index).ok());
        index.ok_or_else(|| Refusal::Reason(format!("its input {number} is missing")))
    }

    /// The tensor index of an output.
    pub(crate) fn output_index(&self, number: usize) -> Result<usize, Refusal> {
        let index = self
            .operator
            .outputs
            .get(number)
            .and_then(|index| usize::try_from(index).ok());
        index.ok_or_else(|| Refusal::Reason(format!("its output {number} is missing")))
    }

    /// The tensor of an input.
    pub(crate) fn tensor(&self, number: usize) -> Result<&Tensor<'a>, Refusal> {
        let index = self.input_index(number)?;
        Ok(&self.graph.tensors[index])
    }

    /// The tensor of an output.
    pub(crate) fn output_tensor(&self, number: usize) -> Result<&Tensor<'a>, Refusal> {
        let index = self.output_index(number)?;
        Ok(&self.graph.tensors[index])
    }

    /// A refusal because of an input.
    pub(crate) fn input_error(&self, number: usize, reason: impl std::fmt::Display) -> Refusal {
        match self.input_index(number) {
            Ok(index) => {
                let label = self.graph.tensors[index].label(index);
                Refusal::Reason(format!("its input {number} ({label}) {reason}"))
            }
            Err(missing) => missing,
        }
    }

    /// A refusal because of an output.
    pub(crate) fn output_error(&self, number: usize, reason: impl std::fmt::Display) -> Refusal {
        match self.output_index(number) {
            Ok(index) => {
                let label = self.graph.tensors[index].label(index);
                Refusal::Reason(format!("its output {number} ({label}) {reason}"))
            }
            Err(missing) => missing,
        }
    }

    /// The operand with the value of an input, which must be neither complex nor unsigned.
    pub(crate) fn input(&mut self, number: usize) -> Result<Id, Refusal> {
        let tensor = self.tensor(number)?;
        if tensor.is_complex() && !tensor.is_constant() {
            let reason = "has complex numbers, which only REAL, IMAG and COMPLEX_ABS take";
            return Err(self.input_error(number, reason));
        }
        if tensor.is_unsigned() {
            let reason = format!(
                "has {} elements, which only STABLEHLO_RNG_BIT_GENERATOR and BITCAST take",
                tensor.element_type
            );
            return Err(self.input_error(number, reason));
        }
        self.input_of_any_type(number)
    }

    /// The operand with the value of an input. Two floats along a last axis stand for a complex number, two
    /// words for 64 bits.
    pub(crate) fn input_of_any_type(&mut self, number: usize) -> Result<Id, Refusal> {
        let index = self.input_index(number)?;
        self.graph
            .value(index)
            .map_err(|reason| self.input_error(number, reason))
    }

    /// The operands with the values of the first `count` inputs.
    pub(crate) fn inputs(&mut self, count: usize) -> Result<Vec<Id>, Refusal> {
        (0..count).map(|number| self.input(number)).collect()
    }

    /// The operand with the value of an input, or the omitted operand of type `ty` if the file leaves it out.
    pub(crate) fn input_or_none(&mut self, number: usize, ty: OperandType) -> Result<Id, Refusal> {
        if self.has(number) {
            self.input(number)
        } else {
            Ok(self.graph.builder.no_value(ty)?)
        }
    }

    /// An input that may be stored as constant integers where the operation computes in floats.
    pub(crate) fn float_weights(&mut self, number: usize) -> Result<Id, Refusal> {
        let tensor = self.tensor(number)?;
        let integers = tensor.is_quant8() || tensor.element_type == ElementType::Int4;
        if !(integers && tensor.is_constant()) {
            return self.input(number);
        }
        let index = self.input_index(number)?;
        let id = self
            .graph
            .dequantized(index)
            .map_err(|reason| self.input_error(number, reason))?;
        let note = format!(
            "integer weights are turned into floats; the file's runtime quantizes the input of each execution \
             instead (tensor #{index})"
        );
        self.graph.note(self.index, note);
        Ok(id)
    }

    /// The weights that go with the activations of another input.
    pub(crate) fn weights(&mut self, activations: usize, number: usize) -> Result<Id, Refusal> {
        if self.tensor(activations)?.is_float() {
            self.float_weights(number)
        } else {
            self.input(number)
        }
    }

    /// The constant integers of an input.
    pub(crate) fn integers(&self, number: usize) -> Result<Vec<i64>, Refusal> {
        values::integers(self.tensor(number)?).map_err(|reason| self.input_error(number, reason))
    }

    /// The constant integers of an input as 32-bit ones.
    pub(crate) fn i32s(&self, number: usize) -> Result<Vec<i32>, Refusal> {
        let narrowed = self
            .integers(number)?
            .into_iter()
            .map(i32::try_from)
            .collect::<Result<_, _>>();
        narrowed.map_err(|_| self.input_error(number, "has a value beyond 32 bits"))
    }

    /// The single constant integer of an input.
    pub(crate) fn single_i32(&self, number: usize) -> Result<i32, Refusal> {
        match self.i32s(number)?.as_slice() {
            [value] => Ok(*value),
            values => Err(self.input_error(
                number,
                format_args!("has {} elements, must have one", values.len()),
            )),
        }
    }

    /// Whether an input is constant.
    pub(crate) fn is_constant(&self, number: usize) -> bool {
        self.tensor(number).is_ok_and(Tensor::is_constant)
    }

    /// The dimensions of an input, as far as they are known before execution.
    pub(crate) fn dimensions(&mut self, number: usize) -> Result<Vec<u32>, Refusal> {
        let id = self.input(number)?;
        match self.graph.builder.dimensions(id) {
            Some(dimensions) => Ok(dimensions.to_vec()),
            None => Err(self.input_error(number, "has dimensions that are not known before execution")),
        }
    }

    /// The rank of an input, if known before execution.
    pub(crate) fn rank(&mut self, number: usize) -> Result<usize, Refusal> {
        let id = self.input(number)?;
        match self.graph.builder.operand(id).dimensions.len() {
            0 => Err(self.input_error(number, "has a rank that is not known before execution")),
            rank => Ok(rank),
        }
    }

    /// The axis that a number stands for, counted from the end if negative.
    pub(crate) fn axis(&self, axis: i32, rank: usize) -> Result<usize, Refusal> {
        let resolved = if axis < 0 {
            i64::from(axis) + rank as i64
        } else {
            i64::from(axis)
        };
        let resolved = usize::try_from(resolved).ok().filter(|axis| *axis < rank);
        resolved.ok_or_else(|| Refusal::Reason(format!("it names axis {axis} of a tensor of rank {rank}")))
    }

    /// The operand's type.
    pub(crate) fn ty(&self, id: Id) -> OperandType {
        self.graph.builder.operand(id).operand_type
    }

    /// An INT32 constant.
    pub(crate) fn scalar_i32(&mut self, value: i32) -> Result<Id, Refusal> {
        let graph = &mut *self.graph;
        let bytes = value.to_le_bytes();
        Ok(graph
            .builder
            .scalar(&mut graph.model.store, OperandType::INT32, &bytes)?)
    }

    /// A BOOL constant.
    pub(crate) fn scalar_bool(&mut self, value: bool) -> Result<Id, Refusal> {
        let graph = &mut *self.graph;
        let bytes = [u8::from(value)];
        Ok(graph
            .builder
            .scalar(&mut graph.model.store, OperandType::BOOL, &bytes)?)
    }

    /// A float constant that goes with a tensor of type `beside`: FLOAT16 or FLOAT32.
    pub(crate) fn scalar_float(&mut self, value: f32, beside: OperandType) -> Result<Id, Refusal> {
        let graph = &mut *self.graph;
        let store = &mut graph.model.store;
        Ok(if beside == OperandType::TENSOR_FLOAT16 {
            let bytes = half::f16::from_f32(value).to_le_bytes();
            graph.builder.scalar(store, OperandType::FLOAT16, &bytes)?
        } else {
            graph
                .builder
                .scalar(store, OperandType::FLOAT32, &value.to_le_bytes())?
        })
    }

    /// A TENSOR_INT32 constant of one dimension.
    pub(crate) fn tensor_i32(&mut self, values: &[i32]) -> Result<Id, Refusal> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let operand = Operand::new(OperandType::TENSOR_INT32, &[values.len() as u32]);
        Ok(self.graph.constant(operand, &bytes)?)
    }

    /// A TENSOR_INT32 constant of one dimension that holds numbers of the file.
    pub(crate) fn narrowed(&mut self, values: impl Iterator<Item = i64>) -> Result<Id, Refusal> {
        let values = self.narrowed_values(values)?;
        self.tensor_i32(&values)
    }

    /// Numbers of the file as 32-bit ones.
    pub(crate) fn narrowed_values(&self, values: impl Iterator<Item = i64>) -> Result<Vec<i32>, Refusal> {
        let narrow = |value: i64| {
            i32::try_from(value)
                .map_err(|_| Refusal::Reason(format!("its options have {value}, which is beyond 32 bits")))
        };
        values.map(narrow).collect()
    }

    /// A TENSOR_INT32 constant of pairs.
    pub(crate) fn pairs_i32(&mut self, values: &[i32]) -> Result<Id, Refusal> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let operand = Operand::new(OperandType::TENSOR_INT32, &[values.len() as u32 / 2, 2]);
        Ok(self.graph.constant(operand, &bytes)?)
    }

    /// A constant of these bytes, repeated to fill `operand`.
    pub(crate) fn filled(&mut self, operand: Operand, element: &[u8]) -> Result<Id, Refusal> {
        let count = operand
            .dimensions
            .iter()
            .try_fold(1_usize, |product, extent| product.checked_mul(*extent as usize))
            .filter(|count| count.saturating_mul(element.len()) <= values::MAX_GENERATED_BYTES);
        let Some(count) = count else {
            return Err(Refusal::Reason(format!(
                "it needs a constant with dimensions {:?}, which is too large to make up",
                operand.dimensions
            )));
        };
        Ok(self.graph.constant(operand, &element.repeat(count))?)
    }

    /// A temporary like `operand`.
    pub(crate) fn temporary(&mut self, operand: Operand) -> Result<Id, Refusal> {
        Ok(self.graph.builder.add(Operand {
            lifetime: OperandLifeTime::TemporaryVariable,
            location: Default::default(),
            number_of_consumers: 0,
            ..operand
        })?)
    }

    /// Adds an operation.
    pub(crate) fn emit(&mut self, kind: OperationType, inputs: &[Id], outputs: &[Id]) -> Result<(), Refusal> {
        let origin = self.graph.origin(self.index);
        Ok(self.graph.emit(origin, kind, inputs, outputs)?)
    }

    /// Adds a RESHAPE of `from` to `to` with these dimensions.
    pub(crate) fn emit_reshape(&mut self, from: Id, to: Id, dimensions: &[u32]) -> Result<(), Refusal> {
        let values = dimensions
            .iter()
            .map(|extent| i32::try_from(*extent))
            .collect::<Result<Vec<_>, _>>();
        let values =
            values.map_err(|_| format!("it needs the dimensions {dimensions:?}, which are too large"))?;
        let shape = self.tensor_i32(&values)?;
        self.emit(OperationType::RESHAPE, &[from, shape], &[to])
    }

    /// `from` with other dimensions, by a RESHAPE.
    pub(crate) fn reshaped(&mut self, from: Id, dimensions: &[u32]) -> Result<Id, Refusal> {
        let mut operand = self.graph.builder.operand(from).clone();
        operand.dimensions = dimensions.to_vec();
        let to = self.temporary(operand)?;
        self.emit_reshape(from, to, dimensions)?;
        Ok(to)
    }

    /// Refuses integers where NNAPI computes in floats only.
    pub(crate) fn require_float(&self, number: usize) -> Result<(), Refusal> {
        let tensor = self.tensor(number)?;
        if tensor.is_float() {
            return Ok(());
        }
        let reason = format!(
            "has {} elements; NNAPI has this operation for floats only",
            tensor.element_type
        );
        Err(self.input_error(number, reason))
    }

    /// An input as floats: quantized ones are dequantized.
    pub(crate) fn real_input(&mut self, number: usize) -> Result<Id, Refusal> {
        let id = self.input(number)?;
        let operand = self.graph.builder.operand(id);
        if !operand.operand_type.is_quantized_per_tensor() {
            return Ok(id);
        }
        let real = Operand::new(OperandType::TENSOR_FLOAT32, &operand.dimensions);
        let real = self.temporary(real)?;
        self.emit(OperationType::DEQUANTIZE, &[id], &[real])?;
        Ok(real)
    }

    /// A state that the operator reads and replaces: the operand before and the one after. The tensor's value
    /// is the latter from here on, if it is a variable.
    pub(crate) fn state(&mut self, number: usize) -> Result<(Id, Id), Refusal> {
        let before = self.input(number)?;
        let after = self.temporary(self.graph.builder.operand(before).clone())?;
        let index = self.input_index(number)?;
        if self.graph.tensors[index].is_variable {
            self.graph.set_value(index, after);
        }
        Ok((before, after))
    }

    /// Gives an output a value that is known now; no operation computes it.
    pub(crate) fn set_constant(
        &mut self,
        number: usize,
        dimensions: Vec<u32>,
        bytes: Vec<u8>,
    ) -> Result<(), Refusal> {
        let index = self.output_index(number)?;
        if self.graph.is_written(index) {
            return Err(self.output_error(number, "has a value already"));
        }
        self.graph.model.store.charge(bytes.len())?;
        let tensor = &mut self.graph.tensors[index];
        tensor.dimensions = dimensions;
        tensor.data = Some(Cow::Owned(bytes));
        Ok(())
    }
}
