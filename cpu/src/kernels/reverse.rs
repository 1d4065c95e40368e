//! REVERSE: a tensor with one axis in the opposite order.

use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::REVERSE, reverse), (tflite::REVERSE, reverse)];

fn reverse(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, turn(context))
}

fn turn<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let rank = input.shape.rank();
    let axis = context.inputs.rules().i32(1)?;
    let axis = usize::try_from(axis).ok().filter(|axis| *axis < rank);
    let axis = axis.ok_or_else(|| OpError::input(1, "(axis) is outside the rank"))?;
    let steps = steps_of(input.dims());
    let mut backwards = [0; MAX_RANK];
    backwards[..rank].copy_from_slice(&steps[..rank]);
    backwards[axis] = -steps[axis];
    let last = (input.shape.dim(axis) as isize - 1).saturating_mul(steps[axis]);
    copy_block(
        input.dims(),
        input.data::<T>()?,
        &Layout::new(last, &backwards[..rank]),
        context.outputs.data::<T>(0)?,
        &Layout::whole(input.dims()),
    )
}

#[cfg(test)]
mod tests {
    use half::f16;
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn reverse<E: bytemuck::Pod>(
        operand: &Operand,
        data: &[E],
        axes: &[i32],
    ) -> Result<(Vec<u32>, Vec<E>), String> {
        OneOperation::new(OperationType::REVERSE)
            .operand(operand.clone(), data)
            .tensor(T::TENSOR_INT32, &[axes.len() as u32], axes)
            .output_operand(Operand {
                dimensions: Vec::new(),
                ..operand.clone()
            })
            .run_one()
    }

    #[test]
    fn one_axis_is_turned_and_the_others_stay() {
        let operand = Operand::new(T::TENSOR_FLOAT32, &[2, 3, 2]);
        let data: Vec<f32> = (0_u8..12).map(f32::from).collect();
        let turned = |axis| reverse(&operand, &data, &[axis]).unwrap();
        let expected = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5].map(|value: u8| f32::from(value));
        assert_eq!(turned(0), (vec![2, 3, 2], expected.to_vec()));
        let expected = [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7].map(|value: u8| f32::from(value));
        assert_eq!(turned(1).1, expected);
        let expected = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10].map(|value: u8| f32::from(value));
        assert_eq!(turned(2).1, expected);
    }

    #[test]
    fn every_type_is_turned_up_to_the_highest_rank() {
        let halves = [1.0, 2.0, 3.0].map(f16::from_f32);
        let turned = [3.0, 2.0, 1.0].map(f16::from_f32);
        let found = reverse(
            &Operand::new(T::TENSOR_FLOAT16, &[1, 1, 1, 3, 1, 1, 1, 1]),
            &halves,
            &[3],
        );
        assert_eq!(found.unwrap().1, turned);
        let signed = Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, &[2]).with_quantization(0.5, 3);
        assert_eq!(reverse(&signed, &[-128_i8, 127], &[0]).unwrap().1, [127, -128]);
        let unsigned = Operand::new(T::TENSOR_QUANT8_ASYMM, &[2]).with_quantization(0.5, 3);
        assert_eq!(reverse(&unsigned, &[255_u8, 0], &[0]).unwrap().1, [0, 255]);
        let integers = Operand::new(T::TENSOR_INT32, &[0, 2]);
        assert_eq!(reverse::<i32>(&integers, &[], &[0]), Ok((vec![0, 2], vec![])));
    }

    #[test]
    fn axes_outside_the_input_give_an_error() {
        let operand = Operand::new(T::TENSOR_INT32, &[2, 1]);
        for axes in [&[-1][..], &[2], &[i32::MIN], &[0, 1], &[]] {
            let error = reverse(&operand, &[1, 2], axes).unwrap_err();
            assert!(error.contains("input 1"), "{error}");
        }
    }
}
