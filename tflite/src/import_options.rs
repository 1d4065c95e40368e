//! What of a file to import, and how.

/// What of a file to import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The signature whose graph is the model; without one, the file's first graph is.
    pub signature: Option<String>,
    /// For each input in order its dimensions, where the file leaves some open. What is not listed, or empty,
    /// has those that the file states.
    pub input_dimensions: Vec<Vec<u32>>,
}
