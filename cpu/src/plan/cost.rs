//! How long things take: the figures by which nodes are fused and parted among threads. Each has the reason
//! or the measurement behind it.

use std::iter::Sum;
use std::time::Duration;

/// What one thread gets through in a microsecond: multiply-adds of small matrix products on a processor with
/// AVX2, and bytes to and from a second-level cache, or, if there are more than it holds, memory.
pub(crate) const MULTIPLY_ADDS_PER_US: u64 = 30_000;
const CACHED_BYTES_PER_US: u64 = 40_000;
const BYTES_PER_US: u64 = 8_000;

/// What a second-level cache holds of an operation's bytes.
const CACHED_BYTES: u64 = 512 * 1024;

/// How much work an operation is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Products that are summed, or as many as take as long where they are faster than those of floats with
    /// AVX2.
    pub(crate) multiply_adds: u64,
    /// Bytes read and written.
    pub(crate) bytes: u64,
}

impl Cost {
    /// Of what does little more than to read and write so many bytes.
    pub(crate) fn of_bytes(bytes: usize) -> Cost {
        Cost {
            multiply_adds: 0,
            bytes: bytes as u64,
        }
    }

    /// About how many microseconds one thread takes.
    pub(crate) fn micros(self) -> u64 {
        self.nanos() / 1000
    }

    /// The same in nanoseconds.
    pub(crate) fn nanos(self) -> u64 {
        let at = |amount: u64, per_us| amount.saturating_mul(1000) / per_us;
        let cached = self.bytes.min(CACHED_BYTES);
        let moving = at(cached, CACHED_BYTES_PER_US) + at(self.bytes - cached, BYTES_PER_US);
        moving.max(at(self.multiply_adds, MULTIPLY_ADDS_PER_US))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), |all, each| Cost {
            multiply_adds: all.multiply_adds.saturating_add(each.multiply_adds),
            bytes: all.bytes.saturating_add(each.bytes),
        })
    }
}

// Helper threads.

/// How long an operation, or all operations of an execution that can be parted, must take to be worth
/// helpers: waking one that sleeps takes some ten microseconds, in a virtual machine some tens. In
/// microseconds.
pub(crate) const MIN_FOR_HELPERS: u64 = 50;

/// How long all operations of an execution that can be parted must take to try whether helpers are worth it:
/// where one execution follows the other, helpers are awake, and models of some tens of microseconds have
/// been faster with them. In microseconds.
pub(crate) const MIN_FOR_TRIAL: u64 = 20;

/// Executions whose operations that can be parted take longer are always worth helpers. In microseconds.
pub(crate) const MIN_FOR_HELPERS_ALWAYS: u64 = 4 * MIN_FOR_HELPERS;

/// How long an operation must take to be worth a helper that looks for work already, since more follows in
/// the same execution. Handing over and taking back costs about half a microsecond; but if one thread
/// computes all of it, the other has to fetch what it needs of it for the next operation from the first one's
/// cache. In microseconds.
pub(crate) const MIN_FOR_PARTITION: u64 = 1;

/// How long a helper looks for the next operation before it sleeps. Waking it takes its leader 12 to 16 us on
/// a virtual machine, and it comes 30 to 45 us after; networks gained from looking for longer than that, but
/// from no more than this.
pub(crate) const SPIN: Duration = Duration::from_micros(150);

/// How often a helper looks for work between two looks at the clock.
pub(crate) const LOOKS_BETWEEN_CLOCKS: u32 = 16;

/// After looking for the next execution's work so often in vain, a helper does so only once in
/// [`LINGERS_ONCE_IN`] times.
pub(crate) const LINGERS_IN_VAIN: u32 = 3;
pub(crate) const LINGERS_ONCE_IN: u32 = 32;

/// How many executions in a row try whether they are faster with helpers or without.
pub(crate) const TRIED: u32 = 8;

/// How many after a change are not compared: caches have to follow it, and helpers to get up.
pub(crate) const SETTLING: u32 = 2;

/// After how many executions the other way is tried again: at first, and twice as many each time that it is
/// no better, so that in the end two in a thousand executions are in a worse way.
pub(crate) const LEAST_PERIOD: u32 = 256;
pub(crate) const MOST_PERIOD: u32 = 4096;

/// Inputs of fewer bytes take one thread no longer to copy than a few microseconds.
pub(crate) const MIN_BYTES_FOR_THREADS: usize = 64 * 1024;

// Parts of an output.

/// How much work of an operation is done between two checks whether the execution is to go on, where that
/// costs no more than a few per cent. In microseconds; half of the 200 that are aimed at, as these figures
/// are off by as much on some processors.
pub(crate) const BETWEEN_CHECKS: u64 = 100;

/// Most blocks for each thread, so that one that comes late or is held up leaves the others something to do.
/// Not more, but to stop within large operations: then threads that are on time compute the same part of each
/// operation, and what one wrote another seldom reads, for which its processor would have to fetch it from
/// that one's cache.
pub(crate) const BLOCKS_PER_THREAD: usize = 2;

/// Fewest rows of a block of a matrix product with all columns, in tiles: the matrix passes the processor
/// once for each block, and with fewer rows it could not come fast enough, be it out of a second-level cache
/// or from further away.
pub(crate) const LEAST_TILES: usize = 8;
pub(crate) const LEAST_TILES_NEAR: usize = 2;

/// How large a matrix is at most that stays in a second-level cache, beside what it is multiplied with.
pub(crate) const NEAR_BYTES: usize = 256 * 1024;

/// How many times as large as all rows a matrix is at most that each thread had better read whole than all of
/// the rows: some of them were just written by another thread, and come out of its processor's cache more
/// slowly than the matrix from where it is.
pub(crate) const MATRIX_PER_ROWS: usize = 8;

