//! Random number generators while a graph is imported: state that operators keep for themselves.
//!
//! A generator becomes a [`State`](crate::State) of the model: an input with what it is before the execution
//! and an output with what it is after.

use nnhal_hal::ops::tflite::random::GENERATOR_WORDS;
use nnhal_hal::{Operand, OperandLifeTime, OperandType};

use crate::graph::{GraphBuilder, Id};

/// The words of a generator: its key, then its counter.
pub(crate) type Words = [i32; GENERATOR_WORDS];

/// The generator of an operator.
#[derive(Debug)]
struct Generator {
    operator: usize,
    initial: Words,
    before: Id,
    after: Id,
}

/// Those of the operators of the main graph.
#[derive(Debug, Default)]
pub(crate) struct Generators(Vec<Generator>);

impl Generators {
    /// The generator of this operator, before and after it.
    pub(crate) fn add(
        &mut self,
        operator: usize,
        initial: Words,
        builder: &mut GraphBuilder,
    ) -> Result<[Id; 2], String> {
        let before = builder.add(operand().with_lifetime(OperandLifeTime::SubgraphInput))?;
        let after = builder.add(operand())?;
        self.0.push(Generator {
            operator,
            initial,
            before,
            after,
        });
        Ok([before, after])
    }

    /// Each with a name, what it is before and after an execution, and what it begins with.
    pub(crate) fn into_states(self) -> impl Iterator<Item = (String, Id, Id, Vec<u8>)> {
        self.0.into_iter().map(|generator| {
            let name = format!("generator of operator #{}", generator.operator);
            let initial = generator.initial.map(i32::to_le_bytes).concat();
            (name, generator.before, generator.after, initial)
        })
    }
}

/// The operand of a generator.
pub(crate) fn operand() -> Operand {
    Operand::new(OperandType::TENSOR_INT32, &[GENERATOR_WORDS as u32])
}
