//! Values of arguments in this process's own memory.

use nnhal_hal::{OperandType, Shape};

use crate::error::{Error, Result};
use crate::tensor::Element;

/// An input in this process's own memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub(crate) bytes: Option<&'a [u8]>,
    pub(crate) fills: fn(OperandType) -> bool,
    pub(crate) rust_type: &'static str,
    /// `None` if there are more than possible.
    pub(crate) dimensions: Option<Shape>,
}

impl<'a> Input<'a> {
    /// An optional input that is left out.
    #[must_use]
    pub fn omitted() -> Input<'static> {
        Input {
            bytes: None,
            fills: |_| true,
            rust_type: "nothing",
            dimensions: Some(Shape::SCALAR),
        }
    }

    /// The same with these dimensions, where the model leaves them open; at most 8 are possible, and more are
    /// refused when it is used.
    #[must_use]
    pub fn with_dimensions(mut self, dimensions: &[u32]) -> Input<'a> {
        self.dimensions = Shape::new(dimensions).ok();
        self
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.bytes.map(<[u8]>::len)
    }
}

impl<'a, T: Element> From<&'a [T]> for Input<'a> {
    fn from(values: &'a [T]) -> Input<'a> {
        Input {
            bytes: Some(bytemuck::cast_slice(values)),
            fills: T::fills,
            rust_type: std::any::type_name::<T>(),
            dimensions: Some(Shape::SCALAR),
        }
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Input<'a> {
    fn from(values: &'a [T; N]) -> Input<'a> {
        Input::from(values.as_slice())
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Input<'a> {
    fn from(values: &'a Vec<T>) -> Input<'a> {
        Input::from(values.as_slice())
    }
}

/// Room for an output in this process's own memory.
#[derive(Debug)]
pub struct Output<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) fills: fn(OperandType) -> bool,
    pub(crate) rust_type: &'static str,
}

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(values: &'a mut [T]) -> Output<'a> {
        Output {
            bytes: bytemuck::cast_slice_mut(values),
            fills: T::fills,
            rust_type: std::any::type_name::<T>(),
        }
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for Output<'a> {
    fn from(values: &'a mut [T; N]) -> Output<'a> {
        Output::from(values.as_mut_slice())
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Output<'a> {
    fn from(values: &'a mut Vec<T>) -> Output<'a> {
        Output::from(values.as_mut_slice())
    }
}

/// The values of an execution in this process's own memory, by index, for executions like one before: each
/// must have as many bytes as it had then, and mean the same dimensions.
///
/// Inputs that are left out are not asked for. Rooms are asked for twice: for their sizes, and after the end.
#[cfg_attr(
    not(feature = "runtime"),
    allow(unreachable_pub, reason = "the runtime's interface")
)]
pub trait OwnValues {
    /// The bytes of an input.
    fn input(&self, index: usize) -> &[u8];

    /// The room for an output.
    fn output(&mut self, index: usize) -> &mut [u8];
}

/// No values at all.
impl OwnValues for () {
    fn input(&self, _: usize) -> &[u8] {
        &[]
    }

    fn output(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }
}

/// Inputs and outputs as they are passed to [`crate::Burst::run`].
pub(crate) struct ListedValues<'l, 'i, 'o> {
    pub(crate) inputs: &'l [Input<'i>],
    pub(crate) outputs: &'l mut [Output<'o>],
}

impl OwnValues for ListedValues<'_, '_, '_> {
    #[inline]
    fn input(&self, index: usize) -> &[u8] {
        self.inputs
            .get(index)
            .and_then(|input| input.bytes)
            .unwrap_or_default()
    }

    #[inline]
    fn output(&mut self, index: usize) -> &mut [u8] {
        match self.outputs.get_mut(index) {
            Some(output) => output.bytes,
            None => &mut [],
        }
    }
}

/// Refuses another number of values than the model has arguments.
pub(crate) fn expect_count(what: &str, count: usize, expected: usize) -> Result<()> {
    if count == expected {
        return Ok(());
    }
    Err(Error::argument(format!(
        "{count} {what} were given, the model has {expected}"
    )))
}

/// Refuses values whose Rust type cannot fill an operand.
pub(crate) fn expect_fit(
    what: &str,
    index: usize,
    (fills, rust_type): (fn(OperandType) -> bool, &str),
    operand_type: OperandType,
) -> Result<()> {
    if fills(operand_type) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "{what} {index} is {operand_type}, which {rust_type} cannot fill"
    )))
}
