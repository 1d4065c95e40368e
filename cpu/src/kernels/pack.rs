//! PACK: several tensors of one shape beside each other along a new axis.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::PACK, pack), (tflite::PACK, pack)];

fn pack(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(1)?.ty();
    by_element_size!(ty, join(context))
}

fn join<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let count = inputs.len().saturating_sub(1);
    let shape = inputs.tensor(1)?.shape;
    let behind = usize::try_from(inputs.i32(0)?)
        .ok()
        .and_then(|axis| shape.dims().get(axis..))
        .ok_or_else(|| OpError::input(0, "(axis) is outside the rank"))?;
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let run = count_of(behind);
    for number in 0..count {
        let runs = inputs.data::<T>(number + 1)?.chunks_exact(run);
        for (from, to) in runs.zip(target.chunks_exact_mut(run * count)) {
            to[number * run..][..run].copy_from_slice(from);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn pack<E: bytemuck::Pod>(
        axis: i32,
        operand: &Operand,
        inputs: &[&[E]],
    ) -> Result<(Vec<u32>, Vec<E>), String> {
        let one = OneOperation::new(OperationType::PACK).i32(axis);
        let one = inputs
            .iter()
            .fold(one, |one, input| one.operand(operand.clone(), input));
        let output = Operand {
            dimensions: Vec::new(),
            ..operand.clone()
        };
        one.output_operand(output).run_one()
    }

    #[test]
    fn new_axis_may_be_first_between_or_last() {
        let operand = Operand::new(T::TENSOR_INT32, &[2, 3]);
        let inputs: [&[i32]; 2] = [&[1, 2, 3, 4, 5, 6], &[-1, -2, -3, -4, -5, -6]];
        let packed = |axis| pack(axis, &operand, &inputs).unwrap();
        let first = vec![1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6];
        assert_eq!(packed(0), (vec![2, 2, 3], first));
        let between = vec![1, 2, 3, -1, -2, -3, 4, 5, 6, -4, -5, -6];
        assert_eq!(packed(1), (vec![2, 2, 3], between));
        let last = vec![1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6];
        assert_eq!(packed(2), (vec![2, 3, 2], last));
    }

    #[test]
    fn elements_of_any_size_are_moved_as_they_are() {
        let halves = Operand::new(T::TENSOR_FLOAT16, &[1]);
        let (one, two) = (f16::ONE, f16::from_f32(2.0));
        assert_eq!(
            pack(1, &halves, &[&[one], &[two], &[one]]),
            Ok((vec![1, 3], vec![one, two, one]))
        );
        let signed = Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, &[2]).with_quantization(0.5, 3);
        assert_eq!(
            pack(0, &signed, &[&[-128_i8, 127]]),
            Ok((vec![1, 2], vec![-128, 127]))
        );
        let unsigned = Operand::new(T::TENSOR_QUANT8_ASYMM, &[1]).with_quantization(0.5, 3);
        assert_eq!(
            pack(0, &unsigned, &[&[255_u8], &[0]]),
            Ok((vec![2, 1], vec![255, 0]))
        );
        let floats = Operand::new(T::TENSOR_FLOAT32, &[1]);
        assert_eq!(
            pack(0, &floats, &[&[-0.5_f32], &[0.5]]),
            Ok((vec![2, 1], vec![-0.5, 0.5]))
        );
    }

    #[test]
    fn axes_outside_the_output_give_an_error() {
        let operand = Operand::new(T::TENSOR_FLOAT32, &[2]);
        for axis in [-1, 2, i32::MIN, i32::MAX] {
            let error = pack(axis, &operand, &[&[1_f32, 2.0]]).unwrap_err();
            assert!(error.contains("(axis)"), "{error}");
        }
    }

    #[test]
    fn inputs_of_several_shapes_or_scales_give_an_error() {
        let pack = |second: Operand, output: Operand| {
            let count = second.dimensions.iter().product::<u32>() as usize;
            OneOperation::new(OperationType::PACK)
                .i32(0)
                .operand(operand(&[2], 1.0), &[1_u8, 2])
                .operand(second, &vec![1_u8; count])
                .output_operand(output)
                .run_one::<u8>()
                .unwrap_err()
        };
        fn operand(dims: &[u32], scale: f32) -> Operand {
            Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(scale, 0)
        }
        assert!(pack(operand(&[3], 1.0), operand(&[], 1.0)).contains("must have those of input 1"));
        assert!(pack(operand(&[2, 1], 1.0), operand(&[], 1.0)).contains("has rank 2"));
        assert!(pack(operand(&[2], 0.5), operand(&[], 1.0)).contains("scale"));
        assert!(pack(operand(&[2], 1.0), operand(&[], 0.5)).contains("scale"));
        assert!(pack(operand(&[2], 1.0), operand(&[2], 1.0)).contains("rank"));
    }
}
