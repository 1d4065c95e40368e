//! Every instruction set computes the same.

use super::dispatch::{InstructionSet, available, from_limit, run_by};
use super::portable::Portable;
use super::{ByteForm, Columns, Instructions, LANES, Rescale, RescaleOnce, Simd, WIDE, Work};

/// Every function of an instruction set on some values, and what comes out.
struct Everything;

#[derive(Debug, Default, PartialEq)]
struct Found {
    floats: Vec<f32>,
    integers: Vec<i32>,
    bytes: Vec<u8>,
}

const SHIFTS: [i32; WIDE] = [0, 1, 5, 9, 0, 0, 13, 31, 2, 3, 4, 7, 30, 6, 8, 12];

impl Found {
    #[inline(always)]
    fn floats<V: Simd<N>, const N: usize>(&mut self, simd: V) {
        let mut keep = |vector: V::F32| {
            let mut lanes = [0.0; N];
            simd.store(vector, &mut lanes);
            self.floats.extend(lanes);
        };
        let left = simd.load(&std::array::from_fn(|lane| lane as f32 * 3.0 - 7.5));
        let right = simd.load(&std::array::from_fn(|lane| (lane % 3) as f32 + 0.5));
        keep(simd.add(left, right));
        keep(simd.mul(left, right));
        keep(simd.mul_add(left, right, simd.splat(2.0)));
        keep(simd.at_least(left, right));
        keep(simd.at_most(left, right));
        // One, the least normal number and the least of all, the largest, and both zeros, of both signs.
        let halves = [0x3c00, 0x8400, 0x0001, 0xfbff, 0x7bff, 0x8001, 0x0000, 0x8000];
        keep(simd.load_half(&std::array::from_fn(|lane| halves[lane % halves.len()])));
    }

    #[inline(always)]
    fn integers<V: Simd<N>, const N: usize>(&mut self, simd: V) {
        let mut keep = |vector: V::I32| {
            let mut lanes = [0; N];
            simd.store_i32(vector, &mut lanes);
            self.integers.extend(lanes);
        };
        let pairs = |by: i16| -> V::I32 {
            let values: Vec<i16> = (0..2 * N as i16).map(|at| 300 - at * by).collect();
            simd.load_pairs(&bytemuck::pod_read_unaligned(bytemuck::cast_slice(&values)))
        };
        keep(simd.add_products(simd.splat_i32(5), pairs(31), pairs(-7)));
        let least = simd.load_i32(&[i32::from_ne_bytes([0, 0x80, 0, 0x80]); N]);
        keep(simd.add_products(simd.splat_i32(-5), least, least));
        let sums = simd.load_i32(&std::array::from_fn(|lane| (lane as i32 - 3) * 1_234_567));
        let by = Rescale {
            mantissa: [0x5234_5678; WIDE],
            left: std::array::from_fn(|lane| [0, 0, 0, 0, 1, 9, 0, 31][lane % 8]),
            right: SHIFTS,
            mask: SHIFTS.map(|shift| ((1_u32 << shift) - 1) as i32),
        };
        let once = RescaleOnce::new(std::array::from_fn(|lane| {
            (0x5234_5678 + lane as i32, [1, 2, 7, 31][lane % 4])
        }));
        let scaled = simd.rescale(sums, &by, 0);
        keep(scaled);
        keep(simd.rescale(sums, &by, WIDE - N));
        keep(simd.rescale_once(sums, &once, 0));
        keep(simd.rescale_once(sums, &once, WIDE - N));
        keep(simd.rescale_positive(sums, &once, 0));
        keep(simd.rescale_positive(sums, &once, WIDE - N));
        keep(simd.nearest(simd.load(&std::array::from_fn(|lane| lane as f32 * 0.75 - 4.5))));
        let clamp = simd.clamp_i32(scaled, simd.splat_i32(-100), simd.splat_i32(100));
        keep(simd.add_i32(clamp, clamp));
        keep(simd.sub_i32(clamp, scaled));
        keep(simd.shift_left(clamp, 19));
    }

