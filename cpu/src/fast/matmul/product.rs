//! The loops of a matrix product around its tiles, whatever is multiplied: which rows and which panels each
//! tile has. What is multiplied, and how, is a [`MicroKernel`].

use super::lines::{Lines, Walk};
use super::tile::{COLUMNS, HALF_ROWS, PANELS};
use crate::fast::simd::{Instructions, LANES, WIDE, Work};
use crate::threads::Block;

/// Multiplies some panels with all rows: how many panels there are, and for each such number how many rows a
/// tile has, which go down to 1. For each there is code of its own. The last number is for all others.
macro_rules! tall_tiles {
    (
        $product:ident, $simd:ident, ($panel:ident, $count:ident),
        $($panels:literal: [$($rows:literal)*],)* else $last:literal: [$($last_rows:literal)*]
    ) => {
        match $count {
            $($panels => $crate::fast::matmul::product::tall_tiles!(@rows $product, $simd, $panel, $panels, [$($rows)*]),)*
            _ => $crate::fast::matmul::product::tall_tiles!(@rows $product, $simd, $panel, $last, [$($last_rows)*]),
        }
    };
    (@rows $product:ident, $simd:ident, $panel:ident, $count:literal, [$most:literal $($fewer:literal)*]) => {{
        let panels = $product.kernel.panels::<{ $crate::fast::simd::WIDE }, $count>($panel, $product.column($panel));
        let mut walk = $product.lines.walk();
        loop {
            let left = $product.lines.left(&walk);
            match $crate::fast::matmul::lines::rows_of_next_tall_tile(left, $most) {
                $most.. => Self::tile::<S, $most, $count>($product, $simd, &panels, &mut walk),
                $($fewer.. => Self::tile::<S, $fewer, $count>($product, $simd, &panels, &mut walk),)*
                0 => break,
            }
        }
    }};
}

pub(in crate::fast) use tall_tiles;

/// A packed matrix of one kind of values, and what multiplies one tile of rows with some of its panels.
pub(in crate::fast) trait MicroKernel: Sized {
    /// What rows hold.
    type Value: Copy;
    /// What becomes of a sum.
    type Result;
    /// What is the same for all tiles of some panels, or of half a one: of so many vectors of `N` columns.
    type Panels<const N: usize, const P: usize>;

    /// Whether it multiplies bytes. Where no instruction does, tiles have one row and one panel then: others
    /// would be much code that only tests run.
    const IS_OF_BYTES: bool = false;
    /// Most rows of a tile where registers are few, of at most six.
    const MOST_ROWS: usize;
    /// Whether two rows that are all there are take two panels at a time where registers are few.
    const PAIRS_PANELS: bool = false;
    /// Whether half a panel may be behind the whole ones.
    const HAS_HALF: bool = false;

    /// How many narrow vectors the columns before one have, of those that there are.
    #[inline(always)]
    fn vectors(&self, end: usize) -> usize {
        2 * end.div_ceil(COLUMNS)
    }

    /// What tiles need of some panels, the first of which begins with a column of the output.
    fn panels<const N: usize, const P: usize>(&self, first: usize, column: usize) -> Self::Panels<N, P>;

    /// How many of the rows that are left the next tile takes where registers are few.
    #[inline(always)]
    fn rows_of_next_tile(left: usize) -> usize {
        left.min(Self::MOST_ROWS)
    }

    /// How many of the panels that are left the next tiles take where registers are many; `is_half_behind`
    /// says whether half a panel is behind them. Two leave no register short where instructions multiply and
    /// add at once, even if what the rows hold is loaded for all of them beforehand.
    #[inline(always)]
    fn panels_of_next_tile(left: usize, _is_half_behind: bool) -> usize {
        left.min(2)
    }

