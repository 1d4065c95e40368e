//! Arguments of an execution in device buffers.

use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Device, ErrorStatus, Memory, Model, OutputShape, PreparedModel, Request,
    Result,
};
use nnhal_hal::{DataLocation, Operand, Request as HalRequest, RequestArgument, RequestPool, Shape};

/// A request whose arguments are in device buffers where the device can hold them, and in shared memory where
/// it cannot.
pub(crate) struct DeviceArguments {
    pub(crate) request: Request,
    /// Keeps them alive.
    _inputs: Vec<Buffer>,
    /// By output.
    outputs: Vec<Option<Held>>,
}

/// An output that is in a device buffer.
struct Held {
    buffer: Buffer,
    /// Where it would be in shared memory.
    location: DataLocation,
}

/// Where arguments are to be allocated.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) device: &'a Device,
    pub(crate) model: &'a Model,
    pub(crate) prepared: &'a PreparedModel,
}

impl DeviceArguments {
    /// Moves the arguments of `request`, whose two pools are `inputs` and `outputs`, to device buffers.
    pub(crate) fn new(
        place: Place<'_>,
        request: &HalRequest,
        inputs: &Memory,
        outputs: &Memory,
    ) -> Result<DeviceArguments> {
        let mut moved = request.clone();
        let main = &place.model.hal().main;
        let operand = |index: Option<&u32>| index.and_then(|&index| main.operands.get(index as usize));
        let mut input_buffers = Vec::new();
        for (index, argument) in moved.inputs.iter_mut().enumerate() {
            let Some(operand) = operand(main.input_indexes.get(index)) else {
                continue;
            };
            let location = argument.location;
            if argument.has_no_value || location.length == 0 {
                continue;
            }
            let Some(buffer) = place.allocate(index, true)? else {
                continue;
            };
            let bytes = inputs.read::<u8>(u64::from(location.offset), location.length as usize)?;
            let exact = exact_size(operand, &argument.dimensions).unwrap_or(bytes.len());
            let memory = Memory::new(exact as u64)?;
            memory.write(0, bytes.get(..exact).unwrap_or(&bytes))?;
            buffer.copy_from(&memory, &argument.dimensions)?;
            refer_to(argument, &mut moved.pools, &buffer);
            input_buffers.push(buffer);
        }
        let mut held = Vec::new();
        for (index, argument) in moved.outputs.iter_mut().enumerate() {
            let location = argument.location;
            // Room in a device buffer follows from its dimensions; what an output that is given too little
            // does, only shared memory can show.
            let has_size = operand(main.output_indexes.get(index))
                .and_then(|operand| exact_size(operand, &argument.dimensions))
                .is_some_and(|size| size > 0 && size <= location.length as usize);
            let buffer = if has_size && !argument.has_no_value {
                place.allocate(index, false)?
            } else {
                None
            };
            held.push(buffer.map(|buffer| {
                refer_to(argument, &mut moved.pools, &buffer);
                Held { buffer, location }
            }));
        }
        Ok(DeviceArguments {
            request: Request::from_hal(moved, vec![inputs.clone(), outputs.clone()]),
            _inputs: input_buffers,
            outputs: held,
        })
    }

    /// Copies the outputs to where they would be in shared memory.
    pub(crate) fn fetch(&self, model: &Model, shapes: &[OutputShape], outputs: &Memory) -> Result<()> {
        let main = &model.hal().main;
        for (index, held) in self.outputs.iter().enumerate() {
            let Some(held) = held else { continue };
            let operand = main
                .output_indexes
                .get(index)
                .and_then(|&at| main.operands.get(at as usize));
            let dimensions = shapes.get(index).map(|shape| &shape.dimensions[..]);
            let size = operand.and_then(|operand| exact_size(operand, dimensions.unwrap_or(&[])));
            let memory = Memory::new(size.unwrap_or(held.location.length as usize) as u64)?;
            held.buffer.copy_to(&memory)?;
            let bytes = memory.read::<u8>(0, memory.size() as usize)?;
            outputs.write(u64::from(held.location.offset), &bytes)?;
        }
        Ok(())
    }
}

impl Place<'_> {
    /// A device buffer for this argument; none where the device cannot hold it, which is its right.
    fn allocate(&self, index: usize, is_input: bool) -> Result<Option<Buffer>> {
        let role = [BufferRole {
            model_index: 0,
            io_index: u32::try_from(index).unwrap_or(u32::MAX),
            frequency: 1.0,
        }];
        let (inputs, outputs): (&[_], &[_]) = if is_input { (&role, &[]) } else { (&[], &role) };
        let desc = BufferDesc {
            dimensions: Vec::new(),
        };
        match self.device.allocate(&desc, &[self.prepared], inputs, outputs) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(error) if error.failure().is_some() && error.status() == ErrorStatus::GeneralFailure => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The size of an argument whose dimensions the model, or else the request, fixes.
fn exact_size(operand: &Operand, dimensions: &[u32]) -> Option<usize> {
    let declared = Shape::new(&operand.dimensions).ok()?;
    let given = Shape::new(dimensions).ok()?;
    let shape = declared.combine(&given)?;
    let is_known = shape.is_fully_specified() && (shape.rank() > 0 || operand.operand_type.is_scalar());
    let element_size = operand.operand_type.element_size();
    is_known.then(|| shape.byte_size(element_size).ok()).flatten()
}

fn refer_to(argument: &mut RequestArgument, pools: &mut Vec<RequestPool>, buffer: &Buffer) {
    argument.location = DataLocation {
        pool_index: u32::try_from(pools.len()).unwrap_or(u32::MAX),
        ..DataLocation::default()
    };
    pools.push(RequestPool::Token(buffer.token()));
}
