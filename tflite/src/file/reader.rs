//! Values out of a FlatBuffer, each read where the verifier has just checked it.
//!
//! The runtime's generated accessors trust that a buffer was verified before and are therefore unsafe. Here
//! the walk of the verifier *is* the reading: every position comes from its `visit_table` and `deref`, every
//! range is one that it has found inside the buffer, and the bytes are then taken from the slice by a checked
//! index. What it limits (depth, number of tables, apparent size) is limited for the reading too.

use std::marker::PhantomData;

use flatbuffers::{InvalidFlatbuffer, SIZE_UOFFSET, Vector, Verifiable, Verifier, VerifierOptions};

/// Why a part of the file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {}", one_line(.source))]
pub struct ReadError {
    /// The field, from the root.
    path: String,
    /// What the verifier found.
    source: InvalidFlatbuffer,
}

impl ReadError {
    pub(super) fn new(source: InvalidFlatbuffer) -> ReadError {
        ReadError {
            path: String::new(),
            source,
        }
    }

    /// The same error, seen from the table or vector that holds the part.
    pub(super) fn within(mut self, outer: impl std::fmt::Display) -> ReadError {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{outer}{dot}{}", self.path);
        self
    }
}

/// The verifier's text without its line breaks and full stop.
fn one_line(error: &InvalidFlatbuffer) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_end_matches('.').to_owned()
}

/// A verifier and the bytes it verifies.
pub(crate) struct Reader<'v, 'o, 'a> {
    pub(crate) verifier: &'v mut Verifier<'o, 'a>,
    pub(crate) bytes: &'a [u8],
}

/// Something that a field of a table can hold.
pub(crate) trait Value<'a>: Sized {
    /// Reads the value of the field at `position`.
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError>;
}

/// A table of the schema: its fields in terms of [`Value`].
pub(crate) trait Table<'a>: Sized {
    /// Reads the table at `position`.
    fn read_table(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError>;
}

impl<'a, T: Table<'a>> Value<'a> for Option<T> {
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        let position = follow(reader, position)?;
        T::read_table(reader, position).map(Some)
    }
}

impl<'a, T: Table<'a>> Value<'a> for Vec<T> {
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        let vector = follow(reader, position)?;
        let count = vector_length::<u32>(reader, vector)?;
        let mut tables = Vec::new();
        for index in 0..count {
            let element = vector + SIZE_UOFFSET + index * SIZE_UOFFSET;
            let table = follow(reader, element)
                .and_then(|position| T::read_table(reader, position))
                .map_err(|error| error.within(format_args!("[{index}]")))?;
            tables.push(table);
        }
        Ok(tables)
    }
}

/// The position that the offset at `position` leads to.
pub(super) fn follow(reader: &mut Reader<'_, '_, '_>, position: usize) -> Result<usize, ReadError> {
    let offset = reader.verifier.get_uoffset(position).map_err(ReadError::new)?;
    Ok(position.saturating_add(offset as usize))
}

/// The element count of the vector of `T` at `position`, all of which lies inside the buffer.
fn vector_length<T>(reader: &mut Reader<'_, '_, '_>, position: usize) -> Result<usize, ReadError>
where
    for<'x> Vector<'x, T>: Verifiable,
{
    <Vector<'_, T>>::run_verifier(reader.verifier, position).map_err(ReadError::new)?;
    let count = reader.verifier.get_uoffset(position).map_err(ReadError::new)?;
    Ok(count as usize)
}

/// The bytes of the buffer in this range.
fn bytes_at(bytes: &[u8], start: usize, length: usize) -> Result<&[u8], ReadError> {
    let end = start.saturating_add(length);
    bytes.get(start..end).ok_or_else(|| {
        ReadError::new(InvalidFlatbuffer::RangeOutOfBounds {
            range: start..end,
            error_trace: Default::default(),
        })
    })
}

/// A number in little-endian order.
pub(crate) trait Number: Copy + Verifiable + flatbuffers::SimpleToVerifyInSlice {
    /// Bytes of one.
    const SIZE: usize;
    /// The number that these `SIZE` bytes hold.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const SIZE: usize = size_of::<$ty>();

            fn from_bytes(bytes: &[u8]) -> Self {
                let mut exact = [0; size_of::<$ty>()];
                exact.copy_from_slice(bytes);
                <$ty>::from_le_bytes(exact)
            }
        }

        impl<'a> Value<'a> for $ty {
            fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
                <$ty>::run_verifier(reader.verifier, position).map_err(ReadError::new)?;
                bytes_at(reader.bytes, position, Self::SIZE).map(Self::from_bytes)
            }
        }
    )*};
}

numbers!(i8, u8, u16, i32, u32, i64, u64, f32);

impl<'a> Value<'a> for bool {
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        u8::read(reader, position).map(|byte| byte != 0)
    }
}

/// A vector of numbers, in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a, T> {
    bytes: &'a [u8],
    element: PhantomData<T>,
}

impl<T> Default for Numbers<'_, T> {
    fn default() -> Self {
        Numbers {
            bytes: &[],
            element: PhantomData,
        }
    }
}

