//! Integers out of small floats.

/// A float whose last bit counts ones, with room on both sides.
const ONES: f32 = 1.5 * (1 << 23) as f32;

/// A whole number of at most 22 bits, as an integer. The conversion that the language has takes any float,
/// and so is none over vectors.
#[inline(always)]
pub(super) fn low_bits(whole: f32) -> i32 {
    (whole + ONES).to_bits().wrapping_sub(ONES.to_bits()) as i32
}

#[cfg(test)]
mod tests {
    use super::low_bits;

    #[test]
    fn whole_numbers_are_themselves() {
        for number in (-(1 << 22)..1 << 22).step_by(1023).chain(-300..300) {
            assert_eq!(low_bits(number as f32), number);
        }
        assert_eq!(low_bits(-0.0), 0);
    }
}
