// SPDX-License-Identifier: Apache-2.0
//
// The C API of NNAPI, up to feature level 5, as libneuralnetworks.so of nnhal has it.
//
// Every function that returns an int returns a ResultCode. NULL for an object, or for a place to write to, is
// UNEXPECTED_NULL, before anything else is looked at; names of codes are given here without ANEURALNETWORKS_. What
// went wrong is told in words by nnhal_last_error. Functions may be called from any thread; one object is changed by one
// thread at a time.
//
// Made from the sources by `cargo run -p nnhal-capi --example header`.

#ifndef NNHAL_NEURAL_NETWORKS_H
#define NNHAL_NEURAL_NETWORKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Priority of compilations that set none.
#define ANEURALNETWORKS_PRIORITY_DEFAULT 100

// Values of operands up to this size are copied by `ANeuralNetworksModel_setOperandValue`.
#define ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES 128

// Size of the token of `ANeuralNetworksCompilation_setCaching` in bytes.
#define ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN 32

// How a function ended.
typedef enum {
  // Success.
  ANEURALNETWORKS_NO_ERROR = 0,
  // This process has no memory for it.
  ANEURALNETWORKS_OUT_OF_MEMORY = 1,
  // What was asked for is only partly there.
  ANEURALNETWORKS_INCOMPLETE = 2,
  // An argument that must not be NULL is.
  ANEURALNETWORKS_UNEXPECTED_NULL = 3,
  // An argument, a model or a request breaks a rule.
  ANEURALNETWORKS_BAD_DATA = 4,
  // The operation failed.
  ANEURALNETWORKS_OP_FAILED = 5,
  // The object is in a state that does not allow the call.
  ANEURALNETWORKS_BAD_STATE = 6,
  // A memory cannot be mapped.
  ANEURALNETWORKS_UNMAPPABLE = 7,
  // The buffer of an output is too small.
  ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE = 8,
  // The device is not there or cannot be reached.
  ANEURALNETWORKS_UNAVAILABLE_DEVICE = 9,
  // The time limit was missed; another try may meet it.
  ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT = 10,
  // The time limit was missed and would be again.
  ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT = 11,
  // A resource was exhausted; another try may find it.
  ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT = 12,
  // A resource is exhausted, now and later.
  ANEURALNETWORKS_RESOURCE_EXHAUSTED_PERSISTENT = 13,
  // The driver's process died.
  ANEURALNETWORKS_DEAD_OBJECT = 14,
} ResultCode;

// What an operand is.
typedef enum {
  // A 32-bit float.
  ANEURALNETWORKS_FLOAT32 = 0,
  // A signed 32-bit integer.
  ANEURALNETWORKS_INT32 = 1,
  // An unsigned 32-bit integer.
  ANEURALNETWORKS_UINT32 = 2,
  // A tensor of 32-bit floats.
  ANEURALNETWORKS_TENSOR_FLOAT32 = 3,
  // A tensor of signed 32-bit integers.
  ANEURALNETWORKS_TENSOR_INT32 = 4,
  // A tensor of unsigned bytes that mean (value - zeroPoint) * scale.
  ANEURALNETWORKS_TENSOR_QUANT8_ASYMM = 5,
  // One byte: 0 is false, anything else true. Since feature level 29.
  ANEURALNETWORKS_BOOL = 6,
  // A tensor of signed 16-bit integers that mean value * scale. Since feature level 29.
  ANEURALNETWORKS_TENSOR_QUANT16_SYMM = 7,
  // A tensor of 16-bit floats. Since feature level 29.
  ANEURALNETWORKS_TENSOR_FLOAT16 = 8,
  // A tensor of bytes: 0 is false, anything else true. Since feature level 29.
  ANEURALNETWORKS_TENSOR_BOOL8 = 9,
  // A 16-bit float. Since feature level 29.
  ANEURALNETWORKS_FLOAT16 = 10,
  // A tensor of signed bytes with a scale for each index of one dimension. Since feature level 29.
  ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
  // A tensor of unsigned 16-bit integers that mean (value - zeroPoint) * scale. Since feature level 29.
  ANEURALNETWORKS_TENSOR_QUANT16_ASYMM = 12,
  // A tensor of signed bytes that mean value * scale. Since feature level 29.
  ANEURALNETWORKS_TENSOR_QUANT8_SYMM = 13,
  // A tensor of signed bytes that mean (value - zeroPoint) * scale. Since feature level 30.
  ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED = 14,
  // A model, which IF and WHILE run. Since feature level 30.
  ANEURALNETWORKS_MODEL = 15,
  // Deprecated: a scalar of a vendor, outside of extensions.
  ANEURALNETWORKS_OEM_SCALAR = 10000,
  // Deprecated: a tensor of a vendor, outside of extensions.
  ANEURALNETWORKS_TENSOR_OEM_BYTE = 10001,
} OperandCode;

