//! Products by tiles of bfloat16 values beside their definition.

use super::{Lines, PackedBf16x3, Packing, split_parts, whole};
use crate::fast::epilogue::Clamp;
use crate::fast::matmul::lines::Parts;
use crate::fast::simd::tiles;
use crate::interrupt::NeverInterrupted;
use crate::threads::{Block, Grid, Team, Threads};

const ALL: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

fn some(at: usize) -> f32 {
    ((at * 7919 + 13) % 1009) as f32 / 77.0 - 6.3
}

/// Multiplies all rows as one block; `None` where there are no tiles.
fn multiply(
    lines: Lines<'_, f32>,
    (columns, depth): (usize, usize),
    weight: &dyn Fn(usize, usize) -> f32,
    range: (f32, f32),
) -> Option<Vec<f32>> {
    let bias = |column: usize| column as f32 / 3.0;
    let packed = PackedBf16x3::new(tiles()?, (columns, depth), &mut Packing::Now, weight, bias);
    let packed = packed.unwrap();
    let mut output = vec![f32::NAN; lines.count * columns];
    let mut scratch = vec![f32::NAN; packed.scratch(lines.count)];
    packed.multiply(
        lines,
        &mut scratch,
        Block::whole(&mut output, columns),
        Clamp(range),
    );
    Some(output)
}

/// Whether a sum is off by no more than two roundings of the sum of its terms' magnitudes.
fn is_near(result: f32, terms: impl Iterator<Item = f64> + Clone) -> bool {
    let exact: f64 = terms.clone().sum();
    let magnitude: f64 = terms.map(f64::abs).sum();
    (f64::from(result) - exact).abs() <= magnitude * f64::from(f32::EPSILON) * 2.0
}

#[test]
fn sums_are_as_exact_as_those_of_floats() {
    for (rows, depth, columns) in [
        (8, 16, 8),
        (17, 33, 19),
        (32, 64, 32),
        (49, 40, 40),
        (31, 96, 17),
        (1, 24, 16),
        (130, 70, 65),
        (16, 31, 9),
    ] {
        let left: Vec<f32> = (0..rows * depth).map(some).collect();
        let weight = |column: usize, at: usize| some(column * 31 + at * 17 + 5);
        let lines = Lines::of_rows(&left, rows, (depth, depth));
        let Some(output) = multiply(lines, (columns, depth), &weight, ALL) else {
            return;
        };
        for (at, result) in output.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let product = |at: usize| f64::from(left[row * depth + at]) * f64::from(weight(column, at));
            let terms = (0..depth).map(product);
            assert!(
                is_near(*result, terms.chain([f64::from(column as f32 / 3.0)])),
                "{rows} {depth} {columns}: {row} {column} is {result}"
            );
        }
    }
}

#[test]
fn large_matrices_are_multiplied_with_many_rows_at_a_time() {
    let (rows, depth, columns) = (150, 520, 710);
    let left: Vec<f32> = (0..rows * depth).map(some).collect();
    let weight = |column: usize, at: usize| some(column * 3 + at * 7);
    let lines = Lines::of_rows(&left, rows, (depth, depth));
    let Some(output) = multiply(lines, (columns, depth), &weight, ALL) else {
        return;
    };
    for (at, result) in output.iter().enumerate().step_by(37) {
        let (row, column) = (at / columns, at % columns);
        let product = |at: usize| f64::from(left[row * depth + at]) * f64::from(weight(column, at));
        let terms = (0..depth).map(product);
        assert!(is_near(*result, terms.chain([f64::from(column as f32 / 3.0)])));
    }
}

