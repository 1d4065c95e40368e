//! What convolutions and fully connected layers have in common: inputs 0, 1 and 2 are input, weights and
//! bias, and every output is a sum of products, the bias and an activation.
//!
//! Floats are summed in `f32`. Quantised values are summed exactly, less their zero points, then rescaled
//! once, by [`multiplier`]: those of 8 bits in 32 bits, those of 16 in 64.

use half::f16;
use nnhal_hal::{ExtraParams, Operand, OperandType};

use super::activation_range::{Activation, clamp};
use super::element::{Float, Quantized, not_taken};
use super::fixed_point::Multiplier;
use super::products::Product;
use crate::kernel::{KernelContext, KernelError, Pace};

/// How the elements of one combination of types become products and outputs.
pub(super) trait Arithmetic {
    type Input: Copy;
    type Weight: Copy;
    type Output: Copy;
    type Operand: Product;

    fn input(&self, element: Self::Input) -> Self::Operand;

    fn weight(&self, element: Self::Weight) -> Self::Operand;

    /// The output for a sum of products of this output channel.
    fn finish(&self, channel: usize, sum: <Self::Operand as Product>::Sum) -> Self::Output;
}

/// How many elements of scratch memory a layer needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScratchLengths {
    pub(super) patches: usize,
    pub(super) weights: usize,
    pub(super) sums: usize,
}

/// Scratch memory of a layer.
pub(super) struct LayerScratch<'a, P: Product> {
    pub(super) patches: &'a mut [P],
    pub(super) weights: &'a mut [P],
    pub(super) sums: &'a mut [P::Sum],
}

/// A layer over any arithmetic.
pub(super) trait Layer {
    fn scratch(&self) -> ScratchLengths;

    /// Computes the output; fails if the execution is interrupted.
    fn compute<A: Arithmetic>(
        &self,
        arithmetic: &A,
        input: &[A::Input],
        weights: &[A::Weight],
        output: &mut [A::Output],
        memory: (LayerScratch<'_, A::Operand>, &mut Pace<'_>),
    ) -> Result<(), KernelError>;
}

/// Computes a layer with the types of its operands. Input `activation` holds the fused activation; there are
/// `channels` output channels, as many as elements of the bias.
pub(super) fn compute(
    context: &mut KernelContext<'_>,
    activation: usize,
    channels: usize,
    layer: &impl Layer,
) -> Result<(), KernelError> {
    let activation = Activation::from_code(activation, context.inputs.i32(activation)?)?;
    // Nothing to compute, though the other extents may be as large as they can be.
    if context.outputs.tensor(0)?.bytes.is_empty() {
        return Ok(());
    }
    let (input, weights) = (context.inputs.tensor(0)?.ty(), context.inputs.tensor(1)?.ty());
    match (input, weights) {
        (OperandType::TENSOR_FLOAT32, _) => float::<f32>(context, activation, layer),
        (OperandType::TENSOR_FLOAT16, _) => float::<f16>(context, activation, layer),
        (OperandType::TENSOR_QUANT8_ASYMM, OperandType::TENSOR_QUANT8_ASYMM) => {
            quantized::<u8, u8>(context, activation, channels, layer)
        }
        (OperandType::TENSOR_QUANT8_ASYMM, _) => quantized::<u8, i8>(context, activation, channels, layer),
        (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, _) => {
            quantized::<i8, i8>(context, activation, channels, layer)
        }
        (OperandType::TENSOR_QUANT16_SYMM, _) => quantized::<i16, i8>(context, activation, channels, layer),
        (ty, _) => Err(not_taken(0, ty)),
    }
}

struct FloatArithmetic<'a, T> {
    bias: &'a [T],
    range: (f32, f32),
}

