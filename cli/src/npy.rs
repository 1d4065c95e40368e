//! Arrays in NumPy's .npy format.

use std::path::Path;

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};

/// NumPy itself refuses longer headers.
const MAX_HEADER_BYTES: usize = 10_000;

/// Why a file is no array that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NpyError {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("is not a .npy file: {0}")]
    Format(String),
    #[error(
        "holds elements of type {0}; float16, float32, float64, bool and integers of 8 to 64 bits are read"
    )]
    ElementType(String),
    #[error("has shape {shape:?} of {element}, which takes {expected} bytes, but holds {found}")]
    Truncated {
        shape: Vec<u64>,
        element: Element,
        expected: u64,
        found: usize,
    },
    #[error("has shape {0:?}, whose size does not fit 64 bits")]
    TooLarge(Vec<u64>),
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    Float16,
    Float32,
    Float64,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
}

impl Element {
    /// Bytes of one.
    pub(crate) fn size(self) -> usize {
        match self {
            Element::Bool | Element::Int8 | Element::Uint8 => 1,
            Element::Float16 | Element::Int16 | Element::Uint16 => 2,
            Element::Float32 | Element::Int32 | Element::Uint32 => 4,
            Element::Float64 | Element::Int64 | Element::Uint64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Element::Float16 => "float16",
            Element::Float32 => "float32",
            Element::Float64 => "float64",
            Element::Bool => "bool",
            Element::Int8 => "int8",
            Element::Int16 => "int16",
            Element::Int32 => "int32",
            Element::Int64 => "int64",
            Element::Uint8 => "uint8",
            Element::Uint16 => "uint16",
            Element::Uint32 => "uint32",
            Element::Uint64 => "uint64",
        }
    }

