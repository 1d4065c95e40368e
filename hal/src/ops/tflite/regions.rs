//! GATHER_REGIONS and SCATTER_REGIONS: boxes of a tensor whose corners indices name, as StableHLO has them.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Ty};
use crate::{MAX_RANK, OperandType as T, Shape, tflite};

use super::types::{MOVED, NUMBERS_AND_STEPS};

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::GATHER_REGIONS,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("indices", Ty::Is(T::TENSOR_INT32)),
            Param::integers("region_axes"),
            Param::integers("corner_axes"),
            Param::scalar("index_axis", T::INT32),
            Param::integers("sizes"),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(gathered),
    },
    OperationEntry {
        operation: tflite::SCATTER_REGIONS,
        variants: NUMBERS_AND_STEPS,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("indices", Ty::Is(T::TENSOR_INT32)),
            Param::integers("region_axes"),
            Param::integers("corner_axes"),
            Param::scalar("index_axis", T::INT32),
            Param::new("updates", Ty::Var(0)),
            Param::scalar("combination", T::INT32),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| {
            keeps_quantization(context)?;
            context.check_same_quantization(5, 0)
        },
        shape: ShapeRule::Infer(scattered),
    },
];

/// How the axes of a tensor, of indices into it and of the regions that they name belong together.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    /// For each axis of the tensor the one of the regions along which it lies; `None` where a region is one
    /// element deep and has no such axis.
    pub of_tensor: [Option<usize>; MAX_RANK],
    /// For each axis of the indices, but for the one along which a corner lies, that of the regions.
    pub of_indices: [Option<usize>; MAX_RANK],
    /// The axis of the indices along which a corner lies, if it is not one element.
    pub index_axis: Option<usize>,
    /// For each element of a corner the axis of the tensor that it is a place along.
    pub corner: [usize; MAX_RANK],
    /// How many elements a corner has.
    pub depth: usize,
    /// How many axes the regions have.
    pub rank: usize,
}

impl Regions {
    /// Those of an operation of this file.
    ///
    /// # Errors
    /// Axes that are not there, or come twice.
    pub fn of(context: &dyn OperationContext) -> Result<Regions, ShapeIssue> {
        let (tensor, indices) = (context.shape(0)?, context.shape(1)?);
        let (axes, corner) = (context.i32s(2)?, context.i32s(3)?);
        let index_axis = context.i32(4)?;
        let wrong = |input: usize, message: String| ShapeIssue::Invalid(OpError::input(input, message));
        let index_axis = match usize::try_from(index_axis) {
            Ok(axis) if axis < indices.rank() => Some(axis),
            Ok(axis) if axis == indices.rank() => None,
            _ => {
                let message = format!(
                    "(index_axis) is {index_axis}, must be from 0 to {}",
                    indices.rank()
                );
                return Err(wrong(4, message));
            }
        };
        let depth = index_axis.map_or(1, |axis| indices.dim(axis) as usize);
        let mut regions = Regions {
            of_tensor: [None; MAX_RANK],
            of_indices: [None; MAX_RANK],
            index_axis,
            corner: [0; MAX_RANK],
            depth,
            rank: indices.rank() - usize::from(index_axis.is_some()),
        };
        regions.rank += axes.iter().filter(|axis| **axis >= 0).count();
        if axes.len() != tensor.rank() || regions.rank == 0 || regions.rank > MAX_RANK {
            let message = format!(
                "(region_axes) is {axes:?}, must have one element for each of {} axes of input 0, and leave regions 1 \
                 to {MAX_RANK} axes",
                tensor.rank()
            );
            return Err(wrong(2, message));
        }
        let mut taken = [false; MAX_RANK];
        for (slot, axis) in regions.of_tensor.iter_mut().zip(axes) {
            let Ok(axis) = usize::try_from(*axis) else {
                continue;
            };
            if axis >= regions.rank || taken[axis] {
                let message = format!(
                    "(region_axes) has axis {axis}, must have each at most once, below {}",
                    regions.rank
                );
                return Err(wrong(2, message));
            }
            taken[axis] = true;
            *slot = Some(axis);
        }
        // The other axes are those of the indices, in their order.
        let mut free = (0..regions.rank).filter(|axis| !taken[*axis]);
        for (axis, slot) in regions.of_indices[..indices.rank()].iter_mut().enumerate() {
            if Some(axis) != index_axis {
                *slot = free.next();
            }
        }
        let mut named = [false; MAX_RANK];
        let fits = corner.len() == depth
            && corner.iter().zip(&mut regions.corner).all(|(axis, slot)| {
                let axis = usize::try_from(*axis).ok().filter(|axis| *axis < tensor.rank());
                axis.is_some_and(|axis| {
                    *slot = axis;
                    !std::mem::replace(&mut named[axis], true)
                })
            });
        if !fits {
            let message = format!(
                "(corner_axes) is {corner:?}, must have {depth} different axes of input 0, as many as a corner has \
                 elements"
            );
            return Err(wrong(3, message));
        }
        Ok(regions)
    }

    /// The extents of the regions along the axes that the indices give them, and 1 along the others.
    fn extents(&self, indices: &Shape) -> [u32; MAX_RANK] {
        let mut extents = [1; MAX_RANK];
        for (axis, extent) in self.of_indices.iter().zip(indices.dims()) {
            if let Some(axis) = axis {
                extents[*axis] = *extent;
            }
        }
        extents
    }
}

fn gathered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let regions = Regions::of(context)?;
    let (tensor, sizes) = (context.shape(0)?, context.i32s(5)?);
    let mut extents = regions.extents(&context.shape(1)?);
    let mut fits = sizes.len() == tensor.rank();
    for ((size, extent), axis) in sizes.iter().zip(tensor.dims()).zip(regions.of_tensor) {
        let size = u32::try_from(*size).ok().filter(|size| size <= extent);
        match (size, axis) {
            (Some(size), Some(axis)) => extents[axis] = size,
            (Some(1), None) => {}
            _ => fits = false,
        }
    }
    if !fits {
        let message = format!(
            "(sizes) is {sizes:?}, must be a region within dimensions {tensor:?}, 1 along the axes that it lacks"
        );
        return Err(OpError::input(5, message).into());
    }
    set(outputs, 0, shape_of(&extents[..regions.rank])?)
}

fn scattered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let regions = Regions::of(context)?;
    let (tensor, updates) = (context.shape(0)?, context.shape(5)?);
    let of_indices = regions.extents(&context.shape(1)?);
    let fits = updates.rank() == regions.rank && {
        let fits = |(axis, extent): (usize, &u32)| {
            let of_tensor = regions.of_tensor.iter().position(|of| *of == Some(axis));
            match of_tensor {
                Some(of) => *extent <= tensor.dim(of),
                None => *extent == of_indices[axis],
            }
        };
        updates.dims().iter().enumerate().all(fits)
    };
    if !fits {
        let message = format!(
            "(updates) has dimensions {updates:?}, must have {} axes, as long as those of the indices where they are \
             theirs, and no longer than those of input 0",
            regions.rank
        );
        return Err(OpError::input(5, message).into());
    }
    set(outputs, 0, tensor)
}
