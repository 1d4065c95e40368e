//! A call of one operation, by the names of its parameters.

use nnhal_hal::ops::{self, Form, OperationEntry};
use nnhal_hal::{OperandType, OperationType, Subgraph};

use crate::generator::{Generated, key};

/// A model with a request, one argument of which is wrong. What the model holds may be refused with it, and
/// what comes with the request by the execution.
#[derive(Clone, Debug)]
pub struct WrongArgument {
    /// What was changed.
    pub change: String,
    /// The model and the request.
    pub generated: Generated,
}

/// An operation with its arguments.
pub(super) struct Call<'a> {
    main: &'a Subgraph,
    pub(super) operation: OperationType,
    arguments: &'a [u32],
}

impl Call<'_> {
    /// The operand that is this argument.
    pub(super) fn operand(&self, number: usize) -> usize {
        self.arguments
            .get(number)
            .map_or(usize::MAX, |operand| *operand as usize)
    }

    /// Whether the operand stands at another place, too.
    pub(super) fn is_another_too(&self, number: usize) -> bool {
        let same = |operand: &&u32| **operand as usize == self.operand(number);
        self.arguments.iter().filter(same).count() > 1
    }

    pub(super) fn ty(&self, number: usize) -> Option<OperandType> {
        Some(self.main.operands.get(self.operand(number))?.operand_type)
    }

    /// The dimensions of an argument, if the model declares all of them.
    pub(super) fn dims(&self, number: usize) -> Option<&[u32]> {
        let dims = self
            .main
            .operands
            .get(self.operand(number))?
            .dimensions
            .as_slice();
        (!dims.is_empty() && !dims.contains(&0)).then_some(dims)
    }
}

/// Visits the arguments of a model of one operation, each with its number and name.
pub(super) fn for_each_argument(generated: &Generated, visit: &mut dyn FnMut(&Call<'_>, usize, &str)) {
    let main = &generated.model.model.main;
    let [operation] = main.operations.as_slice() else {
        return;
    };
    let Some((entry, form)) = form_of(main) else {
        return;
    };
    let call = Call {
        main,
        operation: entry.operation,
        arguments: &operation.inputs,
    };
    for number in 0..operation.inputs.len() {
        if let Some(param) = form.param(number, operation.inputs.len()) {
            visit(&call, number, &key(param.name));
        }
    }
}

/// The entry of a graph's only operation, and the argument list whose types it has.
fn form_of(main: &Subgraph) -> Option<(&'static OperationEntry, &'static Form)> {
    let operation = main.operations.first()?;
    let entry = ops::entry(operation.operation_type)?;
    let count = operation.inputs.len();
    let has_its_types = |form: &&Form| {
        let fits = |(number, operand): (usize, &u32)| {
            let ty = main.operands[*operand as usize].operand_type;
            let types = form.param(number, count).map(|param| entry.types_of(form, param));
            types.is_some_and(|types| types.iter().any(|(of_param, _)| *of_param == ty))
        };
        let (least, most) = form.arity();
        (least..=most).contains(&count) && operation.inputs.iter().enumerate().all(fits)
    };
    entry.forms.iter().find(has_its_types).map(|form| (entry, form))
}