// What an operation computes. The signatures are in docs/operations.md.
typedef enum {
  // Element-wise sum with broadcasting and an optional fused activation. Since feature level 27.
  ANEURALNETWORKS_ADD = 0,
  // Mean over each spatial window; only positions inside the image count in the divisor (shown by the
  // generated example avg_pool_float_4). Since feature level 27.
  ANEURALNETWORKS_AVERAGE_POOL_2D = 1,
  // Joins tensors along one axis. Since feature level 27.
  ANEURALNETWORKS_CONCATENATION = 2,
  // 2-D convolution: each output channel mixes all input channels. Since feature level 27.
  ANEURALNETWORKS_CONV_2D = 3,
  // Depthwise convolution: each input channel has its own multiplier filters; results are concatenated.
  // Since feature level 27.
  ANEURALNETWORKS_DEPTHWISE_CONV_2D = 4,
  // Moves blocks of channels into space. Since feature level 27.
  ANEURALNETWORKS_DEPTH_TO_SPACE = 5,
  // Converts quantised values to floating point: (q - zeroPoint) * scale. Since feature level 27.
  ANEURALNETWORKS_DEQUANTIZE = 6,
  // Gathers rows of a table by index. Since feature level 27.
  ANEURALNETWORKS_EMBEDDING_LOOKUP = 7,
  // Element-wise floor. Since feature level 27.
  ANEURALNETWORKS_FLOOR = 8,
  // Dense layer: activation(input * weights^T + bias). Since feature level 27.
  ANEURALNETWORKS_FULLY_CONNECTED = 9,
  // Gathers rows by key through a sorted key table; misses give zero rows. Since feature level 27.
  ANEURALNETWORKS_HASHTABLE_LOOKUP = 10,
  // Divides each vector along an axis by its L2 norm. Since feature level 27.
  ANEURALNETWORKS_L2_NORMALIZATION = 11,
  // Square root of the mean of squares over each window. Since feature level 27.
  ANEURALNETWORKS_L2_POOL_2D = 12,
  // Divides each element by (bias + alpha * windowed sum of squares)^beta along the depth (or given) axis.
  // Since feature level 27.
  ANEURALNETWORKS_LOCAL_RESPONSE_NORMALIZATION = 13,
  // Element-wise sigmoid. Since feature level 27.
  ANEURALNETWORKS_LOGISTIC = 14,
  // Projects an input to a bit vector by locality-sensitive hashing. Since feature level 27.
  ANEURALNETWORKS_LSH_PROJECTION = 15,
  // One LSTM time step with optional CIFG, peephole, projection and (1.2) layer normalisation. Since
  // feature level 27.
  ANEURALNETWORKS_LSTM = 16,
  // Maximum over each window. Since feature level 27.
  ANEURALNETWORKS_MAX_POOL_2D = 17,
  // Element-wise product with broadcasting and optional fused activation. Since feature level 27.
  ANEURALNETWORKS_MUL = 18,
  // Element-wise max(0, x). Since feature level 27.
  ANEURALNETWORKS_RELU = 19,
  // Element-wise Clamp to [-1, 1]. Since feature level 27.
  ANEURALNETWORKS_RELU1 = 20,
  // Element-wise Clamp to [0, 6]. Since feature level 27.
  ANEURALNETWORKS_RELU6 = 21,
  // Same values, new shape. Since feature level 27.
  ANEURALNETWORKS_RESHAPE = 22,
  // Bilinear image resize to a size or (1.2) by a factor. Since feature level 27.
  ANEURALNETWORKS_RESIZE_BILINEAR = 23,
  // One step of a basic recurrent layer. Since feature level 27.
  ANEURALNETWORKS_RNN = 24,
  // exp(beta*(x-max)) normalised to sum 1 along an axis. Since feature level 27.
  ANEURALNETWORKS_SOFTMAX = 25,
  // Moves spatial blocks into channels. Since feature level 27.
  ANEURALNETWORKS_SPACE_TO_DEPTH = 26,
  // Stateful layer approximating a dense layer over time by rank-limited filters. Since feature level 27.
  ANEURALNETWORKS_SVDF = 27,
  // Element-wise hyperbolic tangent. Since feature level 27.
  ANEURALNETWORKS_TANH = 28,
  // Moves batch blocks back into space (inverse of SPACE_TO_BATCH_ND). Since feature level 28.
  ANEURALNETWORKS_BATCH_TO_SPACE_ND = 29,
  // Element-wise division with broadcasting and optional fused activation; integers use floor division.
  // Since feature level 28.
  ANEURALNETWORKS_DIV = 30,
  // Mean over the given axes. Since feature level 28.
  ANEURALNETWORKS_MEAN = 31,
  // Pads with zeros. Since feature level 28.
  ANEURALNETWORKS_PAD = 32,
  // Pads, then moves spatial blocks into the batch. Since feature level 28.
  ANEURALNETWORKS_SPACE_TO_BATCH_ND = 33,
  // Drops axes of size 1. Since feature level 28.
  ANEURALNETWORKS_SQUEEZE = 34,
  // Slice with begin, end and stride per axis. Since feature level 28.
  ANEURALNETWORKS_STRIDED_SLICE = 35,
  // Element-wise difference with broadcasting and optional fused activation. Since feature level 28.
  ANEURALNETWORKS_SUB = 36,
  // Permutes axes. Since feature level 28.
  ANEURALNETWORKS_TRANSPOSE = 37,
  // Element-wise absolute value. Since feature level 29.
  ANEURALNETWORKS_ABS = 38,
  // Index of the largest element along an axis. Since feature level 29.
  ANEURALNETWORKS_ARGMAX = 39,
  // Index of the smallest element along an axis. Since feature level 29.
  ANEURALNETWORKS_ARGMIN = 40,
  // Applies box deltas to proposals and clips to the image. Since feature level 29.
  ANEURALNETWORKS_AXIS_ALIGNED_BBOX_TRANSFORM = 41,
  // LSTM over a sequence in both directions, optional cross-linking or (1.3) parallel linking through an
  // auxiliary input. Since feature level 29.
  ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_LSTM = 42,
  // Basic RNN over a sequence in both directions, optional cross or (1.3) parallel linking. Since feature
  // level 29.
  ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_RNN = 43,
  // Per-class (soft) non-maximum suppression with a per-image limit. Since feature level 29.
  ANEURALNETWORKS_BOX_WITH_NMS_LIMIT = 44,
  // Converts element type by value, ignoring scale and zeroPoint. Since feature level 29.
  ANEURALNETWORKS_CAST = 45,
  // Interleaves channel groups: out[k*groups+g] = in[g*groupSize+k]. Since feature level 29.
  ANEURALNETWORKS_CHANNEL_SHUFFLE = 46,
  // SSD box decoding plus NMS. Since feature level 29.
  ANEURALNETWORKS_DETECTION_POSTPROCESSING = 47,
  // Element-wise x == y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_EQUAL = 48,
  // Element-wise exponential. Since feature level 29.
  ANEURALNETWORKS_EXP = 49,
  // Inserts an axis of size 1. Since feature level 29.
  ANEURALNETWORKS_EXPAND_DIMS = 50,
  // Gathers slices along an axis by an index tensor. Since feature level 29.
  ANEURALNETWORKS_GATHER = 51,
  // Region proposals from scores, deltas and anchors, with hard NMS. Since feature level 29.
  ANEURALNETWORKS_GENERATE_PROPOSALS = 52,
  // Element-wise x > y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_GREATER = 53,
  // Element-wise x >= y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_GREATER_EQUAL = 54,
  // Convolution with channel groups. Since feature level 29.
  ANEURALNETWORKS_GROUPED_CONV_2D = 55,
  // Keypoint score and sub-pixel position from heatmaps (quadratic Taylor refinement). Since feature
  // level 29.
  ANEURALNETWORKS_HEATMAP_MAX_KEYPOINT = 56,
  // Normalises each (batch, channel) plane by its mean and variance. Since feature level 29.
  ANEURALNETWORKS_INSTANCE_NORMALIZATION = 57,
  // Element-wise x < y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_LESS = 58,
  // Element-wise x <= y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_LESS_EQUAL = 59,
  // Element-wise natural logarithm. Since feature level 29.
  ANEURALNETWORKS_LOG = 60,
  // Element-wise AND with broadcasting. Since feature level 29.
  ANEURALNETWORKS_LOGICAL_AND = 61,
  // Element-wise NOT. Since feature level 29.
  ANEURALNETWORKS_LOGICAL_NOT = 62,
  // Element-wise OR with broadcasting. Since feature level 29.
  ANEURALNETWORKS_LOGICAL_OR = 63,
  // x*beta - log(sum(exp(x*beta))) along an axis. Since feature level 29.
  ANEURALNETWORKS_LOG_SOFTMAX = 64,
  // Element-wise maximum with broadcasting. Since feature level 29.
  ANEURALNETWORKS_MAXIMUM = 65,
  // Element-wise minimum with broadcasting. Since feature level 29.
  ANEURALNETWORKS_MINIMUM = 66,
  // Element-wise negation. Since feature level 29.
  ANEURALNETWORKS_NEG = 67,
  // Element-wise x != y with broadcasting. Since feature level 29.
  ANEURALNETWORKS_NOT_EQUAL = 68,
  // Pads with a given constant. Since feature level 29.
  ANEURALNETWORKS_PAD_V2 = 69,
  // Element-wise power with broadcasting. Since feature level 29.
  ANEURALNETWORKS_POW = 70,
  // x for x >= 0, alpha*x otherwise, alpha broadcast. Since feature level 29.
  ANEURALNETWORKS_PRELU = 71,
  // Converts floating point to quantised values. Since feature level 29.
  ANEURALNETWORKS_QUANTIZE = 72,
  // LSTM step with 8-bit activations and 16-bit cell state. Since feature level 29.
  ANEURALNETWORKS_QUANTIZED_16BIT_LSTM = 73,
  // Draws class indices from unnormalised log-probabilities. Since feature level 29.
  ANEURALNETWORKS_RANDOM_MULTINOMIAL = 74,
  // Reduction over axes by logical AND. Since feature level 29.
  ANEURALNETWORKS_REDUCE_ALL = 75,
  // Reduction over axes by logical OR. Since feature level 29.
  ANEURALNETWORKS_REDUCE_ANY = 76,
  // Reduction over axes by maximum. Since feature level 29.
  ANEURALNETWORKS_REDUCE_MAX = 77,
  // Reduction over axes by minimum. Since feature level 29.
  ANEURALNETWORKS_REDUCE_MIN = 78,
  // Reduction over axes by product. Since feature level 29.
  ANEURALNETWORKS_REDUCE_PROD = 79,
  // Reduction over axes by sum. Since feature level 29.
  ANEURALNETWORKS_REDUCE_SUM = 80,
  // Average of bilinear samples in each bin of each region. Since feature level 29.
  ANEURALNETWORKS_ROI_ALIGN = 81,
  // Maximum in each rounded bin of each region. Since feature level 29.
  ANEURALNETWORKS_ROI_POOLING = 82,
  // Element-wise reciprocal square root. Since feature level 29.
  ANEURALNETWORKS_RSQRT = 83,
  // Element-wise choice between two tensors by a mask; no broadcasting. Since feature level 29.
  ANEURALNETWORKS_SELECT = 84,
  // Element-wise sine. Since feature level 29.
  ANEURALNETWORKS_SIN = 85,
  // Contiguous slice by begin and size. Since feature level 29.
  ANEURALNETWORKS_SLICE = 86,
  // Splits evenly along an axis. Since feature level 29.
  ANEURALNETWORKS_SPLIT = 87,
  // Element-wise square root. Since feature level 29.
  ANEURALNETWORKS_SQRT = 88,
  // Repeats a tensor per axis. Since feature level 29.
  ANEURALNETWORKS_TILE = 89,
  // k largest values and their indices along the last axis, descending. Since feature level 29.
  ANEURALNETWORKS_TOPK_V2 = 90,
  // Gradient of CONV_2D with respect to its input (deconvolution). Since feature level 29.
  ANEURALNETWORKS_TRANSPOSE_CONV_2D = 91,
  // LSTM over a sequence. Since feature level 29.
  ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_LSTM = 92,
  // Basic RNN over a sequence. Since feature level 29.
  ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_RNN = 93,
  // Nearest-neighbour image resize. Since feature level 29.
  ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR = 94,
  // LSTM step with signed 8-bit input/output, 8-bit symmetric weights and 16-bit state; optional CIFG,
  // peephole, projection, layer normalisation. Since feature level 30.
  ANEURALNETWORKS_QUANTIZED_LSTM = 95,
  // Runs one of two subgraphs chosen by a boolean. Since feature level 30.
  ANEURALNETWORKS_IF = 96,
  // Runs a body subgraph while a condition subgraph yields true. Since feature level 30.
  ANEURALNETWORKS_WHILE = 97,
  // max(0,x) + min(0, alpha*(exp(x)-1)). Since feature level 30.
  ANEURALNETWORKS_ELU = 98,
  // x * clamp(x+3, 0, 6) / 6. Since feature level 30.
  ANEURALNETWORKS_HARD_SWISH = 99,
  // Creates a tensor filled with one value. Since feature level 30.
  ANEURALNETWORKS_FILL = 100,
  // Number of dimensions of a tensor, as a scalar. Since feature level 30.
  ANEURALNETWORKS_RANK = 101,
  // Product of the matrices of two tensors, batch by batch; each may be transposed first. Since feature
  // level 1000006.
  ANEURALNETWORKS_BATCH_MATMUL = 102,
  // Joins tensors along a new axis. Since feature level 1000006.
  ANEURALNETWORKS_PACK = 103,
  // Pads with the mirrored values of the tensor, its border excluded (mode 0) or included (mode 1). Since
  // feature level 1000007.
  ANEURALNETWORKS_MIRROR_PAD = 104,
  // Reverses the order along an axis. Since feature level 1000007.
  ANEURALNETWORKS_REVERSE = 105,
  // Deprecated: an operation of a vendor, outside of extensions.
  ANEURALNETWORKS_OEM_OPERATION = 10000,
} OperationCode;

