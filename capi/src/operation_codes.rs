//! The numbers of the operations.

#![allow(non_camel_case_types, reason = "the names are the public interface's own")]

/// What an operation computes. The signatures are in docs/operations.md.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationCode {
    /// Element-wise sum with broadcasting and an optional fused activation. Since feature level 27.
    ANEURALNETWORKS_ADD = 0,
    /// Mean over each spatial window; only positions inside the image count in the divisor (shown by the
    /// generated example avg_pool_float_4). Since feature level 27.
    ANEURALNETWORKS_AVERAGE_POOL_2D = 1,
    /// Joins tensors along one axis. Since feature level 27.
    ANEURALNETWORKS_CONCATENATION = 2,
    /// 2-D convolution: each output channel mixes all input channels. Since feature level 27.
    ANEURALNETWORKS_CONV_2D = 3,
    /// Depthwise convolution: each input channel has its own multiplier filters; results are concatenated.
    /// Since feature level 27.
    ANEURALNETWORKS_DEPTHWISE_CONV_2D = 4,
    /// Moves blocks of channels into space. Since feature level 27.
    ANEURALNETWORKS_DEPTH_TO_SPACE = 5,
    /// Converts quantised values to floating point: (q - zeroPoint) * scale. Since feature level 27.
    ANEURALNETWORKS_DEQUANTIZE = 6,
    /// Gathers rows of a table by index. Since feature level 27.
    ANEURALNETWORKS_EMBEDDING_LOOKUP = 7,
    /// Element-wise floor. Since feature level 27.
    ANEURALNETWORKS_FLOOR = 8,
    /// Dense layer: activation(input * weights^T + bias). Since feature level 27.
    ANEURALNETWORKS_FULLY_CONNECTED = 9,
    /// Gathers rows by key through a sorted key table; misses give zero rows. Since feature level 27.
    ANEURALNETWORKS_HASHTABLE_LOOKUP = 10,
    /// Divides each vector along an axis by its L2 norm. Since feature level 27.
    ANEURALNETWORKS_L2_NORMALIZATION = 11,
    /// Square root of the mean of squares over each window. Since feature level 27.
    ANEURALNETWORKS_L2_POOL_2D = 12,
    /// Divides each element by (bias + alpha * windowed sum of squares)^beta along the depth (or given) axis.
    /// Since feature level 27.
    ANEURALNETWORKS_LOCAL_RESPONSE_NORMALIZATION = 13,
    /// Element-wise sigmoid. Since feature level 27.
    ANEURALNETWORKS_LOGISTIC = 14,
    /// Projects an input to a bit vector by locality-sensitive hashing. Since feature level 27.
    ANEURALNETWORKS_LSH_PROJECTION = 15,
    /// One LSTM time step with optional CIFG, peephole, projection and (1.2) layer normalisation. Since
    /// feature level 27.
    ANEURALNETWORKS_LSTM = 16,
    /// Maximum over each window. Since feature level 27.
    ANEURALNETWORKS_MAX_POOL_2D = 17,
    /// Element-wise product with broadcasting and optional fused activation. Since feature level 27.
    ANEURALNETWORKS_MUL = 18,
    /// Element-wise max(0, x). Since feature level 27.
    ANEURALNETWORKS_RELU = 19,
    /// Element-wise Clamp to [-1, 1]. Since feature level 27.
    ANEURALNETWORKS_RELU1 = 20,
    /// Element-wise Clamp to [0, 6]. Since feature level 27.
    ANEURALNETWORKS_RELU6 = 21,
    /// Same values, new shape. Since feature level 27.
    ANEURALNETWORKS_RESHAPE = 22,
    /// Bilinear image resize to a size or (1.2) by a factor. Since feature level 27.
    ANEURALNETWORKS_RESIZE_BILINEAR = 23,
    /// One step of a basic recurrent layer. Since feature level 27.
    ANEURALNETWORKS_RNN = 24,
    /// exp(beta*(x-max)) normalised to sum 1 along an axis. Since feature level 27.
    ANEURALNETWORKS_SOFTMAX = 25,
    /// Moves spatial blocks into channels. Since feature level 27.
    ANEURALNETWORKS_SPACE_TO_DEPTH = 26,
    /// Stateful layer approximating a dense layer over time by rank-limited filters. Since feature level 27.
    ANEURALNETWORKS_SVDF = 27,
    /// Element-wise hyperbolic tangent. Since feature level 27.
    ANEURALNETWORKS_TANH = 28,
    /// Moves batch blocks back into space (inverse of SPACE_TO_BATCH_ND). Since feature level 28.
    ANEURALNETWORKS_BATCH_TO_SPACE_ND = 29,
    /// Element-wise division with broadcasting and optional fused activation; integers use floor division.
    /// Since feature level 28.
    ANEURALNETWORKS_DIV = 30,
    /// Mean over the given axes. Since feature level 28.
    ANEURALNETWORKS_MEAN = 31,
    /// Pads with zeros. Since feature level 28.
    ANEURALNETWORKS_PAD = 32,
    /// Pads, then moves spatial blocks into the batch. Since feature level 28.
    ANEURALNETWORKS_SPACE_TO_BATCH_ND = 33,
    /// Drops axes of size 1. Since feature level 28.
    ANEURALNETWORKS_SQUEEZE = 34,
    /// Slice with begin, end and stride per axis. Since feature level 28.
    ANEURALNETWORKS_STRIDED_SLICE = 35,
    /// Element-wise difference with broadcasting and optional fused activation. Since feature level 28.
    ANEURALNETWORKS_SUB = 36,
    /// Permutes axes. Since feature level 28.
    ANEURALNETWORKS_TRANSPOSE = 37,
    /// Element-wise absolute value. Since feature level 29.
    ANEURALNETWORKS_ABS = 38,
    /// Index of the largest element along an axis. Since feature level 29.
    ANEURALNETWORKS_ARGMAX = 39,
    /// Index of the smallest element along an axis. Since feature level 29.
    ANEURALNETWORKS_ARGMIN = 40,
    /// Applies box deltas to proposals and clips to the image. Since feature level 29.
    ANEURALNETWORKS_AXIS_ALIGNED_BBOX_TRANSFORM = 41,
    /// LSTM over a sequence in both directions, optional cross-linking or (1.3) parallel linking through an
    /// auxiliary input. Since feature level 29.
    ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_LSTM = 42,
    /// Basic RNN over a sequence in both directions, optional cross or (1.3) parallel linking. Since feature
    /// level 29.
    ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_RNN = 43,
    /// Per-class (soft) non-maximum suppression with a per-image limit. Since feature level 29.
    ANEURALNETWORKS_BOX_WITH_NMS_LIMIT = 44,
    /// Converts element type by value, ignoring scale and zeroPoint. Since feature level 29.
    ANEURALNETWORKS_CAST = 45,
    /// Interleaves channel groups: out[k*groups+g] = in[g*groupSize+k]. Since feature level 29.
    ANEURALNETWORKS_CHANNEL_SHUFFLE = 46,
    /// SSD box decoding plus NMS. Since feature level 29.
    ANEURALNETWORKS_DETECTION_POSTPROCESSING = 47,
    /// Element-wise x == y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_EQUAL = 48,
    /// Element-wise exponential. Since feature level 29.
    ANEURALNETWORKS_EXP = 49,
    /// Inserts an axis of size 1. Since feature level 29.
    ANEURALNETWORKS_EXPAND_DIMS = 50,
    /// Gathers slices along an axis by an index tensor. Since feature level 29.
    ANEURALNETWORKS_GATHER = 51,
    /// Region proposals from scores, deltas and anchors, with hard NMS. Since feature level 29.
    ANEURALNETWORKS_GENERATE_PROPOSALS = 52,
    /// Element-wise x > y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_GREATER = 53,
    /// Element-wise x >= y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_GREATER_EQUAL = 54,
    /// Convolution with channel groups. Since feature level 29.
    ANEURALNETWORKS_GROUPED_CONV_2D = 55,
    /// Keypoint score and sub-pixel position from heatmaps (quadratic Taylor refinement). Since feature
    /// level 29.
    ANEURALNETWORKS_HEATMAP_MAX_KEYPOINT = 56,
    /// Normalises each (batch, channel) plane by its mean and variance. Since feature level 29.
    ANEURALNETWORKS_INSTANCE_NORMALIZATION = 57,
    /// Element-wise x < y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_LESS = 58,
    /// Element-wise x <= y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_LESS_EQUAL = 59,
    /// Element-wise natural logarithm. Since feature level 29.
    ANEURALNETWORKS_LOG = 60,
    /// Element-wise AND with broadcasting. Since feature level 29.
    ANEURALNETWORKS_LOGICAL_AND = 61,
    /// Element-wise NOT. Since feature level 29.
    ANEURALNETWORKS_LOGICAL_NOT = 62,
    /// Element-wise OR with broadcasting. Since feature level 29.
    ANEURALNETWORKS_LOGICAL_OR = 63,
    /// x*beta - log(sum(exp(x*beta))) along an axis. Since feature level 29.
    ANEURALNETWORKS_LOG_SOFTMAX = 64,
    /// Element-wise maximum with broadcasting. Since feature level 29.
    ANEURALNETWORKS_MAXIMUM = 65,
    /// Element-wise minimum with broadcasting. Since feature level 29.
    ANEURALNETWORKS_MINIMUM = 66,
    /// Element-wise negation. Since feature level 29.
    ANEURALNETWORKS_NEG = 67,
    /// Element-wise x != y with broadcasting. Since feature level 29.
    ANEURALNETWORKS_NOT_EQUAL = 68,
    /// Pads with a given constant. Since feature level 29.
    ANEURALNETWORKS_PAD_V2 = 69,
    /// Element-wise power with broadcasting. Since feature level 29.
    ANEURALNETWORKS_POW = 70,
    /// x for x >= 0, alpha*x otherwise, alpha broadcast. Since feature level 29.
    ANEURALNETWORKS_PRELU = 71,
    /// Converts floating point to quantised values. Since feature level 29.
    ANEURALNETWORKS_QUANTIZE = 72,
    /// LSTM step with 8-bit activations and 16-bit cell state. Since feature level 29.
    ANEURALNETWORKS_QUANTIZED_16BIT_LSTM = 73,
    /// Draws class indices from unnormalised log-probabilities. Since feature level 29.
    ANEURALNETWORKS_RANDOM_MULTINOMIAL = 74,
    /// Reduction over axes by logical AND. Since feature level 29.
    ANEURALNETWORKS_REDUCE_ALL = 75,
    /// Reduction over axes by logical OR. Since feature level 29.
    ANEURALNETWORKS_REDUCE_ANY = 76,
    /// Reduction over axes by maximum. Since feature level 29.
    ANEURALNETWORKS_REDUCE_MAX = 77,
    /// Reduction over axes by minimum. Since feature level 29.
    ANEURALNETWORKS_REDUCE_MIN = 78,
    /// Reduction over axes by product. Since feature level 29.
    ANEURALNETWORKS_REDUCE_PROD = 79,
    /// Reduction over axes by sum. Since feature level 29.
    ANEURALNETWORKS_REDUCE_SUM = 80,
    /// Average of bilinear samples in each bin of each region. Since feature level 29.
    ANEURALNETWORKS_ROI_ALIGN = 81,
    /// Maximum in each rounded bin of each region. Since feature level 29.
    ANEURALNETWORKS_ROI_POOLING = 82,
    /// Element-wise reciprocal square root. Since feature level 29.
    ANEURALNETWORKS_RSQRT = 83,
    /// Element-wise choice between two tensors by a mask; no broadcasting. Since feature level 29.
    ANEURALNETWORKS_SELECT = 84,
    /// Element-wise sine. Since feature level 29.
    ANEURALNETWORKS_SIN = 85,
    /// Contiguous slice by begin and size. Since feature level 29.
    ANEURALNETWORKS_SLICE = 86,
    /// Splits evenly along an axis. Since feature level 29.
    ANEURALNETWORKS_SPLIT = 87,
    /// Element-wise square root. Since feature level 29.
    ANEURALNETWORKS_SQRT = 88,
    /// Repeats a tensor per axis. Since feature level 29.
    ANEURALNETWORKS_TILE = 89,
    /// k largest values and their indices along the last axis, descending. Since feature level 29.
    ANEURALNETWORKS_TOPK_V2 = 90,
    /// Gradient of CONV_2D with respect to its input (deconvolution). Since feature level 29.
    ANEURALNETWORKS_TRANSPOSE_CONV_2D = 91,
    /// LSTM over a sequence. Since feature level 29.
    ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_LSTM = 92,
    /// Basic RNN over a sequence. Since feature level 29.
    ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_RNN = 93,
    /// Nearest-neighbour image resize. Since feature level 29.
    ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR = 94,
    /// LSTM step with signed 8-bit input/output, 8-bit symmetric weights and 16-bit state; optional CIFG,
    /// peephole, projection, layer normalisation. Since feature level 30.
    ANEURALNETWORKS_QUANTIZED_LSTM = 95,
    /// Runs one of two subgraphs chosen by a boolean. Since feature level 30.
    ANEURALNETWORKS_IF = 96,
    /// Runs a body subgraph while a condition subgraph yields true. Since feature level 30.
    ANEURALNETWORKS_WHILE = 97,
    /// max(0,x) + min(0, alpha*(exp(x)-1)). Since feature level 30.
    ANEURALNETWORKS_ELU = 98,
    /// x * clamp(x+3, 0, 6) / 6. Since feature level 30.
    ANEURALNETWORKS_HARD_SWISH = 99,
    /// Creates a tensor filled with one value. Since feature level 30.
    ANEURALNETWORKS_FILL = 100,
    /// Number of dimensions of a tensor, as a scalar. Since feature level 30.
    ANEURALNETWORKS_RANK = 101,
    /// Product of the matrices of two tensors, batch by batch; each may be transposed first. Since feature
    /// level 1000006.
    ANEURALNETWORKS_BATCH_MATMUL = 102,
    /// Joins tensors along a new axis. Since feature level 1000006.
    ANEURALNETWORKS_PACK = 103,
    /// Pads with the mirrored values of the tensor, its border excluded (mode 0) or included (mode 1). Since
    /// feature level 1000007.
    ANEURALNETWORKS_MIRROR_PAD = 104,
    /// Reverses the order along an axis. Since feature level 1000007.
    ANEURALNETWORKS_REVERSE = 105,
    /// Deprecated: an operation of a vendor, outside of extensions.
    ANEURALNETWORKS_OEM_OPERATION = 10000,
}

#[cfg(test)]
mod tests {
    use nnhal_client::OperationType;

    use super::OperationCode;

    #[test]
    fn numbers_are_those_of_the_hal() {
        let text = include_str!("operation_codes.rs");
        let listed: Vec<(&str, u32)> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ANEURALNETWORKS_")?.strip_suffix(','))
            .filter_map(|line| line.split_once(" = "))
            .filter_map(|(name, code)| Some((name, code.parse().ok()?)))
            .collect();
        let expected: Vec<(&str, u32)> = OperationType::ALL
            .iter()
            .filter_map(|operation| Some((operation.name()?, operation.0)))
            .collect();
        assert_eq!(listed, expected);
        assert_eq!(OperationCode::ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR as u32, 94);
    }
}
