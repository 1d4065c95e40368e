//! What an operation's rules may look at: the same view for model validation and for execution.

use crate::{ExtraParams, Operand, OperandType, OperationType, Shape};

/// Which part of an operation an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationPart {
    /// The input with this number.
    Input(usize),
    /// The output with this number.
    Output(usize),
    /// The operation as a whole.
    Operation,
}

impl std::fmt::Display for OperationPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OperationPart::Input(index) => write!(f, "input {index}"),
            OperationPart::Output(index) => write!(f, "output {index}"),
            OperationPart::Operation => f.write_str("the operation"),
        }
    }
}

/// A rule of an operation that its operands or their values break. The message says what was wrong and what
/// would be right; whoever reports it adds the operation's index and name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct OpError {
    /// Where.
    pub place: OperationPart,
    /// What was wrong, and what would be right.
    pub message: String,
}

impl OpError {
    /// An error about the input with this number.
    pub fn input(index: usize, message: impl Into<String>) -> OpError {
        OpError {
            place: OperationPart::Input(index),
            message: message.into(),
        }
    }

    /// An error about the output with this number.
    pub fn output(index: usize, message: impl Into<String>) -> OpError {
        OpError {
            place: OperationPart::Output(index),
            message: message.into(),
        }
    }

    /// An error about the operation as a whole.
    pub fn operation(message: impl Into<String>) -> OpError {
        OpError {
            place: OperationPart::Operation,
            message: message.into(),
        }
    }
}

/// Why a shape rule gave no shapes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeIssue {
    /// A dimension or value that the rule needs comes only at execution.
    #[error("not known before execution")]
    Unknown,
    /// The operands break a rule.
    #[error(transparent)]
    Invalid(#[from] OpError),
}

/// One operand as an operation sees it.
#[derive(Clone, Copy, Debug)]
pub struct OperandInfo<'a> {
    /// The operand as the model declares it: type, scale, zero point, extra parameters.
    pub operand: &'a Operand,
    /// Its dimensions: as far as known during validation (0 for an open extent), exact during execution.
    pub shape: Shape,
    /// Whether the rank is known; only then is a rank of 0 the rank of a scalar.
    pub rank_known: bool,
    /// Whether every extent is known, so that a 0 is an extent of zero.
    pub shape_known: bool,
    /// The bytes, if they are known already. Aligned for the operand's type.
    pub bytes: Option<&'a [u8]>,
}

impl OperandInfo<'_> {
    /// The operand's type.
    #[must_use]
    pub fn ty(&self) -> OperandType {
        self.operand.operand_type
    }
}

/// An operation with its operands: during validation as the model declares them, during execution with exact
/// shapes and all values.
pub trait OperationContext {
    /// The operation.
    fn operation(&self) -> OperationType;
    /// Number of inputs, omitted ones included.
    fn input_count(&self) -> usize;
    /// Number of outputs.
    fn output_count(&self) -> usize;
    /// The input with this number; `None` if it is beyond the list, or omitted (lifetime `NO_VALUE`, or no
    /// value in the request).
    fn input(&self, index: usize) -> Option<OperandInfo<'_>>;
    /// The type that the model declares for this input, omitted or not; `None` beyond the list, or for an
    /// omitted input where the context does not know.
    fn declared_type(&self, index: usize) -> Option<OperandType> {
        self.input(index).map(|input| input.ty())
    }
    /// The output with this number, as declared; `None` beyond the list.
    fn output(&self, index: usize) -> Option<OperandInfo<'_>>;
    /// Whether this is an execution, where nothing is unknown any more.
    fn executing(&self) -> bool;

    /// Whether the operation is being added to a model that is not finished yet; see
    /// [`super::Param::rank_is_late`].
    fn being_added(&self) -> bool {
        false
    }
}

