//! Requests that a burst's worker keeps under numbers.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal::burst::{
    FIRE_INLINE_BYTES, MAX_REGISTERED, Pool, RESULT_INLINE_BYTES, RequestHeader, encode_fire,
};
use nnhal::wire::MemoryHandle;
use nnhal_hal::RequestArgument;

use super::exchange::{Exchange, Received};
use crate::arguments::Arguments;
use crate::error::{Error, Result};
use crate::execution::Completed;
use crate::memory::Memory;
use crate::request::Request;
use crate::values::{Input, Output, OwnValues};

/// A request that a burst's worker knows, so that executing it again takes one cell. Made by
/// [`Burst::register`](super::Burst::register). Its memories stay alive as long as it does.
#[derive(Debug)]
pub struct RegisteredRequest {
    /// `None` for a request that no ring can carry.
    number: Option<Number>,
    /// Those of its burst.
    numbers: Arc<Numbers>,
    values: Values,
}

/// Where the values of a registered request are.
#[derive(Debug)]
enum Values {
    /// In memories that are shared, or in device buffers.
    InPlace(Request),
    /// In this process's own memory: they come with each execution.
    Own(OwnArguments),
}

/// How values in this process's own memory are passed.
#[derive(Debug)]
struct OwnArguments {
    arguments: Arguments,
    /// Whether inputs travel in the request.
    has_inline_inputs: bool,
    /// How many bytes of outputs travel in the result, if they do.
    inline_outputs: Option<usize>,
}

impl RegisteredRequest {
    /// The request.
    #[must_use]
    pub fn request(&self) -> &Request {
        match &self.values {
            Values::InPlace(request) => request,
            Values::Own(own) => own.arguments.request(),
        }
    }

    pub(super) fn in_place(
        number: Option<Number>,
        numbers: &Arc<Numbers>,
        request: Request,
    ) -> RegisteredRequest {
        RegisteredRequest {
            number,
            numbers: Arc::clone(numbers),
            values: Values::InPlace(request),
        }
    }

    /// That of values which are passed as `plan` says.
    pub(super) fn of_values(number: Number, arguments: Arguments, plan: &Plan) -> RegisteredRequest {
        RegisteredRequest {
            numbers: Arc::clone(&number.numbers),
            number: Some(number),
            values: Values::Own(OwnArguments {
                arguments,
                has_inline_inputs: plan.has_inline_inputs,
                inline_outputs: plan.inline_outputs,
            }),
        }
    }

    /// Whether it is one of the burst that has these numbers.
    #[inline]
    pub(super) fn is_of(&self, numbers: &Arc<Numbers>) -> bool {
        Arc::ptr_eq(&self.numbers, numbers)
    }

    /// Whether its values are in this process's own memory.
    #[inline]
    pub(super) fn has_own_values(&self) -> bool {
        matches!(self.values, Values::Own(_))
    }

    /// Whether it passes values of these sizes and dimensions.
    #[inline]
    pub(super) fn fits(&self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> bool {
        match &self.values {
            Values::InPlace(_) => false,
            Values::Own(own) => own.arguments.fits(inputs, outputs),
        }
    }

    /// The number under which the worker has it.
    #[inline]
    pub(super) fn number(&self) -> Option<u16> {
        self.number.as_ref().map(|number| number.value)
    }

    /// Its number, without the rest.
    pub(super) fn into_number(self) -> Option<Number> {
        self.number
    }

    /// Its number, and the memory that its values pass through if they are in this process's own.
    pub(super) fn into_parts(self) -> (Option<Number>, Option<Memory>) {
        let memory = match &self.values {
            Values::InPlace(_) => None,
            Values::Own(own) => Some(own.arguments.memory().clone()),
        };
        (self.number, memory)
    }

    /// Fills `buffer` with the packet that executes it under its number, and passes the inputs, if they are
    /// in this process's own memory.
    #[inline]
    pub(super) fn encode(
        &self,
        number: u16,
        header: &RequestHeader,
        values: &mut (impl OwnValues + ?Sized),
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        encode_fire(buffer, header, number, &[]);
        match &self.values {
            Values::InPlace(_) => Ok(()),
            Values::Own(own) => {
                own.arguments.expect_rooms(values)?;
                if own.has_inline_inputs {
                    own.arguments.pack(values, buffer)
                } else {
                    own.arguments.write_all(values)
                }
            }
        }
    }

    /// Copies the outputs of an execution out, if they are to be in this process's own memory.
    #[inline]
    pub(super) fn read_outputs(
        &self,
        exchange: &Exchange,
        (received, completed): (&Received, &Completed),
        values: &mut (impl OwnValues + ?Sized),
    ) -> Result<()> {
        match &self.values {
            Values::InPlace(_) => Ok(()),
            Values::Own(own) => match own.inline_outputs {
                Some(size) => {
                    let packed = exchange.inline_outputs(received, size)?;
                    own.arguments.unpack(packed, completed, values)
                }
                None => own.arguments.read_all(completed, values),
            },
        }
    }
}

/// A request for arguments, small ones of which travel in the packets.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) request: nnhal_hal::Request,
    pub(super) pools: Vec<Pool>,
    has_inline_inputs: bool,
    inline_outputs: Option<usize>,
}

