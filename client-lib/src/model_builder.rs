//! Building models in Rust.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use nnhal_hal::{
    DataLocation, ExtensionNameAndPrefix, MemoryPool, Operand, OperandLifeTime, OperandType, Operation,
    OperationType, Subgraph,
};

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::model::{ALIGNMENT, INLINE_CONSTANTS, Model, SMALL_CONSTANT, append};
use crate::tensor::{Element, TensorType};

/// Builds a [`Model`], operand by operand and operation by operation.
///
/// Operations may be added in any order. What is wrong is reported by [`ModelBuilder::finish`], so that
/// building needs no error handling; the rules of the operations themselves are the driver's to check.
///
/// ```
/// use nnhal_client::{ModelBuilder, OperationType, TensorType};
///
/// let mut model = ModelBuilder::new();
/// let x = model.input(TensorType::float32(&[1, 4]));
/// let y = model.constant(TensorType::float32(&[4]), &[1.0_f32, 2.0, 3.0, 4.0]);
/// let no_activation = model.scalar(0_i32);
/// let sum = model.output(TensorType::float32(&[1, 4]));
/// model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
/// let model = model.finish()?;
/// # Ok::<(), nnhal_client::Error>(())
/// ```
#[derive(Debug)]
pub struct ModelBuilder {
    id: u32,
    operands: Vec<Operand>,
    /// Bytes of the constants that this builder copied, by operand index.
    constants: Vec<(usize, Vec<u8>)>,
    operations: Vec<Operation>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    graphs: Vec<(usize, ModelBuilder)>,
    memories: Vec<Memory>,
    extensions: Vec<ExtensionNameAndPrefix>,
    is_relaxed: bool,
    first_error: Option<Error>,
}

/// An operand of the builder that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandId {
    builder: u32,
    index: u32,
}

impl OperandId {
    /// The operand's index in its graph.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }
}

