//! What hostile and buggy clients do by the control protocol (T6, T7, T9, T15, T18, T21 of the threat model).
//! Another client is served beside them each time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nnhal::fence::{Fence, FenceState};
use nnhal::wire::handshake::{VERSIONS, Versions};
use nnhal::wire::{
    Call, ExecuteFenced, ExecutionResult, FenceArgument, FencedLimits, Handle, MemoryHandle, Message, Object,
    PrepareModel, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_client::{
    BurstOptions, Devices, ExecuteOptions, Memory, Model, ModelBuilder, OperationType, PrepareOptions,
    Request, TensorType,
};
use nnhal_hal::{DataLocation, ErrorStatus, MeasureTiming, MemoryPool, OperandLifeTime};
use nnhal_os::eventfd;
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, Neighbour, RawClient, TIMEOUT, TestDaemon, add_model, execution, request_in_one_memory,
    shared_floats,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

fn start(settings: &str) -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::with_settings(settings))
}

fn connect(daemon: &TestDaemon) -> RawClient {
    RawClient::connect(&daemon.runtime_dir(), "nnhal-reference")
}

fn execute(
    client: &mut RawClient,
    model: PreparedModelHandle,
    request: RequestWithMemories,
) -> ExecutionResult {
    match client.call(execution(model, request), &[]) {
        Ok(Reply::Executed(result)) => result,
        other => panic!("{other:?}"),
    }
}

/// [`add_model`] whose second operand is a constant in a memory.
fn add_constant(elements: u32) -> PrepareModel {
    let mut prepare = add_model(elements);
    let main = &mut prepare.model.main;
    main.operands[1].lifetime = OperandLifeTime::ConstantReference;
    main.operands[1].location = DataLocation {
        pool_index: 0,
        offset: 0,
        length: elements * 4,
    };
    main.input_indexes = vec![0];
    prepare.model.pools = vec![MemoryPool {
        size: u64::from(elements) * 4,
    }];
    prepare
}

#[test]
fn constants_that_change_after_the_check_change_nothing() {
    const ELEMENTS: u32 = 1024;
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let shared = SharedMemory::create(u64::from(ELEMENTS) * 4).unwrap();
    let constants = Mapping::new(&shared, Access::ReadWrite).unwrap();
    let (memory, mapping) = shared_floats(&[0.0; 2 * ELEMENTS as usize]);
    let memory = client.register(&memory);
    let pool = client.register(&shared);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in [1.0_f32, 2.0].iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for index in 0..u64::from(ELEMENTS) {
                    constants
                        .as_slice()
                        .write_at(index * 4, &value.to_le_bytes())
                        .unwrap();
                }
            }
        });
        for _ in 0..50 {
            let mut prepare = add_constant(ELEMENTS);
            prepare.pools = vec![pool];
            let model = client.prepare(prepare).unwrap();
            let mut results = Vec::new();
            for _ in 0..5 {
                let request = request_in_one_memory(memory, 1, 1, ELEMENTS * 4);
                assert_eq!(execute(&mut client, model, request).outcome, Ok(()));
                let mut bytes = vec![0; ELEMENTS as usize * 4];
                let outputs = mapping.as_slice();
                outputs.read_at(u64::from(ELEMENTS) * 4, &mut bytes).unwrap();
                results.push(bytes);
            }
            // What was copied once is what every execution uses.
            assert!(results.iter().all(|result| *result == results[0]), "T7");
            client
                .call(
                    Call::Release {
                        object: Object::PreparedModel(model),
                    },
                    &[],
                )
                .unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    neighbour.expect_served();
}

/// Elements of what flips.
const FLIPPED: u32 = 4096;

