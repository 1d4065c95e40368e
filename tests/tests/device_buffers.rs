//! Device buffers: allocation, copies, and their use in executions (cases A, K and E of the VTS inventory).

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use nnhal::burst::{self, Pool, RequestHeader, ResultBody};
use nnhal::fmq::{ChannelEnd, ChannelSize, WaitSettings};
use nnhal::wire::{
    Allocated, Call, Execute, ExecuteFenced, ExecutionForm, ExecutionResult, FencedLimits, MemoryHandle,
    Object, PrepareModel, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_hal::{
    BufferDesc, BufferRole, ErrorStatus, Failure, MeasureTiming, Operand, OperandType, RequestPool,
};
use nnhal_os::shm::{Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model, request_in_one_memory, shared_floats,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

struct Bench {
    client: RawClient,
    _daemon: TestDaemon,
}

fn role(model_index: u32, io_index: u32) -> BufferRole {
    BufferRole {
        model_index,
        io_index,
        frequency: 1.0,
    }
}

impl Bench {
    fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let client = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
        Bench {
            client,
            _daemon: daemon,
        }
    }

    fn prepare(&mut self, model: PrepareModel) -> PreparedModelHandle {
        self.client.prepare(model).unwrap()
    }

    fn allocate(
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

    fn share(&mut self, values: &[f32]) -> (MemoryHandle, Mapping) {
        let (memory, mapping) = shared_floats(values);
        (self.client.register(&memory), mapping)
    }

    fn copy_from(&mut self, buffer: Allocated, values: &[f32], dimensions: &[u32]) -> ErrorStatus {
        let (memory, _mapping) = self.share(values);
        let call = Call::CopyFrom {
            buffer: buffer.buffer,
            memory,
            dimensions: dimensions.to_vec(),
        };
        status_of(self.client.call(call, &[]))
    }

    fn copy_to(&mut self, buffer: Allocated, count: usize) -> Result<Vec<f32>, ErrorStatus> {
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

    fn execute(&mut self, model: PreparedModelHandle, request: RequestWithMemories) -> ExecutionResult {
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

    fn status(&mut self, model: PreparedModelHandle, request: RequestWithMemories) -> ErrorStatus {
        self.execute(model, request).status()
    }
}

fn status_of(result: Result<Reply, Failure>) -> ErrorStatus {
    result.map_or_else(|failure| failure.status, |_| ErrorStatus::None)
}

fn floats(mapping: &Mapping, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    mapping.as_slice().read_at(0, &mut bytes).unwrap();
    bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}

/// A request for [`add_model`] whose arguments are these tokens, or the parts of a memory where there is
/// none.
fn request(memory: MemoryHandle, tokens: [Option<u32>; 3], elements: u32) -> RequestWithMemories {
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
fn add_of(operand: &Operand) -> PrepareModel {
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

/// N070 is about A04 to A07, N071 about A08 to A12, N072 about A13 and A14, N073 about A01.
#[test]
fn allocation_with_bad_roles_is_refused() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let other_size = bench.prepare(add_model(3));
    let quantized = |scale, zero_point| {
        add_of(&Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[2]).with_quantization(scale, zero_point))
    };
    let quant = bench.prepare(quantized(0.5, 3));
    let scaled = bench.prepare(quantized(0.25, 3));
    let shifted = bench.prepare(quantized(0.5, 4));
    let flat = bench.prepare(add_of(&Operand::new(OperandType::TENSOR_FLOAT32, &[2, 1])));
    let unknown = nnhal::wire::Handle {
        index: 99,
        generation: 0,
    }
    .into();
    let with_frequency = |frequency| BufferRole {
        frequency,
        ..role(0, 0)
    };
    type Case<'a> = (
        &'a str,
        Vec<PreparedModelHandle>,
        Vec<BufferRole>,
        Vec<BufferRole>,
        Vec<u32>,
    );
    let cases: Vec<Case<'_>> = vec![
        ("A01", vec![model], vec![], vec![], vec![]),
        ("A02", vec![], vec![role(0, 0)], vec![], vec![]),
        ("A03", vec![unknown], vec![role(0, 0)], vec![], vec![]),
        ("A04 input", vec![model], vec![role(1, 0)], vec![], vec![]),
        ("A04 output", vec![model], vec![], vec![role(1, 0)], vec![]),
        ("A05 input", vec![model], vec![role(0, 2)], vec![], vec![]),
        ("A05 output", vec![model], vec![], vec![role(0, 1)], vec![]),
        (
            "A06 above",
            vec![model],
            vec![with_frequency(10.0)],
            vec![],
            vec![],
        ),
        ("A06 zero", vec![model], vec![with_frequency(0.0)], vec![], vec![]),
        (
            "A06 below",
            vec![model],
            vec![with_frequency(-0.5)],
            vec![],
            vec![],
        ),
        (
            "A06 none",
            vec![model],
            vec![with_frequency(f32::NAN)],
            vec![],
            vec![],
        ),
        (
            "A07 list",
            vec![model],
            vec![role(0, 0), role(0, 0)],
            vec![],
            vec![],
        ),
        (
            "A07 indexes",
            vec![model, model],
            vec![role(0, 0), role(1, 0)],
            vec![],
            vec![],
        ),
        (
            "A07 outputs",
            vec![model, model],
            vec![],
            vec![role(0, 0), role(1, 0)],
            vec![],
        ),
        (
            "A08",
            vec![model, quant],
            vec![role(0, 0), role(1, 0)],
            vec![],
            vec![],
        ),
        (
            "A09",
            vec![quant, scaled],
            vec![role(0, 0), role(1, 0)],
            vec![],
            vec![],
        ),
        (
            "A10",
            vec![quant, shifted],
            vec![role(0, 0)],
            vec![role(1, 0)],
            vec![],
        ),
        (
            "A11",
            vec![model, flat],
            vec![role(0, 0), role(1, 0)],
            vec![],
            vec![],
        ),
        (
            "A12",
            vec![model, other_size],
            vec![role(0, 0), role(1, 0)],
            vec![],
            vec![],
        ),
        ("A13", vec![model], vec![role(0, 0)], vec![], vec![2, 1]),
        ("A14", vec![model], vec![role(0, 0)], vec![], vec![3]),
    ];
    for (name, models, inputs, outputs, dimensions) in cases {
        let refused = bench
            .allocate(&models, &inputs, &outputs, &dimensions)
            .unwrap_err();
        assert_eq!(refused.status, ErrorStatus::InvalidArgument, "{name}: {refused}");
    }
    let good = bench
        .allocate(
            &[model, other_size],
            &[role(0, 0), role(0, 1)],
            &[role(0, 0)],
            &[2],
        )
        .unwrap();
    let next = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    assert!(good.token > 0 && next.token > 0 && good.token != next.token);
}

/// N072 is about the same.
#[test]
fn scalar_roles_take_no_dimensions() {
    let mut bench = Bench::new();
    let mut prepare = add_model(2);
    let main = &mut prepare.model.main;
    main.operands[2].lifetime = nnhal_hal::OperandLifeTime::SubgraphInput;
    main.operands[2].location = nnhal_hal::DataLocation::default();
    main.input_indexes = vec![0, 1, 2];
    let model = bench.prepare(prepare);
    let refused = bench.allocate(&[model], &[role(0, 2)], &[], &[1]).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::InvalidArgument, "A15: {refused}");
    bench.allocate(&[model], &[role(0, 2)], &[], &[]).unwrap();
}

#[test]
fn same_buffer_is_not_two_outputs() {
    let mut bench = Bench::new();
    let mut prepare = add_model(2);
    let main = &mut prepare.model.main;
    let mut second = main.operands[3].clone();
    second.number_of_consumers = 0;
    main.operands.push(second);
    let mut operation = main.operations[0].clone();
    operation.outputs = vec![4];
    main.operations.push(operation);
    main.output_indexes = vec![3, 4];
    main.operands[..3]
        .iter_mut()
        .for_each(|operand| operand.number_of_consumers = 2);
    let model = bench.prepare(prepare);
    let buffer = bench
        .allocate(&[model], &[], &[role(0, 0), role(0, 1)], &[])
        .unwrap();
    let (memory, _mapping) = bench.share(&[0.0; 8]);
    let mut built = request_in_one_memory(memory, 2, 2, 8);
    built.request.pools.push(RequestPool::Token(buffer.token));
    for output in &mut built.request.outputs {
        output.location = nnhal_hal::DataLocation {
            pool_index: 1,
            offset: 0,
            length: 0,
        };
    }
    assert_eq!(bench.status(model, built), ErrorStatus::InvalidArgument, "E07");
}

/// N074 is about the same.
#[test]
fn copies_check_sizes_dimensions_and_state() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(4));
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    assert_eq!(bench.copy_to(buffer, 4), Err(ErrorStatus::GeneralFailure), "K05");
    for (values, dimensions, expected) in [
        (&[1.0; 2][..], &[][..], ErrorStatus::InvalidArgument),
        (&[1.0; 8], &[], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[4, 1], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[3], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[0], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[4], ErrorStatus::None),
        (&[1.0, 2.0, 3.0, 4.0], &[], ErrorStatus::None),
    ] {
        assert_eq!(
            bench.copy_from(buffer, values, dimensions),
            expected,
            "K01, K03: {dimensions:?}"
        );
    }
    assert_eq!(bench.copy_to(buffer, 2), Err(ErrorStatus::InvalidArgument), "K06");
    assert_eq!(bench.copy_to(buffer, 8), Err(ErrorStatus::InvalidArgument), "K06");
    assert_eq!(bench.copy_to(buffer, 4), Ok(vec![1.0, 2.0, 3.0, 4.0]), "K06");
    assert_eq!(bench.copy_from(buffer, &[1.0], &[]), ErrorStatus::InvalidArgument);
    assert_eq!(
        bench.copy_to(buffer, 4),
        Err(ErrorStatus::GeneralFailure),
        "a failed copy leaves nothing"
    );
}

