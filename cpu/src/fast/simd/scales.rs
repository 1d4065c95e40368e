//! What turns sums into output steps, and these into 8-bit values, as vectors take it.

use super::lanes::{LANES, WIDE};

/// What turns sixteen 32-bit sums into output steps; see [`super::super::requantize`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::fast) struct Rescale {
    pub(in crate::fast) mantissa: [i32; WIDE],
    pub(in crate::fast) left: [i32; WIDE],
    pub(in crate::fast) right: [i32; WIDE],
    /// `2^right - 1`.
    pub(in crate::fast) mask: [i32; WIDE],
}

/// What turns sixteen 32-bit sums into output steps with one shift of at least one bit; see
/// [`super::super::requantize`]. Its vectors are loaded for a few sums each, and one that lay across two
/// lines of the cache would be loaded twice.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::fast) struct RescaleOnce {
    pub(super) mantissa: [i32; WIDE],
    /// Those of odd lanes, each a lane lower.
    #[cfg(target_arch = "x86_64")]
    pub(super) odd_mantissa: [i32; WIDE],
    /// What is added to products of even lanes, then of odd lanes, if they are not negative, and if they are.
    pub(super) nudges: [[[i64; LANES]; 2]; 2],
    /// The shift, less one.
    pub(super) right: [i32; WIDE],
}

impl RescaleOnce {
    /// Of lanes with this mantissa and right shift, from 1 to 31.
    pub(in crate::fast) fn new(lanes: [(i32, i32); WIDE]) -> RescaleOnce {
        let mantissa = lanes.map(|(mantissa, _)| mantissa);
        let nudge = |(_, right): (i32, i32), negative: i64| (1 << 30) + (((1 << right) / 2 - negative) << 31);
        RescaleOnce {
            mantissa,
            #[cfg(target_arch = "x86_64")]
            odd_mantissa: std::array::from_fn(|lane| mantissa[lane | 1]),
            nudges: std::array::from_fn(|odd| {
                std::array::from_fn(|negative| {
                    std::array::from_fn(|pair| nudge(lanes[2 * pair + odd], negative as i64))
                })
            }),
            right: lanes.map(|(_, right)| right - 1),
        }
    }
}

/// What scales sixteen sums, proven to give the same results as integers do once these are clamped to 8 bits.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::fast) struct FloatScale {
    /// The scale's upper bits.
    pub(in crate::fast) upper: [f32; WIDE],
    /// The others.
    pub(in crate::fast) lower: [f32; WIDE],
    /// What is added to the magnitude before it is truncated.
    pub(in crate::fast) half: [f32; WIDE],
}

/// What 8-bit values are made of output steps from real 0, in every lane: the zero point is added, the sum is
/// clamped to unsigned bytes and to a range, and then some bits are turned over, which makes signed values of
/// them or none.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::fast) struct ByteForm {
    pub(super) zero_point: [i16; 2 * WIDE],
    pub(super) least: [u8; 4 * WIDE],
    pub(super) most: [u8; 4 * WIDE],
    pub(super) flip: [u8; 4 * WIDE],
    /// Whether the range is less than all bytes.
    #[cfg(target_arch = "x86_64")]
    pub(super) is_narrow: bool,
    /// Whether the zero point is another one than 0, as it is not where it is the lowest value.
    #[cfg(target_arch = "x86_64")]
    pub(super) is_moved: bool,
}

impl ByteForm {
    /// With this zero point, range and flip, before the flip all of them.
    pub(in crate::fast) fn new(zero_point: u8, [least, most]: [u8; 2], flip: u8) -> ByteForm {
        ByteForm {
            zero_point: [zero_point.into(); 2 * WIDE],
            least: [least; 4 * WIDE],
            most: [most; 4 * WIDE],
            flip: [flip; 4 * WIDE],
            #[cfg(target_arch = "x86_64")]
            is_narrow: [least, most] != [0, u8::MAX],
            #[cfg(target_arch = "x86_64")]
            is_moved: zero_point != 0,
        }
    }

    /// Whether values are signed.
    #[inline(always)]
    pub(in crate::fast) fn is_signed(&self) -> bool {
        self.flip[0] != 0
    }
}
