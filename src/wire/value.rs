//! What can travel, and how a type says what it consists of.

use super::encoding::{CodecError, Reader, Writer};

/// A value that messages are made of, with a layout that is its own and not that of the Rust type.
///
/// [`wire_record!`](crate::wire_record) and [`wire_numbers!`](crate::wire_numbers) make it for structures and
/// enumerations.
pub trait Wire: Sized {
    /// The fewest bytes that a value takes.
    const LEAST: usize;

    /// Writes the value.
    ///
    /// # Errors
    /// [`CodecError::TooNew`] if the version that is written lacks it.
    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError>;

    /// Reads a value.
    ///
    /// # Errors
    /// What comes next is none.
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError>;

    /// What the protocol's description calls the type. Types that consist of others enter what they consist
    /// of.
    fn describe(types: &mut Types) -> String;

    /// Writes the elements of a list.
    ///
    /// # Errors
    /// As [`Wire::put`].
    #[inline]
    fn put_all(values: &[Self], to: &mut Writer<'_>) -> Result<(), CodecError> {
        values.iter().try_for_each(|value| value.put(to))
    }

    /// Reads the elements of a list of `count`, which there are bytes for.
    ///
    /// # Errors
    /// As [`Wire::get`].
    #[inline]
    fn get_all(count: usize, from: &mut Reader<'_>) -> Result<Vec<Self>, CodecError> {
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(Self::get(from)?);
        }
        Ok(values)
    }
}

/// The types that a message consists of, as the protocol's description lists them.
#[derive(Debug, Default)]
pub struct Types {
    /// In the order in which they are met.
    pub entries: Vec<TypeEntry>,
}

/// A type of the protocol.
#[derive(Debug)]
pub struct TypeEntry {
    /// Its name.
    pub name: &'static str,
    /// One line for each variant of an enumeration, one without a number for a structure.
    pub variants: Vec<Variant>,
}

/// A variant of an enumeration, or a structure.
#[derive(Debug)]
pub struct Variant {
    /// Number and name.
    pub numbered: Option<(u32, &'static str)>,
    /// The version it came with.
    pub since: u32,
    /// In their order.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What its type is called.
    pub ty: String,
    /// The version it came with.
    pub since: u32,
}

impl Types {
    /// Enters a type by this name, if it is not there yet.
    pub fn enter(&mut self, name: &'static str, variants: impl FnOnce(&mut Types) -> Vec<Variant>) -> String {
        if !self.entries.iter().any(|entry| entry.name == name) {
            let at = self.entries.len();
            let entry = |variants| TypeEntry { name, variants };
            self.entries.push(entry(Vec::new()));
            self.entries[at] = entry(variants(self));
        }
        name.to_owned()
    }
}

macro_rules! primitives {
    ($($ty:ident)*) => {$(
        impl Wire for $ty {
            const LEAST: usize = size_of::<$ty>();

            #[inline]
            fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
                to.value(self)
            }

            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                from.value()
            }

            fn describe(_: &mut Types) -> String {
                stringify!($ty).to_owned()
            }
        }
    )*};
}

primitives! { bool u16 u32 u64 i32 f32 }

impl Wire for u8 {
    const LEAST: usize = 1;

    #[inline]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        to.value(self)
    }

    #[inline]
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        from.value()
    }

    fn describe(_: &mut Types) -> String {
        "u8".to_owned()
    }

    /// As one block.
    fn put_all(values: &[u8], to: &mut Writer<'_>) -> Result<(), CodecError> {
        to.bytes(values)
    }

    fn get_all(count: usize, from: &mut Reader<'_>) -> Result<Vec<u8>, CodecError> {
        Ok(from.bytes(count)?.to_vec())
    }
}

impl Wire for () {
    const LEAST: usize = 0;

    fn put(&self, _: &mut Writer<'_>) -> Result<(), CodecError> {
        Ok(())
    }

    fn get(_: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(())
    }

    fn describe(_: &mut Types) -> String {
        "nothing".to_owned()
    }
}

impl Wire for String {
    const LEAST: usize = 8;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        to.value(&(self.len() as u64))?;
        to.bytes(self.as_bytes())
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = from.count(1)?;
        let text = std::str::from_utf8(from.bytes(count)?).map_err(|error| CodecError::Text {
            at: error.valid_up_to(),
        })?;
        Ok(text.to_owned())
    }

    fn describe(_: &mut Types) -> String {
        "text".to_owned()
    }
}

impl<T: Wire> Wire for Vec<T> {
    const LEAST: usize = 8;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        to.value(&(self.len() as u64))?;
        T::put_all(self, to)
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = from.count(T::LEAST)?;
        T::get_all(count, from)
    }

    fn describe(types: &mut Types) -> String {
        format!("list of {}", T::describe(types))
    }
}

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const LEAST: usize = N * T::LEAST;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        T::put_all(self, to)
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::get(from)?;
        }
        Ok(values)
    }

    fn describe(types: &mut Types) -> String {
        format!("{N} of {}", T::describe(types))
    }
}

impl<T: Wire> Wire for Option<T> {
    const LEAST: usize = 1;

    #[inline]
    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        self.is_some().put(to)?;
        self.as_ref().map_or(Ok(()), |value| value.put(to))
    }

    #[inline]
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(if bool::get(from)? {
            Some(T::get(from)?)
        } else {
            None
        })
    }

    fn describe(types: &mut Types) -> String {
        format!("optional {}", T::describe(types))
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const LEAST: usize = 4;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        match self {
            Ok(value) => {
                to.value(&0_u32)?;
                value.put(to)
            }
            Err(error) => {
                to.value(&1_u32)?;
                error.put(to)
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        match from.number()? {
            0 => Ok(Ok(T::get(from)?)),
            1 => Ok(Err(E::get(from)?)),
            number => Err(CodecError::Number {
                what: "a result",
                number,
                version: from.version(),
            }),
        }
    }

    fn describe(types: &mut Types) -> String {
        let (value, error) = (T::describe(types), E::describe(types));
        format!("{value} or {error}")
    }
}

impl<T: Wire> Wire for Box<T> {
    const LEAST: usize = T::LEAST;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        T::put(self, to)
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        T::get(from).map(Box::new)
    }

    fn describe(types: &mut Types) -> String {
        T::describe(types)
    }
}