impl<T: Float> Arithmetic for FloatArithmetic<'_, T> {
    type Input = T;
    type Weight = T;
    type Output = T;
    type Operand = f32;

    #[inline]
    fn input(&self, element: T) -> f32 {
        element.to_f32()
    }

    #[inline]
    fn weight(&self, element: T) -> f32 {
        element.to_f32()
    }

    #[inline]
    fn finish(&self, channel: usize, sum: f32) -> T {
        T::from_f32(clamp(sum + self.bias[channel].to_f32(), self.range))
    }
}

fn float<T: Float>(
    context: &mut KernelContext<'_>,
    activation: Activation,
    layer: &impl Layer,
) -> Result<(), KernelError> {
    let arithmetic = FloatArithmetic {
        bias: context.inputs.data::<T>(2)?,
        range: activation.range(),
    };
    let mut pace = context.pace();
    let lengths = layer.scratch();
    let [patches, weights, sums] =
        context
            .scratch
            .carve::<f32, 3>([lengths.patches, lengths.weights, lengths.sums])?;
    layer.compute(
        &arithmetic,
        context.inputs.data::<T>(0)?,
        context.inputs.data::<T>(1)?,
        context.outputs.data::<T>(0)?,
        (
            LayerScratch {
                patches,
                weights,
                sums,
            },
            &mut pace,
        ),
    )
}

/// A quantised element that is multiplied and summed.
pub(super) trait Factor: Quantized {
    /// Holds the difference of an element and a zero point.
    type Operand: Product;

    /// The difference, as what is multiplied.
    fn operand(difference: i32) -> Self::Operand;

    /// A sum of products and a bias, rescaled.
    fn rescale(sum: <Self::Operand as Product>::Sum, bias: i32, multiplier: Multiplier) -> i32;
}

macro_rules! impl_factor {
    ($($element:ty),+) => {
        $(
            impl Factor for $element {
                type Operand = i16;

                #[inline]
                fn operand(difference: i32) -> i16 {
                    // Both are within 8 bits of the same type: the difference is within 9.
                    difference as i16
                }

                #[inline]
                fn rescale(sum: i32, bias: i32, multiplier: Multiplier) -> i32 {
                    multiplier.apply(sum.wrapping_add(bias))
                }
            }
        )+
    };
}

impl_factor!(u8, i8);

impl Factor for i16 {
    type Operand = i32;

    #[inline]
    fn operand(difference: i32) -> i32 {
        difference
    }

    #[inline]
    fn rescale(sum: i64, bias: i32, multiplier: Multiplier) -> i32 {
        multiplier.apply_to_sum(sum.wrapping_add(i64::from(bias)))
    }
}

struct QuantizedArithmetic<'a, T, W> {
    input_zero: i32,
    weight_zero: i32,
    bias: &'a [i32],
    /// One for each channel.
    multipliers: &'a [Multiplier],
    output_zero: i32,
    low: i32,
    high: i32,
    types: std::marker::PhantomData<(T, W)>,
}

impl<T: Factor, W: Quantized> Arithmetic for QuantizedArithmetic<'_, T, W> {
    type Input = T;
    type Weight = W;
    type Output = T;
    type Operand = T::Operand;

    #[inline]
    fn input(&self, element: T) -> T::Operand {
        T::operand(element.to_i32() - self.input_zero)
    }

    #[inline]
    fn weight(&self, element: W) -> T::Operand {
        T::operand(element.to_i32() - self.weight_zero)
    }

    #[inline]
    fn finish(&self, channel: usize, sum: <T::Operand as Product>::Sum) -> T {
        let value = T::rescale(sum, self.bias[channel], self.multipliers[channel]);
        T::saturate(value.saturating_add(self.output_zero).clamp(self.low, self.high))
    }
}

/// What scales a quantised sum of this output channel: input scale * filter scale / output scale. Of an
/// unquantised filter scale the product is one of 32-bit floats, of a per-channel one of 64-bit floats, as in
/// TFLite's kernels.
pub(crate) fn multiplier(input: &Operand, filter: &Operand, output: &Operand, channel: usize) -> Multiplier {
    let product = match &filter.extra_params {
        ExtraParams::ChannelQuant(params) => {
            f64::from(input.scale) * f64::from(params.scales.get(channel).copied().unwrap_or_default())
        }
        _ => f64::from(input.scale * filter.scale),
    };
    Multiplier::new(product / f64::from(output.scale))
}

