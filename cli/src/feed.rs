//! From arrays to the arguments of a sequence of calls.

use std::path::{Path, PathBuf};

use nnhal_client::TfliteModel;
use nnhal_client::tflite::{ElementError, ElementType, TensorInfo};

use crate::npy::{Array, Element};

/// Arrays that do not fit the model's inputs or outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("the model has {expected} {direction}s ({names}), {given} files are given")]
    Count {
        direction: Direction,
        given: usize,
        expected: usize,
        names: String,
    },
    #[error("{}: holds {found}, {direction} {index} ({name:?}) of the model is {expected}", path.display())]
    Element {
        path: PathBuf,
        direction: Direction,
        index: usize,
        name: String,
        found: Element,
        expected: ElementType,
    },
    #[error(
        "{}: has shape {found:?}; {direction} {index} ({name:?}) of the model is {}, \
         or that with one more leading axis for a sequence of calls",
        path.display(), extents(expected)
    )]
    Shape {
        path: PathBuf,
        direction: Direction,
        index: usize,
        name: String,
        found: Vec<u64>,
        expected: Vec<u32>,
    },
    #[error("{}: holds {found} calls, the other files {expected}", path.display())]
    Calls {
        path: PathBuf,
        found: usize,
        expected: usize,
    },
    #[error("{}: {source}", path.display())]
    Value { path: PathBuf, source: ElementError },
    #[error(
        "{direction} {index} ({name:?}) of the model has no fixed size ({}), so a file must be given for it",
        extents(dimensions)
    )]
    Open {
        direction: Direction,
        index: usize,
        name: String,
        dimensions: Vec<u32>,
    },
}

/// Which side of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Input,
    Output,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Input => "input",
            Direction::Output => "output",
        })
    }
}

/// `[1, ?, 3]`.
fn extents(dimensions: &[u32]) -> String {
    let extents: Vec<String> = dimensions
        .iter()
        .map(|&extent| {
            if extent == 0 {
                "?".to_owned()
            } else {
                extent.to_string()
            }
        })
        .collect();
    format!("[{}]", extents.join(", "))
}

/// A tensor's value as an operand holds it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Value {
    /// Its exact dimensions.
    pub(crate) dimensions: Vec<u32>,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// Values of several tensors over several calls: `values[call][tensor]`.
pub(crate) type Sequence = Vec<Vec<Value>>;

/// An array with the name of its file.
pub(crate) type NamedArray = (PathBuf, Array);

/// The values that `files` give the inputs of `model`: one call, or as many as their additional leading axis
/// has. A file with one call serves for all. Without any file there is one call with zeros.
pub(crate) fn inputs(model: &TfliteModel, files: &[NamedArray]) -> Result<Sequence, FeedError> {
    if files.is_empty() {
        let zeros = model.inputs.iter().enumerate().map(zeros);
        return Ok(vec![zeros.collect::<Result<_, _>>()?]);
    }
    split_all(&model.inputs, files, Direction::Input)
}

/// For each input that the file leaves open, the dimensions that its array has, of each call;
/// empty for the others.
pub(crate) fn input_dimensions(inputs: &[TensorInfo], files: &[NamedArray]) -> Vec<Vec<u32>> {
    let of_call = |(info, (_, array)): (&TensorInfo, &NamedArray)| {
        let rank = info.dimensions.len();
        let calls = array.shape.len().checked_sub(rank).filter(|calls| *calls <= 1)?;
        let extents = array.shape.get(calls..)?.iter();
        let dimensions: Option<Vec<u32>> = extents.map(|extent| u32::try_from(*extent).ok()).collect();
        dimensions.filter(|_| !info.open.is_empty())
    };
    let inputs = inputs.iter().zip(files);
    inputs.map(|input| of_call(input).unwrap_or_default()).collect()
}

