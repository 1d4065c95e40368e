//! Depthwise convolutions of bytes beside their definition, by whichever instructions there are.

use nnhal_hal::ops::padding::{Extents, Window};
use nnhal_os::cores::OwnCores;

use super::{COLUMNS, Layer, PackedDepthwise, Patches, Plan, QuantizedOutput};
use crate::fast::packing::Packing;
use crate::fast::simd::rescales_by_floats;
use crate::fast::testing::{least_sum_of, place};
use crate::interrupt::NeverInterrupted;
use crate::kernels::fixed_point::Multiplier;
use crate::scratch::Scratch;
use crate::threads::{Helpers, Team, Threads};

const ONE_TAP: Window = Window {
    filter: 1,
    stride: 1,
    dilation: 1,
    head: 0,
    tail: 0,
};

/// A window of so many taps, its stride and dilation, and padding before.
fn window(filter: u32, stride: u32, dilation: u32, head: u32) -> Window {
    Window {
        filter,
        stride,
        dilation,
        head: head as i32,
        tail: 0,
    }
}

fn patches(vertical: Window, horizontal: Window, [height, width]: [u32; 2], channels: u32) -> Patches {
    // As much padding behind as before.
    let output = |window: &Window, extent: u32| {
        let whole = extent + 2 * window.head as u32;
        (whole - (window.filter - 1) * window.dilation - 1) / window.stride + 1
    };
    let input = Extents {
        batch: 2,
        height,
        width,
        channels,
    };
    Patches {
        input,
        output: Extents {
            height: output(&vertical, height),
            width: output(&horizontal, width),
            ..input
        },
        vertical,
        horizontal,
    }
}

fn weight(tap: usize, channel: usize) -> i16 {
    ((tap * 37 + channel * 11) % 248) as i16 - 120
}

fn multiplier(channel: usize) -> Multiplier {
    Multiplier::new(0.000_7 * (1 + channel % 5) as f64)
}

fn bias(channel: usize) -> i32 {
    channel as i32 * 90 - 1500
}

fn layer(patches: &Patches, weights: [i32; 2]) -> Layer {
    Layer {
        channels: patches.input.channels as usize,
        filter: [
            patches.vertical.filter as usize,
            patches.horizontal.filter as usize,
        ],
        value_zero: 131,
        weights,
    }
}

/// What the definition gives.
fn exact(
    patches: &Patches,
    input: &[i8],
    weight: impl Fn(usize, usize) -> i16,
    stored: QuantizedOutput,
) -> Vec<i8> {
    let (extents, output) = (&patches.input, &patches.output);
    let (width, channels) = (extents.width as usize, extents.channels as usize);
    let across = patches.horizontal.filter as usize;
    let mut results = Vec::new();
    for image in input.chunks(patches.image_size(extents)) {
        for at in 0..patches.image_size(output) {
            let (channel, x) = (at % channels, at / channels % output.width as usize);
            let y = at / channels / output.width as usize;
            let mut sum = bias(channel);
            for tap in 0..patches.vertical.filter as usize * across {
                let row = place(&patches.vertical, y, tap / across, extents.height);
                let column = place(&patches.horizontal, x, tap % across, extents.width);
                if let (Some(row), Some(column)) = (row, column) {
                    let value = i32::from(image[(row * width + column) * channels + channel]);
                    sum += (value - 3) * i32::from(weight(tap, channel));
                }
            }
            let scaled = multiplier(channel).apply(sum) + stored.zero_point;
            results.push(scaled.clamp(stored.low, stored.high) as i8);
        }
    }
    results
}

#[test]
fn results_are_those_of_the_definition() {
    let windows = [
        (window(3, 1, 1, 1), window(3, 1, 1, 1), [5, 9]),
        (window(3, 2, 1, 0), window(3, 2, 1, 1), [9, 31]),
        (window(5, 1, 1, 2), window(5, 1, 1, 2), [7, 14]),
        (window(5, 2, 1, 2), window(5, 2, 1, 2), [11, 12]),
        (window(3, 1, 2, 2), window(3, 1, 3, 3), [9, 9]),
        (ONE_TAP, window(9, 3, 2, 5), [3, 40]),
        (ONE_TAP, window(3, 1, 40, 40), [2, 300]),
        (window(7, 2, 1, 3), ONE_TAP, [33, 1]),
        (window(10, 1, 1, 0), window(2, 1, 1, 0), [14, 4]),
        (window(2, 3, 1, 0), window(2, 5, 1, 0), [8, 22]),
        (window(3, 1, 1, 1), window(3, 1, 1, 1), [3, 400]),
        (window(3, 1, 1, 7), window(3, 1, 1, 9), [2, 2]),
        (window(2, 1, 1, 1), window(3, 1, 1, 1), [8, 10]),
        (window(3, 1, 1, 1), window(3, 2, 1, 1), [8, 15]),
    ];
    let stored = |low| QuantizedOutput {
        zero_point: -20,
        low,
        high: 110,
    };
    for (number, (vertical, horizontal, extents)) in windows.into_iter().enumerate() {
        for channels in [16, 24, 53] {
            let patches = patches(vertical, horizontal, extents, channels);
            let size = 2 * patches.image_size(&patches.input);
            let input: Vec<i8> = (0..size).map(|at| (at * 89 % 251) as u8 as i8).collect();
            for (weights, range) in [([-128, 127], 1), ([-256, 254], 2)] {
                let weight = |tap, channel| weight(tap, channel) * range;
                let layer = layer(&patches, weights);
                assert!(layer.is_served(multiplier));
                assert_eq!(layer.parts(), range as usize);
                let packed =
                    PackedDepthwise::new(layer, &mut Packing::Now, weight, bias, multiplier).unwrap();
                assert!(packed.serves(&patches));
                for low in [-128, -20] {
                    let exact = exact(&patches, &input, weight, stored(low));
                    let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
                    for threads in [Threads::ALONE, Threads::new(&helpers, &cores, 3)] {
                        let team = Team::new(threads, 1 << 20, &NeverInterrupted);
                        let mut output = vec![0_i8; exact.len()];
                        let to = (&mut output[..], stored(low));
                        let with = (&mut Scratch::default(), &team);
                        packed.run(&patches, &input, to, with).unwrap();
                        assert_eq!(output, exact, "case {number}, {channels} channels, {range}");
                    }
                }
            }
        }
    }
}

