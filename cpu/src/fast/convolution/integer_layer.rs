//! Convolutions and fully connected layers of floats whose weights are 8-bit integers, for an input of
//! integers: both are multiplied as bytes.

use nnhal_os::buffer::AlignedSlice;

use super::copies::{Source, Unsigned};
use super::patches::Patches;
use super::products::cost;
use crate::fast::matmul::integers::{FOUR, Finish, PackedIntegers};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::fast::strips::{Frame, Outputs};
use crate::interrupt::Interrupt as _;
use crate::plan::cost::BYTES_TIMES_AS_FAST;
use crate::threads::{Grid, Team};

/// Whether the weights of a layer are 8-bit integers, and the layer if so.
#[derive(Debug)]
pub(in crate::fast) struct Integers {
    flag: AlignedSlice,
    layer: Option<IntegerLayer>,
}

impl Integers {
    /// Of a layer with so many columns of `depth` weights each, floats that need not be aligned: the whole of
    /// one column behind the other's.
    pub(in crate::fast) fn new(
        (columns, depth): (usize, usize),
        patches: Patches,
        weights: &[u8],
        packing: &mut Packing,
    ) -> Result<Integers, PackingError> {
        let weight = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
        let weights = || weights.as_chunks().0;
        let is_integer = |bytes: &[u8; 4]| f32::from(weight(bytes) as i8) == weight(bytes);
        let takes = PackedIntegers::takes(depth) && patches.depth() == depth && patches.count() > 0;
        let (are_integers, flag) = packing.flag(|| takes && weights().iter().all(is_integer))?;
        let layer = if takes && are_integers {
            let weight = |column: usize, at: usize| weight(&weights()[column * depth + at]) as i8;
            let weights = PackedIntegers::new((columns, depth), packing, weight)?;
            Some(IntegerLayer { weights, patches })
        } else {
            None
        };
        Ok(Integers { flag, layer })
    }

    /// What was packed.
    pub(in crate::fast) fn packed(&self) -> impl Iterator<Item = &AlignedSlice> {
        let weights = self.layer.iter().map(|layer| layer.weights.packed());
        std::iter::once(&self.flag).chain(weights)
    }

    /// The layer.
    pub(in crate::fast) fn layer(&self) -> Option<&IntegerLayer> {
        self.layer.as_ref()
    }
}

/// A layer without bias and activation whose weights are 8-bit integers.
#[derive(Debug)]
pub(crate) struct IntegerLayer {
    weights: PackedIntegers,
    patches: Patches,
}

/// How a layer is parted among threads, and where its rows lie.
#[derive(Debug)]
pub(in crate::fast) struct Parted<'a> {
    threads: usize,
    grid: Grid,
    source: Source<'a>,
    /// Bytes of memory for each thread's copies.
    copies: usize,
}

impl Parted<'_> {
    /// Bytes of memory for all copies.
    pub(in crate::fast) fn copies(&self) -> usize {
        self.threads * self.copies
    }
}

impl IntegerLayer {
    /// How many values the input has.
    pub(in crate::fast) fn inputs(&self) -> usize {
        self.patches.image_size(&self.patches.input) * self.patches.input.batch as usize
    }

    /// How many values the output has for each column, and how many columns there are.
    pub(in crate::fast) fn outputs(&self) -> [usize; 2] {
        [self.patches.count(), self.weights.sizes().0]
    }

    /// The weights.
    pub(in crate::fast) fn weights(&self) -> &PackedIntegers {
        &self.weights
    }

    /// Bytes from a copied row to the next.
    fn row(&self) -> usize {
        self.weights.sizes().1.next_multiple_of(FOUR)
    }

    /// How `team` parts it.
    pub(in crate::fast) fn parted(&self, team: &Team<'_>) -> Parted<'_> {
        let (patches, matrix) = (&self.patches, self.weights.packed().bytes().len());
        let parts = team.parts_for(cost(patches, matrix, BYTES_TIMES_AS_FAST));
        let columns = self.weights.sizes().0;
        // The windows of each image alone, but for pixels, which are rows of one large image.
        let images = if patches.are_pixels() {
            1
        } else {
            patches.output.batch.max(1) as usize
        };
        let rows = patches.count() / images;
        let grid = partition::product(parts.of_each(images), (rows, self.row()), (columns, matrix));
        let part = patches.input.channels as usize
            * if patches.horizontal.dilation == 1 {
                patches.horizontal.filter as usize
            } else {
                1
            };
        let is_whole = part.is_multiple_of(FOUR);
        let frame = Frame::of(patches, grid.rows_per_block);
        let source = Source {
            patches,
            frame: frame.filter(|_| is_whole && !patches.are_pixels()),
            // Rows that are copied have nothing between their parts.
            unit: if is_whole { FOUR } else { 1 },
            apart: self.row(),
        };
        Parted {
            threads: grid.most_threads(parts.threads),
            copies: source.copies::<Unsigned<u8>>(grid.rows_per_block),
            grid,
            source,
        }
    }

    /// Multiplies bytes with the weights; `zero` is what stands for 0. `copies` is memory of
    /// [`Parted::copies`].
    pub(in crate::fast) fn run(
        &self,
        parted: &Parted<'_>,
        (input, zero): (&[u8], u8),
        (output, finish): (&mut [f32], Finish<'_>),
        (copies, team): (&mut [u8], &Team<'_>),
    ) {
        let patches = &self.patches;
        let images = if patches.are_pixels() {
            patches.input.batch as usize
        } else {
            1
        };
        let image = |extents| (patches.image_size(extents) * images).max(1);
        let inputs = input.chunks_exact(image(&patches.input));
        let outputs = output.chunks_exact_mut(image(&patches.output));
        for (image, (input, output)) in inputs.zip(outputs).enumerate() {
            if image > 0 && team.check().is_err() {
                break;
            }
            let memory = &mut copies[..parted.copies()];
            team.for_each_block(parted.threads, &parted.grid, (output, memory), |block, copies| {
                let outputs = Outputs {
                    first: block.first_row(),
                    count: block.rows(),
                };
                let form = Unsigned::<u8>::new(zero);
                let lines = parted.source.lines(form, input, outputs, copies);
                self.weights.multiply(lines, finish, block);
            });
        }
    }
}
