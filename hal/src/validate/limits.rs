//! Bounds on what a peer may ask for, each with its reason.

/// Operands in all graphs of a model together: far above real networks (the largest have some ten thousand),
/// low enough that the tables made for them stay in the tens of megabytes.
pub const MAX_OPERANDS: usize = 1 << 20;

/// Operations in all graphs of a model together; see [`MAX_OPERANDS`].
pub const MAX_OPERATIONS: usize = 1 << 18;

/// Inputs and outputs of one operation: the largest signature has 61, CONCATENATION and SPLIT may have any
/// number.
pub const MAX_OPERATION_ARGUMENTS: usize = 1 << 16;

/// Graphs that IF and WHILE may refer to.
pub const MAX_REFERENCED_SUBGRAPHS: usize = 1 << 12;

/// How deeply graphs may refer to each other: an execution nests as deeply on the stack.
pub const MAX_SUBGRAPH_DEPTH: usize = 16;

/// Operands of all graphs together, each graph counted for every place that runs it: an execution keeps
/// values for every place, and a few graphs that refer to each other many times over would make that more
/// than any memory.
pub const MAX_RUN_OPERANDS: usize = 1 << 20;

/// Memory pools of a model or request: each costs the driver a descriptor and a mapping.
pub const MAX_POOLS: usize = 1 << 10;

/// Extensions that a model names: looked through for each operand type of theirs.
pub const MAX_EXTENSIONS: usize = 1 << 8;

/// Constants up to this size are looked at during validation (activation codes, paddings, axes); larger ones
/// are data, which only kernels read.
pub const MAX_PARAMETER_BYTES: usize = 4096;

/// How many times over a model's constants may name the bytes that it stores. Graphs of IF and WHILE share
/// weights, but every constant is copied when a model is prepared, and a small message must not make many
/// gigabytes of copies.
pub const MAX_CONSTANT_SHARING: u64 = 4;

/// Bytes of constants that are accepted however little the model stores.
pub const FREE_CONSTANT_BYTES: u64 = 64 << 20;
