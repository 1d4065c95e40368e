//! MIRROR_PAD: more room around a tensor, filled with the tensor itself, mirrored.

use std::ops::Range;

use nnhal_hal::ops::pad::Mirror;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, count_of, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::MIRROR_PAD, mirror_pad),
    (tflite::MIRROR_PAD, mirror_pad),
];

fn mirror_pad(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, mirror_around(context))
}

/// Puts the tensor into its place, then fills the room around it axis by axis, from the last one on: what
/// lies before and behind an axis is mirrored with all that the axes after it have got already.
fn mirror_around<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let paddings = context.inputs.data::<i32>(1)?;
    // How far the first mirrored element is from the border.
    let skipped = match Mirror::of(context.inputs.rules())? {
        Mirror::AtBorder => 1,
        Mirror::BehindBorder => 0,
    };
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let target = output.into_data::<T>()?;
    if target.is_empty() {
        return Ok(());
    }
    let rank = shape.rank();
    let steps = steps_of(shape.dims());
    let before = |axis: usize| paddings[2 * axis] as usize;
    let start = |axes: Range<usize>| {
        axes.map(|axis| before(axis) as isize * steps[axis])
            .sum::<isize>()
    };
    let inside = Layout::new(start(0..rank), &steps[..rank]);
    copy_block(
        input.dims(),
        input.data::<T>()?,
        &Layout::whole(input.dims()),
        target,
        &inside,
    )?;
    for axis in (0..rank).rev() {
        let line = Line {
            step: steps[axis] as usize,
            before: before(axis),
            extent: input.shape.dim(axis) as usize,
            whole: shape.dim(axis) as usize,
        };
        let first = start(0..axis) as usize;
        // Those that have their tensor: in the places of the axes before it.
        let outer = &input.dims()[..axis];
        for place in 0..count_of(outer) {
            let at = first + offset_of(place, outer, &steps);
            line.mirror(&mut target[at..], skipped);
        }
    }
    Ok(())
}

/// Where a place stands by the steps along its axes. Places are counted in row-major order.
fn offset_of(mut place: usize, extents: &[u32], steps: &[isize]) -> usize {
    let mut offset = 0;
    for (extent, step) in extents.iter().zip(steps).rev() {
        offset += place % *extent as usize * *step as usize;
        place /= *extent as usize;
    }
    offset
}

/// An axis of the result.
struct Line {
    /// How far its elements are from each other.
    step: usize,
    /// How much room is before the tensor.
    before: usize,
    /// Of the tensor.
    extent: usize,
    /// Of the result.
    whole: usize,
}