/// Where each thread computes its own rows of layers that follow each other, the one that has most to do
/// computes at most one part in so many more than an equal share. Networks whose layers take a few
/// microseconds each were as fast with 8 and slower with 16.
pub(crate) const MORE_AT_BORDERS: u64 = 6;

// Tiles, as those of AMX, in place of vectors.

/// Least rows, least values along the common dimension, and least weights for tiles of bytes: with fewer,
/// sums are stored and loaded again for too few products each, or rows copied for too few columns. Measured
/// on a Granite Rapids.
pub(crate) const LEAST_ROWS_FOR_BYTE_TILES: usize = 16;
pub(crate) const LEAST_DEPTH_FOR_BYTE_TILES: usize = 128;
pub(crate) const LEAST_WEIGHTS_FOR_BYTE_TILES: usize = 48 * LEAST_DEPTH_FOR_BYTE_TILES;

/// Least rows and columns, and least values along the common dimension and side by side, for tiles of floats
/// that are parted: with fewer, parting values takes longer than is gained, or tiles hold mostly nothing.
/// Measured on a Granite Rapids, when vectors took two panels at a time.
pub(crate) const LEAST_ROWS_FOR_FLOAT_TILES: usize = 40;
pub(crate) const LEAST_COLUMNS_FOR_FLOAT_TILES: usize = 48;
pub(crate) const LEAST_DEPTH_FOR_FLOAT_TILES: usize = 48;

/// Most values along the common dimension for them: two tiles of rows take about half of a second-level
/// cache.
pub(crate) const MOST_DEPTH_FOR_FLOAT_TILES: usize = 4096;

/// Larger matrices of parted floats do not stay in a second-level cache beside all else: as many rows as fit
/// are multiplied with a panel while it is there.
pub(crate) const NEAR_BYTES_OF_FLOAT_TILES: usize = 1 << 20;

/// Bytes of the tiles of rows that are multiplied with a panel of such a matrix at a time.
pub(crate) const FAR_ROWS_BYTES: usize = 384 * 1024;

// Choices among kernels.

/// How many times as fast as those of floats products of bytes are taken to be, where an instruction has
/// them.
pub(crate) const BYTES_TIMES_AS_FAST: u64 = 2;

/// Fewer elements of a sum of bytes than these gain less from floats than proving them takes, however often
/// they are computed: trying all pairs takes as long as 65,536 elements and more, and a model may have many
/// small sums.
pub(crate) const MIN_FOR_PROOF: usize = 2048;

/// Where an image is wider by more than this than the one that it is resized to, most of what is made for
/// each row would not be used, and the work would grow faster than the operands do.
pub(crate) const MOST_LEFT_OUT: u32 = 4;

/// As many bytes that are only moved take about as long as a result of resizing, and as a place of an extreme
/// among a few bytes.
pub(crate) const BYTES_PER_RESIZED: u64 = 16;
pub(crate) const BYTES_PER_PLACE: usize = 8;

// Operations that are computed as one.

/// Most operations after one that are looked at with it.
pub(crate) const MOST_AHEAD: usize = 64;

/// Most element-wise operations that are computed as one.
pub(crate) const MOST_FUSED: usize = 32;

/// Most operations between two that are computed as one which have nothing to do with them, as those that
/// work out what the result is scaled with.
pub(crate) const MOST_BETWEEN: usize = 4;

/// Most bytes of the matrix of a layer in a chain.
pub(crate) const MOST_CHAINED_MATRIX_BYTES: usize = 128 * 1024;

/// Most bytes of a thread's strips.
pub(crate) const STRIPS_BYTES: usize = 768 * 1024;

/// The same for more rows at a time than [`FEW_ROWS`].
pub(crate) const STRIPS_OF_MANY_BYTES: usize = 128 * 1024;

/// Fewer rows at a time cost more than strips that fill much of a second-level cache: what is done once for
/// each step weighs more.
pub(crate) const FEW_ROWS: usize = 4;

/// From where on layers are worth a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainThreshold {
    /// Fewest threads that compute it.
    pub(crate) threads: usize,
    /// Least bytes of a tensor between two layers, and of a result on which element-wise operations follow.
    pub(crate) bytes: usize,
    /// Least rows of the result: with fewer there is little between those that are computed at a time and
    /// all, and among threads.
    pub(crate) rows: usize,
    /// Fewest layers.
    pub(crate) layers: usize,
}

impl ChainThreshold {
    /// For any number of threads: smaller tensors stay near without being parted.
    pub(crate) const ALWAYS: ChainThreshold = ChainThreshold {
        threads: 1,
        bytes: 512 * 1024,
        rows: 16,
        layers: 1,
    };

    /// For several threads, as far as they compute little twice ([`MORE_AT_BORDERS`]): a chain is as long as
    /// is good for two, and where that is too long for more, those compute as one does. To fetch a smaller
    /// tensor from the processor that has computed it, and to wait for that, takes less time than to compute
    /// borders twice.
    pub(crate) const BY_SEVERAL: ChainThreshold = ChainThreshold {
        threads: 2,
        bytes: 64 * 1024,
        rows: 8,
        layers: 2,
    };
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn effort_is_the_longer_of_computing_and_moving() {
        let cost = |multiply_adds, bytes| Cost { multiply_adds, bytes }.micros();
        assert_eq!(cost(600_000, 0), 20);
        assert_eq!(cost(600_000, 1_600_000), 147);
        assert_eq!(cost(600_000, 400_000), 20);
        assert_eq!(cost(0, 400_000), 10);
        assert_eq!(cost(0, 0), 0);
    }
}
