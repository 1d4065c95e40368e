//! The entry point for fuzzing, for the test of this crate and for cargo-fuzz alone: what a device with an
//! extension makes of models that have its operations, types and parameters.

use std::sync::{Arc, OnceLock};

use nnhal_conformance::fuzzing::{ModelInput, Reached, decode, device};
use nnhal_device::{Device, DeviceOptions};

use crate::device::create_everything;

fn the_device() -> &'static Arc<dyn Device> {
    static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
    DEVICE.get_or_init(|| create_everything(&DeviceOptions::default()).expect("the device"))
}

/// Decodes a model, validates it, and runs it if it is valid.
pub fn extension(bytes: &[u8]) -> Reached {
    let Some(ModelInput {
        model, pools, inputs, ..
    }) = decode(bytes)
    else {
        return Reached::Bytes;
    };
    device::run(&**the_device(), (model, &pools), None, &inputs)
}

#[cfg(test)]
mod tests {
    use nnhal_conformance::fuzzing::{encode, extension_seeds, seeds};
    use nnhal_device::hal::{
        DataLocation, ExtensionNameAndPrefix, ExtraParams, Model, Operand, OperandLifeTime, OperandType,
        Operation, OperationType, Request, Subgraph,
    };

    use super::*;
    use crate::extension::{FIBONACCI, INT64, NAME, Quantization, TENSOR_QUANT64_ASYMM};

    const PREFIX: u16 = 5;

    /// The first `count` numbers, which are an input or a constant, where the model declares `dimensions`.
    fn fibonacci(count: i64, is_constant: bool, dimensions: &[u32], quantization: Quantization) -> Vec<u8> {
        let lifetime = if is_constant {
            OperandLifeTime::ConstantCopy
        } else {
            OperandLifeTime::SubgraphInput
        };
        let mut input = Operand::new(OperandType::extension(PREFIX, INT64), &[]).with_lifetime(lifetime);
        input.number_of_consumers = 1;
        if is_constant {
            input.location = DataLocation {
                pool_index: 0,
                offset: 0,
                length: 8,
            };
        }
        let ty = OperandType::extension(PREFIX, TENSOR_QUANT64_ASYMM);
        let mut output = Operand::new(ty, dimensions).with_lifetime(OperandLifeTime::SubgraphOutput);
        output.extra_params = ExtraParams::Extension(quantization.to_bytes().to_vec());
        let model = Model {
            main: Subgraph {
                operands: vec![input, output],
                operations: vec![Operation {
                    operation_type: OperationType::extension(PREFIX, FIBONACCI),
                    inputs: vec![0],
                    outputs: vec![1],
                }],
                input_indexes: if is_constant { Vec::new() } else { vec![0] },
                output_indexes: vec![1],
            },
            operand_values: if is_constant {
                count.to_le_bytes().to_vec()
            } else {
                Vec::new()
            },
            extension_name_to_prefix: vec![ExtensionNameAndPrefix {
                name: NAME.to_owned(),
                prefix: PREFIX,
            }],
            ..Model::default()
        };
        encode(&ModelInput {
            model,
            pools: Vec::new(),
            request: Request::default(),
            inputs: count.to_le_bytes().to_vec(),
        })
    }

    fn made() -> Vec<Vec<u8>> {
        let mut made = Vec::new();
        for (scale, zero_point) in [(1.0, 0), (0.5, 100), (1e-300, i64::MIN), (1e300, i64::MAX)] {
            let quantization = Quantization { scale, zero_point };
            for (count, dimensions) in [(7, &[7][..]), (93, &[0]), (3, &[]), (-1, &[4]), (2, &[1, 2])] {
                for is_constant in [false, true] {
                    made.push(fibonacci(count, is_constant, dimensions, quantization));
                }
            }
        }
        // An extension that this device does not have.
        let short = |seed: &Vec<u8>| seed.len() <= 512;
        made.extend(extension_seeds(100).into_iter().filter(short).take(4));
        made
    }

    #[test]
    fn extension_data_in_the_tree_is_refused_or_run() {
        let made = made();
        assert_eq!(extension(&made[0]), Reached::Result);
        assert_eq!(extension(&made[1]), Reached::Result);
        seeds::check("extension", &made, extension);
    }
}
