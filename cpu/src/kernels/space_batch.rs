//! BATCH_TO_SPACE_ND and SPACE_TO_BATCH_ND: batch `i` of the batched image holds the pixels at place
//! `i / original batches` of each block, counted row by row.

use nnhal_hal::OperationType;
use nnhal_hal::ops::space_batch::{BatchGeometry, batch_to_space, space_to_batch};

use super::blocks::{Layout, by_element_size, copy_block};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::BATCH_TO_SPACE_ND, |context| {
        let geometry = batch_to_space(context.inputs.rules())?;
        let ty = context.inputs.tensor(0)?.ty();
        by_element_size!(ty, spread(context, &geometry))
    }),
    (OperationType::SPACE_TO_BATCH_ND, |context| {
        let geometry = space_to_batch(context.inputs.rules())?;
        let tensor = context.inputs.tensor(0)?;
        // 0 but for quantised types; the byte of a signed one is the same two's complement.
        let zero_point = tensor.zero_point() as u8;
        context.outputs.tensor(0)?.bytes.fill(zero_point);
        by_element_size!(tensor.ty(), collect(context, &geometry))
    }),
];

fn spread<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    geometry: &BatchGeometry,
) -> Result<(), KernelError> {
    // Steps of an image without elements need not fit.
    if context.outputs.tensor(0)?.bytes.is_empty() {
        return Ok(());
    }
    let [height, width] = geometry.block.map(|edge| edge as isize);
    let batches = geometry.output.batch as isize;
    let [batch, row, column, channel] = Image::new(&geometry.input, geometry.nchw).steps();
    let from = [
        width * batches * batch,
        batches * batch,
        batch,
        row,
        column,
        channel,
    ];
    let [batch, row, column, channel] = Image::new(&geometry.output, geometry.nchw).steps();
    let to = [row, column, batch, height * row, width * column, channel];
    let extents = [
        geometry.block[0],
        geometry.block[1],
        geometry.output.batch,
        geometry.input.height,
        geometry.input.width,
        geometry.input.channels,
    ];
    let data = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    copy_block(
        &extents,
        data,
        &Layout::new(0, &from),
        output,
        &Layout::new(0, &to),
    )
}

/// The pixels of one place of a block along one axis that come from inside the image; at least one does.
struct Inside {
    place: usize,
    /// The first of the batched image.
    first: usize,
    /// Where that is in the image.
    source: u32,
    count: u32,
}

impl Inside {
    /// All places along an axis that something in the image comes to: no more than the image has pixels,
    /// however large the block.
    fn all(extent: u32, block: u32, head: u32) -> impl Iterator<Item = Inside> {
        // The first pixels come to different places, one block of them to every place there is.
        (0..extent.min(block)).map(move |source| {
            let position = u64::from(head) + u64::from(source);
            Inside {
                place: (position % u64::from(block)) as usize,
                first: (position / u64::from(block)) as usize,
                source,
                count: (extent - source).div_ceil(block),
            }
        })
    }
}

fn collect<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    geometry: &BatchGeometry,
) -> Result<(), KernelError> {
    let (input, output) = (geometry.input, geometry.output);
    let ([height, width], [top, left]) = (geometry.block, geometry.head);
    let image = Image::new(&input, geometry.nchw);
    let batched = Image::new(&output, geometry.nchw);
    let data = context.inputs.data::<T>(0)?;
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let [batch, row, column, channel] = image.steps();
    let from = [batch, row * height as isize, column * width as isize, channel];
    let to = batched.steps();
    for rows in Inside::all(input.height, height, top) {
        for columns in Inside::all(input.width, width, left) {
            let extents = [input.batch, rows.count, columns.count, input.channels];
            let place = rows.place * width as usize + columns.place;
            let start = image.at(0, rows.source as usize, columns.source as usize);
            let start_to = batched.at(place * input.batch as usize, rows.first, columns.first);
            copy_block(
                &extents,
                data,
                &Layout::new(start as isize, &from),
                target,
                &Layout::new(start_to as isize, &to),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn space_to_batch(block: &[i32], paddings: &[i32]) -> Result<(Vec<u32>, Vec<i8>), String> {
        let image = |dims: &[u32]| Operand {
            scale: 1.0,
            zero_point: -7,
            ..Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims)
        };
        OneOperation::new(OperationType::SPACE_TO_BATCH_ND)
            .operand(image(&[1, 2, 2, 1]), &[1_i8, 2, 3, 4])
            .tensor(T::TENSOR_INT32, &[block.len() as u32], block)
            .tensor(T::TENSOR_INT32, &[paddings.len() as u32 / 2, 2], paddings)
            .output_operand(image(&[0; 4]))
            .run_one()
    }

    #[test]
    fn padding_is_the_zero_point() {
        assert_eq!(
            space_to_batch(&[1, 2], &[0, 0, 1, 1]),
            Ok((vec![2, 2, 2, 1], vec![-7, 2, -7, 4, 1, -7, 3, -7]))
        );
        assert_eq!(
            space_to_batch(&[3, 1], &[4, 0, 0, 0]),
            Ok((vec![3, 2, 2, 1], vec![-7, -7, -7, -7, -7, -7, 1, 2, -7, -7, 3, 4]))
        );
    }

    #[test]
    fn hostile_blocks_and_paddings_give_an_error() {
        for (block, paddings) in [
            ([0, 1], [0; 4]),
            ([-1, 1], [0; 4]),
            ([3, 1], [0; 4]),
            ([1, 1], [-1, 1, 0, 0]),
            ([1, 1], [i32::MAX, i32::MAX, 0, 0]),
            ([i32::MAX, 4], [i32::MAX - 2, 0, 0, 2]),
        ] {
            let outcome = space_to_batch(&block, &paddings);
            assert!(outcome.is_err(), "{block:?} {paddings:?} {outcome:?}");
        }
        assert!(space_to_batch(&[1], &[0; 4]).is_err());
        assert!(space_to_batch(&[1, 1], &[0; 2]).is_err());
    }

    fn batch_to_space(batch: u32, block: [i32; 2]) -> Result<(Vec<u32>, Vec<f32>), String> {
        let data: Vec<f32> = (0..batch * 2).map(|value| value as f32).collect();
        OneOperation::new(OperationType::BATCH_TO_SPACE_ND)
            .tensor(T::TENSOR_FLOAT32, &[batch, 1, 2, 1], &data)
            .tensor(T::TENSOR_INT32, &[2], &block)
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()
    }

    #[test]
    fn batches_spread_over_blocks() {
        assert_eq!(
            batch_to_space(2, [1, 2]),
            Ok((vec![1, 1, 4, 1], vec![0.0, 2.0, 1.0, 3.0]))
        );
        for block in [[0, 1], [1, -2], [3, 1], [65536, 65536], [i32::MAX, i32::MAX]] {
            assert!(batch_to_space(2, block).is_err(), "{block:?}");
        }
    }
}
