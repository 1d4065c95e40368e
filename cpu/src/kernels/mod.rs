//! The reference kernels, one file per operation family, and the list that the executor looks them up in.
//!
//! A family is added by one line in `FAMILIES`.

pub(crate) mod activation;
pub mod activation_range;
mod arg;
mod arithmetic;
mod batch_matmul;
mod bbox_transform;
mod bitcast;
mod bits;
pub(crate) mod blocks;
mod box_with_nms_limit;
mod boxes;
pub(crate) mod broadcast;
mod broadcast_args;
mod broadcast_to;
mod bucketize;
mod cast;
pub(crate) mod cell_activation;
mod channel_shuffle;
mod comparison;
mod concatenation;
mod convolution;
mod cumsum;
mod depthwise_convolution;
mod detection_postprocessing;
mod diagonals;
mod dilate;
mod dynamic_update_slice;
pub mod element;
mod fake_quant;
mod fill;
mod filters;
mod fingerprint;
pub mod fixed_point;
pub mod fixed_point_functions;
mod floor_division;
mod fully_connected;
mod gather;
pub(crate) mod gelu;
mod generate_proposals;
mod hard_swish;
mod heatmap;
#[cfg(test)]
mod hostile_extents;
#[cfg(test)]
mod hostile_moves;
mod image;
mod index;
mod interpolated;
pub(crate) mod layer;
mod logical;
mod lookup;
mod lsh_projection;
pub(crate) mod lstm;
mod lstm_cell;
mod mirror_pad;
mod non_max_suppression;
mod normalization;
mod one_hot;
mod pack;
mod pad;
mod philox;
mod places;
mod pooling;
mod prelu;
mod products;
mod quantization;
mod quantized_16bit_lstm;
mod quantized_function;
mod quantized_layer_norm;
mod quantized_lstm;
mod quantized_lstm_cell;
mod quantized_lstm_gates;
mod quantized_svdf;
mod random;
mod random_bits;
mod random_floats;
mod range;
pub(crate) mod recurrent;
mod reduce_window;
mod reduction;
mod regions;
mod reshape;
pub(crate) mod resize;
mod reverse;
mod reverse_sequence;
pub(crate) mod rnn;
mod roi;
mod scatter;
mod searching;
mod segments;
mod select;
mod shape;
pub(crate) mod slice;
pub(crate) mod softmax;
mod space_batch;
mod space_depth;
mod spectra;
mod split;
mod svdf;
#[cfg(test)]
pub(crate) mod testing;
mod threefry;
mod tile;
mod topk;
pub(crate) mod transpose;
mod transpose_convolution;
mod unary;
mod volumes;

use nnhal_hal::OperationType;

use crate::kernel::Kernel;

/// The kernels, by family.
const FAMILIES: &[&[(OperationType, Kernel)]] = &[
    activation::KERNELS,
    arg::KERNELS,
    arithmetic::KERNELS,
    batch_matmul::KERNELS,
    bbox_transform::KERNELS,
    bitcast::KERNELS,
    bits::KERNELS,
    box_with_nms_limit::KERNELS,
    bucketize::KERNELS,
    cast::KERNELS,
    broadcast_args::KERNELS,
    broadcast_to::KERNELS,
    channel_shuffle::KERNELS,
    comparison::KERNELS,
    concatenation::KERNELS,
    convolution::KERNELS,
    cumsum::KERNELS,
    depthwise_convolution::KERNELS,
    detection_postprocessing::KERNELS,
    diagonals::KERNELS,
    dilate::KERNELS,
    dynamic_update_slice::KERNELS,
    fake_quant::KERNELS,
    fill::KERNELS,
    floor_division::KERNELS,
    fully_connected::KERNELS,
    gather::KERNELS,
    gelu::KERNELS,
    generate_proposals::KERNELS,
    hard_swish::KERNELS,
    heatmap::KERNELS,
    logical::KERNELS,
    lookup::KERNELS,
    lsh_projection::KERNELS,
    lstm::KERNELS,
    mirror_pad::KERNELS,
    non_max_suppression::KERNELS,
    normalization::KERNELS,
    one_hot::KERNELS,
    pack::KERNELS,
    pad::KERNELS,
    pooling::KERNELS,
    prelu::KERNELS,
    quantization::KERNELS,
    quantized_16bit_lstm::KERNELS,
    quantized_lstm::KERNELS,
    quantized_svdf::KERNELS,
    random::KERNELS,
    random_bits::KERNELS,
    random_floats::KERNELS,
    range::KERNELS,
    reduce_window::KERNELS,
    reduction::KERNELS,
    regions::KERNELS,
    reshape::KERNELS,
    resize::KERNELS,
    reverse::KERNELS,
    reverse_sequence::KERNELS,
    rnn::KERNELS,
    roi::KERNELS,
    scatter::KERNELS,
    searching::KERNELS,
    segments::KERNELS,
    select::KERNELS,
    shape::KERNELS,
    slice::KERNELS,
    softmax::KERNELS,
    space_batch::KERNELS,
    space_depth::KERNELS,
    spectra::KERNELS,
    split::KERNELS,
    svdf::KERNELS,
    tile::KERNELS,
    topk::KERNELS,
    transpose::KERNELS,
    transpose_convolution::KERNELS,
    unary::KERNELS,
    volumes::KERNELS,
];

/// The kernel of `operation`, or `None` if there is none. Control flow is the executor's own.
#[must_use]
pub fn kernel(operation: OperationType) -> Option<Kernel> {
    FAMILIES
        .iter()
        .copied()
        .flatten()
        .find(|(implemented, _)| *implemented == operation)
        .map(|(_, kernel)| *kernel)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperationType, ops, tflite};

    use super::kernel;

    #[test]
    fn every_operation_of_the_hal_has_rules_and_a_kernel() {
        // Control flow is the executor's, and nobody but its vendor knows what an OEM operation does.
        let own = |operation: &OperationType| {
            operation.is_control_flow() || *operation == OperationType::OEM_OPERATION
        };
        let standard = OperationType::ALL.iter().filter(|operation| !own(operation));
        for operation in standard.chain(tflite::OPERATIONS) {
            assert!(
                ops::entry(*operation).is_some(),
                "{operation} is not in the table"
            );
            assert!(kernel(*operation).is_some(), "{operation} has no kernel");
        }
    }

    #[test]
    fn oem_operations_are_refused_with_the_reason() {
        assert!(kernel(OperationType::OEM_OPERATION).is_none());
        let reason = crate::Program::refusal(OperationType::OEM_OPERATION).unwrap();
        assert!(reason.contains("vendor-specific"), "{reason}");
    }
}