fn quantized<T: Factor, W: Quantized>(
    context: &mut KernelContext<'_>,
    activation: Activation,
    channels: usize,
    layer: &impl Layer,
) -> Result<(), KernelError> {
    let (input, weights) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let (output_scale, output_zero) = (output.scale(), output.zero_point());
    let (low, high) = activation.quantized_range(output_scale, output_zero, T::LEAST, T::MOST);
    let mut pace = Pace::new(context.team);
    let lengths = layer.scratch();
    let [patches, operands, sums, multipliers] = context.scratch.carve::<u8, 4>([
        lengths.patches * size_of::<T::Operand>(),
        lengths.weights * size_of::<T::Operand>(),
        lengths.sums * size_of::<<T::Operand as Product>::Sum>(),
        channels * size_of::<Multiplier>(),
    ])?;
    let multipliers: &mut [Multiplier] = bytemuck::cast_slice_mut(multipliers);
    if context.inputs.rules().channel_quant(1).is_some() {
        for (channel, target) in multipliers.iter_mut().enumerate() {
            *target = multiplier(input.operand, weights.operand, output.operand, channel);
        }
    } else {
        multipliers.fill(multiplier(input.operand, weights.operand, output.operand, 0));
    }
    let arithmetic = QuantizedArithmetic::<T, W> {
        input_zero: input.zero_point(),
        weight_zero: weights.zero_point(),
        bias: context.inputs.data::<i32>(2)?,
        multipliers,
        output_zero,
        low,
        high,
        types: std::marker::PhantomData,
    };
    layer.compute(
        &arithmetic,
        input.data::<T>()?,
        weights.data::<W>()?,
        output.into_data::<T>()?,
        (
            LayerScratch {
                patches: bytemuck::cast_slice_mut(patches),
                weights: bytemuck::cast_slice_mut(operands),
                sums: bytemuck::cast_slice_mut(sums),
            },
            &mut pace,
        ),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    /// A layer of zeros, and as many of its arguments behind the bias.
    fn layer(operation: OperationType, dims: [&[u32]; 3], arguments: &[i32], output: &[u32]) -> OneOperation {
        let one = dims.iter().fold(OneOperation::new(operation), |one, dims| {
            let zeros = vec![0.0_f32; dims.iter().product::<u32>() as usize];
            one.tensor(T::TENSOR_FLOAT32, dims, &zeros)
        });
        let one = arguments.iter().fold(one, |one, value| one.i32(*value));
        one.output(T::TENSOR_FLOAT32, output)
    }

    #[test]
    fn deadline_ends_large_layers() {
        let image: &[u32] = &[1, 32, 32, 16];
        let filters: [&[u32]; 3] = [&[16, 3, 3, 16], &[1, 3, 3, 16], &[16, 2, 2, 16]];
        ends_by_the_deadline(layer(
            OperationType::CONV_2D,
            [image, filters[0], &[16]],
            &[1, 1, 1, 0],
            image,
        ));
        ends_by_the_deadline(layer(
            OperationType::DEPTHWISE_CONV_2D,
            [image, filters[1], &[16]],
            &[1, 1, 1, 1, 0],
            image,
        ));
        let transposed = layer(
            OperationType::TRANSPOSE_CONV_2D,
            [image, filters[2], &[16]],
            &[0, 0, 0, 0, 2, 2, 0],
            &[1, 64, 64, 16],
        );
        ends_by_the_deadline(transposed.tensor(T::BOOL, &[], &[0_u8]));
        ends_by_the_deadline(layer(
            OperationType::FULLY_CONNECTED,
            [&[8, 256], &[128, 256], &[128]],
            &[0],
            &[8, 128],
        ));
    }
}