#[test]
fn buffer_of_unknown_dimensions_takes_those_of_the_copy() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_of(&Operand::new(OperandType::TENSOR_FLOAT32, &[0, 2])));
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[]),
        ErrorStatus::InvalidArgument,
        "K04"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 2], &[2, 2]),
        ErrorStatus::InvalidArgument,
        "K02"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 8], &[2, 2]),
        ErrorStatus::InvalidArgument,
        "K02"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[2, 3]),
        ErrorStatus::InvalidArgument,
        "K04"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[2, 2]),
        ErrorStatus::None,
        "K02"
    );
    assert_eq!(bench.copy_to(buffer, 8), Err(ErrorStatus::InvalidArgument), "K07");
    assert_eq!(bench.copy_to(buffer, 4), Ok(vec![1.0; 4]), "K07");
}

/// N043 is about the same.
#[test]
fn tokens_are_refused_for_what_they_were_not_allocated_for() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let twin = bench.prepare(add_model(2));
    let (memory, _mapping) = bench.share(&[0.0; 6]);
    let input = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap().token;
    let output = bench.allocate(&[model], &[], &[role(0, 0)], &[]).unwrap().token;
    for (name, tokens) in [
        ("E01 zero", [Some(0), None, None]),
        ("E01 zero output", [None, None, Some(0)]),
        ("E01 unknown", [Some(100), None, None]),
        ("E01 unknown output", [None, None, Some(100)]),
        ("E03", [None, Some(input), None]),
        ("E04 output", [None, None, Some(input)]),
        ("E04 input", [Some(output), None, None]),
    ] {
        let status = bench.status(model, request(memory, tokens, 2));
        assert_eq!(status, ErrorStatus::InvalidArgument, "{name}");
    }
    let status = bench.status(twin, request(memory, [Some(input), None, None], 2));
    assert_eq!(status, ErrorStatus::InvalidArgument, "E02");
    let mut misplaced = request(memory, [Some(input), None, None], 2);
    misplaced.request.inputs[0].location.length = 8;
    assert_eq!(bench.status(model, misplaced), ErrorStatus::InvalidArgument);
}

