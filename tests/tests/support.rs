//! What a device says that it supports is what it prepares, over random models; what it does not support it
//! refuses with a reason for each operation.

use nnhal::wire::{CacheFiles, Call, MemoryHandle, Object, PrepareModel, Reply};
use nnhal_conformance::generator::Recipe;
use nnhal_conformance::generator::choices::{Choices, Random};
use nnhal_hal::{ErrorStatus, Model, OperationSupport, OperationType};
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// Random models for each device.
const MODELS: u64 = 150;

fn share(client: &mut RawClient, pools: &[Vec<u8>]) -> Vec<MemoryHandle> {
    let memories = pools.iter().map(|pool| {
        let memory = SharedMemory::create(pool.len() as u64).unwrap();
        let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
        mapping.as_slice().write_at(0, pool).unwrap();
        memory
    });
    memories.map(|memory| client.register(&memory)).collect()
}

/// What the device says of each operation.
fn ask(client: &mut RawClient, model: &Model, pools: &[MemoryHandle]) -> Vec<OperationSupport> {
    let call = Call::GetSupportedOperations {
        model: model.clone(),
        pools: pools.to_vec(),
    };
    match client.call(call, &[]) {
        Ok(Reply::SupportedOperations(answers)) => answers,
        other => panic!("{other:?}"),
    }
}

/// Asks about a model in which the operations with these indexes are a vendor's, and prepares it.
fn check(client: &mut RawClient, (mut model, pools): (Model, &[MemoryHandle]), foreign: &[bool], seed: u64) {
    for (operation, foreign) in model.main.operations.iter_mut().zip(foreign) {
        if *foreign {
            operation.operation_type = OperationType::OEM_OPERATION;
        }
    }
    let answers = ask(client, &model, pools);
    assert_eq!(answers.len(), model.main.operations.len(), "seed {seed}");
    for (answer, foreign) in answers.iter().zip(foreign) {
        match answer {
            OperationSupport::Supported => assert!(!foreign, "seed {seed}: {answers:?}"),
            OperationSupport::Unsupported { reason } => {
                assert!(*foreign && reason.contains("OEM"), "seed {seed}: {reason}");
            }
        }
    }
    let prepared = client.prepare(PrepareModel {
        model,
        pools: pools.to_vec(),
        preference: 1,
        priority: 1,
        deadline_ns: None,
        cache: CacheFiles::default(),
        token: [0; 32],
    });
    match prepared {
        Ok(handle) => {
            assert!(!foreign.contains(&true), "seed {seed}: prepared {answers:?}");
            let object = Object::PreparedModel(handle);
            assert_eq!(client.call(Call::Release { object }, &[]), Ok(Reply::Done));
        }
        Err(failure) => {
            assert!(foreign.contains(&true), "seed {seed}: supported, but {failure}");
            assert_ne!(
                failure.status,
                ErrorStatus::InvalidArgument,
                "seed {seed}: {failure}"
            );
            assert!(failure.detail.contains("OEM"), "seed {seed}: {failure}");
        }
    }
}

fn supported_is_prepared(device: &str) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let mut client = RawClient::connect(&daemon.runtime_dir(), device);
    let recipe = Recipe::default();
    for seed in 0..MODELS {
        let Some(generated) = recipe.generate(&mut Choices::from_seed(seed)) else {
            continue;
        };
        let mut random = Random::new(seed);
        let model = &generated.model.model;
        let pools = share(&mut client, &generated.model.pools);
        let operations = model.main.operations.len();
        let foreign: Vec<bool> = (0..operations).map(|_| random.below(3) == 0).collect();
        for foreign in [vec![false; operations], foreign] {
            check(&mut client, (Model::clone(model), &pools), &foreign, seed);
        }
        for memory in pools {
            let object = Object::Memory(memory);
            assert_eq!(client.call(Call::Release { object }, &[]), Ok(Reply::Done));
        }
    }
}

#[test]
fn what_the_reference_supports_it_prepares() {
    supported_is_prepared("nnhal-reference");
}

#[test]
fn what_the_fast_device_supports_it_prepares() {
    supported_is_prepared("nnhal-cpu");
}
