//! A model in a driver's process, executed through memory that both processes share.

use std::ops::Range;

use nnhal_client::tflite::State;
use nnhal_client::{
    Burst, Completed, Device, ExecuteOptions, Memory, PreparedModel, RegisteredRequest, Request, States,
};
use nnhal_conformance::implementation::Form;
use nnhal_hal::{ErrorStatus, Model, Operand, OperandType, OutputShape, Shape};

use crate::error::Error;
use crate::feed::Value;
use crate::form;
use crate::session::Subject;

/// Arguments start on cache lines of their own.
const ALIGNMENT: u64 = 64;

/// How a prepared model is executed.
pub(crate) enum Way {
    /// By calls of this form.
    Calls(PreparedModel, Form),
    /// Through queues in shared memory.
    Burst(Box<Burst>),
}

/// A prepared model and the memory of its arguments, which is made anew when their sizes change.
pub(crate) struct Remote {
    device: Device,
    way: Way,
    /// In buffers of the device, if it has them.
    states: Option<States>,
    outputs: Vec<Declared>,
    inputs: Vec<Declared>,
    /// Bytes that each output is given.
    output_sizes: Vec<u64>,
    layout: Option<Layout>,
    /// What the last execution told of its outputs, if anything.
    shapes: Vec<OutputShape>,
    options: ExecuteOptions,
}

/// What a model says of an argument.
struct Declared {
    operand_type: OperandType,
    dimensions: Vec<u32>,
}

/// Memory and the requests that name its parts.
struct Layout {
    memory: Memory,
    /// One for each turn, of which there are several if states are kept.
    requests: Vec<BoundRequest>,
    /// Dimensions and place of each input.
    inputs: Vec<(Vec<u32>, Range<u64>)>,
    outputs: Vec<Range<u64>>,
}

/// A request whose arguments have their places.
struct BoundRequest {
    request: Request,
    /// The same where a burst knows it.
    registered: Option<RegisteredRequest>,
}

impl Way {
    fn model(&self) -> &PreparedModel {
        match self {
            Way::Calls(prepared, _) => prepared,
            Way::Burst(burst) => burst.model(),
        }
    }

    fn register(&mut self, request: &Request) -> nnhal_client::Result<Option<RegisteredRequest>> {
        match self {
            Way::Calls(..) => Ok(None),
            Way::Burst(burst) => burst.register(request).map(Some),
        }
    }

    fn execute(&mut self, bound: &BoundRequest, options: &ExecuteOptions) -> nnhal_client::Result<Completed> {
        match (self, &bound.registered) {
            (Way::Calls(prepared, form), _) => form::execute(prepared, &bound.request, options, *form),
            (Way::Burst(burst), Some(registered)) => burst.fire(registered, options),
            (Way::Burst(burst), None) => burst.execute(&bound.request, options),
        }
    }
}

impl Remote {
    /// Executes what was prepared from `model` on `device`.
    pub(crate) fn new(model: &Model, device: Device, way: Way) -> Remote {
        let declared = |indexes: &[u32]| -> Vec<Declared> {
            let operands = indexes
                .iter()
                .filter_map(|index| model.main.operands.get(*index as usize));
            operands.map(Declared::of).collect()
        };
        let outputs = declared(&model.main.output_indexes);
        Remote {
            device,
            way,
            states: None,
            // What is not known is asked for: the driver answers with the sizes that it needs.
            output_sizes: outputs
                .iter()
                .map(|output| output.size().unwrap_or(1).max(1))
                .collect(),
            outputs,
            inputs: declared(&model.main.input_indexes),
            layout: None,
            shapes: Vec::new(),
            options: ExecuteOptions::new(),
        }
    }

    /// A layout for these inputs.
    fn layout(&mut self, inputs: &[Value]) -> Result<Layout, Error> {
        let kept = self.states.as_ref().map_or(0, |states| states.states().len());
        let own = self.output_sizes.len().saturating_sub(kept);
        let sizes = &self.output_sizes[..own];
        Layout::new(inputs, &self.inputs, sizes, self.states.as_ref(), &mut self.way)
    }

    /// Takes over the sizes that the driver says the outputs need; whether any was larger than it had.
    fn enlarge(&mut self, shapes: &[OutputShape]) -> bool {
        let mut has_grown = false;
        for ((size, declared), shape) in self.output_sizes.iter_mut().zip(&self.outputs).zip(shapes) {
            let needed = byte_size(declared.operand_type, &shape.dimensions).unwrap_or(*size);
            if needed > *size {
                *size = needed;
                has_grown = true;
            }
        }
        has_grown
    }
}

impl Subject for Remote {
    fn keep_states(&mut self, states: &[State]) -> Result<bool, Error> {
        if let Some(kept) = &mut self.states {
            kept.reset()?;
            return Ok(true);
        }
        self.states = allocate(&self.device, self.way.model(), states)?;
        self.layout = None;
        Ok(self.states.is_some())
    }

