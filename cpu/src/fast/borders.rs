//! How much is computed twice where each thread computes its own rows of the last of some layers that follow
//! each other: at its border it computes what the windows see of the other's rows, more of it with each layer
//! before.

use nnhal_hal::ops::padding::Window;

use super::strips::seen;
use crate::plan::cost::MORE_AT_BORDERS;
use crate::threads::MAX_HELPERS;

/// A layer whose rows are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerRows {
    pub(super) vertical: Window,
    /// Rows of its input and of its output.
    pub(super) input: usize,
    pub(super) output: usize,
    /// How long all rows of an image take, in any unit.
    pub(super) work: u64,
}

impl LayerRows {
    fn work_of(&self, rows: usize) -> u64 {
        self.work.saturating_mul(rows as u64) / self.output.max(1) as u64
    }
}

/// Up to how many threads have little more to do than equal shares of layers that follow each other; 1 if not
/// even two.
pub(super) fn most_threads(layers: &[LayerRows]) -> usize {
    let all: u64 = layers.iter().map(|layer| layer.work).sum();
    let is_little_more = |threads: &usize| {
        let share = all / *threads as u64;
        slowest(layers, *threads) <= share.saturating_add(share / MORE_AT_BORDERS)
    };
    let rows = layers.last().map_or(0, |layer| layer.output);
    let more = (2..=rows.min(MAX_HELPERS + 1)).take_while(is_little_more);
    more.last().unwrap_or(1)
}

/// The work of the thread that has most of it.
fn slowest(layers: &[LayerRows], threads: usize) -> u64 {
    let height = layers.last().map_or(0, |layer| layer.output);
    let each = height.div_ceil(threads).max(1);
    let firsts = (0..height).step_by(each);
    let work = firsts.map(|first| {
        let mut rows = first..(first + each).min(height);
        let mut work = 0_u64;
        for layer in layers.iter().rev() {
            work = work.saturating_add(layer.work_of(rows.len()));
            rows = seen(&layer.vertical, layer.input, &rows);
        }
        work
    });
    work.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{LayerRows, Window, most_threads, slowest};

    /// Of windows of three rows, on an image with padding around it.
    fn layer(input: usize, stride: i32, work: u64) -> LayerRows {
        LayerRows {
            // As SAME has it where the stride divides the extent.
            vertical: Window::explicit(3, stride, 1, i32::from(stride == 1), 1).unwrap(),
            input,
            output: input / stride as usize,
            work,
        }
    }

    #[test]
    fn rows_at_borders_are_counted_for_each_layer_before() {
        let layers = [layer(16, 1, 160); 3];
        assert_eq!(slowest(&layers, 1), 480);
        // The first of two threads computes 8 rows, the 9 that those see, and the 10 that these see.
        assert_eq!(slowest(&layers, 2), 80 + 90 + 100);
        // One in the middle has borders on both sides.
        assert_eq!(slowest(&layers, 4), 40 + 60 + 80);
        assert_eq!(most_threads(&layers), 2);
        assert_eq!(most_threads(&layers[1..]), 2);
        assert_eq!(most_threads(&[layer(8, 1, 80); 4]), 1);
        assert_eq!(most_threads(&[]), 1);
    }

    #[test]
    fn borders_are_wider_before_strides() {
        // 8 of 16 rows see 17 of 32, which see 18.
        let layers = [layer(32, 1, 320), layer(32, 1, 320), layer(32, 2, 160)];
        assert_eq!(slowest(&layers[1..], 2), 170 + 80);
        assert_eq!(slowest(&layers, 2), 180 + 170 + 80);
    }

    #[test]
    fn layers_that_take_little_have_wide_borders() {
        let (little, much) = (layer(16, 1, 16), layer(16, 1, 1600));
        assert_eq!(most_threads(&[little, much]), 4);
        assert_eq!(most_threads(&[much, little]), 2);
    }

    #[test]
    fn rows_that_leave_threads_idle_count() {
        // Nothing is computed twice; five threads would have four rows, but for the last.
        assert_eq!(most_threads(&[layer(16, 1, 160)]), 4);
        assert_eq!(slowest(&[layer(16, 1, 160)], 5), 40);
    }
}