    /// Computes the tile of the next rows with some panels.
    fn tile<S: Instructions, const R: usize, const P: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        panels: &Self::Panels<WIDE, P>,
        walk: &mut Walk,
    );

    /// The same with the half of a panel.
    #[inline(always)]
    fn half_tile<S: Instructions, const R: usize>(
        _: &mut Product<'_, Self>,
        _: S,
        _: &Self::Panels<LANES, 1>,
        _: &mut Walk,
    ) {
        unreachable!("all panels are whole")
    }

    /// Some panels with all rows where registers are many: by [`tall_tiles`].
    #[inline(always)]
    fn tall_tiles<S: Instructions>(product: &mut Product<'_, Self>, simd: S, (panel, count): (usize, usize)) {
        tall_tiles!(
            product, simd, (panel, count),
            2: [8 7 6 5 4 3 2 1],
            else 1: [8 7 6 5 4 3 2 1]
        )
    }

    /// Computes the last narrow vectors, from a panel on, in another way than by those tiles where registers
    /// are many: half a panel, a whole one, or both. Says whether it did.
    #[inline(always)]
    fn last<S: Instructions, const VECTORS: usize>(_: &mut Product<'_, Self>, _: S, _: usize) -> bool {
        false
    }
}

/// Rows that are multiplied with the columns that the output has.
pub(in crate::fast) struct Product<'a, K: MicroKernel> {
    pub(in crate::fast) kernel: K,
    pub(in crate::fast) lines: Lines<'a, K::Value>,
    pub(in crate::fast) output: Block<'a, K::Result>,
}

impl<K: MicroKernel> Work for Product<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, simd: S) {
        let columns = self.output.columns();
        let vectors = self.kernel.vectors(columns.end);
        let (whole, is_half_behind) = (vectors / 2, K::HAS_HALF && vectors % 2 == 1);
        let mut panel = columns.start / COLUMNS;
        if self.lines.count == 1 {
            while S::HAS_WIDE && panel + 2 * PANELS <= whole {
                self.few_rows::<S, 1, { 2 * PANELS }>(simd, panel);
                panel += 2 * PANELS;
            }
            while (S::MULTIPLIES_BYTES || !K::IS_OF_BYTES) && panel + PANELS <= whole {
                self.few_rows::<S, 1, PANELS>(simd, panel);
                panel += PANELS;
            }
        }
        if K::PAIRS_PANELS && (self.lines.count, self.lines.left(&self.lines.walk())) == (2, 2) {
            // Where registers are many, as other rows.
            while !S::HAS_WIDE && panel + 2 <= whole {
                self.few_rows::<S, 2, 2>(simd, panel);
                panel += 2;
            }
        }
        while S::HAS_WIDE && panel < whole {
            let count = K::panels_of_next_tile(whole - panel, is_half_behind);
            if count == 1 {
                let is_done = if is_half_behind {
                    K::last::<S, 3>(&mut self, simd, panel)
                } else {
                    K::last::<S, 2>(&mut self, simd, panel)
                };
                if is_done {
                    return;
                }
            }
            K::tall_tiles(&mut self, simd, (panel, count));
            panel += count;
        }
        while panel < whole {
            self.whole_panel(simd, panel);
            panel += 1;
        }
        if is_half_behind && !(S::HAS_WIDE && K::last::<S, 1>(&mut self, simd, whole)) {
            self.half_panel(simd, whole);
        }
    }
}