impl ModelBuilder {
    /// A builder of an empty model.
    #[must_use]
    pub fn new() -> ModelBuilder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        ModelBuilder {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            operands: Vec::new(),
            constants: Vec::new(),
            operations: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            graphs: Vec::new(),
            memories: Vec::new(),
            extensions: Vec::new(),
            is_relaxed: false,
            first_error: None,
        }
    }

    /// Adds an input of the graph; arguments come in the order in which inputs are added.
    pub fn input(&mut self, ty: TensorType) -> OperandId {
        let id = self.operand(ty, OperandLifeTime::SubgraphInput);
        self.inputs.push(id.index);
        id
    }

    /// Adds an output of the graph; results come in the order in which outputs are added.
    pub fn output(&mut self, ty: TensorType) -> OperandId {
        let id = self.operand(ty, OperandLifeTime::SubgraphOutput);
        self.outputs.push(id.index);
        id
    }

    /// Adds an operand that one operation writes and others read.
    pub fn temporary(&mut self, ty: TensorType) -> OperandId {
        self.operand(ty, OperandLifeTime::TemporaryVariable)
    }

    /// Adds a constant with these values, which are copied.
    pub fn constant<T: Element>(&mut self, ty: TensorType, values: &[T]) -> OperandId {
        self.expect_element::<T>(&ty);
        let id = self.operand(ty, OperandLifeTime::ConstantCopy);
        let bytes = bytemuck::cast_slice(values).to_vec();
        self.constants.push((id.index as usize, bytes));
        id
    }

    /// Adds a constant whose bytes are in a memory, which must not change as long as the model is in use.
    pub fn constant_in_memory(&mut self, ty: TensorType, memory: &Memory, range: Range<u64>) -> OperandId {
        let pool = self.memories.iter().position(|known| known.is_same(memory));
        let pool = pool.unwrap_or_else(|| {
            self.memories.push(memory.clone());
            self.memories.len() - 1
        });
        let id = self.operand(ty, OperandLifeTime::ConstantReference);
        let length = range.end.checked_sub(range.start);
        let location = length.and_then(|length| {
            Some(DataLocation {
                pool_index: u32::try_from(pool).ok()?,
                offset: u32::try_from(range.start).ok()?,
                length: u32::try_from(length).ok()?,
            })
        });
        match location {
            Some(location) => self.operands[id.index as usize].location = location,
            None => self.fail(format!(
                "a constant is in bytes {range:?} of a memory; they must be in order and below 4 GiB"
            )),
        }
        id
    }

    /// Adds a constant scalar: an activation code, an axis, a stride.
    pub fn scalar<T: Element>(&mut self, value: T) -> OperandId {
        let Some(operand_type) = T::SCALAR else {
            let name = std::any::type_name::<T>();
            self.fail(format!(
                "there is no scalar operand type for {name}; use constant() with a tensor type"
            ));
            return self.operand(TensorType::new(OperandType::INT32, &[]), OperandLifeTime::NoValue);
        };
        self.constant(TensorType::new(operand_type, &[]), &[value])
    }

    /// Adds an optional operand that is left out.
    pub fn omitted(&mut self, ty: TensorType) -> OperandId {
        self.operand(ty, OperandLifeTime::NoValue)
    }

    /// Adds a graph for IF or WHILE to run, and returns the operand that refers to it.
    pub fn graph(&mut self, graph: ModelBuilder) -> OperandId {
        let id = self.operand(
            TensorType::new(OperandType::SUBGRAPH, &[]),
            OperandLifeTime::Subgraph,
        );
        self.graphs.push((id.index as usize, graph));
        id
    }

    /// Adds an operation: what it computes, what it reads and what it writes, in the order of its signature.
    pub fn operation(
        &mut self,
        operation_type: OperationType,
        inputs: &[OperandId],
        outputs: &[OperandId],
    ) -> &mut ModelBuilder {
        if inputs.iter().chain(outputs).any(|id| id.builder != self.id) {
            self.fail(format!(
                "operation {} ({operation_type}) has an operand of another builder",
                self.operations.len()
            ));
            return self;
        }
        let indexes = |ids: &[OperandId]| ids.iter().map(|id| id.index).collect();
        self.operations.push(Operation {
            operation_type,
            inputs: indexes(inputs),
            outputs: indexes(outputs),
        });
        self
    }

    /// Names a vendor extension and returns the prefix that its types have in this model, for
    /// [`OperandType::extension`] and [`OperationType::extension`].
    pub fn extension(&mut self, name: &str) -> u16 {
        if let Some(known) = self.extensions.iter().find(|known| known.name == name) {
            return known.prefix;
        }
        let prefix = u16::try_from(self.extensions.len() + 1).unwrap_or_else(|_| {
            self.fail("a model can use at most 65535 extensions");
            u16::MAX
        });
        self.extensions.push(ExtensionNameAndPrefix {
            name: name.to_owned(),
            prefix,
        });
        prefix
    }

    /// Whether 32-bit floats may be computed with the range and precision of 16-bit floats, everywhere in the
    /// model.
    pub fn relax_float32_to_float16(&mut self, is_relaxed: bool) -> &mut ModelBuilder {
        self.is_relaxed = is_relaxed;
        self
    }

    /// The model.
    ///
    /// # Errors
    /// The first thing that was wrong in building it; operations that read each other's results in a circle;
    /// memory for large constants cannot be made.
    pub fn finish(self) -> Result<Model> {
        let mut builders = flatten(self);
        if let Some(error) = builders.iter_mut().find_map(|builder| builder.first_error.take()) {
            return Err(error);
        }
        let mut model = nnhal_hal::Model {
            relax_computation_float32_to_float16: builders.iter().any(|builder| builder.is_relaxed),
            ..nnhal_hal::Model::default()
        };
        let mut pools = Vec::new();
        for builder in &mut builders {
            merge_extensions(
                &mut model.extension_name_to_prefix,
                std::mem::take(&mut builder.extensions),
            )?;
            builder.name_pools(&mut pools)?;
        }
        place_constants(&mut builders, &mut model.operand_values, &mut pools)?;
        model.pools = pools
            .iter()
            .map(|memory| MemoryPool { size: memory.size() })
            .collect();
        let mut graphs = builders.into_iter().map(ModelBuilder::into_graph);
        model.main = graphs.next().transpose()?.unwrap_or_default();
        model.referenced = graphs.collect::<Result<_>>()?;
        Ok(Model::from_hal(model, pools))
    }

    /// Turns indexes into this builder's own memories into indexes into the model's pools.
    fn name_pools(&mut self, pools: &mut Vec<Memory>) -> Result<()> {
        let mut indexes = Vec::new();
        for memory in &self.memories {
            let known = pools.iter().position(|pool| pool.is_same(memory));
            let index = known.unwrap_or_else(|| {
                pools.push(memory.clone());
                pools.len() - 1
            });
            indexes.push(u32::try_from(index).map_err(|_| Error::argument("the model has too many pools"))?);
        }
        for operand in &mut self.operands {
            if operand.lifetime == OperandLifeTime::ConstantReference {
                operand.location.pool_index = indexes[operand.location.pool_index as usize];
            }
        }
        Ok(())
    }

    fn into_graph(self) -> Result<Subgraph> {
        let mut operands = self.operands;
        for &input in self.operations.iter().flat_map(|operation| &operation.inputs) {
            operands[input as usize].number_of_consumers += 1;
        }
        Ok(Subgraph {
            operations: in_order(self.operations, operands.len())?,
            operands,
            input_indexes: self.inputs,
            output_indexes: self.outputs,
        })
    }

    fn operand(&mut self, ty: TensorType, lifetime: OperandLifeTime) -> OperandId {
        let index = u32::try_from(self.operands.len()).unwrap_or_else(|_| {
            self.fail("a model can have at most 4294967295 operands");
            u32::MAX
        });
        self.operands.push(Operand::from(ty).with_lifetime(lifetime));
        OperandId {
            builder: self.id,
            index,
        }
    }

    fn expect_element<T: Element>(&mut self, ty: &TensorType) {
        if !T::fills(ty.operand_type()) {
            self.fail(format!(
                "operand {} is {}, which {} cannot fill",
                self.operands.len(),
                ty.operand_type(),
                std::any::type_name::<T>()
            ));
        }
    }

    fn fail(&mut self, message: impl Into<String>) {
        self.first_error.get_or_insert(Error::argument(message));
    }
}

