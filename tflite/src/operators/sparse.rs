//! Sparse constants, spelled out.
//!
//! A sparse tensor is stored level by level, in an order of its own. The levels are the dimensions, and then
//! one more for each dimension that is cut into blocks. A dense level has all its indices; a compressed one
//! lists, for each position of the levels above, the segment of its indices that occur.

use crate::file::reader::Deferred;
use crate::file::tables::{DimensionMetadata, Int32Vector, Sparsity, Uint8Vector, Uint16Vector};
use crate::values;

/// A level of the stored form.
enum Level {
    Dense(usize),
    Compressed {
        segments: Vec<usize>,
        indices: Vec<usize>,
    },
}

/// The bytes of the tensor with these dimensions, in their usual order; elements that are not stored are zero
/// bytes.
pub(super) fn densify(
    sparsity: &Sparsity<'_>,
    dimensions: &[u32],
    element_size: usize,
    data: &[u8],
) -> Result<Vec<u8>, String> {
    let size = dimensions
        .iter()
        .try_fold(element_size, |product, extent| {
            product.checked_mul(*extent as usize)
        })
        .filter(|size| *size <= values::MAX_GENERATED_BYTES)
        .ok_or_else(|| format!("has dimensions {dimensions:?}, which is too large to spell out"))?;
    let layout = Layout::new(sparsity, dimensions)?;
    let mut walk = Walk {
        layout: &layout,
        coordinates: vec![0; layout.levels.len()],
        element_size,
        stored: data.chunks_exact(element_size),
        // Levels that name nothing stored could otherwise be walked forever.
        steps_left: size.saturating_add(data.len()).saturating_mul(4),
        dense: vec![0; size],
    };
    walk.level(0, 0)?;
    if walk.stored.next().is_some() {
        return Err("has more stored elements than its sparse levels name".to_owned());
    }
    Ok(walk.dense)
}

/// How the levels stand for the dimensions.
struct Layout {
    levels: Vec<Level>,
    /// Which dimension each level is of; numbers from the rank on are blocks.
    order: Vec<usize>,
    /// For each block, the dimension that it cuts.
    blocks: Vec<usize>,
    /// For each block, its extent.
    block_extents: Vec<usize>,
    dimensions: Vec<usize>,
}

impl Layout {
    fn new(sparsity: &Sparsity<'_>, dimensions: &[u32]) -> Result<Layout, String> {
        let rank = dimensions.len();
        let order = indexes(sparsity.traversal_order.iter(), "traversal order")?;
        let blocks = indexes(sparsity.block_map.iter(), "block map")?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let is_permutation = sorted.iter().copied().eq(0..rank + blocks.len());
        // One block for a dimension at most, which also bounds the depth of the walk.
        let is_permutation = is_permutation && blocks.len() <= rank;
        if !is_permutation
            || sparsity.dim_metadata.len() != order.len()
            || blocks.iter().any(|at| *at >= rank)
        {
            return Err("has sparse levels that do not match its dimensions".to_owned());
        }
        let levels: Vec<Level> = sparsity
            .dim_metadata
            .iter()
            .map(level)
            .collect::<Result<_, _>>()?;
        let mut block_extents = vec![0; blocks.len()];
        for (level, dimension) in levels.iter().zip(&order) {
            if let Some(block) = dimension.checked_sub(rank) {
                let Level::Dense(extent) = level else {
                    return Err("has a compressed block, which the format does not allow".to_owned());
                };
                block_extents[block] = *extent;
            }
        }
        Ok(Layout {
            levels,
            order,
            blocks,
            block_extents,
            dimensions: dimensions.iter().map(|extent| *extent as usize).collect(),
        })
    }

    /// The position in the usual order of the element at these indices of the levels.
    fn position(&self, coordinates: &[usize]) -> Result<usize, String> {
        let rank = self.dimensions.len();
        let mut index = vec![0_usize; rank];
        let mut inner = vec![0_usize; rank];
        let mut extents = vec![1_usize; rank];
        for (coordinate, dimension) in coordinates.iter().zip(&self.order) {
            match dimension.checked_sub(rank) {
                None => index[*dimension] = *coordinate,
                Some(block) => {
                    inner[self.blocks[block]] = *coordinate;
                    extents[self.blocks[block]] = self.block_extents[block];
                }
            }
        }
        let mut position = 0_usize;
        for at in 0..rank {
            let coordinate = index[at].saturating_mul(extents[at]).saturating_add(inner[at]);
            if coordinate >= self.dimensions[at] {
                return Err(format!(
                    "stores an element at {coordinate} of dimension {at}, which is outside"
                ));
            }
            position = position * self.dimensions[at] + coordinate;
        }
        Ok(position)
    }
}

fn indexes(values: impl Iterator<Item = i32>, what: &str) -> Result<Vec<usize>, String> {
    values
        .map(|value| usize::try_from(value).map_err(|_| format!("has {value} in its {what}")))
        .collect()
}

fn level(table: &DimensionMetadata<'_>) -> Result<Level, String> {
    match table.format {
        0 => Ok(Level::Dense(
            usize::try_from(table.dense_size).map_err(|_| "has a dense level of negative extent")?,
        )),
        1 => Ok(Level::Compressed {
            segments: index_vector(table.array_segments_type, &table.array_segments)?,
            indices: index_vector(table.array_indices_type, &table.array_indices)?,
        }),
        other => Err(format!("has a sparse level of format {other}, must be 0 or 1")),
    }
}

