//! Where arguments may be, and what is wrong with them.

use std::time::Duration;

use nnhal_client::runtime::{
    Compilation, CompilationOptions, Finished, OwnValues, ResultCode, RunInput, RunOutput, RuntimeResult,
};
use nnhal_client::{Deadline, ExecuteOptions, Memory, ModelBuilder, OperationType, TensorType};

use crate::common::{FAST, REFERENCE, bytes, chain, floats, in_turn, on, start, sum};

#[test]
fn arguments_in_memories_and_in_bytes_mix() {
    let (_daemon, runtime) = start();
    let cpu = on(&runtime, &["nnapi-reference"]);
    for options in [
        on(&runtime, &[FAST]),
        cpu,
        CompilationOptions::new().filter(in_turn(1)),
    ] {
        let compilation = runtime.compile(&chain(3, true), &options).unwrap();
        let memory = Memory::new(64).unwrap();
        memory.write(16, &[1.0_f32; 4]).unwrap();
        let (memory, dimensions) = (&memory, &[][..]);
        let mut first = [0; 16];
        compilation
            .execute(
                &[RunInput::Memory {
                    memory,
                    offset: 16,
                    length: 16,
                    dimensions,
                }],
                &mut [
                    RunOutput::bytes(&mut first),
                    RunOutput::Memory {
                        memory,
                        offset: 32,
                        length: 16,
                        dimensions,
                    },
                ],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert_eq!(floats(&first), [2.0; 4]);
        assert_eq!(memory.read::<f32>(32, 4).unwrap(), [1.0 + sum(3); 4]);
    }
}

/// Adds 1 to as many floats as there are.
fn open_model() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let x = model.input(TensorType::float32(&[0]));
    let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let y = model.output(TensorType::float32(&[0]));
    model.operation(OperationType::ADD, &[x, one, none], &[y]);
    model.finish().unwrap()
}

#[test]
fn open_dimensions_are_given_with_the_input_and_told_of_the_output() {
    let (_daemon, runtime) = start();
    for name in [FAST, "nnapi-reference"] {
        let compilation = runtime.compile(&open_model(), &on(&runtime, &[name])).unwrap();
        let mut burst = compilation.burst().unwrap();
        for (count, room) in [(2_u32, 8), (3, 12), (3, 16)] {
            let input = bytes(&vec![1.0; count as usize]);
            let mut output = vec![0; room];
            let inputs = [RunInput::Bytes {
                bytes: &input,
                dimensions: &[count],
            }];
            let options = ExecuteOptions::new();
            let finished = compilation
                .execute(&inputs, &mut [RunOutput::bytes(&mut output)], &options)
                .unwrap();
            assert_eq!(finished.output_shapes[0].dimensions, [count]);
            assert_eq!(floats(&output)[..count as usize], vec![2.0; count as usize]);
            let mut again = vec![0; room];
            let fired = burst
                .execute(&inputs, &mut [RunOutput::bytes(&mut again)], &options)
                .unwrap();
            assert_eq!((fired.output_shapes, again), (finished.output_shapes, output));
            let mut short = vec![0; 4];
            for error in [
                compilation
                    .execute(&inputs, &mut [RunOutput::bytes(&mut short)], &options)
                    .unwrap_err(),
                burst
                    .execute(&inputs, &mut [RunOutput::bytes(&mut short)], &options)
                    .unwrap_err(),
            ] {
                assert_eq!(error.code(), ResultCode::OutputInsufficientSize);
                assert_eq!(error.output_shapes()[0].dimensions, [count]);
                assert!(!error.output_shapes()[0].is_sufficient);
            }
        }
    }
}

