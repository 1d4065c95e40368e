//! What a kernel gets: its inputs, its outputs and scratch memory.
//!
//! The executor has matched the operation's signature, and for every operation whose output shapes follow
//! from its inputs it has sized the outputs by the operation table's shape rule before the kernel runs. A
//! kernel checks what neither covers, above all values: indexes, axes, codes. It allocates nothing in steady
//! state: intermediate values go to [`Scratch`].

use bytemuck::Pod;
use nnhal_hal::ops::{OpError, OperandInfo, OperationContext, ShapeIssue};
use nnhal_hal::{Operand, OperandType, Operation, OperationType, Shape};
use nnhal_os::buffer::{AlignedBuffer, AlignedSlice, OutOfMemory};

use crate::interrupt::{Interrupt, Interrupted};
use crate::scratch::Scratch;
use crate::threads::Team;

/// Computes one operation.
pub type Kernel = fn(&mut KernelContext<'_>) -> Result<(), KernelError>;

/// Why a kernel gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The operands or their values break a rule of the operation.
    #[error(transparent)]
    Operation(#[from] OpError),
    /// There is not enough memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The execution was stopped from outside while the operation was computed.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl KernelError {
    /// The same of an input of the operation, if it is of an operation.
    pub(crate) fn at_input(self, input: usize) -> KernelError {
        match self {
            KernelError::Operation(error) => OpError::input(input, error.message).into(),
            other => other,
        }
    }

    /// The same of an output.
    pub(crate) fn at_output(self, output: usize) -> KernelError {
        match self {
            KernelError::Operation(error) => OpError::output(output, error.message).into(),
            other => other,
        }
    }
}

impl From<ShapeIssue> for KernelError {
    fn from(issue: ShapeIssue) -> KernelError {
        match issue {
            ShapeIssue::Invalid(error) => KernelError::Operation(error),
            ShapeIssue::Unknown => KernelError::Operation(OpError::operation("a parameter has no value")),
        }
    }
}

/// The value of an operand during an execution.
#[derive(Debug, Default)]
pub struct Value {
    /// Its exact shape.
    pub shape: Shape,
    /// Its bytes, or memory for them.
    pub buffer: AlignedBuffer,
    /// Bytes of somebody else's that are read instead.
    pub(crate) shared: Option<AlignedSlice>,
    /// Whether the operand has a value; an input that the request omits has none.
    pub present: bool,
}

impl Value {
    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.shared {
            None => self.buffer.bytes(),
            Some(shared) => shared.bytes(),
        }
    }
}

/// An operand with its value, to read.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Type, scale, zero point and extra parameters.
    pub operand: &'a Operand,
    /// The exact shape.
    pub shape: Shape,
    /// The bytes, aligned for the type.
    pub bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// The operand's type.
    #[must_use]
    pub fn ty(&self) -> OperandType {
        self.operand.operand_type
    }

    /// The elements, as `T`, which must have the size of the operand's elements.
    #[inline]
    pub fn data<T: Pod>(&self) -> Result<&'a [T], KernelError> {
        elements(self.ty(), self.bytes)
    }

    /// Scale of a quantised tensor.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.operand.scale
    }

    /// Zero point of a quantised tensor.
    #[must_use]
    pub fn zero_point(&self) -> i32 {
        self.operand.zero_point
    }

    /// The dimensions.
    #[must_use]
    pub fn dims(&self) -> &[u32] {
        self.shape.dims()
    }
}

/// An operand with its value, to write.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Type, scale, zero point and extra parameters.
    pub operand: &'a Operand,
    /// The exact shape.
    pub shape: Shape,
    /// The bytes, aligned for the type; what was there before is not defined.
    pub bytes: &'a mut [u8],
}

impl<'a> TensorMut<'a> {
    /// The operand's type.
    #[must_use]
    pub fn ty(&self) -> OperandType {
        self.operand.operand_type
    }

    /// The elements, as `T`, which must have the size of the operand's elements.
    #[inline]
    pub fn into_data<T: Pod>(self) -> Result<&'a mut [T], KernelError> {
        elements_mut(self.ty(), self.bytes)
    }

    /// The elements, as `T`, for as long as the tensor is borrowed.
    pub fn data_mut<T: Pod>(&mut self) -> Result<&mut [T], KernelError> {
        elements_mut(self.ty(), self.bytes)
    }

    /// Scale of a quantised tensor.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.operand.scale
    }

    /// Zero point of a quantised tensor.
    #[must_use]
    pub fn zero_point(&self) -> i32 {
        self.operand.zero_point
    }
}