/// Models whose result tells whether a value was read twice: `output = input - input`, and the rows of a
/// constant that the input names.
fn read_twice_models() -> [Model; 2] {
    let mut difference = ModelBuilder::new();
    let x = difference.input(TensorType::float32(&[FLIPPED]));
    let no_activation = difference.scalar(0_i32);
    let zeros = difference.output(TensorType::float32(&[FLIPPED]));
    difference.operation(OperationType::SUB, &[x, x, no_activation], &[zeros]);
    let mut rows = ModelBuilder::new();
    let table = rows.constant(TensorType::float32(&[16, 1]), &[7.0_f32; 16]);
    let axis = rows.scalar(0_i32);
    let indexes = rows.input(TensorType::int32(&[FLIPPED]));
    let found = rows.output(TensorType::float32(&[FLIPPED, 1]));
    rows.operation(OperationType::GATHER, &[table, axis, indexes], &[found]);
    [difference.finish().unwrap(), rows.finish().unwrap()]
}

/// Flips bits of 32-bit values until `is_over`, and says how many.
fn flip_values(memory: &Memory, is_over: &AtomicBool) -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut flips = 0;
    while !is_over.load(Ordering::Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = state % u64::from(FLIPPED) * 4;
        let mut value = [0; 4];
        memory.read_at(at, &mut value).unwrap();
        // Indexes are from 0 to 15, floats tiny; a rare bit makes the one too large and the other ordinary.
        let flip = if state >> 52 == 0 {
            1 << 28
        } else {
            1 << ((state >> 32) % 4)
        };
        let value = u32::from_le_bytes(value) ^ flip;
        memory.write_at(at, &value.to_le_bytes()).unwrap();
        flips += 1;
    }
    flips
}

#[test]
fn values_that_flip_while_they_are_read_are_those_of_one_moment() {
    const EXECUTIONS: u32 = 300;
    for name in ["nnhal-reference", "nnhal-cpu"] {
        let daemon = start("");
        let mut neighbour = Neighbour::new(connect(&daemon));
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(name)
            .unwrap();
        for (model, expected) in read_twice_models().iter().zip([0.0_f32, 7.0]) {
            let prepared = device.prepare(model, &PrepareOptions::new()).unwrap();
            let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
            let bytes = u64::from(FLIPPED) * 4;
            let (memory, results) = (Memory::new(bytes).unwrap(), Memory::new(bytes).unwrap());
            let request = Request::new().input(&memory, 0..bytes).output(&results, 0..bytes);
            let options = ExecuteOptions::new();
            let is_over = AtomicBool::new(false);
            let (mut good, mut refused) = (0_u32, 0_u32);
            let flips = std::thread::scope(|scope| {
                let flipping = scope.spawn(|| flip_values(&memory, &is_over));
                let started = MonotonicClock.now();
                let is_long_enough =
                    || MonotonicClock.now().saturating_since(started) > Duration::from_millis(500);
                let mut executions = 0;
                while executions < EXECUTIONS || !is_long_enough() {
                    let outcome = match executions % 2 {
                        0 => prepared.execute(&request, &options),
                        _ => burst.execute(&request, &options),
                    };
                    executions += 1;
                    match outcome {
                        Ok(_) => {
                            let found = results.read::<f32>(0, FLIPPED as usize).unwrap();
                            assert!(found.iter().all(|value| *value == expected), "T6: {name}");
                            good += 1;
                        }
                        Err(error) => {
                            assert!(error.failure().is_some(), "T6: {name}: {error}");
                            refused += 1;
                        }
                    }
                }
                is_over.store(true, Ordering::Relaxed);
                flipping.join().unwrap()
            });
            println!("{name}: {flips} flips, {good} executions, {refused} refused");
            // An index that is too large is there most of the time, a float that is wrong never.
            assert!(expected != 0.0 || refused == 0, "T6");
            assert!(flips > 10_000, "{flips}");
            memory.clear().unwrap();
            burst.execute(&request, &options).unwrap();
        }
        neighbour.expect_served();
    }
}