impl Default for ModelBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// The builder of the main graph and then those of all graphs inside it, each operand that refers to one with
/// its index in the model.
fn flatten(main: ModelBuilder) -> Vec<ModelBuilder> {
    let mut builders = vec![main];
    let mut at = 0;
    while at < builders.len() {
        for (operand, graph) in std::mem::take(&mut builders[at].graphs) {
            // The main graph is not among the referenced ones, hence the index is one less.
            let index = builders.len() - 1;
            builders[at].operands[operand].location.offset = index as u32;
            builders.push(graph);
        }
        at += 1;
    }
    builders
}

/// Graphs inside the main one may name extensions too, as long as all agree on the prefixes.
fn merge_extensions(all: &mut Vec<ExtensionNameAndPrefix>, more: Vec<ExtensionNameAndPrefix>) -> Result<()> {
    for extension in more {
        if all.contains(&extension) {
            continue;
        }
        let clash = all
            .iter()
            .find(|known| known.name == extension.name || known.prefix == extension.prefix);
        if let Some(known) = clash {
            return Err(Error::argument(format!(
                "one graph gives extension {:?} prefix {}, another gives {:?} prefix {}; name the extensions in the \
                 same order in every graph",
                known.name, known.prefix, extension.name, extension.prefix
            )));
        }
        all.push(extension);
    }
    Ok(())
}

/// Puts small constants inside the model and large ones into memories, unless all are small together.
fn place_constants(
    builders: &mut [ModelBuilder],
    values: &mut Vec<u8>,
    pools: &mut Vec<Memory>,
) -> Result<()> {
    let total: usize = builders
        .iter()
        .flat_map(|builder| &builder.constants)
        .map(|(_, bytes)| bytes.len())
        .sum();
    let limit = if total > INLINE_CONSTANTS {
        SMALL_CONSTANT
    } else {
        usize::MAX
    };
    let mut shared = SharedConstants::default();
    for builder in builders {
        for (index, bytes) in std::mem::take(&mut builder.constants) {
            let operand = &mut builder.operands[index];
            operand.location.length = u32::try_from(bytes.len())
                .map_err(|_| Error::argument(format!("constant operand {index} exceeds 4 GiB")))?;
            if bytes.len() <= limit {
                operand.location.offset = append(values, &bytes)?;
            } else {
                operand.lifetime = OperandLifeTime::ConstantReference;
                let (pool, offset) = shared.add(bytes);
                operand.location.pool_index = u32::try_from(pools.len() + pool)
                    .map_err(|_| Error::argument("the model has too many pools"))?;
                operand.location.offset = offset;
            }
        }
    }
    shared.into_memories(pools)
}

