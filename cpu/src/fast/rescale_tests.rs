use super::{EXACT, FloatScale, MOST, MOST_SHIFT, range_of_sums};
use crate::fast::simd::{Columns, Instructions, Simd, WIDE, Work, dispatch, instruction_set};
use crate::kernels::fixed_point::Multiplier;

/// A mantissa and a right shift.
type Lane = (i32, i32);

fn multiplier((mantissa, right): Lane) -> Multiplier {
    Multiplier {
        mantissa,
        exponent: -right,
    }
}

/// What is computed, in exact integers: with `M = 2^(31+s)`, numbers times `M`, of which a float has 24 bits.
fn computed((mantissa, right): Lane, half: f32, sum: i32) -> i32 {
    let truncated = |number: i128| {
        let lost = (i128::BITS - number.leading_zeros()).saturating_sub(f32::MANTISSA_DIGITS);
        number >> lost << lost
    };
    let magnitude = truncated(i128::from(sum.unsigned_abs()));
    let half = (f64::from(half) * f64::from(31 + right).exp2()) as i128;
    let fraction = truncated(magnitude * i128::from(mantissa & 0x7f) + half);
    let scaled = truncated(magnitude * i128::from(mantissa & !0x7f) + fraction);
    (scaled >> (31 + right)) as i32 * sum.signum()
}

/// The same with `2^-24` added so many times, proven or not.
fn half(right: i32, more: i32) -> f32 {
    ((1 << 23) + (1 << (23 - right)) + more) as f32 / EXACT as f32
}

/// Sums at the boundaries of results, and around them.
fn boundaries((mantissa, right): Lane) -> impl Iterator<Item = i32> {
    let whole = 1_i128 << (31 + right);
    let least = move |result: i128| (result * whole - (1 << 30) - whole / 2) / i128::from(mantissa);
    let near = (0..=i128::from(MOST) + 1).flat_map(move |result| (-2..4).map(move |by| least(result) + by));
    near.flat_map(|sum| [sum, -sum])
        .map(|sum| sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
}

const ENDS: [i32; 8] = [
    i32::MIN,
    i32::MIN + 1,
    -(1 << 24) - 1,
    -1,
    0,
    1,
    (1 << 24) + 1,
    i32::MAX,
];

fn clamp(result: i32) -> i32 {
    result.clamp(-(MOST as i32), MOST as i32)
}

/// The first sum for which a result is wrong.
fn wrong(lane: Lane, half: f32) -> Option<i32> {
    let exact = multiplier(lane);
    boundaries(lane)
        .chain(ENDS)
        .find(|sum| clamp(computed(lane, half, *sum)) != clamp(exact.apply(*sum)))
}

/// Mantissas and shifts without an order, of the shifts that there are proofs for.
fn lanes(seed: u64) -> impl Iterator<Item = Lane> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mantissa = (1 << 30) | (state >> 34) as i32;
        (mantissa, ((state >> 20) % 15) as i32 + 1)
    })
}

fn proven(lane: Lane) -> Option<f32> {
    FloatScale::new([lane; WIDE], |_| None).map(|scale| {
        assert!(scale.half.iter().all(|half| *half == scale.half[0]));
        scale.half[0]
    })
}

#[test]
fn what_is_proven_is_right_and_what_is_refused_is_wrong() {
    let mut found = [0; 3];
    for lane in lanes(1).take(1500) {
        match proven(lane) {
            Some(proven) => {
                assert_eq!(wrong(lane, proven), None, "{lane:?}");
                let more = i32::from(proven != half(lane.1, 0));
                // Nothing is added where it is not needed.
                assert!(more == 0 || wrong(lane, half(lane.1, 0)).is_some(), "{lane:?}");
                found[more as usize] += 1;
            }
            None => {
                for more in 0..2 {
                    assert!(wrong(lane, half(lane.1, more)).is_some(), "{lane:?}");
                }
                found[2] += 1;
            }
        }
    }
    // All three are there.
    assert!(found[0] > 1000 && found[1] > 10 && found[2] > 1, "{found:?}");
}

#[test]
fn multipliers_without_exact_floats_or_with_ties_are_refused() {
    // Sums of larger results are no floats.
    assert!(proven((0x4000_0001, 17)).is_none());
    assert!(proven((i32::MAX, 31)).is_none());
    // A half, a quarter and so on meet ties.
    for right in 1..16 {
        assert!(proven((1 << 30, right)).is_none());
        assert!(wrong((1 << 30, right), half(right, 0)).is_some());
    }
    // One lane is enough.
    let mut lanes = [(0x5234_5678, 8); WIDE];
    assert!(FloatScale::new(lanes, |_| None).is_some());
    lanes[11] = (1 << 30, 8);
    assert!(FloatScale::new(lanes, |_| None).is_none());
    assert!(FloatScale::new(lanes, |lane| (lane != 11).then_some([5; 2])).is_none());
    assert!(FloatScale::new(lanes, |lane| (lane == 11).then_some([5; 2])).is_some());
}

/// Says that instructions were not tried, for there are none.
fn skip() {
    println!("skipped: {} does not rescale by floats", instruction_set());
}

/// Scales sums in each of the ways that there are.
struct Scale<'a>(&'a FloatScale, [i32; WIDE]);

