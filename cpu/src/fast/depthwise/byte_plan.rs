//! How a depthwise convolution by products of bytes goes over its image: how much is laid out at a time, and
//! how many neighbouring outputs are summed side by side.

use nnhal_hal::ops::padding::Window;

use super::byte_filters::{FOUR, Four, PackedDepthwise};
use crate::fast::convolution::patches::Patches;

/// Bytes of values by fours that are laid out at a time: about half of a first-level cache.
const CHUNK_BYTES: usize = 20 * 1024;

/// The same where windows reach so far to the side that little of that would be new in each chunk: about a
/// quarter of a second-level cache.
const WIDE_CHUNK_BYTES: usize = 256 * 1024;

/// Most bytes that are laid out at a time, whatever the windows: beyond, they are not computed here.
const MOST_BYTES: usize = 4 << 20;

/// Most outputs of a tile.
pub(super) const MOST_OUTPUTS: usize = 8;

/// How many of a row's outputs to sum side by side: as many as leave registers for weights and values, so
/// that few are computed twice.
fn outputs_of_tile(width: usize) -> usize {
    match width {
        _ if width >= 7 && width.is_multiple_of(7) && !width.is_multiple_of(8) => 7,
        MOST_OUTPUTS.. => MOST_OUTPUTS,
        4.. => 4,
        _ => 1,
    }
}

/// How many neighbouring rows of outputs see no more than four neighbouring rows; 1 if even one sees others.
fn rows_of_four(window: &Window) -> usize {
    let filter = window.filter as usize;
    if (window.stride, window.dilation) == (1, 1) && (2..FOUR).contains(&filter) {
        FOUR + 1 - filter
    } else {
        1
    }
}

impl PackedDepthwise {
    /// Whether windows of this kind are computed: those that do not reach so far that too much had to be laid
    /// out.
    pub(in crate::fast) fn serves(&self, patches: &Patches) -> bool {
        [*patches, self.line_up(patches)]
            .iter()
            .all(|patches| Plan::new(self, patches).bytes() <= MOST_BYTES)
    }

    /// The same windows in one row where they lie in one column.
    pub(super) fn line_up(&self, patches: &Patches) -> Patches {
        let mut patches = *patches;
        let is_column = patches.input.width == 1
            && patches.output.width == 1
            && (patches.horizontal.filter, patches.horizontal.head) == (1, 0);
        if is_column && self.layer.filter[1] == 1 {
            std::mem::swap(&mut patches.vertical, &mut patches.horizontal);
            for extents in [&mut patches.input, &mut patches.output] {
                std::mem::swap(&mut extents.height, &mut extents.width);
            }
        }
        patches
    }
}

/// How the outputs of a row are computed.
pub(super) struct Plan<'a> {
    pub(super) packed: &'a PackedDepthwise,
    pub(super) patches: Patches,
    /// Whether the taps that are multiplied at once are beside each other.
    pub(super) is_across: bool,
    /// Outputs of a tile.
    pub(super) tile: usize,
    /// Outputs that are computed of one chunk.
    pub(super) chunk: usize,
    /// Values by fours of a chunk that one row of fours sees.
    pub(super) plane: usize,
    /// Values by fours of a chunk in all.
    pub(super) fours: usize,
    /// Bytes of the line beside them: the padding's value as long as a chunk, or a chunk with what is beside
    /// it.
    pub(super) line: usize,
    /// Fours from one row of fours to the next, and from one tap to the next.
    pub(super) steps: (usize, usize),
    /// Values from one tap to the next one beside it.
    pub(super) beside: usize,
    /// How many rows of outputs see no more than four rows of the input, if these follow each other.
    pub(super) rows: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(packed: &'a PackedDepthwise, patches: &Patches) -> Plan<'a> {
        let layer = &packed.layer;
        let is_across = patches.vertical.filter == 1;
        let window = &patches.horizontal;
        let (stride, channels) = (window.stride as usize, layer.channels);
        // A single tap is not dilated, however far apart others would be.
        let dilation = if window.filter == 1 {
            0
        } else {
            window.dilation as usize
        };
        // Of taps beside each other the last four may reach beyond the filter.
        let (fours, taps) = layer.fours();
        let (planes, last_tap) = if is_across {
            (1, (fours - 1) * FOUR)
        } else {
            (fours, taps - 1)
        };
        // Columns that the windows of a chunk see beyond those that they begin with.
        let overhang = last_tap.saturating_mul(dilation);
        let beside = if is_across {
            (FOUR - 1).saturating_mul(dilation)
        } else {
            0
        };
        let width = patches.output.width as usize;
        let tile = outputs_of_tile(width);
        let column = planes.saturating_mul(channels * size_of::<Four>()).max(1);
        let near = CHUNK_BYTES / column;
        let reach = overhang.saturating_add(beside);
        let columns = if near < reach.saturating_mul(4) {
            WIDE_CHUNK_BYTES / column
        } else {
            near
        };
        let most = columns.saturating_sub(overhang) / stride.max(1);
        let chunks = width.div_ceil((most / tile * tile).max(tile)).max(1);
        let chunk = width.div_ceil(chunks).next_multiple_of(tile).min(width);
        let columns = chunk.saturating_sub(1).saturating_mul(stride);
        let columns = columns.saturating_add(overhang).saturating_add(1);
        let plane = columns.saturating_mul(channels);
        Plan {
            packed,
            patches: *patches,
            is_across,
            tile,
            chunk,
            plane,
            fours: plane.saturating_mul(planes),
            line: columns.saturating_add(beside).saturating_mul(channels),
            steps: if is_across {
                (FOUR.saturating_mul(dilation).saturating_mul(channels), 0)
            } else {
                (plane, dilation.saturating_mul(channels))
            },
            beside: dilation.saturating_mul(channels),
            rows: rows_of_four(&patches.vertical),
        }
    }

    /// Bytes that a chunk takes.
    pub(super) fn bytes(&self) -> usize {
        self.fours
            .saturating_mul(size_of::<Four>())
            .saturating_add(self.line)
    }
}
