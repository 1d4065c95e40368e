//! The documentation's page of operations, made from the table.

use std::fmt::Write as _;

use crate::{HalVersion, OperandType, OperationType, tflite};

use super::entry;
use super::operation_entry::{OperationEntry, ShapeRule};
use super::signature::{Form, Param, Presence, Rank, Ty};

const HEAD: &str = "\
# Operations

Every operation of NN HAL 1.0 to 1.3 and of NNAPI's feature levels 6 and 7, with what this project's operation table
says of it. Validation, the version check, support answers and output shapes are made from the same table. This page is
made from the code: `cargo run --example operation_table > docs/operations.md`.

Reading it:

- A type is followed by the first HAL version in which it stands there. Where an operation's types depend on each
  other, the combinations are listed.
- Arguments in brackets may be left off at the end of the list. Those with a question mark may be omitted
  (`NO_VALUE`, or no value in the request). Those with an ellipsis may occur any number of times.
- The shape of an output is inferred from the inputs, computed with the values (data dependent), or given by the
  graphs that the operation runs.

## Signed and unsigned bytes

A model of `TENSOR_QUANT8_ASYMM` and its twin of `TENSOR_QUANT8_ASYMM_SIGNED`, with all values and zero points 128 lower,
give results that are exactly 128 apart. The exceptions:

- AVERAGE_POOL_2D and L2_NORMALIZATION can be one step off, as in TFLite's kernels, which the HAL's reference calls.
  A mean between two steps goes up if unsigned and away from zero if signed. Along the last axis, L2_NORMALIZATION
  multiplies unsigned bytes by 128 before it scales them and signed bytes while it does, which rounds otherwise.
- CAST, LSH_PROJECTION and PAD_V2 take bytes or a scalar as they stand, not the numbers that they stand for;
  HASHTABLE_LOOKUP and QUANTIZED_16BIT_LSTM have no signed form. The HAL's driver tests leave out the same five.
";

const EXTENSION_HEAD: &str = "
# The extension org.nnhal.tflite

What TFLite's CPU runtime computes and NNAPI has no operation for, or not for these types and ranks. Both CPU devices
have the extension. An operation that NNAPI has too keeps its number, and its arguments and meaning except where
its description says otherwise.

Its one operand type, number 0, is `TFLITE_TENSOR_INT64`: a tensor of signed 64-bit integers, 8 bytes each, without
a scale.

| operation | number | types of the result | output shape | what it does |
|---|--:|---|---|---|
";

/// What stands in the page for operations that have no entry in the table.
const WITHOUT_ENTRY: &[(OperationType, &str, &str)] = &[
    (
        OperationType::IF,
        "TENSOR_BOOL8 condition, two SUBGRAPHs, their arguments",
        "that of the branch taken",
    ),
    (
        OperationType::WHILE,
        "two SUBGRAPHs (condition, body), initial values",
        "those of the last iteration",
    ),
    (
        OperationType::OEM_OPERATION,
        "recognised and refused as unsupported",
        "none",
    ),
];

/// The page, in Markdown: one line for each operation, then each operation's argument lists.
#[must_use]
pub fn operation_page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "\n## Table\n\n| operation | code | HAL | types of the result | output shape | what it does |\n",
    );
    page.push_str("|---|--:|---|---|---|---|\n");
    for operation in OperationType::ALL {
        let (types, shape) = match (entry(*operation), without_entry(*operation)) {
            (Some(entry), _) => (result_types(entry), shape_rule(entry.shape).to_owned()),
            (None, Some((types, shape))) => (types.to_owned(), shape.to_owned()),
            (None, None) => ("not in the table yet".to_owned(), String::new()),
        };
        let _ = writeln!(
            page,
            "| {operation} | {} | {} | {types} | {shape} | {} |",
            operation.0,
            operation.since().unwrap_or(HalVersion::V1_0),
            operation.description().unwrap_or_default().replace('|', "\\|"),
        );
    }
    page.push_str("\n## Arguments\n");
    for entry in OperationType::ALL
        .iter()
        .filter_map(|operation| entry(*operation))
    {
        write_arguments(&mut page, entry);
    }
    write_extension(&mut page);
    page
}