/// A vector of indices, which the format stores in one of three widths.
fn index_vector(kind: u8, table: &Deferred<'_>) -> Result<Vec<usize>, String> {
    let damaged = |error| format!("has damaged sparse indices: {error}");
    match kind {
        1 => {
            let values = table
                .decode::<Int32Vector<'_>>()
                .map_err(damaged)?
                .unwrap_or_default()
                .values;
            indexes(values.iter(), "sparse indices")
        }
        2 => {
            let values = table
                .decode::<Uint16Vector<'_>>()
                .map_err(damaged)?
                .unwrap_or_default()
                .values;
            Ok(values.iter().map(usize::from).collect())
        }
        3 => {
            let values = table
                .decode::<Uint8Vector<'_>>()
                .map_err(damaged)?
                .unwrap_or_default()
                .values;
            Ok(values.iter().map(usize::from).collect())
        }
        other => Err(format!("has sparse indices of type {other}, must be 1 to 3")),
    }
}

/// A walk over the stored elements in their order.
struct Walk<'l, 'd> {
    layout: &'l Layout,
    coordinates: Vec<usize>,
    element_size: usize,
    stored: std::slice::ChunksExact<'d, u8>,
    steps_left: usize,
    dense: Vec<u8>,
}

impl Walk<'_, '_> {
    /// Visits everything below one position of the levels above `at`. Every leaf takes a stored element, so
    /// that the walk ends with the data.
    fn level(&mut self, at: usize, position: usize) -> Result<(), String> {
        let Some(level) = self.layout.levels.get(at) else {
            return self.element();
        };
        self.steps_left = self
            .steps_left
            .checked_sub(1)
            .ok_or("has sparse levels that name too little data")?;
        match level {
            Level::Dense(extent) => {
                for index in 0..*extent {
                    self.steps_left = self
                        .steps_left
                        .checked_sub(1)
                        .ok_or("has too large a dense level")?;
                    self.coordinates[at] = index;
                    self.level(at + 1, position.saturating_mul(*extent).saturating_add(index))?;
                }
            }
            Level::Compressed { segments, indices } => {
                let bounds = segments
                    .get(position)
                    .zip(segments.get(position.saturating_add(1)));
                let (start, end) = bounds.ok_or("has too few segments in a sparse level")?;
                let found = indices
                    .get(*start..*end)
                    .ok_or("has a segment outside its sparse indices")?;
                for (offset, index) in found.iter().enumerate() {
                    self.coordinates[at] = *index;
                    self.level(at + 1, start + offset)?;
                }
            }
        }
        Ok(())
    }

    fn element(&mut self) -> Result<(), String> {
        let value = self
            .stored
            .next()
            .ok_or("has fewer stored elements than its sparse levels name")?;
        let start = self.layout.position(&self.coordinates)? * self.element_size;
        let place = self.dense.get_mut(start..start + self.element_size);
        place
            .ok_or("stores an element outside its dimensions")?
            .copy_from_slice(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Level, Walk};

    fn walk(layout: &Layout, data: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut walk = Walk {
            layout,
            coordinates: vec![0; layout.levels.len()],
            element_size: 1,
            stored: data.chunks_exact(1),
            steps_left: 1000,
            dense: vec![0; size],
        };
        walk.level(0, 0)?;
        Ok(walk.dense)
    }

    fn rows(segments: &[usize], indices: &[usize]) -> Layout {
        Layout {
            levels: vec![
                Level::Dense(2),
                Level::Compressed {
                    segments: segments.to_vec(),
                    indices: indices.to_vec(),
                },
            ],
            order: vec![0, 1],
            blocks: Vec::new(),
            block_extents: Vec::new(),
            dimensions: vec![2, 3],
        }
    }

    #[test]
    fn compressed_rows_are_spelled_out() {
        let layout = rows(&[0, 1, 3], &[2, 0, 1]);
        assert_eq!(walk(&layout, &[7, 8, 9], 6).unwrap(), [0, 0, 7, 8, 9, 0]);
    }

    #[test]
    fn blocks_are_put_side_by_side() {
        // A 2 by 4 matrix in blocks of 1 by 2, of which the second row has only the last.
        let layout = Layout {
            levels: vec![
                Level::Dense(2),
                Level::Compressed {
                    segments: vec![0, 0, 1],
                    indices: vec![1],
                },
                Level::Dense(2),
            ],
            order: vec![0, 1, 2],
            blocks: vec![1],
            block_extents: vec![2],
            dimensions: vec![2, 4],
        };
        assert_eq!(walk(&layout, &[5, 6], 8).unwrap(), [0, 0, 0, 0, 0, 0, 5, 6]);
    }

    #[test]
    fn indices_outside_and_data_too_short_are_refused() {
        assert!(walk(&rows(&[0, 1, 2], &[3, 0]), &[7, 8], 6).is_err());
        assert!(walk(&rows(&[0, 1, 2], &[2, 0]), &[7], 6).is_err());
        assert!(walk(&rows(&[0, 5, 2], &[2, 0]), &[7, 8], 6).is_err());
        assert!(walk(&rows(&[0], &[2, 0]), &[7, 8], 6).is_err());
    }
}