    fn from_code(kind: TypeChar, size: u64) -> Option<Element> {
        Some(match (kind, size) {
            (TypeChar::Float, 2) => Element::Float16,
            (TypeChar::Float, 4) => Element::Float32,
            (TypeChar::Float, 8) => Element::Float64,
            (TypeChar::Bool, 1) => Element::Bool,
            (TypeChar::Int, 1) => Element::Int8,
            (TypeChar::Int, 2) => Element::Int16,
            (TypeChar::Int, 4) => Element::Int32,
            (TypeChar::Int, 8) => Element::Int64,
            (TypeChar::Uint, 1) => Element::Uint8,
            (TypeChar::Uint, 2) => Element::Uint16,
            (TypeChar::Uint, 4) => Element::Uint32,
            (TypeChar::Uint, 8) => Element::Uint64,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An array: little-endian, the last axis fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// The type of its elements.
    pub(crate) element: Element,
    /// Its extents, outermost first.
    pub(crate) shape: Vec<u64>,
    /// Its elements, `element.size()` bytes each.
    pub(crate) bytes: Vec<u8>,
}

impl Array {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Array, NpyError> {
        Array::parse(&crate::input_file::read(path)?)
    }

    /// Reads the bytes of a file.
    pub(crate) fn parse(file: &[u8]) -> Result<Array, NpyError> {
        check_header_length(file)?;
        let mut data = file;
        let header =
            NpyHeader::from_reader(&mut data).map_err(|error| NpyError::Format(error.to_string()))?;
        let DType::Plain(code) = header.dtype() else {
            return Err(NpyError::ElementType(header.dtype().descr()));
        };
        let element = Element::from_code(code.type_char(), code.size_field())
            .ok_or_else(|| NpyError::ElementType(code.to_string()))?;
        let shape = header.shape().to_vec();
        let expected = shape
            .iter()
            .try_fold(element.size() as u64, |product, extent| {
                product.checked_mul(*extent)
            })
            .ok_or_else(|| NpyError::TooLarge(shape.clone()))?;
        if expected != data.len() as u64 {
            return Err(NpyError::Truncated {
                shape,
                element,
                expected,
                found: data.len(),
            });
        }
        let mut bytes = data.to_vec();
        if code.endianness() == Endianness::Big {
            bytes.chunks_exact_mut(element.size()).for_each(<[u8]>::reverse);
        }
        if header.order() == Order::Fortran {
            bytes = last_axis_fastest(&bytes, &shape, element.size());
        }
        Ok(Array {
            element,
            shape,
            bytes,
        })
    }

    /// The elements, widened; 64-bit integers beyond 2^53 lose their last digits.
    pub(crate) fn to_f64(&self) -> Vec<f64> {
        fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            let (elements, _) = bytes.as_chunks::<N>();
            elements.iter().map(|element| read(*element)).collect()
        }
        let bytes = &self.bytes;
        match self.element {
            Element::Float16 => each(bytes, |x| half::f16::from_le_bytes(x).to_f64()),
            Element::Float32 => each(bytes, |x| f64::from(f32::from_le_bytes(x))),
            Element::Float64 => each(bytes, f64::from_le_bytes),
            Element::Bool => each(bytes, |[x]| f64::from(u8::from(x != 0))),
            Element::Int8 => each(bytes, |x| f64::from(i8::from_le_bytes(x))),
            Element::Int16 => each(bytes, |x| f64::from(i16::from_le_bytes(x))),
            Element::Int32 => each(bytes, |x| f64::from(i32::from_le_bytes(x))),
            Element::Int64 => each(bytes, |x| i64::from_le_bytes(x) as f64),
            Element::Uint8 => each(bytes, |[x]| f64::from(x)),
            Element::Uint16 => each(bytes, |x| f64::from(u16::from_le_bytes(x))),
            Element::Uint32 => each(bytes, |x| f64::from(u32::from_le_bytes(x))),
            Element::Uint64 => each(bytes, |x| u64::from_le_bytes(x) as f64),
        }
    }
}

/// The header's length is in the file's first bytes; one that is out of the question is refused before it is
/// read.
fn check_header_length(file: &[u8]) -> Result<(), NpyError> {
    let wrong = |message: &str| Err(NpyError::Format(message.to_owned()));
    if file.is_empty() {
        return wrong("the file is empty");
    }
    let Some(rest) = file.strip_prefix(b"\x93NUMPY") else {
        return wrong("it does not begin as one");
    };
    let length = match *rest {
        [1, _, low, high, ..] => usize::from(u16::from_le_bytes([low, high])),
        [2 | 3, _, a, b, c, d, ..] => u32::from_le_bytes([a, b, c, d]) as usize,
        [version, _, ..] => return wrong(&format!("its version, {version}, is unknown")),
        _ => return wrong("it ends in its header"),
    };
    if length > MAX_HEADER_BYTES {
        return wrong(&format!(
            "its header has {length} bytes, at most {MAX_HEADER_BYTES} are read"
        ));
    }
    Ok(())
}

/// Rearranges elements that are stored with the first axis fastest.
fn last_axis_fastest(bytes: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let count = bytes.len() / size;
    let mut arranged = Vec::with_capacity(bytes.len());
    let mut index = vec![0_u64; shape.len()];
    for _ in 0..count {
        let (mut at, mut stride) = (0, 1);
        for (position, extent) in index.iter().zip(shape) {
            at += position * stride;
            stride *= extent;
        }
        let at = at as usize * size;
        arranged.extend_from_slice(&bytes[at..at + size]);
        for (position, extent) in index.iter_mut().zip(shape).rev() {
            *position += 1;
            if *position < *extent {
                break;
            }
            *position = 0;
        }
    }
    arranged
}

#[cfg(test)]
mod tests {
    use super::{Array, Element, NpyError};

    fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend_from_slice(&(header.len() as u16).to_le_bytes());
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(data);
        file
    }

    #[test]
    fn elements_are_read_whatever_their_order() {
        let c = Array::parse(&file(
            "'<i2'",
            "False",
            "(2, 3)",
            &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0],
        ))
        .unwrap();
        let fortran = Array::parse(&file(
            "'>i2'",
            "True",
            "(2, 3)",
            &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6],
        ))
        .unwrap();
        assert_eq!(c, fortran);
        assert_eq!(c.element, Element::Int16);
        assert_eq!(c.shape, [2, 3]);
        assert_eq!(c.to_f64(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn scalar_and_empty_arrays_are_read() {
        assert_eq!(
            Array::parse(&file("'|u1'", "False", "()", &[7]))
                .unwrap()
                .to_f64(),
            [7.0]
        );
        let empty = Array::parse(&file("'<f4'", "True", "(3, 0)", &[])).unwrap();
        assert!(empty.bytes.is_empty());
    }

    #[test]
    fn bad_files_give_an_error_that_says_why() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "the file is empty"),
            (b"hello", "does not begin as one"),
            (b"\x93NUMPY\x09\x00\x00\x00", "version, 9, is unknown"),
            (
                b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
                "its header has 4294967295 bytes",
            ),
            (b"\x93NUMPY\x01", "ends in its header"),
            (b"\x93NUMPY\x01\x00\x20\x00{", "is not a .npy file"),
        ];
        for (file, expected) in cases {
            let error = Array::parse(file).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let truncated = Array::parse(&file("'<f4'", "False", "(2,)", &[0; 7])).unwrap_err();
        assert!(
            truncated.to_string().contains("takes 8 bytes, but holds 7"),
            "{truncated}"
        );
        let huge = Array::parse(&file("'<f4'", "False", "(9223372036854775807, 8)", &[])).unwrap_err();
        assert!(matches!(huge, NpyError::TooLarge(_)), "{huge}");
        let text = Array::parse(&file("'<U3'", "False", "(1,)", &[0; 12])).unwrap_err();
        assert!(matches!(text, NpyError::ElementType(_)), "{text}");
        let record = Array::parse(&file("[('a', '<f4')]", "False", "(1,)", &[0; 4])).unwrap_err();
        assert!(matches!(record, NpyError::ElementType(_)), "{record}");
    }
}
