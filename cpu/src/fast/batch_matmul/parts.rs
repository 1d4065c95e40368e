//! How the products of many pairs of matrices are parted among threads.

use nnhal_os::buffer::OutOfMemory;

use crate::fast::convolution::vector_speed;
use crate::fast::partition;
use crate::scratch::Scratch;
use crate::threads::{Cost, Parts, Team};

/// Neighbouring rows of one product, and where they go.
pub(in crate::fast) struct Rows<'a, T> {
    /// Which product.
    pub(in crate::fast) batch: usize,
    /// The first of them in its result.
    pub(in crate::fast) first: usize,
    pub(in crate::fast) count: usize,
    pub(in crate::fast) output: &'a mut [T],
}

/// The extents of products whose results are computed by rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Extents {
    pub(in crate::fast) batches: usize,
    /// Of the result of each.
    pub(in crate::fast) rows: usize,
    pub(in crate::fast) columns: usize,
}

/// What so many products of floats by vectors take, out of and to so many elements of this type.
pub(in crate::fast) fn cost<T>(products: usize, elements: usize) -> Cost {
    Cost {
        multiply_adds: products as u64 / vector_speed(),
        bytes: elements.saturating_mul(size_of::<T>()) as u64,
    }
}

/// Fewest rows of a block that has only some of a product's rows: a matrix is packed once for each block that
/// has rows of its product.
const LEAST_ROWS: usize = 128;

/// Most rows of a block, so that there are about as many blocks as are wanted: whole products, or some rows
/// of one.
fn rows_to_stop_at(parts: Parts, (batches, rows): (usize, usize)) -> usize {
    match (batches * rows).div_ceil(parts.blocks.max(1)) {
        some if some >= rows => some.next_multiple_of(rows.max(1)),
        some => some.max(LEAST_ROWS),
    }
}

/// Has threads compute all rows of all products by `multiply`, which is given those of one product at a time,
/// once for each block that has some of them, and a thread's own memory of `length` elements.
pub(in crate::fast) fn for_each_product<T: Send, M: bytemuck::Pod + Send>(
    (extents, cost): (Extents, Cost),
    output: &mut [T],
    (scratch, length, team): (&mut Scratch, usize, &Team<'_>),
    multiply: impl Fn(Rows<'_, T>, &mut [M]) + Sync,
) -> Result<(), OutOfMemory> {
    let Extents {
        batches,
        rows,
        columns,
    } = extents;
    let parts = team.parts_for(cost);
    let threads = parts.threads;
    let mut grid = partition::rows_at_once(threads, batches * rows, columns);
    grid.rows_per_block = grid.rows_per_block.min(rows_to_stop_at(parts, (batches, rows)));
    let threads = grid.most_threads(threads);
    let memory = scratch.shares::<M>(threads, length)?;
    team.for_each_block(threads, &grid, (output, memory), |mut block, memory| {
        let mut place = block.first_row();
        let mut rest = block.all();
        while !rest.is_empty() {
            let count = (rows - place % rows).min(rest.len() / columns);
            let (output, behind) = rest.split_at_mut(count * columns);
            let part = Rows {
                batch: place / rows,
                first: place % rows,
                count,
                output,
            };
            multiply(part, memory);
            (rest, place) = (behind, place + count);
        }
    });
    Ok(())
}