#[test]
fn same_buffer_may_be_several_inputs_but_no_output_beside() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let (memory, mapping) = bench.share(&[0.0; 6]);
    let both = bench
        .allocate(&[model], &[role(0, 0), role(0, 1)], &[role(0, 0)], &[])
        .unwrap();
    assert_eq!(bench.copy_from(both, &[3.0, 4.0], &[]), ErrorStatus::None);
    let token = Some(both.token);
    assert_eq!(
        bench.status(model, request(memory, [token, None, token], 2)),
        ErrorStatus::InvalidArgument,
        "E06"
    );
    assert_eq!(
        bench.status(model, request(memory, [token, token, None], 2)),
        ErrorStatus::None,
        "E08"
    );
    assert_eq!(floats(&mapping, 6)[4..], [6.0, 8.0]);
}

/// N043 is about the same.
#[test]
fn buffer_must_be_written_before_it_is_read_and_a_failure_unwrites_it() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let (memory, mapping) = bench.share(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let buffer = bench
        .allocate(&[model], &[role(0, 0)], &[role(0, 0)], &[])
        .unwrap();
    let token = Some(buffer.token);
    let read = || request(memory, [token, None, None], 2);
    let write = || request(memory, [None, None, token], 2);
    assert_eq!(bench.status(model, read()), ErrorStatus::GeneralFailure, "E05");
    assert_eq!(bench.status(model, write()), ErrorStatus::None, "E05");
    assert_eq!(bench.copy_to(buffer, 2), Ok(vec![11.0, 22.0]));
    assert_eq!(bench.status(model, read()), ErrorStatus::None, "E05");
    assert_eq!(floats(&mapping, 6)[4..], [21.0, 42.0]);

    let late = Execute {
        prepared_model: model,
        request: write(),
        form: ExecutionForm::Synchronous,
        measure: MeasureTiming::No,
        deadline_ns: Some(1),
        loop_timeout_ns: None,
    };
    let Ok(Reply::Executed(result)) = bench.client.call(Call::Execute(late), &[]) else {
        panic!("no result")
    };
    assert_eq!(result.status(), ErrorStatus::MissedDeadlinePersistent);
    assert_eq!(bench.status(model, read()), ErrorStatus::GeneralFailure);
}

