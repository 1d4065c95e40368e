//! The extension `org.nnhal.tflite`: what TFLite's CPU runtime computes and NNAPI has no operation for.
//!
//! An extension's operations have numbers of their own and a prefix that each model chooses. Validation gives
//! this extension the one prefix [`PREFIX`] ([`Model::with_fixed_prefix`]). So below it an operation of the
//! extension is told by its number alone, as those of NNAPI are.
//!
//! There are two kinds of operations. Some NNAPI lacks. Others NNAPI has for fewer types or ranks; these have
//! its operation's number, and its arguments and meaning except where their description says otherwise.
//! [`wider`] finds them.

use std::sync::Arc;

use super::operand::{self, TFLITE_PREFIX, TFLITE_TYPES};
use super::{
    Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation, Model, OperandType, OperationType,
};

/// The extension's name.
pub const NAME: &str = "org.nnhal.tflite";

/// Its prefix in models that passed validation: the highest that NNAPI has room for.
pub const PREFIX: u16 = TFLITE_PREFIX;

/// A tensor of signed 64-bit integers, which have no scale.
pub const TENSOR_INT64: OperandType = operand::TENSOR_INT64;

/// The operand types of the extension.
pub const OPERAND_TYPES: &[OperandType] = TFLITE_TYPES;

/// Numbers below this one are those of NNAPI's operations.
const FIRST_OWN: u16 = 0x100;

