//! Layers, products of matrices, pools and SOFTMAX of 16-bit steps.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::signature::{Param, Ty, Variant};
use crate::ops::{
    batch_matmul, convolution, depthwise_convolution, filters, fully_connected, pooling, softmax,
    transpose_convolution,
};
use crate::{HalVersion, OperandType as T, tflite};

use HalVersion::{V1_2, V1_3};

use super::types::{SIXTEEN_BIT, with_types};

pub(super) const ENTRIES: &[OperationEntry] = &[
    with_types(pooling::ENTRIES, tflite::AVERAGE_POOL_2D, SIXTEEN_BIT),
    with_types(batch_matmul::ENTRIES, tflite::BATCH_MATMUL, SIXTEEN_BIT),
    with_types(
        convolution::ENTRIES,
        tflite::CONV_2D,
        &filters::sixteen_bit(filters::per_channel_along_0),
    ),
    with_types(
        depthwise_convolution::ENTRIES,
        tflite::DEPTHWISE_CONV_2D,
        &filters::sixteen_bit(filters::per_channel_along_3),
    ),
    with_types(
        fully_connected::ENTRIES,
        tflite::FULLY_CONNECTED,
        &[Variant::new(V1_3, filters::SIXTEEN_BIT)],
    ),
    with_types(pooling::ENTRIES, tflite::MAX_POOL_2D, SIXTEEN_BIT),
    OperationEntry {
        outputs: &[Param::new("output", Ty::Var(2))],
        ..with_types(
            softmax::ENTRIES,
            tflite::SOFTMAX,
            &[
                Variant::new(
                    V1_2,
                    &[T::TENSOR_QUANT16_SYMM, T::FLOAT32, T::TENSOR_QUANT16_SYMM],
                ),
                Variant::new(
                    V1_3,
                    &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::FLOAT32, T::TENSOR_QUANT16_ASYMM],
                ),
            ],
        )
    },
    with_types(
        transpose_convolution::ENTRIES,
        tflite::TRANSPOSE_CONV_2D,
        &filters::sixteen_bit(filters::per_channel_along_0),
    ),
];