/// N043 is about the same.
#[test]
fn dimensions_must_agree_with_the_buffer() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_of(&Operand::new(OperandType::TENSOR_FLOAT32, &[0])));
    let (memory, _mapping) = bench.share(&[1.0; 12]);
    let buffer = bench
        .allocate(&[model], &[role(0, 0)], &[role(0, 0)], &[2])
        .unwrap();
    assert_eq!(bench.copy_from(buffer, &[1.0; 2], &[]), ErrorStatus::None);
    let token = Some(buffer.token);
    let sized = |tokens, dimensions: [Option<u32>; 3]| {
        let mut built = request(memory, tokens, 4);
        let arguments = built.request.inputs.iter_mut().chain(&mut built.request.outputs);
        for (argument, dimension) in arguments.zip(dimensions) {
            argument.dimensions = dimension.into_iter().collect();
        }
        built
    };
    let status = bench.status(model, sized([token, None, None], [Some(4), Some(4), None]));
    assert_eq!(status, ErrorStatus::InvalidArgument, "E09 input");
    let status = bench.status(model, sized([None, None, token], [Some(4), Some(4), Some(4)]));
    assert_eq!(status, ErrorStatus::InvalidArgument, "E09 output");
    let status = bench.status(model, sized([None, None, token], [Some(4), Some(4), None]));
    assert_eq!(status, ErrorStatus::GeneralFailure, "E10");
}