/// Launches a fenced execution that waits for `fence` and returns its own.
fn launch(
    client: &mut RawClient,
    model: PreparedModelHandle,
    memory: MemoryHandle,
    fence: &OwnedFd,
) -> Fence {
    let call = Call::ExecuteFenced(ExecuteFenced {
        prepared_model: model,
        request: request_in_one_memory(memory, 2, 1, 4),
        wait_for: vec![FenceArgument::Attached { fds: 1 }],
        measure: MeasureTiming::No,
        limits: FencedLimits::default(),
    });
    client.send(call, &[fence.as_fd()]).unwrap();
    match client.receive().unwrap() {
        (
            Message::Reply {
                result: Ok(Reply::Fenced(_)),
                ..
            },
            mut fds,
        ) => Fence::from_handle(fds.pop()).unwrap(),
        (other, _) => panic!("{other:?}"),
    }
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

#[test]
fn fences_that_the_client_saturates_or_never_signals_hold_nothing() {
    let daemon = start("[execution]\nslots = 1\n[limits]\nthreads = 1\n");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let alone = p99(&mut neighbour);
    let mut client = connect(&daemon);
    let model = client.prepare(add_model(1)).unwrap();
    let (shared, _mapping) = shared_floats(&[1.0, 2.0, 0.0]);
    let memory = client.register(&shared);
    let (gate, closed) = Fence::create().unwrap();
    let closed = closed.try_clone_fd().unwrap();
    let launched: Vec<Fence> = (0..16)
        .map(|_| launch(&mut client, model, memory, &closed))
        .collect();
    for fence in &launched {
        // T9: the flag lives on the description that the worker writes to, too.
        let hostile = fence.try_clone_fd().unwrap();
        eventfd::add(&hostile, eventfd::MAX_COUNT).unwrap();
        fcntl(&hostile, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    }
    // T21: all of them wait, with one slot and one thread, and none holds either.
    let request = request_in_one_memory(memory, 2, 1, 4);
    assert_eq!(execute(&mut client, model, request.clone()).outcome, Ok(()));
    let beside = p99(&mut neighbour);
    println!(
        "T9: a neighbour's p99 is {} us beside 16 saturated fences, {} us alone: {:.2} times",
        beside.as_micros(),
        alone.as_micros(),
        beside.as_secs_f64() / alone.as_secs_f64()
    );
    gate.signal().unwrap();
    assert_eq!(execute(&mut client, model, request).outcome, Ok(()), "T9");
    let (source, open) = Fence::create().unwrap();
    source.signal().unwrap();
    let last = launch(&mut client, model, memory, &open.try_clone_fd().unwrap());
    assert_eq!(last.wait(default_deadline()).unwrap(), FenceState::Signalled);
    neighbour.expect_served();
}

/// Bytes of a memory for the boundaries of arguments, each of which has 16.
const BOUNDED: u32 = 64;
const ARGUMENT: u32 = 16;

/// What comes of an execution.
fn outcome(
    client: &mut RawClient,
    model: PreparedModelHandle,
    request: RequestWithMemories,
) -> Result<(), ErrorStatus> {
    match client.call(execution(model, request), &[]) {
        Ok(Reply::Executed(result)) => result.outcome.map_err(|failure| failure.status),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure.status),
    }
}

/// T8: wherever offsets and lengths end or overflow.
#[test]
fn arguments_are_taken_inside_their_memory_and_refused_beyond_it() {
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let model = client.prepare(add_model(ARGUMENT / 4)).unwrap();
    let (shared, _mapping) = shared_floats(&[1.0; BOUNDED as usize / 4]);
    let memory = client.register(&shared);
    let near = |number: u32| (0..=2).map(move |step| number.wrapping_add(step).wrapping_sub(1));
    let places = [
        0,
        ARGUMENT,
        BOUNDED - ARGUMENT,
        BOUNDED,
        1 << 31,
        0_u32.wrapping_sub(ARGUMENT),
        u32::MAX,
    ];
    let places: Vec<u32> = places.into_iter().flat_map(near).collect();
    let (mut taken, mut refused) = (0, 0);
    for argument in 0..3 {
        for &offset in &places {
            for &length in places.iter().filter(|length| **length > 0) {
                let mut request = request_in_one_memory(memory, 2, 1, ARGUMENT);
                let inner = &mut request.request;
                let location = match argument {
                    2 => &mut inner.outputs[0].location,
                    input => &mut inner.inputs[input].location,
                };
                (location.offset, location.length) = (offset, length);
                let is_inside = u64::from(offset) + u64::from(length) <= u64::from(BOUNDED);
                let outcome = outcome(&mut client, model, request);
                if !is_inside {
                    assert_eq!(
                        outcome,
                        Err(ErrorStatus::InvalidArgument),
                        "T8: {offset} + {length}"
                    );
                    refused += 1;
                } else if length == ARGUMENT {
                    assert_eq!(outcome, Ok(()), "T8: {offset} + {length}");
                    taken += 1;
                }
            }
        }
    }
    println!("{taken} places inside of the memory were taken, {refused} beyond it were refused");
    assert!(taken > 0 && refused > 0);
    neighbour.expect_served();
}

/// T8: inputs are copied before outputs are written.
#[test]
fn output_that_lies_over_an_input_has_the_right_values() {
    let daemon = start("");
    for name in ["nnhal-reference", "nnhal-cpu"] {
        let mut client = RawClient::connect(&daemon.runtime_dir(), name);
        let model = client.prepare(add_model(ARGUMENT / 4)).unwrap();
        let before: Vec<f32> = (0..BOUNDED / 4).map(|value| value as f32).collect();
        let (shared, mapping) = shared_floats(&before);
        let memory = client.register(&shared);
        let bytes: Vec<u8> = before.iter().flat_map(|value| value.to_le_bytes()).collect();
        for offset in 0..=(BOUNDED - ARGUMENT) / 4 {
            mapping.as_slice().write_at(0, &bytes).unwrap();
            let mut request = request_in_one_memory(memory, 2, 1, ARGUMENT);
            request.request.outputs[0].location.offset = offset * 4;
            assert_eq!(execute(&mut client, model, request).outcome, Ok(()), "T8");
            let mut sums = [0; ARGUMENT as usize];
            mapping
                .as_slice()
                .read_at(u64::from(offset) * 4, &mut sums)
                .unwrap();
            let (sums, _) = sums.as_chunks::<4>();
            let sums: Vec<f32> = sums.iter().map(|sum| f32::from_le_bytes(*sum)).collect();
            // The inputs are the first four values and the four that follow.
            assert_eq!(sums, [4.0, 6.0, 8.0, 10.0], "T8: {name}, an output at {offset}");
        }
    }
}

/// Executions of a client whose time is measured.
const MEASURED: usize = 400;

/// How long the slowest hundredth of so many executions takes at least.
fn p99(neighbour: &mut Neighbour) -> Duration {
    let mut times: Vec<Duration> = (0..MEASURED)
        .map(|_| {
            let start = MonotonicClock.now();
            neighbour.expect_served();
            MonotonicClock.now().saturating_since(start)
        })
        .collect();
    times.sort_unstable();
    times[MEASURED * 99 / 100]
}

#[test]
fn guessed_and_stale_handles_are_never_hits() {
    const GUESSES: u32 = 20_000;
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let (shared, _mapping) = shared_floats(&[1.0]);
    let stale = client.register(&shared);
    let release = |object| Call::Release { object };
    client.call(release(Object::Memory(stale)), &[]).unwrap();
    let fresh = client.register(&shared);
    assert_ne!(stale, fresh, "T15: a place used again has another generation");
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for guess in 0..GUESSES {
        // An xorshift; small indexes are where objects are.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let handle = Handle {
            index: (state % 8) as u32,
            generation: (state >> 32) as u32,
        };
        let object = match guess % 6 {
            0 if fresh.0 == handle => continue,
            0 => Object::Memory(handle.into()),
            1 => Object::PreparedModel(handle.into()),
            2 => Object::Burst(handle.into()),
            3 => Object::Buffer(handle.into()),
            4 => Object::Execution(handle.into()),
            _ => Object::Fence(handle.into()),
        };
        let refused = client.call(release(object), &[]).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::InvalidArgument, "T15: {object:?}");
    }
    let refused = client.call(release(Object::Memory(stale)), &[]).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::InvalidArgument, "T15");
    neighbour.expect_served();
}

