//! Products of matrices of 32-bit floats.

use nnhal_hal::ops::batch_matmul::BatchMatMul;

use super::parts::{Extents, Rows, cost, for_each_product};
use crate::fast::epilogue::Clamp;
use crate::fast::matmul::floats::{MatrixF32, Unpacked};
use crate::fast::matmul::lines::Lines;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::threads::Block;

pub(super) fn run(context: &mut KernelContext<'_>, product: &BatchMatMul) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.data::<f32>(0)?, context.inputs.data::<f32>(1)?);
    let output = context.outputs.data::<f32>(0)?;
    let (rows, inner, columns) = (product.rows, product.inner, product.columns);
    let [panels, biases] = MatrixF32::lengths((columns, inner));
    let copied = if product.transpose_left { rows * inner } else { 0 };
    let extents = Extents {
        batches: product.batches,
        rows,
        columns,
    };
    let cost = cost::<f32>(output.len() * inner, left.len() + right.len() + output.len());
    let memory = (&mut *context.scratch, panels + biases + copied, context.team);
    for_each_product((extents, cost), output, memory, |part: Rows<'_, f32>, memory| {
        let (panels, rest) = memory.split_at_mut(panels);
        let (biases, rest) = rest.split_at_mut(biases);
        let right = Unpacked {
            values: &right[part.batch * inner * columns..],
            apart: if product.transpose_right { inner } else { columns },
            by_columns: product.transpose_right,
        };
        let matrix = MatrixF32::pack(right, (columns, inner), panels, biases);
        let left = &left[part.batch * rows * inner..][..rows * inner];
        let left = if product.transpose_left {
            let copy = &mut rest[..part.count * inner];
            for (row, copy) in (part.first..).zip(copy.chunks_exact_mut(inner)) {
                for (to, value) in copy.iter_mut().zip(left[row..].iter().step_by(rows)) {
                    *to = *value;
                }
            }
            &*copy
        } else {
            &left[part.first * inner..]
        };
        let lines = Lines::of_rows(left, part.count, (inner, inner));
        matrix.multiply(
            lines,
            Block::whole(part.output, columns),
            Clamp(Activation::None.range()),
        );
    })?;
    Ok(())
}
