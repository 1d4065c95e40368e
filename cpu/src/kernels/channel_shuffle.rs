//! CHANNEL_SHUFFLE: channel `k` of group `g` moves to place `k * groups + g`.

use nnhal_hal::OperationType;
use nnhal_hal::ops::channel_shuffle::{Groups, groups};

use super::blocks::{Layout, by_element_size, copy_block};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::CHANNEL_SHUFFLE, |context| {
    let groups = groups(context.inputs.rules())?;
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, shuffle(context, &groups))
})];

fn shuffle<T: bytemuck::Pod>(context: &mut KernelContext<'_>, groups: &Groups) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    if input.bytes.is_empty() {
        return Ok(());
    }
    let (outer, rest) = input.dims().split_at(groups.axis);
    let outer: u32 = outer
        .iter()
        .fold(1, |product, extent| product.saturating_mul(*extent));
    let inner: u32 = rest[1..]
        .iter()
        .fold(1, |product, extent| product.saturating_mul(*extent));
    let (count, size, step) = (groups.count as isize, groups.size as isize, inner as isize);
    let whole = count * size * step;
    let from = Layout::new(0, &[whole, size * step, step, 1]);
    let to = Layout::new(0, &[whole, step, count * step, 1]);
    copy_block(
        &[outer, groups.count, groups.size, inner],
        input.data::<T>()?,
        &from,
        context.outputs.data::<T>(0)?,
        &to,
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn shuffle(groups: i32, axis: i32) -> Result<Vec<f32>, String> {
        OneOperation::new(OperationType::CHANNEL_SHUFFLE)
            .tensor(T::TENSOR_FLOAT32, &[1, 6, 1], &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])
            .i32(groups)
            .i32(axis)
            .output(T::TENSOR_FLOAT32, &[0; 3])
            .run_one()
            .map(|(_, data)| data)
    }

    #[test]
    fn groups_interleave() {
        assert_eq!(shuffle(2, -2), Ok(vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    }

    #[test]
    fn hostile_groups_and_axes_give_an_error() {
        for (groups, axis) in [
            (0, 1),
            (-2, 1),
            (4, 1),
            (i32::MAX, 1),
            (2, 3),
            (2, -4),
            (2, i32::MIN),
        ] {
            assert!(shuffle(groups, axis).is_err(), "{groups} {axis}");
        }
    }
}