macro_rules! operations {
    ($(#[doc = $doc:literal] $name:ident = $number:expr;)*) => {
        $(#[doc = $doc] pub const $name: OperationType = OperationType::extension(PREFIX, $number);)*

        /// The operations of the extension.
        pub const OPERATIONS: &[OperationType] = &[$($name),*];

        /// Name and meaning of an operation of the extension.
        pub(crate) const fn facts(operation: OperationType) -> Option<(&'static str, &'static str)> {
            $(
                if operation.0 == $name.0 {
                    return Some((concat!("TFLITE_", stringify!($name)), $doc));
                }
            )*
            None
        }
    };
}

/// The number of NNAPI's operation.
const fn of(operation: OperationType) -> u16 {
    operation.0 as u16
}

operations! {
    /// ADD, also of 16-bit steps, of integers with an activation, up to rank 8.
    ADD = of(OperationType::ADD);
    /// AVERAGE_POOL_2D of 16-bit steps.
    AVERAGE_POOL_2D = of(OperationType::AVERAGE_POOL_2D);
    /// CONCATENATION of any type that tensors have, up to rank 8; 16-bit steps must all have one scale.
    CONCATENATION = of(OperationType::CONCATENATION);
    /// CONV_2D of 16-bit steps, with a filter of signed bytes.
    CONV_2D = of(OperationType::CONV_2D);
    /// DEPTHWISE_CONV_2D of 16-bit steps, with a filter of signed bytes.
    DEPTHWISE_CONV_2D = of(OperationType::DEPTHWISE_CONV_2D);
    /// DEQUANTIZE, also of 16-bit steps, up to rank 8.
    DEQUANTIZE = of(OperationType::DEQUANTIZE);
    /// EMBEDDING_LOOKUP of any type that tensors have.
    EMBEDDING_LOOKUP = of(OperationType::EMBEDDING_LOOKUP);
    /// FULLY_CONNECTED of 16-bit steps, with weights of signed bytes.
    FULLY_CONNECTED = of(OperationType::FULLY_CONNECTED);
    /// LOGISTIC, also of 16-bit steps, up to rank 8.
    LOGISTIC = of(OperationType::LOGISTIC);
    /// MAX_POOL_2D of 16-bit steps.
    MAX_POOL_2D = of(OperationType::MAX_POOL_2D);
    /// MUL, also of 16-bit steps, of integers with an activation and to fine scales, up to rank 8.
    MUL = of(OperationType::MUL);
    /// RELU, also of 16-bit steps, up to rank 8.
    RELU = of(OperationType::RELU);
    /// RELU1, also of 16-bit steps, up to rank 8.
    RELU1 = of(OperationType::RELU1);
    /// RELU6, also of 16-bit steps, up to rank 8.
    RELU6 = of(OperationType::RELU6);
    /// RESHAPE of any type that tensors have, up to rank 8.
    RESHAPE = of(OperationType::RESHAPE);
    /// SOFTMAX of 16-bit steps, and of signed bytes to unsigned 16-bit steps.
    SOFTMAX = of(OperationType::SOFTMAX);
    /// SVDF of signed bytes with a 16-bit state and ReLU, which the output's zero point brings about.
    SVDF = of(OperationType::SVDF);
    /// TANH, also of 16-bit steps, up to rank 8.
    TANH = of(OperationType::TANH);
    /// DIV, also of integers with an activation, up to rank 8.
    DIV = of(OperationType::DIV);
    /// MEAN, also of integers, of 16-bit steps and to another scale, up to rank 8.
    MEAN = of(OperationType::MEAN);
    /// PAD of any type that tensors have, up to rank 8.
    PAD = of(OperationType::PAD);
    /// SQUEEZE of any type that tensors have, up to rank 8.
    SQUEEZE = of(OperationType::SQUEEZE);
    /// STRIDED_SLICE of any type; axes behind the bounds are whole, and a last flag counts ends from begins.
    STRIDED_SLICE = of(OperationType::STRIDED_SLICE);
    /// SUB, also of 16-bit steps, of integers with an activation, up to rank 8.
    SUB = of(OperationType::SUB);
    /// TRANSPOSE of any type that tensors have, up to rank 8.
    TRANSPOSE = of(OperationType::TRANSPOSE);
    /// CAST between all types, quantized elements as stored. A last flag makes integers saturate, not wrap.
    CAST = of(OperationType::CAST);
    /// EQUAL, also of 16-bit steps, which count as stored.
    EQUAL = of(OperationType::EQUAL);
    /// EXP of 16-bit steps.
    EXP = of(OperationType::EXP);
    /// EXPAND_DIMS of any type that tensors have, up to rank 8.
    EXPAND_DIMS = of(OperationType::EXPAND_DIMS);
    /// GATHER of any type; a last argument may say how many first axes input and indices share.
    GATHER = of(OperationType::GATHER);
    /// GREATER, also of 16-bit steps, which count as stored.
    GREATER = of(OperationType::GREATER);
    /// GREATER_EQUAL, also of 16-bit steps, which count as stored.
    GREATER_EQUAL = of(OperationType::GREATER_EQUAL);
    /// LESS, also of 16-bit steps, which count as stored.
    LESS = of(OperationType::LESS);
    /// LESS_EQUAL, also of 16-bit steps, which count as stored.
    LESS_EQUAL = of(OperationType::LESS_EQUAL);
    /// MAXIMUM, also of 16-bit steps.
    MAXIMUM = of(OperationType::MAXIMUM);
    /// MINIMUM, also of 16-bit steps.
    MINIMUM = of(OperationType::MINIMUM);
    /// NEG, also of 64-bit integers.
    NEG = of(OperationType::NEG);
    /// NOT_EQUAL, also of 16-bit steps, which count as stored.
    NOT_EQUAL = of(OperationType::NOT_EQUAL);
    /// PAD_V2 of any type that tensors have, up to rank 8.
    PAD_V2 = of(OperationType::PAD_V2);
    /// PRELU, also of 16-bit steps.
    PRELU = of(OperationType::PRELU);
    /// QUANTIZE, also to 16-bit steps, and from 16-bit steps to those of another scale.
    QUANTIZE = of(OperationType::QUANTIZE);
    /// REDUCE_ALL up to rank 8.
    REDUCE_ALL = of(OperationType::REDUCE_ALL);
    /// REDUCE_ANY up to rank 8.
    REDUCE_ANY = of(OperationType::REDUCE_ANY);
    /// REDUCE_MAX, also of integers and of 16-bit steps, up to rank 8.
    REDUCE_MAX = of(OperationType::REDUCE_MAX);
    /// REDUCE_MIN, also of integers and of 16-bit steps, up to rank 8.
    REDUCE_MIN = of(OperationType::REDUCE_MIN);
    /// REDUCE_PROD, also of integers, up to rank 8.
    REDUCE_PROD = of(OperationType::REDUCE_PROD);
    /// REDUCE_SUM, also of integers, up to rank 8.
    REDUCE_SUM = of(OperationType::REDUCE_SUM);
    /// RSQRT of 16-bit steps.
    RSQRT = of(OperationType::RSQRT);
    /// SELECT of any type that tensors have; condition and choices broadcast to one shape.
    SELECT = of(OperationType::SELECT);
    /// SLICE of any type that tensors have.
    SLICE = of(OperationType::SLICE);
    /// SPLIT of any type that tensors have.
    SPLIT = of(OperationType::SPLIT);
    /// TILE of any type that tensors have.
    TILE = of(OperationType::TILE);
    /// TOPK_V2 of any type that has an order; the first of equals comes first, and k may be a tensor.
    TOPK_V2 = of(OperationType::TOPK_V2);
    /// TRANSPOSE_CONV_2D of 16-bit steps, with a filter of signed bytes.
    TRANSPOSE_CONV_2D = of(OperationType::TRANSPOSE_CONV_2D);
    /// FILL of any type that tensors have; the value is a tensor of one element.
    FILL = of(OperationType::FILL);
    /// BATCH_MATMUL of 16-bit steps.
    BATCH_MATMUL = of(OperationType::BATCH_MATMUL);
    /// PACK of any type that tensors have.
    PACK = of(OperationType::PACK);
    /// MIRROR_PAD of any type that tensors have.
    MIRROR_PAD = of(OperationType::MIRROR_PAD);
    /// REVERSE of any type that tensors have.
    REVERSE = of(OperationType::REVERSE);
    /// x * (1 + erf(x / sqrt(2))) / 2, or its approximation by a hyperbolic tangent.
    GELU = FIRST_OWN;
    /// Element-wise nearest integer; of two the even one.
    ROUND = FIRST_OWN + 1;
    /// Element-wise -1, 0 or 1.
    SIGN = FIRST_OWN + 2;
    /// Element-wise cosine.
    COS = FIRST_OWN + 3;
    /// Element-wise quotient, rounded down, of tensors that broadcast. Quantized elements count as stored.
    FLOOR_DIV = FIRST_OWN + 0x10;
    /// Element-wise remainder of FLOOR_DIV, with the sign of the divisor.
    FLOOR_MOD = FIRST_OWN + 0x11;
    /// Element-wise angle of the point whose ordinate is input 0 and whose abscissa is input 1.
    ATAN2 = FIRST_OWN + 0x12;
    /// Element-wise exclusive or of the bits of two tensors that broadcast.
    BITWISE_XOR = FIRST_OWN + 0x13;
    /// Element-wise shift to the right by at least 0 bits and at most all but one.
    RIGHT_SHIFT = FIRST_OWN + 0x14;
    /// Sums of the elements up to each along an axis, from either end, with or without the element itself.
    CUMSUM = FIRST_OWN + 0x15;
    /// The numbers from a start to before a limit in equal steps.
    RANGE = FIRST_OWN + 0x16;
    /// For each element, how many of the rising boundaries it reaches.
    BUCKETIZE = FIRST_OWN + 0x17;
    /// Element-wise quotient of integers that broadcast, rounded towards 0.
    TRUNCATED_DIV = FIRST_OWN + 0x18;
    /// What lies at the places of a tensor that indices name.
    GATHER_ND = FIRST_OWN + 0x40;
    /// Lists with one value at an index and another elsewhere.
    ONE_HOT = FIRST_OWN + 0x41;
    /// A tensor with the first elements along an axis in the opposite order, as many as each batch says.
    REVERSE_SEQUENCE = FIRST_OWN + 0x42;
    /// Matrices that have given diagonals and zeros beside them.
    MATRIX_DIAG = FIRST_OWN + 0x43;
    /// Matrices with other diagonals.
    MATRIX_SET_DIAG = FIRST_OWN + 0x44;
    /// A tensor with a part of it replaced.
    DYNAMIC_UPDATE_SLICE = FIRST_OWN + 0x45;
    /// Zeros, with something added at the places that indices name.
    SCATTER_ND = FIRST_OWN + 0x46;
    /// The sum of the rows of each segment; the last row names the last segment.
    SEGMENT_SUM = FIRST_OWN + 0x47;
    /// The sum of the rows of each segment, in any order.
    UNSORTED_SEGMENT_SUM = FIRST_OWN + 0x48;
    /// The product of the rows of each segment, in any order.
    UNSORTED_SEGMENT_PROD = FIRST_OWN + 0x49;
    /// The largest of the rows of each segment, in any order.
    UNSORTED_SEGMENT_MAX = FIRST_OWN + 0x4A;
    /// The smallest of the rows of each segment, in any order.
    UNSORTED_SEGMENT_MIN = FIRST_OWN + 0x4B;
    /// A tensor of one value, with others at the places that indices name.
    SPARSE_TO_DENSE = FIRST_OWN + 0x4C;
    /// The best boxes that do not overlap too much, filled up to a fixed number.
    NON_MAX_SUPPRESSION_V4 = FIRST_OWN + 0x4D;
    /// The same with their scores, which an overlap may lower.
    NON_MAX_SUPPRESSION_V5 = FIRST_OWN + 0x4E;
    /// The indices of the elements that are not zero.
    WHERE = FIRST_OWN + 0x4F;
    /// The values of a list without repetitions, and for each element where its value is among them.
    UNIQUE = FIRST_OWN + 0x50;
    /// A tensor repeated to other dimensions by the rules of broadcasting.
    BROADCAST_TO = FIRST_OWN + 0x51;
    /// The dimensions of a tensor.
    SHAPE = FIRST_OWN + 0x52;
    /// A window that slides over volumes.
    CONV_3D = FIRST_OWN + 0x53;
    /// The reverse of CONV_3D.
    CONV_3D_TRANSPOSE = FIRST_OWN + 0x54;
    /// QUANTIZED_LSTM over a sequence, with or without the batch before time.
    UNIDIRECTIONAL_SEQUENCE_LSTM = FIRST_OWN + 0x80;
    /// The dimensions that two lists of dimensions broadcast to.
    BROADCAST_ARGS = FIRST_OWN + 0x90;
    /// The bits of a tensor as elements of another type.
    BITCAST = FIRST_OWN + 0x91;
    /// Floats rounded to the nearest of evenly spaced ones, as if quantized and dequantized.
    FAKE_QUANT = FIRST_OWN + 0x92;
    /// A tensor with room between its elements, and with more or less of it around them.
    DILATE = FIRST_OWN + 0x93;
    /// Element-wise shift to the left; by less than 0 bits or more than there are it gives 0.
    LEFT_SHIFT = FIRST_OWN + 0x94;
    /// The spectrum of planes of floats: complex numbers, whose two parts lie along one more axis.
    RFFT2D = FIRST_OWN + 0x95;
    /// The magnitude of complex numbers, whose two parts lie along the last axis.
    COMPLEX_ABS = FIRST_OWN + 0x96;
    /// The sum, product or extreme of all that a window covers, at each of its places.
    REDUCE_WINDOW = FIRST_OWN + 0x97;
    /// Element-wise and of the bits of two tensors that broadcast.
    BITWISE_AND = FIRST_OWN + 0x98;
    /// Boxes of a tensor whose corners indices name; corners are moved so that the boxes lie inside.
    GATHER_REGIONS = FIRST_OWN + 0x99;
    /// A tensor with boxes of it replaced or combined with updates; what lies outside is left out.
    SCATTER_REGIONS = FIRST_OWN + 0x9A;
    /// Random floats from 0 to below 1, all as likely, and the generator after them. One of zeros is any.
    RANDOM_UNIFORM = FIRST_OWN + 0xA0;
    /// Random floats of the standard normal distribution; the generator is as in RANDOM_UNIFORM.
    RANDOM_STANDARD_NORMAL = FIRST_OWN + 0xA1;
    /// Classes drawn by their log-probabilities; the generator as in RANDOM_UNIFORM.
    MULTINOMIAL = FIRST_OWN + 0xA2;
    /// A generator's state after random bits, and the bits.
    RNG_BIT_GENERATOR = FIRST_OWN + 0xA3;
}

/// The operation of the extension that does what NNAPI's does for more types or ranks.
#[must_use]
pub fn wider(operation: OperationType) -> Option<OperationType> {
    if operation.0 >= u32::from(FIRST_OWN) {
        return None;
    }
    let wider = OperationType::extension(PREFIX, of(operation));
    facts(wider).map(|_| wider)
}

/// NNAPI's operation that this one of the extension does for more types or ranks.
#[must_use]
pub fn narrower(operation: OperationType) -> Option<OperationType> {
    let mut standard = OperationType::ALL.iter().copied();
    standard.find(|narrower| wider(*narrower) == Some(operation))
}

/// What devices that have the extension say of it.
#[must_use]
pub fn extension() -> Extension {
    let information = |ty: &OperandType| ExtensionOperandTypeInformation {
        number: ty.extension_number(),
        is_tensor: ty.is_tensor(),
        byte_size: ty.element_size() as u32,
    };
    Extension {
        name: NAME.to_owned(),
        operand_types: OPERAND_TYPES.iter().map(information).collect(),
    }
}

/// The mapping of the extension to its prefix.
#[must_use]
pub fn mapping() -> ExtensionNameAndPrefix {
    ExtensionNameAndPrefix {
        name: NAME.to_owned(),
        prefix: PREFIX,
    }
}

impl Model {
    /// The same model, in which [`PREFIX`] is this extension's and no other's. Prefixes must be one to one.
    #[must_use]
    pub fn with_fixed_prefix(self: Arc<Model>) -> Arc<Model> {
        let Some(other) = self.prefix_to_exchange() else {
            return self;
        };
        let exchanged = |prefix: u16| match prefix {
            PREFIX => other,
            prefix if prefix == other => PREFIX,
            prefix => prefix,
        };
        let mut model = Arc::unwrap_or_clone(self);
        for mapping in &mut model.extension_name_to_prefix {
            mapping.prefix = exchanged(mapping.prefix);
        }
        for graph in std::iter::once(&mut model.main).chain(&mut model.referenced) {
            for operation in &mut graph.operations {
                let kind = &mut operation.operation_type;
                *kind = OperationType::extension(exchanged(kind.extension_prefix()), kind.extension_number());
            }
            for operand in &mut graph.operands {
                let ty = &mut operand.operand_type;
                *ty = OperandType::extension(exchanged(ty.extension_prefix()), ty.extension_number());
            }
        }
        Arc::new(model)
    }

    /// The prefix that has to change places with [`PREFIX`]; `None` if nothing has to change.
    fn prefix_to_exchange(&self) -> Option<u16> {
        let mappings = &self.extension_name_to_prefix;
        if let Some(own) = mappings.iter().find(|mapping| mapping.name == NAME) {
            return (own.prefix != PREFIX).then_some(own.prefix);
        }
        let is_used = |prefix: u16| mappings.iter().any(|mapping| mapping.prefix == prefix);
        is_used(PREFIX).then(|| (1..PREFIX).find(|prefix| !is_used(*prefix)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::ValidModel;
    use crate::{DataLocation, NoPools, Operand, OperandLifeTime, Operation, Subgraph};

    /// Names with their prefixes.
    type Extensions = [(&'static str, u16)];

    fn mapping_of(name: &str, prefix: u16) -> ExtensionNameAndPrefix {
        ExtensionNameAndPrefix {
            name: name.to_owned(),
            prefix,
        }
    }

    /// A model with these extensions, and of each prefix an operation and an operand of number 7.
    fn model(extensions: &Extensions) -> Arc<Model> {
        let prefixes = extensions.iter().map(|(_, prefix)| *prefix);
        let operation = |prefix| Operation {
            operation_type: OperationType::extension(prefix, 7),
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let graph = Subgraph {
            operands: prefixes
                .clone()
                .map(|prefix| Operand::new(OperandType::extension(prefix, 7), &[]))
                .collect(),
            operations: prefixes.map(operation).collect(),
            ..Subgraph::default()
        };
        Arc::new(Model {
            main: graph.clone(),
            referenced: vec![graph],
            extension_name_to_prefix: extensions
                .iter()
                .map(|(name, prefix)| mapping_of(name, *prefix))
                .collect(),
            ..Model::default()
        })
    }

    #[test]
    fn extension_gets_its_prefix_whoever_has_it() {
        let cases: [(&Extensions, &Extensions); 5] = [
            (&[(NAME, PREFIX)], &[(NAME, PREFIX)]),
            (&[(NAME, 3)], &[(NAME, PREFIX)]),
            (
                &[("com.acme.a", PREFIX), (NAME, 3)],
                &[("com.acme.a", 3), (NAME, PREFIX)],
            ),
            (
                &[("com.acme.a", PREFIX), ("com.acme.b", 1)],
                &[("com.acme.a", 2), ("com.acme.b", 1)],
            ),
            (&[("com.acme.a", 3)], &[("com.acme.a", 3)]),
        ];
        for (given, expected) in cases {
            assert_eq!(model(given).with_fixed_prefix(), model(expected));
        }
    }

    #[test]
    fn standard_types_stay_as_they_are() {
        let mut given = Arc::unwrap_or_clone(model(&[(NAME, 3)]));
        given
            .main
            .operands
            .push(Operand::new(OperandType::TENSOR_FLOAT32, &[2]));
        let fixed = Arc::new(given).with_fixed_prefix();
        assert_eq!(fixed.main.operands[1].operand_type, OperandType::TENSOR_FLOAT32);
    }

    /// What validation says of a model that computes NEG of this operand, without any device.
    fn check(mut operand: Operand) -> Result<(), String> {
        operand.number_of_consumers = 1;
        let output = Operand::new(TENSOR_INT64, &[2]).with_lifetime(OperandLifeTime::SubgraphOutput);
        let model = Model {
            main: Subgraph {
                operands: vec![operand, output],
                operations: vec![Operation {
                    operation_type: NEG,
                    inputs: vec![0],
                    outputs: vec![1],
                }],
                output_indexes: vec![1],
                ..Subgraph::default()
            },
            operand_values: vec![0; 16],
            extension_name_to_prefix: vec![mapping()],
            ..Model::default()
        };
        let valid = ValidModel::new(Arc::new(model), &NoPools, &[]);
        valid.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn sixty_four_bit_integers_have_eight_bytes_and_no_scale() {
        let operand = |length| Operand {
            location: DataLocation {
                length,
                ..DataLocation::default()
            },
            ..Operand::new(TENSOR_INT64, &[2]).with_lifetime(OperandLifeTime::ConstantCopy)
        };
        assert_eq!(check(operand(16)), Ok(()));
        let wrong = |operand| check(operand).unwrap_err();
        assert!(wrong(operand(8)).contains("in 8 bytes, must be 16"));
        assert!(wrong(operand(16).with_quantization(0.5, 0)).contains("scale 0.5, must be 0"));
        assert!(wrong(operand(16).with_quantization(0.0, 1)).contains("zero point 1"));
        let large = Operand::new(TENSOR_INT64, &[1 << 29]);
        assert!(wrong(large).contains("too large"));
        let other = Operand::new(OperandType::extension(PREFIX, 1), &[2]);
        assert!(wrong(other).contains("has no such type"));
    }

    #[test]
    fn operations_are_told_by_number_and_name() {
        for (index, operation) in OPERATIONS.iter().enumerate() {
            assert!(!OPERATIONS[index + 1..].contains(operation), "{operation}");
            assert_eq!(
                OperationType::from_name(operation.name().unwrap()),
                Some(*operation)
            );
            assert_eq!(operation.extension_prefix(), PREFIX);
        }
        assert_eq!(GELU.to_string(), "TFLITE_GELU");
        assert_eq!(wider(GELU), None);
        assert_eq!(wider(OperationType::CONCATENATION), Some(CONCATENATION));
        assert_eq!(wider(OperationType::LSTM), None);
        let types = extension().operand_types;
        assert_eq!(
            (types.len(), types[0].is_tensor, types[0].byte_size),
            (1, true, 8)
        );
    }
}
