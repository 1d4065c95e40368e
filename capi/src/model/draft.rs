//! A model that is being built.

use nnhal_hal::validate;
use nnhal_hal::{ExtraParams, Operand, OperandType, Operation, OperationType, Shape, TypeLayouts};

use super::signature;
use super::value::{NewValue, Value};
use crate::codes::ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES;
use crate::extension;
use crate::result::{Failure, Outcome};

/// Operands and operations as they were added. What is known of an operand's lifetime is in `values` until
/// the model is finished.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(super) operands: Vec<Operand>,
    /// One for each operand.
    pub(super) values: Vec<Value>,
    pub(super) operations: Vec<Operation>,
    /// Inputs and outputs, once they are identified.
    pub(super) arguments: Option<(Vec<u32>, Vec<u32>)>,
    pub(super) is_relaxed: bool,
    /// Constants that were copied.
    pub(super) copied: Vec<u8>,
}

impl Draft {
    pub(crate) fn add_operand(&mut self, operand: Operand) -> Outcome {
        let index = self.operands.len();
        if index >= 0xFFFF_FFFE {
            return Err(Failure::bad_data("the model has as many operands as it can have"));
        }
        let layouts = extension::layouts(operand.operand_type)?;
        validate::check_declaration(&operand, &layouts)
            .map_err(|text| Failure::bad_data(format!("operand {index} {text}")))?;
        self.operands.push(operand);
        self.values.push(Value::None);
        Ok(())
    }

    pub(crate) fn set_value(&mut self, index: i32, value: NewValue) -> Outcome {
        let (index, operand) = self.operand(index)?;
        let is_model = operand.operand_type == OperandType::SUBGRAPH;
        if is_model != matches!(value, NewValue::Model(_)) {
            return Err(Failure::bad_data(format!(
                "operand {index} is {}; ANeuralNetworksModel_setOperandValueFromModel is for ANEURALNETWORKS_MODEL, \
                 and nothing else is",
                operand.operand_type
            )));
        }
        let value = match value {
            NewValue::Omitted => Value::Omitted,
            NewValue::Model(model) => Value::Model(model),
            NewValue::Bytes(bytes) => {
                expect_size(operand, index, bytes.len())?;
                if bytes.len() <= ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES {
                    self.copied.resize(self.copied.len().next_multiple_of(4), 0);
                    let offset = self.copied.len();
                    self.copied.extend_from_slice(bytes.as_slice());
                    let length = bytes.len();
                    Value::Copied { offset, length }
                } else {
                    Value::Referenced(bytes)
                }
            }
            NewValue::Memory {
                memory,
                offset,
                length,
            } => {
                let shared = memory.part(offset, length)?;
                expect_size(operand, index, length)?;
                Value::Shared(shared)
            }
        };
        self.values[index] = value;
        Ok(())
    }

    pub(crate) fn set_extra_params(&mut self, index: i32, params: ExtraParams) -> Outcome {
        let (index, operand) = self.operand(index)?;
        let mut changed = operand.clone();
        changed.extra_params = params;
        validate::check_extra_params(&changed)
            .map_err(|text| Failure::bad_data(format!("operand {index} {text}")))?;
        self.operands[index] = changed;
        Ok(())
    }

    /// Parameters of an extension's type; none take away those that were there.
    pub(crate) fn set_extension_data(&mut self, index: i32, params: ExtraParams) -> Outcome {
        let (at, operand) = self.operand(index)?;
        if !operand.operand_type.is_extension() {
            return Err(Failure::bad_data(format!(
                "operand {at} is {}, which is of no extension",
                operand.operand_type
            )));
        }
        self.set_extra_params(index, params)
    }

    pub(crate) fn relax(&mut self, is_relaxed: bool) {
        self.is_relaxed = is_relaxed;
    }

    pub(crate) fn add_operation(
        &mut self,
        kind: OperationType,
        inputs: Vec<u32>,
        outputs: Vec<u32>,
    ) -> Outcome {
        let index = self.operations.len();
        if index >= 0xFFFF_FFFE {
            return Err(Failure::bad_data(
                "the model has as many operations as it can have",
            ));
        }
        for (what, list) in [("input", &inputs), ("output", &outputs)] {
            let outside = list
                .iter()
                .position(|operand| *operand as usize >= self.operands.len());
            if let Some(number) = outside {
                return Err(Failure::bad_data(format!(
                    "{what} {number} of operation {index} ({kind}) is operand {}, the model has {}",
                    list[number],
                    self.operands.len()
                )));
            }
        }
        let operation = Operation {
            operation_type: kind,
            inputs,
            outputs,
        };
        signature::check(&self.operands, &self.values, &operation)
            .map_err(|text| Failure::bad_data(format!("operation {index} ({kind}): {text}")))?;
        self.operations.push(operation);
        Ok(())
    }

    pub(crate) fn identify(&mut self, inputs: Vec<u32>, outputs: Vec<u32>) -> Outcome {
        let mut listed = vec![None; self.operands.len()];
        for (what, list) in [("inputs", &inputs), ("outputs", &outputs)] {
            for operand in list {
                let Some(first) = listed.get_mut(*operand as usize) else {
                    return Err(Failure::bad_data(format!(
                        "the {what} have operand {operand}, the model has {}",
                        self.operands.len()
                    )));
                };
                if let Some(first) = first.replace(what) {
                    return Err(Failure::bad_data(format!(
                        "the {what} have operand {operand}, which the {first} have already"
                    )));
                }
                if !matches!(self.values[*operand as usize], Value::None) {
                    return Err(Failure::bad_data(format!(
                        "the {what} have operand {operand}, which has a value in the model"
                    )));
                }
            }
        }
        self.arguments = Some((inputs, outputs));
        Ok(())
    }

    fn operand(&self, index: i32) -> Outcome<(usize, &Operand)> {
        let found = usize::try_from(index)
            .ok()
            .and_then(|at| Some((at, self.operands.get(at)?)));
        found.ok_or_else(|| {
            Failure::bad_data(format!(
                "there is no operand {index}, the model has {}",
                self.operands.len()
            ))
        })
    }
}

/// Refuses a value that has not the size of its operand, whose dimensions must all be known.
fn expect_size(operand: &Operand, index: usize, length: usize) -> Outcome {
    let ty = operand.operand_type;
    if u32::try_from(length).is_err() {
        return Err(Failure::bad_data(format!(
            "the value of operand {index} has {length} bytes; constants are below 4 GiB"
        )));
    }
    if ty.is_oem() {
        return Ok(());
    }
    let layouts: TypeLayouts = extension::layouts(ty)?;
    let expected = Shape::new(&operand.dimensions)
        .ok()
        .and_then(|shape| layouts.byte_size(ty, &shape));
    match expected {
        Some(expected) if expected == length => Ok(()),
        Some(expected) => Err(Failure::bad_data(format!(
            "operand {index} is {ty} with dimensions {:?}, whose value has {expected} bytes, not {length}",
            operand.dimensions
        ))),
        None => Err(Failure::bad_data(format!(
            "operand {index} is {ty} with dimensions {:?}; a value needs all of them",
            operand.dimensions
        ))),
    }
}
