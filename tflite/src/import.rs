//! From the graphs of a file to the graphs of a model.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nnhal_hal::validate::{ModelError, ValidModel};
use nnhal_hal::{
    Model, NoPools, Operand, OperandLifeTime, OperandType, OperationType, Shape, Subgraph, SubgraphIndex,
    tflite,
};

use crate::constants::ConstantStore;
use crate::error::ImportError;
use crate::file::File;
use crate::graph::{Id, rule_broken};
use crate::graph_import::{GraphImport, ModelImport, ReferencedGraph};
use crate::import_options::ImportOptions;
use crate::imported::{ImportedModel, State, TensorInfo};
use crate::operators::{self, Argument, Node, Refusal};
use crate::tensor::Tensor;
use crate::values;

/// How deeply IF and WHILE may nest; as deep as the model's validation accepts.
const MAX_NESTING: usize = nnhal_hal::validate::limits::MAX_SUBGRAPH_DEPTH;

/// Imports the main graph of the file and the graphs that its control flow refers to.
pub(crate) fn import(file: &File<'_>, options: &ImportOptions) -> Result<ImportedModel, ImportError> {
    let main = main_graph(file, options)?;
    let mut importer = importer(file, main);
    let main = GraphImport::new(&mut importer, main).run(&values_of(options))?;
    let mut referenced = Vec::with_capacity(importer.referenced.len());
    let mut origins = vec![(importer.main, main.origins)];
    for placed in importer.referenced {
        // Every place is filled by the time the graph that reserved it is done.
        let Some(placed) = placed else { continue };
        referenced.push(placed.graph);
        origins.push((placed.number, placed.origins));
    }
    let mut model = Model {
        main: main.graph,
        referenced,
        operand_values: importer.store.into_bytes(),
        ..Model::default()
    };
    if uses_extension(&model) {
        model.extension_name_to_prefix.push(tflite::mapping());
    }
    Ok(ImportedModel {
        model: validated(file, model, &origins)?,
        inputs: main.inputs,
        outputs: main.outputs,
        states: main.states,
        has_float16_weights: importer.has_float16_weights,
        notes: importer.notes,
    })
}

/// What the inputs of the main graph are, whatever its operators.
pub(crate) fn inputs(file: &File<'_>, options: &ImportOptions) -> Result<Vec<TensorInfo>, ImportError> {
    let main = main_graph(file, options)?;
    let mut importer = importer(file, main);
    let mut graph = GraphImport::new(&mut importer, main);
    let inputs = graph.add_inputs(&values_of(options))?;
    let info = |(tensor, id): &(usize, Id)| graph.info(*tensor, *id, false);
    Ok(inputs.iter().map(info).collect())
}

/// What the main graph is called with.
fn values_of<'a>(options: &ImportOptions) -> Vec<Argument<'a>> {
    let dimensions = options.input_dimensions.iter();
    dimensions.cloned().map(Argument::Value).collect()
}

/// The number of the graph that is the model.
fn main_graph(file: &File<'_>, options: &ImportOptions) -> Result<usize, ImportError> {
    let Some(name) = &options.signature else {
        return Ok(0);
    };
    file.graph_of(name).ok_or_else(|| ImportError::Signature {
        name: name.clone(),
        known: file.signatures(),
    })
}

fn importer<'f, 'a>(file: &'f File<'a>, main: usize) -> ModelImport<'f, 'a> {
    ModelImport {
        file,
        main,
        store: ConstantStore::with_limit(made_limit(file.length())),
        referenced: Vec::new(),
        placed: HashMap::new(),
        calls: operators::counted_calls(file),
        open: vec![main],
        made: 0,
        seeded: HashSet::new(),
        has_float16_weights: false,
        notes: Vec::new(),
    }
}

/// Whether the model has something of the extension for TFLite.
fn uses_extension(model: &Model) -> bool {
    model.subgraphs().any(|(_, graph)| {
        graph
            .operations
            .iter()
            .any(|operation| operation.operation_type.is_extension())
            || graph
                .operands
                .iter()
                .any(|operand| operand.operand_type.is_extension())
    })
}

/// Most bytes of constants that a file of this length may lead to: int4 weights that become floats grow to
/// eight times their size, and a small file may need biases and masks that it does not hold.
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
                reason: rule_broken(operation, &message),
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// A finished graph.
struct Finished {
    graph: Subgraph,
    origins: Vec<usize>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    states: Vec<State>,
}

