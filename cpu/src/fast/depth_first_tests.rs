//! Convolutions that are computed together, beside the same ones alone.

use nnhal_hal::ops::padding::Window;

use super::{advance, seen};
use crate::fast::network::{Network, OTHERS};
use crate::fast::strips::most_seen;

const FIRST: &str = "f32 row by row, with the next";

#[test]
fn layers_are_computed_together_as_alone() {
    for padding in [1, 2] {
        for (filter, stride) in [(3, 1), (3, 2), (5, 2)] {
            let mut network = Network::new([1, 131, 133, 3], padding);
            let first = network.convolution(0, 3, 2, 36);
            let second = network.depthwise(first, 3, 1);
            let third = network.pixels(second, 40);
            network.depthwise(third, filter, stride);
            assert_eq!(network.assert_grouped(), FIRST);
        }
    }
}

#[test]
fn first_layer_may_be_depthwise_and_images_many() {
    let mut network = Network::new([2, 41, 97, 36], 1);
    let first = network.depthwise(0, 5, 1);
    network.pixels(first, 8);
    assert_eq!(network.assert_grouped(), FIRST);
}

#[test]
fn layers_with_many_channels_are_computed_together_as_alone() {
    for padding in [1, 2] {
        let mut network = Network::new([1, 131, 67, 50], padding);
        let first = network.depthwise(0, 3, 1);
        let second = network.pixels(first, 83);
        let third = network.depthwise(second, 3, 2);
        network.pixels(third, 64);
        assert_eq!(network.assert_grouped(), FIRST);
    }
}

#[test]
fn element_wise_operations_follow_row_by_row() {
    let mut network = Network::new([2, 68, 64, 32], 1);
    let first = network.depthwise(0, 5, 1);
    let second = network.pixels(first, 32);
    let sum = network.sum(second, 0);
    network.prelu(sum);
    assert_eq!(network.assert_grouped(), FIRST);
    // In between, and with an operand that has fewer channels.
    let mut network = Network::new([1, 68, 64, 24], 1);
    let first = network.pixels(0, 36);
    let clamp = network.prelu(first);
    let second = network.depthwise(clamp, 3, 1);
    let widened = network.widened(0, 36);
    network.sum(widened, second);
    assert_eq!(network.assert_grouped(), FIRST);
}

#[test]
fn epilogues_compute_what_follows_row_by_row() {
    for activation in [0, 1] {
        let mut network = Network::new([2, 68, 64, 32], 1);
        let first = network.depthwise(0, 5, 1);
        let second = network.layer(first, (1, 1, 32), 0);
        let sum = network.clamped_sum(second, 0, activation);
        let third = network.prelu(sum);
        let fourth = network.depthwise(third, 3, 1);
        let fifth = network.layer(fourth, (1, 1, 32), 0);
        network.prelu(fifth);
        assert_eq!(network.assert_grouped(), FIRST);
    }
    let mut network = Network::new([1, 68, 64, 16], 1);
    let first = network.layer(0, (3, 1, 32), 0);
    let widened = network.widened(0, 32);
    network.sum(widened, first);
    assert_eq!(network.assert_grouped(), FIRST);
    // A small result at the end of a chain.
    let mut network = Network::new([1, 68, 64, 24], 1);
    let first = network.pixels(0, 64);
    let second = network.depthwise(first, 3, 1);
    let third = network.layer(second, (1, 1, 24), 0);
    network.sum(0, third);
    assert_eq!(network.assert_grouped(), FIRST);
}

#[test]
fn what_others_read_is_a_tensor() {
    let mut network = Network::new([1, 68, 64, 32], 1);
    let first = network.depthwise(0, 3, 1);
    let second = network.pixels(first, 32);
    let third = network.depthwise(second, 3, 1);
    let last = network.sum(third, first);
    let (_, names) = network.run(&[last]);
    // The first is read at the end.
    assert_eq!(names[1..], [FIRST, OTHERS, OTHERS]);
    assert!(names[0] != FIRST);
}

#[test]
fn small_images_and_large_matrices_are_left_to_the_layers() {
    for (dims, channels) in [([1, 16, 16, 32], 32), ([1, 16, 32, 512], 512)] {
        let mut network = Network::new(dims, 1);
        let first = network.depthwise(0, 3, 1);
        let last = network.pixels(first, channels);
        let (_, names) = network.run(&[last]);
        assert!(!names.contains(&OTHERS), "{names:?}");
    }
}

#[test]
fn several_threads_compute_smaller_images_row_by_row() {
    for padding in [1, 2] {
        let mut network = Network::new([2, 49, 51, 16], padding);
        let first = network.layer(0, (3, 1, 20), 1);
        let second = network.depthwise(first, 3, 1);
        let third = network.layer(second, (1, 1, 24), 0);
        let fourth = network.prelu(third);
        let last = network.depthwise(fourth, 3, 2);
        let alone = network.assert_as_alone();
        assert!(!alone.contains(&FIRST), "{alone:?}");
        assert_eq!(network.names_by(1, &[last]), alone);
        let names = network.names_by(2, &[last]);
        assert_eq!(names, [FIRST, OTHERS, OTHERS, OTHERS, OTHERS]);
        // They would compute too much twice.
        assert_eq!(network.names_by(7, &[last]), alone);
        // What others read is a tensor for several, too.
        let names = network.names_by(2, &[second, last]);
        assert_eq!(names, [FIRST, OTHERS, FIRST, OTHERS, OTHERS]);
    }
}

