//! Products of many rows with a constant matrix of 32-bit floats by tiles of bfloat16 values, which are
//! packed when the model is prepared.
//!
//! A float of 24 bits is the sum of three of eight bits. Of the nine products of the parts of two values six
//! are summed, in 32-bit floats; the other three are less than the last bit of the whole product. So sums are
//! as exact as those of floats, and rounded otherwise (Henry, Tang, Heinecke: Leveraging the bfloat16
//! Artificial Intelligence Datatype For Higher-Precision Computations, 2019). Denormal parts, and products of
//! parts below 2^-126, are taken for 0: values below about 2^-103 lose digits whatever they are multiplied
//! with, and so do sums below about 2^-100. Where a sum is not finite, it is taken again value by value: the
//! parts of an infinity are not its sum.

use nnhal_os::buffer::AlignedSlice;

use super::lines::Lines;
use crate::fast::epilogue::{Finish, FinishPart};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::amx_tiles::{Bf16x3, DEEP, SIDE, TileSums};
use crate::fast::simd::strided::Rows;
use crate::fast::simd::{Amx, Instructions, Shaped, Simd, WIDE, Work, dispatch};
use crate::plan::cost::{
    FAR_ROWS_BYTES, LEAST_COLUMNS_FOR_FLOAT_TILES, LEAST_DEPTH_FOR_FLOAT_TILES, LEAST_ROWS_FOR_FLOAT_TILES,
    MOST_DEPTH_FOR_FLOAT_TILES, NEAR_BYTES_OF_FLOAT_TILES,
};
use crate::threads::Block;

/// Values of this magnitude and more are rounded to an infinity.
const LEAST_UNPARTED: f32 = f32::from_bits(0x7f7f_8000);

/// A constant matrix of 32-bit floats with a bias for each column.
#[derive(Debug)]
pub(in crate::fast) struct PackedBf16x3 {
    amx: Amx,
    depth: usize,
    /// Panel by panel of [`SIDE`] columns; for each [`DEEP`] values along the common dimension the tiles of
    /// their parts.
    panels: AlignedSlice,
    /// Those of all columns, and zeros up to a whole panel.
    bias: Vec<f32>,
}

/// The tiles of some columns' values, of which `values` gives as many as the columns have.
fn pack_block(amx: Amx, columns: usize, values: impl Fn(usize, &mut [f32; DEEP]), block: &mut Bf16x3) {
    let mut rows: [Bf16x3; 1] = [[[[0; DEEP]; SIDE]; 3]];
    for column in 0..columns {
        let mut line = [0.0; DEEP];
        values(column, &mut line);
        amx.part_rows(Rows::new(&line, (1, DEEP), DEEP), column, &mut rows);
        if !line.iter().all(|value| value.abs() < LEAST_UNPARTED) {
            for (at, value) in line.iter().enumerate() {
                let parts = split_parts(*value);
                for (tile, part) in rows[0].iter_mut().zip(parts) {
                    tile[column][at] = part;
                }
            }
        }
    }
    for (tile, rows) in block.iter_mut().zip(&rows[0]) {
        for (pair, to) in tile.iter_mut().enumerate() {
            for (to, row) in to.as_chunks_mut::<2>().0.iter_mut().zip(rows) {
                *to = row.as_chunks::<2>().0[pair];
            }
        }
    }
}

/// Parts of any value whose sum is the value: cut, not rounded, so that none is an infinity if the value is
/// not.
fn split_parts(value: f32) -> [u16; 3] {
    let upper = |value: f32| (value.to_bits() >> 16) as u16;
    if value.is_nan() {
        return [upper(f32::NAN), 0, 0];
    }
    if value.is_infinite() {
        return [upper(value), 0, 0];
    }
    let first = upper(value);
    let left = value - whole(first);
    let second = upper(left);
    [first, second, upper(left - whole(second))]
}

/// The float that a part is.
#[inline(always)]
fn whole(part: u16) -> f32 {
    f32::from_bits(u32::from(part) << 16)
}

