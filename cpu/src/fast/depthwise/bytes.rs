//! The layers of [`super::pairs`] for instructions that multiply four bytes of a lane at once
//! and add them: those with sixteen channels at least, whose multipliers are all below 1/2.
//!
//! Four taps that are above each other, or beside each other if the filter has one row, are multiplied at
//! once: what they see is laid side by side for each channel, some outputs of a row at a time, so that it is
//! in the first-level cache when it is read. Neighbouring outputs share what they see of each column, and
//! rows of outputs what they see in the same four rows if their filters have less than four: with the weights
//! one tap further down there is the next row's sum. Channels are taken in groups; the last one overlaps the
//! one before it where channels do not fill it.
//!
//! Values are taken as unsigned, signed ones 128 higher, and weights as signed, less their zero point `y`.
//! With the zero point `z` of what is so taken, `sum((u - z) * (w - y)) = sum(u * v) - z * sum(v)`, where the
//! last sum is known when the model is prepared and padding is `z`. A weight whose `v = w - y` does not fit
//! eight bits is the sum of two that do.

use std::ops::Range;

use nnhal_hal::ops::padding::Window;
use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use super::floats::cost;
use crate::fast::convolution::patches::Patches;
use crate::fast::convolution::products::sign_bit;
use crate::fast::matmul::tile::{COLUMNS, for_each_constant};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::fast::requantize::{OfPanels, QuantizedOutput, Requantization, ToSteps, is_one_step};
use crate::fast::rescale::range_of_sums;
use crate::fast::simd::strided::{Strided, StridedMut};
use crate::fast::simd::{ByteForm, Columns, Instructions, Work, dispatch};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;
use crate::scratch::Scratch;
use crate::threads::Team;

/// Taps that are multiplied at once.
const FOUR: usize = 4;

/// Bytes of values by fours that are laid out at a time: about half of a first-level cache.
const CHUNK_BYTES: usize = 20 * 1024;

/// The same where windows reach so far to the side that little of that would be new in each chunk: about a
/// quarter of a second-level cache.
const WIDE_CHUNK_BYTES: usize = 256 * 1024;

/// Most bytes that are laid out at a time, whatever the windows: beyond, they are not computed here.
const MOST_BYTES: usize = 4 << 20;

/// Most outputs of a tile.
const MOST_OUTPUTS: usize = 8;

/// What four taps see of a channel.
type Four = [u8; FOUR];

/// Four weights of each of a group's columns.
type Weights = [Four; COLUMNS];

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

/// The layers that are computed here.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Layer {
    pub(in crate::fast) channels: usize,
    /// Rows and columns of its filters.
    pub(in crate::fast) filter: [usize; 2],
    /// The zero point of values as unsigned bytes.
    pub(in crate::fast) value_zero: i32,
    /// What weights less their zero point are at least and at most, by their type.
    pub(in crate::fast) weights: [i32; 2],
}

impl Layer {
    /// Whether the layer is computed here, whatever its weights are.
    pub(in crate::fast) fn is_served(&self, multiplier: impl Fn(usize) -> Multiplier) -> bool {
        let [least, most] = self.weights;
        let fits_twice = least >= 2 * i32::from(i8::MIN) && most <= 2 * i32::from(i8::MAX);
        self.channels >= COLUMNS
            && fits_twice
            && (0..self.groups()).all(|group| is_one_step(&self.multipliers(group, &multiplier)))
    }

    fn groups(&self) -> usize {
        self.channels.div_ceil(COLUMNS)
    }

    /// Those of a group's channels.
    fn multipliers(&self, group: usize, multiplier: impl Fn(usize) -> Multiplier) -> [Multiplier; COLUMNS] {
        let first = first_channel(group, self.channels);
        std::array::from_fn(|lane| multiplier(first + lane))
    }

    /// How many weights of eight bits each weight is made of.
    fn parts(&self) -> usize {
        let [least, most] = self.weights;
        if least >= i32::from(i8::MIN) && most <= i32::from(i8::MAX) {
            1
        } else {
            2
        }
    }