// Activation functions that operations apply to their results.
typedef enum {
  // None.
  ANEURALNETWORKS_FUSED_NONE = 0,
  // At least 0.
  ANEURALNETWORKS_FUSED_RELU = 1,
  // From -1 to 1.
  ANEURALNETWORKS_FUSED_RELU1 = 2,
  // From 0 to 6.
  ANEURALNETWORKS_FUSED_RELU6 = 3,
} FuseCode;

// Implicit padding of operations over windows.
typedef enum {
  // As much as makes the result's extent that of the input, divided by the stride and rounded up.
  ANEURALNETWORKS_PADDING_SAME = 1,
  // None.
  ANEURALNETWORKS_PADDING_VALID = 2,
} PaddingCode;

// What executions shall be good at.
typedef enum {
  // Use little energy.
  ANEURALNETWORKS_PREFER_LOW_POWER = 0,
  // Answer single requests fast. The default.
  ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER = 1,
  // Answer many requests per second.
  ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = 2,
} PreferenceCode;

// The kind of a device. Since feature level 29.
typedef enum {
  // The device does not say.
  ANEURALNETWORKS_DEVICE_UNKNOWN = 0,
  // None of the others.
  ANEURALNETWORKS_DEVICE_OTHER = 1,
  // A CPU.
  ANEURALNETWORKS_DEVICE_CPU = 2,
  // A GPU.
  ANEURALNETWORKS_DEVICE_GPU = 3,
  // A processor for neural networks.
  ANEURALNETWORKS_DEVICE_ACCELERATOR = 4,
} DeviceTypeCode;

