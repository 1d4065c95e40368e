//! A device across the process boundary, as the conformance procedures see it.

use nnhal::hal::MeasureTiming;
use nnhal::wire::OperationSupport;
use nnhal_client::{
    Completed, Device, Devices, ExecuteOptions, Memory, Model, PrepareOptions, PreparedModel, Request,
};
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as ConformancePreparedModel,
};

use crate::arguments::MemoryKind;
use crate::device_arguments::{DeviceArguments, Place};
use crate::form;

/// A connection to a device, opened anew after its worker died.
pub(crate) struct DeviceUnderTest {
    devices: Devices,
    device: Device,
    forms: Vec<Form>,
    memory: MemoryKind,
}

impl DeviceUnderTest {
    /// Opens the device with this name, to be executed in these forms with arguments in such memory.
    pub(crate) fn open(
        devices: &Devices,
        name: &str,
        forms: &[Form],
        memory: MemoryKind,
    ) -> nnhal_client::Result<DeviceUnderTest> {
        Ok(DeviceUnderTest {
            devices: devices.clone(),
            device: devices.device(name)?,
            forms: forms.to_vec(),
            memory,
        })
    }

    /// The connection, which is a new one if the worker of the last one is gone.
    fn device(&mut self) -> Result<&Device, Breakdown> {
        if self.device.ended().is_some() {
            let name = self.device.name().to_owned();
            self.device = self.devices.device(&name).map_err(breakdown)?;
        }
        Ok(&self.device)
    }
}

impl Implementation for DeviceUnderTest {
    type Prepared = PreparedUnderTest;

    fn forms(&self) -> &[Form] {
        &self.forms
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        let model = shared(model)?;
        answer(self.device()?.supported_operations(&model))
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<PreparedUnderTest> {
        let model = shared(model)?;
        let device = self.device()?.clone();
        let prepared = answer(device.prepare(&model, &PrepareOptions::new()))?;
        let memory = self.memory;
        Ok(prepared.map(|prepared| PreparedUnderTest {
            device,
            model,
            prepared,
            memory,
        }))
    }
}

/// A model prepared on the device.
pub(crate) struct PreparedUnderTest {
    device: Device,
    model: Model,
    prepared: PreparedModel,
    memory: MemoryKind,
}

impl PreparedUnderTest {
    /// Executes with inputs and outputs in these memories, or in device buffers filled from and copied to them.
    fn run(
        &self,
        call: &ExecutionCall<'_>,
        (inputs, outputs): (Memory, &Memory),
        options: &ExecuteOptions,
    ) -> nnhal_client::Result<Completed> {
        let run = |request: &Request| match call.form {
            Form::Fenced => form::execute_in_turn(&self.prepared, request, options),
            form => form::execute(&self.prepared, request, options, form),
        };
        if self.memory == MemoryKind::Shared {
            return run(&Request::from_hal(
                call.request.clone(),
                vec![inputs, outputs.clone()],
            ));
        }
        let place = Place {
            device: &self.device,
            model: &self.model,
            prepared: &self.prepared,
        };
        let arguments = DeviceArguments::new(place, call.request, &inputs, outputs)?;
        let completed = run(&arguments.request)?;
        arguments.fetch(&self.model, &completed.output_shapes, outputs)?;
        Ok(completed)
    }
}

impl ConformancePreparedModel for PreparedUnderTest {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        let inputs = Memory::new(call.inputs.len() as u64).map_err(breakdown)?;
        inputs.write_at(0, call.inputs).map_err(breakdown)?;
        let outputs = Memory::new(call.outputs as u64).map_err(breakdown)?;
        let mut options = ExecuteOptions::new();
        if call.measure == MeasureTiming::Yes {
            options = options.measure_timing();
        }
        if let Some(timeout) = call.loop_timeout {
            options = options.loop_timeout(timeout);
        }
        let outcome = self.run(call, (inputs, &outputs), &options);
        let result = nnhal_client::execution_result(outcome).map_err(breakdown)?;
        let mut bytes = vec![0; call.outputs];
        outputs.read_at(0, &mut bytes).map_err(breakdown)?;
        Ok(ExecutionAnswer {
            result,
            outputs: bytes,
        })
    }
}

/// The model with its pools in sealed memories.
fn shared(model: &ModelWithPools) -> Result<Model, Breakdown> {
    Model::with_pool_bytes((*model.model).clone(), model.pools.iter()).map_err(breakdown)
}

/// The driver's refusals are answers; everything else is none.
fn answer<T>(result: nnhal_client::Result<T>) -> Answer<T> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => match error.failure() {
            Some(failure) => Ok(Err(failure.clone())),
            None => Err(breakdown(error)),
        },
    }
}

fn breakdown(error: nnhal_client::Error) -> Breakdown {
    Breakdown(error.to_string())
}
