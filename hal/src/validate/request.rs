//! Requests: arguments, locations and dimensions against a model.

use crate::{DataLocation, Operand, Request, RequestArgument, RequestPool, Shape, TypeLayouts};

use super::{ValidModel, limits};

/// Which side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// An input of the main graph.
    Input,
    /// An output of the main graph.
    Output,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Input => "input",
            Direction::Output => "output",
        })
    }
}

/// The rule that a request breaks: where, what is wrong, what would be right. The HAL status is
/// INVALID_ARGUMENT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The wrong number of arguments.
    #[error("the request has {count} {direction}s, the model has {expected}")]
    Count {
        /// Which list.
        direction: Direction,
        /// How many it has.
        count: usize,
        /// How many it must have.
        expected: usize,
    },
    /// Too many pools.
    #[error("the request has {count} pools, at most {} are accepted", limits::MAX_POOLS)]
    Pools {
        /// How many it has.
        count: usize,
    },
    /// One argument.
    #[error("{direction} {index}: {message}")]
    Argument {
        /// Which list.
        direction: Direction,
        /// Index of the argument.
        index: usize,
        /// What was wrong, and what would be right.
        message: String,
    },
}

/// Where one argument's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlan {
    /// An input that is left out.
    Omitted,
    /// In a pool that the client shares.
    Memory {
        /// The dimensions: exact for inputs, 0 where open for outputs; rank 0 also for an unknown rank.
        shape: Shape,
        /// Index of the pool in the request.
        pool: u32,
        /// First byte in the pool; the range lies inside the pool's size.
        offset: u64,
        /// Number of bytes; at least the exact size for inputs.
        length: u64,
    },
    /// In a device buffer.
    Token {
        /// The dimensions, as above; for inputs possibly open, to be taken from the buffer.
        shape: Shape,
        /// The buffer's token.
        token: u32,
    },
}

/// A request that keeps every rule that can be checked against the model and the pools' sizes. Whether tokens
/// exist and may be used so is the buffers' owner's to check.
#[derive(Clone, Debug, Default)]
pub struct ValidRequest {
    inputs: Vec<ArgumentPlan>,
    outputs: Vec<ArgumentPlan>,
}

impl ValidRequest {
    /// Checks `request` against `model`.
    pub fn new(model: &ValidModel, request: &Request) -> Result<ValidRequest, RequestError> {
        let mut valid = ValidRequest::default();
        valid.refill(model, request)?;
        Ok(valid)
    }

    /// Checks another request into the memory of this one, which is empty after an error. Allocates nothing
    /// once it has held a request for the same model.
    pub fn refill(&mut self, model: &ValidModel, request: &Request) -> Result<(), RequestError> {
        let result = self.fill(model, request);
        if result.is_err() {
            self.inputs.clear();
            self.outputs.clear();
        }
        result
    }

    fn fill(&mut self, model: &ValidModel, request: &Request) -> Result<(), RequestError> {
        let main = &model.model().main;
        expect_count(Direction::Input, request.inputs.len(), main.input_indexes.len())?;
        expect_count(
            Direction::Output,
            request.outputs.len(),
            main.output_indexes.len(),
        )?;
        if request.pools.len() > limits::MAX_POOLS {
            return Err(RequestError::Pools {
                count: request.pools.len(),
            });
        }
        let sides = [
            (
                Direction::Input,
                &request.inputs,
                &main.input_indexes,
                &mut self.inputs,
            ),
            (
                Direction::Output,
                &request.outputs,
                &main.output_indexes,
                &mut self.outputs,
            ),
        ];
        for (direction, arguments, indexes, plans) in sides {
            plans.clear();
            for (index, (argument, operand)) in arguments.iter().zip(indexes).enumerate() {
                let operand = &main.operands[*operand as usize];
                plans.push(
                    plan(direction, (model.layouts(), operand), argument, &request.pools).map_err(
                        |message| RequestError::Argument {
                            direction,
                            index,
                            message,
                        },
                    )?,
                );
            }
        }
        Ok(())
    }

    /// The inputs, one for each of the main graph's.
    #[must_use]
    pub fn inputs(&self) -> &[ArgumentPlan] {
        &self.inputs
    }

    /// The outputs, one for each of the main graph's.
    #[must_use]
    pub fn outputs(&self) -> &[ArgumentPlan] {
        &self.outputs
    }