impl<'a> ModelImport<'_, 'a> {
    /// Gives the graph `number` of the file, called with these arguments, its place in the model, unless it
    /// has one.
    fn place(&mut self, number: usize, arguments: &[Argument<'a>]) -> Result<(), Refusal> {
        if self.placed.contains_key(&number) {
            return Ok(());
        }
        self.enter(number)?;
        let place = self.referenced.len();
        self.referenced.push(None);
        let finished = GraphImport::new(self, number)
            .run(arguments)
            .map_err(|error| Refusal::Inner(Box::new(error)))?;
        self.open.pop();
        self.referenced[place] = Some(ReferencedGraph {
            number,
            graph: finished.graph,
            origins: finished.origins,
        });
        self.placed.insert(number, place);
        Ok(())
    }

    /// Notes that the import of the graph `number` of the file begins, if it may.
    pub(crate) fn enter(&mut self, number: usize) -> Result<(), Refusal> {
        if number >= self.file.graphs().len() {
            let count = self.file.graphs().len();
            return Err(Refusal::Reason(format!(
                "it refers to graph {number}, the file has {count}"
            )));
        }
        if self.open.contains(&number) {
            return Err(Refusal::Reason(format!(
                "it refers to graph {number}, which contains it; NNAPI has no recursion"
            )));
        }
        if self.open.len() > MAX_NESTING {
            return Err(Refusal::Reason(format!(
                "control flow nests more than {MAX_NESTING} deep"
            )));
        }
        self.open.push(number);
        Ok(())
    }
}

