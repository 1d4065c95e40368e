//! How the values of one model's arguments are passed.

use std::sync::atomic::{AtomicU64, Ordering};

use nnhal::burst::{FIRE_INLINE_BYTES, Pool, RESULT_INLINE_BYTES, encode_fire};
use nnhal::wire::MemoryHandle;
use nnhal_hal::{Request, RequestArgument};

use super::exchange::Exchange;
use super::numbers::Number;
use crate::arguments::Arguments;
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions};
use crate::values::{Input, Output, OwnValues};

/// Arguments of certain sizes, and the number under which the worker knows where they are.
#[derive(Debug)]
pub(super) struct RunLayout {
    name: LayoutName,
    arguments: Arguments,
    number: Number,
    /// Whether inputs travel in the request.
    has_inline_inputs: bool,
    /// How many bytes of outputs travel in the result, if they do.
    inline_outputs: Option<usize>,
    /// The inputs behind each other.
    packed: Vec<u8>,
}

/// Names a layout, as no other of this process ever is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutName(u64);

/// A request for arguments, small ones of which travel in the packets.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) request: Request,
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

impl RunLayout {
    /// The plan for `arguments`, registered under `number`.
    pub(super) fn new(arguments: Arguments, number: Number, plan: &Plan) -> RunLayout {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        RunLayout {
            name: LayoutName(NEXT.fetch_add(1, Ordering::Relaxed)),
            arguments,
            number,
            has_inline_inputs: plan.has_inline_inputs,
            inline_outputs: plan.inline_outputs,
            packed: Vec::new(),
        }
    }

    /// Whether these values have the sizes that this layout is for.
    #[inline]
    pub(super) fn fits(&self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> bool {
        self.arguments.fits(inputs, outputs)
    }

    /// Holds values to the sizes that this layout is for.
    #[cfg(feature = "runtime")]
    #[inline]
    pub(super) fn expect_sizes(&self, values: &mut (impl OwnValues + ?Sized)) -> Result<()> {
        self.arguments.expect_sizes(values)
    }

    #[inline]
    pub(super) fn name(&self) -> LayoutName {
        self.name
    }

    /// Its number, without the rest.
    pub(super) fn into_number(self) -> Number {
        self.number
    }

    /// Executes once with these values, whose sizes must be those of the layout.
    #[inline]
    pub(super) fn run(
        &mut self,
        exchange: &mut Exchange,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        if self.has_inline_inputs {
            self.arguments.pack(values, &mut self.packed)?;
        } else {
            self.arguments.write_all(values)?;
        }
        let header = exchange.next_header(options);
        encode_fire(&mut exchange.buffer, &header, self.number.value(), &self.packed);
        let result = exchange.send_and_receive(&header, options)?;
        let completed = exchange.complete(result.header)?;
        match self.inline_outputs {
            Some(size) => {
                let packed = exchange.inline_outputs(&result, size)?;
                self.arguments.unpack(packed, &completed, values)?;
            }
            None => self.arguments.read_all(&completed, values)?,
        }
        Ok(completed)
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
}
