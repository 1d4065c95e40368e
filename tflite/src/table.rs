//! The table of operators, for the documentation.

use std::fmt::Write as _;

use crate::operators::{Builtin, FAMILIES, unmapped_reason};

const HEAD: &str = "\
# TFLite operators

How the importer (`nnhal-tflite`) turns the builtin operators of the `.tflite` format into operations: NNAPI's, or those
of the extension `org.nnhal.tflite` (`TFLITE_...`, see [operations.md](operations.md)). This page is made from the code:
`cargo run -p nnhal-tflite --example operator_table > docs/tflite-operators.md`.

Beyond the table:

- Dimensions are those that NNAPI's rules give; a file's own are used only where those cannot tell. A scalar is a
  tensor of one element.
- Constant float16 is float32 after a DEQUANTIZE, int4 constants are int8.
- Extents, axes and indices of 64 bits are 32-bit ones where an operation takes no others: constants, which must fit,
  at import, others by CAST to the closest value.
- Operators on constant integers, with which files compute shapes, are computed at import: SHAPE, RANK, RESHAPE,
  SQUEEZE, EXPAND_DIMS, ADD, SUB, MUL, DIV, FLOOR_DIV, FLOOR_MOD, MAXIMUM, MINIMUM, CAST, SUM, REDUCE_PROD, REDUCE_MAX,
  REDUCE_MIN, STRIDED_SLICE, SLICE, GATHER, CONCATENATION, PACK, FILL, RANGE, BROADCAST_ARGS.
- A complex number is two floats along one more axis, real and imaginary part. Outputs of the model may be complex.
- A variable tensor, or a resource variable, is an input and an output of the model, to be carried from one execution
  to the next.
- Extents that a file leaves open are those that it states, unless an import gives others.
- Where NNAPI's operation does not take the operands, the extension's of the same name does, if it can.
- An output that is an input, a constant or another output once more is a copy by CAST.
";

/// The documentation's page of operators, in Markdown: what each becomes, and why others become nothing.
#[must_use]
pub fn operator_table() -> String {
    let mut page = HEAD.to_owned();
    for (family, mappings) in FAMILIES {
        let _ = write!(page, "\n## {family}\n\n| TFLite | NNAPI | how |\n|---|---|---|\n");
        for mapping in *mappings {
            let operations: Vec<String> = mapping.to.iter().map(ToString::to_string).collect();
            let operations = if operations.is_empty() {
                "none".to_owned()
            } else {
                operations.join(", ")
            };
            let _ = writeln!(page, "| {} | {operations} | {} |", mapping.operator, mapping.rule);
        }
    }
    page.push_str("\n## Without an equivalent\n\n| TFLite | why |\n|---|---|\n");
    for (operator, reason) in Builtin::ALL
        .iter()
        .filter_map(|operator| Some((operator, unmapped_reason(*operator)?)))
    {
        let _ = writeln!(page, "| {operator} | {reason} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::operator_table;

    #[test]
    fn the_documentation_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tflite-operators.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == operator_table(),
            "docs/tflite-operators.md is out of date: \
             cargo run -p nnhal-tflite --example operator_table > docs/tflite-operators.md"
        );
    }
}
