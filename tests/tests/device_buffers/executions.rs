//! Device buffers as arguments of executions (cases E of the VTS inventory).

use std::os::fd::AsFd;

use nnhal::wire::{Call, Execute, ExecuteFenced, ExecutionForm, FencedLimits, Object, Reply};
use nnhal_hal::{ErrorStatus, MeasureTiming, Operand, OperandType, RequestPool};
use nnhal_tests::{add_model, request_in_one_memory};

use crate::bench::{Bench, add_of, floats, request, role, status_of};

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
