//! A client with a reference device, and how it asks for device buffers.

use nnhal::wire::{
    Allocated, Call, Execute, ExecutionForm, ExecutionResult, MemoryHandle, PrepareModel,
    PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_hal::{BufferDesc, BufferRole, ErrorStatus, Failure, MeasureTiming, Operand, RequestPool};
use nnhal_os::shm::Mapping;
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, request_in_one_memory, shared_floats};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

pub(crate) struct Bench {
    pub(crate) client: RawClient,
    pub(crate) _daemon: TestDaemon,
}

pub(crate) fn role(model_index: u32, io_index: u32) -> BufferRole {
    BufferRole {
        model_index,
        io_index,
        frequency: 1.0,
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let client = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
        Bench {
            client,
            _daemon: daemon,
        }
    }

    pub(crate) fn prepare(&mut self, model: PrepareModel) -> PreparedModelHandle {
        self.client.prepare(model).unwrap()
    }

    pub(crate) fn allocate(
        &mut self,
        models: &[PreparedModelHandle],
        inputs: &[BufferRole],
        outputs: &[BufferRole],
        dimensions: &[u32],
    ) -> Result<Allocated, Failure> {
        let call = Call::Allocate {
            desc: BufferDesc {
                dimensions: dimensions.to_vec(),
            },
            prepared_models: models.to_vec(),
            input_roles: inputs.to_vec(),
            output_roles: outputs.to_vec(),
        };
        match self.client.call(call, &[])? {
            Reply::Allocated(allocated) => Ok(allocated),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn share(&mut self, values: &[f32]) -> (MemoryHandle, Mapping) {
        let (memory, mapping) = shared_floats(values);
        (self.client.register(&memory), mapping)
    }

    pub(crate) fn copy_from(&mut self, buffer: Allocated, values: &[f32], dimensions: &[u32]) -> ErrorStatus {
        let (memory, _mapping) = self.share(values);
        let call = Call::CopyFrom {
            buffer: buffer.buffer,
            memory,
            dimensions: dimensions.to_vec(),
        };
        status_of(self.client.call(call, &[]))
    }

    pub(crate) fn copy_to(&mut self, buffer: Allocated, count: usize) -> Result<Vec<f32>, ErrorStatus> {
        let (memory, mapping) = self.share(&vec![0.0; count]);
        match self.client.call(
            Call::CopyTo {
                buffer: buffer.buffer,
                memory,
            },
            &[],
        ) {
            Ok(_) => Ok(floats(&mapping, count)),
            Err(failure) => Err(failure.status),
        }
    }

    pub(crate) fn execute(
        &mut self,
        model: PreparedModelHandle,
        request: RequestWithMemories,
    ) -> ExecutionResult {
        let call = Call::Execute(Execute {
            prepared_model: model,
            request,
            form: ExecutionForm::Synchronous,
            measure: MeasureTiming::No,
            deadline_ns: None,
            loop_timeout_ns: None,
        });
        match self.client.call(call, &[]) {
            Ok(Reply::Executed(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&mut self, model: PreparedModelHandle, request: RequestWithMemories) -> ErrorStatus {
        self.execute(model, request).status()
    }
}

pub(crate) fn status_of(result: Result<Reply, Failure>) -> ErrorStatus {
    result.map_or_else(|failure| failure.status, |_| ErrorStatus::None)
}

pub(crate) fn floats(mapping: &Mapping, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    mapping.as_slice().read_at(0, &mut bytes).unwrap();
    bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}

/// A request for [`add_model`] whose arguments are these tokens, or the parts of a memory where there is
/// none.
pub(crate) fn request(memory: MemoryHandle, tokens: [Option<u32>; 3], elements: u32) -> RequestWithMemories {
    let mut built = request_in_one_memory(memory, 2, 1, elements * 4);
    let arguments = built.request.inputs.iter_mut().chain(&mut built.request.outputs);
    for (argument, token) in arguments.zip(tokens) {
        if let Some(token) = token {
            argument.location.pool_index = built.request.pools.len() as u32;
            argument.location.offset = 0;
            argument.location.length = 0;
            built.request.pools.push(RequestPool::Token(token));
        }
    }
    built
}

/// [`add_model`] with other operands for its three arguments.
pub(crate) fn add_of(operand: &Operand) -> PrepareModel {
    let mut model = add_model(1);
    for index in [0, 1, 3] {
        let old = &mut model.model.main.operands[index];
        *old = Operand {
            lifetime: old.lifetime,
            number_of_consumers: old.number_of_consumers,
            ..operand.clone()
        };
    }
    model
}
