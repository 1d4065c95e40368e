//! GATHER_REGIONS and SCATTER_REGIONS: boxes of a tensor whose corners indices name.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::regions::Regions;
use nnhal_hal::{MAX_RANK, OperationType, Shape, tflite};

use super::blocks::{by_element_size, steps_of};
use super::element::by_element;
use super::places::Places;
use super::reduce_window::Number;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::GATHER_REGIONS, |context: &mut KernelContext<'_>| {
        let ty = context.inputs.tensor(0)?.ty();
        by_element_size!(ty, gather(context))
    }),
    (
        tflite::SCATTER_REGIONS,
        |context| by_element!(context, { [f32, f16, i32, i64, u8, i8, i16] => scatter(context) }),
    ),
];

/// A walk over the elements of all regions.
struct Walk<'a> {
    regions: Regions,
    indices: &'a [i32],
    /// How far the elements of a corner are apart.
    index_step: usize,
    /// How far a step along each axis of the regions moves in the indices, and the tensor's axis, if it moves
    /// there.
    index_steps: [usize; MAX_RANK],
    tensor_axes: [Option<usize>; MAX_RANK],
    tensor: Shape,
}

impl<'a> Walk<'a> {
    fn new(context: &KernelContext<'a>) -> Result<Walk<'a>, KernelError> {
        let regions = Regions::of(context.inputs.rules())?;
        let (tensor, indices) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
        let steps = steps_of(indices.dims());
        let mut walk = Walk {
            regions,
            indices: indices.data::<i32>()?,
            index_step: regions.index_axis.map_or(0, |axis| steps[axis] as usize),
            index_steps: [0; MAX_RANK],
            tensor_axes: [None; MAX_RANK],
            tensor: tensor.shape,
        };
        for (step, axis) in steps.iter().zip(regions.of_indices) {
            if let Some(axis) = axis {
                walk.index_steps[axis] = *step as usize;
            }
        }
        for (of, axis) in regions.of_tensor.iter().enumerate() {
            if let Some(axis) = axis {
                walk.tensor_axes[*axis] = Some(of);
            }
        }
        Ok(walk)
    }

    /// Where in the tensor the element at this position of the regions lies. Corners are moved so that so
    /// much room is left behind them, if that is said; otherwise what lies outside is nowhere.
    fn place(&self, position: &[u32; MAX_RANK], room: Option<&[i32]>) -> Option<usize> {
        let mut at = [0_i64; MAX_RANK];
        let index: usize = (0..self.regions.rank)
            .map(|axis| position[axis] as usize * self.index_steps[axis])
            .sum();
        for (element, axis) in self.regions.corner[..self.regions.depth].iter().enumerate() {
            let start = i64::from(self.indices[index + element * self.index_step]);
            at[*axis] = match room {
                // The rule of shapes keeps sizes within the extents.
                Some(sizes) => start.clamp(0, i64::from(self.tensor.dim(*axis)) - i64::from(sizes[*axis])),
                None => start,
            };
        }
        for (axis, of) in self.tensor_axes.iter().enumerate() {
            if let Some(of) = of {
                at[*of] += i64::from(position[axis]);
            }
        }
        let mut place = 0_usize;
        for (axis, extent) in self.tensor.dims().iter().enumerate() {
            let step = u32::try_from(at[axis]).ok().filter(|step| step < extent)?;
            place = place * *extent as usize + step as usize;
        }
        Some(place)
    }
}

fn gather<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let walk = Walk::new(context)?;
    let (input, sizes) = (context.inputs.data::<T>(0)?, context.inputs.data::<i32>(5)?);
    let mut pace = context.pace();
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    for (to, position) in output.into_data::<T>()?.iter_mut().zip(Places::new(shape.dims())) {
        pace.work(shape.rank())?;
        let place = walk
            .place(&position, Some(sizes))
            .and_then(|place| input.get(place));
        *to = *place.ok_or_else(|| OpError::operation("a region reaches outside its tensor"))?;
    }
    Ok(())
}