/// The elements of an operand of this type.
#[inline]
fn elements<T: Pod>(ty: OperandType, bytes: &[u8]) -> Result<&[T], KernelError> {
    check_element_size::<T>(ty)?;
    bytemuck::try_cast_slice(bytes)
        .map_err(|error| OpError::operation(format!("an operand cannot be read: {error}")).into())
}

/// The same, to write.
#[inline]
fn elements_mut<T: Pod>(ty: OperandType, bytes: &mut [u8]) -> Result<&mut [T], KernelError> {
    check_element_size::<T>(ty)?;
    bytemuck::try_cast_slice_mut(bytes)
        .map_err(|error| OpError::operation(format!("an operand cannot be written: {error}")).into())
}

#[inline]
fn check_element_size<T>(ty: OperandType) -> Result<(), KernelError> {
    if size_of::<T>() == ty.element_size() {
        return Ok(());
    }
    Err(OpError::operation(format!(
        "{ty} has elements of {} bytes, not {}",
        ty.element_size(),
        size_of::<T>()
    ))
    .into())
}

/// The inputs of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) operands: &'a [Operand],
    pub(crate) constants: &'a [Option<Constant>],
    pub(crate) values: Values<'a>,
}

/// The values of a graph, but for that of an operand which is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a> {
    before: &'a [Value],
    /// Those behind it.
    after: &'a [Value],
}

impl<'a> Values<'a> {
    /// All of them.
    #[inline]
    pub(crate) fn all(values: &'a [Value]) -> Values<'a> {
        Values {
            before: values,
            after: &[],
        }
    }

    /// All but one, which is the second; `None` if there is none of this number.
    #[inline]
    pub(crate) fn but(values: &'a mut [Value], number: usize) -> Option<(Values<'a>, &'a mut Value)> {
        let (before, rest) = values.split_at_mut_checked(number)?;
        let (one, after) = rest.split_first_mut()?;
        Some((Values { before, after }, one))
    }

    /// The value of this operand.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&'a Value> {
        match number.checked_sub(self.before.len()) {
            None => self.before.get(number),
            Some(behind) => self.after.get(behind.checked_sub(1)?),
        }
    }
}

/// A constant operand: its exact shape and its bytes, aligned.
#[derive(Debug)]
pub struct Constant {
    pub(crate) shape: Shape,
    pub(crate) bytes: AlignedBuffer,
}

