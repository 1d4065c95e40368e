//! The extension `org.nnhal.tflite`: what TFLite's CPU runtime computes and NNAPI has no operation for.
//!
//! An extension's operations have numbers of their own and a prefix that each model chooses. Validation gives
//! this extension the one prefix [`PREFIX`] ([`Model::with_fixed_prefix`]), so that below it an operation of the
//! extension is told by its number alone, as those of NNAPI are.
//!
//! There are two kinds of operations. Some NNAPI lacks. Others NNAPI has for fewer types or ranks; these have
//! its operation's number, arguments and meaning, and [`wider`] finds them.

use std::sync::Arc;

use super::{Extension, ExtensionNameAndPrefix, Model, OperandType, OperationType};

/// The extension's name.
pub const NAME: &str = "org.nnhal.tflite";

/// Its prefix in models that passed validation: the highest that NNAPI has room for.
pub const PREFIX: u16 = 0x7FFF;

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
    /// ADD, also of 16-bit steps, up to rank 8.
    ADD = of(OperationType::ADD);
    /// AVERAGE_POOL_2D of 16-bit steps.
    AVERAGE_POOL_2D = of(OperationType::AVERAGE_POOL_2D);
    /// CONCATENATION of any type that tensors have, up to rank 8.
    CONCATENATION = of(OperationType::CONCATENATION);
    /// CONV_2D of 16-bit steps, with a filter of signed bytes.
    CONV_2D = of(OperationType::CONV_2D);
    /// DEPTHWISE_CONV_2D of 16-bit steps, with a filter of signed bytes.
    DEPTHWISE_CONV_2D = of(OperationType::DEPTHWISE_CONV_2D);
    /// DEQUANTIZE, also of 16-bit steps, up to rank 8.
    DEQUANTIZE = of(OperationType::DEQUANTIZE);
    /// FULLY_CONNECTED of 16-bit steps, with weights of signed bytes.
    FULLY_CONNECTED = of(OperationType::FULLY_CONNECTED);
    /// LOGISTIC, also of 16-bit steps, up to rank 8.
    LOGISTIC = of(OperationType::LOGISTIC);
    /// MAX_POOL_2D of 16-bit steps.
    MAX_POOL_2D = of(OperationType::MAX_POOL_2D);
    /// MUL, also of 16-bit steps and to fine scales, up to rank 8.
    MUL = of(OperationType::MUL);
    /// RELU, also of 16-bit steps, up to rank 8.
    RELU = of(OperationType::RELU);
    /// RELU1, also of 16-bit steps, up to rank 8.
    RELU1 = of(OperationType::RELU1);
    /// RELU6, also of 16-bit steps, up to rank 8.
    RELU6 = of(OperationType::RELU6);
    /// RESHAPE of any type that tensors have, up to rank 8.
    RESHAPE = of(OperationType::RESHAPE);
    /// SOFTMAX of 16-bit steps.
    SOFTMAX = of(OperationType::SOFTMAX);
    /// TANH, also of 16-bit steps, up to rank 8.
    TANH = of(OperationType::TANH);
    /// DIV up to rank 8.
    DIV = of(OperationType::DIV);
    /// MEAN, also of integers, of 16-bit steps and to another scale, up to rank 8.
    MEAN = of(OperationType::MEAN);
    /// SQUEEZE of any type that tensors have, up to rank 8.
    SQUEEZE = of(OperationType::SQUEEZE);
    /// SUB, also of 16-bit steps, up to rank 8.
    SUB = of(OperationType::SUB);
    /// CAST between all types of numbers and truth values. Integers beyond the output's type wrap.
    CAST = of(OperationType::CAST);
    /// EQUAL, also of 16-bit steps.
    EQUAL = of(OperationType::EQUAL);
    /// EXPAND_DIMS of any type that tensors have, up to rank 8.
    EXPAND_DIMS = of(OperationType::EXPAND_DIMS);
    /// GREATER, also of 16-bit steps.
    GREATER = of(OperationType::GREATER);
    /// GREATER_EQUAL, also of 16-bit steps.
    GREATER_EQUAL = of(OperationType::GREATER_EQUAL);
    /// LESS, also of 16-bit steps.
    LESS = of(OperationType::LESS);
    /// LESS_EQUAL, also of 16-bit steps.
    LESS_EQUAL = of(OperationType::LESS_EQUAL);
    /// MAXIMUM, also of 16-bit steps.
    MAXIMUM = of(OperationType::MAXIMUM);
    /// MINIMUM, also of 16-bit steps.
    MINIMUM = of(OperationType::MINIMUM);
    /// NOT_EQUAL, also of 16-bit steps.
    NOT_EQUAL = of(OperationType::NOT_EQUAL);
    /// PRELU, also of 16-bit steps.
    PRELU = of(OperationType::PRELU);
    /// QUANTIZE, also to 16-bit steps.
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
    /// SELECT of any type that tensors have; condition and choices broadcast to one shape.
    SELECT = of(OperationType::SELECT);
    /// BATCH_MATMUL of 16-bit steps.
    BATCH_MATMUL = of(OperationType::BATCH_MATMUL);
    /// x * (1 + erf(x / sqrt(2))) / 2, or its approximation by a hyperbolic tangent.
    GELU = FIRST_OWN;
    /// Element-wise nearest integer; of two the even one.
    ROUND = FIRST_OWN + 1;
    /// Element-wise -1, 0 or 1.
    SIGN = FIRST_OWN + 2;
    /// Element-wise cosine.
    COS = FIRST_OWN + 3;
    /// Element-wise quotient, rounded down, of two tensors that broadcast. Quantized elements count as stored.
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

/// What devices that have the extension say of it.
#[must_use]
pub fn extension() -> Extension {
    Extension {
        name: NAME.to_owned(),
        operand_types: Vec::new(),
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
    /// The same model, in which [`PREFIX`] is this extension's and no other's. The prefixes must be one to one.
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
    use crate::{Operand, Operation, Subgraph};

    fn mapping_of(name: &str, prefix: u16) -> ExtensionNameAndPrefix {
        ExtensionNameAndPrefix {
            name: name.to_owned(),
            prefix,
        }
    }

    /// A model with these extensions, and of each prefix an operation and an operand of number 7.
    fn model(extensions: &[(&str, u16)]) -> Arc<Model> {
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
        let cases: [(&[(&str, u16)], &[(&str, u16)]); 5] = [
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
    }
}