/// The operations of the extension for TFLite.
fn write_extension(page: &mut String) {
    page.push_str(EXTENSION_HEAD);
    for operation in tflite::OPERATIONS {
        let Some(entry) = entry(*operation) else { continue };
        let (types, shape) = (result_types(entry), shape_rule(entry.shape));
        let number = operation.extension_number();
        let description = operation.description().unwrap_or_default();
        let _ = writeln!(
            page,
            "| {operation} | {number} | {types} | {shape} | {description} |"
        );
    }
    for entry in tflite::OPERATIONS
        .iter()
        .filter_map(|operation| entry(*operation))
    {
        write_arguments(page, entry);
    }
}

fn without_entry(operation: OperationType) -> Option<(&'static str, &'static str)> {
    WITHOUT_ENTRY
        .iter()
        .find(|(without, ..)| *without == operation)
        .map(|(_, types, shape)| (*types, *shape))
}

fn shape_rule(rule: ShapeRule) -> &'static str {
    match rule {
        ShapeRule::Infer(_) => "inferred",
        ShapeRule::DataDependent => "data dependent",
        ShapeRule::ControlFlow => "that of a graph",
    }
}

fn result_types(entry: &OperationEntry) -> String {
    let earliest = entry.forms.iter().min_by_key(|form| form.since);
    match (earliest, entry.outputs.first()) {
        (Some(form), Some(output)) => types(entry, form, output),
        _ => String::new(),
    }
}

fn types(entry: &OperationEntry, form: &Form, param: &Param) -> String {
    list(
        entry
            .types_of(form, param)
            .iter()
            .map(|(ty, since)| format!("{ty} {since}")),
    )
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn write_arguments(page: &mut String, entry: &OperationEntry) {
    let _ = writeln!(page, "\n### {}", entry.operation);
    if entry.variants.iter().any(|variant| variant.types.len() > 1) {
        page.push_str("\nTypes that go together:\n\n");
        for variant in entry.variants {
            let names = list(variant.types.iter().map(ToString::to_string));
            let condition = if variant.only_if.is_some() {
                ", under a condition on quantisation"
            } else {
                ""
            };
            let since = variant
                .since
                .max(entry.operation.since().unwrap_or(HalVersion::V1_0));
            let _ = writeln!(page, "- {names} (since {since}{condition})");
        }
    }
    for form in entry.forms {
        let since = form
            .since
            .max(entry.operation.since().unwrap_or(HalVersion::V1_0));
        let _ = writeln!(page, "\nInputs, {}, since {since}:\n", form.name);
        for (number, param) in form.inputs.iter().enumerate() {
            write_param(page, entry, form, (number, param));
        }
    }
    let many = if entry.outputs_repeat {
        ", the last any number of times"
    } else {
        ""
    };
    let _ = writeln!(page, "\nOutputs{many}:\n");
    if let Some(form) = entry.forms.iter().min_by_key(|form| form.since) {
        for (number, param) in entry.outputs.iter().enumerate() {
            write_param(page, entry, form, (number, param));
        }
    }
}

fn write_param(page: &mut String, entry: &OperationEntry, form: &Form, (number, param): (usize, &Param)) {
    let name = match param.presence {
        Presence::Required => param.name.to_owned(),
        Presence::Omissible => format!("{}?", param.name),
        Presence::Trailing => format!("[{}]", param.name),
        Presence::Repeated => format!("{}...", param.name),
    };
    let is_tensor = |ty: &(OperandType, HalVersion)| ty.0.is_tensor();
    let rank = match param.rank {
        Rank::Any => String::new(),
        rank if entry.types_of(form, param).iter().any(is_tensor) => format!(", rank {rank}"),
        _ => String::new(),
    };
    let types = match param.ty {
        Ty::Is(only) => format!("{only}, since {}", since(entry, form, param)),
        Ty::Var(_) | Ty::AnyOf(_) => types(entry, form, param),
    };
    let _ = writeln!(page, "{number}. `{name}`: {types}{rank}");
}

fn since(entry: &OperationEntry, form: &Form, param: &Param) -> HalVersion {
    let operation = entry.operation.since().unwrap_or(HalVersion::V1_0);
    operation.max(form.since).max(param.since)
}

#[cfg(test)]
mod tests {
    use super::operation_page;

    #[test]
    fn the_documentation_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == operation_page(),
            "docs/operations.md is out of date: cargo run --example operation_table > docs/operations.md"
        );
    }
}
