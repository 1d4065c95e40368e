//! What AMX's tiles hold, as it lies in memory.

/// Rows of a tile, and columns of a tile of 32-bit sums.
pub(in crate::fast) const SIDE: usize = 16;

/// Values along the common dimension of one product of tiles of 16-bit values.
pub(in crate::fast) const DEEP: usize = 32;

/// A tile of 16-bit values: sixteen rows of [`DEEP`] values each; or, on the right of a product, for each two
/// values along the common dimension sixteen pairs, one of each column.
type Tile = [[u16; DEEP]; SIDE];

/// Three tiles of bfloat16 values whose sums are 32-bit floats: the uppermost eight bits of each, the next,
/// and the last.
pub(in crate::fast) type Bf16x3 = [Tile; 3];

/// Sums of two tiles of rows with two panels of columns: by row, by panel.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(in crate::fast) struct TileSums(pub(in crate::fast) [[[f32; SIDE]; 2]; 2 * SIDE]);

/// Values along the common dimension of one product of tiles of bytes.
pub(in crate::fast) const DEEP_BYTES: usize = 64;

/// Bytes of a tile on the right of a product: for each four values along the common dimension sixteen fours,
/// one of each column.
pub(in crate::fast) const TILE_BYTES: usize = SIDE * DEEP_BYTES;

/// Sums of two tiles of rows with two panels of columns: by row, by panel.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(in crate::fast) struct ByteSums(pub(in crate::fast) [[[i32; SIDE]; 2]; 2 * SIDE]);
