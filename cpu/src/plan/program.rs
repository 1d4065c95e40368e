//! A model made ready to run.

use std::sync::Arc;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{ConstantPools, OperationType, Subgraph, SubgraphIndex};

use super::constants::Constants;
use super::error::ProgramError;
use super::kernel_set::KernelSet;
use super::lower::{Plan, refusal};
use super::node::Node;
use super::shapes::ShapedPrograms;
use crate::fast::{self, Packing};
use crate::interrupt::{Interrupt, NeverInterrupted};

/// A model made ready to run; shared by all its executions.
#[derive(Debug)]
pub struct Program {
    pub(crate) model: Arc<ValidModel>,
    /// Of the main graph, then of the referenced ones.
    pub(crate) plans: Vec<Arc<Plan>>,
    /// The main graph, if more is known of its extents than the model says.
    pub(super) shaped: Option<Box<Subgraph>>,
    /// The programs for shapes that inputs have often, if the model leaves some open.
    pub(crate) for_shapes: Option<ShapedPrograms<Arc<Program>>>,
}

impl Program {
    /// Makes `model` ready to run with the reference kernels. Constants are copied; `pools` is not needed
    /// afterwards.
    pub fn new(model: Arc<ValidModel>, pools: &dyn ConstantPools) -> Result<Program, ProgramError> {
        Program::with_kernels(model, pools, KernelSet::Reference)
    }

    /// The same with a choice of kernels.
    pub fn with_kernels(
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        kernels: KernelSet,
    ) -> Result<Program, ProgramError> {
        Program::with_interrupt(model, pools, kernels, &NeverInterrupted)
    }

    /// The same in steps: `interrupt` is asked before every constant that is copied and before every
    /// operation.
    pub fn with_interrupt(
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        kernels: KernelSet,
        interrupt: &dyn Interrupt,
    ) -> Result<Program, ProgramError> {
        Program::make(model, pools, (kernels, &mut Packing::Now), interrupt)
    }

    /// Makes a model ready with weights out of `packing`.
    pub(super) fn make(
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        (kernels, packing): (KernelSet, &mut Packing),
        interrupt: &dyn Interrupt,
    ) -> Result<Program, ProgramError> {
        let relaxed = model.model().relax_computation_float32_to_float16;
        let plans = model.model().subgraphs().map(|(at, graph)| {
            let constants = Constants::new((model.model(), graph), pools, (kernels, packing), interrupt)?;
            Plan::new(
                (at, graph, relaxed),
                constants,
                (kernels, &mut *packing),
                interrupt,
            )
        });
        let plans = plans.map(|plan| plan.map(Arc::new)).collect::<Result<_, _>>()?;
        let for_shapes = (kernels == KernelSet::Fast).then(|| ShapedPrograms::of(&model));
        Ok(Program {
            model,
            plans,
            shaped: None,
            for_shapes: for_shapes.flatten(),
        })
    }

