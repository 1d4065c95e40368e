//! Requests: arguments, locations and dimensions against a model.

use crate::hal::{DataLocation, Operand, Request, RequestArgument, RequestPool, Shape};

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

/// The rule that a request breaks: where, what is wrong, what would be right. The HAL status is INVALID_ARGUMENT.
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

/// A request that keeps every rule that can be checked against the model and the pools' sizes. Whether tokens exist
/// and may be used so is the buffers' owner's to check.
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

    /// Checks another request into the memory of this one, which is empty after an error. Allocates nothing once it
    /// has held a request for the same model.
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
                    plan(direction, operand, argument, &request.pools).map_err(|message| {
                        RequestError::Argument {
                            direction,
                            index,
                            message,
                        }
                    })?,
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

    /// What a fenced execution asks beyond the rest: every output fully specified, not empty, and with room for it.
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
            let unknown =
                operand.operand_type.is_tensor() && (shape.rank() == 0 || !shape.is_fully_specified());
            if unknown {
                return wrong(format!(
                    "has dimensions {shape:?}; a fenced execution needs every output dimension, none of them 0"
                ));
            }
            if let ArgumentPlan::Memory { length, .. } = plan {
                let size = byte_size(operand, shape).unwrap_or(u64::MAX);
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

/// Exact size of an operand's value; `None` where the HAL does not fix it or it does not fit 32 bits.
fn byte_size(operand: &Operand, shape: &Shape) -> Option<u64> {
    let ty = operand.operand_type;
    if ty.is_extension() || ty.is_oem() {
        return None;
    }
    shape.byte_size(ty.element_size()).ok().map(|bytes| bytes as u64)
}

fn plan(
    direction: Direction,
    operand: &Operand,
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
    let shape = combined_shape(operand, &argument.dimensions)?;
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
        check_input(operand, &shape, length)?;
    }
    Ok(ArgumentPlan::Memory {
        shape,
        pool: location.pool_index,
        offset,
        length,
    })
}

fn combined_shape(operand: &Operand, dimensions: &[u32]) -> Result<Shape, String> {
    let declared = Shape::new(&operand.dimensions).map_err(|error| error.to_string())?;
    let given = Shape::new(dimensions).map_err(|error| error.to_string())?;
    if operand.operand_type.is_scalar() && given.rank() > 0 {
        return Err(format!("is a scalar with dimensions {given:?}, must have none"));
    }
    declared
        .combine(&given)
        .ok_or_else(|| format!("has dimensions {given:?}, the model declares {declared:?}"))
}

/// An input's dimensions must all be known, and its bytes all be there.
fn check_input(operand: &Operand, shape: &Shape, length: u64) -> Result<(), String> {
    let unknown_rank = operand.operand_type.is_tensor() && shape.rank() == 0;
    if unknown_rank || !shape.is_fully_specified() {
        return Err(format!(
            "has dimensions {shape:?}, every dimension of an input must be given"
        ));
    }
    let ty = operand.operand_type;
    if ty.is_extension() || ty.is_oem() {
        return Ok(());
    }
    let size = byte_size(operand, shape)
        .ok_or_else(|| format!("has dimensions {shape:?}, whose size does not fit 32 bits"))?;
    if length < size {
        return Err(format!(
            "has {length} bytes, {ty} with dimensions {shape:?} takes {size}"
        ));
    }
    Ok(())
}