/// Contents of memories for constants; none is longer than an offset can say.
#[derive(Default)]
struct SharedConstants {
    memories: Vec<(u32, Vec<Vec<u8>>)>,
}

impl SharedConstants {
    /// Adds a constant of less than 4 GiB; returns which memory it is in, and where.
    fn add(&mut self, bytes: Vec<u8>) -> (usize, u32) {
        // A constant that is itself nearly 4 GiB long leaves no room for padding, so its end is not padded.
        let length = bytes.len() as u64;
        let place = self.memories.last().and_then(|(end, _)| {
            let offset = u64::from(*end).next_multiple_of(ALIGNMENT as u64);
            u32::try_from(offset + length)
                .ok()
                .map(|end| (offset as u32, end))
        });
        let (offset, end) = place.unwrap_or_else(|| {
            self.memories.push((0, Vec::new()));
            (0, length as u32)
        });
        let last = self.memories.len() - 1;
        let (memory_end, parts) = &mut self.memories[last];
        parts.push(vec![0; (offset - *memory_end) as usize]);
        parts.push(bytes);
        *memory_end = end;
        (last, offset)
    }

    fn into_memories(self, pools: &mut Vec<Memory>) -> Result<()> {
        for (_, parts) in self.memories {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            pools.push(Memory::sealed(&parts)?);
        }
        Ok(())
    }
}

