//! How long it takes to read bytes, as products of a matrix with a vector read their weights: once, from the first to the last.

use std::time::{Duration, Instant};

use super::simd::{Instructions, Simd, WIDE, Work, dispatch};

/// Vectors that are read side by side, so that none waits for its last sum.
const VECTORS: usize = 4;

type Vectors = [[f32; WIDE]; VECTORS];

/// The least time that one of so many passes over `bytes` takes, whose last less than 256 are left out. They should begin at a multiple of
/// [`crate::buffer::ALIGNMENT`].
#[must_use]
pub fn reading_time(bytes: &[u8], passes: usize) -> Duration {
    let whole = bytes.len() / size_of::<Vectors>() * size_of::<Vectors>();
    let vectors: &[Vectors] = bytemuck::cast_slice(&bytes[..whole]);
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
