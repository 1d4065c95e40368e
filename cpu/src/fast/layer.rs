//! Convolutions, depthwise convolutions and fully connected layers with packed weights.

use nnhal_hal::ops::windows::{WindowArguments, WindowGeometry};
use nnhal_hal::ops::{self, OpError, OperationContext, ShapeIssue};
use nnhal_hal::{OperandType, OperationType};
use nnhal_os::buffer::AlignedSlice;

use super::convolution::integer_layer::{IntegerLayer, Integers};
use super::convolution::patches::{Around, Patches};
use super::epilogue::{Clamp, Epilogue};
use super::float_layer::{FloatLayer, FloatWeights};
use super::matmul::float_matrix::FloatMatrix;
use super::matmul::packed_bytes::{FOUR, PackedBytes};
use super::matmul::pairs::PackedI16;
use super::requantize::QuantizedOutput;
use super::serves::Serves;
use super::{PlannedStep, convolution, depthwise};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::element::Quant8;
use crate::plan::Declared;
use crate::threads::Cost;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Convolution,
    Depthwise,
    FullyConnected,
}

impl Kind {
    pub(super) fn of(operation: OperationType) -> Option<Kind> {
        match operation {
            OperationType::CONV_2D => Some(Kind::Convolution),
            OperationType::DEPTHWISE_CONV_2D => Some(Kind::Depthwise),
            OperationType::FULLY_CONNECTED => Some(Kind::FullyConnected),
            _ => None,
        }
    }

    pub(super) fn arguments(self, context: &dyn OperationContext) -> WindowArguments {
        match self {
            Kind::Depthwise => ops::depthwise_convolution::arguments(context),
            _ => ops::convolution::arguments(context),
        }
    }

    pub(super) fn geometry(
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

/// What every execution of a convolution would work out anew, where all of it follows from the model and the
/// packed weights serve it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) patches: Patches,
    pub(super) activation: Activation,
}

impl Known {
    pub(super) fn of(kind: Kind, declared: &Declared<'_>, weights: &Weights) -> Option<Known> {
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
pub(super) fn is_one_to_one(
    context: &dyn OperationContext,
    arguments: WindowArguments,
) -> Result<bool, ShapeIssue> {
    Ok(context.i32(arguments.own())? == 1)
}

#[derive(Debug)]
pub(super) enum Weights {
    MatrixF32(FloatMatrix),
    MatrixQ8(PackedI16),
    BytesQ8(PackedBytes),
    DepthwiseF32(depthwise::PackedDepthwise),
    DepthwiseQ8(depthwise::pairs::PackedDepthwise),
    DepthwiseBytes(depthwise::bytes::PackedDepthwise),
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
            Weights::DepthwiseQ8(_) => one_to_one && depthwise::pairs::serves(patches),
            Weights::DepthwiseBytes(weights) => one_to_one && weights.serves(patches),
        }
    }
}

/// A convolution, depthwise convolution or fully connected layer.
#[derive(Debug)]
pub(crate) struct Layer {
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
    /// Whether its own filter may be needed again.
    reads_filter: bool,
}

impl Layer {
    /// A layer with packed weights, and those for an input of integers if it may have such.
    pub(super) fn new(
        kind: Kind,
        (declared, fallback): (&Declared<'_>, Kernel),
        (weights, known, integers): (Weights, Option<Known>, Option<Integers>),
    ) -> Layer {
        let context: &dyn OperationContext = declared;
        let is_known = known.is_some();
        let own_activation = (kind == Kind::FullyConnected)
            .then(|| Activation::from_code(3, context.i32(3).ok()?).ok())
            .flatten();
        Layer {
            kind,
            fallback,
            serves: serves(kind, declared, is_known, &weights),
            known,
            activation: own_activation,
            weights,
            integers,
            // By the fallback, or to pack bytes for the number of rows once that is known: their sums are
            // exact, and have the same bits in each form.
            reads_filter: match kind {
                Kind::FullyConnected => {
                    let input = declared.input(0);
                    input.is_some_and(|input| !input.shape_known && input.ty() != OperandType::TENSOR_FLOAT32)
                }
                Kind::Convolution | Kind::Depthwise => !is_known,
            },
        }
    }
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

    fn replaces_filter(&self) -> bool {
        !self.reads_filter
    }
}

impl Layer {
    /// The same layer for an input of integers, if its weights are such.
    pub(crate) fn integer_layer(&self) -> Option<&IntegerLayer> {
        self.integers.as_ref()?.layer()
    }

    /// What it is, if it is a convolution of floats of which everything is known.
    pub(crate) fn float_layer(&self) -> Option<FloatLayer<'_>> {
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

    /// How much work it is, if that is the same in every execution.
    pub(crate) fn cost(&self) -> Option<Cost> {
        let patches = &self.known.as_ref()?.patches;
        let times_as_fast = match &self.weights {
            Weights::MatrixF32(weights) => weights.times_as_fast(),
            Weights::BytesQ8(weights) => weights.times_as_fast(),
            Weights::MatrixQ8(_) => 1,
            Weights::DepthwiseF32(_) | Weights::DepthwiseQ8(_) | Weights::DepthwiseBytes(_) => {
                return Some(depthwise::cost(patches));
            }
        };
        let bytes = self.weights.packed().bytes().len();
        Some(convolution::cost(patches, bytes, times_as_fast))
    }

    /// About how much work it is for so many results, whatever executions say.
    pub(crate) fn cost_of(&self, results: usize) -> Option<Cost> {
        self.cost().or_else(|| {
            let (depth, times_as_fast) = match &self.weights {
                Weights::MatrixF32(weights) => (weights.depth(), weights.times_as_fast()),
                Weights::BytesQ8(weights) => (weights.depth(), weights.times_as_fast()),
                Weights::MatrixQ8(weights) => (2 * weights.pairs(), 1),
                Weights::DepthwiseF32(_) | Weights::DepthwiseQ8(_) | Weights::DepthwiseBytes(_) => {
                    return None;
                }
            };
            let products = (results as u64).saturating_mul(depth as u64);
            Some(Cost {
                multiply_adds: products / (times_as_fast * convolution::vector_speed()),
                bytes: self.weights.packed().bytes().len() as u64,
            })
        })
    }

    /// The windows over the image, if it can put what is around it there itself.
    pub(super) fn behind_padding(&self, around: &Around) -> Option<Patches> {
        let patches = self.known.as_ref()?.patches.behind_padding(around)?;
        (self.weights.serve(&patches) && patches.count() > 0).then_some(patches)
    }

    /// Computes the operation from what is to be padded, in place of its first input, with what
    /// [`Layer::behind_padding`] gave.
    pub(super) fn run_padded(
        &self,
        context: &mut KernelContext<'_>,
        patches: &Patches,
    ) -> Result<(), KernelError> {
        match &self.known {
            Some(Known { activation, .. }) => self.run_on(context, patches, *activation),
            None => Err(OpError::input(0, "is not padded by this operation").into()),
        }
    }

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
                let memory = (&mut *context.scratch, context.team);
                weights.run(patches, input, (output, activation.range()), memory)?;
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
        let form = (output.scale(), output.zero_point());
        let stored = QuantizedOutput::new(form, activation, [T::LEAST, T::MOST]);
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
