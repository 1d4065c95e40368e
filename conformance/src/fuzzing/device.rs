//! What a device makes of a model that somebody else has made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nnhal_device::{Control, Device, Interruption, PrepareOptions, Work};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ConstantPools, ExecutionPreference, Model, OperationSupport, OperationType, Priority, Shape,
};
use nnhal_os::buffer::AlignedSlice;
use nnhal_os::cores::{Cores, OwnCores};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

use super::{LOOP_TIMEOUT, MOST_BYTES, MOST_OPERATIONS, Reached};

/// How long preparing and running may take together.
const TIME: Duration = Duration::from_secs(2);

/// Validates a model, prepares it, or restores it if it is `compiled`, and runs it with `inputs`, as far as
/// its inputs are declared.
pub fn run(
    device: &dyn Device,
    (model, pools): (Model, &dyn ConstantPools),
    compiled: Option<AlignedSlice>,
    inputs: &[u8],
) -> Reached {
    let Ok(model) = ValidModel::new(Arc::new(model), pools, &device.info().extensions) else {
        return Reached::Validation;
    };
    let support = device.supported_operations(&model, pools);
    if support
        .iter()
        .any(|answer| *answer != OperationSupport::Supported)
    {
        return Reached::Validation;
    }
    let budget = Budget {
        operations: AtomicU32::new(MOST_OPERATIONS),
        cores: OwnCores::new(1),
    };
    let deadline = Deadline::after(MonotonicClock.now(), TIME);
    let control = Control::new(&budget, deadline, LOOP_TIMEOUT);
    let options = PrepareOptions {
        preference: ExecutionPreference::FastSingleAnswer,
        priority: Priority::Medium,
        control: &control,
    };
    let model = Arc::new(model);
    let prepared = match compiled {
        Some(compiled) => device.restore(Arc::clone(&model), pools, compiled, &options),
        None => device.prepare(Arc::clone(&model), pools, &options),
    };
    let Ok(mut execution) = prepared.and_then(|prepared| prepared.new_execution()) else {
        return Reached::Validation;
    };
    let Some(declared) = declared_inputs(&model) else {
        return Reached::Request;
    };
    for (index, (shape, size)) in declared.iter().enumerate() {
        let given = inputs.iter().cycle().chain(std::iter::repeat(&0));
        let bytes: Vec<u8> = given.take(*size).copied().collect();
        let source = bytes.as_slice();
        if execution.set_input(index, shape, &source, &control).is_err() {
            return Reached::Request;
        }
    }
    if execution.run(&control).is_err() {
        return Reached::Execution;
    }
    for index in 0..model.model().main.output_indexes.len() {
        assert!(
            execution.output(index).is_some(),
            "output {index} is missing after a success"
        );
    }
    Reached::Result
}

/// The shapes and sizes of the inputs, if they are known and no more than fuzzing runs.
fn declared_inputs(model: &ValidModel) -> Option<Vec<(Shape, usize)>> {
    let main = &model.model().main;
    let mut total = 0_usize;
    let mut inputs = Vec::new();
    for index in &main.input_indexes {
        let operand = main.operands.get(*index as usize)?;
        let shape = Shape::new(&operand.dimensions).ok()?;
        let bytes = model.layouts().byte_size(operand.operand_type, &shape)?;
        total = total.checked_add(bytes)?;
        inputs.push((shape, bytes));
    }
    (total <= MOST_BYTES).then_some(inputs)
}

/// Cancels after a number of operations.
struct Budget {
    operations: AtomicU32,
    cores: OwnCores,
}

impl Work for Budget {
    fn checkpoint(&self, _: Deadline) -> Result<(), Interruption> {
        let less = |left: u32| left.checked_sub(1);
        let spent = self
            .operations
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        spent.map(drop).map_err(|_| Interruption::Cancelled)
    }

    fn cores(&self) -> &dyn Cores {
        &self.cores
    }

    fn is_traced(&self) -> bool {
        false
    }

    fn record_operation(&self, _: usize, _: OperationType, _: (TimePoint, TimePoint)) {}
}