    /// The main graph, with all that is known of its extents.
    #[inline]
    pub(crate) fn main(&self) -> &Subgraph {
        match &self.shaped {
            None => &self.model.model().main,
            Some(shaped) => shaped,
        }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<ValidModel> {
        &self.model
    }

    /// What computes an operation where so many threads compute, for people to read: the name of a step that
    /// was made for it, or of the reference kernel.
    #[must_use]
    pub fn kernel_name(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> &'static str {
        match self.node(graph, operation, threads) {
            Some(node) => node.name_of(operation).unwrap_or(fast::REFERENCE),
            None if self.has(graph, operation) => "constant, computed beforehand",
            None => fast::REFERENCE,
        }
    }

    /// The first of the operations that an operation is computed together with where so many threads compute,
    /// if everything that they read is there: itself if it is computed alone, or is the first. `None` if it
    /// was computed beforehand.
    #[must_use]
    pub fn computed_with(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> Option<usize> {
        match self.node(graph, operation, threads) {
            Some(node) => Some(node.number()),
            None if self.has(graph, operation) => None,
            None => Some(operation),
        }
    }

    /// The node that computes an operation where so many threads compute.
    pub(super) fn node(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> Option<&Node> {
        let nodes = self.plan(graph)?.nodes.iter();
        let mut computing = nodes.flat_map(|node| node.by(threads));
        computing.find(|node| node.name_of(operation).is_some())
    }

    fn has(&self, graph: SubgraphIndex, operation: usize) -> bool {
        let graph = self.model.model().subgraphs().find(|(at, _)| *at == graph);
        graph.is_some_and(|(_, graph)| operation < graph.operations.len())
    }

    /// The plan of a graph.
    pub(super) fn plan(&self, graph: SubgraphIndex) -> Option<&Plan> {
        match graph {
            SubgraphIndex::Main => self.plans.first().map(|plan| &**plan),
            SubgraphIndex::Referenced(index) => self.plans.get(index.checked_add(1)?).map(|plan| &**plan),
        }
    }

    /// Why an operation cannot be run here, or `None` if it can. For IF and WHILE this speaks of the
    /// operation itself, not of what its subgraphs contain.
    #[must_use]
    pub fn refusal(operation: OperationType) -> Option<String> {
        refusal(operation)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{
        ErrorStatus, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType,
        Subgraph, SubgraphIndex,
    };

    use super::{KernelSet, Program, ProgramError};
    use crate::interrupt::{Interrupt, Interrupted};

    #[test]
    fn an_unsupported_operation_is_no_invalid_argument() {
        let error = ProgramError::Unsupported {
            graph: SubgraphIndex::Main,
            index: 0,
            operation: OperationType::OEM_OPERATION,
            reason: "it is vendor-specific".to_owned(),
        };
        assert_eq!(error.status(), ErrorStatus::GeneralFailure);
    }

    /// `x + x + ... + x`, with one constant.
    fn sums(operations: u32) -> Arc<ValidModel> {
        let tensor = |lifetime, consumers| {
            let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &[2]).with_lifetime(lifetime);
            operand.number_of_consumers = consumers;
            operand
        };
        let mut activation =
            Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
        activation.number_of_consumers = operations;
        activation.location.length = 4;
        let mut operands = vec![tensor(OperandLifeTime::SubgraphInput, operations + 1), activation];
        operands.extend((1..operations).map(|_| tensor(OperandLifeTime::TemporaryVariable, 1)));
        operands.push(tensor(OperandLifeTime::SubgraphOutput, 0));
        let add = |index| Operation {
            operation_type: OperationType::ADD,
            inputs: vec![if index == 0 { 0 } else { index + 1 }, 0, 1],
            outputs: vec![index + 2],
        };
        let model = Model {
            main: Subgraph {
                operands,
                operations: (0..operations).map(add).collect(),
                input_indexes: vec![0],
                output_indexes: vec![operations + 1],
            },
            operand_values: vec![0; 4],
            ..Model::default()
        };
        Arc::new(ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap())
    }

    /// Stops when it has been asked often enough.
    struct StopAfter(Cell<u32>);

    impl Interrupt for StopAfter {
        fn check(&self) -> Result<(), Interrupted> {
            match self.0.get().checked_sub(1) {
                Some(left) => self.0.set(left),
                None => return Err(Interrupted::DeadlineMissed),
            }
            Ok(())
        }
    }

    #[test]
    fn preparation_can_be_stopped_before_every_constant_and_every_operation() {
        const OPERATIONS: u32 = 5;
        let model = sums(OPERATIONS);
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let prepare = |asked| {
                let interrupt = StopAfter(Cell::new(asked));
                Program::with_interrupt(Arc::clone(&model), &NoPools, kernels, &interrupt)
            };
            for asked in 0..=OPERATIONS {
                let error = prepare(asked).unwrap_err();
                assert!(
                    matches!(error, ProgramError::Interrupted(Interrupted::DeadlineMissed)),
                    "after {asked} steps: {error}"
                );
                assert_eq!(error.status(), ErrorStatus::MissedDeadlineTransient);
            }
            // It is asked again where operations are looked at that might be computed together.
            prepare(4 * OPERATIONS).unwrap();
        }
    }
}