#[test]
fn buffer_outlives_its_release_in_nothing_but_running_executions() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let (memory, _mapping) = bench.share(&[0.0; 6]);
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    let release = Call::Release {
        object: Object::Buffer(buffer.buffer),
    };
    assert_eq!(bench.client.call(release.clone(), &[]), Ok(Reply::Done));
    assert_eq!(
        status_of(bench.client.call(release, &[])),
        ErrorStatus::InvalidArgument
    );
    let status = bench.status(model, request(memory, [Some(buffer.token), None, None], 2));
    assert_eq!(status, ErrorStatus::InvalidArgument);
}

#[test]
fn three_models_pass_buffers_on_by_fences_alone() {
    let mut bench = Bench::new();
    let models: Vec<_> = (0..3).map(|_| bench.prepare(add_model(2))).collect();
    let (memory, mapping) = bench.share(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let first = bench
        .allocate(&models[..2], &[role(1, 0)], &[role(0, 0)], &[])
        .unwrap()
        .token;
    let second = bench
        .allocate(&models[1..], &[role(1, 0)], &[role(0, 0)], &[])
        .unwrap()
        .token;
    let stages = [
        [None, None, Some(first)],
        [Some(first), None, Some(second)],
        [Some(second), None, None],
    ];
    let mut fence: Option<std::os::fd::OwnedFd> = None;
    for (&prepared_model, tokens) in models.iter().zip(stages) {
        let wait_for = fence
            .iter()
            .map(|_| nnhal::wire::FenceArgument::Attached { fds: 1 })
            .collect();
        let call = Call::ExecuteFenced(ExecuteFenced {
            prepared_model,
            request: request(memory, tokens, 2),
            wait_for,
            measure: MeasureTiming::No,
            limits: FencedLimits::default(),
        });
        let fds: Vec<_> = fence.iter().map(AsFd::as_fd).collect();
        bench.client.send(call, &fds).unwrap();
        let (message, mut fds) = bench.client.receive().unwrap();
        assert!(
            matches!(
                &message,
                nnhal::wire::Message::Reply {
                    result: Ok(Reply::Fenced(_)),
                    ..
                }
            ),
            "{message:?}"
        );
        fence = fds.pop();
    }
    let fence = nnhal::fence::Fence::from_handle(fence).unwrap();
    assert_eq!(
        fence.wait(nnhal_os::time::Deadline::NONE).unwrap(),
        nnhal::fence::FenceState::Signalled
    );
    assert_eq!(floats(&mapping, 6)[4..], [31.0, 62.0]);
}

#[test]
fn bursts_read_and_write_device_buffers() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(2));
    let (memory, mapping) = bench.share(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let buffer = bench
        .allocate(&[model], &[role(0, 0)], &[role(0, 0)], &[])
        .unwrap();
    let mut burst = Burst::configure(&mut bench, model);
    let write = request(memory, [None, None, Some(buffer.token)], 2);
    let read = request(memory, [Some(buffer.token), None, None], 2);
    assert_eq!(burst.general(&read), ErrorStatus::GeneralFailure, "E05");
    assert_eq!(burst.general(&write), ErrorStatus::None);
    assert_eq!(bench.copy_to(buffer, 2), Ok(vec![11.0, 22.0]));
    assert_eq!(burst.register(&read), ErrorStatus::None);
    for _ in 0..3 {
        assert_eq!(burst.fire(None), ErrorStatus::None);
        assert_eq!(floats(&mapping, 6)[4..], [21.0, 42.0]);
    }
    assert_eq!(burst.register(&write), ErrorStatus::None);
    assert_eq!(
        burst.fire(Some(NonZeroU64::MIN)),
        ErrorStatus::MissedDeadlinePersistent
    );
    assert_eq!(bench.copy_to(buffer, 2), Err(ErrorStatus::GeneralFailure));
    assert_eq!(burst.fire(None), ErrorStatus::None);
    let release = Call::Release {
        object: Object::Buffer(buffer.buffer),
    };
    bench.client.call(release, &[]).unwrap();
    assert_eq!(burst.fire(None), ErrorStatus::InvalidArgument, "freed");
    assert_eq!(burst.general(&write), ErrorStatus::InvalidArgument, "E01");
}

