//! Operations that move values, of every type and rank.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::pad::PADDINGS;
use crate::ops::signature::{Form, Param, Rank, Ty, Variant};
use crate::ops::{gather, lookup, pack, pad, reverse, slice, split, tile, transpose};
use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, tflite};

use HalVersion::{V1_2, V1_3};

use super::types::{INDICES, MOVED, with_types};

const INPUT: Param = Param::new("input", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK));

/// The tensor and the scalar that fills the room; the quantised ones take an integer in the tensor's own
/// steps, and for 64-bit integers, of which there is no scalar, it is a tensor of one element.
const PAD_V2_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::INT32]),
    Variant::new(V1_2, &[tflite::TENSOR_INT64, tflite::TENSOR_INT64]),
    Variant::new(V1_2, &[T::TENSOR_BOOL8, T::BOOL]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::INT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::INT32]),
];

/// An operation of NNAPI for every type.
const fn moving(family: &'static [OperationEntry], operation: OperationType) -> OperationEntry {
    with_types(family, operation, MOVED)
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    moving(lookup::ENTRIES, tflite::EMBEDDING_LOOKUP),
    OperationEntry {
        forms: &[Form::default(&[INPUT, PADDINGS])],
        ..moving(pad::ENTRIES, tflite::PAD)
    },
    OperationEntry {
        forms: &[Form::default(&[
            INPUT,
            Param::integers("begin"),
            Param::integers("end"),
            Param::integers("strides"),
            Param::scalar("begin_mask", T::INT32),
            Param::scalar("end_mask", T::INT32),
            Param::scalar("shrink_axis_mask", T::INT32),
            Param::scalar("from_begin", T::BOOL).trailing(V1_2),
        ])],
        ..moving(slice::ENTRIES, tflite::STRIDED_SLICE)
    },
    OperationEntry {
        forms: &[Form::default(&[
            INPUT,
            Param::integers("permutation").omissible(),
        ])],
        ..moving(transpose::ENTRIES, tflite::TRANSPOSE)
    },
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::scalar("axis", T::INT32),
            Param::new("indices", INDICES),
            Param::scalar("batch_dims", T::INT32).trailing(V1_2),
        ])],
        ..moving(gather::ENTRIES, tflite::GATHER)
    },
    OperationEntry {
        variants: PAD_V2_TYPES,
        forms: &[Form::default(&[
            INPUT,
            PADDINGS,
            Param::new("pad_value", Ty::Var(1)),
        ])],
        ..moving(pad::ENTRIES, tflite::PAD_V2)
    },
    moving(slice::ENTRIES, tflite::SLICE),
    moving(split::ENTRIES, tflite::SPLIT),
    moving(tile::ENTRIES, tflite::TILE),
    moving(pack::ENTRIES, tflite::PACK),
    moving(pad::ENTRIES, tflite::MIRROR_PAD),
    moving(reverse::ENTRIES, tflite::REVERSE),
];