impl<'a> GraphImport<'_, '_, 'a> {
    /// Imports the graph. Where it is called with arguments, their dimensions are those of its inputs.
    fn run(mut self, arguments: &[Argument<'a>]) -> Result<Finished, ImportError> {
        let inputs = self.add_inputs(arguments)?;
        self.add_operators()?;
        let outputs = self.outputs()?;
        self.finish(inputs, outputs)
    }

    /// Adds the operations of all operators.
    pub(crate) fn add_operators(&mut self) -> Result<(), ImportError> {
        let graph = &self.model.file.graphs()[self.number];
        for (index, operator) in graph.operators.iter().enumerate() {
            let mut node = Node::new(self, operator, index);
            let mapped = import_called(&mut node).and_then(|()| operators::map(&mut node));
            mapped.map_err(|refusal| operators::error(&node, refusal))?;
        }
        Ok(())
    }

    fn finish(
        mut self,
        inputs: Vec<(usize, Id)>,
        outputs: Vec<(usize, Id)>,
    ) -> Result<Finished, ImportError> {
        let mut input_ids: Vec<Id> = inputs.iter().map(|(_, id)| *id).collect();
        let mut output_ids: Vec<Id> = outputs.iter().map(|(_, id)| *id).collect();
        let mut states = Vec::new();
        for variable in self.take_carried()? {
            let input = variable.input;
            let name = variable.name.clone();
            let reported = self.carry_on(variable, &output_ids);
            let state = reported.map_err(|reason| ImportError::Variable { name, reason })?;
            let Some((output, mut state)) = state else {
                continue;
            };
            state.input = input_ids.len();
            state.output = output_ids.len();
            input_ids.push(input);
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

    pub(crate) fn tensor_error(&self, tensor: usize, reason: String) -> ImportError {
        ImportError::Tensor {
            graph: self.number,
            label: self.tensors[tensor].label(tensor),
            reason,
        }
    }

    fn info(&self, tensor: usize, id: Id, output: bool) -> TensorInfo {
        let (tensor_at, operand) = (tensor, self.builder.operand(id));
        let tensor = &self.tensors[tensor];
        TensorInfo {
            name: tensor.name.clone(),
            signature_name: self.model.file.signature_name(self.number, tensor_at, output),
            element_type: tensor.element_type,
            operand_type: operand.operand_type,
            dimensions: operand.dimensions.clone(),
            open: tensor.open.clone(),
            quantization: tensor.quantization(),
        }
    }

    /// Adds the inputs, each with its tensor. Constants that it is called with are none.
    fn add_inputs(&mut self, arguments: &[Argument<'a>]) -> Result<Vec<(usize, Id)>, ImportError> {
        let graph = &self.model.file.graphs()[self.number];
        let mut inputs = Vec::with_capacity(graph.inputs.len());
        for (number, tensor) in graph.inputs.iter().enumerate() {
            let tensor = tensor as usize;
            let added = match arguments.get(number) {
                Some(Argument::Constant(constant)) => self.take_constant(tensor, constant).map(|()| None),
                Some(Argument::Value(dimensions)) => self.add_input(tensor, Some(dimensions)).map(Some),
                None => self.add_input(tensor, None).map(Some),
            };
            let id = added.map_err(|reason| self.tensor_error(tensor, reason))?;
            inputs.extend(id.map(|id| (tensor, id)));
        }
        Ok(inputs)
    }

    /// Makes an input the constant that the graph is called with.
    fn take_constant(&mut self, tensor: usize, constant: &Tensor<'a>) -> Result<(), String> {
        let own = &self.tensors[tensor];
        if self.values[tensor].is_some() {
            return Err("is an input twice".to_owned());
        }
        if own.element_type != constant.element_type {
            let [own, given] = [own, constant].map(|tensor| tensor.element_type);
            return Err(format!("is {own} and is given {given}"));
        }
        let name = own.name.clone();
        self.tensors[tensor] = Tensor {
            name,
            ..constant.clone()
        };
        Ok(())
    }

    fn add_input(&mut self, tensor: usize, dimensions: Option<&Vec<u32>>) -> Result<Id, String> {
        if self.values[tensor].is_some() {
            return Err("is an input twice".to_owned());
        }
        let mut operand = self.shaped_operand(tensor)?;
        if let Some(dimensions) = dimensions.filter(|dimensions| !dimensions.is_empty()) {
            // A graph that is called takes what it is called with.
            if self.is_main() {
                self.tensors[tensor].check_dimensions(dimensions)?;
            }
            operand.dimensions.clone_from(dimensions);
            operand.dimensions.extend(self.tensors[tensor].halves());
        }
        let id = self
            .builder
            .add(operand.with_lifetime(OperandLifeTime::SubgraphInput))?;
        self.values[tensor] = Some(id);
        Ok(id)
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

    /// `id` if an operation writes it and it is not an output yet, else a copy of it: NNAPI's graphs cannot
    /// return inputs or constants, nor one operand twice.
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

    /// What has to be carried from one execution to the next: variable tensors, then resource variables, then
    /// random number generators.
    fn take_carried(&mut self) -> Result<Vec<Carried>, ImportError> {
        let mut carried = Vec::new();
        for variable in std::mem::take(&mut self.variables) {
            let operand = self.builder.operand(variable.input);
            let initial = initial_bytes(operand);
            carried.push(Carried {
                name: self.tensors[variable.tensor].name.clone(),
                input: variable.input,
                current: self.values[variable.tensor].unwrap_or(variable.input),
                initial: initial.map_err(|reason| self.tensor_error(variable.tensor, reason))?,
            });
        }
        let resources = std::mem::take(&mut self.resources).into_states();
        let generators = std::mem::take(&mut self.generators).into_states();
        carried.extend(
            resources
                .chain(generators)
                .map(|(name, input, current, initial)| Carried {
                    name,
                    input,
                    current,
                    initial,
                }),
        );
        Ok(carried)
    }

    /// The output that carries a variable on and its description; `None` for one that no operator has
    /// written, which becomes a constant.
    fn carry_on(&mut self, variable: Carried, outputs: &[Id]) -> Result<Option<(Id, State)>, String> {
        let operand = self.builder.operand(variable.input).clone();
        let size = byte_size(&operand)?;
        if variable.initial.len() != size {
            let found = variable.initial.len();
            return Err(format!("has {size} bytes, its first value {found}"));
        }
        if variable.current == variable.input {
            let location = self.model.store.add(&variable.initial)?;
            let constant = self.builder.operand_mut(variable.input);
            constant.lifetime = OperandLifeTime::ConstantCopy;
            constant.location = location;
            return Ok(None);
        }
        let written = self.builder.operand(variable.current);
        if (written.operand_type, &written.dimensions) != (operand.operand_type, &operand.dimensions) {
            return Err(format!(
                "is {} with dimensions {:?} and is assigned {} with dimensions {:?}",
                operand.operand_type, operand.dimensions, written.operand_type, written.dimensions
            ));
        }
        let output = self.writable_output(variable.current, outputs)?;
        let state = State {
            name: variable.name,
            input: 0,
            output: 0,
            operand_type: operand.operand_type,
            dimensions: operand.dimensions,
            initial: variable.initial,
        };
        Ok(Some((output, state)))
    }
}

/// A value that one execution leaves to the next.
struct Carried {
    name: String,
    input: Id,
    /// What it is when the graph is done.
    current: Id,
    initial: Vec<u8>,
}

/// Imports the graphs that an operator calls; its mapping finds them at their places.
fn import_called(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let calls = operators::calls(node)?;
    for number in calls.graphs {
        let number = usize::try_from(number).map_err(|_| format!("it refers to graph {number}"))?;
        node.graph.model.place(number, &calls.arguments)?;
    }
    Ok(())
}

fn byte_size(operand: &Operand) -> Result<usize, String> {
    Shape::new(&operand.dimensions)
        .and_then(|shape| shape.byte_size(operand.operand_type.element_size()))
        .map_err(|error| error.to_string())
}

/// What a variable holds before the first execution, as the file's runtime has it: 0.0 everywhere, but bytes
/// of 0 where they are unsigned, whatever 0.0 would be.
fn initial_bytes(operand: &Operand) -> Result<Vec<u8>, String> {
    let size = byte_size(operand)?;
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