// Which time of an execution. Since feature level 29.
typedef enum {
  // Computing on the device, since the start.
  ANEURALNETWORKS_DURATION_ON_HARDWARE = 0,
  // In the driver, since the start.
  ANEURALNETWORKS_DURATION_IN_DRIVER = 1,
  // Computing on the device, since all dependencies were done. Since feature level 30.
  ANEURALNETWORKS_FENCED_DURATION_ON_HARDWARE = 2,
  // In the driver, since all dependencies were done. Since feature level 30.
  ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER = 3,
} DurationCode;

// Which compilations of this process go first. Since feature level 30.
typedef enum {
  // After the others.
  ANEURALNETWORKS_PRIORITY_LOW = 90,
  // In between. The default, `ANEURALNETWORKS_PRIORITY_DEFAULT`.
  ANEURALNETWORKS_PRIORITY_MEDIUM = 100,
  // Before the others.
  ANEURALNETWORKS_PRIORITY_HIGH = 110,
} PriorityCode;

// Feature levels, as `ANeuralNetworks_getRuntimeFeatureLevel` and `ANeuralNetworksDevice_getFeatureLevel`
// give them. Since feature level 31.
typedef enum {
  // HAL 1.0.
  ANEURALNETWORKS_FEATURE_LEVEL_1 = 27,
  // HAL 1.1.
  ANEURALNETWORKS_FEATURE_LEVEL_2 = 28,
  // HAL 1.2.
  ANEURALNETWORKS_FEATURE_LEVEL_3 = 29,
  // HAL 1.3.
  ANEURALNETWORKS_FEATURE_LEVEL_4 = 30,
  // Executions that are used again; no device has it alone.
  ANEURALNETWORKS_FEATURE_LEVEL_5 = 31,
  // `BATCH_MATMUL` and `PACK`.
  ANEURALNETWORKS_FEATURE_LEVEL_6 = 1000006,
  // `MIRROR_PAD` and `REVERSE`.
  ANEURALNETWORKS_FEATURE_LEVEL_7 = 1000007,
  // This library.
  ANEURALNETWORKS_FEATURE_LEVEL_8 = 1000008,
} FeatureLevelCode;

// A hardware buffer of Android, which this system does not have.
typedef struct AHardwareBuffer AHardwareBuffer;

// Executions of one compilation in quick succession.
typedef struct ANeuralNetworksBurst ANeuralNetworksBurst;

// A model that is made ready to be executed on devices.
typedef struct ANeuralNetworksCompilation ANeuralNetworksCompilation;

// A device.
typedef struct ANeuralNetworksDevice ANeuralNetworksDevice;

// Something that will have happened: the end of an execution, or the signal of a fence.
typedef struct ANeuralNetworksEvent ANeuralNetworksEvent;

// One execution of a compilation, or many one after the other if it is reusable.
typedef struct ANeuralNetworksExecution ANeuralNetworksExecution;

// Bytes that this process and drivers share, or memory of a device.
typedef struct ANeuralNetworksMemory ANeuralNetworksMemory;

// What a memory of devices shall be for.
typedef struct ANeuralNetworksMemoryDesc ANeuralNetworksMemoryDesc;

// A model: a graph of operations over operands.
typedef struct ANeuralNetworksModel ANeuralNetworksModel;

// An operand: its type, its dimensions and its quantisation.
typedef struct ANeuralNetworksOperandType {
  // A value of `OperandCode`, or of a vendor's extension.
  int32_t type;
  // Number of dimensions; 0 for scalars, and for tensors of unknown rank.
  uint32_t dimensionCount;
  // The dimensions, outermost first; 0 for an extent that is not known. NULL if there are none.
  const uint32_t *dimensions;
  // Real units of one step, for quantised types; 0 for others.
  float scale;
  // The value that means 0.0, for asymmetric quantised types; 0 for others.
  int32_t zeroPoint;
} ANeuralNetworksOperandType;

// The scales of an operand of type `ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL`. Since feature level 29.
typedef struct ANeuralNetworksSymmPerChannelQuantParams {
  // The dimension that the scales belong to.
  uint32_t channelDim;
  // Number of scales: the extent of that dimension.
  uint32_t scaleCount;
  // The scales, each above 0.
  const float *scales;
} ANeuralNetworksSymmPerChannelQuantParams;

