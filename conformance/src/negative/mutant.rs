//! A model that breaks a rule, and where.

use nnhal_hal::Model;

/// Where a mutant is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An operand of the main graph.
    Operand(usize),
    /// An operation of the main graph.
    Operation(usize),
    /// The main graph as a whole.
    Graph,
}

/// A model that breaks a rule.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What was changed.
    pub change: String,
    /// The model.
    pub model: Model,
    /// Where the fault can be seen; a refusal must name one of these.
    pub places: Vec<Place>,
}

impl Mutant {
    /// Whether a refusal says where the fault is. Whoever uses a wrong operand may be named instead of it.
    #[must_use]
    pub fn is_named_in(&self, message: &str) -> bool {
        let operations = self.model.main.operations.iter().enumerate();
        let users = operations.filter(|(_, operation)| {
            self.places.iter().any(|place| {
                let Place::Operand(operand) = place else {
                    return false;
                };
                let arguments = operation.inputs.iter().chain(&operation.outputs);
                arguments
                    .into_iter()
                    .any(|argument| *argument as usize == *operand)
            })
        });
        let named = |word: &str, index: usize| {
            message
                .split(|character: char| !character.is_alphanumeric())
                .collect::<Vec<_>>()
                .windows(2)
                .any(|pair| pair[0] == word && pair[1].parse() == Ok(index))
        };
        self.places.iter().any(|place| match place {
            Place::Operand(operand) => named("operand", *operand),
            Place::Operation(operation) => named("operation", *operation),
            Place::Graph => message.contains("main graph"),
        }) || users.into_iter().any(|(index, _)| named("operation", index))
    }
}