impl PackedBf16x3 {
    /// Whether this is worth it for so many rows, columns and values along the common dimension, of which so
    /// many lie side by side.
    pub(in crate::fast) fn pays(rows: usize, (columns, depth): (usize, usize), part: usize) -> bool {
        rows >= LEAST_ROWS_FOR_FLOAT_TILES
            && columns >= LEAST_COLUMNS_FOR_FLOAT_TILES
            && (LEAST_DEPTH_FOR_FLOAT_TILES..=MOST_DEPTH_FOR_FLOAT_TILES).contains(&depth)
            && part >= LEAST_DEPTH_FOR_FLOAT_TILES
    }

    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them.
    pub(in crate::fast) fn new(
        amx: Amx,
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedBf16x3, PackingError> {
        let (panels, blocks) = (columns.div_ceil(SIDE), depth.div_ceil(DEEP));
        let packed = packing.part(panels * blocks * size_of::<Bf16x3>(), |bytes| {
            let all: &mut [Bf16x3] = bytemuck::cast_slice_mut(bytes);
            for (number, panel) in all.chunks_exact_mut(blocks).enumerate() {
                let first = number * SIDE;
                for (at, block) in panel.iter_mut().enumerate() {
                    let start = at * DEEP;
                    let count = DEEP.min(depth - start);
                    let values = |column: usize, line: &mut [f32; DEEP]| {
                        for (at, to) in line[..count].iter_mut().enumerate() {
                            *to = value(first + column, start + at);
                        }
                    };
                    pack_block(amx, SIDE.min(columns - first), values, block);
                }
            }
        })?;
        let bias = (0..panels * SIDE)
            .map(|column| if column < columns { bias(column) } else { 0.0 })
            .collect();
        Ok(PackedBf16x3 {
            amx,
            depth,
            panels: packed,
            bias,
        })
    }

    /// The packed columns.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Values along the common dimension.
    pub(in crate::fast) fn depth(&self) -> usize {
        self.depth
    }

    fn blocks(&self) -> usize {
        self.depth.div_ceil(DEEP)
    }

    /// Whether panels come from further away than the second-level cache.
    fn is_far(&self) -> bool {
        self.panels.bytes().len() > NEAR_BYTES_OF_FLOAT_TILES
    }

    /// How many tiles of rows are multiplied with a panel at a time, of so many; an even number.
    fn tiles_at_once(&self, tiles: usize) -> usize {
        let most = if self.is_far() {
            (FAR_ROWS_BYTES / (self.blocks() * size_of::<Bf16x3>())).max(2)
        } else {
            2
        };
        tiles.next_multiple_of(2).min(most / 2 * 2)
    }

    /// How many floats of memory multiplying so many rows takes; a multiple of a cache line.
    pub(in crate::fast) fn scratch(&self, rows: usize) -> usize {
        let tiles = self.tiles_at_once(rows.div_ceil(SIDE));
        self.blocks() * (tiles * size_of::<Bf16x3>() / size_of::<f32>() + DEEP)
    }

    /// Multiplies rows with the columns that `output` has and does with the results what `finish` says.
    /// `scratch` is memory of [`PackedBf16x3::scratch`] for that many rows, best aligned to cache lines.
    pub(in crate::fast) fn multiply(
        &self,
        lines: Lines<'_, f32>,
        scratch: &mut [f32],
        output: Block<'_, f32>,
        finish: impl Finish,
    ) {
        if lines.count == 0 {
            return;
        }
        let tiles = lines.count.div_ceil(SIDE);
        let at_once = self.tiles_at_once(tiles);
        let (row, parts) = scratch.split_at_mut(self.blocks() * DEEP);
        let parts = &mut parts[..at_once * self.blocks() * size_of::<Bf16x3>() / size_of::<f32>()];
        dispatch(Multiply {
            packed: self,
            lines,
            row: &mut row[..self.depth],
            parts: bytemuck::cast_slice_mut(parts),
            tiles,
            rows: lines.count.div_ceil(tiles),
            output,
            finish,
        });
    }

    #[inline(always)]
    fn panel_or_none(&self, number: usize) -> Option<&[Bf16x3]> {
        (number < self.bias.len() / SIDE).then(|| self.panel(number))
    }

    /// For each of the blocks along the common dimension the tiles of a panel.
    #[inline(always)]
    fn panel(&self, number: usize) -> &[Bf16x3] {
        let all: &[Bf16x3] = bytemuck::cast_slice(self.panels.bytes());
        &all[number * self.blocks()..][..self.blocks()]
    }
}

struct Multiply<'a, F> {
    packed: &'a PackedBf16x3,
    lines: Lines<'a, f32>,
    /// Memory for a row's values side by side.
    row: &'a mut [f32],
    /// Memory for the parts of the rows that are multiplied at a time.
    parts: &'a mut [Bf16x3],
    /// How many tiles of rows there are, all of so many rows: the last one begins before the one before it
    /// ends if they do not come out even, so that tiles need not be given another shape.
    tiles: usize,
    rows: usize,
    output: Block<'a, f32>,
    finish: F,
}