#[test]
fn blocks_of_rows_and_columns_are_those_of_the_whole() {
    let Some(amx) = tiles() else { return };
    let (rows, depth, columns) = (45, 50, 155);
    let mut left: Vec<f32> = (0..rows * depth).map(some).collect();
    left[30 * depth + 4] = f32::NAN;
    left[44 * depth] = f32::INFINITY;
    let weight = |column: usize, at: usize| {
        if (column, at) == (100, 3) {
            f32::NEG_INFINITY
        } else {
            some(column * 5 + at * 3)
        }
    };
    let bias = |column: usize| if column == 7 { f32::INFINITY } else { column as f32 };
    let packed = PackedBf16x3::new(amx, (columns, depth), &mut Packing::Now, weight, bias).unwrap();
    let by = |rows_per_block, columns_per_block| {
        let grid = Grid {
            rows,
            columns,
            rows_per_block,
            columns_per_block,
        };
        let mut output = vec![0.0_f32; rows * columns];
        let none: &mut [u8] = &mut [];
        let team = Team::new(Threads::ALONE, 0, &NeverInterrupted);
        team.for_each_block(1, &grid, (&mut output, none), |block, _| {
            let count = block.rows();
            let mut scratch = vec![f32::NAN; packed.scratch(count)];
            let lines = Lines::of_rows(&left[block.first_row() * depth..], count, (depth, depth));
            packed.multiply(lines, &mut scratch, block, Clamp((-3.0, 40.0)));
        });
        output.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    let whole = by(rows, columns);
    for (some_rows, some_columns) in [(45, 48), (45, 16), (31, 160), (7, 80), (1, 32), (16, 48)] {
        assert!(by(some_rows, some_columns) == whole, "{some_rows} {some_columns}");
    }
    let value = |row: usize, column: usize| f32::from_bits(whole[row * columns + column]);
    assert!(value(30, 0).is_nan() && value(30, 154).is_nan());
    // Infinities, of the sum, the bias and a weight, are clamped.
    assert!([-3.0, 40.0].contains(&value(44, 9)));
    assert_eq!(value(3, 7), 40.0);
    assert!([-3.0, 40.0].contains(&value(0, 100)));
}

#[test]
fn rows_in_parts_go_on_in_the_next_line() {
    // Windows of 2 x 3 pixels of 5 channels in an image of 7 x 9.
    let (channels, width, height) = (5, 9, 7);
    let image: Vec<f32> = (0..channels * width * height).map(some).collect();
    let (across, down) = (width - 2, height - 1);
    let line = width * channels;
    let lines = Lines {
        values: &image,
        count: across * down - 3,
        first: 3,
        width: across,
        step: channels,
        line,
        parts: Parts {
            rows: (2, line),
            taps: (1, 0),
            length: 3 * channels,
        },
    };
    let depth = 6 * channels;
    let weight = |column: usize, at: usize| some(column * 11 + at);
    let Some(output) = multiply(lines, (20, depth), &weight, ALL) else {
        return;
    };
    for (at, result) in output.iter().enumerate() {
        let (place, column) = (at / 20 + 3, at % 20);
        let start = place / across * line + place % across * channels;
        let value = |at: usize| image[start + at / (3 * channels) * line + at % (3 * channels)];
        let terms = (0..depth).map(|at| f64::from(value(at)) * f64::from(weight(column, at)));
        assert!(is_near(*result, terms.chain([f64::from(column as f32 / 3.0)])));
    }
}

#[test]
fn what_is_not_finite_is_taken_value_by_value_from_windows_too() {
    // Windows of 3 x 3 pixels of 3 channels in an image of 6 x 11, of which a sum overflows in parts, and
    // no value by value.
    let (channels, width, height, columns) = (3, 11, 6, 20);
    let mut image: Vec<f32> = (0..channels * width * height).map(some).collect();
    image[2 * width * channels + 16] = f32::MAX;
    let line = width * channels;
    let (across, down, depth) = (width - 2, height - 2, 9 * channels);
    let lines = Lines {
        values: &image,
        count: across * down - 2,
        first: 2,
        width: across,
        step: channels,
        line,
        parts: Parts {
            rows: (3, line),
            taps: (1, 0),
            length: 3 * channels,
        },
    };
    let weight = |column: usize, at: usize| some(column * 11 + at) / 1e3;
    let Some(output) = multiply(lines, (columns, depth), &weight, ALL) else {
        return;
    };
    let mut huge = 0;
    for (at, result) in output.iter().enumerate() {
        let (place, column) = (at / columns + 2, at % columns);
        let start = place / across * line + place % across * channels;
        let value = |at: usize| image[start + at / (3 * channels) * line + at % (3 * channels)];
        let terms = (0..depth).map(|at| f64::from(value(at)) * f64::from(weight(column, at)));
        let terms = terms.chain([f64::from(column as f32 / 3.0)]);
        huge += usize::from(result.abs() > 1e30);
        assert!(
            result.is_finite() && is_near(*result, terms),
            "{place} {column}: {result}"
        );
    }
    assert!(huge > columns);
}

#[test]
fn what_is_not_finite_is_as_with_floats() {
    let (rows, depth, columns) = (20, 40, 24);
    let huge = f32::MAX;
    for (at_value, at_weight) in [
        (f32::INFINITY, 1.5),
        (f32::NEG_INFINITY, 0.0),
        (f32::NAN, 1.0),
        (huge, 1.0),
        (huge, -0.5),
        (1e30, 1e30),
        (-1e30, 1e30),
        (1.0, f32::INFINITY),
        (2.0, huge),
        (2.0, f32::NAN),
        (f32::INFINITY, f32::NEG_INFINITY),
    ] {
        let mut left: Vec<f32> = (0..rows * depth).map(some).collect();
        left[3 * depth + 7] = at_value;
        let weight = |column: usize, at: usize| {
            if (column, at) == (5, 7) {
                at_weight
            } else {
                some(column + at * 9)
            }
        };
        let lines = Lines::of_rows(&left, rows, (depth, depth));
        let Some(output) = multiply(lines, (columns, depth), &weight, ALL) else {
            return;
        };
        for (at, result) in output.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let terms = (0..depth).map(|at| left[row * depth + at] * weight(column, at));
            let expected = terms.sum::<f32>() + column as f32 / 3.0;
            let is_right = match expected {
                _ if expected.is_nan() => result.is_nan(),
                _ if expected.is_infinite() => *result == expected,
                _ => (result - expected).abs() <= expected.abs() * 1e-6 + 1e-2,
            };
            assert!(
                is_right,
                "{at_value} with {at_weight}: {row} {column} is {result}, not {expected}"
            );
        }
    }
}

/// If this fails, weights are packed otherwise than before: count [`crate::fast::LAYOUT`] up and write
/// the new sum here.
#[test]
fn bf16x3_are_laid_out_as_their_version_says() {
    let Some(amx) = tiles() else { return };
    let weight = |column: usize, at: usize| some(column * 5 + at * 3) / 3.0;
    let packed = PackedBf16x3::new(amx, (50, 70), &mut Packing::Now, weight, |_| 0.0).unwrap();
    // FNV-1a.
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = packed.packed().bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold);
    assert_eq!((crate::fast::LAYOUT, sum), (15, 3_130_225_182_345_980_154));
}

#[test]
fn split_parts_are_the_value() {
    for value in [0.0, -1.0, 1.0 / 3.0, f32::MAX, f32::MIN, 1e-30, f32::INFINITY] {
        let parts = split_parts(value).map(whole);
        assert_eq!(parts[0] + parts[1] + parts[2], value);
    }
    assert!(whole(split_parts(f32::NAN)[0]).is_nan());
}