    /// What a fenced execution asks beyond the rest: every output fully specified, not empty, and with room
    /// for it.
    pub fn check_fenced(&self, model: &ValidModel) -> Result<(), RequestError> {
        let main = &model.model().main;
        for (index, (plan, operand)) in self.outputs.iter().zip(&main.output_indexes).enumerate() {
            let operand = &main.operands[*operand as usize];
            let wrong = |message: String| {
                Err(RequestError::Argument {
                    direction: Direction::Output,
                    index,
                    message,
                })
            };
            let (ArgumentPlan::Memory { shape, .. } | ArgumentPlan::Token { shape, .. }) = plan else {
                continue;
            };
            let (layouts, ty) = (model.layouts(), operand.operand_type);
            let unknown = layouts.is_tensor(ty) && (shape.rank() == 0 || !shape.is_fully_specified());
            if unknown {
                return wrong(format!(
                    "has dimensions {shape:?}; a fenced execution needs every output dimension, none of them 0"
                ));
            }
            // What has no layout has its size found by executing.
            if let (ArgumentPlan::Memory { length, .. }, Some(_)) = (plan, layouts.get(ty)) {
                let size = layouts.byte_size(ty, shape).map_or(u64::MAX, |size| size as u64);
                if *length < size {
                    return wrong(format!("has {length} bytes, a fenced execution needs all {size}"));
                }
            }
        }
        Ok(())
    }
}

fn expect_count(direction: Direction, count: usize, expected: usize) -> Result<(), RequestError> {
    if count == expected {
        Ok(())
    } else {
        Err(RequestError::Count {
            direction,
            count,
            expected,
        })
    }
}

fn plan(
    direction: Direction,
    (layouts, operand): (&TypeLayouts, &Operand),
    argument: &RequestArgument,
    pools: &[RequestPool],
) -> Result<ArgumentPlan, String> {
    if argument.has_no_value {
        if argument.location != DataLocation::default() || !argument.dimensions.is_empty() {
            return Err("has no value but a location or dimensions".into());
        }
        if direction == Direction::Output {
            return Err("has no value; only inputs can be omitted".into());
        }
        return Ok(ArgumentPlan::Omitted);
    }
    let shape = combined_shape(layouts, operand, &argument.dimensions)?;
    let location = argument.location;
    let pool = pools.get(location.pool_index as usize).ok_or_else(|| {
        format!(
            "is in pool {}, the request has {}",
            location.pool_index,
            pools.len()
        )
    })?;
    let size = match *pool {
        RequestPool::Token(0) => return Err("has token 0, which is no device buffer's".into()),
        RequestPool::Token(token) => {
            if location.offset != 0 || location.length != 0 {
                return Err(format!(
                    "is a device buffer with offset {} and length {}, both must be 0",
                    location.offset, location.length
                ));
            }
            return Ok(ArgumentPlan::Token { shape, token });
        }
        RequestPool::Memory { size } => size,
    };
    let (offset, length) = match location {
        // The HAL's reference takes this for the whole pool.
        DataLocation {
            offset: 0, length: 0, ..
        } => (0, size),
        DataLocation { offset, length, .. } => (u64::from(offset), u64::from(length)),
    };
    if offset + length > size {
        return Err(format!(
            "reaches from byte {offset} to {}, its pool has {size}",
            offset + length
        ));
    }
    if direction == Direction::Input {
        check_input(layouts, operand, &shape, length)?;
    }
    Ok(ArgumentPlan::Memory {
        shape,
        pool: location.pool_index,
        offset,
        length,
    })
}

fn combined_shape(layouts: &TypeLayouts, operand: &Operand, dimensions: &[u32]) -> Result<Shape, String> {
    let declared = Shape::new(&operand.dimensions).map_err(|error| error.to_string())?;
    let given = Shape::new(dimensions).map_err(|error| error.to_string())?;
    if layouts.is_scalar(operand.operand_type) && given.rank() > 0 {
        return Err(format!("is a scalar with dimensions {given:?}, must have none"));
    }
    declared.refined(&given).ok_or_else(|| {
        format!("has dimensions {given:?}, the model declares {declared:?}, where only a 0 may be replaced")
    })
}