impl Line {
    /// Fills the room before and behind the tensor, whose `skipped` elements at the border are not mirrored.
    fn mirror<T: Copy>(&self, target: &mut [T], skipped: usize) {
        let last = self.before + self.extent - 1;
        let mut copy = |from: usize, to: usize| {
            target.copy_within(from * self.step..(from + 1) * self.step, to * self.step);
        };
        for distance in 1..=self.before {
            copy(self.before + skipped + distance - 1, self.before - distance);
        }
        for distance in 1..self.whole - last {
            copy(last + 1 - skipped - distance, last + distance);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn mirror_pad<E: bytemuck::Pod>(
        operand: &Operand,
        data: &[E],
        paddings: &[i32],
        mode: i32,
    ) -> Result<(Vec<u32>, Vec<E>), String> {
        OneOperation::new(OperationType::MIRROR_PAD)
            .operand(operand.clone(), data)
            .tensor(T::TENSOR_INT32, &[paddings.len() as u32 / 2, 2], paddings)
            .i32(mode)
            .output_operand(Operand {
                dimensions: Vec::new(),
                ..operand.clone()
            })
            .run_one()
    }

    #[test]
    fn mirrored_room_has_the_border_or_has_it_not() {
        let operand = Operand::new(T::TENSOR_INT32, &[3]);
        let padded = |paddings: &[i32], mode| mirror_pad(&operand, &[1, 2, 3], paddings, mode).unwrap().1;
        assert_eq!(padded(&[0, 2], 0), [1, 2, 3, 2, 1]);
        assert_eq!(padded(&[0, 2], 1), [1, 2, 3, 3, 2]);
        assert_eq!(padded(&[2, 1], 0), [3, 2, 1, 2, 3, 2]);
        assert_eq!(padded(&[3, 3], 1), [3, 2, 1, 1, 2, 3, 3, 2, 1]);
        assert_eq!(padded(&[0, 0], 0), [1, 2, 3]);
    }

    #[test]
    fn corners_are_mirrored_along_every_axis() {
        let operand = Operand::new(T::TENSOR_FLOAT32, &[2, 3]);
        let data = [1_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let (dims, found) = mirror_pad(&operand, &data, &[1, 1, 2, 0], 0).unwrap();
        assert_eq!(dims, [4, 5]);
        #[rustfmt::skip]
        let expected = [
            6.0, 5.0, 4.0, 5.0, 6.0,
            3.0, 2.0, 1.0, 2.0, 3.0,
            6.0, 5.0, 4.0, 5.0, 6.0,
            3.0, 2.0, 1.0, 2.0, 3.0,
        ];
        assert_eq!(found, expected);
        let (dims, found) = mirror_pad(&operand, &data, &[2, 0, 0, 1], 1).unwrap();
        assert_eq!(dims, [4, 4]);
        #[rustfmt::skip]
        let expected = [
            4.0, 5.0, 6.0, 6.0,
            1.0, 2.0, 3.0, 3.0,
            1.0, 2.0, 3.0, 3.0,
            4.0, 5.0, 6.0, 6.0,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_place_of_the_axes_before_is_mirrored() {
        let operand = Operand::new(T::TENSOR_QUANT8_ASYMM, &[2, 2, 1, 2]).with_quantization(0.5, 7);
        let data = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        let (dims, found) = mirror_pad(&operand, &data, &[0, 1, 1, 0, 0, 1, 0, 1], 1).unwrap();
        assert_eq!(dims, [3, 3, 2, 3]);
        let at = |one: usize, two: usize, four: usize| data[one * 4 + two * 2 + four];
        let mut expected = Vec::new();
        for one in [0, 1, 1] {
            for two in [0, 0, 1] {
                for _ in 0..2 {
                    expected.extend([0, 1, 1].map(|four| at(one, two, four)));
                }
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn more_room_than_there_is_to_mirror_gives_an_error() {
        let operand = Operand::new(T::TENSOR_FLOAT32, &[2]);
        let fails = |paddings: &[i32], mode| mirror_pad(&operand, &[1_f32, 2.0], paddings, mode).unwrap_err();
        assert!(fails(&[2, 0], 0).contains("at most 1 can be mirrored"));
        assert!(fails(&[0, 3], 1).contains("at most 2 can be mirrored"));
        assert!(fails(&[-1, 0], 1).contains("must not be negative"));
        assert!(fails(&[i32::MAX, i32::MAX], 1).contains("(paddings)"));
        assert!(fails(&[1, 0, 0, 0], 0).contains("must be [1, 2]"));
        for mode in [-1, 2, i32::MIN, i32::MAX] {
            assert!(fails(&[1, 0], mode).contains("(mode)"));
        }
        let empty = Operand::new(T::TENSOR_FLOAT32, &[0]);
        assert!(mirror_pad::<f32>(&empty, &[], &[1, 0], 1).is_err());
        assert_eq!(mirror_pad::<f32>(&empty, &[], &[0, 0], 0), Ok((vec![0], vec![])));
    }

    #[test]
    fn sixteen_bits_are_mirrored_too() {
        let operand = Operand::new(T::TENSOR_QUANT16_SYMM, &[2]).with_quantization(0.5, 0);
        let found = OneOperation::new(tflite::MIRROR_PAD)
            .operand(operand.clone(), &[-300_i16, 300])
            .tensor(T::TENSOR_INT32, &[1, 2], &[1, 1])
            .i32(0)
            .output_operand(Operand {
                dimensions: Vec::new(),
                ..operand
            })
            .run_one::<i16>();
        assert_eq!(found.unwrap().1, [300, -300, 300, -300]);
    }
}
