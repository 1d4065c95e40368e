//! Allocating device buffers: roles, dimensions, quota (cases A of the VTS inventory).

use std::os::fd::AsFd;

use nnhal::wire::{Call, Object, PreparedModelHandle};
use nnhal_hal::{BufferRole, ErrorStatus, Operand, OperandType};
use nnhal_os::shm::SharedMemory;
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model};

use crate::bench::{Bench, EXE, add_of, role, status_of};

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
