//! Products of bytes beside their definition, by whichever instructions there are.

use super::{COLUMNS, PackedBytes, QuantizedOutput};
use crate::fast::matmul::packed_bytes::ZeroPoints;
use crate::fast::matmul::pairs::Extents;
use crate::fast::packing::Packing;
use crate::fast::requantize::Requantization;
use crate::fast::simd::rescales_by_floats;
use crate::fast::testing::{each_block, least_sum_of};
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// A product, and what its values are.
struct Product<'a> {
    rows: usize,
    depth: usize,
    columns: usize,
    zeros: ZeroPoints,
    /// The same for signed results.
    stored: QuantizedOutput,
    /// By row and place in it, as an unsigned byte.
    value: &'a dyn Fn(usize, usize) -> u8,
    /// By column and place in it.
    weight: &'a dyn Fn(usize, usize) -> i8,
    bias: &'a dyn Fn(usize) -> i32,
    multiplier: &'a dyn Fn(usize) -> Multiplier,
}

impl Product<'_> {
    /// The sum of a row and a column without the bias.
    fn sum(&self, row: usize, column: usize) -> i32 {
        let product = |at: usize| {
            (i32::from((self.value)(row, at)) - self.zeros.value)
                * (i32::from((self.weight)(column, at)) - self.zeros.weight)
        };
        (0..self.depth).map(product).sum()
    }

    fn packed(&self) -> PackedBytes {
        let extents = Extents {
            columns: self.columns,
            parts: 1,
            part: self.depth,
        };
        let (rows, packing) = (Some(self.rows), &mut Packing::Now);
        PackedBytes::new(
            rows,
            extents,
            self.zeros,
            packing,
            self.weight,
            self.bias,
            self.multiplier,
        )
        .unwrap()
    }

    /// Multiplies in each of the ways that there are, and compares with the definition.
    fn expect_exact(&self, packed: &PackedBytes) {
        let (rows, depth, columns, stored) = (self.rows, self.depth, self.columns, self.stored);
        let QuantizedOutput {
            zero_point,
            low,
            high,
        } = stored;
        let of_place = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let sum = self.sum(row, column) + (self.bias)(column);
            ((self.multiplier)(column).apply(sum) + zero_point).clamp(low, high) as i8
        };
        let exact: Vec<i8> = (0..rows * columns).map(of_place).collect();
        let expect_exact = |output: &[u8], how: &str| {
            for (at, (found, exact)) in output.iter().zip(&exact).enumerate() {
                let place = (at / columns, at % columns);
                assert_eq!(
                    *found as i8, *exact,
                    "{how}: {place:?} of {rows} {depth} {columns} {:?}",
                    self.zeros
                );
            }
        };
        let values: Vec<u8> = (0..rows * depth)
            .map(|at| (self.value)(at / depth, at % depth) ^ 0x80)
            .collect();
        let mut output = vec![0; rows * columns];
        each_block(&mut output, (rows, columns), |block| {
            let (first, count) = (block.first_row(), block.rows());
            multiply_copied(packed, &values[first * depth..], (count, count), block, stored);
        });
        expect_exact(&output, "blocks of columns");
        output.fill(0);
        // The last ones of blocks of rows, which lie as those of more do.
        for first in (0..rows).step_by(15) {
            let count = (rows - first).min(15);
            let output = &mut output[first * columns..][..count * columns];
            let block = Block::whole(output, columns);
            multiply_copied(packed, &values[first * depth..], (count, rows), block, stored);
        }
        expect_exact(&output, "blocks of rows");
        let unsigned: Vec<u8> = values.iter().map(|value| value ^ 0x80).collect();
        let layout = packed.layout(rows, true);
        if layout.in_place {
            output.fill(0);
            let block = Block::whole(&mut output, columns);
            packed.multiply((&unsigned, layout), &mut vec![0; rows], block, (stored, true));
            expect_exact(&output, "in place");
        }
    }
}

/// Multiplies signed rows, copied as if they were some of so many.
fn multiply_copied(
    packed: &PackedBytes,
    values: &[u8],
    (count, of): (usize, usize),
    block: Block<'_, u8>,
    stored: QuantizedOutput,
) {
    let layout = packed.layout(of, false);
    let mut copy = vec![9; count * layout.apart];
    packed.copy_rows(&values[..count * packed.depth()], 0x80, (&mut copy, layout));
    packed.multiply((&copy, layout), &mut vec![0; count], block, (stored, true));
}

const SOME: QuantizedOutput = QuantizedOutput {
    zero_point: 4,
    low: -100,
    high: 127,
};

fn some_value(row: usize, at: usize) -> u8 {
    ((row * 31 + at * 17 + 5) % 256) as u8
}

fn some_weight(column: usize, at: usize) -> i8 {
    ((column * 13 + at * 29) % 256) as u8 as i8
}

