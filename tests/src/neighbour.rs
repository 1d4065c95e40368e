//! A client beside the one that a test is about.

use nnhal::wire::{
    Call, Execute, ExecutionForm, MemoryHandle, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_hal::MeasureTiming;
use nnhal_os::shm::Mapping;

use super::models::{add_model, request_in_one_memory, shared_floats};
use super::raw_client::RawClient;

/// The call that executes a request synchronously, without a limit.
#[must_use]
pub fn execution(prepared_model: PreparedModelHandle, request: RequestWithMemories) -> Call {
    Call::Execute(Execute {
        prepared_model,
        request,
        form: ExecutionForm::Synchronous,
        measure: MeasureTiming::No,
        deadline_ns: None,
        loop_timeout_ns: None,
    })
}

/// A well-behaved client that is served all the time.
#[derive(Debug)]
pub struct Neighbour {
    client: RawClient,
    model: PreparedModelHandle,
    memory: MemoryHandle,
    mapping: Mapping,
}

impl Neighbour {
    /// One that has prepared a sum and registered its memory.
    ///
    /// # Panics
    /// If the driver refuses.
    #[must_use]
    pub fn new(mut client: RawClient) -> Neighbour {
        let model = client.prepare(add_model(1)).expect("a model");
        let (memory, mapping) = shared_floats(&[1.0, 2.0, 0.0]);
        let memory = client.register(&memory);
        Neighbour {
            client,
            model,
            memory,
            mapping,
        }
    }

    /// Has the driver compute the sum.
    ///
    /// # Panics
    /// If it does not, or wrongly.
    pub fn expect_served(&mut self) {
        let memory = self.mapping.as_slice();
        memory.write_at(8, &[0; 4]).expect("room for the sum");
        let request = request_in_one_memory(self.memory, 2, 1, 4);
        let reply = self.client.call(execution(self.model, request), &[]);
        assert!(
            matches!(&reply, Ok(Reply::Executed(result)) if result.outcome.is_ok()),
            "{reply:?}"
        );
        let mut sum = [0; 4];
        memory.read_at(8, &mut sum).expect("the sum");
        assert_eq!(f32::from_ne_bytes(sum), 3.0);
    }
}
