//! The HAL's validation tests across the process boundary, each under its number in the test inventory:
//! models M01 to M23, requests R01 to R04. Validation itself is held to every mutant of every model in
//! `conformance/tests/model_validation.rs`; here the worker's answers are.

use nnhal::wire::{
    CacheFiles, Call, Execute, ExecuteFenced, ExecutionForm, FenceArgument, FencedLimits, MemoryHandle,
    Object, PrepareModel, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_conformance::implementation::ModelWithPools;
use nnhal_conformance::negative::{self, BaseModel, MUTATIONS};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, Model, Timing};
use nnhal_os::shm::SharedMemory;
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, request_in_one_memory, shared_floats};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// How many mutants of a family go through the daemon for each operation.
const MUTANTS: usize = 4;

fn connect() -> (TestDaemon, RawClient) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let client = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    (daemon, client)
}

fn prepare_arguments(model: Model, pools: Vec<MemoryHandle>) -> PrepareModel {
    PrepareModel {
        model,
        pools,
        preference: 1,
        priority: 1,
        deadline_ns: None,
        cache: CacheFiles::default(),
        token: [0; 32],
    }
}

/// Shares the pools of a model.
fn share(client: &mut RawClient, model: &ModelWithPools) -> Vec<MemoryHandle> {
    let pools = model.pools.iter().map(|pool| {
        let memory = SharedMemory::create(pool.len() as u64).unwrap();
        let mapping = nnhal_os::shm::Mapping::new(&memory, nnhal_os::shm::Access::ReadWrite).unwrap();
        mapping.as_slice().write_at(0, pool).unwrap();
        memory
    });
    pools.map(|memory| client.register(&memory)).collect()
}

/// Both answers to a model must be INVALID_ARGUMENT, and say the same.
fn expect_refused(client: &mut RawClient, model: Model, pools: &[MemoryHandle], what: &str) -> Failure {
    let asked = client.call(
        Call::GetSupportedOperations {
            model: model.clone(),
            pools: pools.to_vec(),
        },
        &[],
    );
    let prepared = client.prepare(prepare_arguments(model, pools.to_vec()));
    let (Err(asked), Err(prepared)) = (asked, prepared) else {
        panic!("{what}: accepted");
    };
    for failure in [&asked, &prepared] {
        assert_eq!(failure.status, ErrorStatus::InvalidArgument, "{what}: {failure}");
    }
    assert_eq!(asked.to_string(), prepared.to_string(), "{what}");
    prepared
}

/// One model of each operation, so that every signature is seen.
fn one_of_each(models: Vec<BaseModel>) -> Vec<BaseModel> {
    let mut seen = std::collections::BTreeSet::new();
    let first = |base: &BaseModel| {
        let operations = &base.model.model.main.operations;
        seen.insert(operations.iter().map(|operation| operation.operation_type).min())
    };
    models.into_iter().filter(first).collect()
}

/// Among them are the mistakes of N010, N019 and N023.
#[test]
fn m01_to_m20_broken_models_are_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    let models = one_of_each(negative::random_models());
    assert!(models.len() > 80, "only {} models", models.len());
    for base in &models {
        let pools = share(&mut client, &base.model);
        for mutation in MUTATIONS {
            let mut mutants = Vec::new();
            (mutation.mutants)(&base.model.model, &mut |mutant| mutants.push(mutant));
            // Spread over the whole family.
            let step = mutants.len().div_ceil(MUTANTS).max(1);
            for mutant in mutants.into_iter().step_by(step) {
                let what = format!("{} of {}: {}", mutation.number, base.name, mutant.change);
                let names = mutant.clone();
                let failure = expect_refused(&mut client, mutant.model, &pools, &what);
                assert!(names.is_named_in(&failure.detail), "{what}: {failure}");
            }
        }
        for memory in pools {
            let released = client.call(
                Call::Release {
                    object: Object::Memory(memory),
                },
                &[],
            );
            assert_eq!(released, Ok(Reply::Done));
        }
    }
}

/// N033 is about the same.
#[test]
fn m21_unknown_preference_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    for preference in [-1, 3] {
        let failure = client
            .prepare(PrepareModel {
                preference,
                ..add_model(2)
            })
            .unwrap_err();
        assert_eq!(failure.status, ErrorStatus::InvalidArgument);
        assert!(
            failure
                .detail
                .contains(&format!("preference {preference} must be")),
            "{failure}"
        );
    }
    client.prepare(add_model(2)).unwrap();
}

/// N033 is about the same.
#[test]
fn m22_unknown_priority_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    for priority in [-1, 3] {
        let failure = client
            .prepare(PrepareModel {
                priority,
                ..add_model(2)
            })
            .unwrap_err();
        assert_eq!(failure.status, ErrorStatus::InvalidArgument);
        assert!(
            failure.detail.contains(&format!("priority {priority} must be")),
            "{failure}"
        );
    }
    client.prepare(add_model(2)).unwrap();
}

