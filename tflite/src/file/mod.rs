//! The `.tflite` format: a FlatBuffer, read through the verifier into borrowed tables, its indexes checked.
//!
//! After [`File::read`] every index that a table holds leads somewhere: tensors, buffers, operator codes.
//! What the numbers mean (shapes, types, operators) is the importer's business.

pub(crate) mod options;
pub(crate) mod reader;
pub(crate) mod tables;

use options::{Options, Union};
use reader::ReadError;
use tables::{Model, Operator, OperatorCode, SubGraph, Tensor};

/// The file identifier, at bytes 4 to 8.
const IDENTIFIER: &[u8; 4] = b"TFL3";

/// The version of the format that [`IDENTIFIER`] goes with.
const VERSION: u32 = 3;

/// Why bytes are not a `.tflite` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// The identifier of the format is missing.
    #[error("not a .tflite file: bytes 4 to 8 must be \"TFL3\", {found}")]
    NotTflite {
        /// What is there instead.
        found: String,
    },
    /// The tables are damaged, or cut off.
    #[error("the file is damaged or cut off: {0}")]
    Damaged(ReadError),
    /// A version of the format that this reader does not know.
    #[error("the file has format version {0}, must be 3")]
    Version(u32),
    /// An index that leads nowhere.
    #[error("the file is damaged: {place} is {index}, there are {count}")]
    Index {
        /// Whose index.
        place: String,
        /// The index.
        index: i64,
        /// How many there are to choose from.
        count: usize,
    },
    /// Constant data beyond the end.
    #[error(
        "the file is damaged or cut off: {place} reaches from byte {offset} for {size} bytes, the file has {length}"
    )]
    Outside {
        /// Whose data.
        place: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        size: u64,
        /// Length of the file.
        length: usize,
    },
    /// A model without a graph.
    #[error("the file holds no graph")]
    NoGraph,
}

/// A file whose tables are read and whose indexes are checked.
#[derive(Debug)]
pub(crate) struct File<'a> {
    model: Model<'a>,
    bytes: &'a [u8],
}

