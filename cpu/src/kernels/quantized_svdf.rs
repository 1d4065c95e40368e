//! SVDF of signed bytes, which is the extension's: the layer of NNAPI's SVDF on integers.
//!
//! The arithmetic is that of TFLite's integer kernel: the feature filter's product is brought to the scale of
//! the 16-bit state, the sum over time and rank to that of the output. The only activation is ReLU, which the
//! output's zero point brings about.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::element::Quantized;
use super::fixed_point::Multiplier;
use super::svdf::Extents;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::SVDF, svdf)];

fn svdf(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let extents = Extents::new(&inputs)?;
    let activation = inputs.i32(6)?;
    if activation != 1 {
        let message = format!("(activation) is {activation}, must be 1 (ReLU)");
        return Err(OpError::input(6, message).into());
    }
    let (values, memory, units) = (extents.values, extents.memory, extents.units());
    let mut pace = context.pace();
    let [input, weights, time, last] = [
        inputs.tensor(0)?,
        inputs.tensor(1)?,
        inputs.tensor(2)?,
        inputs.tensor(4)?,
    ];
    let bias = match inputs.optional(3) {
        Some(bias) => Some(bias.data::<i32>()?),
        None => None,
    };
    let [sums] = context.scratch.carve::<i32, 1>([units])?;
    let [state, output] = context.outputs.tensors([0, 1])?;
    let (zero_point, output_zero_point) = (input.zero_point(), output.zero_point());
    let to_state = Multiplier::new(f64::from(input.scale() * weights.scale() / last.scale()));
    let to_output = Multiplier::new(f64::from(last.scale() * time.scale() / output.scale()));
    let (state, output) = (state.into_data::<i16>()?, output.into_data::<i8>()?);
    state.copy_from_slice(last.data()?);
    let (input, weights, time) = (input.data::<i8>()?, weights.data::<i8>()?, time.data::<i16>()?);
    let columns = extents.filters * memory;
    for batch in 0..extents.batches {
        pace.work(extents.filters * (values + memory))?;
        let item = &input[batch * values..][..values];
        match bias {
            Some(bias) => sums.copy_from_slice(bias),
            None => sums.fill(0),
        }
        let state = &mut state[batch * columns..][..columns];
        for (filter, remembered) in state.chunks_exact_mut(memory).enumerate() {
            let row = weights[filter * values..][..values].iter().zip(item);
            let product = row.fold(0_i32, |sum, (weight, value)| {
                sum.wrapping_add(i32::from(*weight) * (i32::from(*value) - zero_point))
            });
            if let Some(newest) = remembered.last_mut() {
                *newest = i16::saturate(to_state.apply(product));
            }
            let row = time[filter * memory..][..memory].iter().zip(&*remembered);
            let sum = &mut sums[filter / extents.rank];
            *sum = row.fold(*sum, |sum, (weight, value)| {
                sum.wrapping_add(i32::from(*weight) * i32::from(*value))
            });
            remembered.copy_within(1.., 0);
            if let Some(next) = remembered.last_mut() {
                *next = 0;
            }
        }
        for (result, sum) in output[batch * units..][..units].iter_mut().zip(&*sums) {
            let steps = to_output.apply(*sum).saturating_add(output_zero_point);
            *result = i8::saturate(steps);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::{Computed, OneOperation};

    /// Two filters of memory 2 on an input of one value; all scales are 1 but that of the output, which is 4.
    fn svdf(
        settings: (i32, i32),
        input: i8,
        state: &[i16],
        bias: Option<i32>,
    ) -> Result<Vec<Computed>, String> {
        let wide = |dims: &[u32]| Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(1.0, 0);
        let bytes = |dims: &[u32], scale, zero_point| {
            Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims).with_quantization(scale, zero_point)
        };
        let weights = Operand::new(T::TENSOR_QUANT8_SYMM, &[2, 1]).with_quantization(1.0, 0);
        let units = 2 / settings.0.clamp(1, 2) as usize;
        let operation = OneOperation::new(tflite::SVDF)
            .operand(bytes(&[1, 1], 1.0, -2), &[input])
            .operand(weights, &[1_i8, 2])
            .operand(wide(&[2, 2]), &[1_i16, 10, 1, 100]);
        let operation = match bias {
            Some(bias) => operation.tensor(T::TENSOR_INT32, &[units as u32], &vec![bias; units]),
            None => operation.omitted(T::TENSOR_INT32),
        };
        operation
            .operand(wide(&[1, state.len() as u32]), state)
            .i32(settings.0)
            .i32(settings.1)
            .output_operand(wide(&[0, 0]))
            .output_operand(bytes(&[0, 0], 4.0, -128))
            .run()
    }

    #[test]
    fn newest_product_comes_last_and_the_state_is_given_out_shifted() {
        // The input is 3 steps above its zero point.
        let outputs = svdf((2, 1), 1, &[7, 0, 9, 0], None).unwrap();
        assert_eq!(outputs[0].data::<i16>(), [3, 0, 6, 0]);
        // 7 + 30 + 9 + 600 = 646; a quarter is 161.5, and 162 - 128 = 34.
        assert_eq!(outputs[1].data::<i8>(), [34]);
        let per_filter = svdf((1, 1), 1, &[7, 0, -1000, 0], Some(3)).unwrap();
        // 7 + 30 + 3 = 40, and -1000 + 600 + 3.
        assert_eq!(per_filter[1].data::<i8>(), [-118, -128]);
    }

    #[test]
    fn products_and_sums_saturate() {
        let outputs = svdf((2, 1), 127, &[i16::MAX, 0, i16::MAX, 0], Some(i32::MAX)).unwrap();
        assert_eq!(outputs[0].data::<i16>(), [129, 0, 258, 0]);
        assert_eq!(outputs[1].data::<i8>(), [-128], "sums wrap around");
        let outputs = svdf((2, 1), 127, &[0; 4], None).unwrap();
        assert_eq!(outputs[1].data::<i8>(), [127]);
    }

    #[test]
    fn activations_ranks_and_states_that_do_not_fit_give_an_error() {
        for activation in [0, 2, 3, 4] {
            let error = svdf((1, activation), 0, &[0; 4], None).unwrap_err();
            assert!(error.contains("(activation)"), "{error}");
        }
        for rank in [0, -1, 3, i32::MIN] {
            let error = svdf((rank, 1), 0, &[0; 4], None).unwrap_err();
            assert!(error.contains("(rank)"), "{rank}: {error}");
        }
        assert!(svdf((1, 1), 0, &[0; 3], None).unwrap_err().contains("input 4"));
    }
}