// What an operation computes: a value of `OperationCode`, or of a vendor's extension.
typedef int32_t ANeuralNetworksOperationType;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a memory of `size` bytes from `offset` of a file, memfd or dma-buf, which drivers map. `protect` is
// `PROT_READ`, or `PROT_READ | PROT_WRITE` for outputs. The descriptor is duplicated.
//
// `BAD_DATA` if the size is 0 or `fd` is no descriptor. Since feature level 27.
int ANeuralNetworksMemory_createFromFd(size_t size,
                                       int protect,
                                       int fd,
                                       size_t offset,
                                       ANeuralNetworksMemory **memory);

// Frees a memory; NULL is no error. What uses it keeps it until then. Since feature level 27.
void ANeuralNetworksMemory_free(ANeuralNetworksMemory *memory);

// Always fails with `OP_FAILED`: this system has no hardware buffers of Android. Give the dma-buf that is
// behind yours to `ANeuralNetworksMemory_createFromFd`. Since feature level 29.
int ANeuralNetworksMemory_createFromAHardwareBuffer(const AHardwareBuffer *ahwb, ANeuralNetworksMemory **memory);

// Makes a memory as a finished description says: a device's own, or one that processes share where no device
// has any.
//
// `BAD_STATE` if the description is not finished; `OP_FAILED`, or what the device answered, if there can be
// none. Since feature level 30.
int ANeuralNetworksMemory_createFromDesc(const ANeuralNetworksMemoryDesc *desc,
                                         ANeuralNetworksMemory **memory);

// Copies all of one memory into another of the same size; one and the same memory is left as it is.
//
// `BAD_DATA` if the sizes or dimensions differ, or the source was never written; `UNMAPPABLE` if one
// cannot be mapped. After a failure the destination, if made from a description, has no value. Since
// feature level 30.
int ANeuralNetworksMemory_copy(const ANeuralNetworksMemory *src, const ANeuralNetworksMemory *dst);

// Makes an empty model. Since feature level 27.
int ANeuralNetworksModel_create(ANeuralNetworksModel **model);

// Frees a model; NULL is no error. Compilations and models that use it keep it. Since feature level 27.
void ANeuralNetworksModel_free(ANeuralNetworksModel *model);

// Finishes a model, which cannot be changed any more. Operations are sorted into an order in which they can
// run; values that were given by pointer are copied now.
//
// `BAD_DATA` if the model breaks a rule; it is invalid then and can only be freed. `BAD_STATE` if it is
// finished or invalid. Since feature level 27.
int ANeuralNetworksModel_finish(ANeuralNetworksModel *model);

// Adds an operand. The first one is operand 0.
//
// `BAD_DATA` if the type, dimensions or quantisation are not valid; `BAD_STATE` if the model is finished.
// Since feature level 27.
int ANeuralNetworksModel_addOperand(ANeuralNetworksModel *model, const ANeuralNetworksOperandType *type);

// Gives an operand its value. Up to `ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES` bytes are copied
// at once, more must stay as they are until the model is finished. NULL with length 0 leaves an optional
// operand out.
//
// `BAD_DATA` if there is no such operand or the length is not that of its value; `BAD_STATE` if the model is
// finished. Since feature level 27.
int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel *model,
                                         int32_t index,
                                         const void *buffer,
                                         size_t length);

// Gives an operand of type `ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL` its scales, which are copied.
//
// `BAD_DATA` if there is no such operand, it has another type, or the scales are NULL or do not fit its
// dimensions; `BAD_STATE` if the model is finished. Since feature level 29.
int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(ANeuralNetworksModel *model,
                                                             int32_t index,
                                                             const ANeuralNetworksSymmPerChannelQuantParams *channelQuant);

// Gives an operand a value that is in a memory and must stay as it is.
//
// `BAD_DATA` if there is no such operand, the length is not that of its value, the range is not inside the
// memory, or the memory was made from a description; `BAD_STATE` if the model is finished. Since feature
// level 27.
int ANeuralNetworksModel_setOperandValueFromMemory(ANeuralNetworksModel *model,
                                                   int32_t index,
                                                   const ANeuralNetworksMemory *memory,
                                                   size_t offset,
                                                   size_t length);

// Gives an operand of type `ANEURALNETWORKS_MODEL` its value: a finished model, for IF or WHILE to run.
//
// `BAD_STATE` if that model is not finished, or this one is; `BAD_DATA` if there is no such operand or it
// has another type. Since feature level 30.
int ANeuralNetworksModel_setOperandValueFromModel(ANeuralNetworksModel *model,
                                                  int32_t index,
                                                  const ANeuralNetworksModel *value);

// Adds an operation: what it computes, the operands that it reads and those that it writes, in the order of
// its signature. Operations may be added in any order.
//
// `BAD_DATA` if there is no such operation or operand, or the operands do not fit the signature; `BAD_STATE`
// if the model is finished. Since feature level 27.
int ANeuralNetworksModel_addOperation(ANeuralNetworksModel *model,
                                      ANeuralNetworksOperationType type,
                                      uint32_t inputCount,
                                      const uint32_t *inputs,
                                      uint32_t outputCount,
                                      const uint32_t *outputs);

// Says which operands are the model's inputs and outputs, in the order in which executions give them.
//
// `BAD_DATA` if there is no such operand, one is listed twice, or one has a value; `BAD_STATE` if the model
// is finished. Since feature level 27.
int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel *model,
                                                  uint32_t inputCount,
                                                  const uint32_t *inputs,
                                                  uint32_t outputCount,
                                                  const uint32_t *outputs);

// Says whether 32-bit floats may be computed with the range and precision of 16-bit floats. Not allowed by
// default.
//
// `BAD_STATE` if the model is finished. Since feature level 28.
int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel *model, bool allow);

// Tells for each operation of a finished model, in the order in which they were added, whether any of the
// devices can run it. `supportedOps` has room for all of them.
//
// `BAD_DATA` if there are no devices or one is listed twice; `BAD_STATE` if the model is not finished. Since
// feature level 29.
int ANeuralNetworksModel_getSupportedOperationsForDevices(const ANeuralNetworksModel *model,
                                                          const ANeuralNetworksDevice *const *devices,
                                                          uint32_t numDevices,
                                                          bool *supportedOps);

