//! A model made ready to run.

use std::sync::Arc;

use nnhal_hal::ops::{self, ShapeRule};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ConstantPools, ErrorStatus, OperandLifeTime, Operation, OperationType, Subgraph, SubgraphIndex,
};
use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use super::clamping::clamp;
use super::constants::Constants;
use super::declared::Declared;
use super::fixed_outputs::FixedOutputs;
use super::folding::fold;
use super::fusion::{FusedGroup, fuse, fuse_for_several};
use super::{Interrupt, Interrupted, NeverInterrupted};
use crate::fast::{self, FloatLayer, Packing, PackingError, PlannedStep};
use crate::kernel::{Constant, Kernel};
use crate::kernels;

/// A model made ready to run; shared by all its executions.
#[derive(Debug)]
pub struct Program {
    pub(super) model: Arc<ValidModel>,
    /// The main graph, then the referenced ones.
    pub(super) graphs: Vec<Graph>,
}

/// Which kernels compute a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSet {
    /// The reference kernels.
    Reference,
    /// Steps made at preparation for the operations that have them, the reference kernels for the others.
    Fast,
}

#[derive(Debug)]
pub(super) struct Graph {
    /// By operand.
    pub(super) constants: Vec<Option<Constant>>,
    /// By operation.
    pub(super) steps: Vec<Step>,
    /// The constants that steps replace, which have no bytes here.
    pub(super) replaced: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) work: Work,
    /// What its outputs are in every execution, if that is known.
    pub(super) fixed: Option<FixedOutputs>,
    /// With it this operation and those that follow are computed together, if everything that it reads is
    /// there.
    pub(super) group: Option<FusedGroup>,
    /// The same where several threads compute, in place of `group`.
    pub(super) parted: Option<FusedGroup>,
    /// Temporaries that nothing reads after this operation.
    pub(super) releases: Vec<u32>,
    /// Whether its output may have its input's memory, which nothing else reads: it gives a tensor another
    /// shape, or has nothing left to clamp.
    pub(super) renames: bool,
    /// Whether the layer before it has clamped what it is to clamp.
    pub(super) is_clamped_before: bool,
}

impl Step {
    fn new(work: Work) -> Step {
        Step {
            work,
            fixed: None,
            group: None,
            parted: None,
            releases: Vec::new(),
            renames: false,
            is_clamped_before: false,
        }
    }

    /// What computes this operation and those that follow together where so many threads compute.
    pub(super) fn group_for(&self, threads: usize) -> Option<&FusedGroup> {
        let parted = self.parted.as_ref().filter(|parted| parted.suits(threads));
        parted.or(self.group.as_ref())
    }

    /// Whether it was computed beforehand.
    pub(super) fn is_folded(&self) -> bool {
        matches!(self.work, Work::Folded)
    }

    /// The weights that it packed.
    pub(super) fn packed(&self) -> Vec<&AlignedSlice> {
        self.work.planned().map(PlannedStep::packed).unwrap_or_default()
    }

    /// The step that was made for it.
    pub(super) fn planned(&self) -> Option<&dyn PlannedStep> {
        self.work.planned()
    }

    pub(super) fn planned_mut(&mut self) -> Option<&mut dyn PlannedStep> {
        match &mut self.work {
            Work::Planned { step, .. } => Some(&mut **step),
            Work::Compute { .. } | Work::If | Work::While | Work::Folded => None,
        }
    }

    /// What it is, if it is a convolution of floats of which everything is known.
    pub(super) fn float_layer(&self) -> Option<FloatLayer<'_>> {
        self.work.planned()?.float_layer()
    }

    /// How many elements its only output has in every execution, if that is known.
    pub(super) fn elements(&self) -> Option<usize> {
        self.fixed.as_ref()?.elements()
    }
}

