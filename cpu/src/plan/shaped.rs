//! A program made again for inputs of given shapes, where the model leaves some open.
//!
//! Operations are lowered and fused as if the model declared these shapes, with the constants of the program
//! that there is. What follows from rules is certain. Where shapes come from values, those of a run that has
//! just ended are taken for granted. An operation that computes another shape fails then, as with what a
//! model declares. So does the run, which is left to the program that takes all shapes.

use std::sync::Arc;

use nnhal_hal::ops::{self, OperandInfo, OperationContext, ShapeRule};
use nnhal_hal::{Operand, OperandType, Operation, Shape, SubgraphIndex};

use super::declared::Declared;
use super::error::ProgramError;
use super::fixed_outputs::FixedOutputs;
use super::graph::Graph;
use super::lower::{Plan, lower};
use super::node::{Node, Work};
use super::program::Program;
use super::shapes::is_exact;
use super::{memory, passes};
use crate::fast::{self, Packing, PlannedStep};
use crate::interrupt::Interrupt;

/// What a node of the new program is made of.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A node that there is, with its step: its own filter is gone, as all of it was known before.
    Step(&'a Node, &'a Arc<dyn PlannedStep>, ShapeRule),
    /// An operation of the model.
    Operation(usize, &'a Operation),
}

impl Source<'_> {
    fn operation(&self) -> &Operation {
        match self {
            Source::Step(node, ..) => &node.operation,
            Source::Operation(_, operation) => operation,
        }
    }
}

impl Program {
    /// The same program for inputs of the shapes that they had in the last run. `shape` gives that of an
    /// operand of the main graph.
    ///
    /// # Errors
    /// There is no memory; `interrupt`, which is asked before each operation.
    pub(crate) fn shaped(
        &self,
        shape: &dyn Fn(u32) -> Option<Shape>,
        interrupt: &dyn Interrupt,
    ) -> Result<Program, ProgramError> {
        let model = self.model.model();
        let mut main = model.main.clone();
        for &input in &main.input_indexes {
            fill_in(&mut main.operands, input, shape(input));
        }
        let (constants, inner) = match &self.plans[..] {
            [general, inner @ ..] => (&general.constants, inner),
            [] => return Err(ProgramError::UnfitCompiled),
        };
        let mut nodes = Vec::with_capacity(main.operations.len());
        for source in self.sources() {
            interrupt.check()?;
            let operation = source.operation();
            let declared = Declared {
                operation,
                operands: &main.operands,
                constants,
            };
            let fixed = fixed(&declared);
            let shapes = |(number, &output): (usize, &u32)| {
                let known = fixed.as_ref().and_then(|fixed| fixed.shapes().nth(number));
                let is_certain = known.is_some() || !operation.operation_type.is_control_flow();
                (output, known.or_else(|| shape(output)).filter(|_| is_certain))
            };
            let outputs: Vec<(u32, Option<Shape>)> =
                operation.outputs.iter().enumerate().map(shapes).collect();
            // The extents of results decide how weights are packed. Sums of floats are to have the bits that
            // the general program gives them, so that no run differs from one before.
            let is_known_later = is_layer_of_floats(&declared);
            let fill_in_outputs = |operands: &mut [Operand]| {
                outputs
                    .iter()
                    .for_each(|(output, shape)| fill_in(operands, *output, *shape));
            };
            if !is_known_later {
                fill_in_outputs(&mut main.operands);
            }
            let declared = Declared {
                operation,
                operands: &main.operands,
                constants,
            };
            nodes.push(match source {
                Source::Step(node, step, rule) => Node {
                    operation: operation.clone(),
                    computes: node.computes.clone(),
                    work: Work::Step(Arc::clone(step), rule),
                    fixed,
                    releases: Vec::new(),
                    parts: Vec::new(),
                },
                Source::Operation(index, _) => {
                    let filter = operation.inputs.get(1).map(|at| *at as usize);
                    let filter = filter.and_then(|at| constants.get(at)?.as_ref());
                    let filter = filter.map_or(&[][..], |filter| filter.bytes.bytes());
                    let relaxed = model.relax_computation_float32_to_float16;
                    let packing = Some(&mut Packing::Now);
                    lower(
                        (SubgraphIndex::Main, index),
                        &declared,
                        filter,
                        (packing, relaxed),
                    )?
                }
            });
            if is_known_later {
                fill_in_outputs(&mut main.operands);
            }
        }
        let mut graph = Graph::new(&main, constants, nodes);
        passes::rewrite(&mut graph, interrupt)?;
        let mut nodes = graph.into_nodes();
        memory::release_after_last_reader(&main, &mut nodes);
        let plan = Plan {
            constants: Arc::clone(constants),
            nodes,
            replaced: Vec::new(),
        };
        let plans = std::iter::once(Arc::new(plan)).chain(inner.iter().cloned());
        Ok(Program {
            model: Arc::clone(&self.model),
            plans: plans.collect(),
            shaped: Some(Box::new(main)),
            for_shapes: None,
        })
    }

    /// What the nodes of the main graph are made of, in the order of its operations.
    fn sources(&self) -> Vec<Source<'_>> {
        let operations = &self.model.model().main.operations;
        let nodes = self.plans.first().map_or(&[][..], |plan| &plan.nodes);
        let mut leaves: Vec<&Node> = nodes.iter().flat_map(Node::leaves).collect();
        leaves.sort_by_key(|leaf| leaf.number());
        let mut sources = Vec::with_capacity(operations.len());
        for leaf in leaves {
            if let Work::Step(step, rule) = &leaf.work
                && step.replaces_filter()
            {
                sources.push((leaf.number(), Source::Step(leaf, step, *rule)));
                continue;
            }
            let numbers = leaf.computes.iter().map(|computed| computed.number);
            let operations = numbers.filter_map(|number| Some((number, operations.get(number)?)));
            sources.extend(operations.map(|(at, operation)| (at, Source::Operation(at, operation))));
        }
        sources.sort_by_key(|(number, _)| *number);
        sources.into_iter().map(|(_, source)| source).collect()
    }
}

/// Whether an operation sums products of floats with weights.
fn is_layer_of_floats(declared: &Declared<'_>) -> bool {
    let is_float = |input: OperandInfo<'_>| input.ty() == OperandType::TENSOR_FLOAT32;
    fast::has_filter(declared.operation.operation_type) && declared.input(0).is_some_and(is_float)
}

/// What an operation computes, if that is known.
fn fixed(declared: &Declared<'_>) -> Option<FixedOutputs> {
    let rule = ops::entry(declared.operation.operation_type)?.shape;
    FixedOutputs::of(declared, rule)
}

/// Has an operand that the model leaves open declare this shape, if there is one that can be declared: no
/// extent of it is 0, which would stand for an open one.
fn fill_in(operands: &mut [Operand], at: u32, shape: Option<Shape>) {
    let (Some(operand), Some(shape)) = (operands.get_mut(at as usize), shape) else {
        return;
    };
    let is_open =
        Shape::new(&operand.dimensions).is_ok_and(|declared| !is_exact(&declared) && declared.allows(&shape));
    if operand.operand_type.is_tensor() && is_open && is_exact(&shape) {
        operand.dimensions = shape.dims().to_vec();
    }
}