/// Plans how to pass these arguments, whose memory has this name.
pub(super) fn plan(arguments: &Arguments, memory: MemoryHandle) -> Plan {
    let (input_sizes, output_sizes) = arguments.sizes();
    let inline_inputs = inline_size(&input_sizes, FIRE_INLINE_BYTES);
    let inline_outputs = inline_size(&output_sizes, RESULT_INLINE_BYTES);
    let mut request = arguments.request().hal().clone();
    let mut pools = Vec::with_capacity(3);
    // The worker makes sure of every pool each time it is fired.
    if inline_inputs.is_none() || inline_outputs.is_none() {
        pools.push(Pool::Memory(memory));
    }
    if let Some(size) = inline_inputs {
        pack(&mut request.inputs, pools.len() as u32);
        // At most a cell's payload.
        pools.push(Pool::InlineInputs(size as u32));
    }
    if let Some(size) = inline_outputs {
        pack(&mut request.outputs, pools.len() as u32);
        pools.push(Pool::InlineOutputs(size as u32));
    }
    Plan {
        request,
        pools,
        has_inline_inputs: inline_inputs.is_some(),
        inline_outputs,
    }
}

/// The numbers of one burst.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The lowest number that was never given out.
    next: u16,
    /// Those that were given back.
    free: Vec<u16>,
}

/// A number, given back when dropped. Requests are carried out in order, so whoever gets it next may register
/// it at once, even while an execution that nobody waits for any more uses what is registered now.
#[derive(Debug)]
pub(super) struct Number {
    /// As packets name it.
    pub(super) value: u16,
    numbers: Arc<Numbers>,
}

impl Numbers {
    /// A number that is not in use.
    pub(super) fn take(numbers: &Arc<Numbers>) -> Result<Number> {
        let mut state = numbers.state.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match state.free.pop() {
            Some(value) => value,
            None if state.next < MAX_REGISTERED => {
                state.next += 1;
                state.next - 1
            }
            None => {
                return Err(Error::argument(format!(
                    "{MAX_REGISTERED} requests are registered with this burst, the most that it can know; drop one"
                )));
            }
        };
        drop(state);
        Ok(Number {
            value,
            numbers: Arc::clone(numbers),
        })
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut state = self.numbers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(self.value);
    }
}

/// The sum of the sizes, if all arguments together fit into a cell and none is empty: an empty location is a
/// whole pool's.
fn inline_size(sizes: &[Option<usize>], room: usize) -> Option<usize> {
    let mut sum = 0_usize;
    for size in sizes.iter().flatten() {
        sum = sum.checked_add(*size).filter(|_| *size > 0)?;
    }
    (sum > 0 && sum <= room).then_some(sum)
}

/// Moves arguments into another pool, one behind the other.
fn pack(arguments: &mut [RequestArgument], pool_index: u32) {
    let mut offset = 0;
    for argument in arguments.iter_mut().filter(|argument| !argument.has_no_value) {
        argument.location.pool_index = pool_index;
        argument.location.offset = offset;
        offset += argument.location.length;
    }
}

#[cfg(test)]
mod tests {
    use nnhal::wire::Handle;
    use nnhal_hal::{DataLocation, OperandType};

    use super::*;
    use crate::model::ArgumentTypes;
    use crate::tensor::TensorType;

    fn plan_for(inputs: &[Input<'_>], outputs: &mut [f32]) -> Plan {
        let types = ArgumentTypes {
            inputs: [
                TensorType::float32(&[0]),
                TensorType::new(OperandType::TENSOR_QUANT8_ASYMM, &[0]),
            ]
            .into(),
            outputs: [TensorType::float32(&[0])].into(),
            layouts: nnhal_hal::TypeLayouts::default(),
        };
        let arguments = Arguments::for_values(&types, inputs, &[Output::from(outputs)]).unwrap();
        plan(&arguments, Handle::from_bits(5).into())
    }

    fn input<T: crate::tensor::Element>(values: &[T]) -> Input<'_> {
        Input::from(values).with_dimensions(&[values.len() as u32])
    }

    #[test]
    fn small_arguments_travel_in_the_cells() {
        let plan = plan_for(&[input(&[1.0_f32]), input(&[2_u8, 3, 4])], &mut [0.0; 12]);
        assert_eq!(plan.pools, [Pool::InlineInputs(7), Pool::InlineOutputs(48)]);
        let at = |pool_index, offset, length| DataLocation {
            pool_index,
            offset,
            length,
        };
        assert_eq!(plan.request.inputs[0].location, at(0, 0, 4));
        assert_eq!(plan.request.inputs[1].location, at(0, 4, 3));
        assert_eq!(plan.request.outputs[0].location, at(1, 0, 48));
    }

    #[test]
    fn arguments_that_do_not_fit_a_cell_and_empty_ones_stay_in_memory() {
        let plan = plan_for(&[input(&[1.0_f32; 10]), input(&[2_u8])], &mut [0.0; 13]);
        assert_eq!(plan.pools.len(), 1);
        assert!(!plan.has_inline_inputs && plan.inline_outputs.is_none());
        let none: [u8; 0] = [];
        let plan = plan_for(&[input(&[1.0_f32]), input(&none)], &mut [0.0]);
        assert!(!plan.has_inline_inputs && plan.inline_outputs == Some(4));
        assert_eq!(plan.request.outputs[0].location.pool_index, 1);
    }

    #[test]
    fn numbers_are_used_again_and_bounded() {
        let numbers = Arc::new(Numbers::default());
        let mut taken: Vec<Number> = (0..MAX_REGISTERED)
            .map(|_| Numbers::take(&numbers).unwrap())
            .collect();
        let error = Numbers::take(&numbers).unwrap_err().to_string();
        assert!(error.contains("1024 requests are registered"), "{error}");
        assert_eq!(taken.remove(7).value, 7);
        assert_eq!(Numbers::take(&numbers).unwrap().value, 7);
    }
}
