//! Valid models made invalid one rule at a time, as the HAL's own driver tests do it: families M01 to M20 of
//! the test inventory, each under its number.
//!
//! A [`Mutation`] goes over a model and makes every [`Mutant`] that it knows: the changed model, what was
//! changed in words, and where. A driver must refuse each with INVALID_ARGUMENT, from
//! `getSupportedOperations` and from `prepareModel`, and say where the fault is. Mutations change the main
//! graph only and never its meaning to a legal one; what would stay legal is left out, each time with its
//! reason.
//!
//! [`wrong_values`] and [`wrong_shapes`] change the request, too: an execution may be what refuses them.
//!
//! M21 and M22 (preference and priority) are no property of a model, M23 (a cycle) is [`cycle`].

mod arguments;
mod call;
mod legal;
mod lifetimes;
mod models;
mod mutant;
mod operands;
mod order;
mod shapes;
mod types;
mod values;

pub use call::WrongArgument;
pub use models::{BaseModel, base_models, random_models};
pub use mutant::{Mutant, Place};
pub use order::cycle;
pub use shapes::wrong_shapes;
pub use values::wrong_values;

use nnhal_hal::Model;

/// A family of mutations.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its number in the inventory, `M01` to `M20`.
    pub number: &'static str,
    /// What it changes.
    pub what: &'static str,
    /// Makes every mutant of a model.
    pub mutants: fn(&Model, &mut dyn FnMut(Mutant)),
    /// A refusal must say one of these, for it to be this rule that was seen broken.
    pub rule: &'static [&'static str],
}

/// Every family that changes a model. Arguments after one that is missing or too many are read in another's
/// place, so that these families are also seen by types and ranks.
pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        number: "M01",
        what: "execution order",
        mutants: order::execution_order,
        rule: &["before an operation has written it"],
    },
    Mutation {
        number: "M02",
        what: "operand type unknown",
        mutants: operands::unknown_type,
        rule: &["the HAL knows codes", "does not map to an extension"],
    },
    Mutation {
        number: "M03",
        what: "operand rank",
        mutants: operands::rank,
        rule: &["must have none"],
    },
    Mutation {
        number: "M04",
        what: "operand scale",
        mutants: operands::scale,
        rule: &["scale", "per-channel"],
    },
    Mutation {
        number: "M05",
        what: "operand zero point",
        mutants: operands::zero_point,
        rule: &["zero point"],
    },
    Mutation {
        number: "M06",
        what: "lifetime, written and unwritten",
        mutants: lifetimes::written_or_not,
        rule: &[
            "no operation writes it",
            "before an operation has written it",
            "whose lifetime is",
        ],
    },
    Mutation {
        number: "M07",
        what: "lifetime against index lists",
        mutants: lifetimes::index_lists,
        rule: &[
            "put_indexes has operand",
            "but is not in input_indexes",
            "but is not in output_indexes",
        ],
    },
    Mutation {
        number: "M08",
        what: "number of consumers",
        mutants: operands::number_of_consumers,
        rule: &["number_of_consumers"],
    },
    Mutation {
        number: "M09",
        what: "second writer",
        mutants: order::second_writer,
        rule: &["is written already"],
    },
    Mutation {
        number: "M10",
        what: "operand type against operation",
        mutants: types::of_operands,
        rule: &[
            ", must be TENSOR_",
            ", must be TFLITE_TENSOR_",
            ", must be one of TENSOR_",
            ", must be one of INT32",
            ", must be INT32",
            ", must be FLOAT",
            ", must be BOOL",
            ", must be SUBGRAPH",
            ", must have rank",
            "exactly if its type is",
            "differ in type",
            "does not map to an extension",
        ],
    },
    Mutation {
        number: "M11",
        what: "operation type unknown",
        mutants: arguments::unknown_operation,
        rule: &["the HAL knows operations", "prefix is not mapped"],
    },
    Mutation {
        number: "M12",
        what: "operation input index",
        mutants: arguments::input_index,
        rule: &["the graph has"],
    },
    Mutation {
        number: "M13",
        what: "operation output index",
        mutants: arguments::output_index,
        rule: &["the graph has"],
    },
    Mutation {
        number: "M14",
        what: "write removed",
        mutants: order::write_removed,
        rule: &["before an operation has written it", "no operation writes it"],
    },
    Mutation {
        number: "M15",
        what: "operand removed everywhere",
        mutants: arguments::operand_removed,
        rule: &[
            "outputs, gives",
            "inputs, takes",
            "outputs, takes at least",
            "inputs, must have",
            "omitted but not optional",
            ", must have rank",
            ", must have one element",
            ", must be TENSOR_",
            ", must be one of TENSOR_",
            ", must be TFLITE_TENSOR_",
            ", must be INT32",
            ", must be FLOAT",
            ", must be BOOL",
            ", must be SUBGRAPH",
        ],
    },
    Mutation {
        number: "M16",
        what: "operation removed",
        mutants: arguments::operation_removed,
        rule: &[
            "before an operation has written it",
            "no operation writes it",
            "needs at least one",
        ],
    },
    Mutation {
        number: "M17",
        what: "operation input removed",
        mutants: arguments::input_removed,
        rule: &[
            "inputs, takes",
            "outputs, takes at least",
            "inputs, must have",
            ", must have rank",
            ", must have one element",
            ", must be TENSOR_",
            ", must be one of TENSOR_",
            ", must be TFLITE_TENSOR_",
            ", must be INT32",
            ", must be FLOAT",
            ", must be BOOL",
            ", must be SUBGRAPH",
        ],
    },
    Mutation {
        number: "M18",
        what: "operation output removed",
        mutants: arguments::output_removed,
        rule: &[
            "no operation writes it",
            "before an operation has written it",
            "gives",
        ],
    },
    Mutation {
        number: "M19",
        what: "operation input added",
        mutants: arguments::input_added,
        rule: &[
            "inputs, takes",
            "inputs, must have",
            ", must be TENSOR_",
            ", must be TFLITE_TENSOR_",
            ", must be INT32",
            ", must be FLOAT",
            ", must be BOOL",
            ", must be SUBGRAPH",
        ],
    },
    Mutation {
        number: "M20",
        what: "operation output added",
        mutants: arguments::output_added,
        rule: &[
            "outputs, gives",
            "outputs, must have",
            "neither may be fewer",
            "differ in type",
            ", must be TENSOR_",
            ", must be TFLITE_TENSOR_",
            ", must be INT32",
            ", must be FLOAT",
            ", must be BOOL",
            ", must be SUBGRAPH",
        ],
    },
];
