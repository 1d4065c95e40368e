//! Models and their subgraphs.

use serde::{Deserialize, Serialize};

use super::{DataLocation, ExtensionNameAndPrefix, Operand, OperandLifeTime, Operation};

/// HAL `Subgraph` 1.3: operands and the operations over them, in execution order.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Subgraph {
    /// All operands.
    pub operands: Vec<Operand>,
    /// All operations, each after those whose results it reads.
    pub operations: Vec<Operation>,
    /// Operand indexes of the inputs, in argument order.
    pub input_indexes: Vec<u32>,
    /// Operand indexes of the outputs, in argument order.
    pub output_indexes: Vec<u32>,
}

/// What a model or request says of one of its pools; the memory itself travels beside it as a file
/// descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryPool {
    /// Size in bytes.
    pub size: u64,
}

/// HAL `Model` 1.3. The bytes of `CONSTANT_REFERENCE` operands are in memories that travel beside the model,
/// in the order of `pools`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Model {
    /// The graph that an execution runs.
    pub main: Subgraph,
    /// The graphs that IF and WHILE refer to.
    pub referenced: Vec<Subgraph>,
    /// The bytes of `CONSTANT_COPY` operands.
    #[serde(with = "super::bytes")]
    pub operand_values: Vec<u8>,
    /// The pools of `CONSTANT_REFERENCE` operands.
    pub pools: Vec<MemoryPool>,
    /// Whether float32 may be computed with the range and precision of float16, in every subgraph.
    pub relax_computation_float32_to_float16: bool,
    /// Which extension each prefix in an operand or operation type stands for.
    pub extension_name_to_prefix: Vec<ExtensionNameAndPrefix>,
}

impl Model {
    /// The main graph and then the referenced ones, each with the name that messages use for it.
    pub fn subgraphs(&self) -> impl Iterator<Item = (SubgraphIndex, &Subgraph)> {
        std::iter::once((SubgraphIndex::Main, &self.main)).chain(
            self.referenced
                .iter()
                .enumerate()
                .map(|(index, graph)| (SubgraphIndex::Referenced(index), graph)),
        )
    }
}

/// Which graph of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubgraphIndex {
    /// `Model::main`.
    Main,
    /// `Model::referenced` at this index.
    Referenced(usize),
}

impl std::fmt::Display for SubgraphIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SubgraphIndex::Main => f.write_str("main graph"),
            SubgraphIndex::Referenced(index) => write!(f, "referenced graph {index}"),
        }
    }
}

/// The bytes of a model's pools, in the order of [`Model::pools`]. Implementations give bytes that nobody can
/// change any more: sealed memory, or a private copy.
pub trait ConstantPools {
    /// The bytes of the pool with this index; `None` beyond the list, or if not all of them are there.
    fn bytes(&self, pool: usize) -> Option<&[u8]>;

    /// How many bytes the pool has, those that are not there included; `None` beyond the list.
    fn size(&self, pool: usize) -> Option<u64> {
        self.bytes(pool).map(|bytes| bytes.len() as u64)
    }

    /// Some of the pool's bytes; `None` beyond its end, or if they are not there: a model that is restored
    /// from a compilation cache lacks the constants that its compiled form replaces.
    fn range(&self, pool: usize, offset: usize, length: usize) -> Option<&[u8]> {
        self.bytes(pool)?.get(offset..offset.checked_add(length)?)
    }
}

impl<T: AsRef<[u8]>> ConstantPools for [T] {
    fn bytes(&self, pool: usize) -> Option<&[u8]> {
        self.get(pool).map(AsRef::as_ref)
    }
}

impl<T: AsRef<[u8]>> ConstantPools for Vec<T> {
    fn bytes(&self, pool: usize) -> Option<&[u8]> {
        self.as_slice().bytes(pool)
    }
}

/// The pools of a model that has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPools;

impl ConstantPools for NoPools {
    fn bytes(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

impl Model {
    /// The bytes of a constant operand; `None` for any other operand, if its location lies outside, or if
    /// `pools` lacks them.
    #[must_use]
    pub fn constant_bytes<'a>(&'a self, operand: &Operand, pools: &'a dyn ConstantPools) -> Option<&'a [u8]> {
        let DataLocation {
            pool_index,
            offset,
            length,
        } = operand.location;
        let (offset, length) = (offset as usize, length as usize);
        match operand.lifetime {
            OperandLifeTime::ConstantCopy => self.operand_values.get(offset..offset.checked_add(length)?),
            OperandLifeTime::ConstantReference => pools.range(pool_index as usize, offset, length),
            _ => None,
        }
    }
}
