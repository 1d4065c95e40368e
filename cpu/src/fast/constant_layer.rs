//! Packs the weights of layers, each in the form that is multiplied fastest.

use std::sync::Arc;

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{Operand, OperandType};
use nnhal_os::buffer::{AlignedBuffer, OutOfMemory};

use super::convolution::integer_layer::Integers;
use super::convolution::patches::Patches;
use super::convolution::weight;
use super::layer::{Kind, Known, Layer, Weights, is_one_to_one};
use super::matmul::float_matrix::FloatMatrix;
use super::matmul::packed_bytes::{FOUR, PackedBytes, ZeroPoints};
use super::matmul::pairs::{Extents, PackedI16};
use super::matmul::single_row::SingleRowStep;
use super::packing::{Packing, PackingError};
use super::simd::{has_wide, multiplies_bytes};
use super::{PlannedStep, depthwise};
use crate::kernel::{Constant, Kernel};
use crate::kernels::activation_range::Activation;
use crate::kernels::layer;
use crate::plan::Declared;

/// An operation with constant weights and bias.
pub(super) struct ConstantLayer<'a> {
    kind: Kind,
    input: &'a Operand,
    output: &'a Operand,
    filter: (&'a Operand, &'a Constant),
    /// The filter's bytes, which need not be aligned.
    filter_bytes: &'a [u8],
    bias: &'a Constant,
}

impl<'a> ConstantLayer<'a> {
    /// The step of an operation, if it is such and its weights are packed.
    pub(super) fn step(
        (declared, fallback): (&Declared<'a>, Kernel),
        filter: &'a [u8],
        (packing, is_relaxed): (&mut Packing, bool),
    ) -> Result<Option<Arc<dyn PlannedStep>>, PackingError> {
        let kind = Kind::of(declared.operation.operation_type);
        let Some(layer) = kind.and_then(|kind| ConstantLayer::of(kind, declared, filter)) else {
            return Ok(None);
        };
        if let Some(step) = layer.single_row(declared, (packing, is_relaxed))? {
            return Ok(Some(Arc::new(step)));
        }
        if layer.is_left_to_reference(declared) {
            return Ok(None);
        }
        let Some(weights) = layer.pack(packing)? else {
            return Ok(None);
        };
        let known = Known::of(layer.kind, declared, &weights);
        let integers = layer.integers(declared, known.as_ref(), packing)?;
        let packed = (weights, known, integers);
        Ok(Some(Arc::new(Layer::new(
            layer.kind,
            (declared, fallback),
            packed,
        ))))
    }

    fn of(kind: Kind, declared: &Declared<'a>, filter_bytes: &'a [u8]) -> Option<ConstantLayer<'a>> {
        let Declared {
            operation,
            operands,
            constants,
        } = *declared;
        let input = |number: usize| operation.inputs.get(number).map(|at| *at as usize);
        let constant = |number: usize| {
            let at = input(number)?;
            Some((operands.get(at)?, constants.get(at)?.as_ref()?))
        };
        Some(ConstantLayer {
            kind,
            input: operands.get(input(0)?)?,
            output: operands.get(*operation.outputs.first()? as usize)?,
            filter: constant(1)?,
            filter_bytes,
            bias: constant(2)?.1,
        })
    }

    /// Output channels, and values along each.
    fn sizes(&self) -> (usize, usize) {
        let shape = self.filter.1.shape;
        let total = shape.dims().iter().map(|dim| *dim as usize).product::<usize>();
        let columns = match self.kind {
            Kind::Depthwise => shape.dim(3) as usize,
            _ => shape.dim(0) as usize,
        };
        (columns, total / columns.max(1))
    }

    /// Whether all filters of a depthwise convolution see the same single channel: then it is a convolution.
    fn sees_one_channel(&self) -> bool {
        self.input.dimensions.get(3) == Some(&1)
    }

    /// Whether no execution can use packed weights, whatever its shapes are: of images in NCHW, and of
    /// depthwise convolutions with several filters for a channel.
    fn is_left_to_reference(&self, declared: &Declared<'_>) -> bool {
        if self.kind == Kind::FullyConnected {
            return false;
        }
        let context: &dyn OperationContext = declared;
        let arguments = self.kind.arguments(context);
        let is_nchw = arguments.nchw(context) == Ok(true);
        let has_several = self.kind == Kind::Depthwise
            && !self.sees_one_channel()
            && is_one_to_one(context, arguments) == Ok(false);
        is_nchw || has_several
    }