    /// How many taps in a row are multiplied at once, in all fours of them, and how many such rows there are.
    fn fours(&self) -> (usize, usize) {
        match self.filter {
            [1, across] => (across.div_ceil(FOUR), 1),
            [rows, across] => (rows.div_ceil(FOUR), across),
        }
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

/// The first channel of a group.
#[inline(always)]
fn first_channel(group: usize, channels: usize) -> usize {
    (group * COLUMNS).min(channels - COLUMNS)
}

/// Filters, biases and multipliers, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    layer: Layer,
    /// By group, part, four and column.
    weights: AlignedSlice,
    groups: Vec<Group>,
    /// By group, columns in natural order.
    by: OfPanels<Requantization>,
}

/// What sixteen channels need beside their weights and multipliers.
#[derive(Debug)]
struct Group {
    /// With what is known of the zero points.
    bias: [i32; COLUMNS],
    /// How many parts have weights other than 0.
    parts: usize,
}

impl PackedDepthwise {
    /// Packs the filters of a layer that is computed here; `weight(tap, channel)` gives their values less the
    /// zero point.
    pub(in crate::fast) fn new(
        layer: Layer,
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedDepthwise, PackingError> {
        let (fours, taps) = layer.fours();
        let [rows, across] = layer.filter;
        let parts = layer.parts();
        let of_part = fours * taps;
        let value = |group: usize, part: usize, four: usize, lane: usize, which: usize| -> u8 {
            let (at, tap) = (four / taps * FOUR + which, four % taps);
            let tap = if rows == 1 { at } else { at * across + tap };
            let is_inside = if rows == 1 { at < across } else { at < rows };
            if !is_inside {
                return 0;
            }
            let whole = i32::from(weight(tap, first_channel(group, layer.channels) + lane));
            let first = whole.clamp(i32::from(i8::MIN), i32::from(i8::MAX));
            (if part == 0 { first } else { whole - first }) as i8 as u8
        };
        let length = layer.groups() * parts * of_part;
        let weights = packing.part(length * size_of::<Weights>(), |bytes| {
            let packed: &mut [Weights] = bytemuck::cast_slice_mut(bytes);
            for (at, packed) in packed.iter_mut().enumerate() {
                let (group, part, four) = (at / of_part / parts, at / of_part % parts, at % of_part);
                *packed = std::array::from_fn(|lane| {
                    std::array::from_fn(|which| value(group, part, four, lane, which))
                });
            }
        })?;
        // Of what is packed: the weights themselves may be there no more.
        let packed: &[Weights] = bytemuck::cast_slice(weights.bytes());
        let mut groups = Vec::with_capacity(layer.groups());
        for (group, packed) in packed.chunks_exact((parts * of_part).max(1)).enumerate() {
            let first = first_channel(group, layer.channels);
            let needs = |part: &[Weights]| part.iter().any(|weights| *weights != [[0; FOUR]; COLUMNS]);
            let is_second_needed = packed.chunks_exact(of_part).nth(1).is_some_and(needs);
            groups.push(Group {
                bias: std::array::from_fn(|lane| {
                    let of_lane = packed.iter().flat_map(|weights| weights[lane]);
                    let sum = of_lane
                        .map(|weight| i32::from(weight as i8))
                        .fold(0, i32::wrapping_add);
                    bias(first + lane).wrapping_sub(layer.value_zero.wrapping_mul(sum))
                }),
                parts: if is_second_needed { 2 } else { 1 },
            });
        }
        let scale = |group: Option<usize>, multipliers| {
            let range = |lane: usize| {
                let group = group?;
                let packed = &packed[group * parts * of_part..][..parts * of_part];
                let weights = packed.iter().flat_map(|weights| weights[lane]);
                range_of_sums(
                    groups[group].bias[lane],
                    weights.map(|weight| i32::from(weight as i8)),
                )
            };
            Requantization::of_lanes(multipliers, 0, range)
        };
        let multipliers = |group| layer.multipliers(group, &multiplier);
        let by = OfPanels::new(layer.groups(), multipliers, scale);
        Ok(PackedDepthwise {
            by,
            layer,
            weights,
            groups,
        })
    }

    /// The packed filters.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }

    /// Whether windows of this kind are computed: those that do not reach so far that too much had to be laid
    /// out.
    pub(in crate::fast) fn serves(&self, patches: &Patches) -> bool {
        [*patches, self.line_up(patches)]
            .iter()
            .all(|patches| Plan::new(self, patches).bytes() <= MOST_BYTES)
    }

    /// The same windows in one row where they lie in one column.
    fn line_up(&self, patches: &Patches) -> Patches {
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

    /// Convolves `input` into `output`.
    pub(in crate::fast) fn run<T: Quant8>(
        &self,
        patches: &Patches,
        input: &[T],
        (output, stored): (&mut [T], QuantizedOutput),
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<(), OutOfMemory> {
        let threads = team.threads_for(cost(patches));
        // A single row could not be parted.
        let patches = if threads == 1 {
            self.line_up(patches)
        } else {
            *patches
        };
        let plan = Plan::new(self, &patches);
        let (input, output) = (
            bytemuck::cast_slice::<T, u8>(input),
            bytemuck::cast_slice_mut::<T, u8>(output),
        );
        let height = patches.output.height as usize;
        let size_out = patches.image_size(&patches.output);
        let grid = partition::rows(threads, height, size_out / height.max(1));
        let threads = threads.min(grid.blocks().max(1));
        let memory = scratch.shares::<Four>(threads, plan.fours + plan.line.div_ceil(FOUR))?;
        for (input, output) in patches.images(input, output) {
            team.for_each_block(threads, &grid, (output, &mut *memory), |mut block, memory| {
                let (fours, line) = memory.split_at_mut(plan.fours);
                let line = &mut bytemuck::cast_slice_mut::<Four, u8>(line)[..plan.line];
                let flip = sign_bit::<T>();
                let zero = self.layer.value_zero as u8;
                line.fill(zero ^ flip);
                dispatch(Rows {
                    plan: &plan,
                    input,
                    rows: block.first_row()..block.first_row() + block.rows(),
                    output: block.all(),
                    fours,
                    line,
                    zero,
                    flip,
                    clamps_negative: stored.clamps_negative(),
                    form: stored.form(flip != 0),
                    down: 0,
                });
            });
        }
        Ok(())
    }
}

/// How the outputs of a row are computed.
struct Plan<'a> {
    packed: &'a PackedDepthwise,
    patches: Patches,
    /// Whether the taps that are multiplied at once are beside each other.
    is_across: bool,
    /// Outputs of a tile.
    tile: usize,
    /// Outputs that are computed of one chunk.
    chunk: usize,
    /// Values by fours of a chunk that one row of fours sees.
    plane: usize,
    /// Values by fours of a chunk in all.
    fours: usize,
    /// Bytes of the line beside them: the padding's value as long as a chunk, or a chunk with what is beside
    /// it.
    line: usize,
    /// Fours from one row of fours to the next, and from one tap to the next.
    steps: (usize, usize),
    /// Values from one tap to the next one beside it.
    beside: usize,
    /// How many rows of outputs see no more than four rows of the input, if these follow each other.
    rows: usize,
}

impl<'a> Plan<'a> {
    fn new(packed: &'a PackedDepthwise, patches: &Patches) -> Plan<'a> {
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
    fn bytes(&self) -> usize {
        self.fours
            .saturating_mul(size_of::<Four>())
            .saturating_add(self.line)
    }
}

/// Rows of one image's output.
struct Rows<'a> {
    plan: &'a Plan<'a>,
    input: &'a [u8],
    rows: Range<usize>,
    output: &'a mut [u8],
    fours: &'a mut [Four],
    line: &'a mut [u8],
    /// What padding holds, as unsigned.
    zero: u8,
    /// What makes values unsigned.
    flip: u8,
    /// Whether results below real 0 are clamped.
    clamps_negative: bool,
    form: ByteForm,
    /// How many rows of outputs are above those that are computed, of those that what is laid out is for.
    down: usize,
}

impl Work for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        if self.clamps_negative {
            self.rows::<S, true>(simd);
        } else {
            self.rows::<S, false>(simd);
        }
    }
}

impl Rows<'_> {
    #[inline(always)]
    fn rows<S: Instructions, const CLAMPED: bool>(mut self, simd: S) {
        let plan = self.plan;
        let width = plan.patches.output.width as usize;
        let mut at = 0;
        while at < width {
            // The last ones, some of them for the second time, if there are not so many left.
            let first = at.min(width - plan.chunk);
            for y in self.rows.clone().step_by(plan.rows) {
                if plan.is_across {
                    self.lay_out_line(simd.wide(), y, first);
                } else {
                    self.lay_out(simd.wide(), y, first);
                }
                for below in 0..plan.rows.min(self.rows.end - y) {
                    self.down = below;
                    self.chunk::<S, CLAMPED>(simd, y + below - self.rows.start, first);
                }
            }
            at += plan.chunk;
        }
    }

