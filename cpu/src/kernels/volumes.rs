//! CONV_3D and CONV_3D_TRANSPOSE: a window that slides over a volume, and the reverse.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::padding::Window;
use nnhal_hal::ops::tflite::volumes::{VolumeGeometry, geometry, transposed_geometry};
use nnhal_hal::{OperationType, Shape, tflite};

use super::activation_range::Activation;
use super::blocks::count_of;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::CONV_3D, convolution),
    (tflite::CONV_3D_TRANSPOSE, transposed),
];

fn convolution(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let geometry = geometry(context.inputs.rules())?;
    run(context, &geometry, false)
}

fn transposed(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let geometry = transposed_geometry(context.inputs.rules())?;
    run(context, &geometry, true)
}

/// Adds to the bias what every window gives. A window that slides over the output gives each of its places
/// something, one that slides over the input takes from each of its places.
fn run(
    context: &mut KernelContext<'_>,
    geometry: &VolumeGeometry,
    is_transposed: bool,
) -> Result<(), KernelError> {
    let activation = Activation::from_code(10, context.inputs.i32(10)?)?;
    let mut pace = context.pace();
    let input = context.inputs.data::<f32>(0)?;
    let filter = context.inputs.data::<f32>(1)?;
    let bias = context.inputs.data::<f32>(2)?;
    let output = context.outputs.data::<f32>(0)?;
    let [inputs, results] = [&geometry.input, &geometry.output].map(|shape| shape.dim(4) as usize);
    for row in output.chunks_exact_mut(results) {
        row.copy_from_slice(bias);
    }
    // The places of the windows, and the volume that they slide over.
    let (places, volume) = if is_transposed {
        (&geometry.input, &geometry.output)
    } else {
        (&geometry.output, &geometry.input)
    };
    let taps = geometry.windows.map(|window| window.filter as usize);
    for place in 0..count_of(&places.dims()[..4]) {
        let at = position(places, place);
        for (tap, weights) in filter.chunks_exact(inputs * results).enumerate() {
            let tap = [tap / taps[2] / taps[1], tap / taps[2] % taps[1], tap % taps[2]];
            pace.work(1)?;
            let Some(seen) = seen(volume, &geometry.windows, at, tap) else {
                continue;
            };
            pace.work(weights.len())?;
            let (from, to) = if is_transposed {
                (place, seen)
            } else {
                (seen, place)
            };
            let from = input
                .get(from * inputs..(from + 1) * inputs)
                .ok_or_else(outside)?;
            let to = output
                .get_mut(to * results..(to + 1) * results)
                .ok_or_else(outside)?;
            if is_transposed {
                for (to, weights) in to.iter_mut().zip(weights.chunks_exact(inputs)) {
                    *to += weights
                        .iter()
                        .zip(from)
                        .map(|(weight, from)| weight * from)
                        .sum::<f32>();
                }
            } else {
                for (from, weights) in from.iter().zip(weights.chunks_exact(results)) {
                    for (to, weight) in to.iter_mut().zip(weights) {
                        *to += from * weight;
                    }
                }
            }
        }
    }
    for value in output {
        *value = activation.apply(*value);
    }
    Ok(())
}

fn outside() -> OpError {
    OpError::operation("a window reaches outside its volume")
}

/// Batch, depth, height and width of a place.
fn position(shape: &Shape, mut place: usize) -> [usize; 4] {
    let mut position = [0; 4];
    for axis in (0..4).rev() {
        position[axis] = place % shape.dim(axis) as usize;
        place /= shape.dim(axis) as usize;
    }
    position
}

