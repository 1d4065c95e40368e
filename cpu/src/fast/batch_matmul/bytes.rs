//! Products of matrices of signed bytes, by pairs of 16-bit integers. Results are the bits of the reference.

use nnhal_hal::ops::batch_matmul::BatchMatMul;

use super::parts::{Extents, Rows, cost, for_each_product};
use crate::fast::matmul::floats::Unpacked;
use crate::fast::matmul::lines::Lines;
use crate::fast::matmul::pairs::MatrixI16;
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::requantize::{OfPanels, QuantizedOutput, Requantization};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::element::Quantized;
use crate::kernels::fixed_point::Multiplier;
use crate::kernels::layer::multiplier;
use crate::threads::Block;

pub(super) fn run(context: &mut KernelContext<'_>, product: &BatchMatMul) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let to_steps = requantization(multiplier(left.operand, right.operand, output.operand, 0));
    let stored = QuantizedOutput::new(
        (output.scale(), output.zero_point()),
        Activation::None,
        [i8::LEAST, i8::MOST],
    );
    let widen = |zero_point: i32| move |value: i8| (i32::from(value) - zero_point) as i16;
    let (of_left, of_right) = (widen(left.zero_point()), widen(right.zero_point()));
    let (left, right) = (left.data::<i8>()?, right.data::<i8>()?);
    let output = bytemuck::cast_slice_mut::<i8, u8>(output.into_data()?);
    let (rows, inner, columns) = (product.rows, product.inner, product.columns);
    let [panels, biases] = MatrixI16::lengths((columns, inner));
    let row = inner.next_multiple_of(2);
    // In words of 32 bits, each for a pair.
    let (panels, copied) = (panels / 2, rows * row / 2);
    let extents = Extents {
        batches: product.batches,
        rows,
        columns,
    };
    let cost = cost::<i8>(output.len() * inner, left.len() + right.len() + output.len());
    let memory = (&mut *context.scratch, panels + biases + copied, context.team);
    for_each_product((extents, cost), output, memory, |part: Rows<'_, u8>, memory| {
        let (panels, rest) = memory.split_at_mut(panels);
        let (biases, rest) = rest.split_at_mut(biases);
        let right = Unpacked {
            values: &right[part.batch * inner * columns..],
            apart: if product.transpose_right { inner } else { columns },
            by_columns: product.transpose_right,
        };
        let panels = (bytemuck::cast_slice_mut(panels), biases);
        let matrix = MatrixI16::pack((right, of_right), (columns, inner), panels, &to_steps);
        let left = &left[part.batch * rows * inner..][..rows * inner];
        let (start, apart) = if product.transpose_left {
            (1, rows)
        } else {
            (inner, 1)
        };
        let copy = &mut bytemuck::cast_slice_mut::<i32, i16>(rest)[..part.count * row];
        for (number, copy) in (part.first..).zip(copy.chunks_exact_mut(row)) {
            let values = left[number * start..].iter().step_by(apart);
            // The least of them, so that a row that ends with half a pair ends with 0.
            copy[row - 1] = 0;
            for (to, value) in copy[..inner].iter_mut().zip(values) {
                *to = of_left(*value);
            }
        }
        let lines = Lines::of_rows(copy, part.count, (row, row));
        matrix.multiply(lines, Block::whole(part.output, columns), (stored, true));
    })?;
    Ok(())
}

/// What scales all sums alike.
fn requantization(multiplier: Multiplier) -> OfPanels<Requantization> {
    OfPanels::new(
        1,
        |_| [multiplier; COLUMNS],
        |_, multipliers| Requantization::new(multipliers),
    )
}