// Makes a compilation of a finished model for all devices together. Operations go where they run best; where
// a driver refuses, the CPU of this process takes over.
//
// `BAD_STATE` if the model is not finished. Since feature level 27.
int ANeuralNetworksCompilation_create(ANeuralNetworksModel *model,
                                      ANeuralNetworksCompilation **compilation);

// Makes a compilation of a finished model for these devices and no others, not even the CPU of this process.
//
// `BAD_DATA` if there are no devices or one is listed twice; `BAD_STATE` if the model is not finished. Since
// feature level 29.
int ANeuralNetworksCompilation_createForDevices(ANeuralNetworksModel *model,
                                                const ANeuralNetworksDevice *const *devices,
                                                uint32_t numDevices,
                                                ANeuralNetworksCompilation **compilation);

// Frees a compilation; NULL is no error. Its executions and bursts keep what they need. Since feature
// level 27.
void ANeuralNetworksCompilation_free(ANeuralNetworksCompilation *compilation);

// Says what executions shall be good at: a value of `PreferenceCode`.
//
// `BAD_DATA` for other values; `BAD_STATE` if the compilation is finished. Since feature level 27.
int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation *compilation, int32_t preference);

// Says which compilations of this process go first: a value of `PriorityCode`.
//
// `BAD_DATA` for other values; `BAD_STATE` if the compilation is finished. Since feature level 30.
int ANeuralNetworksCompilation_setPriority(ANeuralNetworksCompilation *compilation, int priority);

// Limits how long `ANeuralNetworksCompilation_finish` may take, in nanoseconds; 0 is no limit.
//
// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if it is finished.
// Since feature level 30.
int ANeuralNetworksCompilation_setTimeout(ANeuralNetworksCompilation *compilation, uint64_t duration);

// Keeps what compiling gives in a directory, for the next compilation with the same token of
// `ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN` bytes, which names the model and all that the result depends
// on.
//
// `BAD_STATE` if the compilation is finished. Trouble with the files is no error: the model is compiled
// anew. Since feature level 29.
int ANeuralNetworksCompilation_setCaching(ANeuralNetworksCompilation *compilation,
                                          const char *cacheDir,
                                          const uint8_t *token);

// Compiles the model, after which the compilation cannot be changed any more.
//
// `BAD_DATA` if no device can run some operation; `MISSED_DEADLINE_TRANSIENT` or
// `MISSED_DEADLINE_PERSISTENT` if it takes too long; `BAD_STATE` if it is finished already. Since feature
// level 27.
int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation *compilation);

// The alignment in bytes, a power of two, that an input's buffer is best given. Others work as well.
//
// `BAD_STATE` if the compilation is not finished; `BAD_DATA` if there is no such input. Since feature
// level 31.
int ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(const ANeuralNetworksCompilation *compilation,
                                                                   uint32_t index,
                                                                   uint32_t *alignment);

// The multiple of bytes, a power of two, to which an input's buffer is best made. Others work as well; see
// `ANeuralNetworksExecution_enableInputAndOutputPadding` for longer ones.
//
// `BAD_STATE` if the compilation is not finished; `BAD_DATA` if there is no such input. Since feature
// level 31.
int ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput(const ANeuralNetworksCompilation *compilation,
                                                                 uint32_t index,
                                                                 uint32_t *padding);

// As `ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput` for an output. Since feature level 31.
int ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput(const ANeuralNetworksCompilation *compilation,
                                                                    uint32_t index,
                                                                    uint32_t *alignment);

// As `ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput` for an output. Since feature level 31.
int ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput(const ANeuralNetworksCompilation *compilation,
                                                                  uint32_t index,
                                                                  uint32_t *padding);

// Makes an execution of a finished compilation.
//
// `BAD_STATE` if the compilation is not finished, or finishing it has failed. Since feature level 27.
int ANeuralNetworksExecution_create(ANeuralNetworksCompilation *compilation,
                                    ANeuralNetworksExecution **execution);

// Frees an execution; NULL is no error. One that is computing is not freed. Since feature level 27.
void ANeuralNetworksExecution_free(ANeuralNetworksExecution *execution);

// Says where an input's value is, which must stay as it is until the execution has ended. `type` gives
// dimensions that the model leaves open, and may be NULL. A NULL buffer with length 0 leaves an optional
// input out.
//
// `BAD_DATA` if there is no such input, the type does not fit it, or the length is not that of its value;
// `BAD_STATE` if it is set already or the computation has started. Since feature level 27.
int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution *execution,
                                      int32_t index,
                                      const ANeuralNetworksOperandType *type,
                                      const void *buffer,
                                      size_t length);

// As `ANeuralNetworksExecution_setInput` for a value in a memory. Offset and length are 0 for a memory that
// was made from a description, which must have this input.
//
// Also `BAD_DATA` if the range is not inside the memory. Since feature level 27.
int ANeuralNetworksExecution_setInputFromMemory(ANeuralNetworksExecution *execution,
                                                int32_t index,
                                                const ANeuralNetworksOperandType *type,
                                                const ANeuralNetworksMemory *memory,
                                                size_t offset,
                                                size_t length);

// Says where an output's value goes, which nobody else uses until the execution has ended. `type` gives
// dimensions that the model leaves open, and may be NULL.
//
// `BAD_DATA` if there is no such output, the type does not fit it, or the length is not that of its value,
// where that is known; `BAD_STATE` if it is set already or the computation has started. Since feature
// level 27.
int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution *execution,
                                       int32_t index,
                                       const ANeuralNetworksOperandType *type,
                                       void *buffer,
                                       size_t length);

// As `ANeuralNetworksExecution_setOutput` for a value in a memory. Offset and length are 0 for a memory that
// was made from a description, which must have this output.
//
// Also `BAD_DATA` if the range is not inside the memory. Since feature level 27.
int ANeuralNetworksExecution_setOutputFromMemory(ANeuralNetworksExecution *execution,
                                                 int32_t index,
                                                 const ANeuralNetworksOperandType *type,
                                                 const ANeuralNetworksMemory *memory,
                                                 size_t offset,
                                                 size_t length);

// Starts the computation, whose end the event tells. The execution and its buffers must stay until then.
//
// `BAD_DATA` if an argument is not set; `BAD_STATE` if it has started before and is not reusable. Since
// feature level 27.
int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution *execution,
                                          ANeuralNetworksEvent **event);