#[test]
fn products_of_bytes_are_exact() {
    for (rows, depth, columns) in [
        (9, 8, 17),
        (1, 12, 300),
        (19, 4, 24),
        (13, 64, 8),
        (3, 20, 33),
        (40, 128, 57),
        (33, 200, 40),
        (17, 192, 80),
        (16, 132, 49),
        (70, 320, 24),
        (49, 256, 161),
    ] {
        for [value, weight] in [[128, 0], [3, -7], [200, 0], [255, 127]] {
            let product = Product {
                rows,
                depth,
                columns,
                zeros: ZeroPoints { value, weight },
                stored: SOME,
                value: &some_value,
                weight: &some_weight,
                bias: &|column| column as i32 * 100 - 700,
                multiplier: &|column| Multiplier::new(0.0001 * (column + 1) as f64),
            };
            product.expect_exact(&product.packed());
        }
    }
}

/// Panels in each of which one column, everywhere once, has such a multiplier and such sums as are no floats.
const PANELS: usize = 64;

/// Which column of its panel it is.
fn is_special(column: usize) -> bool {
    column % COLUMNS == column / COLUMNS % COLUMNS
}

fn small(column: usize) -> Multiplier {
    let panel = column / COLUMNS;
    Multiplier::new(if is_special(column) {
        4.0e-6 + 1.0e-5 / PANELS as f64 * panel as f64
    } else {
        0.000_7 + 0.000_01 * column as f64
    })
}

#[test]
fn sums_that_need_not_be_floats_are_scaled_by_integers() {
    // As little as possible for the others, and in the special columns the most, or what leaves the bias to
    // be large.
    for (special, is_small) in [(127, false), (-127, false), (-127, true)] {
        let weight = |column: usize, _: usize| if is_special(column) { special } else { -128 };
        let without_bias = 320 * 255 * (i32::from(special) + 128);
        let bias = |column: usize| {
            if is_small || !is_special(column) {
                return column as i32 * 3 - 100;
            }
            // The sum is the least one of a result, and odd, so that the next float towards 0 has another
            // result.
            let by = small(column);
            let real = f64::from(by.mantissa) * f64::from(by.exponent - 31).exp2();
            let beyond = (f64::from(1 << 24) * real) as i32 + 2;
            let odd = (beyond..).map(|result| least_sum_of(by, result));
            odd.into_iter().find(|sum| sum % 2 != 0).unwrap() - without_bias
        };
        let product = Product {
            rows: 18,
            depth: 320,
            columns: PANELS * COLUMNS,
            zeros: ZeroPoints {
                value: 0,
                weight: -128,
            },
            // All results up to 255 are other ones.
            stored: QuantizedOutput {
                zero_point: -128,
                low: -128,
                high: 127,
            },
            value: &|row, _| if row % 3 == 1 { 0 } else { 255 },
            weight: &weight,
            bias: &bias,
            multiplier: &small,
        };
        let packed = product.packed();
        let by_floats = |panel: &usize| packed.requantization.of(*panel).floats().is_some();
        let count = (0..PANELS).filter(by_floats).count();
        // Of those whose sums are small some are proven.
        let is_right = if is_small && rescales_by_floats() {
            count > PANELS / 4
        } else {
            count == 0
        };
        assert!(is_right, "{count} with weights of {special}");
        product.expect_exact(&packed);
    }
}

#[test]
fn panels_that_are_stored_together_are_each_scaled_in_its_way() {
    // A power of two meets ties, for which there is no proof; three quarters take two steps.
    for (real, is_once) in [(1.0 / 256.0, true), (0.75, false)] {
        let multiplier = |column: usize| {
            Multiplier::new(if column == 20 {
                real
            } else {
                0.000_3 * (column + 1) as f64
            })
        };
        for (rows, depth) in [(1, 12), (19, 64), (40, 320)] {
            let mut product = Product {
                rows,
                depth,
                columns: 32,
                zeros: ZeroPoints {
                    value: 128,
                    weight: 0,
                },
                stored: SOME,
                value: &some_value,
                weight: &some_weight,
                bias: &|_| 0,
                multiplier: &multiplier,
            };
            // The first row's sum is a tie below 0.
            let of_column_20 = product.sum(0, 20);
            let bias = |column: usize| {
                if column == 20 {
                    -3 * 256 - 128 - of_column_20
                } else {
                    70
                }
            };
            product.bias = &bias;
            let packed = product.packed();
            let [first, second] = packed.requantization.of_some(0);
            assert_eq!(first.floats().is_some(), rescales_by_floats());
            assert_eq!(matches!(second, Requantization::Once(_)), is_once);
            assert!(second.floats().is_none());
            product.expect_exact(&packed);
        }
    }
}