/// N012 is about the first of them.
#[test]
fn sizes_beyond_all_bounds_are_refused_and_cost_nobody_else() {
    let daemon = start("[limits]\naddress_space_bytes = 1073741824\n");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    for dimensions in [
        vec![u32::MAX, 2],
        vec![1 << 16, 1 << 16],
        vec![1 << 31, 1 << 31, 1 << 31, 1 << 31],
    ] {
        let mut prepare = add_model(1);
        for index in [0, 1, 3] {
            prepare.model.main.operands[index].dimensions = dimensions.clone();
        }
        let refused = client.prepare(prepare).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::InvalidArgument, "T18: {refused}");
    }
    // Small inputs, 1 GiB of output: more than the worker may have.
    let mut prepare = add_model(1);
    let operands = &mut prepare.model.main.operands;
    operands[0].dimensions = vec![1 << 14, 1];
    operands[1].dimensions = vec![1, 1 << 14];
    operands[3].dimensions = vec![1 << 14, 1 << 14];
    let model = client.prepare(prepare).unwrap();
    let (shared, _mapping) = shared_floats(&[0.0; 3 << 14]);
    let memory = client.register(&shared);
    let request = request_in_one_memory(memory, 2, 1, 4 << 14);
    let status = execute(&mut client, model, request).status();
    assert_eq!(status, ErrorStatus::ResourceExhaustedPersistent, "T18");
    let small = client.prepare(add_model(1)).unwrap();
    let request = request_in_one_memory(memory, 2, 1, 4);
    assert_eq!(execute(&mut client, small, request).outcome, Ok(()));
    neighbour.expect_served();
}

