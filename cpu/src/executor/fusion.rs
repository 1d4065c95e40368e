//! Which operations of a graph are computed together.

use nnhal::hal::{OperandLifeTime, Subgraph};

use super::declared::Declared;
use super::program::Step;
use super::{Interrupt, Interrupted};
use crate::fast::Fused;
use crate::kernel::Constant;

/// Notes with the first of operations that can be computed together that they are.
///
/// # Errors
/// `interrupt`, which is asked before each of them.
pub(super) fn fuse(
    graph: &Subgraph,
    constants: &[Option<Constant>],
    steps: &mut [Step],
    interrupt: &dyn Interrupt,
) -> Result<(), Interrupted> {
    let readers = Readers::of(graph);
    let mut first = 0;
    while first < steps.len() {
        interrupt.check()?;
        let fused = steps[first].elements().and_then(|elements| {
            let alike = steps[first..]
                .iter()
                .take_while(|step| step.elements() == Some(elements));
            let operations = graph.operations[first..].iter().zip(alike);
            let declared = operations.map(|(operation, _)| Declared {
                operation,
                operands: &graph.operands,
                constants,
            });
            let ends_within = |operand, count| readers.end_before(operand, first + count);
            Fused::longest(declared, elements, ends_within)
        });
        let count = fused.as_ref().map_or(1, Fused::operations);
        steps[first].fused = fused;
        first += count;
    }
    Ok(())
}

/// How long operands are needed.
struct Readers {
    /// By operand: the number behind that of the last operation which reads it; none if it is read from outside.
    ends: Vec<Option<usize>>,
}

impl Readers {
    fn of(graph: &Subgraph) -> Readers {
        let operands = graph.operands.iter();
        let mut ends: Vec<Option<usize>> = operands
            .map(|operand| (operand.lifetime == OperandLifeTime::TemporaryVariable).then_some(0))
            .collect();
        for (number, operation) in graph.operations.iter().enumerate() {
            for &operand in &operation.inputs {
                if let Some(Some(end)) = ends.get_mut(operand as usize) {
                    *end = number + 1;
                }
            }
        }
        Readers { ends }
    }

    /// Whether nothing reads an operand from this operation on, nor from outside.
    fn end_before(&self, operand: u32, operation: usize) -> bool {
        let end = self.ends.get(operand as usize).copied().flatten();
        end.is_some_and(|end| end <= operation)
    }
}