impl<'a> Inputs<'a> {
    /// Number of inputs, omitted ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operation.inputs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operation.inputs.is_empty()
    }

    /// The input with this number, or `None` if it is beyond the list or omitted.
    #[must_use]
    #[inline]
    pub fn optional(&self, index: usize) -> Option<Tensor<'a>> {
        let at = *self.operation.inputs.get(index)? as usize;
        let operand = self.operands.get(at)?;
        if let Some(constant) = self.constants.get(at)? {
            return Some(Tensor {
                operand,
                shape: constant.shape,
                bytes: constant.bytes.bytes(),
            });
        }
        let value = self.values.get(at).filter(|value| value.present)?;
        Some(Tensor {
            operand,
            shape: value.shape,
            bytes: value.bytes(),
        })
    }

    /// The bytes of the input with this number, if it is there.
    #[inline(always)]
    pub(crate) fn bytes(&self, index: usize) -> Option<&'a [u8]> {
        self.operand(*self.operation.inputs.get(index)?)
    }

    /// The bytes of an operand of the graph, if it is there.
    #[inline(always)]
    pub(crate) fn operand(&self, at: u32) -> Option<&'a [u8]> {
        let at = at as usize;
        if let Some(constant) = self.constants.get(at)? {
            return Some(constant.bytes.bytes());
        }
        let value = self.values.get(at).filter(|value| value.present)?;
        Some(value.bytes())
    }

    /// The input with this number, which must be there.
    #[inline]
    pub fn tensor(&self, index: usize) -> Result<Tensor<'a>, KernelError> {
        self.optional(index)
            .ok_or_else(|| OpError::input(index, "is omitted but this operation needs its value").into())
    }

    /// The elements of the input with this number, which must be there.
    #[inline]
    pub fn data<T: Pod>(&self, index: usize) -> Result<&'a [T], KernelError> {
        let at = self.operation.inputs.get(index);
        let operand = at.and_then(|at| self.operands.get(*at as usize));
        match operand.zip(self.bytes(index)) {
            // Without the tensor's shape, which would be copied.
            Some((operand, bytes)) => elements(operand.operand_type, bytes),
            // Tells which it is.
            None => self.tensor(index)?.data(),
        }
    }

    /// Scalar and shape helpers, as shape rules have them.
    #[must_use]
    pub fn rules(&self) -> &(dyn OperationContext + 'a) {
        self
    }

    /// The value of a scalar `INT32` input.
    #[inline]
    pub fn i32(&self, index: usize) -> Result<i32, KernelError> {
        if let Some(tensor) = self.optional(index)
            && tensor.ty() == OperandType::INT32
            && let Ok(bytes) = tensor.bytes.try_into()
        {
            return Ok(i32::from_ne_bytes(bytes));
        }
        // With the reason, for those that are not one.
        Ok(self.rules().i32(index)?)
    }

    /// The value of a scalar float input, widened to `f32`.
    pub fn f32(&self, index: usize) -> Result<f32, KernelError> {
        Ok(self.rules().f32(index)?)
    }

    /// The value of a scalar `BOOL` input, or `default` if it is left out.
    pub fn bool_or(&self, index: usize, default: bool) -> Result<bool, KernelError> {
        Ok(self.rules().bool_or(index, default)?)
    }

    /// The value of a scalar `INT32` input, or `default` if it is left out.
    pub fn i32_or(&self, index: usize, default: i32) -> Result<i32, KernelError> {
        Ok(self.rules().i32_or(index, default)?)
    }
}

impl OperationContext for Inputs<'_> {
    fn operation(&self) -> OperationType {
        self.operation.operation_type
    }

    fn input_count(&self) -> usize {
        self.operation.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.operation.outputs.len()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        self.optional(index).map(|tensor| OperandInfo {
            operand: tensor.operand,
            shape: tensor.shape,
            rank_known: true,
            shape_known: true,
            bytes: Some(tensor.bytes),
        })
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        let operand = self.operands.get(*self.operation.outputs.get(index)? as usize)?;
        let shape = Shape::new(&operand.dimensions).ok()?;
        Some(OperandInfo {
            operand,
            shape,
            rank_known: !operand.operand_type.is_tensor() || shape.rank() > 0,
            shape_known: shape.is_fully_specified(),
            bytes: None,
        })
    }

    fn executing(&self) -> bool {
        true
    }
}

/// The outputs of an operation.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) operands: &'a [Operand],
    pub(crate) values: &'a mut [Value],
}

impl Outputs<'_> {
    /// Number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The bytes of the output with this number, if there is one.
    #[inline]
    pub(crate) fn bytes(&mut self, index: usize) -> Option<&mut [u8]> {
        self.values.get_mut(index).map(|value| value.buffer.bytes_mut())
    }

    /// The output with this number.
    #[inline]
    pub fn tensor(&mut self, index: usize) -> Result<TensorMut<'_>, KernelError> {
        let [tensor] = self.tensors([index])?;
        Ok(tensor)
    }

    /// Several outputs at once, each at most once.
    #[inline]
    pub fn tensors<const N: usize>(
        &mut self,
        indexes: [usize; N],
    ) -> Result<[TensorMut<'_>; N], KernelError> {
        let (operation, operands) = (self.operation, self.operands);
        let values = self
            .values
            .get_disjoint_mut(indexes)
            .map_err(|_| OpError::operation(format!("has no outputs {indexes:?}")))?;
        let mut at = indexes.iter();
        Ok(values.map(|value| {
            let index = at.next().map_or(0, |index| operation.outputs[*index] as usize);
            TensorMut {
                operand: &operands[index],
                shape: value.shape,
                bytes: value.buffer.bytes_mut(),
            }
        }))
    }

    /// The elements of the output with this number.
    #[inline]
    pub fn data<T: Pod>(&mut self, index: usize) -> Result<&mut [T], KernelError> {
        let at = self.operation.outputs.get(index);
        let operand = at.and_then(|at| self.operands.get(*at as usize));
        match operand.zip(self.values.get_mut(index)) {
            // Without the tensor's shape, which would be copied.
            Some((operand, value)) => elements_mut(operand.operand_type, value.buffer.bytes_mut()),
            None => Err(OpError::operation(format!("has no output {index}")).into()),
        }
    }

    /// Sets the shape of an output and gives it the memory; for operations whose output shapes depend on
    /// data.
    pub fn resize(&mut self, index: usize, shape: Shape) -> Result<(), KernelError> {
        let Some(value) = self.values.get_mut(index) else {
            return Err(OpError::output(index, "is missing").into());
        };
        let operand = &self.operands[self.operation.outputs[index] as usize];
        allocate(value, operand, shape).map_err(|error| error.at_output(index))
    }
}