/// Sends a call of any number, with bytes behind it that mean nothing and a descriptor, and returns the text
/// of its failure.
fn refusal_of_call(client: &mut RawClient, number: u32) -> String {
    const ID: u64 = 1 << 40;
    let mut packet = vec![0];
    packet.extend_from_slice(&ID.to_le_bytes());
    packet.extend_from_slice(&number.to_le_bytes());
    packet.extend_from_slice(&[0xFF; 100]);
    let beside = eventfd::create().unwrap();
    client
        .connection
        .send(&packet, &[beside.as_fd()], default_deadline())
        .unwrap();
    match client.receive().unwrap().0 {
        Message::Reply {
            id: ID,
            result: Err(failure),
        } if failure.status == ErrorStatus::GeneralFailure => failure.detail,
        other => panic!("{other:?}"),
    }
}

fn expect_status(client: &mut RawClient) {
    let status = client.call(Call::GetStatus, &[]);
    assert!(matches!(status, Ok(Reply::Status(_))), "{status:?}");
}

#[test]
fn clients_one_version_older_or_newer_are_served_and_unknown_calls_are_answered() {
    let daemon = start("");
    let directory = daemon.runtime_dir();
    let connect =
        |newest, oldest| RawClient::connect_as(Versions { newest, oldest }, &directory, "nnhal-reference");
    let Versions { newest, oldest } = VERSIONS;
    let mut older = connect(oldest, oldest).unwrap();
    let mut newer = connect(newest + 1, newest).unwrap();
    for _ in 0..2 {
        // What came with the newest version, and what no version has yet.
        assert_eq!(
            refusal_of_call(&mut older, 16),
            "there is no call number 16 in version 2 of the protocol"
        );
        assert_eq!(
            refusal_of_call(&mut newer, 18),
            "there is no call number 18 in version 3 of the protocol"
        );
        expect_status(&mut older);
        expect_status(&mut newer);
    }
    for client in [&mut older, &mut newer] {
        client.prepare(add_model(1)).unwrap();
    }
    let error = connect(newest + 2, newest + 1).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the driver speaks protocol 2 to 3, this client 4 to 5"),
        "{error}"
    );
}