    #[inline(always)]
    fn columns<V: Columns>(&mut self, narrow: V::Narrow, simd: V) {
        let mut keep = |vector: <V as Simd<WIDE>>::I32| {
            let mut lanes = [0; WIDE];
            simd.store_i32(vector, &mut lanes);
            self.integers.extend(lanes);
        };
        let rows: [[i16; WIDE]; 2] = [
            std::array::from_fn(|at| at as i16 * 7 - 50),
            std::array::from_fn(|at| 300 - at as i16 * 31),
        ];
        keep(simd.interleave(&rows[0], &rows[1]));
        let raw = std::array::from_fn(|at| (at * 37) as u8);
        keep(simd.load_bytes::<true>(&raw));
        keep(simd.load_bytes::<false>(&raw));
        let fours = |by: usize| {
            let bytes: [[u8; 4]; WIDE] = std::array::from_fn(|lane| {
                std::array::from_fn(|at| (lane * 4 + at).wrapping_mul(by).wrapping_add(99) as u8)
            });
            simd.load_i32(&bytemuck::cast(bytes))
        };
        let least = simd.splat_i32(i32::from_ne_bytes([128; 4]));
        keep(simd.add_byte_products(simd.splat_i32(i32::MAX), simd.splat_i32(-1), least));
        keep(simd.add_byte_products(simd.splat_i32(7), fours(3), fours(5)));
        let (low, high) = (narrow.splat_i32(3), narrow.splat_i32(-100_000));
        keep(simd.join(low, high));
        let mut bytes = [0; WIDE];
        let some = simd.load_i32(&std::array::from_fn(|lane| lane as i32 * 31 - 200));
        let rows: [[u8; 4 * WIDE]; 4] =
            std::array::from_fn(|row| std::array::from_fn(|at| (at * 3 + row * 71) as u8));
        let mut fours = [[0; 4]; 4 * WIDE];
        simd.by_fours(rows.each_ref(), 0x80, &mut fours);
        self.bytes.extend(fours.as_flattened());
        let table = std::array::from_fn(|byte| (byte * 7 + byte / 32) as u8);
        let places = std::array::from_fn(|at| (at * 67 + at / 8) as u8);
        let mut values = [0; 4 * WIDE];
        simd.look_up(&table, &places, &mut values);
        self.bytes.extend(values);
        let four = [
            some,
            simd.join(low, high),
            simd.splat_i32(70_000),
            simd.splat_i32(9),
        ];
        for form in [
            ByteForm::new(5, [3, 156], 0x80),
            ByteForm::new(0, [0, 255], 0),
            ByteForm::new(200, [0, 254], 0x80),
        ] {
            let in_order = simd.bytes_of_four::<false>(four, &form);
            self.bytes.extend(in_order.as_flattened());
            let natural = simd.bytes_of_four::<true>(four, &form);
            self.bytes.extend(natural.as_flattened());
            let pairs = simd.bytes_of_pairs(four, &form);
            self.bytes.extend(pairs.as_flattened());
        }
        let far = [simd.join(low, high), simd.join(high, low)];
        for columns in [some, far[0], far[1], simd.splat_i32(70_000)] {
            for range in [[-128, 127], [-20, 30]] {
                simd.store_bytes::<true>(columns, range.map(|end: i8| end as u8), &mut bytes);
                self.bytes.extend(bytes);
            }
            for range in [[0, 255], [3, 156]] {
                simd.store_bytes::<false>(columns, range, &mut bytes);
                self.bytes.extend(bytes);
            }
        }
    }
}

impl Work for Everything {
    type Output = Found;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> Found {
        let mut found = Found::default();
        found.floats::<_, LANES>(simd.narrow());
        found.floats::<_, WIDE>(simd.wide());
        found.integers::<_, LANES>(simd.narrow());
        found.integers::<_, WIDE>(simd.wide());
        found.columns(simd.narrow(), simd.wide());
        found
    }
}

#[test]
fn every_instruction_set_computes_the_same() {
    let expected = Everything.run(Portable);
    for set in available() {
        assert_eq!(run_by(set, Everything), expected, "{}", set.name());
    }
}

#[test]
fn nan_and_zeros_stay_when_clamped() {
    struct Clamp {
        value: f32,
        range: (f32, f32),
    }

    impl Work for Clamp {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Instructions>(self, simd: S) -> [f32; LANES] {
            let simd = simd.narrow();
            let raised = simd.at_least(simd.splat(self.value), simd.splat(self.range.0));
            let mut lanes = [0.0; LANES];
            simd.store(simd.at_most(raised, simd.splat(self.range.1)), &mut lanes);
            lanes
        }
    }
    for set in available() {
        let clamp = |value: f32, range: (f32, f32)| run_by(set, Clamp { value, range })[0];
        assert!(clamp(f32::NAN, (0.0, 6.0)).is_nan(), "{}", set.name());
        assert!(clamp(-0.0, (0.0, 6.0)).is_sign_negative(), "{}", set.name());
        assert!(clamp(0.0, (-1.0, -0.0)).is_sign_positive(), "{}", set.name());
    }
}

#[test]
fn a_limit_leaves_what_is_not_better() {
    let best = available().next().unwrap_or(InstructionSet::Portable).name();
    assert_eq!(from_limit(None).name(), best);
    assert_eq!(from_limit(Some("something")).name(), best);
    assert_eq!(from_limit(Some("portable")).name(), "portable");
    assert_ne!(from_limit(Some("avx2")).name(), "avx512");
    for set in available() {
        assert_eq!(from_limit(Some(set.name())).name(), set.name());
    }
}
