//! What one thread can reach at most with the instructions that the kernels use.

use std::time::{Duration, Instant};

use nnhal_os::buffer::AlignedBuffer;

use super::simd::amx_tiles::{Bf16x3, ByteSums, DEEP, DEEP_BYTES, SIDE, TILE_BYTES, TileSums};
use super::simd::strided::Rows;
use super::simd::{Columns, Instructions, Simd, WIDE, Work, dispatch, tiles};

/// Sums that are built side by side: enough that none waits for its last product.
const SUMS: usize = 12;

/// Products of each sum between two looks at the clock.
const STEPS: usize = 4096;

/// Repetitions, the fastest of which counts.
const ROUNDS: usize = 200;

/// Operations in a second, in thousands of millions, where nothing but products are summed. A product and its
/// sum are two operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Of 32-bit floats, by vectors.
    pub float: f64,
    /// Of 32-bit floats, by tiles; 0 where there are none.
    pub tiles: f64,
    /// Of 8-bit values, by vectors, widened to 16 bits where no instruction multiplies bytes.
    pub byte: f64,
    /// Of 8-bit values, by tiles; 0 where there are none.
    pub byte_tiles: f64,
}

impl Peak {
    /// Measures this processor, in some ten milliseconds.
    #[must_use]
    pub fn measure() -> Peak {
        // Values that the compiler knows nothing of.
        let seed = std::hint::black_box(1.0_f32);
        let pairs = std::hint::black_box(0x0001_0003);
        Peak {
            float: rate(2, || dispatch(Floats(seed))),
            tiles: rate_of_tiles(seed),
            byte: rate(4, || dispatch(Pairs(pairs))),
            byte_tiles: rate_of_byte_tiles(pairs),
        }
    }
}

/// Thousands of millions of operations in a second, of so many in each lane; `work` says how many lanes it
/// has.
fn rate(in_lane: usize, work: impl Fn() -> usize) -> f64 {
    rate_of(|| SUMS * STEPS * work() * in_lane)
}

/// The same of work that says how many operations it was.
fn rate_of(work: impl Fn() -> usize) -> f64 {
    let mut operations = 0;
    let mut time = || {
        let started = Instant::now();
        operations = std::hint::black_box(work());
        started.elapsed()
    };
    let least = (0..ROUNDS).map(|_| time()).min().unwrap_or(Duration::MAX);
    operations as f64 / least.as_secs_f64().max(1e-9) / 1e9
}

/// That of products of floats by tiles, of which each takes several; 0 where there are none.
fn rate_of_tiles(seed: f32) -> f64 {
    const BLOCKS: usize = 4;
    let Some(amx) = tiles() else {
        return 0.0;
    };
    // Aligned, as what kernels load is.
    let mut buffer = AlignedBuffer::new();
    if buffer.resize(BLOCKS * size_of::<Bf16x3>()).is_err() {
        return 0.0;
    }
    let parts: &mut [Bf16x3] = bytemuck::cast_slice_mut(buffer.bytes_mut());
    let values: Vec<f32> = (0..SIDE * BLOCKS * DEEP)
        .map(|at| seed / (at + 1) as f32)
        .collect();
    let rows = Rows::new(&values, (SIDE, BLOCKS * DEEP), BLOCKS * DEEP);
    amx.part_rows(rows, 0, parts);
    let parts = &*parts;
    let shaped = amx.shape(SIDE);
    rate_of(|| {
        let mut sums = TileSums([[[0.0; SIDE]; 2]; 2 * SIDE]);
        for _ in 0..STEPS / SIDE {
            shaped.sum_bf16x3::<2, 2, false>([parts; 2], [parts; 2], parts, &mut sums);
        }
        std::hint::black_box(&sums);
        STEPS / SIDE * BLOCKS * 2 * (2 * SIDE) * (2 * SIDE) * DEEP
    })
}

