//! Arguments of executions in shared memory, which Rust values are copied into and out of.

use std::ops::Range;

use nnhal::burst::{copy_values, put_values};
use nnhal_hal::{MAX_RANK, OperandType, Shape, TypeLayout};

use crate::error::{Error, Result};
use crate::execution::Completed;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::model::ArgumentTypes;
use crate::request::Request;
use crate::tensor::{Element, TensorType, written_bytes};
use crate::values::{Input, Output, OwnValues, expect_count, expect_fit};

/// Where one argument is.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    operand_type: OperandType,
    /// How its values are laid out, where that is fixed.
    layout: Option<TypeLayout>,
    /// Bytes of a value, where the model says all dimensions.
    size: Option<usize>,
    /// Those that come with it.
    dimensions: Shape,
    /// Bytes of the memory; `None` for an input that is left out.
    range: Option<Range<u64>>,
}

/// Shared memory for all arguments of one model, and the request that names them.
///
/// Filling inputs here and reading outputs from here is the way with the fewest copies: one in, one out.
///
/// ```no_run
/// # use nnhal_client::{ExecuteOptions, PreparedModel, Result};
/// # fn example(prepared: &PreparedModel) -> Result<()> {
/// let mut arguments = prepared.new_arguments()?;
/// arguments.write(0, &[1.0_f32, 2.0, 3.0, 4.0])?;
/// prepared.execute(arguments.request(), &ExecuteOptions::new())?;
/// let sum: Vec<f32> = arguments.read(0)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arguments {
    memory: Memory,
    request: Request,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

impl Arguments {
    /// Memory for arguments whose sizes the model says.
    pub(crate) fn for_types(types: &ArgumentTypes) -> Result<Arguments> {
        let mut layout = Layout::default();
        let mut place = |what: &str, (index, ty): (usize, &TensorType)| {
            let size = ty.byte_size_among(&types.layouts).ok_or_else(|| {
                Error::argument(format!(
                    "the size of {what} {index}, {} with dimensions {:?}, is not known; use run, or a Request with \
                     dimensions",
                    ty.operand_type(),
                    ty.dimensions()
                ))
            })?;
            let range = Some(layout.add(size as u64));
            Ok(Place::new(types, ty, Shape::SCALAR, range))
        };
        let inputs = types
            .inputs
            .iter()
            .enumerate()
            .map(|argument| place("input", argument));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let outputs = types
            .outputs
            .iter()
            .enumerate()
            .map(|argument| place("output", argument));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        Arguments::new(Memory::new(memory_size(&layout))?, inputs, outputs)
    }