    /// A row of the input, if the tap `at` of the windows of row `y` sees one, or of those of the rows that
    /// are computed with it.
    #[inline(always)]
    fn input_row(&self, y: usize, at: usize) -> Option<usize> {
        let (window, height) = (
            &self.plan.patches.vertical,
            self.plan.patches.input.height as usize,
        );
        let below = y * window.stride as usize + at * window.dilation as usize;
        let row = below.checked_sub(window.head as usize)?;
        let taps = window.filter as usize + self.plan.rows - 1;
        (at < taps && row < height).then_some(row)
    }

    /// Which of so many columns of the windows that begin with output `first` are inside, and where the first
    /// of these is in the input.
    #[inline(always)]
    fn inside(&self, first: usize, columns: usize) -> (Range<usize>, usize) {
        let (window, width) = (
            &self.plan.patches.horizontal,
            self.plan.patches.input.width as usize,
        );
        let (start, head) = (first * window.stride as usize, window.head as usize);
        let left = head.saturating_sub(start).min(columns);
        let begin = (start + left).saturating_sub(head).min(width);
        (left..left + (columns - left).min(width - begin), begin)
    }

    /// Lays out what the windows of row `y` see from output `first` on, rows by fours.
    #[inline(always)]
    fn lay_out<V: Columns>(&mut self, simd: V, y: usize, first: usize) {
        let channels = self.plan.packed.layer.channels;
        let (inside, begin) = self.inside(first, self.plan.plane / channels);
        let width = self.plan.patches.input.width as usize;
        for plane in 0..self.plan.fours / self.plan.plane {
            let mut rows = [&self.line[..inside.len() * channels]; FOUR];
            for (which, line) in rows.iter_mut().enumerate() {
                if let Some(row) = self.input_row(y, plane * FOUR + which) {
                    *line = &self.input[(row * width + begin) * channels..][..inside.len() * channels];
                }
            }
            let fours = &mut self.fours[plane * self.plan.plane..][..self.plan.plane];
            let (left, rest) = fours.split_at_mut(inside.start * channels);
            let (middle, right) = rest.split_at_mut(inside.len() * channels);
            left.fill([self.zero; FOUR]);
            right.fill([self.zero; FOUR]);
            by_fours(simd, rows, self.flip, middle);
        }
    }

