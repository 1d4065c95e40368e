//! What one thread can reach at most with the instructions that the kernels use.

use std::time::{Duration, Instant};

use super::simd::{Columns, Instructions, Simd, WIDE, Work, dispatch};

/// Sums that are built side by side: enough that none waits for its last product.
const SUMS: usize = 12;

/// Products of each sum between two looks at the clock.
const STEPS: usize = 4096;

/// Repetitions, the fastest of which counts.
const ROUNDS: usize = 200;

/// Operations in a second, in thousands of millions, where nothing but products are summed. A product and its sum are
/// two operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Of 32-bit floats.
    pub float: f64,
    /// Of 8-bit values, widened to 16 bits.
    pub byte: f64,
}

impl Peak {
    /// Measures this processor, in a few milliseconds.
    #[must_use]
    pub fn measure() -> Peak {
        // Values that the compiler knows nothing of.
        let seed = std::hint::black_box(1.0_f32);
        let pairs = std::hint::black_box(0x0001_0003);
        Peak {
            float: rate(SUMS * STEPS * WIDE * 2, || dispatch(Floats(seed))),
            byte: rate(SUMS * STEPS * WIDE * 4, || dispatch(Pairs(pairs))),
        }
    }
}

fn rate<T>(operations: usize, work: impl Fn() -> T) -> f64 {
    let time = || {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed()
    };
    let least = (0..ROUNDS).map(|_| time()).min().unwrap_or(Duration::MAX);
    operations as f64 / least.as_secs_f64().max(1e-9) / 1e9
}

struct Floats(f32);

impl Work for Floats {
    type Output = [f32; WIDE];

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> [f32; WIDE] {
        let simd = simd.wide();
        let factor = simd.splat(self.0);
        let mut sums: [_; SUMS] = std::array::from_fn(|at| simd.splat(at as f32));
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add(factor, factor, *sum);
            }
        }
        let total = sums
            .into_iter()
            .fold(simd.splat(0.0), |total, sum| simd.add(total, sum));
        let mut lanes = [0.0; WIDE];
        simd.store(total, &mut lanes);
        lanes
    }
}

struct Pairs(i32);

impl Work for Pairs {
    type Output = [u8; WIDE];

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> [u8; WIDE] {
        let simd = simd.wide();
        let factor = simd.splat_i32(self.0);
        let mut sums: [_; SUMS] = std::array::from_fn(|at| simd.splat_i32(at as i32));
        for _ in 0..STEPS {
            // The other factor changes from sum to sum, so that no product is known from before.
            for at in 0..SUMS {
                sums[at] = simd.add_products(sums[at], factor, sums[(at + 5) % SUMS]);
            }
        }
        let total = sums
            .into_iter()
            .fold(simd.splat_i32(0), |total, sum| simd.add_i32(total, sum));
        let mut bytes = [0; WIDE];
        simd.store_bytes::<false>(total, [0, u8::MAX], &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Peak;

    #[test]
    fn peaks_are_positive_and_of_this_century() {
        let peak = Peak::measure();
        assert!(peak.float > 0.0 && peak.float < 10_000.0, "{peak:?}");
        assert!(peak.byte > 0.0 && peak.byte < 100_000.0, "{peak:?}");
    }
}
