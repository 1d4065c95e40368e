//! DEPTH_TO_SPACE and SPACE_TO_DEPTH: a pixel of the deep image is a block of pixels of the wide one, row by
//! row.

use nnhal_hal::OperationType;
use nnhal_hal::ops::padding::Extents;
use nnhal_hal::ops::space_depth::{depth_to_space, space_to_depth};

use super::blocks::{Layout, by_element_size, copy_block};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::DEPTH_TO_SPACE, |context| {
        let geometry = depth_to_space(context.inputs.rules())?;
        let blocks = Blocks::new(&geometry.input, &geometry.output, geometry.block, geometry.nchw);
        let ty = context.inputs.tensor(0)?.ty();
        by_element_size!(
            ty,
            rearrange(context, &blocks.extents, &blocks.deep, &blocks.wide)
        )
    }),
    (OperationType::SPACE_TO_DEPTH, |context| {
        let geometry = space_to_depth(context.inputs.rules())?;
        let blocks = Blocks::new(&geometry.output, &geometry.input, geometry.block, geometry.nchw);
        let ty = context.inputs.tensor(0)?.ty();
        by_element_size!(
            ty,
            rearrange(context, &blocks.extents, &blocks.wide, &blocks.deep)
        )
    }),
];

/// The same elements in the deep and in the wide image: batch, row, row in block, column, column in block,
/// channel.
struct Blocks {
    extents: [u32; 6],
    deep: Layout,
    wide: Layout,
}

impl Blocks {
    fn new(deep: &Extents, wide: &Extents, block: u32, nchw: bool) -> Blocks {
        let [batch, row, column, channel] = Image::new(deep, nchw).steps();
        let (edge, channels) = (block as isize, wide.channels as isize);
        let deep_steps = [
            batch,
            row,
            edge.saturating_mul(channels).saturating_mul(channel),
            column,
            channels.saturating_mul(channel),
            channel,
        ];
        let extents = [deep.batch, deep.height, block, deep.width, block, wide.channels];
        let [batch, row, column, channel] = Image::new(wide, nchw).steps();
        let wide_steps = [
            batch,
            edge.saturating_mul(row),
            row,
            edge.saturating_mul(column),
            column,
            channel,
        ];
        Blocks {
            extents,
            deep: Layout::new(0, &deep_steps),
            wide: Layout::new(0, &wide_steps),
        }
    }
}

fn rearrange<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    extents: &[u32],
    from: &Layout,
    to: &Layout,
) -> Result<(), KernelError> {
    let data = context.inputs.data::<T>(0)?;
    copy_block(extents, data, from, context.outputs.data::<T>(0)?, to)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn run(
        operation: OperationType,
        dims: &[u32],
        block: i32,
        nchw: u8,
    ) -> Result<(Vec<u32>, Vec<f32>), String> {
        let data: Vec<f32> = (0..dims.iter().product::<u32>())
            .map(|value| value as f32)
            .collect();
        OneOperation::new(operation)
            .tensor(T::TENSOR_FLOAT32, dims, &data)
            .i32(block)
            .tensor(T::BOOL, &[], &[nchw])
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()
    }

    #[test]
    fn channels_become_blocks_row_by_row() {
        let wide = run(OperationType::DEPTH_TO_SPACE, &[1, 1, 2, 4], 2, 0);
        assert_eq!(
            wide,
            Ok((vec![1, 2, 4, 1], vec![0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]))
        );
        let deep = run(OperationType::SPACE_TO_DEPTH, &[1, 1, 2, 4], 2, 1);
        assert_eq!(
            deep,
            Ok((vec![1, 4, 1, 2], vec![0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]))
        );
    }

    #[test]
    fn blocks_that_do_not_fit_give_an_error() {
        for block in [0, -1, 3, 65536, i32::MAX, i32::MIN] {
            assert!(run(OperationType::DEPTH_TO_SPACE, &[1, 2, 2, 4], block, 0).is_err());
            assert!(run(OperationType::SPACE_TO_DEPTH, &[1, 2, 2, 4], block, 0).is_err());
        }
    }
}
