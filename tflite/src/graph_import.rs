//! The import of one graph, as the mappings of its operators see it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use nnhal_hal::{Operand, OperandLifeTime, OperandType, Subgraph};

use crate::constants::ConstantStore;
use crate::file::File;
use crate::generators::Generators;
use crate::graph::{GraphBuilder, Id};
use crate::imported::Note;
use crate::resources::Resources;
use crate::tensor::{ElementType, Tensor};
use crate::values;

/// The import of a whole file.
#[derive(Debug)]
pub(crate) struct ModelImport<'f, 'a> {
    pub(crate) file: &'f File<'a>,
    /// The number of the graph that is the model's main one.
    pub(crate) main: usize,
    pub(crate) store: ConstantStore,
    /// The graphs of control flow, at their places in the model; `None` while one is being imported.
    pub(crate) referenced: Vec<Option<ReferencedGraph>>,
    /// The place of each graph of the file that has one.
    pub(crate) placed: HashMap<usize, usize>,
    /// How often control flow calls each graph of the file.
    pub(crate) calls: HashMap<i32, usize>,
    /// The graphs whose import is under way, outermost first.
    pub(crate) open: Vec<usize>,
    /// How many tensors and operators the graphs have that were made for composites and CASEs.
    pub(crate) made: usize,
    /// The graphs of control flow that draw random numbers by seeds.
    pub(crate) seeded: HashSet<usize>,
    pub(crate) has_float16_weights: bool,
    pub(crate) notes: Vec<Note>,
}

/// A graph that control flow refers to.
#[derive(Debug)]
pub(crate) struct ReferencedGraph {
    /// Its number in the file.
    pub(crate) number: usize,
    pub(crate) graph: Subgraph,
    pub(crate) origins: Vec<usize>,
}

/// Most tensors and operators of all graphs that are made for composites and CASEs. Files of a few bytes may
/// nest composites so that they double with each level.
const MAX_MADE: usize = 1 << 18;

impl ModelImport<'_, '_> {
    /// Counts so many tensors and operators of a graph about to be made.
    pub(crate) fn charge(&mut self, count: usize) -> Result<(), String> {
        self.made = self.made.saturating_add(count);
        if self.made > MAX_MADE {
            return Err(format!(
                "the graphs of all composites and CASEs have more than {MAX_MADE} tensors and operators together"
            ));
        }
        Ok(())
    }

    /// The place in the model of the graph `number` of the file, if it was imported.
    pub(crate) fn place_of(&self, number: usize) -> Option<usize> {
        self.placed.get(&number).copied()
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

/// A variable tensor while its graph is imported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub(crate) tensor: usize,
    pub(crate) input: Id,
}

/// The import of one graph.
#[derive(Debug)]
pub(crate) struct GraphImport<'m, 'f, 'a> {
    pub(crate) model: &'m mut ModelImport<'f, 'a>,
    pub(crate) number: usize,
    /// The operator of the graph around it that this one stands for, if its operators are put there.
    pub(crate) stands_for: Option<usize>,
    pub(crate) tensors: Vec<Tensor<'a>>,
    /// The operand that holds each tensor's value at this point, once there is one.
    pub(crate) values: Vec<Option<Id>>,
    /// Constants of tensors in another type: weights of float operations that the file has as integers.
    converted: HashMap<usize, Id>,
    pub(crate) builder: GraphBuilder,
    pub(crate) variables: Vec<Variable>,
    pub(crate) resources: Resources,
    pub(crate) generators: Generators,
}

impl<'m, 'f, 'a> GraphImport<'m, 'f, 'a> {
    pub(crate) fn new(model: &'m mut ModelImport<'f, 'a>, number: usize) -> Self {
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
            stands_for: None,
            values: vec![None; tensors.len()],
            tensors,
            converted: HashMap::new(),
            builder: GraphBuilder::default(),
            variables: Vec::new(),
            resources: Resources::default(),
            generators: Generators::default(),
        }
    }

    /// Which graph of the file this is.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The operator that an operation stands for which is made of the operator `index`.
    pub(crate) fn origin(&self, index: usize) -> usize {
        self.stands_for.unwrap_or(index)
    }

    /// Whether this is the model's main graph.
    pub(crate) fn is_main(&self) -> bool {
        self.number == self.model.main
    }

    /// The operand of a tensor whose shape the file must tell; a scalar has dimensions `[1]`.
    pub(crate) fn shaped_operand(&self, tensor: usize) -> Result<Operand, String> {
        let tensor = &self.tensors[tensor];
        let mut operand = if tensor.is_unsigned() {
            tensor.words()?
        } else {
            tensor.operand()?
        };
        if operand.dimensions.is_empty() {
            operand.dimensions = vec![1];
        }
        Ok(operand)
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
        if !self.is_main() {
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
        if tensor.element_type == ElementType::Int4 {
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
        let operator = self.is_main().then_some(operator);
        self.model.notes.push(Note { operator, text });
    }
}
