//! From operations to nodes: what computes each, before the graph is rewritten.

use std::sync::Arc;

use nnhal_hal::ops::{self, ShapeRule};
use nnhal_hal::{OperationType, Subgraph, SubgraphIndex};

use super::constants::Constants;
use super::declared::Declared;
use super::error::ProgramError;
use super::fixed_outputs::FixedOutputs;
use super::folding::fold;
use super::graph::Graph;
use super::kernel_set::KernelSet;
use super::node::{Computed, Node, Work};
use super::{memory, passes};
use crate::fast::{self, Packing, PlannedStep};
use crate::interrupt::Interrupt;
use crate::kernel::{Constant, Kernel};
use crate::kernels;

/// How a graph is computed.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By operand.
    pub(crate) constants: Arc<[Option<Constant>]>,
    /// In the order in which they are computed.
    pub(crate) nodes: Vec<Node>,
    /// The constants that steps replace, which have no bytes here.
    pub(super) replaced: Vec<u32>,
}

impl Plan {
    /// Plans a graph with its constants, which is to be computed as floats of half precision at least if
    /// `relaxed` says so.
    pub(super) fn new(
        (at, graph, relaxed): (SubgraphIndex, &Subgraph, bool),
        mut constants: Constants<'_>,
        (kernels, packing): (KernelSet, &mut Packing),
        interrupt: &dyn Interrupt,
    ) -> Result<Plan, ProgramError> {
        let mut nodes = Vec::with_capacity(graph.operations.len());
        for (index, operation) in graph.operations.iter().enumerate() {
            interrupt.check()?;
            let declared = Declared {
                operation,
                operands: &graph.operands,
                constants: &constants.values,
            };
            if kernels == KernelSet::Fast
                && let Some(results) = fold(&declared, constants.room(), relaxed, interrupt)?
            {
                constants.add_folded(operation, results);
                continue;
            }
            let filter = operation.inputs.get(1).copied();
            let bytes = filter.map_or(&[][..], |filter| constants.bytes(filter));
            let packing = (kernels == KernelSet::Fast).then_some(&mut *packing);
            let node = lower((at, index), &declared, bytes, (packing, relaxed))?;
            if let Some(filter) = filter {
                constants.note_reader(filter, node.step().map(|step| &**step));
            }
            nodes.push(node);
        }
        let read: Vec<u32> = nodes
            .iter()
            .flat_map(|node| node.operation.inputs.clone())
            .collect();
        if kernels == KernelSet::Fast {
            let mut rewritten = Graph::new(graph, &constants.values, nodes);
            passes::rewrite(&mut rewritten, interrupt)?;
            nodes = rewritten.into_nodes();
        }
        memory::release_after_last_reader(graph, &mut nodes);
        let (constants, replaced) = constants.finish(read.into_iter())?;
        Ok(Plan {
            constants: constants.into(),
            nodes,
            replaced,
        })
    }
}

/// The node of an operation alone. `filter` has the bytes of its second input, if that is a constant; fast
/// kernels are those that there is `packing` for.
pub(super) fn lower(
    (graph, index): (SubgraphIndex, usize),
    declared: &Declared<'_>,
    filter: &[u8],
    (packing, relaxed): (Option<&mut Packing>, bool),
) -> Result<Node, ProgramError> {
    let operation = declared.operation;
    let (work, name) = match operation.operation_type {
        OperationType::IF => (Work::If(index), "control flow"),
        OperationType::WHILE => (Work::While(index), "control flow"),
        kind => {
            let (kernel, shape) = reference(kind).ok_or_else(|| ProgramError::Unsupported {
                graph,
                index,
                operation: kind,
                reason: refusal(kind).unwrap_or_else(|| "it has no shape rule".to_owned()),
            })?;
            let step = match packing {
                Some(packing) => fast::plan(declared, filter, (packing, relaxed))?,
                None => None,
            };
            match step {
                Some(step) => {
                    let name = name(&*step, declared);
                    (Work::Step(step, shape), name)
                }
                None => (Work::Reference(kernel, shape), fast::REFERENCE),
            }
        }
    };
    let fixed = match work {
        Work::Reference(_, shape) | Work::Step(_, shape) => FixedOutputs::of(declared, shape),
        _ => None,
    };
    Ok(Node {
        operation: operation.clone(),
        computes: vec![Computed { number: index, name }],
        work,
        fixed,
        releases: Vec::new(),
        parts: Vec::new(),
    })
}

/// The reference kernel of an operation, and how large its outputs are.
fn reference(operation: OperationType) -> Option<(Kernel, ShapeRule)> {
    Some((kernels::kernel(operation)?, ops::entry(operation)?.shape))
}

/// The name of a step for an operation.
fn name(step: &dyn PlannedStep, declared: &Declared<'_>) -> &'static str {
    let first = declared.operation.inputs.first();
    let first = first.and_then(|at| declared.operands.get(*at as usize));
    first.map_or(fast::REFERENCE, |first| step.name(first.operand_type))
}

/// Why an operation cannot be run here, or `None` if it can. For IF and WHILE this speaks of the operation
/// itself, not of what its subgraphs contain.
pub(super) fn refusal(operation: OperationType) -> Option<String> {
    if operation.is_control_flow() || kernels::kernel(operation).is_some() {
        return None;
    }
    Some(if operation == OperationType::OEM_OPERATION {
        "OEM operations are vendor-specific and deprecated; this device has none".to_owned()
    } else if operation.is_extension() && operation.extension_prefix() != nnhal_hal::tflite::PREFIX {
        format!("this device has no extension but {}", nnhal_hal::tflite::NAME)
    } else {
        format!("this device has no kernel for {operation}")
    })
}
