//! Operations: the numbers and names of all 107, and the node of a graph.

use serde::{Deserialize, Serialize};

use super::HalVersion;

/// HAL `OperationType`: a number, so that unknown and extension values can be carried and refused by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationType(pub u32);

macro_rules! operation_types {
    ($(#[doc = $doc:literal] $name:ident = $code:literal, $since:ident;)*) => {
        impl OperationType {
            $(#[doc = $doc] pub const $name: OperationType = OperationType($code);)*

            /// Every operation the HAL defines, by rising code.
            pub const ALL: &'static [OperationType] = &[$(OperationType::$name),*];

            /// Name, first version and what it does.
            pub(super) const fn facts(self) -> Option<(&'static str, HalVersion, &'static str)> {
                match self {
                    $(OperationType::$name => Some((stringify!($name), HalVersion::$since, $doc)),)*
                    _ => None,
                }
            }
        }
    };
}

operation_types! {
    /// Element-wise sum with broadcasting and an optional fused activation.
    ADD = 0, V1_0;
    /// Mean over each spatial window; only positions inside the image count in the divisor (shown by the generated example avg_pool_float_4).
    AVERAGE_POOL_2D = 1, V1_0;
    /// Joins tensors along one axis.
    CONCATENATION = 2, V1_0;
    /// 2-D convolution: each output channel mixes all input channels.
    CONV_2D = 3, V1_0;
    /// Depthwise convolution: each input channel has its own multiplier filters; results are concatenated.
    DEPTHWISE_CONV_2D = 4, V1_0;
    /// Moves blocks of channels into space.
    DEPTH_TO_SPACE = 5, V1_0;
    /// Converts quantised values to floating point: (q - zeroPoint) * scale.
    DEQUANTIZE = 6, V1_0;
    /// Gathers rows of a table by index.
    EMBEDDING_LOOKUP = 7, V1_0;
    /// Element-wise floor.
    FLOOR = 8, V1_0;
    /// Dense layer: activation(input * weights^T + bias).
    FULLY_CONNECTED = 9, V1_0;
    /// Gathers rows by key through a sorted key table; misses give zero rows.
    HASHTABLE_LOOKUP = 10, V1_0;
    /// Divides each vector along an axis by its L2 norm.
    L2_NORMALIZATION = 11, V1_0;
    /// Square root of the mean of squares over each window.
    L2_POOL_2D = 12, V1_0;
    /// Divides each element by (bias + alpha * windowed sum of squares)^beta along the depth (or given) axis.
    LOCAL_RESPONSE_NORMALIZATION = 13, V1_0;
    /// Element-wise sigmoid.
    LOGISTIC = 14, V1_0;
    /// Projects an input to a bit vector by locality-sensitive hashing.
    LSH_PROJECTION = 15, V1_0;
    /// One LSTM time step with optional CIFG, peephole, projection and (1.2) layer normalisation.
    LSTM = 16, V1_0;
    /// Maximum over each window.
    MAX_POOL_2D = 17, V1_0;
    /// Element-wise product with broadcasting and optional fused activation.
    MUL = 18, V1_0;
    /// Element-wise max(0, x).
    RELU = 19, V1_0;
    /// Element-wise Clamp to [-1, 1].
    RELU1 = 20, V1_0;
    /// Element-wise Clamp to [0, 6].
    RELU6 = 21, V1_0;
    /// Same values, new shape.
    RESHAPE = 22, V1_0;
    /// Bilinear image resize to a size or (1.2) by a factor.
    RESIZE_BILINEAR = 23, V1_0;
    /// One step of a basic recurrent layer.
    RNN = 24, V1_0;
    /// exp(beta*(x-max)) normalised to sum 1 along an axis.
    SOFTMAX = 25, V1_0;
    /// Moves spatial blocks into channels.
    SPACE_TO_DEPTH = 26, V1_0;
    /// Stateful layer approximating a dense layer over time by rank-limited filters.
    SVDF = 27, V1_0;
    /// Element-wise hyperbolic tangent.
    TANH = 28, V1_0;
    /// Moves batch blocks back into space (inverse of SPACE_TO_BATCH_ND).
    BATCH_TO_SPACE_ND = 29, V1_1;
    /// Element-wise division with broadcasting and optional fused activation; integers use floor division.
    DIV = 30, V1_1;
    /// Mean over the given axes.
    MEAN = 31, V1_1;
    /// Pads with zeros.
    PAD = 32, V1_1;
    /// Pads, then moves spatial blocks into the batch.
    SPACE_TO_BATCH_ND = 33, V1_1;
    /// Drops axes of size 1.
    SQUEEZE = 34, V1_1;
    /// Slice with begin, end and stride per axis.
    STRIDED_SLICE = 35, V1_1;
    /// Element-wise difference with broadcasting and optional fused activation.
    SUB = 36, V1_1;
    /// Permutes axes.
    TRANSPOSE = 37, V1_1;
    /// Element-wise absolute value.
    ABS = 38, V1_2;
    /// Index of the largest element along an axis.
    ARGMAX = 39, V1_2;
    /// Index of the smallest element along an axis.
    ARGMIN = 40, V1_2;
    /// Applies box deltas to proposals and clips to the image.
    AXIS_ALIGNED_BBOX_TRANSFORM = 41, V1_2;
    /// LSTM over a sequence in both directions, optional cross-linking or (1.3) parallel linking through an auxiliary input.
    BIDIRECTIONAL_SEQUENCE_LSTM = 42, V1_2;
    /// Basic RNN over a sequence in both directions, optional cross or (1.3) parallel linking.
    BIDIRECTIONAL_SEQUENCE_RNN = 43, V1_2;
    /// Per-class (soft) non-maximum suppression with a per-image limit.
    BOX_WITH_NMS_LIMIT = 44, V1_2;
    /// Converts element type by value, ignoring scale and zeroPoint.
    CAST = 45, V1_2;
    /// Interleaves channel groups: out[k*groups+g] = in[g*groupSize+k].
    CHANNEL_SHUFFLE = 46, V1_2;
    /// SSD box decoding plus NMS.
    DETECTION_POSTPROCESSING = 47, V1_2;
    /// Element-wise x == y with broadcasting.
    EQUAL = 48, V1_2;
    /// Element-wise exponential.
    EXP = 49, V1_2;
    /// Inserts an axis of size 1.
    EXPAND_DIMS = 50, V1_2;
    /// Gathers slices along an axis by an index tensor.
    GATHER = 51, V1_2;
    /// Region proposals from scores, deltas and anchors, with hard NMS.
    GENERATE_PROPOSALS = 52, V1_2;
    /// Element-wise x > y with broadcasting.
    GREATER = 53, V1_2;
    /// Element-wise x >= y with broadcasting.
    GREATER_EQUAL = 54, V1_2;
    /// Convolution with channel groups.
    GROUPED_CONV_2D = 55, V1_2;
    /// Keypoint score and sub-pixel position from heatmaps (quadratic Taylor refinement).
    HEATMAP_MAX_KEYPOINT = 56, V1_2;
    /// Normalises each (batch, channel) plane by its mean and variance.
    INSTANCE_NORMALIZATION = 57, V1_2;
    /// Element-wise x < y with broadcasting.
    LESS = 58, V1_2;
    /// Element-wise x <= y with broadcasting.
    LESS_EQUAL = 59, V1_2;
    /// Element-wise natural logarithm.
    LOG = 60, V1_2;
    /// Element-wise AND with broadcasting.
    LOGICAL_AND = 61, V1_2;
    /// Element-wise NOT.
    LOGICAL_NOT = 62, V1_2;
    /// Element-wise OR with broadcasting.
    LOGICAL_OR = 63, V1_2;
    /// x*beta - log(sum(exp(x*beta))) along an axis.
    LOG_SOFTMAX = 64, V1_2;
    /// Element-wise maximum with broadcasting.
    MAXIMUM = 65, V1_2;
    /// Element-wise minimum with broadcasting.
    MINIMUM = 66, V1_2;
    /// Element-wise negation.
    NEG = 67, V1_2;
    /// Element-wise x != y with broadcasting.
    NOT_EQUAL = 68, V1_2;
    /// Pads with a given constant.
    PAD_V2 = 69, V1_2;
    /// Element-wise power with broadcasting.
    POW = 70, V1_2;
    /// x for x >= 0, alpha*x otherwise, alpha broadcast.
    PRELU = 71, V1_2;
    /// Converts floating point to quantised values.
    QUANTIZE = 72, V1_2;
    /// LSTM step with 8-bit activations and 16-bit cell state.
    QUANTIZED_16BIT_LSTM = 73, V1_2;
    /// Draws class indices from unnormalised log-probabilities.
    RANDOM_MULTINOMIAL = 74, V1_2;
    /// Reduction over axes by logical AND.
    REDUCE_ALL = 75, V1_2;
    /// Reduction over axes by logical OR.
    REDUCE_ANY = 76, V1_2;
    /// Reduction over axes by maximum.
    REDUCE_MAX = 77, V1_2;
    /// Reduction over axes by minimum.
    REDUCE_MIN = 78, V1_2;
    /// Reduction over axes by product.
    REDUCE_PROD = 79, V1_2;
    /// Reduction over axes by sum.
    REDUCE_SUM = 80, V1_2;
    /// Average of bilinear samples in each bin of each region.
    ROI_ALIGN = 81, V1_2;
    /// Maximum in each rounded bin of each region.
    ROI_POOLING = 82, V1_2;
    /// Element-wise reciprocal square root.
    RSQRT = 83, V1_2;
    /// Element-wise choice between two tensors by a mask; no broadcasting.
    SELECT = 84, V1_2;
    /// Element-wise sine.
    SIN = 85, V1_2;
    /// Contiguous slice by begin and size.
    SLICE = 86, V1_2;
    /// Splits evenly along an axis.
    SPLIT = 87, V1_2;
    /// Element-wise square root.
    SQRT = 88, V1_2;
    /// Repeats a tensor per axis.
    TILE = 89, V1_2;
    /// k largest values and their indices along the last axis, descending.
    TOPK_V2 = 90, V1_2;
    /// Gradient of CONV_2D with respect to its input (deconvolution).
    TRANSPOSE_CONV_2D = 91, V1_2;
    /// LSTM over a sequence.
    UNIDIRECTIONAL_SEQUENCE_LSTM = 92, V1_2;
    /// Basic RNN over a sequence.
    UNIDIRECTIONAL_SEQUENCE_RNN = 93, V1_2;
    /// Nearest-neighbour image resize.
    RESIZE_NEAREST_NEIGHBOR = 94, V1_2;
    /// LSTM step with signed 8-bit input/output, 8-bit symmetric weights and 16-bit state; optional CIFG, peephole, projection, layer normalisation.
    QUANTIZED_LSTM = 95, V1_3;
    /// Runs one of two subgraphs chosen by a boolean.
    IF = 96, V1_3;
    /// Runs a body subgraph while a condition subgraph yields true.
    WHILE = 97, V1_3;
    /// max(0,x) + min(0, alpha*(exp(x)-1)).
    ELU = 98, V1_3;
    /// x * clamp(x+3, 0, 6) / 6.
    HARD_SWISH = 99, V1_3;
    /// Creates a tensor filled with one value.
    FILL = 100, V1_3;
    /// Number of dimensions of a tensor, as a scalar.
    RANK = 101, V1_3;
    /// Product of the matrices of two tensors, batch by batch; each may be transposed first.
    BATCH_MATMUL = 102, Level6;
    /// Joins tensors along a new axis.
    PACK = 103, Level6;
    /// Pads with the mirrored values of the tensor, its border excluded (mode 0) or included (mode 1).
    MIRROR_PAD = 104, Level7;
    /// Reverses the order along an axis.
    REVERSE = 105, Level7;
    /// Vendor-defined; deprecated since 1.2 in favour of extensions.
    OEM_OPERATION = 10000, V1_0;
}

impl OperationType {
    /// First HAL version that has the operation; extension operations came with 1.2.
    #[must_use]
    pub fn since(self) -> Option<HalVersion> {
        if self.is_extension() {
            Some(HalVersion::V1_2)
        } else {
            self.facts().map(|(_, since, _)| since)
        }
    }

    /// The operation `number` of the extension that stands under `prefix`, above 0, in a model.
    #[must_use]
    pub const fn extension(prefix: u16, number: u16) -> OperationType {
        OperationType(((prefix as u32) << 16) | number as u32)
    }

    /// Whether the high half names an extension.
    #[must_use]
    pub fn is_extension(self) -> bool {
        self.0 > 0xFFFF
    }

    /// The extension's prefix in the model, for extension operations.
    #[must_use]
    pub fn extension_prefix(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The number inside the extension, for extension operations.
    #[must_use]
    pub fn extension_number(self) -> u16 {
        self.0 as u16
    }

    /// Whether the operation runs subgraphs.
    #[must_use]
    pub fn is_control_flow(self) -> bool {
        self == OperationType::IF || self == OperationType::WHILE
    }
}

/// HAL `Operation`: a node of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// What to compute.
    pub operation_type: OperationType,
    /// Operand indexes of the inputs, in the order of the operation's signature.
    pub inputs: Vec<u32>,
    /// Operand indexes of the outputs, in the order of the operation's signature.
    pub outputs: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::OperationType;

    #[test]
    fn there_are_107_operations_with_unique_names_and_codes() {
        assert_eq!(OperationType::ALL.len(), 107);
        for (index, operation) in OperationType::ALL.iter().enumerate() {
            assert_eq!(
                OperationType::from_name(operation.name().unwrap()),
                Some(*operation)
            );
            assert!(
                OperationType::ALL[index + 1..]
                    .iter()
                    .all(|other| other.0 > operation.0)
            );
        }
    }
}