    /// The same of a filter of one row, columns by fours.
    #[inline(always)]
    fn lay_out_line<V: Columns>(&mut self, simd: V, y: usize, first: usize) {
        let channels = self.plan.packed.layer.channels;
        let (inside, begin) = self.inside(first, self.plan.line / channels);
        let width = self.plan.patches.input.width as usize;
        let padding = self.zero ^ self.flip;
        self.line.fill(padding);
        if let Some(row) = self.input_row(y, 0) {
            let from = &self.input[(row * width + begin) * channels..][..inside.len() * channels];
            self.line[inside.start * channels..][..from.len()].copy_from_slice(from);
        }
        let mut rows = [&self.line[..]; FOUR];
        for (which, line) in rows.iter_mut().enumerate() {
            *line = &self.line[which * self.plan.beside..][..self.plan.plane];
        }
        by_fours(simd, rows, self.flip, &mut self.fours[..self.plan.plane]);
    }

    /// Computes the outputs of a chunk.
    #[inline(always)]
    fn chunk<S: Instructions, const CLAMPED: bool>(&mut self, simd: S, row: usize, first: usize) {
        let simd = simd.wide();
        match self.plan.tile {
            // Where no instruction multiplies bytes nothing is packed for this. Tiles would be megabytes of
            // code there.
            _ if !S::HAS_WIDE => self.groups::<_, CLAMPED, 1, 1, 1>(simd, row, first),
            8 => self.tiles::<_, CLAMPED, 8>(simd, row, first),
            7 => self.tiles::<_, CLAMPED, 7>(simd, row, first),
            4 => self.tiles::<_, CLAMPED, 4>(simd, row, first),
            _ => self.tiles::<_, CLAMPED, 1>(simd, row, first),
        }
    }