/// Some neighbouring tiles of rows, and some neighbouring panels.
#[derive(Clone, Copy)]
struct Place {
    /// Number among all tiles.
    tile: usize,
    /// Number among those at hand.
    at: usize,
    /// Number of the panel.
    panel: usize,
}

impl<F: Finish> Work for Multiply<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, simd: S) {
        let shaped = self.packed.amx.shape(self.rows);
        let at_once = self.parts.len() / self.packed.blocks();
        let columns = self.output.columns();
        let panels = columns.start / SIDE..columns.end.div_ceil(SIDE);
        let mut sums = TileSums([[[0.0; SIDE]; 2]; 2 * SIDE]);
        for first in (0..self.tiles).step_by(at_once) {
            let count = at_once.min(self.tiles - first);
            self.part_rows(first, count);
            for panel in panels.clone().step_by(2) {
                for at in (0..count).step_by(2) {
                    let place = Place {
                        tile: first + at,
                        at,
                        panel,
                    };
                    let simd = simd.wide();
                    match (count - at, panels.end - panel) {
                        (1, 1) => self.block::<_, 1, 1>(simd, &shaped, place, &mut sums),
                        (1, _) => self.block::<_, 1, 2>(simd, &shaped, place, &mut sums),
                        (_, 1) => self.block::<_, 2, 1>(simd, &shaped, place, &mut sums),
                        _ => self.block::<_, 2, 2>(simd, &shaped, place, &mut sums),
                    }
                }
            }
        }
    }
}