/// N023 is about the same.
#[test]
fn m23_cycle_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    let failure = expect_refused(&mut client, Model::clone(&negative::cycle()), &[], "a cycle");
    assert!(
        failure.detail.contains("before an operation has written it"),
        "{failure}"
    );
}

/// A prepared addition, and a memory for its arguments.
fn prepared(client: &mut RawClient) -> (PreparedModelHandle, MemoryHandle) {
    let model = client.prepare(add_model(2)).unwrap();
    let (memory, _) = shared_floats(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    (model, client.register(&memory))
}

/// Executes a request in each of its forms. All must be refused at once, with the same words.
fn expect_request_refused(
    client: &mut RawClient,
    prepared_model: PreparedModelHandle,
    request: &RequestWithMemories,
) -> String {
    let mut failures = Vec::new();
    for measure in [MeasureTiming::No, MeasureTiming::Yes] {
        let mut execute = Execute {
            prepared_model,
            request: request.clone(),
            form: ExecutionForm::Synchronous,
            measure,
            deadline_ns: None,
            loop_timeout_ns: None,
        };
        match client.call(Call::Execute(execute.clone()), &[]) {
            Ok(Reply::Executed(result)) => {
                assert_eq!(result.output_shapes, []);
                assert_eq!(result.timing, Timing::NONE);
                failures.push(result.outcome.unwrap_err());
            }
            Err(failure) => failures.push(failure),
            other => panic!("{other:?}"),
        }
        execute.form = ExecutionForm::Asynchronous;
        failures.push(client.call(Call::Execute(execute), &[]).unwrap_err());
        let fenced = ExecuteFenced {
            prepared_model,
            request: request.clone(),
            wait_for: Vec::new(),
            measure,
            limits: FencedLimits::default(),
        };
        failures.push(client.call(Call::ExecuteFenced(fenced), &[]).unwrap_err());
    }
    for failure in &failures {
        assert_eq!(failure.status, ErrorStatus::InvalidArgument, "{failure}");
    }
    failures[0].detail.clone()
}

#[test]
fn r01_request_without_an_input_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    let (model, memory) = prepared(&mut client);
    for input in 0..2 {
        let mut request = request_in_one_memory(memory, 2, 1, 8);
        request.request.inputs.remove(input);
        let detail = expect_request_refused(&mut client, model, &request);
        assert_eq!(detail, "the request has 1 inputs, the model has 2");
    }
}

#[test]
fn r02_request_without_an_output_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    let (model, memory) = prepared(&mut client);
    let mut request = request_in_one_memory(memory, 2, 1, 8);
    request.request.outputs.clear();
    let detail = expect_request_refused(&mut client, model, &request);
    assert_eq!(detail, "the request has 0 outputs, the model has 1");
}

/// Freeing a memory of a burst's is a release here; what the burst itself does then is tested with the
/// bursts.
#[test]
fn r03_freeing_memory_once_twice_or_unknown_is_harmless() {
    let (_daemon, mut client) = connect();
    let (model, memory) = prepared(&mut client);
    let mut free = |handle| {
        client.call(
            Call::Release {
                object: Object::Memory(handle),
            },
            &[],
        )
    };
    assert_eq!(free(memory), Ok(Reply::Done));
    for gone in [
        memory,
        MemoryHandle(nnhal::wire::Handle {
            index: 4711,
            generation: 1,
        }),
    ] {
        assert_eq!(free(gone).unwrap_err().status, ErrorStatus::InvalidArgument);
    }
    let (memory, _) = shared_floats(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let memory = client.register(&memory);
    let execute = Execute {
        prepared_model: model,
        request: request_in_one_memory(memory, 2, 1, 8),
        form: ExecutionForm::Synchronous,
        measure: MeasureTiming::No,
        deadline_ns: None,
        loop_timeout_ns: None,
    };
    let Ok(Reply::Executed(result)) = client.call(Call::Execute(execute), &[]) else {
        panic!("no execution")
    };
    assert_eq!(result.outcome, Ok(()));
}

/// N051 is about the same.
#[test]
fn r04_null_fence_is_refused_with_invalid_argument() {
    let (_daemon, mut client) = connect();
    let (prepared_model, memory) = prepared(&mut client);
    let fenced = |wait_for| {
        Call::ExecuteFenced(ExecuteFenced {
            prepared_model,
            request: request_in_one_memory(memory, 2, 1, 8),
            wait_for,
            measure: MeasureTiming::No,
            limits: FencedLimits::default(),
        })
    };
    let null = vec![FenceArgument::Attached { fds: 0 }];
    let failure = client.call(fenced(null), &[]).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::InvalidArgument, "{failure}");
    assert!(failure.detail.contains("fence"), "{failure}");
    assert!(matches!(
        client.call(fenced(Vec::new()), &[]),
        Ok(Reply::Fenced(_))
    ));
}