    #[inline(always)]
    fn tiles<V: Columns, const CLAMPED: bool, const O: usize>(&mut self, simd: V, row: usize, first: usize) {
        let window = &self.plan.patches.horizontal;
        let (_, taps) = self.plan.packed.layer.fours();
        match (taps, window.stride) {
            (3, 1) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 3, 1>(simd, row, first),
            (3, 2) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 3, 2>(simd, row, first),
            (5, 1) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 5, 1>(simd, row, first),
            (5, 2) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 5, 2>(simd, row, first),
            _ => self.groups::<V, CLAMPED, O, 1, 1>(simd, row, first),
        }
    }

    /// All groups of channels, by `K` taps in a row that go on by `STRIDE` columns from one output to the
    /// next, or any if `K` is 1.
    #[inline(always)]
    fn groups<V: Columns, const CLAMPED: bool, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        row: usize,
        first: usize,
    ) {
        let plan = self.plan;
        let channels = plan.packed.layer.channels;
        let (fours, taps) = plan.packed.layer.fours();
        let weights: &[Weights] = bytemuck::cast_slice(plan.packed.weights.bytes());
        let of_group = plan.packed.layer.parts() * fours * taps;
        let step = plan.patches.horizontal.stride as usize * channels;
        let apart = if K == 1 { step } else { channels };
        let output = (row * plan.patches.output.width as usize + first) * channels;
        for (number, group) in plan.packed.groups.iter().enumerate() {
            let weights = &weights[number * of_group..][..group.parts * fours * taps];
            let by = plan.packed.by.of(number);
            let channel = first_channel(number, channels);
            let mut at = 0;
            while at < plan.chunk {
                let from = at.min(plan.chunk - O);
                let mut sums = [simd.load_i32(&group.bias); O];
                for part in 0..group.parts {
                    for four in 0..fours {
                        for tap in (0..taps).step_by(K) {
                            let weights = &weights[(part * fours + four) * taps + tap..][..K];
                            let start = from * step + channel + four * plan.steps.0 + tap * plan.steps.1;
                            let seen = (&self.fours[start..], apart);
                            accumulate::<V, O, K, STRIDE>(simd, seen, (weights, self.down), &mut sums);
                        }
                    }
                }
                let to = &mut self.output[output + from * channels + channel..];
                let place = (to, channels);
                match by {
                    Requantization::Floats(by, _) if V::TRUNCATES => {
                        store::<V, _, CLAMPED, O>(simd, (&sums, by, &self.form), place);
                    }
                    // Where there could be floats, integers are rare, and less code for them is enough.
                    Requantization::Once(by) if V::TRUNCATES => {
                        store::<V, _, false, O>(simd, (&sums, by, &self.form), place);
                    }
                    Requantization::Once(by) => {
                        store::<V, _, CLAMPED, O>(simd, (&sums, by, &self.form), place)
                    }
                    _ => unreachable!("layers are looked at before they are packed"),
                }
                at += O;
            }
        }
    }
}