/// A burst, spoken by hand.
struct Burst {
    end: ChannelEnd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Burst {
    fn configure(bench: &mut Bench, model: PreparedModelHandle) -> Burst {
        let size = ChannelSize {
            outgoing: 64,
            incoming: 64,
        };
        let (end, memory) = ChannelEnd::create(size, WaitSettings::Sleep).unwrap();
        let call = Call::ConfigureBurst {
            prepared_model: model,
            polling_window_ns: None,
        };
        let configured = bench.client.call(call, &[memory.as_fd()]);
        assert!(matches!(configured, Ok(Reply::Burst(_))), "{configured:?}");
        Burst {
            end,
            buffer: Vec::new(),
            sequence: 0,
        }
    }

    fn header(&mut self, deadline_ns: Option<NonZeroU64>) -> RequestHeader {
        self.sequence += 1;
        RequestHeader {
            sequence: self.sequence,
            measure: MeasureTiming::No,
            deadline_ns,
        }
    }

    fn general(&mut self, request: &RequestWithMemories) -> ErrorStatus {
        let header = self.header(None);
        burst::encode_general(&mut self.buffer, &header, &request.request, &pools(request), &[]);
        self.answer()
    }

    fn register(&mut self, request: &RequestWithMemories) -> ErrorStatus {
        let sequence = self.header(None).sequence;
        burst::encode_register(&mut self.buffer, sequence, 0, &request.request, &pools(request));
        self.answer()
    }

    fn fire(&mut self, deadline_ns: Option<NonZeroU64>) -> ErrorStatus {
        let header = self.header(deadline_ns);
        burst::encode_fire(&mut self.buffer, &header, 0, &[]);
        self.answer()
    }

    fn answer(&mut self) -> ErrorStatus {
        self.end.producer.send(&self.buffer).unwrap();
        let mut packet = self.end.consumer.new_packet();
        let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
        self.end.consumer.receive(&mut packet, deadline).unwrap();
        let mut body = ResultBody::default();
        let (header, _) = burst::decode_result(packet.bytes(), &mut body).unwrap();
        assert_eq!(header.sequence, self.sequence);
        header.status
    }
}

fn pools(request: &RequestWithMemories) -> Vec<Pool> {
    let mut memories = request.memories.iter();
    let pool = |pool: &RequestPool| match *pool {
        RequestPool::Memory { .. } => Pool::Memory(*memories.next().unwrap()),
        RequestPool::Token(token) => Pool::Buffer(token),
    };
    request.request.pools.iter().map(pool).collect()
}

#[test]
fn quota_of_device_buffers_holds() {
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[limits]\nbuffer_bytes = 20\n"),
    );
    let client = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    let mut bench = Bench {
        client,
        _daemon: daemon,
    };
    let model = bench.prepare(add_model(3));
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    let refused = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::ResourceExhaustedTransient);
    bench
        .client
        .call(
            Call::Release {
                object: Object::Buffer(buffer.buffer),
            },
            &[],
        )
        .unwrap();
    bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
}

#[test]
fn memory_that_cannot_be_read_is_refused() {
    let mut bench = Bench::new();
    let memory = SharedMemory::create(16).unwrap();
    let description = nnhal::wire::MemoryDescription {
        name: "ashmem".into(),
        fds: 1,
        size: 17,
        offset: 0,
        protection: 3,
    };
    let refused = bench
        .client
        .call(Call::RegisterMemory(description), &[memory.as_fd()]);
    assert_eq!(status_of(refused), ErrorStatus::InvalidArgument);
}
