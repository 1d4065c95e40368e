//! Vectors as arrays, for whatever the build targets.

use super::instructions::{Instructions, Work};
use super::lanes::{COLUMN_ORDER, LANES, WIDE};
use super::pair::{Halves, Pair};
use super::scales::{Rescale, RescaleOnce};
use super::vectors::Simd;

/// No instructions beyond the build's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

#[inline(always)]
fn zip<T: Copy>(left: [T; LANES], right: [T; LANES], combine: impl Fn(T, T) -> T) -> [T; LANES] {
    std::array::from_fn(|lane| combine(left[lane], right[lane]))
}

/// The two halves of a lane.
#[inline(always)]
fn halves(lane: i32) -> [i32; 2] {
    let pair: [i16; 2] = bytemuck::cast(lane);
    pair.map(i32::from)
}

impl Portable {
    /// Runs a kernel as a function of its own, apart from those for what the processor is more likely to
    /// have.
    #[inline(never)]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        work.run(self)
    }
}

impl Instructions for Portable {
    type Narrow = Portable;
    type Wide = Pair<Portable>;
    const HAS_WIDE: bool = false;
    const FUSES: bool = false;

    #[inline(always)]
    fn narrow(self) -> Portable {
        self
    }

    #[inline(always)]
    fn wide(self) -> Pair<Portable> {
        Pair(self)
    }

    #[inline(never)]
    fn apart<W: Work>(self, work: W) -> W::Output {
        work.run(self)
    }
}

impl Simd<LANES> for Portable {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type Pairs = [i16; WIDE];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        *from
    }

    #[inline(always)]
    fn store(self, vector: Self::F32, to: &mut [f32; LANES]) {
        *to = vector;
    }

    #[inline(always)]
    fn add(self, left: Self::F32, right: Self::F32) -> Self::F32 {
        zip(left, right, |left, right| left + right)
    }

    #[inline(always)]
    fn mul(self, left: Self::F32, right: Self::F32) -> Self::F32 {
        zip(left, right, |left, right| left * right)
    }

    #[inline(always)]
    fn mul_add(self, left: Self::F32, right: Self::F32, sum: Self::F32) -> Self::F32 {
        // Without the instruction a fused product is a slow call.
        self.add(self.mul(left, right), sum)
    }

    #[inline(always)]
    fn at_least(self, value: Self::F32, low: Self::F32) -> Self::F32 {
        zip(value, low, |value, low| if value < low { low } else { value })
    }

    #[inline(always)]
    fn at_most(self, value: Self::F32, high: Self::F32) -> Self::F32 {
        zip(value, high, |value, high| if value > high { high } else { value })
    }

    #[inline(always)]
    fn scale_negative(self, value: Self::F32, factor: Self::F32) -> Self::F32 {
        zip(
            value,
            factor,
            |value, factor| {
                if value >= 0.0 { value } else { value * factor }
            },
        )
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load_i32(self, from: &[i32; LANES]) -> Self::I32 {
        *from
    }

    fn store_i32(self, vector: Self::I32, to: &mut [i32; LANES]) {
        *to = vector;
    }

    #[inline(always)]
    fn add_i32(self, left: Self::I32, right: Self::I32) -> Self::I32 {
        zip(left, right, i32::wrapping_add)
    }

    #[inline(always)]
    fn sub_i32(self, left: Self::I32, right: Self::I32) -> Self::I32 {
        zip(left, right, i32::wrapping_sub)
    }

    #[inline(always)]
    fn floats(self, integers: Self::I32) -> Self::F32 {
        integers.map(|integer| integer as f32)
    }

    #[inline(always)]
    fn nearest(self, floats: Self::F32) -> Self::I32 {
        // Floats from 2^23 on have no fraction, so the sum is rounded.
        const LARGE: f32 = 1.5 * (1 << 23) as f32;
        floats.map(|float| ((float + LARGE).to_bits() as i32).wrapping_sub(LARGE.to_bits() as i32))
    }

    #[inline(always)]
    fn shift_left(self, value: Self::I32, bits: i32) -> Self::I32 {
        value.map(|lane| lane << bits)
    }

    #[inline(always)]
    fn clamp_i32(self, value: Self::I32, low: Self::I32, high: Self::I32) -> Self::I32 {
        zip(zip(value, low, i32::max), high, i32::min)
    }

    #[inline(always)]
    fn load_pairs(self, from: &[i16; 2 * LANES]) -> Self::I32 {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn add_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32 {
        std::array::from_fn(|lane| {
            let (left, right) = (halves(left[lane]), halves(right[lane]));
            let products = (left[0] * right[0]).wrapping_add(left[1] * right[1]);
            sums[lane].wrapping_add(products)
        })
    }

    #[inline(always)]
    fn rescale(self, sums: Self::I32, by: &Rescale, first: usize) -> Self::I32 {
        std::array::from_fn(|lane| {
            let at = first + lane;
            let shifted = i64::from(sums[lane]) << by.left[at];
            let shifted = shifted.clamp(i32::MIN.into(), i32::MAX.into());
            let product = shifted * i64::from(by.mantissa[at]) + (1 << 30);
            let high = (product as u64 >> 31) as i32;
            let threshold = (by.mask[at] >> 1) + i32::from(high < 0);
            (high >> by.right[at]) + i32::from(high & by.mask[at] > threshold)
        })
    }

    #[inline(always)]
    fn rescale_once(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32 {
        std::array::from_fn(|lane| {
            let at = first + lane;
            let product = i64::from(sums[lane]) * i64::from(by.mantissa[at]);
            let nudge = by.nudges[at % 2][usize::from(product < 0)][at / 2];
            ((product + nudge) >> (32 + by.right[at])) as i32
        })
    }

    #[inline(always)]
    fn rescale_positive(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32 {
        std::array::from_fn(|lane| {
            let at = first + lane;
            let product = i64::from(sums[lane]) * i64::from(by.mantissa[at]);
            ((product + by.nudges[at % 2][0][at / 2]) >> (32 + by.right[at])) as i32
        })
    }
}

impl Halves for Portable {
    #[inline(always)]
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> [Self::I32; 2] {
        let pair = |lane: usize| {
            let column = COLUMN_ORDER[lane];
            bytemuck::cast([first[column], second[column]])
        };
        [
            std::array::from_fn(pair),
            std::array::from_fn(|lane| pair(lane + LANES)),
        ]
    }

    #[inline(always)]
    fn add_byte_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32 {
        std::array::from_fn(|lane| {
            let (left, right) = (left[lane].to_ne_bytes(), right[lane].to_ne_bytes());
            let products = left
                .into_iter()
                .zip(right)
                .map(|(left, right)| i32::from(left) * i32::from(right as i8));
            products.fold(sums[lane], i32::wrapping_add)
        })
    }

    #[inline(always)]
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> [Self::I32; 2] {
        let column = |lane: usize| {
            let byte = from[COLUMN_ORDER[lane]];
            if SIGNED {
                i32::from(byte as i8)
            } else {
                i32::from(byte)
            }
        };
        [
            std::array::from_fn(column),
            std::array::from_fn(|lane| column(lane + LANES)),
        ]
    }

    #[inline(always)]
    fn store_bytes<const SIGNED: bool>(self, columns: [Self::I32; 2], range: [u8; 2], to: &mut [u8; WIDE]) {
        let [least, most] = range.map(|end| {
            if SIGNED {
                i32::from(end as i8)
            } else {
                i32::from(end)
            }
        });
        for (lane, column) in COLUMN_ORDER.into_iter().enumerate() {
            to[column] = columns[lane / LANES][lane % LANES].max(least).min(most) as u8;
        }
    }
}