#[test]
fn windows_that_reach_far_are_not_served() {
    let served = |vertical, horizontal, extents| {
        let patches = patches(vertical, horizontal, extents, 16);
        let layer = layer(&patches, [-128, 127]);
        let packed = PackedDepthwise::new(layer, &mut Packing::Now, |_, _| 1, bias, multiplier).unwrap();
        packed.serves(&patches)
    };
    assert!(served(ONE_TAP, window(1, 1, 1 << 30, 0), [1, 40]));
    assert!(served(window(3, 1, 1 << 20, 1 << 20), ONE_TAP, [40, 2]));
    assert!(!served(ONE_TAP, window(3, 1, 1 << 28, 1 << 28), [1, 40]));
    assert!(!served(window(3, 1, 1 << 28, 1 << 28), ONE_TAP, [40, 1]));
    assert!(!served(
        window(10_000, 1, 1, 9_999),
        window(1, 9362, 1, 0),
        [1, 65_535]
    ));
}

#[test]
fn chunks_of_far_windows_are_long() {
    let far = patches(ONE_TAP, window(3, 1, 64, 64), [1, 2000], 64);
    let layer = layer(&far, [-128, 127]);
    let packed = PackedDepthwise::new(layer, &mut Packing::Now, |_, _| 1, bias, multiplier).unwrap();
    let plan = Plan::new(&packed, &far);
    assert!(plan.chunk >= 500, "{}", plan.chunk);
}

#[test]
fn sums_that_need_not_be_floats_are_scaled_by_integers() {
    // One channel of each group, everywhere once, has a small multiplier and large sums: by its bias and its
    // weights.
    let groups = 64;
    let is_special = |channel: usize| channel % COLUMNS == channel / COLUMNS % COLUMNS;
    let multiplier = |channel: usize| {
        Multiplier::new(if is_special(channel) {
            4.0e-6 + 1.0e-5 / f64::from(groups) * (channel / COLUMNS) as f64
        } else {
            0.000_7 + 0.000_01 * channel as f64
        })
    };
    let patches = patches(
        window(3, 1, 1, 0),
        window(3, 1, 1, 0),
        [3, 11],
        groups * COLUMNS as u32,
    );
    let stored = QuantizedOutput {
        zero_point: 0,
        low: 0,
        high: 255,
    };
    let input = vec![255_u8; 2 * patches.image_size(&patches.input)];
    for (special, range) in [(127, [-128, 127]), (254, [-256, 254]), (-1, [-128, 127])] {
        let weight = |_: usize, channel: usize| if is_special(channel) { special } else { 0 };
        let without_bias = 9 * 255 * i32::from(special);
        let bias = |channel: usize| {
            if !is_special(channel) {
                return channel as i32 * 5;
            }
            if special < 0 {
                return 100_000;
            }
            // The sum is the least one of a result, and odd, so that the next float towards 0 has another
            // result.
            let results = (f64::from(1 << 24) * 4.0e-6) as i32..;
            let sums = results.map(|result| least_sum_of(multiplier(channel), result));
            let odd = sums.into_iter().find(|sum| *sum > 1 << 24 && sum % 2 != 0);
            odd.unwrap() - without_bias
        };
        let layer = Layer {
            value_zero: 0,
            ..layer(&patches, range)
        };
        let packed = PackedDepthwise::new(layer, &mut Packing::Now, weight, bias, multiplier).unwrap();
        let by_floats = |group: &usize| packed.by.of(*group).floats().is_some();
        let count = (0..groups as usize).filter(by_floats).count();
        // Of those whose sums are small some are proven.
        let is_right = if special < 0 && rescales_by_floats() {
            count > groups as usize / 4
        } else {
            count == 0
        };
        assert!(is_right, "{count} with weights of {special}");
        let mut output = vec![0_u8; 2 * patches.image_size(&patches.output)];
        let with = (
            &mut Scratch::default(),
            &Team::new(Threads::ALONE, 0, &NeverInterrupted),
        );
        packed
            .run(&patches, &input, (&mut output[..], stored), with)
            .unwrap();
        for (at, found) in output.iter().enumerate() {
            let channel = at % layer.channels;
            let sum = bias(channel) + 9 * 255 * i32::from(weight(0, channel));
            let exact = multiplier(channel).apply(sum).clamp(0, 255);
            assert_eq!(
                i32::from(*found),
                exact,
                "channel {channel} with weights of {special}"
            );
        }
    }
}
