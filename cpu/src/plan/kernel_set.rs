//! The choice of kernels.

/// Which kernels compute a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSet {
    /// The reference kernels.
    Reference,
    /// Steps made at preparation for the operations that have them, the reference kernels for the others.
    Fast,
}