#[test]
fn dimensions_given_with_the_output_are_those_that_a_burst_reports() {
    let (_daemon, runtime) = start();
    let options = ExecuteOptions::new();
    let input = bytes(&[1.0; 3]);
    let memory = Memory::new(64).unwrap();
    memory.write(0, &[1.0_f32; 3]).unwrap();
    let inputs = [
        RunInput::Bytes {
            bytes: &input,
            dimensions: &[3],
        },
        RunInput::Memory {
            memory: &memory,
            offset: 0,
            length: 12,
            dimensions: &[3],
        },
    ];
    for name in [None, Some(FAST), Some(REFERENCE), Some("nnapi-reference")] {
        let devices = match name {
            Some(name) => on(&runtime, &[name]),
            None => CompilationOptions::new(),
        };
        let compilation = runtime.compile(&open_model(), &devices).unwrap();
        let mut burst = compilation.burst().unwrap();
        for input in inputs {
            for _ in 0..3 {
                let mut output = vec![0; 12];
                let room = RunOutput::Bytes {
                    bytes: &mut output,
                    dimensions: &[3],
                };
                let finished = burst.execute(&[input], &mut [room], &options).unwrap();
                assert_eq!(finished.output_shapes[0].dimensions, [3], "{name:?}");
                assert_eq!(floats(&output), [2.0; 3], "{name:?}");
            }
            let mut finished = Finished::default();
            for _ in 0..3 {
                memory.write(16, &[0.0_f32; 3]).unwrap();
                let room = RunOutput::Memory {
                    memory: &memory,
                    offset: 16,
                    length: 12,
                    dimensions: &[3],
                };
                finished = burst.execute(&[input], &mut [room], &options).unwrap();
                assert_eq!(finished.output_shapes[0].dimensions, [3], "{name:?}");
                assert_eq!(memory.read::<f32>(16, 3).unwrap(), [2.0; 3], "{name:?}");
            }
            let is_shared = matches!(input, RunInput::Memory { .. });
            let is_by_driver = name != Some("nnapi-reference");
            let room = RunOutput::Memory {
                memory: &memory,
                offset: 16,
                length: 12,
                dimensions: &[3],
            };
            let registered = burst.register(&[input], &mut [room]).unwrap();
            assert_eq!(registered.is_some(), is_shared && is_by_driver, "{name:?}");
            let Some(registered) = registered else { continue };
            for mut finished in [Finished::default(), finished] {
                memory.write(16, &[0.0_f32; 3]).unwrap();
                burst
                    .fire(&registered, &mut (), &options, &mut finished)
                    .unwrap()
                    .unwrap();
                assert_eq!(finished.output_shapes[0].dimensions, [3], "{name:?}");
                assert_eq!(memory.read::<f32>(16, 3).unwrap(), [2.0; 3], "{name:?}");
            }
        }
    }
}

/// One input and one output.
struct Values {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl OwnValues for Values {
    fn input(&self, _: usize) -> &[u8] {
        &self.input
    }

    fn output(&mut self, _: usize) -> &mut [u8] {
        &mut self.output
    }
}

#[test]
fn registered_executions_are_fired_whatever_is_executed_between() {
    let (_daemon, runtime) = start();
    let compilation = runtime.compile(&chain(1, false), &on(&runtime, &[FAST])).unwrap();
    let mut burst = compilation.burst().unwrap();
    let options = ExecuteOptions::new();
    let memory = Memory::new(32).unwrap();
    let (memory, dimensions) = (&memory, &[][..]);
    let shared = |offset| RunInput::Memory {
        memory,
        offset,
        length: 16,
        dimensions,
    };
    let room = || RunOutput::Memory {
        memory,
        offset: 16,
        length: 16,
        dimensions,
    };
    let own = bytes(&[5.0; 4]);
    let mut finished = Finished::default();
    let in_memory = burst.register(&[shared(0)], &mut [room()]).unwrap().unwrap();
    // It does not matter what else is.
    let _other = burst.register(&[shared(16)], &mut [room()]).unwrap().unwrap();
    for round in 0..3_u8 {
        let value = f32::from(round);
        memory.write(0, &[value; 4]).unwrap();
        burst
            .fire(&in_memory, &mut (), &options, &mut finished)
            .unwrap()
            .unwrap();
        assert_eq!(memory.read::<f32>(16, 4).unwrap(), [value + sum(1); 4]);
        let mut output = [0; 16];
        let inputs = [RunInput::bytes(&own)];
        burst
            .execute(&inputs, &mut [RunOutput::bytes(&mut output)], &options)
            .unwrap();
        assert_eq!(floats(&output), [5.0 + sum(1); 4]);
        let of_values = burst.register(&inputs, &mut [RunOutput::bytes(&mut output)]);
        let of_values = of_values.unwrap().unwrap();
        // Dimensions that the model has anyway change nothing.
        let room = RunOutput::Bytes {
            bytes: &mut output,
            dimensions: &[4],
        };
        assert!(burst.register(&inputs, &mut [room]).unwrap().is_some());
        let mut values = Values {
            input: bytes(&[value; 4]),
            output: vec![0; 16],
        };
        burst
            .fire(&of_values, &mut values, &options, &mut finished)
            .unwrap()
            .unwrap();
        assert_eq!(floats(&values.output), [value + sum(1); 4]);
        // What has a limit for loops goes by no ring.
        let looping = options.loop_timeout(Duration::from_secs(1));
        for registered in [&in_memory, &of_values] {
            assert!(
                burst
                    .fire(registered, &mut values, &looping, &mut finished)
                    .is_none()
            );
        }
        burst
            .execute(&inputs, &mut [RunOutput::bytes(&mut output)], &looping)
            .unwrap();
        assert_eq!(floats(&output), [5.0 + sum(1); 4]);
        values.input.truncate(12);
        let error = burst.fire(&of_values, &mut values, &options, &mut finished);
        let error = error.unwrap().unwrap_err().to_string();
        assert!(
            error.contains("input 0 has 12 bytes") && error.contains("have 16 there"),
            "{error}"
        );
    }
    // Another burst knows nothing of them.
    let mut other = compilation.burst().unwrap();
    assert!(other.fire(&in_memory, &mut (), &options, &mut finished).is_none());
    other.execute(&[shared(0)], &mut [room()], &options).unwrap();
    assert!(other.fire(&in_memory, &mut (), &options, &mut finished).is_none());
}

#[test]
fn counts_ranges_and_deadlines_are_checked_before_anything_runs() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(1, false), &CompilationOptions::new())
        .unwrap();
    let memory = Memory::new(16).unwrap();
    let code = |inputs: &[RunInput<'_>], options: &ExecuteOptions| {
        let mut output = [0; 16];
        let outputs = &mut [RunOutput::bytes(&mut output)];
        compilation
            .execute(inputs, outputs, options)
            .map_err(|error| error.code())
    };
    let options = ExecuteOptions::new();
    assert_eq!(code(&[], &options), Err(ResultCode::BadData));
    for (offset, length) in [(0, 0), (8, 16), (u64::MAX, 16)] {
        let input = RunInput::Memory {
            memory: &memory,
            offset,
            length,
            dimensions: &[],
        };
        assert_eq!(code(&[input], &options), Err(ResultCode::BadData));
    }
    assert_eq!(code(&[RunInput::Omitted], &options), Err(ResultCode::OpFailed));
    let in_memory = RunOutput::Memory {
        memory: &memory,
        offset: 0,
        length: 16,
        dimensions: &[],
    };
    let error = compilation.execute(&[RunInput::Omitted], &mut [in_memory], &options);
    assert_eq!(error.unwrap_err().code(), ResultCode::OpFailed);
    let late = options.deadline(Deadline::at(nnhal_os::time::TimePoint::EPOCH));
    assert_eq!(
        code(&[RunInput::bytes(&[0; 16])], &late),
        Err(ResultCode::MissedDeadlinePersistent)
    );
    assert_eq!(code(&[], &late), Err(ResultCode::BadData));
}