/// The same of bytes.
fn rate_of_byte_tiles(seed: i32) -> f64 {
    const BLOCKS: usize = 4;
    let Some(amx) = tiles() else {
        return 0.0;
    };
    let mut buffer = AlignedBuffer::new();
    if buffer.resize(BLOCKS * TILE_BYTES).is_err() {
        return 0.0;
    }
    for (at, byte) in buffer.bytes_mut().iter_mut().enumerate() {
        *byte = (at as i32).wrapping_mul(seed) as u8;
    }
    let bytes = buffer.bytes();
    let rows = Rows::new(bytes, (SIDE, BLOCKS * DEEP_BYTES), BLOCKS * DEEP_BYTES);
    let shaped = amx.shape(SIDE);
    rate_of(|| {
        let mut sums = ByteSums([[[0; SIDE]; 2]; 2 * SIDE]);
        for _ in 0..STEPS / SIDE {
            shaped.sum_bytes::<2, 2>([rows; 2], [bytes; 2], &mut sums);
        }
        std::hint::black_box(&sums);
        STEPS / SIDE * BLOCKS * 2 * (2 * SIDE) * (2 * SIDE) * DEEP_BYTES
    })
}

/// Sums of products of floats.
struct Floats(f32);

impl Work for Floats {
    /// Lanes of a register.
    type Output = usize;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> usize {
        if S::HAS_WIDE {
            self.sum(simd.wide())
        } else {
            self.sum(simd.narrow())
        }
    }
}

impl Floats {
    #[inline(always)]
    fn sum<V: Simd<N>, const N: usize>(self, simd: V) -> usize {
        let factor = simd.splat(self.0);
        let mut sums = [simd.splat(0.0); SUMS];
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = simd.splat(at as f32);
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add(factor, factor, *sum);
            }
        }
        let mut total = simd.splat(0.0);
        for sum in sums {
            total = simd.add(total, sum);
        }
        let mut lanes = [0.0; N];
        simd.store(total, &mut lanes);
        std::hint::black_box(lanes);
        N
    }
}

/// Sums of products of 8-bit values: of bytes, or of pairs of 16-bit values.
struct Pairs(i32);

impl Work for Pairs {
    /// Pairs of a register.
    type Output = usize;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> usize {
        if S::MULTIPLIES_BYTES {
            self.sum_bytes(simd.wide())
        } else {
            self.sum(simd.narrow())
        }
    }
}

impl Pairs {
    #[inline(always)]
    fn sum_bytes<V: Columns>(self, simd: V) -> usize {
        let mut factor = simd.splat_i32(self.0);
        let step = simd.splat_i32(1);
        let mut sums = [factor; SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.add_byte_products(*sum, factor, step);
            }
            factor = simd.add_i32(factor, step);
        }
        let mut total = factor;
        for sum in sums {
            total = simd.add_i32(total, sum);
        }
        std::hint::black_box(total);
        2 * WIDE
    }

    #[inline(always)]
    fn sum<V: Simd<N>, const N: usize>(self, simd: V) -> usize {
        let step = simd.splat_i32(self.0);
        let mut sums = [step; SUMS];
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = simd.splat_i32(at as i32);
        }
        for _ in 0..STEPS {
            // Each with a factor of its own: a product that all have in common would be computed once.
            for sum in &mut sums {
                *sum = simd.add_products(*sum, *sum, step);
            }
        }
        let mut total = step;
        for sum in sums {
            total = simd.add_i32(total, sum);
        }
        std::hint::black_box(total);
        N
    }
}

#[cfg(test)]
mod tests {
    use super::Peak;

    #[test]
    fn peaks_are_positive_and_of_this_century() {
        let peak = Peak::measure();
        assert!(peak.float > 0.0 && peak.float < 10_000.0, "{peak:?}");
        let has_tiles = super::super::simd::instruction_set() == "amx";
        assert!(
            has_tiles == (peak.tiles > 0.0) && peak.tiles < 100_000.0,
            "{peak:?}"
        );
        assert!(
            has_tiles == (peak.byte_tiles > 0.0) && peak.byte_tiles < 100_000.0,
            "{peak:?}"
        );
        assert!(peak.byte > 0.0 && peak.byte < 100_000.0, "{peak:?}");
    }
}