/// Sorts operations so that each comes after those whose results it reads, and otherwise as they were added.
fn in_order(operations: Vec<Operation>, operands: usize) -> Result<Vec<Operation>> {
    let mut writer = vec![None; operands];
    for (index, operation) in operations.iter().enumerate() {
        for &output in &operation.outputs {
            writer[output as usize] = Some(index);
        }
    }
    let mut missing = vec![0_usize; operations.len()];
    let mut readers = vec![Vec::new(); operations.len()];
    for (index, operation) in operations.iter().enumerate() {
        for written_by in operation
            .inputs
            .iter()
            .filter_map(|&input| writer[input as usize])
        {
            missing[index] += 1;
            readers[written_by].push(index);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..operations.len())
        .filter(|&index| missing[index] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(operations.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if let Some(stuck) = missing.iter().position(|&missing| missing > 0) {
        return Err(Error::argument(format!(
            "operation {stuck} ({}) needs its own result, directly or through others",
            operations[stuck].operation_type
        )));
    }
    let mut operations: Vec<Option<Operation>> = operations.into_iter().map(Some).collect();
    Ok(order
        .into_iter()
        .filter_map(|index| operations[index].take())
        .collect())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::validate::ValidModel;

    use super::*;

    fn bytes_of(model: &Model) -> Vec<Vec<u8>> {
        model
            .pools()
            .iter()
            .map(|memory| {
                let mut bytes = vec![0; memory.size() as usize];
                memory.read_at(0, &mut bytes).unwrap();
                bytes
            })
            .collect()
    }

    /// `x + constant`, twice, with the operations in the wrong order.
    fn two_additions(elements: u32) -> ModelBuilder {
        let ty = TensorType::float32(&[1, elements]);
        let mut model = ModelBuilder::new();
        let x = model.input(ty.clone());
        let one = model.constant(ty.clone(), &vec![1.0_f32; elements as usize]);
        let two = model.constant(ty.clone(), &vec![2.0_f32; elements as usize]);
        let no_activation = model.scalar(0_i32);
        let middle = model.temporary(ty.clone());
        let sum = model.output(ty);
        model.operation(OperationType::ADD, &[middle, two, no_activation], &[sum]);
        model.operation(OperationType::ADD, &[x, one, no_activation], &[middle]);
        model
    }

    #[test]
    fn built_model_is_valid_with_constants_inside_and_outside() {
        for (elements, pools) in [(4, 0), (10_000, 1)] {
            let model = two_additions(elements).finish().unwrap();
            assert_eq!(model.pools().len(), pools);
            let bytes = bytes_of(&model);
            ValidModel::new(model.hal().clone().into(), &bytes, &[]).unwrap();
            for (operand, value) in [(1, 1.0_f32), (2, 2.0)] {
                let operand = &model.hal().main.operands[operand];
                let constant = model.hal().constant_bytes(operand, &bytes).unwrap();
                assert_eq!(constant, value.to_ne_bytes().repeat(elements as usize));
            }
            assert_eq!(model.inputs(), [TensorType::float32(&[1, elements])]);
        }
    }

    #[test]
    fn operations_in_a_circle_are_refused() {
        let ty = TensorType::float32(&[1]);
        let mut model = ModelBuilder::new();
        let x = model.input(ty.clone());
        let a = model.temporary(ty.clone());
        let b = model.output(ty);
        let none = model.scalar(0_i32);
        model.operation(OperationType::ADD, &[x, b, none], &[a]);
        model.operation(OperationType::ADD, &[x, a, none], &[b]);
        let error = model.finish().unwrap_err();
        assert!(error.to_string().contains("operation 0 (ADD)"), "{error}");
    }

    #[test]
    fn first_mistake_is_reported() {
        let mut model = ModelBuilder::new();
        model.constant(TensorType::float32(&[1]), &[1_i32]);
        let error = model.finish().unwrap_err();
        assert!(error.to_string().contains("TENSOR_FLOAT32, which i32"), "{error}");

        let mut other = ModelBuilder::new();
        let foreign = other.input(TensorType::float32(&[1]));
        let mut model = ModelBuilder::new();
        let own = model.output(TensorType::float32(&[1]));
        model.operation(OperationType::RELU, &[foreign], &[own]);
        assert!(
            model
                .finish()
                .unwrap_err()
                .to_string()
                .contains("another builder")
        );
    }

    #[test]
    fn graphs_inside_graphs_get_their_index() {
        let condition = || TensorType::bool8(&[1]);
        let ty = || TensorType::float32(&[1]);
        let branch = || {
            let mut graph = ModelBuilder::new();
            let x = graph.input(ty());
            let y = graph.output(ty());
            graph.operation(OperationType::RELU, &[x], &[y]);
            graph
        };
        let mut model = ModelBuilder::new();
        let flag = model.input(condition());
        let x = model.input(ty());
        let outer = {
            let mut graph = ModelBuilder::new();
            let flag = graph.constant(condition(), &[1_u8]);
            let x = graph.input(ty());
            let y = graph.output(ty());
            let (yes, no) = (graph.graph(branch()), graph.graph(branch()));
            graph.operation(OperationType::IF, &[flag, yes, no, x], &[y]);
            graph
        };
        let (yes, no) = (model.graph(branch()), model.graph(outer));
        let y = model.output(ty());
        model.operation(OperationType::IF, &[flag, yes, no, x], &[y]);
        let model = model.finish().unwrap();
        assert_eq!(model.hal().referenced.len(), 4);
        let offset = |graph: &Subgraph, operand: usize| graph.operands[operand].location.offset;
        assert_eq!(
            (offset(&model.hal().main, 2), offset(&model.hal().main, 3)),
            (0, 1)
        );
        let outer = &model.hal().referenced[1];
        assert_eq!((offset(outer, 3), offset(outer, 4)), (2, 3));
    }

    #[test]
    fn extensions_have_one_prefix_each() {
        let mut model = ModelBuilder::new();
        let (a, b) = (model.extension("com.acme.a"), model.extension("com.acme.b"));
        assert_eq!((a, b, model.extension("com.acme.a")), (1, 2, 1));
        let mut graph = ModelBuilder::new();
        graph.extension("com.acme.b");
        model.graph(graph);
        assert!(model.finish().unwrap_err().to_string().contains("com.acme.b"));
    }
}
