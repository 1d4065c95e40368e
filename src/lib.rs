//! The contract that both sides of nnhal share.