/// What rules ask of an [`OperationContext`].
impl<'c> dyn OperationContext + 'c {
    /// The input, which must be there.
    pub fn required(&self, index: usize) -> Result<OperandInfo<'_>, OpError> {
        self.input(index)
            .ok_or_else(|| OpError::input(index, "is omitted but not optional"))
    }

    /// The output, which must be there.
    pub fn required_output(&self, index: usize) -> Result<OperandInfo<'_>, OpError> {
        self.output(index)
            .ok_or_else(|| OpError::output(index, "is missing"))
    }

    /// Whether the list reaches this input, omitted or not.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        index < self.input_count()
    }

    /// The input's shape, every extent known; for shape rules.
    pub fn shape(&self, index: usize) -> Result<Shape, ShapeIssue> {
        let input = self.required(index)?;
        if input.shape_known {
            Ok(input.shape)
        } else {
            Err(ShapeIssue::Unknown)
        }
    }

    /// The input's shape, every extent known, with this rank.
    pub fn shape_of_rank(&self, index: usize, rank: usize) -> Result<Shape, ShapeIssue> {
        let shape = self.shape(index)?;
        if shape.rank() != rank {
            return Err(OpError::input(index, format!("has rank {}, must be {rank}", shape.rank())).into());
        }
        Ok(shape)
    }

    /// The input's bytes; for shape rules.
    pub fn bytes(&self, index: usize) -> Result<&[u8], ShapeIssue> {
        self.required(index)?.bytes.ok_or(ShapeIssue::Unknown)
    }

    /// The elements of an input of `TENSOR_INT32` (or one `INT32`); for shape rules.
    pub fn i32s(&self, index: usize) -> Result<&[i32], ShapeIssue> {
        let input = self.required(index)?;
        if !matches!(input.ty(), OperandType::TENSOR_INT32 | OperandType::INT32) {
            return Err(
                OpError::input(index, format!("is {}, must hold 32-bit integers", input.ty())).into(),
            );
        }
        let bytes = input.bytes.ok_or(ShapeIssue::Unknown)?;
        bytemuck::try_cast_slice(bytes).map_err(|_| {
            OpError::input(index, format!("has {} bytes, not a multiple of 4", bytes.len())).into()
        })
    }

    /// The value of a scalar `INT32` input; for shape rules and kernels.
    pub fn i32(&self, index: usize) -> Result<i32, ShapeIssue> {
        match self.i32s(index)? {
            [value] => Ok(*value),
            values => {
                Err(OpError::input(index, format!("has {} elements, must be one", values.len())).into())
            }
        }
    }

    /// The value of a scalar `BOOL` input.
    pub fn bool(&self, index: usize) -> Result<bool, ShapeIssue> {
        self.required(index)?;
        self.bool_or(index, false)
    }

    /// The value of a scalar `BOOL` input; `default` if the list ends before it or it is omitted.
    pub fn bool_or(&self, index: usize, default: bool) -> Result<bool, ShapeIssue> {
        let Some(input) = self.input(index) else {
            return Ok(default);
        };
        match input.bytes {
            None => Err(ShapeIssue::Unknown),
            Some([byte]) => Ok(*byte != 0),
            Some(bytes) => {
                Err(OpError::input(index, format!("has {} bytes, must be one BOOL", bytes.len())).into())
            }
        }
    }

    /// The value of a scalar `INT32` input; `default` if the list ends before it or it is omitted.
    pub fn i32_or(&self, index: usize, default: i32) -> Result<i32, ShapeIssue> {
        if self.input(index).is_some() {
            self.i32(index)
        } else {
            Ok(default)
        }
    }

    /// The value of a scalar `FLOAT32` or `FLOAT16` input, widened.
    pub fn f32(&self, index: usize) -> Result<f32, ShapeIssue> {
        let input = self.required(index)?;
        let bytes = input.bytes.ok_or(ShapeIssue::Unknown)?;
        match (input.ty(), bytes) {
            (OperandType::FLOAT32, &[a, b, c, d]) => Ok(f32::from_le_bytes([a, b, c, d])),
            (OperandType::FLOAT16, &[a, b]) => Ok(half::f16::from_le_bytes([a, b]).to_f32()),
            (ty, bytes) => Err(OpError::input(
                index,
                format!("is {ty} of {} bytes, must be one float", bytes.len()),
            )
            .into()),
        }
    }

    /// The input's rank must be `rank`, once it is known; for checks.
    pub fn check_rank(&self, index: usize, rank: usize) -> Result<(), OpError> {
        match self.input(index) {
            Some(input) if input.rank_known && input.shape.rank() != rank => Err(OpError::input(
                index,
                format!("has rank {}, must be {rank}", input.shape.rank()),
            )),
            _ => Ok(()),
        }
    }

    /// The input, which has this name, must have one element, once its shape is known; for checks.
    pub fn check_single_element(&self, index: usize, name: &str) -> Result<(), OpError> {
        match unless_unknown(self.shape(index))? {
            Some(shape) if shape.elements() != Ok(1) => Err(OpError::input(
                index,
                format!("({name}) has dimensions {shape:?}, must have one element"),
            )),
            _ => Ok(()),
        }
    }

    /// Input and output must have the same scale and zero point, as operations that only move values need.
    pub fn check_same_quantization(&self, input: usize, output: usize) -> Result<(), OpError> {
        let from = self.required(input)?.operand;
        let to = self.required_output(output)?.operand;
        if from.scale != to.scale || from.zero_point != to.zero_point {
            return Err(OpError::output(
                output,
                format!(
                    "has scale {} and zero point {}, must have those of input {input}: {} and {}",
                    to.scale, to.zero_point, from.scale, from.zero_point
                ),
            ));
        }
        Ok(())
    }

    /// The output must have this scale and zero point.
    pub fn check_output_quantization(
        &self,
        output: usize,
        scale: f32,
        zero_point: i32,
    ) -> Result<(), OpError> {
        let operand = self.required_output(output)?.operand;
        if operand.scale != scale || operand.zero_point != zero_point {
            return Err(OpError::output(
                output,
                format!(
                    "has scale {} and zero point {}, must be {scale} and {zero_point}",
                    operand.scale, operand.zero_point
                ),
            ));
        }
        Ok(())
    }

    /// The per-channel parameters of an input, if it has them.
    #[must_use]
    pub fn channel_quant(&self, index: usize) -> Option<&crate::SymmPerChannelQuantParams> {
        match &self.input(index)?.operand.extra_params {
            ExtraParams::ChannelQuant(params) => Some(params),
            _ => None,
        }
    }
}

/// Turns what is not known yet into "no violation": for checks that use shape-rule helpers.
pub fn unless_unknown<T>(result: Result<T, ShapeIssue>) -> Result<Option<T>, OpError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ShapeIssue::Unknown) => Ok(None),
        Err(ShapeIssue::Invalid(error)) => Err(error),
    }
}