    /// Memory for these arguments.
    pub(crate) fn for_values(
        types: &ArgumentTypes,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Result<Arguments> {
        Arguments::for_values_in(types, inputs, outputs, Memory::new)
    }

    /// The same in memory of so many bytes at least, which is asked for when all else is right.
    pub(crate) fn for_values_in(
        types: &ArgumentTypes,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
        memory: impl FnOnce(u64) -> Result<Memory>,
    ) -> Result<Arguments> {
        expect_count("inputs", inputs.len(), types.inputs.len())?;
        expect_count("outputs", outputs.len(), types.outputs.len())?;
        let mut layout = Layout::default();
        let mut in_places = Vec::with_capacity(inputs.len());
        for (index, (input, ty)) in inputs.iter().zip(types.inputs.iter()).enumerate() {
            expect_fit("input", index, (input.fills, input.rust_type), ty.operand_type())?;
            let dimensions = input.dimensions.ok_or_else(|| too_many_dimensions(index))?;
            let range = input.length().map(|length| layout.add(length as u64));
            in_places.push(Place::new(types, ty, dimensions, range));
        }
        let mut out_places = Vec::with_capacity(outputs.len());
        for (index, (output, ty)) in outputs.iter().zip(types.outputs.iter()).enumerate() {
            expect_fit(
                "output",
                index,
                (output.fills, output.rust_type),
                ty.operand_type(),
            )?;
            let range = Some(layout.add(output.bytes.len() as u64));
            out_places.push(Place::new(types, ty, Shape::SCALAR, range));
        }
        Arguments::new(memory(memory_size(&layout))?, in_places, out_places)
    }

    fn new(memory: Memory, inputs: Vec<Place>, outputs: Vec<Place>) -> Result<Arguments> {
        let mut request = Request::new();
        for place in &inputs {
            request = match &place.range {
                Some(range) => request.input_with_dimensions(&memory, range.clone(), place.dimensions.dims()),
                None => request.omitted_input(),
            };
        }
        for range in outputs.iter().filter_map(|place| place.range.clone()) {
            request = request.output(&memory, range);
        }
        Ok(Arguments {
            memory,
            request,
            inputs,
            outputs,
        })
    }

    /// The request that executes with these arguments.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The memory that holds them all.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Sets an input.
    ///
    /// # Errors
    /// There is no such input, it has another number of bytes, or the values' type cannot fill it.
    pub fn write<T: Element>(&mut self, input: usize, values: &[T]) -> Result<()> {
        let range = place(
            "input",
            &self.inputs,
            input,
            size_of_val(values),
            (T::fills, std::any::type_name::<T>()),
        )?;
        self.memory.write(range.start, values)
    }

    /// Reads an output.
    ///
    /// # Errors
    /// There is no such output, or its bytes are not of this type.
    pub fn read<T: Element>(&self, output: usize) -> Result<Vec<T>> {
        let count = self.outputs.get(output).and_then(|place| place.range.as_ref());
        let bytes = count.map_or(0, |range| (range.end - range.start) as usize);
        let range = place(
            "output",
            &self.outputs,
            output,
            bytes,
            (T::fills, std::any::type_name::<T>()),
        )?;
        self.memory.read(range.start, bytes / size_of::<T>())
    }

    /// Copies an output into `values`.
    ///
    /// # Errors
    /// There is no such output, it has another number of bytes, or they are not of this type.
    pub fn read_into<T: Element>(&self, output: usize, values: &mut [T]) -> Result<()> {
        let size = size_of_val(values);
        let range = place(
            "output",
            &self.outputs,
            output,
            size,
            (T::fills, std::any::type_name::<T>()),
        )?;
        self.memory.read_at(range.start, bytemuck::cast_slice_mut(values))
    }

    /// Whether these arguments have the layout that the values need.
    #[inline]
    pub(crate) fn fits(&self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> bool {
        inputs.len() == self.inputs.len()
            && outputs.len() == self.outputs.len()
            && inputs.iter().zip(&self.inputs).all(|(input, place)| {
                input.length() == place.length()
                    && input.dimensions == Some(place.dimensions)
                    && (input.fills)(place.operand_type)
            })
            && outputs.iter().zip(&self.outputs).all(|(output, place)| {
                Some(output.bytes.len()) == place.length() && (output.fills)(place.operand_type)
            })
    }

    /// Sizes of the inputs, `None` for those that are left out, and of the outputs, in bytes.
    pub(crate) fn sizes(&self) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
        let of = |places: &[Place]| places.iter().map(Place::length).collect();
        (of(&self.inputs), of(&self.outputs))
    }

    /// Holds the rooms for outputs to the sizes of this layout.
    #[inline]
    pub(crate) fn expect_rooms(&self, values: &mut (impl OwnValues + ?Sized)) -> Result<()> {
        for (index, place) in self.outputs.iter().enumerate() {
            if let Some(range) = &place.range {
                expect_size("output", index, values.output(index), range)?;
            }
        }
        Ok(())
    }

    /// Passes values of this layout through the memory to an execution of the request, and back after it.
    pub(crate) fn pass(
        &self,
        values: &mut (impl OwnValues + ?Sized),
        execute: impl FnOnce(&Request) -> Result<Completed>,
    ) -> Result<Completed> {
        self.write_all(values)?;
        let completed = execute(&self.request)?;
        self.read_all(&completed, values)?;
        Ok(completed)
    }

    /// Copies inputs of this layout in.
    pub(crate) fn write_all(&self, values: &(impl OwnValues + ?Sized)) -> Result<()> {
        for (index, place) in self.inputs.iter().enumerate() {
            if let Some(range) = &place.range {
                let bytes = values.input(index);
                expect_size("input", index, bytes, range)?;
                self.memory.write_at(range.start, bytes)?;
            }
        }
        Ok(())
    }

    /// Appends inputs of this layout, one behind the other.
    #[inline]
    pub(crate) fn pack(&self, values: &(impl OwnValues + ?Sized), packed: &mut Vec<u8>) -> Result<()> {
        for (index, place) in self.inputs.iter().enumerate() {
            if let Some(range) = &place.range {
                let bytes = values.input(index);
                expect_size("input", index, bytes, range)?;
                put_values(packed, bytes);
            }
        }
        Ok(())
    }

    /// Copies outputs of this layout, which lie behind each other, out, as far as they were written. `packed`
    /// holds at least as many bytes as there is room for.
    #[inline]
    pub(crate) fn unpack(
        &self,
        packed: &[u8],
        completed: &Completed,
        values: &mut (impl OwnValues + ?Sized),
    ) -> Result<()> {
        let mut rest = packed;
        for (index, place) in self.outputs.iter().enumerate() {
            let Some(range) = &place.range else { continue };
            let output = values.output(index);
            expect_size("output", index, output, range)?;
            let Some((bytes, after)) = rest.split_at_checked(output.len()) else {
                return Ok(());
            };
            let length = place.written(completed, index, output.len());
            copy_values(&bytes[..length], &mut output[..length]);
            rest = after;
        }
        Ok(())
    }

    /// Copies outputs of this layout out, as far as they were written.
    pub(crate) fn read_all(
        &self,
        completed: &Completed,
        values: &mut (impl OwnValues + ?Sized),
    ) -> Result<()> {
        for (index, place) in self.outputs.iter().enumerate() {
            let Some(range) = &place.range else { continue };
            let output = values.output(index);
            expect_size("output", index, output, range)?;
            let length = place.written(completed, index, output.len());
            self.memory.read_at(range.start, &mut output[..length])?;
        }
        Ok(())
    }
}

/// Holds values that come by index to the sizes that their layout is for.
#[inline]
fn expect_size(what: &str, index: usize, bytes: &[u8], range: &Range<u64>) -> Result<()> {
    let size = range.end - range.start;
    if bytes.len() as u64 == size {
        return Ok(());
    }
    Err(wrong_size(what, index, bytes.len(), size))
}

#[cold]
fn wrong_size(what: &str, index: usize, length: usize, size: u64) -> Error {
    Error::argument(format!(
        "{what} {index} has {length} bytes; the arguments that it is one of have {size} there"
    ))
}

/// Bytes of a memory for all of them, which has one at least.
fn memory_size(layout: &Layout) -> u64 {
    layout.end.max(1)
}

#[cold]
fn too_many_dimensions(input: usize) -> Error {
    Error::argument(format!(
        "input {input} has more than {MAX_RANK} dimensions, the most that there are"
    ))
}

impl Place {
    fn new(types: &ArgumentTypes, ty: &TensorType, dimensions: Shape, range: Option<Range<u64>>) -> Place {
        Place {
            operand_type: ty.operand_type(),
            layout: types.layouts.get(ty.operand_type()),
            size: ty.byte_size_among(&types.layouts),
            dimensions,
            range,
        }
    }