impl Work for Scale<'_> {
    type Output = Option<[[i32; WIDE]; 2]>;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> Option<[[i32; WIDE]; 2]> {
        let simd = simd.wide();
        if !S::Wide::TRUNCATES {
            return None;
        }
        let mut found = [[0; WIDE]; 2];
        let sums = simd.load_i32(&self.1);
        simd.store_i32(simd.rescale_by_floats::<false>(sums, self.0), &mut found[0]);
        simd.store_i32(simd.rescale_by_floats::<true>(sums, self.0), &mut found[1]);
        Some(found)
    }
}

#[test]
fn instructions_compute_what_is_proven() {
    let special = [
        0x4000_0001,
        0x4000_0003,
        0x7fff_ffff,
        0x7fff_ff80,
        0x6000_0000,
        0x5555_5555,
    ];
    let special = special
        .into_iter()
        .flat_map(|mantissa| (1..16).map(move |right| (mantissa, right)));
    for lane in special.chain(lanes(2).take(300)) {
        let Some(scale) = FloatScale::new([lane; WIDE], |_| None) else {
            continue;
        };
        let (exact, half) = (multiplier(lane), scale.half[0]);
        let sums: Vec<i32> = boundaries(lane).chain(ENDS).collect();
        for sums in sums.chunks(WIDE) {
            let lanes = std::array::from_fn(|lane| sums[lane % sums.len()]);
            let Some([all, positive]) = dispatch(Scale(&scale, lanes)) else {
                return skip();
            };
            for (sum, (all, positive)) in lanes.into_iter().zip(all.into_iter().zip(positive)) {
                assert_eq!(all, computed(lane, half, sum), "{sum} by {lane:?}");
                assert_eq!(clamp(all), clamp(exact.apply(sum)), "{sum} by {lane:?}");
                assert_eq!(positive.max(0), all.max(0), "{sum} by {lane:?}");
            }
        }
    }
}

#[test]
fn single_sums_need_no_proof() {
    let refused = [
        (1 << 30, 3),
        (1 << 30, 16),
        (0x7fff_ffff, 16),
        (0x5555_5555, 24),
        (0x6abc_def0, 31),
    ];
    for lane in refused {
        let exact = multiplier(lane);
        let some = [1000, -(1 << 20), (1 << 24) + 1, 1_073_741_952, -1_073_741_824];
        for sum in boundaries(lane).chain(ENDS).chain(some) {
            let Some(scale) = FloatScale::new([lane; WIDE], |_| Some([sum; 2])) else {
                panic!("there is nothing to prove of {sum} by {lane:?}");
            };
            let Some([all, positive]) = dispatch(Scale(&scale, [sum; WIDE])) else {
                return skip();
            };
            assert_eq!(clamp(all[0]), clamp(exact.apply(sum)), "{sum} by {lane:?}");
            assert_eq!(positive[0].max(0), all[0].max(0), "{sum} by {lane:?}");
        }
    }
}

#[test]
fn small_multipliers_are_proven_for_the_sums_that_occur() {
    let most = EXACT as i32;
    let mut is_computed = true;
    for (right, of_thousand) in (17..=MOST_SHIFT).zip([300, 90, 30, 10, 4, 3, 1]) {
        let (mut tried, mut found) = (0, 0);
        for (mantissa, _) in lanes(3).take(4000) {
            if found == 10 {
                break;
            }
            tried += 1;
            let lane = (mantissa | 1, right);
            let of_range = |range| FloatScale::new([lane; WIDE], |_| Some(range));
            // Others occur.
            assert!(of_range([-most, most + 1]).is_none() && of_range([i32::MIN, 0]).is_none());
            let Some(scale) = of_range([-most, most]) else {
                continue;
            };
            found += 1;
            let (exact, half) = (multiplier(lane), scale.half[0]);
            let occurring: Vec<i32> = boundaries(lane)
                .chain([-most, most])
                .filter(|sum| u64::from(sum.unsigned_abs()) <= EXACT)
                .collect();
            for sums in occurring.chunks(WIDE) {
                let lanes = std::array::from_fn(|lane| sums[lane % sums.len()]);
                let expected = lanes.map(|sum| computed(lane, half, sum));
                for (sum, expected) in lanes.into_iter().zip(expected) {
                    assert_eq!(clamp(expected), clamp(exact.apply(sum)), "{sum} by {lane:?}");
                }
                let Some([all, positive]) = dispatch(Scale(&scale, lanes)) else {
                    is_computed = false;
                    continue;
                };
                assert_eq!(all, expected, "{lanes:?} by {lane:?}");
                let cut_at_zero = |sums: [i32; WIDE]| sums.map(|sum| sum.max(0));
                assert_eq!(cut_at_zero(positive), cut_at_zero(all), "{lanes:?} by {lane:?}");
            }
        }
        // As many as are said to be, about.
        assert!(
            found >= 5 && found * 1000 >= tried * of_thousand,
            "{found} of {tried} by {right} bits"
        );
    }
    // Multipliers that are smaller still are not, whatever the sums.
    assert!(FloatScale::new([(0x4000_0001, MOST_SHIFT + 1); WIDE], |_| Some([-most, most])).is_none());
    if !is_computed {
        skip();
    }
}

#[test]
fn sums_lie_between_those_of_bytes_of_one_sign() {
    assert_eq!(range_of_sums(-7, [].into_iter()), Some([-7; 2]));
    assert_eq!(
        range_of_sums(5, [3, -2, 0, 1].into_iter()),
        Some([5 - 510, 5 + 1020])
    );
    assert_eq!(range_of_sums(i32::MAX, [1].into_iter()), None);
    assert_eq!(range_of_sums(i32::MIN, [-1, 1].into_iter()), None);
}
