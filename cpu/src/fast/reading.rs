//! How long it takes to read bytes, as products of a matrix with a vector read their weights: once, from the
//! first to the last.

use std::time::{Duration, Instant};

use super::simd::{Instructions, Simd, WIDE, Work, dispatch};

/// Vectors that are read side by side, so that none waits for its last sum.
const VECTORS: usize = 4;

type Vectors = [[f32; WIDE]; VECTORS];

/// The least time that one of so many passes over `bytes` takes; up to 255 of them, and 3 where they begin at
/// no multiple of 4, are left out. 0 without passes.
#[must_use]
pub fn reading_time(bytes: &[u8], passes: usize) -> Duration {
    let (_, vectors, _) = bytemuck::pod_align_to::<u8, Vectors>(bytes);
    let time = |_| {
        let started = Instant::now();
        dispatch(Read(vectors));
        started.elapsed()
    };
    (0..passes).map(time).min().unwrap_or_default()
}

struct Read<'a>(&'a [Vectors]);

impl Work for Read<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let simd = simd.wide();
        let mut most = [simd.splat(0.0); VECTORS];
        for vectors in self.0 {
            for at in 0..VECTORS {
                // Takes as long whatever the values are.
                most[at] = simd.at_least(simd.load(&vectors[at]), most[at]);
            }
        }
        let mut lanes = [[0.0; WIDE]; VECTORS];
        for at in 0..VECTORS {
            simd.store(most[at], &mut lanes[at]);
        }
        std::hint::black_box(lanes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_take_longer_wherever_they_begin() {
        let bytes = vec![7; 1 << 20];
        for start in 0..5 {
            let few = reading_time(&bytes[start..start + 4096], 20);
            let many = reading_time(&bytes[start..], 20);
            assert!(few < many, "{few:?} {many:?}");
        }
        assert_eq!(reading_time(&bytes, 0), Duration::ZERO);
    }
}