impl<'a> File<'a> {
    /// Reads and checks the tables.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<File<'a>, FileError> {
        check_identifier(bytes)?;
        let model: Model<'a> = reader::root(bytes).map_err(FileError::Damaged)?;
        if model.version != VERSION {
            return Err(FileError::Version(model.version));
        }
        if model.subgraphs.is_empty() {
            return Err(FileError::NoGraph);
        }
        let file = File { model, bytes };
        file.check_buffers()?;
        for (number, graph) in file.model.subgraphs.iter().enumerate() {
            file.check_graph(number, graph)?;
        }
        Ok(file)
    }

    /// Number of bytes of the file.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The graphs; the first is the main one, unless a signature names another.
    pub(crate) fn graphs(&self) -> &[SubGraph<'a>] {
        &self.model.subgraphs
    }

    /// The code of an operator of this file.
    pub(crate) fn code(&self, operator: &Operator<'a>) -> Option<&OperatorCode<'a>> {
        self.model.operator_codes.get(operator.opcode_index as usize)
    }

    /// The constant bytes of a tensor of this file; `None` if it has none.
    pub(crate) fn data(&self, tensor: &Tensor<'a>) -> Option<&'a [u8]> {
        let buffer = self.model.buffers.get(tensor.buffer as usize)?;
        let data = if buffer.offset > 1 {
            let start = usize::try_from(buffer.offset).ok()?;
            let end = start.checked_add(usize::try_from(buffer.size).ok()?)?;
            self.bytes.get(start..end)?
        } else {
            buffer.data.bytes()
        };
        (!data.is_empty()).then_some(data)
    }

    /// The number of the graph of a signature; `None` if there is no such signature, or no such graph.
    pub(crate) fn graph_of(&self, signature: &str) -> Option<usize> {
        let mut signatures = self.model.signatures.iter();
        let found = signatures.find(|known| known.key.to_text() == signature)?;
        let graph = found.subgraph_index as usize;
        (graph < self.model.subgraphs.len()).then_some(graph)
    }

    /// The names of the signatures.
    pub(crate) fn signatures(&self) -> Vec<String> {
        let signatures = self.model.signatures.iter();
        signatures.map(|signature| signature.key.to_text()).collect()
    }

    /// The name that a signature gives to an input (or output) of this graph.
    pub(crate) fn signature_name(&self, graph: usize, tensor: usize, output: bool) -> Option<String> {
        let signature = self
            .model
            .signatures
            .iter()
            .find(|signature| signature.subgraph_index as usize == graph)?;
        let names = if output {
            &signature.outputs
        } else {
            &signature.inputs
        };
        let found = names.iter().find(|map| map.tensor_index as usize == tensor)?;
        Some(found.name.to_text())
    }

    fn check_buffers(&self) -> Result<(), FileError> {
        for (number, buffer) in self.model.buffers.iter().enumerate() {
            let end = buffer.offset.checked_add(buffer.size);
            if buffer.offset > 1 && end.is_none_or(|end| end > self.bytes.len() as u64) {
                return Err(FileError::Outside {
                    place: format!("buffers[{number}]"),
                    offset: buffer.offset,
                    size: buffer.size,
                    length: self.bytes.len(),
                });
            }
        }
        Ok(())
    }

    fn check_graph(&self, number: usize, graph: &SubGraph<'a>) -> Result<(), FileError> {
        let tensors = graph.tensors.len();
        let place = |what: &str| format!("subgraphs[{number}].{what}");
        for (at, tensor) in graph.tensors.iter().enumerate() {
            // Buffer 0 is the empty one by convention, and may be missing.
            let buffer = tensor.buffer as usize;
            if buffer != 0 && buffer >= self.model.buffers.len() {
                return Err(FileError::Index {
                    place: place(&format!("tensors[{at}].buffer")),
                    index: i64::from(tensor.buffer),
                    count: self.model.buffers.len(),
                });
            }
        }
        check_indexes(&place("inputs"), graph.inputs.iter(), 0, tensors)?;
        check_indexes(&place("outputs"), graph.outputs.iter(), 0, tensors)?;
        for (at, operator) in graph.operators.iter().enumerate() {
            let field = |what: &str| place(&format!("operators[{at}].{what}"));
            if self.code(operator).is_none() {
                return Err(FileError::Index {
                    place: field("opcode_index"),
                    index: i64::from(operator.opcode_index),
                    count: self.model.operator_codes.len(),
                });
            }
            check_indexes(&field("inputs"), operator.inputs.iter(), -1, tensors)?;
            check_indexes(&field("outputs"), operator.outputs.iter(), 0, tensors)?;
            check_indexes(
                &field("intermediates"),
                operator.intermediates.iter(),
                -1,
                tensors,
            )?;
        }
        Ok(())
    }
}

/// The options of an operator, all at their defaults if the file has none.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode_options<'a, T: Options<'a>>(operator: &Operator<'a>) -> Result<T, String> {
    let (ty, options) = match T::UNION {
        Union::First => (operator.options_type, &operator.options),
        Union::Second => (operator.second_options_type, &operator.second_options),
    };
    if !options.is_present() {
        return Ok(T::default());
    }
    if ty != T::CODE {
        return Err(format!(
            "its options are of type {ty}, must be {} ({})",
            T::CODE,
            T::NAME
        ));
    }
    let options = options.decode::<T>();
    let options = options.map_err(|error| format!("its {} are damaged: {error}", T::NAME))?;
    Ok(options.unwrap_or_default())
}

fn check_identifier(bytes: &[u8]) -> Result<(), FileError> {
    if bytes.is_empty() {
        return Err(FileError::Empty);
    }
    match bytes.get(4..8) {
        Some(found) if found == IDENTIFIER => Ok(()),
        Some(found) => Err(FileError::NotTflite {
            found: format!("they are \"{}\"", found.escape_ascii()),
        }),
        None => Err(FileError::NotTflite {
            found: format!("the file has only {} bytes", bytes.len()),
        }),
    }
}

/// Every index is from `least` to below `count`.
fn check_indexes(
    place: &str,
    indexes: impl Iterator<Item = i32>,
    least: i32,
    count: usize,
) -> Result<(), FileError> {
    for (at, index) in indexes.enumerate() {
        if index < least || i64::from(index) >= count as i64 {
            return Err(FileError::Index {
                place: format!("{place}[{at}]"),
                index: i64::from(index),
                count,
            });
        }
    }
    Ok(())
}
