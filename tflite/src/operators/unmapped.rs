//! The operators without an equivalent in NNAPI, each with the reason that a refusal states.

use super::builtin::Builtin;

const NO_RESOURCES: &str = "NNAPI has no hash tables";
const NO_TEXT: &str = "NNAPI has no text or key-value operations";
const NO_SPARSE_FORM: &str = "NNAPI has no sparse look-ups";
const NO_KERNEL: &str = "LiteRT has no CPU kernel for it either";
const NO_RANDOM: &str =
    "its random numbers go on from one execution to the next, which no operation of NNAPI does";

/// The reason for each operator of the format that has no mapping.
const REASONS: &[(Builtin, &str)] = &[
    (Builtin::CONCAT_EMBEDDINGS, NO_KERNEL),
    (Builtin::SKIP_GRAM, NO_TEXT),
    (Builtin::CALL, NO_KERNEL),
    (Builtin::CUSTOM, "NNAPI has no equivalent of custom operators"),
    (Builtin::EMBEDDING_LOOKUP_SPARSE, NO_SPARSE_FORM),
    (Builtin::DELEGATE, NO_KERNEL),
    (
        Builtin::PLACEHOLDER_FOR_GREATER_OP_CODES,
        "it is no operator but a placeholder of the format",
    ),
    (Builtin::HASHTABLE, NO_RESOURCES),
    (Builtin::HASHTABLE_FIND, NO_RESOURCES),
    (Builtin::HASHTABLE_IMPORT, NO_RESOURCES),
    (Builtin::HASHTABLE_SIZE, NO_RESOURCES),
    (Builtin::RANDOM_STANDARD_NORMAL, NO_RANDOM),
    (Builtin::RANDOM_UNIFORM, NO_RANDOM),
    (
        Builtin::STABLEHLO_RNG_BIT_GENERATOR,
        "its state has unsigned integers of 64 bits, which NNAPI has not",
    ),
];

/// The operators of StableHLO that have a mapping, or a reason of their own.
const STABLEHLO: &[Builtin] = &[
    Builtin::STABLEHLO_ADD,
    Builtin::STABLEHLO_MULTIPLY,
    Builtin::STABLEHLO_MAXIMUM,
    Builtin::STABLEHLO_MINIMUM,
    Builtin::STABLEHLO_PAD,
    Builtin::STABLEHLO_COMPOSITE,
    Builtin::STABLEHLO_SHIFT_LEFT,
    Builtin::STABLEHLO_AND,
    Builtin::STABLEHLO_SCATTER,
    Builtin::STABLEHLO_GATHER,
    Builtin::STABLEHLO_REDUCE_WINDOW,
    Builtin::STABLEHLO_RNG_BIT_GENERATOR,
    Builtin::STABLEHLO_CASE,
];

/// Whether the operator is one of StableHLO's that LiteRT does not compute either.
fn is_stablehlo(operator: Builtin) -> bool {
    let is_named = |name: &str| name.starts_with("STABLEHLO_");
    operator.name().is_some_and(is_named) && !STABLEHLO.contains(&operator)
}

/// Whether there is a reason why this operator has no mapping.
pub(crate) fn is_listed(operator: Builtin) -> bool {
    is_stablehlo(operator) || REASONS.iter().any(|(listed, _)| *listed == operator)
}

/// Why the operator has no mapping.
pub(crate) fn reason(operator: Builtin) -> &'static str {
    if is_stablehlo(operator) {
        return NO_KERNEL;
    }
    REASONS.iter().find(|(listed, _)| *listed == operator).map_or(
        "it is not an operator that this version of the format has",
        |(_, reason)| reason,
    )
}
