//! The outputs of an operator, and what leads from an operation to them: activations, other scales, floats.

use nnhal_hal::{Operand, OperandType, OperationType};

use super::node::{Node, Refusal};
use crate::graph::Id;
use crate::tensor::Quantization;

/// Where an operation writes, and what must follow to make it the operator's output.
#[must_use]
#[derive(Debug)]
pub(crate) struct Target {
    /// The operand that the operation writes.
    pub(crate) id: Id,
    pub(super) rest: Rest,
}

/// How a target leads to the output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// It is the output.
    Nothing,
    /// By this operation of one input.
    Operation(OperationType, Id),
    /// By quantizing anew.
    Requantize(Id),
}

impl Node<'_, '_, '_, '_> {
    /// A temporary of the shape of an output, as open as the file leaves it.
    fn temporary_of_output(&mut self, number: usize, operand: Operand) -> Result<Id, Refusal> {
        let open = self.output_tensor(number)?.open.clone();
        let id = self.temporary(operand)?;
        self.graph.builder.leave_open(id, open);
        Ok(id)
    }

    /// The operand of an output, to be written by one operation.
    pub(crate) fn output(&mut self, number: usize) -> Result<Id, Refusal> {
        let operand = self.output_operand(number)?;
        self.declare(number, operand)
    }

    /// Gives an output that is not written yet other dimensions than the file's; those that are 0 stay open.
    pub(crate) fn set_dimensions(&mut self, output: Id, dimensions: Vec<u32>) {
        self.graph.builder.operand_mut(output).dimensions = dimensions;
    }

    /// What the file says of an output.
    pub(crate) fn output_operand(&self, number: usize) -> Result<Operand, Refusal> {
        self.output_tensor(number)?
            .operand()
            .map_err(|reason| self.output_error(number, reason))
    }

    /// Makes `operand` an output.
    pub(super) fn declare(&mut self, number: usize, operand: Operand) -> Result<Id, Refusal> {
        let index = self.output_index(number)?;
        if self.graph.is_written(index) {
            return Err(self.output_error(number, "has a value already"));
        }
        let id = self.temporary_of_output(number, operand)?;
        self.graph.set_value(index, id);
        Ok(id)
    }

    /// An output that a fused activation follows. Gives the target and the operand of the activation code.
    pub(crate) fn activated_output(
        &mut self,
        number: usize,
        activation: i8,
    ) -> Result<(Target, Id), Refusal> {
        let step = match activation {
            0..=3 => None,
            4 => Some(OperationType::TANH),
            other => return Err(unknown_activation(other)),
        };
        let code = if step.is_some() { 0 } else { i32::from(activation) };
        let code = self.scalar_i32(code)?;
        let target = match step {
            None => Target {
                id: self.output(number)?,
                rest: Rest::Nothing,
            },
            Some(kind) => self.output_after(number, kind)?,
        };
        Ok((target, code))
    }

    /// An output of an operation without a fused activation, where the file has one.
    pub(crate) fn separately_activated_output(
        &mut self,
        number: usize,
        activation: i8,
    ) -> Result<Target, Refusal> {
        match activation {
            0 => Ok(Target {
                id: self.output(number)?,
                rest: Rest::Nothing,
            }),
            1 => self.output_after(number, OperationType::RELU),
            2 => self.output_after(number, OperationType::RELU1),
            3 => self.output_after(number, OperationType::RELU6),
            4 => self.output_after(number, OperationType::TANH),
            other => Err(unknown_activation(other)),
        }
    }

    /// An output that the operation `kind` computes from the target.
    fn output_after(&mut self, number: usize, kind: OperationType) -> Result<Target, Refusal> {
        let operand = self.output_operand(number)?;
        if kind == OperationType::TANH && operand.scale != 0.0 {
            return Err("it has a fused TANH and a quantized output".into());
        }
        let id = self.temporary_of_output(number, operand)?;
        let output = self.output(number)?;
        Ok(Target {
            id,
            rest: Rest::Operation(kind, output),
        })
    }