// Starts the computation when everything in `dependencies` is done, and gives an event that others can
// depend on. `duration` limits how long it may take from then on, in nanoseconds; 0 is no limit.
//
// `BAD_DATA` if an argument is not set, a dimension of an output is not known, or there is a limit and the
// compilation was not made for exactly one named device; `BAD_STATE` if it has started before and is not
// reusable. Since feature level 30.
int ANeuralNetworksExecution_startComputeWithDependencies(ANeuralNetworksExecution *execution,
                                                          const ANeuralNetworksEvent *const *dependencies,
                                                          uint32_t num_dependencies,
                                                          uint64_t duration,
                                                          ANeuralNetworksEvent **event);

// Computes and waits for the end.
//
// `BAD_DATA` if an argument is not set; `BAD_STATE` if it has started before and is not reusable;
// `OUTPUT_INSUFFICIENT_SIZE` if a buffer is too small, of which
// `ANeuralNetworksExecution_getOutputOperandDimensions` tells more. Since feature level 29.
int ANeuralNetworksExecution_compute(ANeuralNetworksExecution *execution);

// Computes by a burst of the same compilation and waits for the end.
//
// As `ANeuralNetworksExecution_compute`; also `BAD_DATA` if the burst is of another compilation, and
// `BAD_STATE` if another execution uses it. Since feature level 29.
int ANeuralNetworksExecution_burstCompute(ANeuralNetworksExecution *execution, ANeuralNetworksBurst *burst);

// Limits how long the computation may take from its start, in nanoseconds; 0 is no limit.
//
// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if the computation
// has started. Since feature level 30.
int ANeuralNetworksExecution_setTimeout(ANeuralNetworksExecution *execution, uint64_t duration);

// Limits how long each WHILE may take, in nanoseconds; at most `ANeuralNetworks_getMaximumLoopTimeout`
// counts.
//
// `BAD_STATE` if the computation has started. Since feature level 30.
int ANeuralNetworksExecution_setLoopTimeout(ANeuralNetworksExecution *execution, uint64_t duration);

// Says whether the computation is measured, for `ANeuralNetworksExecution_getDuration`.
//
// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if the computation
// has started. Since feature level 29.
int ANeuralNetworksExecution_setMeasureTiming(ANeuralNetworksExecution *execution, bool measure);

// How long a measured computation took, in nanoseconds, by a value of `DurationCode`; `UINT64_MAX` if the
// device does not tell.
//
// `BAD_DATA` for other values; `BAD_STATE` if the execution has not ended, has failed or was not measured.
// Since feature level 29.
int ANeuralNetworksExecution_getDuration(const ANeuralNetworksExecution *execution,
                                         int32_t durationCode,
                                         uint64_t *duration);

// The number of dimensions of an output, after the execution.
//
// `BAD_STATE` if it has not ended or nothing is known of its outputs; `BAD_DATA` if there is no such output;
// `OUTPUT_INSUFFICIENT_SIZE`, with the value, if the buffer was too small. Since feature level 29.
int ANeuralNetworksExecution_getOutputOperandRank(ANeuralNetworksExecution *execution,
                                                  int32_t index,
                                                  uint32_t *rank);

// The dimensions of an output, after the execution. `dimensions` has room for as many as
// `ANeuralNetworksExecution_getOutputOperandRank` says.
//
// As `ANeuralNetworksExecution_getOutputOperandRank`; also `BAD_DATA` for a scalar, which has none. Since
// feature level 29.
int ANeuralNetworksExecution_getOutputOperandDimensions(ANeuralNetworksExecution *execution,
                                                        int32_t index,
                                                        uint32_t *dimensions);

// Says whether the execution can be computed more than once, one after the other, with the same arguments.
//
// `BAD_STATE` if the computation has started. Since feature level 31.
int ANeuralNetworksExecution_setReusable(ANeuralNetworksExecution *execution, bool reusable);

// Says whether buffers may be longer than their values, whose first bytes are used then.
//
// `BAD_STATE` after the first input or output was set. Since feature level 31.
int ANeuralNetworksExecution_enableInputAndOutputPadding(ANeuralNetworksExecution *execution, bool enable);

// Makes a burst of a finished compilation, for executions one after the other that cost little more than the
// computing.
//
// `BAD_STATE` if the compilation is not finished. Since feature level 29.
int ANeuralNetworksBurst_create(ANeuralNetworksCompilation *compilation, ANeuralNetworksBurst **burst);

// Frees a burst; NULL is no error. Since feature level 29.
void ANeuralNetworksBurst_free(ANeuralNetworksBurst *burst);

// Waits until what the event stands for has ended, and returns how; any number of times.
//
// What the execution ended with; `OP_FAILED` for a fence that was signalled with an error. Since feature
// level 27.
int ANeuralNetworksEvent_wait(ANeuralNetworksEvent *event);

// Frees an event; NULL is no error. What it stands for goes on. Since feature level 27.
void ANeuralNetworksEvent_free(ANeuralNetworksEvent *event);

// Makes an event of a fence: a kernel `sync_file`, an eventfd, or any other descriptor that becomes readable
// when what it stands for is done. The descriptor is duplicated.
//
// `BAD_DATA` if it is no descriptor, or one that cannot be waited for. Since feature level 30.
int ANeuralNetworksEvent_createFromSyncFenceFd(int sync_fence_fd, ANeuralNetworksEvent **event);

// A new descriptor of the event's fence, which the caller closes. It becomes readable when the execution has
// ended.
//
// `BAD_DATA`, and -1, if the event has no fence. Since feature level 30.
int ANeuralNetworksEvent_getSyncFenceFd(const ANeuralNetworksEvent *event, int *sync_fence_fd);

// How many devices there are: those of the drivers that ran when this was first called, and the CPU of this
// process. Since feature level 29.
int ANeuralNetworks_getDeviceCount(uint32_t *numDevices);

// The device with this index; it is never freed. The CPU of this process, `nnapi-reference`, is the last.
//
// `BAD_DATA` if there is no such device. Since feature level 29.
int ANeuralNetworks_getDevice(uint32_t devIndex, ANeuralNetworksDevice **device);

// The device's name, which ends with NUL and stays as long as this process. Since feature level 29.
int ANeuralNetworksDevice_getName(const ANeuralNetworksDevice *device, const char **name);

