//! Operations that move values, of every type and rank.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::pad::PADDINGS;
use crate::ops::signature::{Form, Param, Rank, Ty, Variant};
use crate::ops::slice::vector;
use crate::ops::{gather, lookup, pack, pad, reverse, slice, split, tile, transpose};
use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, tflite};

use HalVersion::{V1_2, V1_3};

use super::types::MOVED;

const INPUT: Param = Param::new("input", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK));

/// The tensor and the scalar that fills the room; the quantised ones take an integer in the tensor's own
/// steps.
const PAD_V2_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::INT32]),
    Variant::new(V1_2, &[T::TENSOR_BOOL8, T::BOOL]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::INT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::INT32]),
];

/// An operation of NNAPI for every type.
const fn moving(operation: OperationType, narrow: OperationEntry) -> OperationEntry {
    OperationEntry {
        operation,
        variants: MOVED,
        ..narrow
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    moving(tflite::EMBEDDING_LOOKUP, lookup::EMBEDDING_LOOKUP),
    OperationEntry {
        forms: &[Form::default(&[INPUT, PADDINGS])],
        ..moving(tflite::PAD, pad::PAD)
    },
    OperationEntry {
        forms: &[Form::default(&[
            INPUT,
            vector("begin"),
            vector("end"),
            vector("strides"),
            Param::scalar("begin_mask", T::INT32),
            Param::scalar("end_mask", T::INT32),
            Param::scalar("shrink_axis_mask", T::INT32),
            Param::scalar("from_begin", T::BOOL).trailing(V1_2),
        ])],
        ..moving(tflite::STRIDED_SLICE, slice::STRIDED_SLICE)
    },
    OperationEntry {
        forms: &[Form::default(&[
            INPUT,
            Param::new("permutation", Ty::Is(T::TENSOR_INT32))
                .rank(Rank::Is(1))
                .omissible(),
        ])],
        ..moving(tflite::TRANSPOSE, transpose::TRANSPOSE)
    },
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::scalar("axis", T::INT32),
            Param::new("indices", Ty::Is(T::TENSOR_INT32)),
            Param::scalar("batch_dims", T::INT32).trailing(V1_2),
        ])],
        ..moving(tflite::GATHER, gather::GATHER)
    },
    OperationEntry {
        variants: PAD_V2_TYPES,
        forms: &[Form::default(&[
            INPUT,
            PADDINGS,
            Param::new("pad_value", Ty::Var(1)),
        ])],
        ..moving(tflite::PAD_V2, pad::PAD_V2)
    },
    moving(tflite::SLICE, slice::SLICE),
    moving(tflite::SPLIT, split::SPLIT),
    moving(tflite::TILE, tile::TILE),
    moving(tflite::PACK, pack::PACK),
    moving(tflite::MIRROR_PAD, pad::MIRROR_PAD),
    moving(tflite::REVERSE, reverse::REVERSE),
];