/// The place in the volume that a tap of the windows at a position sees; `None` in the padding.
fn seen(
    volume: &Shape,
    windows: &[Window; 3],
    [batch, at @ ..]: [usize; 4],
    tap: [usize; 3],
) -> Option<usize> {
    let mut place = batch;
    for (axis, window) in windows.iter().enumerate() {
        let extent = volume.dim(axis + 1);
        let first = at[axis] as i64 * i64::from(window.stride) - i64::from(window.head);
        let index = first + tap[axis] as i64 * i64::from(window.dilation);
        let index = u32::try_from(index).ok().filter(|index| *index < extent)?;
        place = place * extent as usize + index as usize;
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn volume(operation: OneOperation, dims: &[u32], data: &[f32]) -> OneOperation {
        operation.tensor(T::TENSOR_FLOAT32, dims, data)
    }

    /// A 2x2x2 volume of one channel; the filter's two channels double and negate the sum along the width.
    fn convolve(
        scheme: i32,
        stride: i32,
        dilation: i32,
        activation: i32,
    ) -> Result<(Vec<u32>, Vec<f32>), String> {
        let one = volume(
            OneOperation::new(tflite::CONV_3D),
            &[1, 2, 2, 2, 1],
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        );
        let one = volume(one, &[1, 1, 2, 1, 2], &[2.0, -1.0, 2.0, -1.0]);
        let one = volume(one, &[2], &[0.5, 0.0]).i32(scheme);
        let strides = [stride, stride, 1, 1, 1, dilation, activation];
        strides
            .into_iter()
            .fold(one, OneOperation::i32)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn windows_see_what_lies_inside() {
        let found = convolve(2, 1, 1, 0).unwrap();
        let expected = vec![6.5, -3.0, 14.5, -7.0, 22.5, -11.0, 30.5, -15.0];
        assert_eq!(found, (vec![1, 2, 2, 1, 2], expected));
        let found = convolve(1, 2, 1, 1).unwrap();
        assert_eq!(found, (vec![1, 1, 1, 2, 2], vec![6.5, 0.0, 4.5, 0.0]));
        // The taps are two apart, so that SAME padding puts one before and one behind.
        let found = convolve(1, 2, 2, 0).unwrap();
        assert_eq!(found.1, [4.5, -2.0, 2.5, -1.0]);
    }

    #[test]
    fn arguments_that_make_no_sense_give_an_error() {
        assert!(convolve(3, 1, 1, 0).unwrap_err().contains("must be 1 (SAME)"));
        assert!(convolve(2, 0, 1, 0).unwrap_err().contains("a stride is 0"));
        assert!(
            convolve(2, 1, 0, 0)
                .unwrap_err()
                .contains("a dilation factor is 0")
        );
        assert!(convolve(2, 1, 2, 0).unwrap_err().contains("does not fit"));
        assert!(convolve(2, 1, i32::MAX, 0).is_err());
        assert!(convolve(2, 1, 1, 4).unwrap_err().contains("(activation)"));
    }

    #[test]
    fn channels_that_do_not_fit_give_an_error() {
        let one = volume(OneOperation::new(tflite::CONV_3D), &[1, 1, 1, 1, 2], &[1.0, 2.0]);
        let one = volume(volume(one, &[1, 1, 1, 1, 1], &[1.0]), &[1], &[0.0]);
        let arguments = [1, 1, 1, 1, 1, 1, 1, 0].into_iter().fold(one, OneOperation::i32);
        let error = arguments.output(T::TENSOR_FLOAT32, &[]).run().unwrap_err();
        assert!(error.contains("(filter)"), "{error}");
    }

    fn transpose(shape: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        let one = volume(
            OneOperation::new(tflite::CONV_3D_TRANSPOSE),
            &[1, 1, 1, 2, 2],
            &[1.0, 10.0, 2.0, 20.0],
        );
        let one = volume(one, &[1, 1, 2, 1, 2], &[1.0, 1.0, 3.0, 0.0]);
        let one = volume(one, &[1], &[100.0]);
        let arguments = [2, 1, 1, 2, 1, 1, 1, 0].into_iter().fold(one, OneOperation::i32);
        arguments
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn the_reverse_gives_each_place_its_share() {
        let found = transpose(&[1, 1, 1, 4, 1]).unwrap();
        assert_eq!(found, (vec![1, 1, 1, 4, 1], vec![111.0, 103.0, 122.0, 106.0]));
        let found = transpose(&[1, 1, 1, 5, 1]).unwrap().1;
        assert_eq!(found, [111.0, 103.0, 122.0, 106.0, 100.0]);
        for shape in [
            &[1, 1, 1, 4, 2][..],
            &[2, 1, 1, 4, 1],
            &[1, 1, 4, 1],
            &[1, 1, 0, 4, 1],
            &[1, 1, 1, 3, 1],
            &[1, 1, 1, 6, 1],
            &[1, 2, 1, 4, 1],
        ] {
            assert!(transpose(shape).unwrap_err().contains("(outputShape)"));
        }
        assert!(transpose(&[1, 1, 1, -1, 1]).is_err());
    }
}
