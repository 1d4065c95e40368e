//! Filters of depthwise convolutions for products of bytes, as [`super::bytes`] takes them.
//!
//! A weight whose value less the zero point does not fit eight bits is the sum of two that do.

use nnhal_os::buffer::AlignedSlice;

use super::driver::{first_channel, pack};
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::requantize::{OfPanels, Requantization, is_one_step};
use crate::fast::rescale::range_of_sums;
use crate::kernels::fixed_point::Multiplier;

/// Taps that are multiplied at once.
pub(super) const FOUR: usize = 4;

/// What four taps see of a channel.
pub(super) type Four = [u8; FOUR];

/// Four weights of each of a group's columns.
pub(super) type Weights = [Four; COLUMNS];

/// The layers that are computed here.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Layer {
    pub(in crate::fast) channels: usize,
    /// Rows and columns of its filters.
    pub(in crate::fast) filter: [usize; 2],
    /// The zero point of values as unsigned bytes.
    pub(in crate::fast) value_zero: i32,
    /// What weights less their zero point are at least and at most, by their type.
    pub(in crate::fast) weights: [i32; 2],
}

impl Layer {
    /// Whether the layer is computed here, whatever its weights are.
    pub(in crate::fast) fn is_served(&self, multiplier: impl Fn(usize) -> Multiplier) -> bool {
        let [least, most] = self.weights;
        let fits_twice = least >= 2 * i32::from(i8::MIN) && most <= 2 * i32::from(i8::MAX);
        self.channels >= COLUMNS
            && fits_twice
            && (0..self.groups()).all(|group| is_one_step(&self.multipliers(group, &multiplier)))
    }

    fn groups(&self) -> usize {
        self.channels.div_ceil(COLUMNS)
    }

    /// Those of a group's channels.
    fn multipliers(&self, group: usize, multiplier: impl Fn(usize) -> Multiplier) -> [Multiplier; COLUMNS] {
        let first = first_channel(group, COLUMNS, self.channels);
        std::array::from_fn(|lane| multiplier(first + lane))
    }

    /// How many weights of eight bits each weight is made of.
    pub(super) fn parts(&self) -> usize {
        let [least, most] = self.weights;
        if least >= i32::from(i8::MIN) && most <= i32::from(i8::MAX) {
            1
        } else {
            2
        }
    }

    /// How many taps in a row are multiplied at once, in all fours of them, and how many such rows there are.
    pub(super) fn fours(&self) -> (usize, usize) {
        match self.filter {
            [1, across] => (across.div_ceil(FOUR), 1),
            [rows, across] => (rows.div_ceil(FOUR), across),
        }
    }
}

/// Filters, biases and multipliers, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    pub(super) layer: Layer,
    /// By group, part, four and column.
    pub(super) weights: AlignedSlice,
    pub(super) groups: Vec<Group>,
    /// By group, columns in natural order.
    pub(super) by: OfPanels<Requantization>,
}

/// What sixteen channels need beside their weights and multipliers.
#[derive(Debug)]
pub(super) struct Group {
    /// With what is known of the zero points.
    pub(super) bias: [i32; COLUMNS],
    /// How many parts have weights other than 0.
    pub(super) parts: usize,
}

impl PackedDepthwise {
    /// Packs the filters of a layer that is computed here; `weight(tap, channel)` gives their values less the
    /// zero point.
    pub(in crate::fast) fn new(
        layer: Layer,
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedDepthwise, PackingError> {
        let (fours, taps) = layer.fours();
        let [rows, across] = layer.filter;
        let parts = layer.parts();
        let of_part = fours * taps;
        let value = |group: usize, part: usize, four: usize, lane: usize, which: usize| -> u8 {
            let (at, tap) = (four / taps * FOUR + which, four % taps);
            let tap = if rows == 1 { at } else { at * across + tap };
            let is_inside = if rows == 1 { at < across } else { at < rows };
            if !is_inside {
                return 0;
            }
            let whole = i32::from(weight(tap, first_channel(group, COLUMNS, layer.channels) + lane));
            let first = whole.clamp(i32::from(i8::MIN), i32::from(i8::MAX));
            (if part == 0 { first } else { whole - first }) as i8 as u8
        };
        let weights = pack(
            packing,
            (layer.groups(), parts * of_part),
            |group, at| -> Weights {
                let (part, four) = (at / of_part, at % of_part);
                std::array::from_fn(|lane| std::array::from_fn(|which| value(group, part, four, lane, which)))
            },
        )?;
        // Of what is packed: the weights themselves may be there no more.
        let packed: &[Weights] = bytemuck::cast_slice(weights.bytes());
        let mut groups = Vec::with_capacity(layer.groups());
        for (group, packed) in packed.chunks_exact((parts * of_part).max(1)).enumerate() {
            let first = first_channel(group, COLUMNS, layer.channels);
            let needs = |part: &[Weights]| part.iter().any(|weights| *weights != [[0; FOUR]; COLUMNS]);
            let is_second_needed = packed.chunks_exact(of_part).nth(1).is_some_and(needs);
            groups.push(Group {
                bias: std::array::from_fn(|lane| {
                    let of_lane = packed.iter().flat_map(|weights| weights[lane]);
                    let sum = of_lane
                        .map(|weight| i32::from(weight as i8))
                        .fold(0, i32::wrapping_add);
                    bias(first + lane).wrapping_sub(layer.value_zero.wrapping_mul(sum))
                }),
                parts: if is_second_needed { 2 } else { 1 },
            });
        }
        let scale = |group: Option<usize>, multipliers| {
            let range = |lane: usize| {
                let group = group?;
                let packed = &packed[group * parts * of_part..][..parts * of_part];
                let weights = packed.iter().flat_map(|weights| weights[lane]);
                range_of_sums(
                    groups[group].bias[lane],
                    weights.map(|weight| i32::from(weight as i8)),
                )
            };
            Requantization::of_lanes(multipliers, 0, range)
        };
        let multipliers = |group| layer.multipliers(group, &multiplier);
        let by = OfPanels::new(layer.groups(), multipliers, scale);
        Ok(PackedDepthwise {
            by,
            layer,
            weights,
            groups,
        })
    }

    /// The packed filters.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }
}