/// Lays values of four rows side by side.
#[inline(always)]
fn by_fours<V: Columns>(simd: V, rows: [&[u8]; FOUR], flip: u8, to: &mut [Four]) {
    const AT_ONCE: usize = 4 * COLUMNS;
    let length = to.len();
    let mut at = 0;
    while at < length && length >= AT_ONCE {
        // The last ones, some of them for the second time.
        let from = at.min(length - AT_ONCE);
        let mut places = [&[0; AT_ONCE]; FOUR];
        for (place, row) in places.iter_mut().zip(rows) {
            *place = &row[from..].as_chunks().0[0];
        }
        simd.by_fours(places, flip, &mut to[from..].as_chunks_mut().0[0]);
        at += AT_ONCE;
    }
    if length < AT_ONCE {
        for (at, to) in to.iter_mut().enumerate() {
            *to = std::array::from_fn(|which| rows[which][at] ^ flip);
        }
    }
}

/// Adds the products of four rows of a filter with the columns that neighbouring outputs see; weights are
/// taken for those of rows that are so many further down.
#[inline(always)]
fn accumulate<V: Columns, const O: usize, const K: usize, const STRIDE: usize>(
    simd: V,
    (seen, apart): (&[Four], usize),
    (weights, down): (&[Weights], usize),
    sums: &mut [V::I32; O],
) {
    let mut taps = [simd.splat_i32(0); K];
    for_each_constant!(tap in [0 1 2 3 4] {
        if tap < K {
            taps[tap] = simd.load_i32(&bytemuck::cast(weights[tap]));
            if down > 0 {
                // The first weight is in the lowest byte, and those that are shifted out are none.
                taps[tap] = simd.shift_left(taps[tap], down as i32 * u8::BITS as i32);
            }
        }
    });
    let count = (O - 1) * STRIDE + K;
    let seen = Strided::<_, COLUMNS>::new(seen, (count, apart));
    for_each_constant!(column in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18] {
        if column < count {
            let values = simd.load_i32(&bytemuck::cast(*seen.at(column)));
            for_each_constant!(tap in [0 1 2 3 4] {
                if tap < K && tap <= column {
                    let (output, between) = ((column - tap) / STRIDE, (column - tap) % STRIDE);
                    if between == 0 && output < O {
                        sums[output] = simd.add_byte_products(sums[output], values, taps[tap]);
                    }
                }
            });
        }
    });
}

/// Scales and stores the sums of neighbouring outputs.
#[inline(always)]
fn store<V: Columns, B: ToSteps, const CLAMPED: bool, const O: usize>(
    simd: V,
    (sums, by, form): (&[V::I32; O], &B, &ByteForm),
    (to, apart): (&mut [u8], usize),
) {
    let mut columns = [simd.splat_i32(0); MOST_OUTPUTS];
    for_each_constant!(output in [0 1 2 3 4 5 6 7] {
        if output < O {
            columns[output] = by.scale::<V, CLAMPED>(simd, sums[output]);
        }
    });
    let mut to = StridedMut::<_, COLUMNS>::new(to, (O, apart));
    for_each_constant!(four in [0 1] {
        if four * FOUR < O {
            let columns = columns.as_chunks::<FOUR>().0[four];
            let bytes = simd.bytes_of_four::<true>(columns, form);
            for_each_constant!(which in [0 1 2 3] {
                if four * FOUR + which < O {
                    *to.at(four * FOUR + which) = bytes[which];
                }
            });
        }
    });
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