/// The files that hold a model's inputs by their names, `input_0.npy` and so on beside it; none if not all of
/// them are there.
pub(crate) fn files_beside(model: &Path, inputs: usize) -> Vec<PathBuf> {
    let files = (0..inputs).map(|input| model.with_file_name(format!("input_{input}.npy")));
    let files: Vec<PathBuf> = files.collect();
    if files.iter().all(|file| file.exists()) {
        files
    } else {
        Vec::new()
    }
}

/// The values that `files` say the outputs of `model` must have, over `calls` calls.
pub(crate) fn expectations(
    model: &TfliteModel,
    files: &[NamedArray],
    calls: usize,
) -> Result<Sequence, FeedError> {
    let sequence = split_all(&model.outputs, files, Direction::Output)?;
    match files.first() {
        Some((path, _)) if sequence.len() != calls => Err(FeedError::Calls {
            path: path.clone(),
            found: sequence.len(),
            expected: calls,
        }),
        _ => Ok(sequence),
    }
}

fn split_all(
    tensors: &[TensorInfo],
    files: &[NamedArray],
    direction: Direction,
) -> Result<Sequence, FeedError> {
    if files.len() != tensors.len() {
        let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        return Err(FeedError::Count {
            direction,
            given: files.len(),
            expected: tensors.len(),
            names: names.join(", "),
        });
    }
    let mut columns = Vec::with_capacity(files.len());
    for (index, (tensor, (path, array))) in tensors.iter().zip(files).enumerate() {
        columns.push((path, split(tensor, path, array, direction, index)?));
    }
    let calls = columns.iter().map(|(_, column)| column.len()).max().unwrap_or(1);
    if let Some((path, column)) = columns
        .iter()
        .find(|(_, column)| column.len() != calls && column.len() != 1)
    {
        return Err(FeedError::Calls {
            path: (*path).clone(),
            found: column.len(),
            expected: calls,
        });
    }
    let at = |call: usize| {
        columns
            .iter()
            .map(|(_, column)| column[if column.len() == 1 { 0 } else { call }].clone())
            .collect()
    };
    Ok((0..calls).map(at).collect())
}

/// The values of one tensor, one for each call.
fn split(
    tensor: &TensorInfo,
    path: &Path,
    array: &Array,
    direction: Direction,
    index: usize,
) -> Result<Vec<Value>, FeedError> {
    if element_type(array.element) != tensor.element_type {
        return Err(FeedError::Element {
            path: path.into(),
            direction,
            index,
            name: tensor.name.clone(),
            found: array.element,
            expected: tensor.element_type,
        });
    }
    let wrong_shape = || FeedError::Shape {
        path: path.into(),
        direction,
        index,
        name: tensor.name.clone(),
        found: array.shape.clone(),
        expected: tensor.dimensions.clone(),
    };
    let (calls, dimensions) = calls_of(&array.shape, &tensor.dimensions).ok_or_else(wrong_shape)?;
    let bytes = array.bytes.len() / calls;
    let slice = |call: usize| {
        let bytes = tensor
            .to_operand_bytes(&array.bytes[call * bytes..(call + 1) * bytes])
            .map_err(|source| FeedError::Value {
                path: path.into(),
                source,
            })?;
        Ok(Value {
            dimensions: dimensions.clone(),
            bytes,
        })
    };
    (0..calls).map(slice).collect()
}

/// How many calls an array of this shape holds for a tensor, at least one, and the dimensions in each; `None`
/// if it does not fit.
fn calls_of(shape: &[u64], dimensions: &[u32]) -> Option<(usize, Vec<u32>)> {
    let exact = |extents: &[u64]| -> Option<Vec<u32>> {
        let fits = extents.len() == dimensions.len()
            && extents
                .iter()
                .zip(dimensions)
                .all(|(&found, &declared)| declared == 0 || found == u64::from(declared));
        if !fits {
            return None;
        }
        extents.iter().map(|&extent| u32::try_from(extent).ok()).collect()
    };
    if let Some(dimensions) = exact(shape) {
        return Some((1, dimensions));
    }
    // A scalar of the file is an operand with one element.
    if dimensions == [1] && shape.is_empty() {
        return Some((1, vec![1]));
    }
    let (&calls, rest) = shape.split_first()?;
    let calls = usize::try_from(calls).ok().filter(|calls| *calls > 0)?;
    if dimensions == [1] && rest.is_empty() {
        return Some((calls, vec![1]));
    }
    Some((calls, exact(rest)?))
}