impl<'a, T: Number> Numbers<'a, T> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / T::SIZE
    }

    /// The elements.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<'a, T> {
        self.bytes.chunks_exact(T::SIZE).map(T::from_bytes)
    }

    /// The element with this index.
    pub(crate) fn get(&self, index: usize) -> Option<T> {
        self.iter().nth(index)
    }

    /// The elements, as a list of their own.
    pub(crate) fn to_vec(self) -> Vec<T> {
        self.iter().collect()
    }

    /// The bytes of the elements.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a, T: Number> Value<'a> for Numbers<'a, T>
where
    for<'x> Vector<'x, T>: Verifiable,
{
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        let vector = follow(reader, position)?;
        let count = vector_length::<T>(reader, vector)?;
        let start = vector.saturating_add(SIZE_UOFFSET);
        Ok(Numbers {
            bytes: bytes_at(reader.bytes, start, count.saturating_mul(T::SIZE))?,
            element: PhantomData,
        })
    }
}

/// Text. Names in files are not always UTF-8; what is not shows as replacement characters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The text, to own.
    pub(crate) fn to_text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

impl<'a> Value<'a> for Text<'a> {
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        Numbers::<u8>::read(reader, position).map(|vector| Text(vector.bytes()))
    }
}

/// A table whose schema another field tells: where it stands, to be read when that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferred<'a> {
    bytes: &'a [u8],
    position: Option<usize>,
}

impl<'a> Deferred<'a> {
    /// Whether the file has such a table at all.
    pub(crate) fn is_present(&self) -> bool {
        self.position.is_some()
    }

    /// The table, read as a `T`; `None` if the file has none.
    pub(crate) fn decode<T: Table<'a>>(&self) -> Result<Option<T>, ReadError> {
        let Some(position) = self.position else {
            return Ok(None);
        };
        let options = limits(self.bytes);
        let mut verifier = Verifier::new(&options, self.bytes);
        let mut reader = Reader {
            verifier: &mut verifier,
            bytes: self.bytes,
        };
        T::read_table(&mut reader, position).map(Some)
    }
}

impl<'a> Value<'a> for Deferred<'a> {
    fn read(reader: &mut Reader<'_, '_, 'a>, position: usize) -> Result<Self, ReadError> {
        let position = follow(reader, position)?;
        // Only that a table stands there; its fields are checked when they are read.
        let table = reader.verifier.visit_table(position).map_err(ReadError::new)?;
        table.finish();
        Ok(Deferred {
            bytes: reader.bytes,
            position: Some(position),
        })
    }
}

/// What a file may make the verifier and the reader do. The tables of real files number about ten for each
/// operator; nothing in them is shared but constant data, so that their apparent size stays near the real
/// one.
pub(super) fn limits(bytes: &[u8]) -> VerifierOptions {
    VerifierOptions {
        max_depth: 16,
        max_tables: 1 << 20,
        max_apparent_size: bytes.len().saturating_mul(4).saturating_add(1 << 16),
        ignore_missing_null_terminator: true,
    }
}

/// The root table of `bytes`.
pub(super) fn root<'a, T: Table<'a>>(bytes: &'a [u8]) -> Result<T, ReadError> {
    let options = limits(bytes);
    let mut verifier = Verifier::new(&options, bytes);
    let mut reader = Reader {
        verifier: &mut verifier,
        bytes,
    };
    let position = follow(&mut reader, 0)?;
    T::read_table(&mut reader, position)
}

/// Declares a table of the schema: a struct with the fields that are read, each with its default and its
/// number.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr, $number:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name $(<$life>)? {
            $($(#[$field_doc])* pub(crate) $field: $ty,)*
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        table!(@read $name $(<$life>)? { $($field: $ty, $number;)* });
    };
    (@read $name:ident<$life:lifetime> { $($fields:tt)* }) => {
        impl<$life> $crate::file::reader::Table<$life> for $name<$life> {
            table!(@body $life $name { $($fields)* });
        }
    };
    (@read $name:ident { $($fields:tt)* }) => {
        impl<'a> $crate::file::reader::Table<'a> for $name {
            table!(@body 'a $name { $($fields)* });
        }
    };
    (@body $life:lifetime $name:ident { $($field:ident: $ty:ty, $number:literal;)* }) => {
        fn read_table(
            reader: &mut $crate::file::reader::Reader<'_, '_, $life>,
            position: usize,
        ) -> Result<Self, $crate::file::reader::ReadError> {
            use $crate::file::reader::{ReadError, Reader, Value};

            let bytes = reader.bytes;
            let mut table = reader.verifier.visit_table(position).map_err(ReadError::new)?;
            let mut found = Self::default();
            $(
                let at = table
                    .deref(4 + 2 * $number)
                    .map_err(|error| ReadError::new(error).within(stringify!($field)))?;
                if let Some(at) = at {
                    let mut inner = Reader { verifier: table.verifier(), bytes };
                    found.$field = <$ty as Value<$life>>::read(&mut inner, at)
                        .map_err(|error| error.within(stringify!($field)))?;
                }
            )*
            table.finish();
            Ok(found)
        }
    };
}

pub(crate) use table;