impl<F: Finish> Multiply<'_, F> {
    /// The first row of a tile.
    #[inline(always)]
    fn first_row(&self, tile: usize) -> usize {
        (tile * self.rows).min(self.lines.count - self.rows)
    }

    /// Parts the rows of some tiles.
    #[inline(always)]
    fn part_rows(&mut self, first: usize, count: usize) {
        let blocks = self.packed.blocks();
        for tile in 0..count {
            let mut walk = self.lines.walk_from(self.first_row(first + tile));
            let parts = &mut self.parts[tile * blocks..][..blocks];
            let mut row = 0;
            while row < self.rows {
                let (run, count, rows);
                if self.lines.are_whole() {
                    count = self.lines.left(&walk).min(self.rows - row);
                    run = self.lines.take(&mut walk, count);
                    rows = self.lines.part(&run, 0);
                } else {
                    count = 1;
                    run = self.lines.take(&mut walk, count);
                    rows = self.lines.whole(&run, self.row);
                }
                self.packed.amx.part_rows(rows, row, parts);
                row += count;
            }
        }
    }

    /// Multiplies `M` tiles of rows with `P` panels.
    #[inline(always)]
    fn block<V: Simd<WIDE>, const M: usize, const P: usize>(
        &mut self,
        simd: V,
        shaped: &Shaped,
        place: Place,
        sums: &mut TileSums,
    ) {
        let blocks = self.packed.blocks();
        let rows = std::array::from_fn(|tile| &self.parts[(place.at + tile) * blocks..][..blocks]);
        let panels = std::array::from_fn(|panel| self.packed.panel(place.panel + panel));
        // The first two pairs of tiles of rows have what comes next fetched from further away, a panel each.
        let next = self.packed.panel_or_none(place.panel + 2 + place.at / 2);
        match next.filter(|_| self.packed.is_far() && place.at < 4) {
            Some(next) => shaped.sum_bf16x3::<M, P, true>(rows, panels, next, sums),
            None => shaped.sum_bf16x3::<M, P, false>(rows, panels, panels[0], sums),
        }
        if !self.store::<V, M, P>(simd, place, sums) {
            self.mend::<M, P>(place, sums);
            self.store::<V, M, P>(simd, place, sums);
        }
    }

    /// Adds biases, finishes and stores; says whether all sums were finite.
    #[inline(always)]
    fn store<V: Simd<WIDE>, const M: usize, const P: usize>(
        &mut self,
        simd: V,
        place: Place,
        sums: &TileSums,
    ) -> bool {
        let column = place.panel * SIDE - self.output.columns().start;
        let zero = simd.splat(0.0);
        let mut bias = [zero; P];
        for (panel, bias) in bias.iter_mut().enumerate() {
            *bias = simd.load(&self.packed.bias.as_chunks().0[place.panel + panel]);
        }
        // 0 times what is not finite is NaN. One for each panel of every other row: sums wait for each other.
        let mut finite = [[zero; P]; 2];
        for tile in 0..M {
            let first = self.first_row(place.tile + tile);
            let sums = &sums.0[tile * SIDE..];
            let rows = (first, self.rows);
            let mut finish = [self.finish.part::<WIDE>(rows, place.panel * SIDE); P];
            for (panel, finish) in finish.iter_mut().enumerate().skip(1) {
                *finish = self.finish.part(rows, (place.panel + panel) * SIDE);
            }
            for row in 0..self.rows {
                let line = &mut self.output.row(first + row)[column..];
                for panel in 0..P {
                    let sum = simd.load(&sums[row][panel]);
                    let result = simd.add(sum, bias[panel]);
                    finite[row % 2][panel] = simd.mul_add(result, zero, finite[row % 2][panel]);
                    let result = finish[panel].finish(simd, result, row);
                    let line = &mut line[panel * SIDE..];
                    if let Some(whole) = line.first_chunk_mut() {
                        simd.store(result, whole);
                    } else {
                        let mut lanes = [0.0; WIDE];
                        simd.store(result, &mut lanes);
                        line.copy_from_slice(&lanes[..line.len()]);
                    }
                }
            }
        }
        let mut all = zero;
        for finite in finite.as_flattened() {
            all = simd.add(all, *finite);
        }
        let mut lanes = [0.0; WIDE];
        simd.store(all, &mut lanes);
        lanes == [0.0; WIDE]
    }

    /// Takes those of the sums value by value that are not finite, or not with their biases. The others stay:
    /// whatever is computed together with it, a sum is the same.
    #[inline(always)]
    fn mend<const M: usize, const P: usize>(&mut self, place: Place, sums: &mut TileSums) {
        for tile in 0..M {
            let mut walk = self.lines.walk_from(self.first_row(place.tile + tile));
            for row in 0..self.rows {
                let run = self.lines.take(&mut walk, 1);
                for panel in 0..P {
                    let sums = &mut sums.0[tile * SIDE + row][panel];
                    let number = place.panel + panel;
                    let bias: &[f32; SIDE] = &self.packed.bias.as_chunks().0[number];
                    let is_finite = |(sum, bias): (&f32, &f32)| (sum + bias).is_finite();
                    if sums.iter().zip(bias).all(is_finite) {
                        continue;
                    }
                    let values = self.lines.whole(&run, self.row).row(0);
                    let mut exact = [0.0; SIDE];
                    for (values, block) in values.chunks(DEEP).zip(self.packed.panel(number)) {
                        add_products(values, block, &mut exact);
                    }
                    for ((sum, bias), exact) in sums.iter_mut().zip(bias).zip(exact) {
                        if !(*sum + bias).is_finite() {
                            *sum = exact;
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of values with those of each column, whose parts are put together again.
#[inline(always)]
fn add_products(values: &[f32], block: &Bf16x3, sums: &mut [f32; SIDE]) {
    const UPPER: u32 = 0xffff_0000;
    for (pair, values) in values.chunks(2).enumerate() {
        let parts: [[u32; SIDE]; 3] = block.map(|tile| bytemuck::cast(tile[pair]));
        for (at, value) in values.iter().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                let part = |third: usize| {
                    let pair = parts[third][column];
                    f32::from_bits(if at == 0 { pair << 16 } else { pair & UPPER })
                };
                *sum += value * (part(0) + part(1) + part(2));
            }
        }
    }
}

#[cfg(test)]
#[path = "bf16x3_tests.rs"]
mod tests;