#[test]
fn a_chain_ends_where_threads_would_compute_more_twice() {
    let mut network = Network::new([1, 26, 64, 32], 1);
    let last = (0..7).fold(0, |input, _| network.depthwise(input, 3, 1));
    // Of five layers each of two threads computes 13 rows of the last and one more of each before; of six
    // that were 15 in 78.
    let names = network.names_by(2, &[last]);
    assert_eq!(names, [FIRST, OTHERS, OTHERS, OTHERS, OTHERS, FIRST, OTHERS]);
    let alone = network.names_by(1, &[last]);
    assert!(!alone.contains(&OTHERS), "{alone:?}");
    // It is too long for more of them.
    assert_eq!(network.names_by(4, &[last]), alone);
}

#[test]
fn single_pixels_have_no_borders() {
    let mut network = Network::new([1, 8, 256, 24], 1);
    let first = network.pixels(0, 48);
    let last = network.pixels(first, 24);
    for threads in [2, 4] {
        assert_eq!(network.names_by(threads, &[last]), [FIRST, OTHERS]);
    }
    // One of five threads would have nothing to do.
    assert!(!network.names_by(5, &[last]).contains(&OTHERS));
}

#[test]
fn several_threads_are_not_worth_it_for_the_smallest_images() {
    for dims in [[1, 24, 24, 24], [1, 7, 256, 24]] {
        let mut network = Network::new(dims, 1);
        let first = network.pixels(0, 24);
        let last = network.pixels(first, 24);
        assert!(!network.names_by(3, &[last]).contains(&OTHERS), "{dims:?}");
    }
}

#[test]
fn several_threads_compute_all_of_what_is_longer_than_they_look_ahead() {
    // Seven layers with nine operations each: the look ahead ends within those of the last one.
    let mut network = Network::new([1, 32, 32, 24], 1);
    let last = (0..7).fold(0, |input, _| {
        let layer = network.pixels(input, 24);
        (0..9).fold(layer, |value, _| network.logistic(value))
    });
    network.names_by(2, &[last]);
}

#[test]
fn clamped_layers_are_part_of_chains_by_several() {
    let mut network = Network::new([1, 32, 32, 24], 1);
    let first = network.layer(0, (3, 1, 32), 0);
    let clamp = network.clamp(first);
    let last = network.depthwise(clamp, 3, 1);
    let alone = network.names_by(1, &[last]);
    assert_eq!(alone[1], "as activation of the one before");
    assert_eq!(network.names_by(2, &[last]), [FIRST, OTHERS, OTHERS]);
}

#[test]
fn networks_along_one_axis_are_left_to_the_layers() {
    let mut network = Network::new([1, 8, 4096, 8], 1);
    let first = network.pixels(0, 16);
    let second = network.prelu(first);
    let last = network.depthwise(second, 3, 1);
    let (_, names) = network.run(&[last]);
    assert!(!names.contains(&OTHERS), "{names:?}");
}

#[test]
fn rows_that_windows_see_are_those_of_their_taps() {
    for height in [1, 2, 7, 12] {
        for (filter, dilation) in [(1, 1), (3, 1), (2, 3), (5, 1)] {
            for (stride, head) in [(1, 0), (2, 1), (3, 2), (1, 9)] {
                let window = Window::explicit(filter, stride, dilation, head, 9).unwrap();
                for start in 0..9 {
                    for end in start + 1..12 {
                        let taps = (start..end).flat_map(|row| {
                            let first = row as i64 * i64::from(stride) - i64::from(head);
                            (0..i64::from(filter)).map(move |tap| first + tap * i64::from(dilation))
                        });
                        let inside = taps.filter(|row| (0..height).contains(row));
                        let rows = seen(&window, height as usize, &(start..end));
                        for row in inside {
                            assert!(rows.contains(&(row as usize)), "{window:?} {start}..{end}");
                        }
                        assert!(rows.len() <= most_seen(&window, height as usize, end - start));
                    }
                }
            }
        }
    }
}

#[test]
fn strips_keep_what_is_seen_again() {
    let mut strip = [0; 8].map(|_: i32| 0.0);
    let mut held = 0..0;
    assert_eq!(advance((&mut strip, 2), &mut held, 1..4), 1..4);
    assert_eq!(held, 1..4);
    strip = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 0.0, 0.0];
    assert_eq!(advance((&mut strip, 2), &mut held, 3..6), 4..6);
    assert_eq!((&strip[..2], held.clone()), (&[3.0, 3.5][..], 3..6));
    // Nothing new, and a step over rows that nobody sees.
    assert_eq!(advance((&mut strip, 2), &mut held, 5..6), 6..6);
    assert_eq!(advance((&mut strip, 2), &mut held, 8..9), 8..9);
    assert_eq!(held, 8..9);
}