/// Executes three times, so that messages and rings carry it, and three times by a burst.
fn all_ways(
    compilation: &Compilation,
    inputs: &[RunInput<'_>],
    mut look: impl FnMut(RuntimeResult<Finished>, &[u8; 32]),
) {
    let mut burst = compilation.burst().unwrap();
    for round in 0..6 {
        let (mut room, options) = ([9; 32], ExecuteOptions::new());
        let outputs = &mut [RunOutput::bytes(&mut room)];
        let result = match round {
            0..3 => compilation.execute(inputs, outputs, &options),
            _ => burst.execute(inputs, outputs, &options),
        };
        look(result, &room);
    }
}

#[test]
fn value_without_bytes_is_refused_whichever_way_it_goes() {
    let (_daemon, runtime) = start();
    let options = on(&runtime, &[FAST]);
    let fixed = runtime.compile(&chain(1, false), &options).unwrap();
    let open = runtime.compile(&open_model(), &options).unwrap();
    let no_bytes = |dimensions| RunInput::Bytes {
        bytes: &[],
        dimensions,
    };
    for (compilation, input) in [
        (&fixed, no_bytes(&[])),
        (&fixed, no_bytes(&[4])),
        (&open, no_bytes(&[2])),
        (&open, no_bytes(&[1; 9])),
    ] {
        all_ways(compilation, &[input], |result, room| {
            assert_eq!(result.map_err(|error| error.code()), Err(ResultCode::BadData));
            assert_eq!(room, &[9; 32]);
        });
    }
}

#[test]
fn nothing_is_written_behind_a_value_that_is_smaller_than_its_room() {
    let (_daemon, runtime) = start();
    let compilation = runtime.compile(&chain(1, false), &on(&runtime, &[FAST])).unwrap();
    all_ways(
        &compilation,
        &[RunInput::bytes(&bytes(&[1.0; 4]))],
        |result, room| {
            result.unwrap();
            assert_eq!(floats(&room[..16]), [2.0; 4]);
            assert_eq!(room[16..], [9; 16]);
        },
    );
}