/// Gives `value` this shape and the memory for it, if the operand's declaration allows the shape.
pub(crate) fn allocate(value: &mut Value, operand: &Operand, shape: Shape) -> Result<(), KernelError> {
    let bytes = allowed_size(operand, shape)?;
    value.shared = None;
    value.buffer.resize(bytes)?;
    value.shape = shape;
    value.present = true;
    Ok(())
}

/// Gives `value` this shape and content that it shares, if the operand's declaration allows the shape and the
/// content has exactly that size.
pub(crate) fn bind(
    value: &mut Value,
    operand: &Operand,
    shape: Shape,
    memory: AlignedSlice,
) -> Result<(), KernelError> {
    let bytes = allowed_size(operand, shape)?;
    if memory.bytes().len() != bytes {
        let found = memory.bytes().len();
        return Err(OpError::operation(format!("has {bytes} bytes, its memory {found}")).into());
    }
    value.shared = Some(memory);
    value.shape = shape;
    value.present = true;
    Ok(())
}

/// The bytes of a value of this shape, if the operand's declaration allows it.
pub(crate) fn allowed_size(operand: &Operand, shape: Shape) -> Result<usize, KernelError> {
    let declared = Shape::new(&operand.dimensions).map_err(|error| OpError::operation(error.to_string()))?;
    let fits = if operand.operand_type.is_tensor() {
        declared.allows(&shape)
    } else {
        shape.rank() == 0
    };
    if !fits {
        return Err(OpError::operation(format!(
            "has dimensions {shape:?} when computed, the model declares {declared:?}"
        ))
        .into());
    }
    shape
        .byte_size(operand.operand_type.element_size())
        .map_err(|error| OpError::operation(error.to_string()).into())
}

/// An operation about to be computed.
pub struct KernelContext<'a> {
    /// What it reads.
    pub inputs: Inputs<'a>,
    /// What it writes.
    pub outputs: Outputs<'a>,
    /// Memory for intermediate values.
    pub scratch: &'a mut Scratch,
    /// Whether float32 may be computed with the range and precision of float16.
    pub relaxed: bool,
    /// The threads to compute with, which also know whether the execution is to go on.
    pub team: &'a Team<'a>,
}

impl<'a> KernelContext<'a> {
    /// For kernels whose cost grows faster than their operands: see [`Pace`].
    #[must_use]
    pub fn pace(&self) -> Pace<'a> {
        Pace::new(self.team)
    }
}

impl std::fmt::Debug for KernelContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelContext")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("relaxed", &self.relaxed)
            .finish_non_exhaustive()
    }
}

/// How many steps of work a kernel does between two checks: well below a millisecond.
const WORK_BETWEEN_CHECKS: usize = 1 << 15;

/// Checks every so many steps of work whether the execution is to go on, so that deadlines and cancellation
/// work inside an operation.
pub struct Pace<'a> {
    interrupt: &'a dyn Interrupt,
    left: usize,
}

impl<'a> Pace<'a> {
    /// Asks `interrupt`.
    #[must_use]
    pub fn new(interrupt: &'a dyn Interrupt) -> Pace<'a> {
        Pace {
            interrupt,
            left: WORK_BETWEEN_CHECKS,
        }
    }

    /// Accounts for `steps` of work, each a few operations on numbers, about to be done.
    ///
    /// # Errors
    /// The execution has been interrupted.
    #[inline]
    pub fn work(&mut self, steps: usize) -> Result<(), KernelError> {
        if steps < self.left {
            self.left -= steps;
            return Ok(());
        }
        self.left = WORK_BETWEEN_CHECKS;
        Ok(self.interrupt.check()?)
    }
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