/// An input's dimensions must all be known, and its bytes all be there.
fn check_input(layouts: &TypeLayouts, operand: &Operand, shape: &Shape, length: u64) -> Result<(), String> {
    let ty = operand.operand_type;
    let unknown_rank = layouts.is_tensor(ty) && shape.rank() == 0;
    if unknown_rank || !shape.is_fully_specified() {
        return Err(format!(
            "has dimensions {shape:?}, every dimension of an input must be given"
        ));
    }
    if layouts.get(ty).is_none() {
        return Ok(());
    }
    let size = layouts
        .byte_size(ty, shape)
        .ok_or_else(|| format!("has dimensions {shape:?}, whose size does not fit 32 bits"))?;
    if length < size as u64 {
        return Err(format!(
            "has {length} bytes, {ty} with dimensions {shape:?} takes {size}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation, Model, NoPools, OperandLifeTime,
        OperandType, Operation, OperationType, Subgraph,
    };

    const SCALAR: OperandType = OperandType::extension(3, 0);
    const TENSOR: OperandType = OperandType::extension(3, 1);

    /// A model of one operation of an extension, from a scalar of 8 bytes to a tensor of elements of 8 bytes.
    fn model(input: Operand, output: Operand) -> Model {
        let mut input = input.with_lifetime(OperandLifeTime::SubgraphInput);
        input.number_of_consumers = 1;
        Model {
            main: Subgraph {
                operands: vec![input, output.with_lifetime(OperandLifeTime::SubgraphOutput)],
                operations: vec![Operation {
                    operation_type: OperationType::extension(3, 0),
                    inputs: vec![0],
                    outputs: vec![1],
                }],
                input_indexes: vec![0],
                output_indexes: vec![1],
            },
            extension_name_to_prefix: vec![ExtensionNameAndPrefix {
                name: "com.acme.wide".into(),
                prefix: 3,
            }],
            ..Model::default()
        }
    }

    fn validate(model: Model) -> Result<ValidModel, String> {
        let ty = |number, is_tensor| ExtensionOperandTypeInformation {
            number,
            is_tensor,
            byte_size: 8,
        };
        let extension = Extension {
            name: "com.acme.wide".into(),
            operand_types: vec![ty(0, false), ty(1, true)],
        };
        ValidModel::new(Arc::new(model), &NoPools, &[extension]).map_err(|error| error.to_string())
    }

    /// A request with an input of `input` bytes and an output of `output` bytes and these dimensions.
    fn request(input: u32, output: u32, dimensions: &[u32]) -> Request {
        let argument = |offset, length, dimensions: &[u32]| RequestArgument {
            has_no_value: false,
            location: DataLocation {
                pool_index: 0,
                offset,
                length,
            },
            dimensions: dimensions.to_vec(),
        };
        Request {
            inputs: vec![argument(0, input, &[])],
            outputs: vec![argument(input, output, dimensions)],
            pools: vec![RequestPool::Memory { size: 1000 }],
        }
    }

    fn open_model() -> ValidModel {
        validate(model(Operand::new(SCALAR, &[]), Operand::new(TENSOR, &[0]))).unwrap()
    }

    #[test]
    fn scalar_of_an_extension_with_dimensions_is_refused_in_model_and_request() {
        let error = validate(model(Operand::new(SCALAR, &[2]), Operand::new(TENSOR, &[]))).unwrap_err();
        assert!(error.contains("with dimensions [2], must have none"), "{error}");
        let mut request = request(8, 16, &[2]);
        request.inputs[0].dimensions = vec![1];
        let error = ValidRequest::new(&open_model(), &request)
            .unwrap_err()
            .to_string();
        assert!(error.contains("input 0: is a scalar with dimensions"), "{error}");
    }

    #[test]
    fn number_that_the_extension_does_not_have_is_refused() {
        let unknown = Operand::new(OperandType::extension(3, 2), &[]);
        let error = validate(model(unknown, Operand::new(TENSOR, &[]))).unwrap_err();
        assert!(error.contains("has type 2 of com.acme.wide"), "{error}");
    }

    #[test]
    fn constants_of_extension_types_have_their_dimensions_and_exact_length() {
        let with_constant = |dimensions: &[u32], length| {
            let mut constant = Operand::new(TENSOR, dimensions).with_lifetime(OperandLifeTime::ConstantCopy);
            constant.location.length = length;
            constant.number_of_consumers = 1;
            let mut model = model(Operand::new(SCALAR, &[]), Operand::new(TENSOR, &[0]));
            model.operand_values = vec![0; 64];
            model.main.operands.push(constant);
            model.main.operations[0].inputs.push(2);
            validate(model).map(drop)
        };
        assert_eq!(with_constant(&[2], 16), Ok(()));
        let error = with_constant(&[2], 12).unwrap_err();
        assert!(error.contains("in 12 bytes, must be 16"), "{error}");
        let error = with_constant(&[0], 16).unwrap_err();
        assert!(error.contains("every extent must be known"), "{error}");
        assert!(with_constant(&[], 16).unwrap_err().contains("unknown rank"));
    }

    #[test]
    fn input_of_an_extension_type_that_is_too_short_is_refused() {
        assert!(ValidRequest::new(&open_model(), &request(8, 16, &[2])).is_ok());
        let error = ValidRequest::new(&open_model(), &request(7, 16, &[2]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("input 0: has 7 bytes"), "{error}");
    }

    #[test]
    fn fenced_outputs_of_extension_types_need_dimensions_and_room() {
        let model = open_model();
        let check = |output, dimensions: &[u32]| {
            let request = ValidRequest::new(&model, &request(8, output, dimensions)).unwrap();
            request.check_fenced(&model).map_err(|error| error.to_string())
        };
        assert_eq!(check(16, &[2]), Ok(()));
        let error = check(15, &[2]).unwrap_err();
        assert!(
            error.contains("has 15 bytes, a fenced execution needs all 16"),
            "{error}"
        );
        assert!(
            check(16, &[])
                .unwrap_err()
                .contains("needs every output dimension")
        );
    }
}