impl<K: MicroKernel> Product<'_, K> {
    /// The first column of a panel in the output.
    #[inline(always)]
    pub(in crate::fast) fn column(&self, panel: usize) -> usize {
        panel * COLUMNS - self.output.columns().start
    }

    /// Most rows of a tile with one panel.
    #[inline(always)]
    const fn most_rows<S: Instructions>() -> usize {
        // Where registers are many, all whole panels are in tall tiles.
        if K::IS_OF_BYTES && (S::HAS_WIDE || !S::MULTIPLIES_BYTES) {
            1
        } else {
            K::MOST_ROWS
        }
    }

    /// How many of the rows that are left the next tile with one panel takes.
    #[inline(always)]
    fn rows_of_next_tile<S: Instructions>(left: usize) -> usize {
        K::rows_of_next_tile(left).min(const { Self::most_rows::<S>() })
    }

    /// All rows there are, which one tile takes: neighbours in a line.
    #[inline(always)]
    fn few_rows<S: Instructions, const R: usize, const P: usize>(&mut self, simd: S, panel: usize) {
        let panels = self.kernel.panels::<WIDE, P>(panel, self.column(panel));
        let mut walk = self.lines.walk();
        K::tile::<S, R, P>(self, simd, &panels, &mut walk);
    }

    #[inline(always)]
    fn whole_panel<S: Instructions>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let panels = self.kernel.panels::<WIDE, 1>(panel, self.column(panel));
        loop {
            match Self::rows_of_next_tile::<S>(self.lines.left(&walk)) {
                0 => return,
                6 if const { Self::most_rows::<S>() >= 6 } => {
                    self.tiles_apart::<S, 6>(simd, &panels, &mut walk)
                }
                5 if const { Self::most_rows::<S>() >= 5 } => {
                    self.tiles_apart::<S, 5>(simd, &panels, &mut walk)
                }
                4 if const { Self::most_rows::<S>() >= 4 } => {
                    self.tiles_apart::<S, 4>(simd, &panels, &mut walk)
                }
                3 if const { Self::most_rows::<S>() >= 3 } => {
                    self.tiles_apart::<S, 3>(simd, &panels, &mut walk)
                }
                2 if const { Self::most_rows::<S>() >= 2 } => {
                    self.tiles_apart::<S, 2>(simd, &panels, &mut walk)
                }
                _ => self.tiles_apart::<S, 1>(simd, &panels, &mut walk),
            }
        }
    }

    /// Computes the tiles of this many rows that come next.
    #[inline(always)]
    fn tiles_apart<S: Instructions, const R: usize>(
        &mut self,
        simd: S,
        panels: &K::Panels<WIDE, 1>,
        walk: &mut Walk,
    ) {
        simd.apart(Tiles::<K, R> {
            product: self,
            panels,
            walk,
        });
    }

    #[inline(always)]
    fn half_panel<S: Instructions>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let half = self.kernel.panels::<LANES, 1>(panel, self.column(panel));
        loop {
            match self.lines.left(&walk) {
                0 => return,
                HALF_ROWS.. => self.half_tiles_apart::<S, HALF_ROWS>(simd, &half, &mut walk),
                4.. => self.half_tiles_apart::<S, 4>(simd, &half, &mut walk),
                2.. => self.half_tiles_apart::<S, 2>(simd, &half, &mut walk),
                _ => self.half_tiles_apart::<S, 1>(simd, &half, &mut walk),
            }
        }
    }

    /// Computes the tiles of this many rows that come next, with the half of a panel.
    #[inline(always)]
    fn half_tiles_apart<S: Instructions, const R: usize>(
        &mut self,
        simd: S,
        half: &K::Panels<LANES, 1>,
        walk: &mut Walk,
    ) {
        simd.apart(HalfTiles::<K, R> {
            product: self,
            half,
            walk,
        });
    }
}

/// The tiles of `R` rows that come next, with one panel.
struct Tiles<'t, 'a, K: MicroKernel, const R: usize> {
    product: &'t mut Product<'a, K>,
    panels: &'t K::Panels<WIDE, 1>,
    walk: &'t mut Walk,
}

impl<K: MicroKernel, const R: usize> Work for Tiles<'_, '_, K, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        while Product::<K>::rows_of_next_tile::<S>(self.product.lines.left(self.walk)) == R {
            K::tile::<S, R, 1>(self.product, simd, self.panels, self.walk);
        }
    }
}

/// The tiles of `R` rows that come next, with the half of a panel: at least one.
struct HalfTiles<'t, 'a, K: MicroKernel, const R: usize> {
    product: &'t mut Product<'a, K>,
    half: &'t K::Panels<LANES, 1>,
    walk: &'t mut Walk,
}

impl<K: MicroKernel, const R: usize> Work for HalfTiles<'_, '_, K, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        loop {
            K::half_tile::<S, R>(self.product, simd, self.half, self.walk);
            if R < HALF_ROWS || self.product.lines.left(self.walk) < R {
                return;
            }
        }
    }
}

/// Has the sums of a tile take the products of each part of its rows; of the weights, one vector is for so
/// many values.
macro_rules! for_each_part {
    (($part:ident, $weights:ident / $values:literal) of $lines:expr, $run:expr => $add:expr) => {{
        let $crate::fast::matmul::lines::Parts { rows, taps, length } = $lines.parts;
        for row in 0..rows.0 {
            for tap in 0..taps.0 {
                let $part = $lines.part($run, row * rows.1 + tap * taps.1);
                $add;
                for weights in &mut $weights {
                    *weights = &weights[length / $values..];
                }
            }
        }
    }};
}

pub(in crate::fast) use for_each_part;
