//! The operators without an equivalent in NNAPI, each with the reason that a refusal states.

use super::builtin::Builtin;

const NO_EQUIVALENT: &str = "NNAPI has no equivalent";
const NO_RESOURCES: &str = "NNAPI has no hash tables";
const NO_TEXT: &str = "NNAPI has no text or key-value operations";
const NO_SPARSE_FORM: &str = "NNAPI has no sparse look-ups";
const NO_BITS: &str = "NNAPI has no operations on bits";
const NO_COMPLEX: &str = "NNAPI has no complex numbers";
const NO_CALLS: &str = "NNAPI calls graphs by IF and WHILE only";
const NO_STABLEHLO: &str = "NNAPI has no StableHLO operations; convert the model without them";
const NO_RANDOM: &str = "NNAPI's only random operation is RANDOM_MULTINOMIAL";

/// The reason for each operator of the format that has no mapping.
const REASONS: &[(Builtin, &str)] = &[
    (Builtin::CONCAT_EMBEDDINGS, NO_EQUIVALENT),
    (Builtin::SKIP_GRAM, NO_TEXT),
    (Builtin::CALL, NO_CALLS),
    (Builtin::CUSTOM, "NNAPI has no equivalent of custom operators"),
    (Builtin::EMBEDDING_LOOKUP_SPARSE, NO_SPARSE_FORM),
    (Builtin::DELEGATE, NO_EQUIVALENT),
    (Builtin::FAKE_QUANT, NO_EQUIVALENT),
    (
        Builtin::PLACEHOLDER_FOR_GREATER_OP_CODES,
        "it is no operator but a placeholder of the format",
    ),
    (Builtin::RFFT2D, NO_COMPLEX),
    (Builtin::IMAG, NO_COMPLEX),
    (Builtin::REAL, NO_COMPLEX),
    (Builtin::COMPLEX_ABS, NO_COMPLEX),
    (Builtin::HASHTABLE, NO_RESOURCES),
    (Builtin::HASHTABLE_FIND, NO_RESOURCES),
    (Builtin::HASHTABLE_IMPORT, NO_RESOURCES),
    (Builtin::HASHTABLE_SIZE, NO_RESOURCES),
    (Builtin::BROADCAST_ARGS, NO_EQUIVALENT),
    (Builtin::RANDOM_STANDARD_NORMAL, NO_RANDOM),
    (Builtin::RANDOM_UNIFORM, NO_RANDOM),
    (Builtin::BITCAST, NO_BITS),
    (Builtin::DILATE, NO_EQUIVALENT),
    (Builtin::REDUCE_WINDOW, NO_EQUIVALENT),
];

/// Whether the operator is StableHLO's.
fn is_stablehlo(operator: Builtin) -> bool {
    operator.name().is_some_and(|name| name.starts_with("STABLEHLO_"))
}

/// Whether there is a reason why this operator has no mapping.
pub(crate) fn is_listed(operator: Builtin) -> bool {
    is_stablehlo(operator) || REASONS.iter().any(|(listed, _)| *listed == operator)
}

/// Why the operator has no mapping.
pub(crate) fn reason(operator: Builtin) -> &'static str {
    if is_stablehlo(operator) {
        return NO_STABLEHLO;
    }
    REASONS.iter().find(|(listed, _)| *listed == operator).map_or(
        "it is not an operator that this version of the format has",
        |(_, reason)| reason,
    )
}