    fn put(&mut self, inputs: &[Value]) -> Result<(), Error> {
        let layout = match self.layout.take() {
            Some(layout) if layout.fits(inputs) => layout,
            _ => self.layout(inputs)?,
        };
        for (value, (_, range)) in inputs.iter().zip(&layout.inputs) {
            layout.memory.write_at(range.start, &value.bytes)?;
        }
        self.layout = Some(layout);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        loop {
            let layout = match self.layout.take() {
                Some(layout) => layout,
                // Nothing was put there.
                None => self.layout(&[])?,
            };
            let turn = self.states.as_ref().map_or(0, States::turn);
            let outcome = self.way.execute(&layout.requests[turn], &self.options);
            let layout = self.layout.insert(layout);
            match outcome {
                Ok(completed) => {
                    if let Some(states) = &mut self.states {
                        states.end_turn();
                    }
                    self.shapes = completed.output_shapes;
                    return Ok(());
                }
                Err(error) => {
                    if error.status() != ErrorStatus::OutputInsufficientSize {
                        return Err(error.into());
                    }
                    let inputs = layout.read_inputs()?;
                    if !self.enlarge(error.output_shapes()) {
                        return Err(error.into());
                    }
                    self.layout = None;
                    self.put(&inputs)?;
                }
            }
        }
    }

    fn take(&mut self, outputs: &mut [Value]) -> Result<(), Error> {
        let Some(layout) = &self.layout else { return Ok(()) };
        for (index, (value, declared)) in outputs.iter_mut().zip(&self.outputs).enumerate() {
            let reported = self.shapes.get(index);
            let dimensions = reported.map_or(&declared.dimensions, |shape| &shape.dimensions);
            let range = &layout.outputs[index];
            let available = range.end - range.start;
            let size = byte_size(declared.operand_type, dimensions)
                .unwrap_or(available)
                .min(available);
            value.dimensions.clone_from(dimensions);
            value.bytes.resize(size as usize, 0);
            layout.memory.read_at(range.start, &mut value.bytes)?;
        }
        Ok(())
    }
}

impl Declared {
    fn of(operand: &Operand) -> Declared {
        Declared {
            operand_type: operand.operand_type,
            dimensions: operand.dimensions.clone(),
        }
    }

    /// Bytes, where the model fixes them.
    fn size(&self) -> Option<u64> {
        let is_open =
            self.dimensions.contains(&0) || (self.operand_type.is_tensor() && self.dimensions.is_empty());
        if is_open {
            None
        } else {
            byte_size(self.operand_type, &self.dimensions)
        }
    }
}

impl BoundRequest {
    fn new(request: Request, way: &mut Way) -> Result<BoundRequest, Error> {
        Ok(BoundRequest {
            registered: way.register(&request)?,
            request,
        })
    }
}

/// States in buffers of the device; `None` if it has none for them.
fn allocate(device: &Device, prepared: &PreparedModel, states: &[State]) -> Result<Option<States>, Error> {
    if states.iter().any(|state| state.initial.is_empty()) {
        return Ok(None);
    }
    match States::allocate(device, prepared, states) {
        Ok(states) => Ok(Some(states)),
        Err(error) if !error.is_dead_object() && is_without(error.status()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a device says so that it has no buffers, or no more of them, which it need not have.
fn is_without(status: ErrorStatus) -> bool {
    matches!(
        status,
        ErrorStatus::GeneralFailure
            | ErrorStatus::ResourceExhaustedTransient
            | ErrorStatus::ResourceExhaustedPersistent
    )
}

impl Layout {
    fn new(
        inputs: &[Value],
        declared: &[Declared],
        output_sizes: &[u64],
        states: Option<&States>,
        way: &mut Way,
    ) -> Result<Layout, Error> {
        let mut end = 0_u64;
        let mut place = |size: u64| {
            let start = end;
            end = (start + size.max(1)).next_multiple_of(ALIGNMENT);
            start..start + size
        };
        let in_ranges: Vec<Range<u64>> = inputs
            .iter()
            .map(|value| place(value.bytes.len() as u64))
            .collect();
        let out_ranges: Vec<Range<u64>> = output_sizes.iter().map(|size| place(*size)).collect();
        let memory = Memory::new(end.max(1))?;
        let mut request = Request::new();
        for ((value, range), declared) in inputs.iter().zip(&in_ranges).zip(declared) {
            // What the model says need not be said again.
            let dimensions: &[u32] = if value.dimensions == declared.dimensions {
                &[]
            } else {
                &value.dimensions
            };
            request = request.input_with_dimensions(&memory, range.clone(), dimensions);
        }
        for range in &out_ranges {
            request = request.output(&memory, range.clone());
        }
        let requests = match states {
            None => vec![BoundRequest::new(request, way)?],
            Some(states) => (0..States::TURNS)
                .map(|turn| BoundRequest::new(states.bind(request.clone(), turn), way))
                .collect::<Result<_, _>>()?,
        };
        let dimensions = inputs.iter().map(|value| value.dimensions.clone());
        Ok(Layout {
            memory,
            requests,
            inputs: dimensions.zip(in_ranges).collect(),
            outputs: out_ranges,
        })
    }

    fn read_inputs(&self) -> Result<Vec<Value>, Error> {
        let read = |(dimensions, range): &(Vec<u32>, Range<u64>)| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.memory.read_at(range.start, &mut bytes)?;
            Ok(Value {
                dimensions: dimensions.clone(),
                bytes,
            })
        };
        self.inputs.iter().map(read).collect()
    }

    fn fits(&self, inputs: &[Value]) -> bool {
        inputs.len() == self.inputs.len()
            && inputs
                .iter()
                .zip(&self.inputs)
                .all(|(value, (dimensions, range))| {
                    value.bytes.len() as u64 == range.end - range.start && value.dimensions == *dimensions
                })
    }
}

fn byte_size(operand_type: OperandType, dimensions: &[u32]) -> Option<u64> {
    let bytes = Shape::new(dimensions)
        .ok()?
        .byte_size(operand_type.element_size());
    bytes.ok().map(|bytes| bytes as u64)
}
