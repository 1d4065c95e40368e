//! Parts of values, and the shapes of tiles.

use super::super::tiles;
use super::{Bf16x3, DEEP, Rows, SIDE};

#[test]
fn parts_are_the_values() {
    let Some(amx) = tiles() else { return };
    let values: Vec<f32> = (0..3 * 45).map(|at| (at as f32 - 60.0) / 7.0).collect();
    let mut parts: [Bf16x3; 2] = [[[[7; DEEP]; SIDE]; 3]; 2];
    amx.part_rows(Rows::new(&values, (3, 45), 45), 13, &mut parts);
    let whole = |tile: &Bf16x3, row: usize, at: usize| -> f32 {
        let part = |third: usize| f32::from_bits(u32::from(tile[third][row][at]) << 16);
        part(0) + part(1) + part(2)
    };
    for row in 0..3 {
        for at in 0..2 * DEEP {
            let expected = if at < 45 { values[row * 45 + at] } else { 0.0 };
            assert_eq!(whole(&parts[at / DEEP], 13 + row, at % DEEP), expected);
        }
    }
}

#[test]
#[should_panic(expected = "one shape at a time")]
fn tiles_have_one_shape_at_a_time() {
    let Some(amx) = tiles() else {
        panic!("no tiles, nor one shape at a time")
    };
    let _first = amx.shape(3);
    let _second = amx.shape(4);
}

#[test]
fn tiles_have_a_shape_after_another() {
    let Some(amx) = tiles() else { return };
    drop(amx.shape(16));
    drop(amx.shape(1));
}
