//! ARGMAX and ARGMIN. Of several equal elements the first counts; a NaN only where it stands first.

use bytemuck::Pod;
use half::f16;
use nnhal_hal::OperationType;
use nnhal_hal::ops::{OpError, shapes};

use super::broadcast::Lanes;
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ARGMAX, |context| arg(context, true)),
    (OperationType::ARGMIN, |context| arg(context, false)),
];

fn arg(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16, i32, u8, i8] => arg_of(context, largest) })
}

fn arg_of<T: Pod + PartialOrd>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let axis = shapes::resolve_axis(1, context.inputs.i32(1)?, input.shape.rank())?;
    let lanes = Lanes::along(&input.shape, axis);
    if i32::try_from(lanes.extent).is_err() {
        return Err(OpError::input(
            0,
            format!(
                "has {} elements along axis {axis}, whose places do not fit TENSOR_INT32",
                lanes.extent
            ),
        )
        .into());
    }
    let data = input.data::<T>()?;
    let output = context.outputs.data::<i32>(0)?;
    if lanes.inner == 1 && lanes.extent > 0 {
        for (result, lane) in output.iter_mut().zip(data.chunks_exact(lanes.extent)) {
            *result = first_extreme(lane, largest);
        }
        return Ok(());
    }
    for (result, start) in output.iter_mut().zip(lanes.starts()) {
        let mut best = data[start];
        *result = 0;
        for (value, at) in lanes.lane(data, start).zip(0..) {
            if if largest { *value > best } else { *value < best } {
                best = *value;
                *result = at;
            }
        }
    }
    Ok(())
}

/// The place of the first extreme of neighbouring values, of which there is at least one.
fn first_extreme<T: Pod + PartialOrd>(lane: &[T], largest: bool) -> i32 {
    let (mut best, mut place) = (lane[0], 0);
    for (value, at) in lane.iter().zip(0..) {
        let is_better = if largest { *value > best } else { *value < best };
        // Written so that no branch depends on the values.
        best = if is_better { *value } else { best };
        place = if is_better { at } else { place };
    }
    place
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType};

    use crate::kernels::testing::OneOperation;

    fn argmax(dims: &[u32], data: &[f32], axis: i32) -> Result<(Vec<u32>, Vec<i32>), String> {
        OneOperation::new(OperationType::ARGMAX)
            .tensor(OperandType::TENSOR_FLOAT32, dims, data)
            .i32(axis)
            .output(OperandType::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn first_of_equal_elements_counts() {
        assert_eq!(
            argmax(&[4], &[1.0, 3.0, 3.0, 2.0], 0).unwrap(),
            (vec![1], vec![1])
        );
        assert_eq!(
            argmax(&[2, 2], &[1.0, 3.0, 3.0, 2.0], -2).unwrap(),
            (vec![2], vec![1, 0])
        );
    }

    #[test]
    fn axis_outside_the_rank_gives_an_error() {
        for axis in [1, -2, i32::MIN, i32::MAX] {
            assert!(argmax(&[1], &[0.0], axis).unwrap_err().contains("axis"));
        }
    }
}
