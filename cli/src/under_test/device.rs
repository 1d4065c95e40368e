//! A device across the process boundary, as the conformance procedures see it.

use nnhal_client::{
    Burst, BurstOptions, Completed, Device, Devices, ExecuteOptions, Memory, Model, PrepareOptions,
    PreparedModel, Request,
};
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as ConformancePreparedModel,
};
use nnhal_hal::{HalVersion, MeasureTiming, OperationSupport};

use super::device_arguments::{DeviceArguments, Place};
use crate::arguments::MemoryKind;
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

    /// The connection as it is, be its worker dead or alive.
    pub(crate) fn device_in_use(&self) -> &Device {
        &self.device
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

    fn hal_version(&self) -> HalVersion {
        self.device.info().hal_version
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
            burst: None,
            memory,
        }))
    }
}

/// A model prepared on the device.
pub(crate) struct PreparedUnderTest {
    device: Device,
    model: Model,
    prepared: PreparedModel,
    /// Opened with the first execution by burst.
    burst: Option<Burst>,
    memory: MemoryKind,
}

impl PreparedUnderTest {
    /// Executes with inputs and outputs in these memories, or in device buffers filled from and copied to
    /// them.
    fn run(
        &mut self,
        call: &ExecutionCall<'_>,
        (inputs, outputs): (Memory, &Memory),
        options: &ExecuteOptions,
    ) -> Result<nnhal_client::Result<Completed>, Breakdown> {
        if self.memory == MemoryKind::Shared {
            let request = Request::from_hal(call.request.clone(), vec![inputs, outputs.clone()]);
            return self.run_request(&request, options, call.form);
        }
        let place = Place {
            device: &self.device,
            model: &self.model,
            prepared: &self.prepared,
        };
        let arguments = match DeviceArguments::new(place, call.request, &inputs, outputs) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(Err(error)),
        };
        let completed = match self.run_request(&arguments.request, options, call.form)? {
            Ok(completed) => completed,
            Err(error) => return Ok(Err(error)),
        };
        let fetched = arguments.fetch(&self.model, &completed.output_shapes, outputs);
        Ok(fetched.map(|_| completed))
    }

    fn run_request(
        &mut self,
        request: &Request,
        options: &ExecuteOptions,
        form: Form,
    ) -> Result<nnhal_client::Result<Completed>, Breakdown> {
        match form {
            Form::Burst => self.execute_by_burst(request, options),
            Form::Fenced => Ok(form::execute_in_turn(&self.prepared, request, options)),
            form => Ok(form::execute(&self.prepared, request, options, form)),
        }
    }

    /// A burst execution is the request once spelled out, and once registered and fired, which must agree in
    /// what they answer; the outputs are the last one's.
    fn execute_by_burst(
        &mut self,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<nnhal_client::Result<Completed>, Breakdown> {
        let burst = match self.burst.take() {
            Some(burst) => self.burst.insert(burst),
            None => {
                let burst = self.prepared.burst(&BurstOptions::new()).map_err(breakdown)?;
                self.burst.insert(burst)
            }
        };
        let spelled = burst.execute(request, options);
        let registered = match burst.register(request) {
            Ok(registered) => registered,
            // What is wrong with the request is told either way.
            Err(_) if spelled.is_err() => return Ok(spelled),
            Err(error) => return Err(breakdown(error)),
        };
        let fired = burst.fire(&registered, options);
        let status = |outcome: &nnhal_client::Result<Completed>| {
            outcome.as_ref().err().map(nnhal_client::Error::status)
        };
        if status(&spelled) != status(&fired) {
            return Err(Breakdown(format!(
                "the general request ended with {:?}, the registered one with {:?}",
                status(&spelled),
                status(&fired)
            )));
        }
        Ok(fired)
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
        let outcome = self.run(call, (inputs, &outputs), &options)?;
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