// The device's kind, a value of `DeviceTypeCode`. Since feature level 29.
int ANeuralNetworksDevice_getType(const ANeuralNetworksDevice *device, int32_t *type);

// The version of the device's driver, which ends with NUL and stays as long as this process. Since feature
// level 29.
int ANeuralNetworksDevice_getVersion(const ANeuralNetworksDevice *device, const char **version);

// The device's feature level, a value of `FeatureLevelCode`. Since feature level 29.
int ANeuralNetworksDevice_getFeatureLevel(const ANeuralNetworksDevice *device, int64_t *featureLevel);

// Waits until the device is live, connecting anew if its driver has died.
//
// `DEAD_OBJECT` if nobody serves it any more. Since feature level 30.
int ANeuralNetworksDevice_wait(const ANeuralNetworksDevice *device);

// How long a loop may take that no limit was set for, in nanoseconds. Since feature level 30.
uint64_t ANeuralNetworks_getDefaultLoopTimeout(void);

// The longest that a loop may take, in nanoseconds. Since feature level 30.
uint64_t ANeuralNetworks_getMaximumLoopTimeout(void);

// The feature level of this library, a value of `FeatureLevelCode`. Since feature level 31.
int64_t ANeuralNetworks_getRuntimeFeatureLevel(void);

// Makes an empty description of a memory. Since feature level 30.
int ANeuralNetworksMemoryDesc_create(ANeuralNetworksMemoryDesc **desc);

// Frees a description; NULL is no error. Since feature level 30.
void ANeuralNetworksMemoryDesc_free(ANeuralNetworksMemoryDesc *desc);

// Says that the memory is for an input of a compilation, which makes up `frequency`, above 0 and at most 1,
// of its uses.
//
// `BAD_STATE` after `ANeuralNetworksMemoryDesc_finish`; `BAD_DATA` if the compilation is not finished, has
// no such input, the description has it already, or it contradicts the others in type, quantisation or
// dimensions. Since feature level 30.
int ANeuralNetworksMemoryDesc_addInputRole(ANeuralNetworksMemoryDesc *desc,
                                           const ANeuralNetworksCompilation *compilation,
                                           uint32_t index,
                                           float frequency);

// As `ANeuralNetworksMemoryDesc_addInputRole` for an output. Since feature level 30.
int ANeuralNetworksMemoryDesc_addOutputRole(ANeuralNetworksMemoryDesc *desc,
                                            const ANeuralNetworksCompilation *compilation,
                                            uint32_t index,
                                            float frequency);

// Says dimensions that the roles leave open; 0 for those that stay so. `dimensions` may be NULL if `rank`
// is 0.
//
// `BAD_STATE` after `ANeuralNetworksMemoryDesc_finish`; `BAD_DATA` if they contradict the roles. Since
// feature level 30.
int ANeuralNetworksMemoryDesc_setDimensions(ANeuralNetworksMemoryDesc *desc, uint32_t rank, const uint32_t *dimensions);

// Finishes a description, which must have a role.
//
// `BAD_DATA` if it has none; `BAD_STATE` if it is finished. Since feature level 30.
int ANeuralNetworksMemoryDesc_finish(ANeuralNetworksMemoryDesc *desc);

// Whether a device supports a vendor's extension.
int ANeuralNetworksDevice_getExtensionSupport(const ANeuralNetworksDevice *device,
                                              const char *extensionName,
                                              bool *isExtensionSupported);

// The number that an operand type of an extension has in models of this process.
//
// `BAD_DATA` if no device has the extension.
int ANeuralNetworksModel_getExtensionOperandType(ANeuralNetworksModel *model,
                                                 const char *extensionName,
                                                 uint16_t operandCodeWithinExtension,
                                                 int32_t *type);

// The number that an operation of an extension has in models of this process.
//
// `BAD_DATA` if no device has the extension.
int ANeuralNetworksModel_getExtensionOperationType(ANeuralNetworksModel *model,
                                                   const char *extensionName,
                                                   uint16_t operationCodeWithinExtension,
                                                   ANeuralNetworksOperationType *type);

// Gives an operand of an extension's type its parameters, whose form the extension defines. They are copied.
// NULL with length 0 takes them away.
//
// `BAD_DATA` if there is no such operand or its type is of no extension; `BAD_STATE` if the model is
// finished.
int ANeuralNetworksModel_setOperandExtensionData(ANeuralNetworksModel *model,
                                                 int32_t index,
                                                 const void *data,
                                                 size_t length);

// Gives a compilation a hint for its device, in the form of a vendor's extension. Devices may ignore hints,
// and all devices of this library do.
//
// `BAD_DATA` unless the compilation was made for exactly one named device, if no device has the extension,
// or if the attribute was given already; `BAD_STATE` if the compilation is finished. Since feature level
// 1000008.
int ANeuralNetworksCompilation_addExtensionAttribute(ANeuralNetworksCompilation *compilation,
                                                     const char *extensionName,
                                                     uint16_t attributeCodeWithinExtension,
                                                     const void *data,
                                                     size_t length);

// As `ANeuralNetworksCompilation_addExtensionAttribute` for an execution; `BAD_STATE` if its computation has
// started. Since feature level 1000008.
int ANeuralNetworksExecution_addExtensionAttribute(ANeuralNetworksExecution *execution,
                                                   const char *extensionName,
                                                   uint16_t attributeCodeWithinExtension,
                                                   const void *data,
                                                   size_t length);

// What went wrong in the last function of this thread that failed: the function, what was wrong and what
// would be right. Empty if none has failed. The text ends with NUL and stays until the next failure of this
// thread.
//
// A function of nnhal, not of NNAPI.
const char *nnhal_last_error(void);

// Says how often an execution of this compilation is repeated when a driver's process dies: the device is
// opened again, what it had is prepared again, from the cache if there is one, and memories that were made
// from a description get back the values that this process gave them. An execution that needs a value that
// was computed in the lost process fails with `DEAD_OBJECT` all the same. 0, the default unless the
// environment variable `NNHAL_RECOVERY` says otherwise, repeats none.
//
// `BAD_STATE` if the compilation is finished. A function of nnhal, not of NNAPI.
int nnhal_compilation_set_recovery(ANeuralNetworksCompilation *compilation, uint32_t attempts);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NNHAL_NEURAL_NETWORKS_H */
