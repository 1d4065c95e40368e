//! AXIS_ALIGNED_BBOX_TRANSFORM: boxes moved and resized by deltas, for each class, and clipped to their
//! image.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::bbox_transform::geometry;

use super::boxes::{BOX_LENGTH, Corners, image_of, narrow, widen};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::AXIS_ALIGNED_BBOX_TRANSFORM, transform)];

fn transform(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let geometry = geometry(context.inputs.rules())?;
    let (count, classes, images) = (
        geometry.boxes as usize,
        geometry.classes as usize,
        geometry.images as usize,
    );
    let row = classes * BOX_LENGTH;
    let [boxes, deltas, sizes] =
        context
            .scratch
            .carve::<f32, 3>([count * BOX_LENGTH, count * row, images * 2])?;
    widen(&context.inputs.tensor(0)?, boxes)?;
    widen(&context.inputs.tensor(1)?, deltas)?;
    widen(&context.inputs.tensor(3)?, sizes)?;
    check_image_sizes(sizes, 3)?;
    let batch_split = context.inputs.data::<i32>(2)?;
    let (boxes, _) = boxes.as_chunks::<BOX_LENGTH>();
    let (sizes, _) = sizes.as_chunks::<2>();
    let mut output = context.outputs.tensor(0)?;
    for (at, (numbers, deltas)) in boxes.iter().zip(deltas.chunks_exact(row)).enumerate() {
        let [height, width] = sizes[image_of(batch_split, at, 2, images)?];
        let corners = Corners::new(*numbers).ordered(at, 0)?;
        let (deltas, _) = deltas.as_chunks::<BOX_LENGTH>();
        let transformed = deltas
            .iter()
            .flat_map(|delta| corners.transformed(*delta, [width, height]).numbers());
        narrow(&mut output, at * row, transformed)?;
    }
    Ok(())
}

/// The sizes of images, input `index`, must be finite and not negative.
pub(super) fn check_image_sizes(sizes: &[f32], index: usize) -> Result<(), KernelError> {
    match sizes.iter().find(|size| !(size.is_finite() && **size >= 0.0)) {
        Some(size) => {
            let message = format!("(imageInfo) has the size {size}, must be finite and not negative");
            Err(OpError::input(index, message).into())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn transform(roi: [f32; 4], delta: [f32; 4], image: i32, size: [f32; 2]) -> Result<Vec<f32>, String> {
        let (_, data) = OneOperation::new(OperationType::AXIS_ALIGNED_BBOX_TRANSFORM)
            .tensor(T::TENSOR_FLOAT32, &[1, 4], &roi)
            .tensor(T::TENSOR_FLOAT32, &[1, 4], &delta)
            .tensor(T::TENSOR_INT32, &[1], &[image])
            .tensor(T::TENSOR_FLOAT32, &[1, 2], &size)
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .run_one()?;
        Ok(data)
    }

    const BOX: [f32; 4] = [1.0, 1.0, 3.0, 5.0];
    const SIZE: [f32; 2] = [6.0, 4.0];

    #[test]
    fn boxes_are_clipped_to_the_width_and_the_height() {
        assert_eq!(
            transform(BOX, [1.0, 1.0, 0.0, 0.0], 0, SIZE),
            Ok(vec![3.0, 5.0, 4.0, 6.0])
        );
    }

    #[test]
    fn deltas_that_are_no_numbers_give_a_box_inside_the_image() {
        for delta in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38] {
            let transformed = transform(BOX, [delta; 4], 0, SIZE).unwrap();
            let inside = |at: usize| (0.0..=SIZE[1 - at % 2]).contains(&transformed[at]);
            assert!((0..4).all(inside), "{transformed:?}");
        }
    }

    #[test]
    fn hostile_values_give_an_error() {
        let none = [0.0; 4];
        assert!(transform(BOX, none, 1, SIZE).unwrap_err().contains("image 1"));
        assert!(transform(BOX, none, -1, SIZE).is_err());
        assert!(transform([3.0, 1.0, 1.0, 5.0], none, 0, SIZE).is_err());
        assert!(transform([1.0, 1.0, f32::INFINITY, 5.0], none, 0, SIZE).is_err());
        assert!(transform([f32::NAN; 4], none, 0, SIZE).is_err());
        assert!(transform(BOX, none, 0, [6.0, -1.0]).is_err());
        assert!(transform(BOX, none, 0, [f32::NAN, 1.0]).is_err());
    }
}
