//! The operators without an equivalent in NNAPI, each with the reason that a refusal states.

use super::builtin::Builtin;

const NO_RESOURCES: &str = "NNAPI has no hash tables";
const NO_TEXT: &str = "NNAPI has no text or key-value operations";
const NO_SPARSE_FORM: &str = "NNAPI has no sparse look-ups";
const NO_KERNEL: &str = "LiteRT has no CPU kernel for it either";

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
];

/// The operator's own reason, if it is listed with one.
pub(super) fn own_reason(operator: Builtin) -> Option<&'static str> {
    let found = REASONS.iter().find(|(listed, _)| *listed == operator);
    found.map(|(_, reason)| *reason)
}

/// Why the operator, which has no mapping, has none; `None` if it is no operator that is known.
pub(super) fn reason(operator: Builtin) -> Option<&'static str> {
    // What LiteRT computes of StableHLO's is mapped, or listed.
    let is_stablehlo = |name: &str| name.starts_with("STABLEHLO_");
    let rest = operator.name().is_some_and(is_stablehlo).then_some(NO_KERNEL);
    own_reason(operator).or(rest)
}
