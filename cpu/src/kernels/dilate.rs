//! DILATE: room between the elements of a tensor, and around them.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::dilate::{Spread, spreads};
use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(tflite::DILATE, |context: &mut KernelContext<'_>| {
        let ty = context.inputs.tensor(0)?.ty();
        by_element_size!(ty, dilate(context))
    })];

fn dilate<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let &[value] = context.inputs.data::<T>(2)? else {
        return Err(OpError::input(2, "(value) must have one element").into());
    };
    let spreads = spreads(context.inputs.rules())?;
    let input = context.inputs.tensor(0)?;
    let output = context.outputs.tensor(0)?;
    let rank = input.shape.rank();
    let (from_steps, to_steps) = (steps_of(input.dims()), steps_of(output.shape.dims()));
    let (mut from, mut to) = (0_isize, 0_isize);
    let mut extents = [0_u32; MAX_RANK];
    let mut steps = [0; MAX_RANK];
    for (axis, (spread, extent)) in spreads.iter().zip(input.dims()).enumerate() {
        let (first, count) = kept(*spread, *extent);
        extents[axis] = count;
        steps[axis] = to_steps[axis].saturating_mul(spread.step as isize);
        if count > 0 {
            // Too large only beside an extent of 0, and then nothing is copied.
            from = from_steps[axis]
                .saturating_mul(first as isize)
                .saturating_add(from);
            let start = (spread.first + first * spread.step) as isize;
            to = to_steps[axis].saturating_mul(start).saturating_add(to);
        }
    }
    let target = output.into_data::<T>()?;
    target.fill(value);
    if target.is_empty() {
        return Ok(());
    }
    copy_block(
        &extents[..rank],
        input.data::<T>()?,
        &Layout::new(from, &from_steps[..rank]),
        target,
        &Layout::new(to, &steps[..rank]),
    )
}

/// The first of so many elements that has a place in the output, and how many have.
fn kept(spread: Spread, elements: u32) -> (i64, u32) {
    let Spread { first, step, extent } = spread;
    let begin = if first < 0 { (-first + step - 1) / step } else { 0 };
    let room = i64::from(extent) - first;
    let end = if room <= 0 { 0 } else { (room - 1) / step + 1 };
    let count = (end.min(i64::from(elements)) - begin).max(0);
    // At most as many as there are elements.
    (begin, count as u32)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    type Found = Result<(Vec<u32>, Vec<i32>), String>;

    fn dilate(dims: &[u32], dilations: &[i32], edges: Option<&[i32]>) -> Found {
        let count = dims.iter().product::<u32>() as i32;
        let values: Vec<i32> = (1..=count).collect();
        let mut operation = OneOperation::new(tflite::DILATE)
            .tensor(T::TENSOR_INT32, dims, &values)
            .tensor(T::TENSOR_INT32, &[dilations.len() as u32], dilations)
            .tensor(T::TENSOR_INT32, &[1], &[0_i32]);
        if let Some(edges) = edges {
            operation = operation.tensor(T::TENSOR_INT32, &[edges.len() as u32 / 2, 2], edges);
        }
        operation.output(T::TENSOR_INT32, &[]).run_one()
    }

    #[test]
    fn room_lies_between_elements_only() {
        let found = dilate(&[2, 2], &[1, 3], None).unwrap();
        assert_eq!(found, (vec![2, 4], vec![1, 0, 0, 2, 3, 0, 0, 4]));
        assert_eq!(dilate(&[1], &[i32::MAX], None).unwrap(), (vec![1], vec![1]));
        assert_eq!(dilate(&[0], &[2], None).unwrap(), (vec![0], vec![]));
    }

    #[test]
    fn edges_add_room_or_cut_elements_off() {
        let found = dilate(&[3], &[2], Some(&[1, 2])).unwrap();
        assert_eq!(found, (vec![8], vec![0, 1, 0, 2, 0, 3, 0, 0]));
        assert_eq!(
            dilate(&[3], &[2], Some(&[-1, -1])).unwrap(),
            (vec![3], vec![0, 2, 0])
        );
        assert_eq!(
            dilate(&[3], &[2], Some(&[-2, 0])).unwrap(),
            (vec![3], vec![2, 0, 3])
        );
        assert_eq!(dilate(&[2], &[1], Some(&[-3, 4])).unwrap(), (vec![3], vec![0; 3]));
        assert_eq!(dilate(&[2], &[1], Some(&[4, -5])).unwrap(), (vec![1], vec![0]));
        assert_eq!(dilate(&[2], &[1], Some(&[-9, 0])).unwrap(), (vec![0], vec![]));
        assert_eq!(dilate(&[0], &[1], Some(&[1, 1])).unwrap(), (vec![2], vec![0; 2]));
    }

    #[test]
    fn lists_that_do_not_fit_give_an_error() {
        assert!(dilate(&[2, 1], &[1], None).unwrap_err().contains("(dilations)"));
        assert!(dilate(&[2], &[0], None).unwrap_err().contains("at least 1"));
        assert!(
            dilate(&[2], &[1], Some(&[0, 0, 0, 0]))
                .unwrap_err()
                .contains("(edges)")
        );
        assert!(dilate(&[3], &[i32::MAX], None).is_err());
    }

    #[test]
    fn output_without_elements_may_have_any_extents() {
        let edge = i32::MAX;
        let found = dilate(&[1; 4], &[1; 4], Some(&[-1, 0, edge, 0, edge, 0, edge, 0])).unwrap();
        assert_eq!((found.0[0], found.1), (0, vec![]));
    }
}