fn scatter<T: Number>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let combine: fn(T, T) -> T = match context.inputs.i32(6)? {
        0 => |_, update| update,
        1 => T::plus,
        2 => T::times,
        3 => |one, other| if other < one { other } else { one },
        4 => |one, other| if one < other { other } else { one },
        other => {
            let message = format!(
                "(combination) is {other}, must be 0 (replace) or from 1 to 4 (sum, product, least, most)"
            );
            return Err(OpError::input(6, message).into());
        }
    };
    let walk = Walk::new(context)?;
    let updates = context.inputs.tensor(5)?;
    let mut pace = context.pace();
    let input = context.inputs.data::<T>(0)?;
    let target = context.outputs.data::<T>(0)?;
    target.copy_from_slice(input);
    // Places in it are beyond counting where an extent is 0.
    if target.is_empty() {
        return Ok(());
    }
    for (update, position) in updates.data::<T>()?.iter().zip(Places::new(updates.dims())) {
        pace.work(updates.shape.rank())?;
        if let Some(to) = walk
            .place(&position, None)
            .and_then(|place| target.get_mut(place))
        {
            *to = combine(*to, *update);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    /// Axes of the regions for each axis of the tensor, axes of a corner, and where corners lie.
    type Axes<'a> = (&'a [i32], &'a [i32], i32);

    fn over(operation: OperationType, (dims, indices): (&[u32], &[i32]), axes: Axes<'_>) -> OneOperation {
        let values: Vec<i32> = (0..12).collect();
        OneOperation::new(operation)
            .tensor(T::TENSOR_INT32, &[3, 4], &values)
            .tensor(T::TENSOR_INT32, dims, indices)
            .tensor(T::TENSOR_INT32, &[axes.0.len() as u32], axes.0)
            .tensor(T::TENSOR_INT32, &[axes.1.len() as u32], axes.1)
            .i32(axes.2)
    }

    type Found = Result<(Vec<u32>, Vec<i32>), String>;

    fn gather(indices: (&[u32], &[i32]), axes: Axes<'_>, sizes: &[i32]) -> Found {
        over(tflite::GATHER_REGIONS, indices, axes)
            .tensor(T::TENSOR_INT32, &[sizes.len() as u32], sizes)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    fn scatter(
        indices: (&[u32], &[i32]),
        axes: Axes<'_>,
        (dims, updates): (&[u32], &[i32]),
        combination: i32,
    ) -> Found {
        over(tflite::SCATTER_REGIONS, indices, axes)
            .tensor(T::TENSOR_INT32, dims, updates)
            .i32(combination)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn regions_start_at_corners_that_leave_them_room() {
        let corners = (&[2, 2][..], &[0, 1, 9, 9][..]);
        let found = gather(corners, (&[1, 2], &[0, 1], 1), &[2, 2]).unwrap();
        assert_eq!(found, (vec![2, 2, 2], vec![1, 2, 5, 6, 6, 7, 10, 11]));
        // Corners along the first axis of the indices, regions before them, columns first.
        let found = gather((&[2, 1], &[-5, 1]), (&[1, 0], &[1, 0], 0), &[1, 2]).unwrap();
        assert_eq!(found, (vec![2, 1, 1], vec![4, 5]));
        // Rows without an axis of their own.
        let found = gather((&[2], &[2, 0]), (&[-1, 1], &[0], 1), &[1, 3]).unwrap();
        assert_eq!(found, (vec![2, 3], vec![8, 9, 10, 0, 1, 2]));
    }

    #[test]
    fn updates_outside_the_tensor_are_left_out() {
        let corners = (&[2][..], &[2, -1][..]);
        let axes: Axes<'_> = (&[1, -1], &[0], 1);
        let updates = (&[2, 2][..], &[100, 200, 300, 400][..]);
        let rows = |combination| scatter(corners, axes, updates, combination).unwrap().1;
        assert_eq!(rows(0), [400, 1, 2, 3, 4, 5, 6, 7, 100, 9, 10, 11]);
        assert_eq!(rows(1), [400, 1, 2, 3, 4, 5, 6, 7, 108, 9, 10, 11]);
        assert_eq!(rows(2)[8], 800);
        assert_eq!(rows(3)[8], 8);
        assert_eq!(rows(4)[8], 100);
    }

    #[test]
    fn arguments_that_do_not_belong_together_give_an_error() {
        let of = |axes: Axes<'_>, sizes: &[i32]| gather((&[1, 2], &[0, 0]), axes, sizes).unwrap_err();
        assert!(of((&[1, 2], &[0, 1], 3), &[1, 1]).contains("(index_axis)"));
        assert!(of((&[1, 2], &[0, 1], -1), &[1, 1]).contains("(index_axis)"));
        assert!(of((&[1], &[0, 1], 1), &[1, 1]).contains("(region_axes)"));
        assert!(of((&[1, 1], &[0, 1], 1), &[1, 1]).contains("(region_axes)"));
        assert!(of((&[1, 3], &[0, 1], 1), &[1, 1]).contains("(region_axes)"));
        assert!(of((&[1, 2], &[0], 1), &[1, 1]).contains("(corner_axes)"));
        assert!(of((&[1, 2], &[1, 1], 1), &[1, 1]).contains("(corner_axes)"));
        assert!(of((&[1, 2], &[0, 2], 1), &[1, 1]).contains("(corner_axes)"));
        for sizes in [&[4, 1][..], &[-1, 1], &[1], &[1, 5]] {
            assert!(of((&[1, 2], &[0, 1], 1), sizes).contains("(sizes)"));
        }
        assert!(of((&[1, -1], &[0, 1], 1), &[1, 2]).contains("(sizes)"));
        let axes: Axes<'_> = (&[1, 2], &[0, 1], 1);
        for dims in [&[2, 1, 1][..], &[1, 1], &[1, 4, 1]] {
            let count = dims.iter().product::<u32>() as usize;
            let error = scatter((&[1, 2], &[0, 0]), axes, (dims, &vec![0; count]), 0).unwrap_err();
            assert!(error.contains("(updates)"), "{error}");
        }
        for combination in [-1, 5] {
            let error = scatter((&[1, 2], &[0, 0]), axes, (&[1, 1, 1], &[0]), combination).unwrap_err();
            assert!(error.contains("(combination)"), "{error}");
        }
    }

    #[test]
    fn tensor_without_elements_may_have_any_extents() {
        let extent = u32::MAX;
        let found = OneOperation::new(tflite::SCATTER_REGIONS)
            .tensor::<i32>(T::TENSOR_INT32, &[extent, extent, extent, 0], &[])
            .tensor(T::TENSOR_INT32, &[1, 3], &[i32::MAX; 3])
            .tensor(T::TENSOR_INT32, &[4], &[-1; 4])
            .tensor(T::TENSOR_INT32, &[3], &[0, 1, 2])
            .i32(1)
            .tensor(T::TENSOR_INT32, &[1], &[5])
            .i32(0)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert_eq!(found.unwrap().1, []);
    }

    #[test]
    fn many_regions_end_by_the_deadline() {
        let operation = OneOperation::new(tflite::GATHER_REGIONS)
            .tensor(T::TENSOR_INT32, &[4000], &[7_i32; 4000])
            .tensor(T::TENSOR_INT32, &[4000], &[0_i32; 4000])
            .tensor(T::TENSOR_INT32, &[1], &[1_i32])
            .tensor(T::TENSOR_INT32, &[1], &[0_i32])
            .i32(1)
            .tensor(T::TENSOR_INT32, &[1], &[4000_i32]);
        ends_by_the_deadline(operation.output(T::TENSOR_INT32, &[]));
    }
}