fn element_type(element: Element) -> ElementType {
    match element {
        Element::Float16 => ElementType::Float16,
        Element::Float32 => ElementType::Float32,
        Element::Float64 => ElementType::Other(10),
        Element::Bool => ElementType::Bool,
        Element::Int8 => ElementType::Int8,
        Element::Int16 => ElementType::Int16,
        Element::Int32 => ElementType::Int32,
        Element::Int64 => ElementType::Int64,
        Element::Uint8 => ElementType::Uint8,
        Element::Uint16 => ElementType::Other(16),
        Element::Uint32 => ElementType::Other(15),
        Element::Uint64 => ElementType::Other(12),
    }
}

/// A value that means 0.0 in every element.
fn zeros((index, tensor): (usize, &TensorInfo)) -> Result<Value, FeedError> {
    let elements = fixed_elements(&tensor.dimensions).ok_or_else(|| FeedError::Open {
        direction: Direction::Input,
        index,
        name: tensor.name.clone(),
        dimensions: tensor.dimensions.clone(),
    })?;
    let zero = tensor
        .quantization
        .map_or(0, |quantization| quantization.zero_point);
    let mut element = Vec::new();
    nnhal_conformance::element::encode(tensor.operand_type, f64::from(zero), &mut element);
    Ok(Value {
        dimensions: tensor.dimensions.clone(),
        bytes: element.repeat(elements),
    })
}

/// The number of elements, if the dimensions fix it.
fn fixed_elements(dimensions: &[u32]) -> Option<usize> {
    if dimensions.is_empty() {
        return None;
    }
    dimensions
        .iter()
        .try_fold(1_usize, |product, &extent| product.checked_mul(extent as usize))
        .filter(|elements| *elements > 0)
}

#[cfg(test)]
mod tests {
    use super::{calls_of, files_beside};

    #[test]
    fn files_beside_a_model_are_its_inputs_if_there_is_one_for_each() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.tflite");
        let files = [0, 1].map(|number| folder.path().join(format!("input_{number}.npy")));
        std::fs::write(&files[0], []).unwrap();
        assert_eq!(files_beside(&model, 1), files[..1]);
        assert!(files_beside(&model, 2).is_empty());
        std::fs::write(&files[1], []).unwrap();
        assert_eq!(files_beside(&model, 2), files);
    }

    #[test]
    fn additional_leading_axis_counts_calls() {
        assert_eq!(calls_of(&[1, 8], &[1, 8]), Some((1, vec![1, 8])));
        assert_eq!(calls_of(&[5, 1, 8], &[1, 8]), Some((5, vec![1, 8])));
        assert_eq!(calls_of(&[5, 2, 8], &[0, 8]), Some((5, vec![2, 8])));
        assert_eq!(calls_of(&[2, 8], &[0, 8]), Some((1, vec![2, 8])));
        assert_eq!(calls_of(&[], &[1]), Some((1, vec![1])));
        assert_eq!(calls_of(&[5], &[1]), Some((5, vec![1])));
    }

    #[test]
    fn other_shapes_do_not_fit() {
        for (shape, dimensions) in [
            (&[1, 9][..], &[1, 8][..]),
            (&[8], &[1, 8]),
            (&[], &[1, 8]),
            (&[0, 1, 8], &[1, 8]),
            (&[2, 3, 1, 8], &[1, 8]),
            (&[1 << 40], &[0]),
        ] {
            assert_eq!(calls_of(shape, dimensions), None, "{shape:?} for {dimensions:?}");
        }
    }
}
