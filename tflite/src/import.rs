//! From the graphs of a file to the graphs of a model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use nnhal_hal::validate::{ModelError, ValidModel};
use nnhal_hal::{
    Model, NoPools, Operand, OperandLifeTime, OperandType, OperationType, Shape, Subgraph, SubgraphIndex,
};

use crate::constants::ConstantStore;
use crate::error::ImportError;
use crate::file::File;
use crate::graph::{GraphBuilder, Id};
use crate::imported::{ImportedModel, Note, State, TensorInfo};
use crate::operators::{self, Node};
use crate::tensor::{ElementType, Tensor};
use crate::values;

/// How deeply IF and WHILE may nest; as deep as the model's validation accepts.
const MAX_NESTING: usize = nnhal_hal::validate::limits::MAX_SUBGRAPH_DEPTH;

/// Imports the main graph of the file and the graphs that its control flow refers to.
pub(crate) fn import(file: &File<'_>) -> Result<ImportedModel, ImportError> {
    let mut importer = ModelImport {
        file,
        store: ConstantStore::with_limit(made_limit(file.length())),
        referenced: Vec::new(),
        placed: HashMap::new(),
        open: vec![0],
        has_float16_weights: false,
        notes: Vec::new(),
    };
    let main = GraphImport::new(&mut importer, 0).run(&[])?;
    let mut referenced = Vec::with_capacity(importer.referenced.len());
    let mut origins = vec![(0, main.origins)];
    for placed in importer.referenced {
        // Every place is filled by the time the graph that reserved it is done.
        let Some(placed) = placed else { continue };
        referenced.push(placed.graph);
        origins.push((placed.number, placed.origins));
    }
    let model = Model {
        main: main.graph,
        referenced,
        operand_values: importer.store.into_bytes(),
        ..Model::default()
    };
    Ok(ImportedModel {
        model: validated(file, model, &origins)?,
        inputs: main.inputs,
        outputs: main.outputs,
        states: main.states,
        has_float16_weights: importer.has_float16_weights,
        notes: importer.notes,
    })
}

/// Most bytes of constants that a file of this length may lead to: int4 weights that become floats grow to eight times
/// their size, and a small file may need biases and masks that it does not hold.
fn made_limit(length: usize) -> usize {
    length
        .saturating_mul(16)
        .saturating_add(values::MAX_GENERATED_BYTES)
}