    /// How many bytes of output `index`, for which there is `room`, an execution has written: no more than
    /// the model says, as far as it does.
    #[inline]
    fn written(&self, completed: &Completed, index: usize, room: usize) -> usize {
        let written = completed.output_shapes.get(index).and_then(|shape| {
            let shape = Shape::new(&shape.dimensions).ok()?;
            written_bytes(self.layout, &shape)
        });
        let most = self.size.unwrap_or(room).min(room);
        written.map_or(most, |written| written.min(most))
    }

    #[inline]
    fn length(&self) -> Option<usize> {
        self.range
            .as_ref()
            .map(|range| (range.end - range.start) as usize)
    }
}

/// The place of one argument, if values of this size and type belong there.
fn place(
    what: &str,
    places: &[Place],
    index: usize,
    size: usize,
    element: (fn(OperandType) -> bool, &str),
) -> Result<Range<u64>> {
    let place = places.get(index).ok_or_else(|| {
        Error::argument(format!(
            "there is no {what} {index}, the model has {}",
            places.len()
        ))
    })?;
    expect_fit(what, index, element, place.operand_type)?;
    match &place.range {
        Some(range) if range.end - range.start == size as u64 => Ok(range.clone()),
        Some(range) => Err(Error::argument(format!(
            "{what} {index} has {} bytes, the values have {size}",
            range.end - range.start
        ))),
        None => Err(Error::argument(format!("{what} {index} is left out"))),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OutputShape, TypeLayouts};

    use super::*;
    use crate::values::ListedValues;

    fn types() -> ArgumentTypes {
        ArgumentTypes {
            inputs: [TensorType::float32(&[3]), TensorType::int32(&[0])].into(),
            outputs: [TensorType::float32(&[0])].into(),
            layouts: TypeLayouts::default(),
        }
    }

    #[test]
    fn values_are_laid_out_on_lines_of_their_own() {
        let mut room = [0.0_f32; 4];
        let outputs = [Output::from(&mut room)];
        let inputs = [
            Input::from(&[1.0_f32, 2.0, 3.0]),
            Input::from(&[7_i32]).with_dimensions(&[1]),
        ];
        let arguments = Arguments::for_values(&types(), &inputs, &outputs).unwrap();
        assert!(arguments.fits(&inputs, &outputs));
        let values = ListedValues {
            inputs: &inputs,
            outputs: &mut [],
        };
        arguments.write_all(&values).unwrap();
        assert_eq!(arguments.memory().read::<f32>(0, 3).unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(arguments.memory().read::<i32>(64, 1).unwrap(), [7]);
        let hal = arguments.request().hal();
        assert_eq!(hal.inputs[1].dimensions, [1]);
        assert_eq!(
            (hal.outputs[0].location.offset, hal.outputs[0].location.length),
            (128, 16)
        );
        let longer = [inputs[0], Input::from(&[7_i32, 8]).with_dimensions(&[2])];
        assert!(!arguments.fits(&longer, &outputs));
        assert!(!arguments.fits(&[inputs[0], Input::omitted()], &outputs));
    }

    #[test]
    fn outputs_are_read_as_far_as_they_were_written() {
        let mut room = [9.0_f32; 4];
        let inputs = [Input::from(&[0.0_f32; 3]), Input::omitted()];
        let arguments = Arguments::for_values(&types(), &inputs, &[Output::from(&mut room)]).unwrap();
        arguments.memory().write(64, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        let completed = Completed {
            output_shapes: vec![OutputShape {
                dimensions: vec![2],
                is_sufficient: true,
            }],
            ..Completed::default()
        };
        arguments
            .read_all(
                &completed,
                &mut ListedValues {
                    inputs: &[],
                    outputs: &mut [Output::from(&mut room)],
                },
            )
            .unwrap();
        assert_eq!(room, [1.0, 2.0, 9.0, 9.0]);
        let written = |dimensions: &[u32]| {
            let completed = Completed {
                output_shapes: vec![OutputShape {
                    dimensions: dimensions.to_vec(),
                    is_sufficient: true,
                }],
                ..Completed::default()
            };
            arguments.outputs[0].written(&completed, 0, 16)
        };
        assert_eq!((written(&[0]), written(&[3]), written(&[9])), (0, 12, 16));
        // Nobody says how many there are.
        assert_eq!(arguments.outputs[0].written(&Completed::default(), 0, 16), 16);
    }

    #[test]
    fn wrong_types_counts_and_sizes_are_named() {
        let mut room = [0_i32; 1];
        let right = [Input::from(&[0.0_f32; 3]), Input::omitted()];
        let error = |inputs: &[Input<'_>], room: &mut [i32]| {
            Arguments::for_values(&types(), inputs, &[Output::from(room)])
                .unwrap_err()
                .to_string()
        };
        assert!(error(&right, &mut room).contains("output 0 is TENSOR_FLOAT32, which i32"));
        let long = [right[0], Input::from(&[1_i32]).with_dimensions(&[1; 9])];
        assert!(error(&long, &mut [][..]).contains("input 1 has more than 8 dimensions"));
        assert!(error(&right[..1], &mut room).contains("1 inputs were given, the model has 2"));
        let unknown = Arguments::for_types(&types()).unwrap_err().to_string();
        assert!(
            unknown.contains("input 1, TENSOR_INT32 with dimensions [0]"),
            "{unknown}"
        );

        let known = ArgumentTypes {
            inputs: [TensorType::float32(&[3])].into(),
            outputs: [TensorType::float32(&[2])].into(),
            layouts: TypeLayouts::default(),
        };
        let mut arguments = Arguments::for_types(&known).unwrap();
        assert!(
            arguments
                .write(0, &[1.0_f32; 2])
                .unwrap_err()
                .to_string()
                .contains("12 bytes")
        );
        assert!(
            arguments
                .write(1, &[1.0_f32; 3])
                .unwrap_err()
                .to_string()
                .contains("no input 1")
        );
        assert!(arguments.read::<i32>(0).is_err());
        assert_eq!(arguments.read::<f32>(0).unwrap(), [0.0; 2]);
    }
}
