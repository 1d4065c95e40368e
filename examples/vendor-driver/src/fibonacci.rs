//! The unit with the extension's operation.

use nnhal_device::hal::{Failure, Operation, Shape};

use crate::extension::{FIBONACCI, INT64, NAME, Quantization, TENSOR_QUANT64_ASYMM};
use crate::unit::{Kernel, Refusal, View, declared, extension_params};
use crate::value::Value;

/// Compiles FIBONACCI. Its signature is this extension's alone, so that validation could not check it.
pub(crate) fn compile(view: &View<'_>, operation: &Operation) -> Result<Box<dyn Kernel>, Refusal> {
    let unsupported = |reason: String| Err(Refusal::Unsupported(reason));
    match view.extension_operation(operation.operation_type) {
        Some((NAME, FIBONACCI)) => {}
        Some((NAME, number)) => return unsupported(format!("{NAME} has no operation {number}")),
        _ => return Err(Refusal::Unknown),
    }
    let (&[input], &[output]) = (operation.inputs.as_slice(), operation.outputs.as_slice()) else {
        return unsupported(format!(
            "FIBONACCI has {} inputs and {} outputs, must have one of each",
            operation.inputs.len(),
            operation.outputs.len()
        ));
    };
    let (input, output) = (view.operand(input), view.operand(output));
    if view.extension_type(input.operand_type) != Some((NAME, INT64)) {
        return unsupported(format!("input 0 is {}, must be INT64", input.operand_type));
    }
    if view.extension_type(output.operand_type) != Some((NAME, TENSOR_QUANT64_ASYMM)) {
        return unsupported(format!(
            "output 0 is {}, must be TENSOR_QUANT64_ASYMM",
            output.operand_type
        ));
    }
    if output.dimensions.len() > 1 {
        return unsupported(format!(
            "output 0 has dimensions {:?}, must have one",
            output.dimensions
        ));
    }
    let Some(quantization) = Quantization::from_bytes(extension_params(output)) else {
        return unsupported("output 0 has no scale and zero point in its extension parameters".to_owned());
    };
    Ok(Box::new(Fibonacci {
        quantization,
        declared: declared(output),
    }))
}

#[derive(Debug)]
struct Fibonacci {
    quantization: Quantization,
    /// What the model says of the output.
    declared: Shape,
}

impl Kernel for Fibonacci {
    fn run(&self, inputs: &[&Value], output: &mut Value) -> Result<(), Failure> {
        let given = inputs.first().and_then(|input| input.bytes().first_chunk());
        let count = given.map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let numbers = || Numbers {
            next: Some(1),
            after: Some(1),
        };
        // More do not fit any quantisation, so the count is bounded before anything is made of it.
        let most = numbers().count();
        let count = u32::try_from(count)
            .ok()
            .filter(|&count| count > 0 && count as usize <= most);
        let count = count.ok_or_else(|| {
            Failure::general(format!(
                "FIBONACCI has {} as its input, must be from 1 to {most}",
                given.map_or(0, |bytes| i64::from_le_bytes(*bytes))
            ))
        })?;
        let shape = Shape::new(&[count]).unwrap_or_default();
        if self.declared.combine(&shape).is_none() {
            return Err(Failure::general(format!(
                "FIBONACCI computes {count} numbers, the model declares {:?}",
                self.declared
            )));
        }
        let bytes = output.resize(shape, count as usize * 8)?;
        for (room, number) in bytes.chunks_exact_mut(8).zip(numbers()) {
            let value = self.quantization.quantize(number).ok_or_else(|| {
                Failure::general(format!(
                    "{number} does not fit scale {} and zero point {}",
                    self.quantization.scale, self.quantization.zero_point
                ))
            })?;
            room.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }
}

/// The Fibonacci numbers that fit 64 bits.
#[derive(Debug)]
struct Numbers {
    next: Option<u64>,
    after: Option<u64>,
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let number = self.next?;
        let sum = self.after.and_then(|after| number.checked_add(after));
        self.next = std::mem::replace(&mut self.after, sum);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_the_sum_of_the_two_before() {
        let numbers: Vec<_> = Numbers {
            next: Some(1),
            after: Some(1),
        }
        .collect();
        assert_eq!(numbers[..7], [1, 1, 2, 3, 5, 8, 13]);
        assert_eq!(numbers.len(), 93);
        assert_eq!(numbers[92], 12_200_160_415_121_876_738);
    }
}