/// The model, if valid; otherwise the rule it breaks, in terms of the file.
fn validated(file: &File<'_>, model: Model, origins: &[(usize, Vec<usize>)]) -> Result<Model, ImportError> {
    match ValidModel::new(Arc::new(model), &NoPools, &[]) {
        Ok(valid) => Ok(Arc::unwrap_or_clone(valid.shared())),
        Err(ModelError::Operation {
            graph,
            index,
            operation,
            message,
        }) => {
            let place = match graph {
                SubgraphIndex::Main => 0,
                SubgraphIndex::Referenced(index) => index + 1,
            };
            let origin = origins
                .get(place)
                .and_then(|(number, origins)| Some((*number, *origins.get(index)?)));
            let Some((number, origin)) = origin else {
                return Err(ModelError::Operation {
                    graph,
                    index,
                    operation,
                    message,
                }
                .into());
            };
            Err(ImportError::Operation {
                graph: number,
                index: origin,
                operator: operators::name(file, number, origin),
                reason: format!("NNAPI's {operation}: {message}"),
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// The import of a whole file.
#[derive(Debug)]
pub(crate) struct ModelImport<'f, 'a> {
    pub(crate) file: &'f File<'a>,
    pub(crate) store: ConstantStore,
    /// The graphs of control flow, at their places in the model; `None` while one is being imported.
    referenced: Vec<Option<Placed>>,
    /// The place of each graph of the file that has one.
    placed: HashMap<usize, usize>,
    /// The graphs whose import is under way, outermost first.
    open: Vec<usize>,
    has_float16_weights: bool,
    notes: Vec<Note>,
}

/// A graph that control flow refers to.
#[derive(Debug)]
struct Placed {
    /// Its number in the file.
    number: usize,
    graph: Subgraph,
    origins: Vec<usize>,
}

/// A finished graph.
struct Finished {
    graph: Subgraph,
    origins: Vec<usize>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    states: Vec<State>,
}

impl ModelImport<'_, '_> {
    /// The place in the model of the graph `number` of the file, which is imported if that has not happened, for
    /// arguments with these dimensions.
    pub(crate) fn place(&mut self, number: usize, arguments: &[Vec<u32>]) -> Result<usize, PlaceError> {
        if let Some(place) = self.placed.get(&number) {
            return Ok(*place);
        }
        if number >= self.file.graphs().len() {
            let count = self.file.graphs().len();
            return Err(PlaceError::Reason(format!(
                "it refers to graph {number}, the file has {count}"
            )));
        }
        if self.open.contains(&number) {
            return Err(PlaceError::Reason(format!(
                "it refers to graph {number}, which contains it; NNAPI has no recursion"
            )));
        }
        if self.open.len() > MAX_NESTING {
            return Err(PlaceError::Reason(format!(
                "control flow nests more than {MAX_NESTING} deep"
            )));
        }
        let place = self.referenced.len();
        self.referenced.push(None);
        self.open.push(number);
        let finished = GraphImport::new(self, number)
            .run(arguments)
            .map_err(PlaceError::Inner)?;
        self.open.pop();
        self.referenced[place] = Some(Placed {
            number,
            graph: finished.graph,
            origins: finished.origins,
        });
        self.placed.insert(number, place);
        Ok(place)
    }

    /// The dimensions of the outputs of the graph at a place.
    pub(crate) fn output_dimensions(&self, place: usize) -> Vec<Vec<u32>> {
        let Some(Some(placed)) = self.referenced.get(place) else {
            return Vec::new();
        };
        let graph = &placed.graph;
        let operand = |index: &u32| graph.operands[*index as usize].dimensions.clone();
        graph.output_indexes.iter().map(operand).collect()
    }
}

/// Why a graph that control flow refers to could not be imported.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// Something about the reference.
    Reason(String),
    /// Something in the graph.
    Inner(ImportError),
}

/// A variable tensor while its graph is imported.
#[derive(Clone, Copy, Debug)]
struct Variable {
    tensor: usize,
    input: Id,
}

/// The import of one graph.
#[derive(Debug)]
pub(crate) struct GraphImport<'m, 'f, 'a> {
    pub(crate) model: &'m mut ModelImport<'f, 'a>,
    number: usize,
    pub(crate) tensors: Vec<Tensor<'a>>,
    /// The operand that holds each tensor's value at this point, once there is one.
    values: Vec<Option<Id>>,
    /// Constants of tensors in another type: weights of float operations that the file has as integers.
    converted: HashMap<usize, Id>,
    pub(crate) builder: GraphBuilder,
    variables: Vec<Variable>,
}

impl<'m, 'f, 'a> GraphImport<'m, 'f, 'a> {
    fn new(model: &'m mut ModelImport<'f, 'a>, number: usize) -> Self {
        let file = model.file;
        let tensors: Vec<_> = file.graphs()[number]
            .tensors
            .iter()
            .map(|table| Tensor::new(table, file.data(table)))
            .collect();
        let is_float16 =
            |tensor: &Tensor<'_>| tensor.element_type == ElementType::Float16 && tensor.is_constant();
        model.has_float16_weights |= tensors.iter().any(is_float16);
        GraphImport {
            model,
            number,
            values: vec![None; tensors.len()],
            tensors,
            converted: HashMap::new(),
            builder: GraphBuilder::default(),
            variables: Vec::new(),
        }
    }

    /// Imports the graph. Where it is called with arguments, their dimensions are those of its inputs.
    fn run(mut self, arguments: &[Vec<u32>]) -> Result<Finished, ImportError> {
        let graph = &self.model.file.graphs()[self.number];
        let mut inputs = Vec::with_capacity(graph.inputs.len());
        for (number, tensor) in graph.inputs.iter().enumerate() {
            let tensor = tensor as usize;
            let id = self.add_input(tensor, arguments.get(number));
            let id = id.map_err(|reason| self.tensor_error(tensor, reason))?;
            inputs.push((tensor, id));
        }
        for (index, operator) in graph.operators.iter().enumerate() {
            operators::map(&mut Node::new(&mut self, operator, index))?;
        }
        let outputs = self.outputs()?;
        self.finish(inputs, outputs)
    }

    fn finish(
        mut self,
        inputs: Vec<(usize, Id)>,
        outputs: Vec<(usize, Id)>,
    ) -> Result<Finished, ImportError> {
        let mut input_ids: Vec<Id> = inputs.iter().map(|(_, id)| *id).collect();
        let mut output_ids: Vec<Id> = outputs.iter().map(|(_, id)| *id).collect();
        let mut states = Vec::new();
        for variable in std::mem::take(&mut self.variables) {
            let reported = self.finish_variable(variable, &output_ids);
            let state = reported.map_err(|reason| self.tensor_error(variable.tensor, reason))?;
            let Some((output, mut state)) = state else {
                continue;
            };
            state.input = input_ids.len();
            state.output = output_ids.len();
            input_ids.push(variable.input);
            output_ids.push(output);
            states.push(state);
        }
        let info = |list: &[(usize, Id)], output| {
            list.iter()
                .map(|(tensor, id)| self.info(*tensor, *id, output))
                .collect()
        };
        let (inputs, outputs) = (info(&inputs, false), info(&outputs, true));
        let (graph, origins) = self.builder.finish(&input_ids, &output_ids);
        Ok(Finished {
            graph,
            origins,
            inputs,
            outputs,
            states,
        })
    }

    fn tensor_error(&self, tensor: usize, reason: String) -> ImportError {
        ImportError::Tensor {
            graph: self.number,
            label: self.tensors[tensor].label(tensor),
            reason,
        }
    }

    /// Which graph of the file this is; 0 is the main one.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    fn info(&self, tensor: usize, id: Id, output: bool) -> TensorInfo {
        let (tensor_at, operand) = (tensor, self.builder.operand(id));
        let tensor = &self.tensors[tensor];
        TensorInfo {
            name: tensor.name.clone(),
            signature_name: self.model.file.signature_name(tensor_at, output),
            element_type: tensor.element_type,
            operand_type: operand.operand_type,
            dimensions: operand.dimensions.clone(),
            quantization: tensor.quantization(),
        }
    }

    fn add_input(&mut self, tensor: usize, dimensions: Option<&Vec<u32>>) -> Result<Id, String> {
        if self.values[tensor].is_some() {
            return Err("is an input twice".to_owned());
        }
        let mut operand = self.shaped_operand(tensor)?;
        if let Some(dimensions) = dimensions {
            operand.dimensions.clone_from(dimensions);
        }
        let id = self
            .builder
            .add(operand.with_lifetime(OperandLifeTime::SubgraphInput))?;
        self.values[tensor] = Some(id);
        Ok(id)
    }

    /// The operand of a tensor whose shape the file must tell; a scalar has dimensions `[1]`.
    fn shaped_operand(&self, tensor: usize) -> Result<Operand, String> {
        let mut operand = self.tensors[tensor].operand()?;
        if operand.dimensions.is_empty() {
            operand.dimensions = vec![1];
        }
        Ok(operand)
    }

    /// The outputs of the graph: each an operand of its own that an operation writes.
    fn outputs(&mut self) -> Result<Vec<(usize, Id)>, ImportError> {
        let graph = &self.model.file.graphs()[self.number];
        let mut outputs: Vec<(usize, Id)> = Vec::with_capacity(graph.outputs.len());
        for tensor in graph.outputs.iter() {
            let tensor = tensor as usize;
            let taken: Vec<Id> = outputs.iter().map(|(_, id)| *id).collect();
            let id = self
                .value(tensor)
                .and_then(|id| self.writable_output(id, &taken))
                .map_err(|reason| self.tensor_error(tensor, reason))?;
            outputs.push((tensor, id));
        }
        Ok(outputs)
    }

    /// `id` if an operation writes it and it is not an output yet, else a copy of it: NNAPI's graphs cannot return
    /// inputs or constants, nor one operand twice.
    fn writable_output(&mut self, id: Id, taken: &[Id]) -> Result<Id, String> {
        let operand = self.builder.operand(id);
        if operand.lifetime == OperandLifeTime::TemporaryVariable && !taken.contains(&id) {
            return Ok(id);
        }
        let copy = self.builder.add(Operand {
            lifetime: OperandLifeTime::TemporaryVariable,
            location: Default::default(),
            ..operand.clone()
        })?;
        let origin = self.model.file.graphs()[self.number]
            .operators
            .len()
            .saturating_sub(1);
        self.builder.emit(origin, OperationType::CAST, &[id], &[copy])?;
        Ok(copy)
    }

    /// The output that carries a variable on and its description; `None` for one that no operator has written,
    /// which becomes a constant.
    fn finish_variable(&mut self, variable: Variable, outputs: &[Id]) -> Result<Option<(Id, State)>, String> {
        let operand = self.builder.operand(variable.input).clone();
        let initial = initial_bytes(&operand)?;
        let current = self.values[variable.tensor].unwrap_or(variable.input);
        if current == variable.input {
            let location = self.model.store.add(&initial)?;
            let constant = self.builder.operand_mut(variable.input);
            constant.lifetime = OperandLifeTime::ConstantCopy;
            constant.location = location;
            return Ok(None);
        }
        let output = self.writable_output(current, outputs)?;
        let state = State {
            name: self.tensors[variable.tensor].name.clone(),
            input: 0,
            output: 0,
            operand_type: operand.operand_type,
            dimensions: operand.dimensions,
            initial,
        };
        Ok(Some((output, state)))
    }

    /// The operand that holds the tensor's value at this point.
    pub(crate) fn value(&mut self, tensor: usize) -> Result<Id, String> {
        if let Some(id) = self.values[tensor] {
            return Ok(id);
        }
        let id = if self.tensors[tensor].is_constant() {
            self.add_tensor_constant(tensor)?
        } else if self.tensors[tensor].is_variable {
            self.add_variable(tensor)?
        } else {
            return Err("has no value: no operator before this one writes it".to_owned());
        };
        self.values[tensor] = Some(id);
        Ok(id)
    }

    /// Makes `id` the tensor's value from here on.
    pub(crate) fn set_value(&mut self, tensor: usize, id: Id) {
        self.values[tensor] = Some(id);
    }

    /// Whether something other than a constant gave the tensor a value.
    pub(crate) fn is_written(&self, tensor: usize) -> bool {
        self.values[tensor].is_some() || self.tensors[tensor].is_constant()
    }

    fn add_variable(&mut self, tensor: usize) -> Result<Id, String> {
        if self.number != 0 {
            return Err(
                "is a variable in a graph of control flow, where NNAPI cannot carry it on".to_owned(),
            );
        }
        let operand = self.shaped_operand(tensor)?;
        let input = self
            .builder
            .add(operand.with_lifetime(OperandLifeTime::SubgraphInput))?;
        self.variables.push(Variable { tensor, input });
        Ok(input)
    }

    fn add_tensor_constant(&mut self, tensor: usize) -> Result<Id, String> {
        let operand = self.shaped_operand(tensor)?;
        let tensor = &self.tensors[tensor];
        if tensor.is_sparse {
            return Err("is sparse; only DENSIFY takes sparse tensors".to_owned());
        }
        let data = tensor.data.as_ref().ok_or("has no data")?;
        if matches!(tensor.element_type, ElementType::Int64 | ElementType::Int4) {
            let bytes = values::operand_bytes(tensor)?.into_owned();
            return self.constant(operand, &bytes);
        }
        let location = match data {
            Cow::Borrowed(data) => self.model.store.add_shared(data)?,
            Cow::Owned(data) => self.model.store.add(data)?,
        };
        self.builder.add_constant(operand, location, data)
    }

    /// A constant of these bytes.
    pub(crate) fn constant(&mut self, operand: Operand, bytes: &[u8]) -> Result<Id, String> {
        let location = self.model.store.add(bytes)?;
        self.builder.add_constant(operand, location, bytes)
    }

    /// The constant tensor as the operand `wanted`, which has its elements but other quantization parameters.
    pub(crate) fn requalified(&mut self, tensor: usize, wanted: Operand) -> Result<Id, String> {
        let tensor = &self.tensors[tensor];
        let bytes = values::operand_bytes(tensor)?;
        let location = match (&bytes, &tensor.data) {
            (Cow::Borrowed(_), Some(Cow::Borrowed(data))) => self.model.store.add_shared(data)?,
            _ => self.model.store.add(&bytes)?,
        };
        self.builder.add_constant(wanted, location, &bytes)
    }

    /// The constant integers of the tensor as 32-bit floats: what they stand for by their scales.
    pub(crate) fn dequantized(&mut self, tensor: usize) -> Result<Id, String> {
        if let Some(id) = self.converted.get(&tensor) {
            return Ok(*id);
        }
        let bytes = values::dequantize(&self.tensors[tensor])?;
        let mut dimensions = self.tensors[tensor].dimensions.clone();
        if dimensions.is_empty() {
            dimensions.push(1);
        }
        let id = self.constant(Operand::new(OperandType::TENSOR_FLOAT32, &dimensions), &bytes)?;
        self.converted.insert(tensor, id);
        Ok(id)
    }

    /// Records a difference between file and model, unless it is recorded already.
    pub(crate) fn note(&mut self, operator: usize, text: String) {
        let operator = (self.number == 0).then_some(operator);
        self.model.notes.push(Note { operator, text });
    }
}

/// What a variable holds before the first execution, as the file's runtime has it: 0.0 everywhere, but bytes of 0 where
/// they are unsigned, whatever 0.0 would be.
fn initial_bytes(operand: &Operand) -> Result<Vec<u8>, String> {
    let size = Shape::new(&operand.dimensions)
        .and_then(|shape| shape.byte_size(operand.operand_type.element_size()))
        .map_err(|error| error.to_string())?;
    if size > values::MAX_GENERATED_BYTES {
        return Err(format!(
            "is a variable of {size} bytes, at most {} are supported",
            values::MAX_GENERATED_BYTES
        ));
    }
    let fill = match operand.operand_type {
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => operand.zero_point.to_le_bytes()[0],
        _ => 0,
    };
    Ok(vec![fill; size])
}