impl Work {
    fn planned(&self) -> Option<&dyn PlannedStep> {
        match self {
            Work::Planned { step, .. } => Some(&**step),
            Work::Compute { .. } | Work::If | Work::While | Work::Folded => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Work {
    Compute {
        kernel: Kernel,
        shape: ShapeRule,
    },
    /// Computed by a step that was made for this operation and its constants.
    Planned {
        step: Box<dyn PlannedStep>,
        shape: ShapeRule,
    },
    If,
    While,
    /// Done once, when the program was made: its outputs are constants.
    Folded,
}

/// Why a model cannot be made ready.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no kernel for one of its operations.
    #[error("operation {index} ({operation}) of the {graph} is not supported: {reason}")]
    Unsupported {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation in the graph.
        index: usize,
        /// The operation.
        operation: OperationType,
        /// Why.
        reason: String,
    },
    /// Its constants do not fit in memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// What was kept of the program is not that of this model.
    #[error("the compiled form does not have the size of this model's")]
    UnfitCompiled,
    /// A constant that the program needs is not there.
    #[error("the bytes of the constant operand {operand} are missing")]
    MissingConstant {
        /// The operand in its graph.
        operand: usize,
    },
    /// Stopped from outside.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl From<PackingError> for ProgramError {
    fn from(error: PackingError) -> ProgramError {
        match error {
            PackingError::OutOfMemory(error) => ProgramError::OutOfMemory(error),
            PackingError::Unfit => ProgramError::UnfitCompiled,
        }
    }
}

impl ProgramError {
    /// The HAL status for the error.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        match self {
            // A valid model that this device does not take: no argument is wrong.
            ProgramError::Unsupported { .. }
            | ProgramError::UnfitCompiled
            | ProgramError::MissingConstant { .. } => ErrorStatus::GeneralFailure,
            ProgramError::OutOfMemory(_) => ErrorStatus::ResourceExhaustedTransient,
            ProgramError::Interrupted(interrupted) => interrupted.status(),
        }
    }
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
        let graphs: Vec<Graph> = model
            .model()
            .subgraphs()
            .map(|(at, graph)| {
                let constants = Constants::new((model.model(), graph), pools, (kernels, packing), interrupt)?;
                let relaxed = model.model().relax_computation_float32_to_float16;
                Graph::new(
                    (at, graph, relaxed),
                    constants,
                    (kernels, &mut *packing),
                    interrupt,
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Program { model, graphs })
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
        let Some((subgraph, steps)) = self.steps(graph) else {
            return fast::REFERENCE;
        };
        let Some(first) = self.computed_with(graph, operation, threads) else {
            return "constant, computed beforehand";
        };
        if first < operation {
            return "with the one before";
        }
        if let Some(group) = steps.get(first).and_then(|step| step.group_for(threads)) {
            return group.name();
        }
        let input = || {
            let first = *subgraph.operations.get(operation)?.inputs.first()?;
            Some(subgraph.operands.get(first as usize)?.operand_type)
        };
        if let Some(step) = steps.get(operation).filter(|step| step.renames) {
            return if step.is_clamped_before {
                "as activation of the one before"
            } else {
                "another shape in the same memory"
            };
        }
        match steps.get(operation).map(|step| &step.work) {
            Some(Work::Planned { step, .. }) => input().map_or(fast::REFERENCE, |input| step.name(input)),
            Some(Work::If | Work::While) => "control flow",
            Some(Work::Compute { .. } | Work::Folded) | None => fast::REFERENCE,
        }
    }

    /// The first of the operations that an operation is computed together with where so many threads compute,
    /// if everything that they read is there: itself if it is computed alone, or is the first. `None` if it
    /// was computed beforehand.
    #[must_use]
    pub fn computed_with(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> Option<usize> {
        let steps = self.steps(graph).map_or(&[][..], |(_, steps)| steps);
        let Some(step) = steps.get(operation) else {
            return Some(operation);
        };
        if step.is_folded() {
            return None;
        }
        let (mut first, mut next) = (operation, 0);
        while next <= operation {
            first = next;
            next += operations_from(steps.get(first), threads);
        }
        Some(first)
    }

    fn steps(&self, graph: SubgraphIndex) -> Option<(&Subgraph, &[Step])> {
        let model = self.model.model();
        let (number, subgraph) = match graph {
            SubgraphIndex::Main => (0, &model.main),
            SubgraphIndex::Referenced(index) => (index + 1, model.referenced.get(index)?),
        };
        Some((subgraph, &self.graphs.get(number)?.steps))
    }

    /// Why an operation cannot be run here, or `None` if it can. For IF and WHILE this speaks of the
    /// operation itself, not of what its subgraphs contain.
    #[must_use]
    pub fn refusal(operation: OperationType) -> Option<String> {
        if operation.is_control_flow() || kernels::kernel(operation).is_some() {
            return None;
        }
        Some(if operation == OperationType::OEM_OPERATION {
            "OEM operations are vendor-specific and deprecated; this device has none".to_owned()
        } else if operation.is_extension() {
            "this device has no extensions".to_owned()
        } else {
            format!("this device has no kernel for {operation}")
        })
    }
}

/// How many operations are computed together from a step on where so many threads compute.
pub(super) fn operations_from(step: Option<&Step>, threads: usize) -> usize {
    let group = step.and_then(|step| step.group_for(threads));
    group.map_or(1, FusedGroup::operations)
}

impl Graph {
    fn new(
        (at, graph, relaxed): (SubgraphIndex, &Subgraph, bool),
        mut constants: Constants<'_>,
        (kernel_set, packing): (KernelSet, &mut Packing),
        interrupt: &dyn Interrupt,
    ) -> Result<Graph, ProgramError> {
        let mut steps = Vec::with_capacity(graph.operations.len());
        for (index, operation) in graph.operations.iter().enumerate() {
            interrupt.check()?;
            let filter = operation.inputs.get(1).copied();
            let declared = Declared {
                operation,
                operands: &graph.operands,
                constants: &constants.values,
            };
            if kernel_set == KernelSet::Fast
                && let Some(results) = fold(&declared, constants.room(), relaxed, interrupt)?
            {
                constants.add_folded(operation, results);
                steps.push(Step::new(Work::Folded));
                continue;
            }
            let work = match operation.operation_type {
                OperationType::IF => Work::If,
                OperationType::WHILE => Work::While,
                operation => {
                    let unsupported = |reason| ProgramError::Unsupported {
                        graph: at,
                        index,
                        operation,
                        reason,
                    };
                    let refusal = || {
                        unsupported(
                            Program::refusal(operation).unwrap_or_else(|| "it has no shape rule".to_owned()),
                        )
                    };
                    let kernel = kernels::kernel(operation).ok_or_else(refusal)?;
                    let shape = ops::entry(operation).ok_or_else(refusal)?.shape;
                    let planned = match kernel_set {
                        KernelSet::Reference => None,
                        KernelSet::Fast => {
                            let filter = filter.map_or(&[][..], |filter| constants.bytes(filter));
                            fast::plan(&declared, filter, (&mut *packing, relaxed))?
                        }
                    };
                    match planned {
                        Some(step) => Work::Planned { step, shape },
                        None => Work::Compute { kernel, shape },
                    }
                }
            };
            let fixed = match work {
                Work::Compute { shape, .. } | Work::Planned { shape, .. } => {
                    FixedOutputs::of(&declared, shape)
                }
                Work::If | Work::While | Work::Folded => None,
            };
            if let Some(filter) = filter {
                constants.note_reader(filter, work.planned());
            }
            steps.push(Step {
                fixed,
                ..Step::new(work)
            });
        }
        if kernel_set == KernelSet::Fast {
            clamp(graph, &mut steps);
        }
        release_after_last_reader(graph, &mut steps);
        for (operation, step) in graph.operations.iter().zip(&mut steps) {
            step.renames =
                kernel_set == KernelSet::Fast && renames((graph, &constants.values), operation, step);
        }
        if kernel_set == KernelSet::Fast {
            fuse(graph, &constants.values, &mut steps, interrupt)?;
            fuse_for_several(graph, &constants.values, &mut steps, interrupt)?;
        }
        let executed = graph.operations.iter().zip(&steps);
        let executed = executed.filter(|(_, step)| !step.is_folded());
        let read = executed.flat_map(|(operation, _)| operation.inputs.iter().copied());
        let (constants, replaced) = constants.finish(read)?;
        Ok(Graph {
            constants,
            steps,
            replaced,
        })
    }
}

/// Whether an operation does nothing but give a temporary, which it is the last to read, another shape that
/// is known, or the same one.
fn renames((graph, constants): (&Subgraph, &[Option<Constant>]), operation: &Operation, step: &Step) -> bool {
    let is_another_shape = matches!(
        operation.operation_type,
        OperationType::RESHAPE | OperationType::SQUEEZE | OperationType::EXPAND_DIMS
    );
    let (Some(input), &[output]) = (operation.inputs.first(), &operation.outputs[..]) else {
        return false;
    };
    let operand = |at: u32| graph.operands.get(at as usize);
    let is_temporary =
        operand(output).is_some_and(|operand| operand.lifetime == OperandLifeTime::TemporaryVariable);
    let is_constant = constants.get(*input as usize).is_none_or(Option::is_some);
    (is_another_shape || step.is_clamped_before)
        && is_temporary
        && !is_constant
        && step.fixed.is_some()
        && step.releases.contains(input)
}

/// Notes with each step the temporaries that nothing reads after it.
fn release_after_last_reader(graph: &Subgraph, steps: &mut [Step]) {
    let mut seen = vec![false; graph.operands.len()];
    for (operation, step) in graph.operations.iter().zip(steps).rev() {
        for &operand in operation.inputs.iter().chain(&operation.outputs) {
            let at = operand as usize;
            let temporary = graph.operands[at].lifetime == OperandLifeTime::TemporaryVariable;
            if temporary && !std::mem::replace(&mut seen[at], true) {
                step.releases.push(operand);
            }
        }
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

    use super::super::{Interrupt, Interrupted};
    use super::{KernelSet, Program, ProgramError};

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
            prepare(2 * OPERATIONS + 1).unwrap();
        }
    }
}
