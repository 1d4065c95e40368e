//! Which operations become steps, and how.

use nnhal_hal::ops::windows::{WindowArguments, WindowGeometry};
use nnhal_hal::ops::{self, OpError, OperationContext, ShapeIssue};
use nnhal_hal::{Operand, OperandType, OperationType};
use nnhal_os::buffer::{AlignedBuffer, AlignedSlice, OutOfMemory};

use super::arg::ArgStep;
use super::binary::Binary;
use super::byte_table::TableStep;
use super::elementwise::BinaryStep;
use super::epilogue::{Clamp, Epilogue};
use super::extremum::ExtremumStep;
use super::float_matrix::FloatMatrix;
use super::integer_layer::{IntegerLayer, Integers};
use super::matmul_quantized::{Extents, PackedI16};
use super::packed_bytes::{FOUR, PackedBytes, ZeroPoints};
use super::packing::{Packing, PackingError};
use super::patches::{Around, Patches};
use super::pooling::PoolingStep;
use super::quantization::QuantizationStep;
use super::recurrent::RecurrentStep;
use super::requantize::QuantizedOutput;
use super::resize::ResizeStep;
use super::serves::Serves;
use super::simd::multiplies_bytes;
use super::single_row::SingleRowStep;
use super::softmax::SoftmaxStep;
use super::unary::{Unary, UnaryStep};
use super::{PlannedStep, convolution::weight};
use super::{convolution, depthwise, depthwise_bytes, depthwise_quantized};
use crate::executor::Declared;
use crate::kernel::{Constant, Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::element::Quant8;
use crate::kernels::{kernel, layer};

/// The step for an operation, or `None` if it has none: another operation, weights that are not constant, or
/// types that only the reference kernels take. `filter` has the bytes of its second input, if that is a
/// constant; they are not looked at if `packing` has what they become. Results may be as coarse as floats of
/// half precision if `is_relaxed` says so.
pub(crate) fn plan(
    declared: &Declared<'_>,
    filter: &[u8],
    (packing, is_relaxed): (&mut Packing, bool),
) -> Result<Option<Box<dyn PlannedStep>>, PackingError> {
    let operation = declared.operation;
    let Some(fallback) = kernel(operation.operation_type) else {
        return Ok(None);
    };
    if let Some(step) = plain(declared, fallback) {
        return Ok(Some(step));
    }
    if let Some(step) = RecurrentStep::new(declared, (packing, is_relaxed))? {
        return Ok(Some(Box::new(step)));
    }
    let layer = Kind::of(operation.operation_type)
        .and_then(|kind| Some((kind, ConstantLayer::of(kind, declared, filter)?)));
    let Some((kind, layer)) = layer else {
        return Ok(None);
    };
    if let Some(step) = layer.single_row(declared, (packing, is_relaxed))? {
        return Ok(Some(Box::new(step)));
    }
    if layer.is_left_to_reference(declared) {
        return Ok(None);
    }
    let Some(weights) = layer.pack(packing)? else {
        return Ok(None);
    };
    let known = Known::of(kind, declared, &weights);
    let integers = layer.integers(declared, known.as_ref(), packing)?;
    let context: &dyn OperationContext = declared;
    let own_activation = (kind == Kind::FullyConnected)
        .then(|| Activation::from_code(3, context.i32(3).ok()?).ok())
        .flatten();
    Ok(Some(Box::new(Layer {
        kind,
        fallback,
        serves: serves(kind, declared, known.is_some(), &weights),
        known,
        activation: own_activation,
        weights,
        integers,
    })))
}

/// Whether an operation is one whose second input is a filter that [`plan`] packs if it is constant.
pub(crate) fn has_filter(operation: OperationType) -> bool {
    Kind::of(operation).is_some()
}

/// Whether [`plan`] packs weights of operations of this type.
pub(crate) fn packs(operation: OperationType) -> bool {
    has_filter(operation) || super::recurrent::has_cells(operation)
}

/// What every execution of a convolution would work out anew, where all of it follows from the model and the
/// packed weights serve it.
#[derive(Clone, Copy, Debug)]
struct Known {
    patches: Patches,
    activation: Activation,
}

impl Known {
    fn of(kind: Kind, declared: &Declared<'_>, weights: &Weights) -> Option<Known> {
        if !follow_from_model(declared) || kind == Kind::FullyConnected {
            return None;
        }
        let context: &dyn OperationContext = declared;
        let (arguments, geometry) = kind.geometry(context).ok()?;
        let at = arguments.activation();
        let activation = Activation::from_code(at, context.i32(at).ok()?).ok()?;
        let patches = Patches::new(&geometry);
        (!geometry.nchw && weights.serve(&patches)).then_some(Known { patches, activation })
    }
}

/// Whether all executions of an operation have the same shapes and arguments.
fn follow_from_model(declared: &Declared<'_>) -> bool {
    (0..declared.operation.inputs.len()).all(|number| match declared.input(number) {
        Some(input) => input.bytes.is_some() || (number == 0 && input.shape_known),
        // Left out by the model.
        None => number > 0,
    })
}

/// Which executions packed weights serve, of a layer that is not [left](ConstantLayer::is_left_to_reference)
/// to the reference.
fn serves(kind: Kind, declared: &Declared<'_>, is_known: bool, weights: &Weights) -> Serves {
    if is_known || kind == Kind::FullyConnected {
        return Serves::All;
    }
    if follow_from_model(declared) {
        return Serves::Never;
    }
    let context: &dyn OperationContext = declared;
    let arguments = kind.arguments(context);
    if arguments.nchw(context).is_err() {
        return Serves::Those;
    }
    match weights {
        Weights::MatrixF32(_) | Weights::MatrixQ8(_) | Weights::BytesQ8(_) => Serves::All,
        Weights::DepthwiseF32(_) => Serves::if_so(is_one_to_one(context, arguments)),
        // How far taps lie apart in the image is known with its extents.
        Weights::DepthwiseQ8(_) | Weights::DepthwiseBytes(_) => Serves::Those,
    }
}

/// Whether a depthwise convolution has one filter for each channel of its input.
fn is_one_to_one(context: &dyn OperationContext, arguments: WindowArguments) -> Result<bool, ShapeIssue> {
    Ok(context.i32(arguments.own())? == 1)
}

/// The step of an operation that needs no constants.
fn plain(declared: &Declared<'_>, fallback: Kernel) -> Option<Box<dyn PlannedStep>> {
    let operation = declared.operation.operation_type;
    if let Some(binary) = Binary::of(operation) {
        return Some(Box::new(BinaryStep::new(binary, fallback, declared)));
    }
    if let Some(step) = TableStep::of(declared, fallback) {
        return Some(Box::new(step));
    }
    if let Some(unary) = Unary::of(declared) {
        return Some(Box::new(UnaryStep { unary, fallback }));
    }
    if let Some(step) = QuantizationStep::of(declared, fallback) {
        return Some(Box::new(step));
    }
    if let Some(step) = ArgStep::of(declared, fallback) {
        return Some(Box::new(step));
    }
    if let Some(step) = ExtremumStep::of(operation, fallback) {
        return Some(Box::new(step));
    }
    if let Some(step) = ResizeStep::of(declared, fallback) {
        return Some(Box::new(step));
    }
    if let Some(step) = SoftmaxStep::of(declared, fallback) {
        return Some(Box::new(step));
    }
    let step = PoolingStep::of(declared, fallback)?;
    Some(Box::new(step))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Convolution,
    Depthwise,
    FullyConnected,
}

impl Kind {
    fn of(operation: OperationType) -> Option<Kind> {
        match operation {
            OperationType::CONV_2D => Some(Kind::Convolution),
            OperationType::DEPTHWISE_CONV_2D => Some(Kind::Depthwise),
            OperationType::FULLY_CONNECTED => Some(Kind::FullyConnected),
            _ => None,
        }
    }

    fn arguments(self, context: &dyn OperationContext) -> WindowArguments {
        match self {
            Kind::Depthwise => ops::depthwise_convolution::arguments(context),
            _ => ops::convolution::arguments(context),
        }
    }

    fn geometry(
        self,
        context: &dyn OperationContext,
    ) -> Result<(WindowArguments, WindowGeometry), ShapeIssue> {
        let geometry = match self {
            Kind::Depthwise => ops::depthwise_convolution::geometry(context)?,
            _ => ops::convolution::geometry(context)?,
        };
        Ok((self.arguments(context), geometry))
    }
}

/// An operation with constant weights and bias.
struct ConstantLayer<'a> {
    kind: Kind,
    input: &'a Operand,
    output: &'a Operand,
    filter: (&'a Operand, &'a Constant),
    /// The filter's bytes, which need not be aligned.
    filter_bytes: &'a [u8],
    bias: &'a Constant,
}