    /// An output of an operation whose quantized results have these parameters and no others. Where the file
    /// has others, the result is quantized anew.
    pub(crate) fn output_quantized(
        &mut self,
        number: usize,
        wanted: Quantization,
    ) -> Result<Target, Refusal> {
        let operand = self.output_operand(number)?;
        if operand.scale == wanted.scale && operand.zero_point == wanted.zero_point {
            return Ok(Target {
                id: self.output(number)?,
                rest: Rest::Nothing,
            });
        }
        let quantized = operand.with_quantization(wanted.scale, wanted.zero_point);
        let id = self.temporary_of_output(number, quantized)?;
        let output = self.output(number)?;
        Ok(Target {
            id,
            rest: Rest::Requantize(output),
        })
    }

    /// An output of an operation that computes on quantized values with the parameters of `source`.
    pub(crate) fn output_quantized_like(&mut self, number: usize, source: Id) -> Result<Target, Refusal> {
        let source = self.graph.builder.operand(source);
        let wanted = Quantization {
            scale: source.scale,
            zero_point: source.zero_point,
        };
        if source.operand_type.is_quantized_per_tensor() && !self.nearly_quantized(number, wanted)? {
            return self.output_quantized(number, wanted);
        }
        Ok(Target {
            id: self.output_moved(number, wanted)?,
            rest: Rest::Nothing,
        })
    }

    /// An output of an operation that moves values without looking at them, from `source`.
    pub(crate) fn output_moved_from(&mut self, number: usize, source: Id) -> Result<Id, Refusal> {
        let operand = self.graph.builder.operand(source);
        let wanted = Quantization {
            scale: operand.scale,
            zero_point: operand.zero_point,
        };
        if operand.operand_type.is_quantized_per_tensor() && !self.nearly_quantized(number, wanted)? {
            let found = self.output_operand(number)?;
            return Err(self.output_error(
                number,
                format_args!(
                    "has scale {} and zero point {}; values that are only moved keep theirs, {} and {}",
                    found.scale, found.zero_point, wanted.scale, wanted.zero_point
                ),
            ));
        }
        self.output_moved(number, wanted)
    }

    /// Declares an output with these parameters instead of the file's, which differ by rounding at most.
    fn output_moved(&mut self, number: usize, wanted: Quantization) -> Result<Id, Refusal> {
        let mut operand = self.output_operand(number)?;
        if operand.operand_type.is_quantized_per_tensor() {
            operand = operand.with_quantization(wanted.scale, wanted.zero_point);
        }
        self.declare(number, operand)
    }

    /// Whether an output has these parameters, but for the last digits that converters round differently.
    fn nearly_quantized(&self, number: usize, wanted: Quantization) -> Result<bool, Refusal> {
        let operand = self.output_operand(number)?;
        let close = (operand.scale - wanted.scale).abs() <= wanted.scale * 1e-6;
        Ok(close && operand.zero_point == wanted.zero_point)
    }

    /// An output that floats are computed for: quantized afterwards if the file has it so.
    pub(crate) fn real_output(&mut self, number: usize) -> Result<Target, Refusal> {
        let operand = self.output_operand(number)?;
        if !operand.operand_type.is_quantized_per_tensor() {
            return Ok(Target {
                id: self.output(number)?,
                rest: Rest::Nothing,
            });
        }
        let real = Operand::new(OperandType::TENSOR_FLOAT32, &operand.dimensions);
        let id = self.temporary_of_output(number, real)?;
        let output = self.output(number)?;
        Ok(Target {
            id,
            rest: Rest::Operation(OperationType::QUANTIZE, output),
        })
    }
}

fn unknown_activation(code: i8) -> Refusal {
    match code {
        5 => "its fused activation SIGN_BIT has no equivalent".into(),
        other => Refusal::Reason(format!("its fused activation {other} is unknown")),
    }
}
