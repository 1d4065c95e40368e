//! Random models in random parts: they give what the whole gives, bit for bit, for the kernels are the same.

use std::sync::Arc;

use nnhal_client::runtime::{
    CPU_DEVICE, Compilation, CompilationOptions, Finished, OperationFilter, OutputBuffer, OwnValues,
    ResultCode, RunInput, RunOutput, Runtime, RuntimeResult,
};
use nnhal_client::{Deadline, ExecuteOptions, Model, OutputShape};
use nnhal_conformance::generator::choices::Choices;
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_hal::{DeviceInfo, Operation};

use crate::common::{REFERENCE, on, start};

/// Models that are tried.
const SEEDS: u64 = 500;

/// Spreads the bits of a number.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Gives each operation to the driver or the CPU of this process by a throw of `seed`; control flow may
/// always run on the CPU if `is_lenient`.
fn thrown(seed: u64, is_lenient: bool) -> OperationFilter {
    Arc::new(move |device: &DeviceInfo, index: usize, operation: &Operation| {
        let is_for_driver = mixed(seed.wrapping_mul(1 << 20).wrapping_add(index as u64)) & 1 == 0;
        match device.name.as_str() {
            REFERENCE => is_for_driver,
            CPU_DEVICE => !is_for_driver || (is_lenient && operation.operation_type.is_control_flow()),
            _ => false,
        }
    })
}

/// What an execution gave: the shapes and bytes of the outputs, or the code of the failure.
type Outcome = Result<(Vec<OutputShape>, Vec<Vec<u8>>), ResultCode>;

fn inputs(generated: &Generated) -> Vec<RunInput<'_>> {
    let arguments = generated.request.inputs.iter();
    arguments
        .map(|argument| {
            let start = argument.location.offset as usize;
            match argument.has_no_value {
                true => RunInput::Omitted,
                false => RunInput::Bytes {
                    bytes: &generated.inputs[start..start + argument.location.length as usize],
                    dimensions: &argument.dimensions,
                },
            }
        })
        .collect()
}

fn rooms(generated: &Generated) -> Vec<OutputBuffer> {
    let arguments = generated.request.outputs.iter();
    arguments
        .map(|argument| OutputBuffer::Bytes {
            length: argument.location.length as usize,
            dimensions: argument.dimensions.clone(),
        })
        .collect()
}

fn outcome(result: RuntimeResult<Finished>, values: Vec<Vec<u8>>) -> Outcome {
    let finished = result.map_err(|error| error.code())?;
    assert_eq!(finished.fallback, None);
    Ok((finished.output_shapes.to_vec(), values))
}

fn run_now(
    generated: &Generated,
    mut execute: impl FnMut(&[RunInput<'_>], &mut [RunOutput<'_>]) -> RuntimeResult<Finished>,
) -> Outcome {
    let arguments = generated.request.outputs.iter();
    let mut values: Vec<Vec<u8>> = arguments
        .map(|argument| vec![0; argument.location.length as usize])
        .collect();
    let mut outputs: Vec<RunOutput<'_>> = values
        .iter_mut()
        .zip(&generated.request.outputs)
        .map(|(bytes, argument)| RunOutput::Bytes {
            bytes,
            dimensions: &argument.dimensions,
        })
        .collect();
    let result = execute(&inputs(generated), &mut outputs);
    outcome(result, values)
}

fn run_later(compilation: &Compilation, generated: &Generated) -> Outcome {
    let rooms = rooms(generated);
    let event = compilation
        .start(&inputs(generated), &rooms, &ExecuteOptions::new())
        .map_err(|error| error.code())?;
    let result = event.wait(Deadline::NONE);
    let mut values = Vec::new();
    for (index, room) in rooms.iter().enumerate() {
        let OutputBuffer::Bytes { length, .. } = room else {
            continue;
        };
        let mut bytes = vec![0; *length];
        if result.is_ok() {
            event.output(index, &mut bytes).unwrap();
        }
        values.push(bytes);
    }
    outcome(result, values)
}

/// The arguments of a generated model, its outputs cleared.
struct Values<'a> {
    generated: &'a Generated,
    outputs: Vec<Vec<u8>>,
}

impl OwnValues for Values<'_> {
    fn input(&self, index: usize) -> &[u8] {
        let location = &self.generated.request.inputs[index].location;
        &self.generated.inputs[location.offset as usize..][..location.length as usize]
    }

    fn output(&mut self, index: usize) -> &mut [u8] {
        &mut self.outputs[index]
    }
}

