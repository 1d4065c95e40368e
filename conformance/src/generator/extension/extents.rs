//! Extents that several arguments of an operation share.

use nnhal_hal::tflite;

use crate::generator::arguments::Arguments;

/// How many places SCATTER_ND and SPARSE_TO_DENSE write to, and how many indices name each.
pub(super) struct Places {
    pub(super) count: u32,
    pub(super) depth: u32,
}

impl Places {
    pub(super) fn of(arguments: &Arguments<'_>) -> Places {
        let [count, depth, ..] = arguments.extents;
        let rank = arguments.spelled_out.len() as u32;
        Places {
            count,
            depth: if arguments.operation == tflite::SCATTER_ND {
                depth.min(rank)
            } else {
                rank
            },
        }
    }
}

/// The axes of sequences and of batches in REVERSE_SEQUENCE. The lengths, which come before them, need them.
pub(super) fn sequence_and_batch(arguments: &Arguments<'_>, rank: usize) -> [usize; 2] {
    let [sequence, batch, ..] = arguments.extents.map(|extent| extent as usize);
    [sequence % rank, batch % rank]
}

/// How many first axes input and indices of GATHER share. The indices, which come before it, need it, too.
pub(super) fn shared_axes(arguments: &Arguments<'_>, axis: usize) -> usize {
    let has_flag = arguments.names.iter().any(|name| name == "batchdims");
    let wanted = if has_flag {
        arguments.extents[1] as usize - 1
    } else {
        0
    };
    wanted.min(axis)
}

/// How many segments there are. The segments that rows are in, which come before it, need it.
pub(super) fn segments(arguments: &Arguments<'_>) -> u32 {
    arguments.extents[0] + arguments.extents[1] - 2
}

/// The axis of the regions for each axis of the tensor of GATHER_REGIONS or SCATTER_REGIONS, once drawn.
pub(super) fn region_axes(arguments: &Arguments<'_>, before: &[u32]) -> Option<Vec<i32>> {
    let (axes, _) = arguments
        .argument("regionaxes", before)?
        .value
        .as_ref()?
        .bytes()
        .as_chunks::<4>();
    Some(axes.iter().map(|axis| i32::from_le_bytes(*axis)).collect())
}
