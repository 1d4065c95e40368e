//! HEATMAP_MAX_KEYPOINT: where in each heatmap the largest score is, to a fraction of a pixel.
//!
//! Around the largest pixel the heatmap is taken for a quadratic function, by its differences to the
//! neighbours; its extremum is the keypoint, its value there the score. Source: the NN HAL reference.

use nnhal_hal::OperationType;
use nnhal_hal::ops::heatmap::geometry;

use super::boxes::{BOX_LENGTH, Corners, narrow, widen};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::HEATMAP_MAX_KEYPOINT, keypoints)];

/// A maximum is moved by no more than this from the largest pixel.
const MOST_OFFSET: f32 = 1.5;
/// Determinants below this, and this share of the product they are the rest of, count as 0.
const TOLERANCE: f32 = 1e-5;

fn keypoints(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (extents, nchw) = geometry(context.inputs.rules())?;
    let image = Image::new(&extents, nchw);
    let tensor = context.inputs.tensor(0)?;
    let elements = image.elements();
    let [heatmaps, boxes] = context
        .scratch
        .carve::<f32, 2>([elements, image.batch * BOX_LENGTH])?;
    widen(&tensor, heatmaps)?;
    widen(&context.inputs.tensor(1)?, boxes)?;
    let [mut scores, mut points] = context.outputs.tensors([0, 1])?;
    let (boxes, _) = boxes.as_chunks::<BOX_LENGTH>();
    for (batch, numbers) in boxes.iter().enumerate() {
        let region = Corners::new(*numbers).ordered(batch, 1)?;
        for keypoint in 0..image.channels {
            let pixel = |row: usize, column: usize| {
                heatmaps[image.at(batch, row, column) + keypoint * image.channel_step]
            };
            let (row, column) = largest(&pixel, image.height);
            let peak = Peak::new(&neighbourhood(&pixel, image.height, row, column));
            let places = [column as f32 + peak.offset[0], row as f32 + peak.offset[1]];
            let (size, extent) = (region.size(), image.height as f32);
            let point = [0, 1].map(|axis| region.low[axis] + (places[axis] + 0.5) / extent * size[axis]);
            let at = batch * image.channels + keypoint;
            narrow(&mut scores, at, std::iter::once(peak.score))?;
            narrow(&mut points, at * 2, point.into_iter())?;
        }
    }
    Ok(())
}

/// Row and column of the largest pixel, the first of equal ones.
fn largest(pixel: &impl Fn(usize, usize) -> f32, size: usize) -> (usize, usize) {
    let mut best = (0, 0);
    for (row, column) in (0..size).flat_map(|row| (0..size).map(move |column| (row, column))) {
        if pixel(row, column) > pixel(best.0, best.1) {
            best = (row, column);
        }
    }
    best
}

/// The pixel and its eight neighbours; beyond a border what lies on the other side of the pixel.
fn neighbourhood(
    pixel: &impl Fn(usize, usize) -> f32,
    size: usize,
    row: usize,
    column: usize,
) -> [[f32; 3]; 3] {
    let around = |at: usize| {
        let before = if at == 0 { 1 } else { at - 1 };
        let after = if at + 1 == size { size - 2 } else { at + 1 };
        [before, at, after]
    };
    around(row).map(|row| around(column).map(|column| pixel(row, column)))
}

/// The maximum of the quadratic function around a pixel.
struct Peak {
    /// How far it is from the pixel, along x and y.
    offset: [f32; 2],
    score: f32,
}

impl Peak {
    fn new(grid: &[[f32; 3]; 3]) -> Peak {
        let centre = grid[1][1];
        let slope = [(grid[1][2] - grid[1][0]) / 2.0, (grid[2][1] - grid[0][1]) / 2.0];
        let xx = grid[1][0] - 2.0 * centre + grid[1][2];
        let yy = grid[0][1] - 2.0 * centre + grid[2][1];
        let xy = (grid[2][2] - grid[2][0] - grid[0][2] + grid[0][0]) / 4.0;
        let determinant = xx * yy - xy * xy;
        if determinant.abs() < TOLERANCE + TOLERANCE * (xx * yy).abs() {
            return Peak {
                offset: [0.0; 2],
                score: centre,
            };
        }
        let mut offset = [
            (xy * slope[1] - yy * slope[0]) / determinant,
            (xy * slope[0] - xx * slope[1]) / determinant,
        ];
        let farthest = offset[0].abs().max(offset[1].abs());
        if farthest > MOST_OFFSET {
            offset = offset.map(|offset| offset * (MOST_OFFSET / farthest));
        }
        let [x, y] = offset;
        Peak {
            offset,
            score: centre
                + slope[0] * x
                + slope[1] * y
                + ((xx * x + xy * y) * x + (xy * x + yy * y) * y) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn keypoint(size: u32, heatmap: &[f32], region: [f32; 4]) -> Result<[Vec<f32>; 2], String> {
        let outputs = OneOperation::new(OperationType::HEATMAP_MAX_KEYPOINT)
            .tensor(T::TENSOR_FLOAT32, &[1, size, size, 1], heatmap)
            .tensor(T::TENSOR_FLOAT32, &[1, 4], &region)
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_FLOAT32, &[0; 2])
            .output(T::TENSOR_FLOAT32, &[0; 3])
            .run()?;
        Ok([outputs[0].data(), outputs[1].data()])
    }

    #[test]
    fn a_flat_heatmap_gives_the_first_pixel() {
        let [score, point] = keypoint(2, &[0.5; 4], [0.0, 0.0, 4.0, 8.0]).unwrap();
        assert_eq!((score, point), (vec![0.5], vec![1.0, 2.0]));
    }

    #[test]
    fn a_symmetric_peak_stays_where_it_is() {
        let heatmap = [0.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 0.0];
        let [score, point] = keypoint(3, &heatmap, [0.0, 0.0, 3.0, 3.0]).unwrap();
        assert_eq!((score, point), (vec![2.0], vec![1.5, 1.5]));
    }

    #[test]
    fn scores_that_are_no_numbers_give_none() {
        let region = [0.0, 0.0, 1.0, 1.0];
        let [score, _] = keypoint(2, &[f32::NAN; 4], region).unwrap();
        assert!(score[0].is_nan());
        assert!(keypoint(2, &[f32::INFINITY; 4], region).is_ok());
    }

    #[test]
    fn hostile_values_give_an_error() {
        let region = [0.0, 0.0, 1.0, 1.0];
        assert!(keypoint(2, &[0.0; 4], [1.0, 0.0, 0.0, 1.0]).is_err());
        assert!(keypoint(2, &[0.0; 4], [0.0, 0.0, f32::NAN, 1.0]).is_err());
        assert!(keypoint(1, &[0.0], region).is_err());
    }
}
