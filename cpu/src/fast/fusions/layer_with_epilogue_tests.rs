//! Convolutions whose epilogues compute what follows, beside the same operations alone.

use crate::fast::network::{Network, OTHERS};

const NAMES: [&str; 2] = [
    "f32 matrix product, with the next",
    "f32 matrix product by tiles, with the next",
];

/// What follows on a layer.
#[derive(Clone, Copy, Debug)]
enum Behind {
    Sum,
    ClampedSum,
    Prelu,
    SumAndPrelu,
    ClampedSumAndPrelu,
}

const ALL: [Behind; 5] = [
    Behind::Sum,
    Behind::ClampedSum,
    Behind::Prelu,
    Behind::SumAndPrelu,
    Behind::ClampedSumAndPrelu,
];

/// Adds what follows on a layer; `addend` makes what is added to it, from the right or the left. Returns the
/// last result.
fn follow(
    network: &mut Network,
    layer: u32,
    behind: Behind,
    addend: impl FnOnce(&mut Network) -> u32,
    is_right: bool,
) -> u32 {
    let activation = match behind {
        Behind::Sum | Behind::SumAndPrelu => 0,
        Behind::ClampedSum | Behind::ClampedSumAndPrelu => 3,
        Behind::Prelu => return network.prelu(layer),
    };
    let addend = addend(network);
    let (left, right) = if is_right {
        (layer, addend)
    } else {
        (addend, layer)
    };
    let sum = network.clamped_sum(left, right, activation);
    match behind {
        Behind::SumAndPrelu | Behind::ClampedSumAndPrelu => network.prelu(sum),
        Behind::Sum | Behind::ClampedSum | Behind::Prelu => sum,
    }
}

fn assert_followed(network: &Network) {
    let name = network.assert_grouped();
    assert!(NAMES.contains(&name), "{name}");
}

#[test]
fn results_are_those_of_the_operations_alone() {
    // Whole panels, half ones, few weights, tiles; neighbouring rows and rows in several images.
    for (dims, filter) in [
        ([1, 7, 9, 8], 1),
        ([1, 9, 7, 16], 1),
        ([2, 5, 6, 24], 1),
        ([1, 6, 11, 40], 3),
        ([2, 3, 7, 64], 3),
        ([1, 16, 16, 64], 1),
        ([1, 2, 3, 136], 1),
    ] {
        for behind in ALL {
            for is_right in [true, false] {
                let mut network = Network::new(dims, 1);
                let layer = network.layer(0, (filter, 1, dims[3]), 0);
                follow(&mut network, layer, behind, |_| 0, is_right);
                assert_followed(&network);
            }
        }
    }
}

#[test]
fn threads_finish_their_own_rows_and_columns() {
    // Parted by rows and by columns.
    for (dims, columns) in [
        ([1, 32, 40, 64], 64),
        ([2, 12, 40, 96], 128),
        ([1, 5, 5, 1024], 512),
    ] {
        for behind in [Behind::Prelu, Behind::ClampedSumAndPrelu] {
            let mut network = Network::new(dims, 1);
            let layer = network.layer(0, (1, 1, columns), 0);
            let [batch, height, width, _] = dims;
            let addend = |network: &mut Network| network.floats(&[batch, height, width, columns]);
            follow(&mut network, layer, behind, addend, true);
            assert_followed(&network);
        }
    }
}

#[test]
fn rows_that_are_added_may_be_shorter() {
    for (depth, before, columns) in [(16, 0, 32), (32, 0, 64), (16, 32, 72), (16, 16, 48), (64, 0, 128)] {
        for behind in [Behind::Sum, Behind::ClampedSumAndPrelu] {
            let mut network = Network::new([2, 5, 7, depth], 1);
            let layer = network.layer(0, (1, 1, columns), 0);
            let widen = |network: &mut Network| network.widened_from(0, before, columns);
            follow(&mut network, layer, behind, widen, false);
            assert_followed(&network);
        }
    }
}

/// Asserts that the layer is computed by itself.
fn assert_alone(network: &Network, last: u32) {
    let (_, names) = network.run(&[last]);
    assert!(!NAMES.contains(&names[0]) && names[1] != OTHERS, "{names:?}");
}

#[test]
fn what_epilogues_do_not_compute_is_left_to_others() {
    const DIMS: [u32; 4] = [1, 9, 11, 16];
    // A part of a vector.
    let mut network = Network::new([1, 9, 11, 20], 1);
    let layer = network.layer(0, (1, 1, 20), 0);
    let last = network.prelu(layer);
    assert_alone(&network, last);
    // An activation of the layer's own.
    let mut network = Network::new(DIMS, 1);
    let layer = network.layer(0, (1, 1, 16), 1);
    let last = network.prelu(layer);
    assert_alone(&network, last);
    // Zeros that begin and end within a vector.
    for (before, columns) in [(8, 32), (16, 40)] {
        let mut network = Network::new([1, 9, 11, 8], 1);
        let layer = network.layer(0, (1, 1, columns), 0);
        let widened = network.widened_from(0, before, columns);
        let last = network.sum(widened, layer);
        assert_alone(&network, last);
    }
    // The layer's own results, and what is computed of them.
    let mut network = Network::new(DIMS, 1);
    let layer = network.layer(0, (1, 1, 16), 0);
    let last = network.sum(layer, layer);
    assert_alone(&network, last);
    let mut network = Network::new(DIMS, 1);
    let layer = network.layer(0, (1, 1, 16), 0);
    let scaled = network.prelu(layer);
    let last = network.sum(layer, scaled);
    assert_alone(&network, last);
}

#[test]
fn results_do_not_depend_on_what_finishes_parts_of_tiles() {
    // Whether there are tiles, and so what is computed together, depends on the processor.
    for columns in [72, 88, 136] {
        for behind in ALL {
            let mut network = Network::new([1, 16, 16, columns], 1);
            let layer = network.layer(0, (1, 1, columns), 0);
            follow(&mut network, layer, behind, |_| 0, true);
            network.assert_as_alone();
        }
    }
}

#[test]
fn what_others_read_is_a_tensor() {
    let mut network = Network::new([1, 9, 11, 16], 1);
    let layer = network.layer(0, (1, 1, 16), 0);
    let sum = network.sum(layer, 0);
    let scaled = network.prelu(sum);
    let (_, names) = network.run(&[sum, scaled]);
    assert!(
        NAMES.contains(&names[0]) && names[1] == OTHERS && names[2] != OTHERS,
        "{names:?}"
    );
    let (_, names) = network.run(&[layer, scaled]);
    assert!(!NAMES.contains(&names[0]), "{names:?}");
}