    /// How many outputs there are of each channel, if the model says so, and how many values of what they see
    /// lie side by side: those of a filter's row.
    fn rows_and_run(&self, (columns, depth): (usize, usize)) -> (Option<usize>, usize) {
        let mut extents = self.output.dimensions.iter();
        let elements = extents.try_fold(1_usize, |all, extent| all.checked_mul(*extent as usize));
        let rows = elements.filter(|elements| *elements > 0);
        let parts = match self.kind {
            Kind::FullyConnected => 1,
            _ => self.filter.1.shape.dim(1) as usize,
        };
        (
            rows.map(|elements| elements / columns.max(1)),
            depth / parts.max(1),
        )
    }

    fn pack(&self, packing: &mut Packing) -> Result<Option<Weights>, PackingError> {
        let sizes = self.sizes();
        if self.bias.bytes.bytes().len() != sizes.0 * size_of::<f32>() || sizes.1 == 0 {
            return Ok(None);
        }
        match self.input.operand_type {
            OperandType::TENSOR_FLOAT32 => self.pack_f32(sizes, packing).map(Some),
            OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
                self.pack_q8(sizes, packing).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The step of a fully connected layer of floats, if it has one row in every execution, and does more
    /// than to sum products of what may be integers.
    fn single_row(
        &self,
        declared: &Declared<'_>,
        (packing, is_relaxed): (&mut Packing, bool),
    ) -> Result<Option<SingleRowStep>, PackingError> {
        let (columns, depth) = self.sizes();
        let bias = self.bias.bytes.bytes();
        let is_float = self.input.operand_type == OperandType::TENSOR_FLOAT32;
        if self.kind != Kind::FullyConnected
            || !is_float
            || bias.len() != columns * size_of::<f32>()
            || self.sums_of(declared, None).is_some()
        {
            return Ok(None);
        }
        let Some((1, activation)) = rows_and_activation(declared, depth) else {
            return Ok(None);
        };
        let mut room = AlignedBuffer::new();
        let weights = floats(self.filter_bytes, &mut room)?;
        let bias = bytemuck::cast_slice(bias);
        let weight = |column: usize, at: usize| weights[column * depth + at];
        SingleRowStep::new(depth, bias, activation.range(), (packing, is_relaxed), weight).map(Some)
    }

    fn pack_f32(&self, sizes: (usize, usize), packing: &mut Packing) -> Result<Weights, PackingError> {
        let (columns, depth) = sizes;
        let mut room = AlignedBuffer::new();
        let weights = floats(self.filter_bytes, &mut room)?;
        let bias: &[f32] = bytemuck::cast_slice(self.bias.bytes.bytes());
        let bias = |column: usize| bias[column];
        Ok(match self.kind {
            Kind::Depthwise if self.sees_one_channel() => Weights::MatrixF32(FloatMatrix::new(
                self.rows_and_run(sizes),
                sizes,
                packing,
                |column, at| weights[at * columns + column],
                bias,
            )?),
            Kind::Depthwise => Weights::DepthwiseF32(depthwise::PackedDepthwise::new(
                sizes,
                packing,
                |tap, channel| weights[tap * columns + channel],
                bias,
            )?),
            _ => Weights::MatrixF32(FloatMatrix::new(
                self.rows_and_run(sizes),
                sizes,
                packing,
                |column, at| weights[column * depth + at],
                bias,
            )?),
        })
    }

    /// The same layer for an input of integers, if its weights are such, it only sums products, and bytes are
    /// multiplied faster than floats.
    fn integers(
        &self,
        declared: &Declared<'_>,
        known: Option<&Known>,
        packing: &mut Packing,
    ) -> Result<Option<Integers>, PackingError> {
        self.sums_of(declared, known)
            .map(|patches| Integers::new(self.sizes(), patches, self.filter_bytes, packing))
            .transpose()
    }

    /// What it sums products of, if it is a layer of floats that does nothing else, and bytes are multiplied
    /// faster than floats.
    fn sums_of(&self, declared: &Declared<'_>, known: Option<&Known>) -> Option<Patches> {
        let has_bias = self.bias.bytes.bytes().iter().any(|byte| *byte != 0);
        if self.input.operand_type != OperandType::TENSOR_FLOAT32 || !multiplies_bytes() || has_bias {
            return None;
        }
        match self.kind {
            Kind::Convolution => known
                .filter(|known| known.activation == Activation::None)
                .map(|known| known.patches),
            Kind::FullyConnected => {
                let (columns, depth) = self.sizes();
                let (rows, activation) = rows_and_activation(declared, depth)?;
                let [rows, depth, columns] = [rows, depth, columns].map(u32::try_from);
                let patches = Patches::pixels(rows.ok()?, depth.ok()?, columns.ok()?);
                (activation == Activation::None).then_some(patches)
            }
            Kind::Depthwise => None,
        }
    }

    /// Whether products of bytes are the fastest for filters of so many values, and weights with this zero
    /// point as signed ones: for single pixels whose values lie side by side in fours, and for windows of
    /// several where nothing is subtracted for values, so that more of them may be read.
    fn is_for_bytes(&self, depth: usize, weight_zero: i32) -> bool {
        let shape = self.filter.1.shape;
        let is_pixel = match self.kind {
            Kind::Depthwise => return false,
            Kind::FullyConnected => true,
            Kind::Convolution => (shape.dim(1), shape.dim(2)) == (1, 1),
        };
        let are_fit = if is_pixel {
            depth.is_multiple_of(FOUR)
        } else {
            weight_zero == 0
        };
        are_fit && multiplies_bytes()
    }

    fn pack_q8(&self, sizes: (usize, usize), packing: &mut Packing) -> Result<Weights, PackingError> {
        let (columns, depth) = sizes;
        let (filter, bytes) = (self.filter.0, self.filter_bytes);
        let bias: &[i32] = bytemuck::cast_slice(self.bias.bytes.bytes());
        let bias = |column: usize| bias[column];
        let value = |at: usize| weight(filter.operand_type, bytes[at]) - filter.zero_point as i16;
        // The rows of a filter, which begin with a pair of values.
        let parts = match self.kind {
            Kind::FullyConnected => 1,
            _ => (self.filter.1.shape.dim(1) as usize).max(1),
        };
        let extents = Extents {
            columns,
            parts,
            part: depth / parts,
        };
        let multiplier = |channel: usize| layer::multiplier(self.input, filter, self.output, channel);
        let flips = |ty: OperandType| ty == OperandType::TENSOR_QUANT8_ASYMM;
        let value_zero = self.input.zero_point + if flips(self.input.operand_type) { 0 } else { 128 };
        let (bit, by) = if flips(filter.operand_type) {
            (0x80, 128)
        } else {
            (0, 0)
        };
        let zeros = ZeroPoints {
            value: value_zero,
            weight: filter.zero_point - by,
        };
        if self.is_for_bytes(depth, zeros.weight) {
            let weight = |column: usize, at: usize| (bytes[column * depth + at] ^ bit) as i8;
            let (rows, _) = self.rows_and_run(sizes);
            let packed = PackedBytes::new(rows, extents, zeros, packing, weight, bias, multiplier)?;
            return Ok(Weights::BytesQ8(packed));
        }
        let ends = if flips(filter.operand_type) {
            [0, 255]
        } else {
            [-128, 127]
        };
        let bytes_layer = depthwise::bytes::Layer {
            channels: columns,
            filter: [parts, depth / parts],
            value_zero,
            weights: ends.map(|end| end - filter.zero_point),
        };
        Ok(match self.kind {
            Kind::Depthwise if self.sees_one_channel() => Weights::MatrixQ8(PackedI16::new(
                extents,
                packing,
                |column, at| value(at * columns + column),
                bias,
                multiplier,
            )?),
            // Their tiles need many registers.
            Kind::Depthwise if multiplies_bytes() && has_wide() && bytes_layer.is_served(multiplier) => {
                Weights::DepthwiseBytes(depthwise::bytes::PackedDepthwise::new(
                    bytes_layer,
                    packing,
                    |tap, channel| value(tap * columns + channel),
                    bias,
                    multiplier,
                )?)
            }
            Kind::Depthwise => Weights::DepthwiseQ8(depthwise::pairs::PackedDepthwise::new(
                (columns, [parts, depth / parts]),
                packing,
                |tap, channel| value(tap * columns + channel),
                bias,
                multiplier,
            )?),
            _ => Weights::MatrixQ8(PackedI16::new(
                extents,
                packing,
                |column, at| value(column * depth + at),
                bias,
                multiplier,
            )?),
        })
    }
}

/// How many rows of so many values a fully connected layer multiplies, and its activation, if every execution
/// has the same.
fn rows_and_activation(declared: &Declared<'_>, depth: usize) -> Option<(usize, Activation)> {
    let input = declared.input(0).filter(|input| input.shape_known)?;
    let context: &dyn OperationContext = declared;
    let activation = Activation::from_code(3, context.i32(3).ok()?).ok()?;
    let elements = input.shape.elements().ok()?;
    let rows = elements.checked_div(depth)?;
    (rows * depth == elements).then_some((rows, activation))
}

/// Constants as floats, copied to `room` unless they are aligned.
fn floats<'f>(bytes: &'f [u8], room: &'f mut AlignedBuffer) -> Result<&'f [f32], OutOfMemory> {
    if let Ok(floats) = bytemuck::try_cast_slice(bytes) {
        return Ok(floats);
    }
    *room = AlignedBuffer::copy_of(bytes)?;
    Ok(bytemuck::cast_slice(room.bytes()))
}