/// Executes a model on one device by burst, and then twice as its arguments are registered there. `None` if
/// they cannot be.
fn run_known(compilation: &Compilation, generated: &Generated) -> Option<Outcome> {
    let options = ExecuteOptions::new();
    let mut burst = compilation.burst().unwrap();
    let mut registered = None;
    let _ = run_now(generated, |inputs, outputs| {
        let result = burst.execute(inputs, outputs, &options);
        if result.is_ok() {
            registered = burst.register(inputs, outputs).unwrap();
        }
        result
    });
    let registered = registered?;
    // It tells of nothing, and then of the run before.
    let mut finished = Finished::default();
    let mut again = || {
        let rooms = generated.request.outputs.iter();
        let mut values = Values {
            generated,
            outputs: rooms
                .map(|argument| vec![0; argument.location.length as usize])
                .collect(),
        };
        let result = burst
            .fire(&registered, &mut values, &options, &mut finished)
            .expect("it is registered");
        outcome(result.map(|()| finished.clone()), values.outputs)
    };
    let outcome = again();
    assert_eq!(again(), outcome);
    Some(outcome)
}

/// A model in parts, by a throw of `seed`, or none where the throw gives something to nobody.
fn divided(runtime: &Runtime, model: &Model, seed: u64) -> Option<Compilation> {
    [false, true].into_iter().find_map(|is_lenient| {
        let options = CompilationOptions::new().filter(thrown(seed, is_lenient));
        runtime.compile(model, &options).ok()
    })
}

#[test]
fn random_parts_give_the_results_of_the_whole() {
    let (_daemon, runtime) = start();
    let (mut models, mut parts, mut failures, mut known) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let Some(generated) = Recipe::default().generate(&mut Choices::from_seed(seed)) else {
            continue;
        };
        let pools = generated.model.pools.iter();
        let model = Model::with_pool_bytes((*generated.model.model).clone(), pools).unwrap();
        let whole = runtime.compile(&model, &on(&runtime, &[CPU_DEVICE])).unwrap();
        let options = ExecuteOptions::new();
        let expected = run_now(&generated, |inputs, outputs| {
            whole.execute(inputs, outputs, &options)
        });
        failures += usize::from(expected.is_err());
        // Some control flow runs in this process only.
        let on_driver = runtime.compile(&model, &on(&runtime, &[REFERENCE])).ok();
        if let Some(compilation) = &on_driver {
            let mut burst = compilation.burst().unwrap();
            for _ in 0..2 {
                let found = run_now(&generated, |inputs, outputs| {
                    burst.execute(inputs, outputs, &options)
                });
                assert!(
                    found == expected,
                    "seed {seed}, by burst: {found:?} instead of {expected:?}"
                );
            }
        }
        if let Some(found) = on_driver.and_then(|compilation| run_known(&compilation, &generated)) {
            known += 1;
            assert!(
                found == expected,
                "seed {seed}, by burst, known: {found:?} instead of {expected:?}"
            );
        }
        let Some(compilation) = divided(&runtime, &model, seed) else {
            continue;
        };
        let steps = compilation.explain().steps.len();
        if steps > 1 {
            models += 1;
            parts += steps;
        }
        let mut burst = compilation.burst().unwrap();
        for (how, found) in [
            (
                "at once",
                run_now(&generated, |inputs, outputs| {
                    compilation.execute(inputs, outputs, &options)
                }),
            ),
            (
                "by burst",
                run_now(&generated, |inputs, outputs| {
                    burst.execute(inputs, outputs, &options)
                }),
            ),
            (
                "by burst again",
                run_now(&generated, |inputs, outputs| {
                    burst.execute(inputs, outputs, &options)
                }),
            ),
            ("later", run_later(&compilation, &generated)),
        ] {
            assert!(
                found == expected,
                "seed {seed}, {how}: {found:?} instead of {expected:?}\n{}",
                compilation.explain()
            );
        }
    }
    println!("{models} models in {parts} parts, {known} known, {failures} executions that fail");
    assert!(
        models > SEEDS / 4 && parts > 2 * models as usize && known > SEEDS / 4,
        "{models} models in {parts} parts, {known} known"
    );
}