impl<'a> ConstantLayer<'a> {
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
        let bytes_layer = depthwise_bytes::Layer {
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
            Kind::Depthwise if multiplies_bytes() && bytes_layer.is_served(multiplier) => {
                Weights::DepthwiseBytes(depthwise_bytes::PackedDepthwise::new(
                    bytes_layer,
                    packing,
                    |tap, channel| value(tap * columns + channel),
                    bias,
                    multiplier,
                )?)
            }
            Kind::Depthwise => Weights::DepthwiseQ8(depthwise_quantized::PackedDepthwise::new(
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

#[derive(Debug)]
enum Weights {
    MatrixF32(FloatMatrix),
    MatrixQ8(PackedI16),
    BytesQ8(PackedBytes),
    DepthwiseF32(depthwise::PackedDepthwise),
    DepthwiseQ8(depthwise_quantized::PackedDepthwise),
    DepthwiseBytes(depthwise_bytes::PackedDepthwise),
}

impl Weights {
    fn packed(&self) -> &AlignedSlice {
        match self {
            Weights::MatrixF32(weights) => weights.packed(),
            Weights::MatrixQ8(weights) => weights.packed(),
            Weights::BytesQ8(weights) => weights.packed(),
            Weights::DepthwiseF32(weights) => weights.packed(),
            Weights::DepthwiseQ8(weights) => weights.packed(),
            Weights::DepthwiseBytes(weights) => weights.packed(),
        }
    }

    /// Whether they are packed for windows of this kind.
    fn serve(&self, patches: &Patches) -> bool {
        let one_to_one = patches.input.channels == patches.output.channels;
        match self {
            Weights::MatrixF32(weights) => weights.depth() == patches.depth(),
            Weights::MatrixQ8(weights) => weights.pairs() == patches.pairs(),
            Weights::BytesQ8(weights) => weights.depth() == patches.fours() * FOUR,
            Weights::DepthwiseF32(_) => one_to_one,
            Weights::DepthwiseQ8(_) => one_to_one && depthwise_quantized::serves(patches),
            Weights::DepthwiseBytes(weights) => one_to_one && weights.serves(patches),
        }
    }
}

/// A convolution, depthwise convolution or fully connected layer.
#[derive(Debug)]
struct Layer {
    kind: Kind,
    /// For the layouts and multipliers that the packed form does not serve.
    fallback: Kernel,
    serves: Serves,
    /// With it the fallback is never needed.
    known: Option<Known>,
    /// Of a fully connected layer, if it is the same in every execution.
    activation: Option<Activation>,
    weights: Weights,
    /// For an input of integers.
    integers: Option<Integers>,
}

/// A layer of 32-bit floats of which everything is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatLayer<'a> {
    pub(super) weights: FloatWeights<'a>,
    pub(super) patches: &'a Patches,
    /// What results are clamped to.
    pub(super) range: (f32, f32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FloatWeights<'a> {
    Matrix(&'a FloatMatrix),
    Depthwise(&'a depthwise::PackedDepthwise),
}

impl PlannedStep for Layer {
    fn name(&self, _: OperandType) -> &'static str {
        let (always, sometimes) = match &self.weights {
            Weights::MatrixF32(weights) => (weights.name(), "f32 matrix product, reference if NCHW"),
            Weights::MatrixQ8(_) => (
                "8-bit matrix product by pairs",
                "8-bit matrix product by pairs, reference if NCHW",
            ),
            Weights::BytesQ8(weights) => (weights.name(), "8-bit matrix product, reference if NCHW"),
            Weights::DepthwiseF32(_) => ("f32 depthwise", "f32 depthwise, or reference"),
            Weights::DepthwiseQ8(_) | Weights::DepthwiseBytes(_) => {
                ("8-bit depthwise", "8-bit depthwise, or reference")
            }
        };
        self.serves.name(always, sometimes)
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        // Extents of what has no elements need not fit any memory.
        if context.outputs.tensor(0)?.bytes.is_empty() {
            return if self.replaces_filter() {
                Ok(())
            } else {
                (self.fallback)(context)
            };
        }
        if self.kind == Kind::FullyConnected {
            return self.run_fully_connected(context);
        }
        if let Some(Known { patches, activation }) = &self.known {
            return self.run_on(context, patches, *activation);
        }
        let (arguments, geometry) = self.kind.geometry(context.inputs.rules())?;
        let patches = Patches::new(&geometry);
        if geometry.nchw || !self.weights.serve(&patches) {
            return (self.fallback)(context);
        }
        let activation = arguments.activation();
        let activation = Activation::from_code(activation, context.inputs.i32(activation)?)?;
        self.run_on(context, &patches, activation)
    }

    fn packed(&self) -> Vec<&AlignedSlice> {
        let integers = self.integers.iter().flat_map(Integers::packed);
        std::iter::once(self.weights.packed()).chain(integers).collect()
    }

    fn integer_layer(&self) -> Option<&IntegerLayer> {
        self.integers.as_ref()?.layer()
    }

    fn float_layer(&self) -> Option<FloatLayer<'_>> {
        let Known { patches, activation } = self.known.as_ref()?;
        let weights = match &self.weights {
            Weights::MatrixF32(weights) => FloatWeights::Matrix(weights),
            Weights::DepthwiseF32(weights) => FloatWeights::Depthwise(weights),
            _ => return None,
        };
        Some(FloatLayer {
            weights,
            patches,
            range: activation.range(),
        })
    }

    fn clamp(&mut self, activation: Activation) -> bool {
        let known = self.known.as_mut().map(|known| &mut known.activation);
        let own = known.or(self.activation.as_mut());
        // Integers are summed without being clamped.
        match own.filter(|own| **own == Activation::None && self.integers.is_none()) {
            Some(own) => {
                *own = activation;
                true
            }
            None => false,
        }
    }

    fn behind_padding(&self, around: &Around) -> Option<Patches> {
        let patches = self.known.as_ref()?.patches.behind_padding(around)?;
        (self.weights.serve(&patches) && patches.count() > 0).then_some(patches)
    }

    fn run_padded(&self, context: &mut KernelContext<'_>, patches: &Patches) -> Result<(), KernelError> {
        match &self.known {
            Some(Known { activation, .. }) => self.run_on(context, patches, *activation),
            None => Err(OpError::input(0, "is not padded by this operation").into()),
        }
    }

    /// Nor is the filter in its own form needed where the fallback is not.
    fn replaces_filter(&self) -> bool {
        self.known.is_some() || self.kind == Kind::FullyConnected
    }
}

impl Layer {
    /// A fully connected layer is a convolution of single pixels.
    fn run_fully_connected(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let output = context.outputs.tensor(0)?.shape;
        let depth = context.inputs.tensor(1)?.shape.dim(1);
        let patches = Patches::pixels(output.dim(0), depth, output.dim(1));
        let activation = match self.activation {
            Some(activation) => activation,
            None => Activation::from_code(3, context.inputs.i32(3)?)?,
        };
        self.run_on(context, &patches, activation)
    }

    fn run_on(
        &self,
        context: &mut KernelContext<'_>,
        patches: &Patches,
        activation: Activation,
    ) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        match &self.weights {
            Weights::MatrixF32(weights) => {
                let (input, output) = (input.data()?, context.outputs.data(0)?);
                convolution::run_f32(
                    weights,
                    patches,
                    input,
                    (output, Epilogue::Clamp(Clamp(activation.range()))),
                    (context.scratch, context.team),
                )?;
            }
            Weights::DepthwiseF32(weights) => {
                let (input, output) = (input.data()?, context.outputs.data(0)?);
                weights.run(patches, input, (output, activation.range()), context.team);
            }
            _ if input.ty() == OperandType::TENSOR_QUANT8_ASYMM => {
                self.run_q8::<u8>(context, patches, activation)?;
            }
            _ => self.run_q8::<i8>(context, patches, activation)?,
        }
        Ok(())
    }

    fn run_q8<T: Quant8>(
        &self,
        context: &mut KernelContext<'_>,
        patches: &Patches,
        activation: Activation,
    ) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        let output = context.outputs.tensor(0)?;
        let (scale, zero_point) = (output.scale(), output.zero_point());
        let (low, high) = activation.quantized_range(scale, zero_point, T::LEAST, T::MOST);
        let stored = QuantizedOutput {
            zero_point,
            low,
            high,
        };
        let source = (input.data::<T>()?, input.zero_point());
        let target = (output.into_data::<T>()?, stored);
        match &self.weights {
            Weights::MatrixQ8(weights) => {
                convolution::run_q8(weights, patches, source, target, (context.scratch, context.team))?;
            }
            Weights::BytesQ8(weights) => {
                convolution::run_bytes(weights, patches, source, target, (context.scratch, context.team))?;
            }
            Weights::DepthwiseQ8(weights) => {
                weights.run(patches, source, target, (context.scratch, context.team))?;
            }
            Weights::DepthwiseBytes(weights) => {
                weights.run(patches, source.0, target, (context.scratch, context.team))?;
            }
            Weights::MatrixF32(_) | Weights::DepthwiseF32(_) => return (self.fallback)(context),
        }
        Ok(())
    }
}
