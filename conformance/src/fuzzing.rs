//! Entry points for fuzzing: any bytes must be refused or handled, without a panic, a hang or memory out of
//! proportion. The continuous targets in `fuzz/` call them, and tests run them over the inputs that are kept
//! in the tree ([`seeds`]) and over mutated ones. Entry points to what a crate keeps to itself are in that
//! crate, in a module `fuzzing`, which is there for its tests and for cargo-fuzz alone.
//!
//! A model's bytes are the wire's encoding of [`ModelInput`], so that what a worker decodes from a hostile
//! client is what is fuzzed. Seeds are random models of the [`generator`](crate::generator).

pub mod device;
mod rings;
pub mod seeds;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst;
use nnhal::wire::{
    Call, Envelope, Execute, ExecutionForm, Handle, Message, RequestWithMemories, Wire, codec, handshake,
};
use nnhal_cpu::{Execution, Interrupt, Interrupted, KernelSet, Program, RunOptions};
use nnhal_hal::validate::{ArgumentPlan, ValidModel, ValidRequest};
use nnhal_hal::{ConstantPools, HalVersion, MeasureTiming, MemoryPool, Model, Request, RequestPool};

use crate::generator::choices::Choices;
use crate::generator::{Generated, Recipe};

pub use rings::rings;
pub use seeds::mutate;

/// Operations that an execution may run before it is cancelled: loops in loops multiply.
const MOST_OPERATIONS: u32 = 2000;

/// How long one loop may take.
const LOOP_TIMEOUT: Duration = Duration::from_millis(5);

/// Models that read more are only validated: fuzzing looks for wrong models, not for large ones.
const MOST_BYTES: usize = 1 << 20;

/// A model with a request and the bytes of both.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInput {
    /// The model.
    pub model: Model,
    /// The bytes of its pools.
    pub pools: Vec<Vec<u8>>,
    /// The request: pool 0 for inputs, others for outputs.
    pub request: Request,
    /// The bytes of the inputs' pool.
    pub inputs: Vec<u8>,
}

nnhal::wire_record! {
    ModelInput { model: Model, pools: Vec<Vec<u8>>, request: Request, inputs: Vec<u8> }
}

/// The model of an input, whose pools have the sizes that are there, as a worker puts them in.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<ModelInput> {
    let mut input = codec::decode::<ModelInput>(bytes).ok()?;
    input.model.pools = sizes(&input.pools);
    Some(input)
}

/// The input of a model, as a seed.
///
/// # Panics
/// If it is longer than a message may be.
#[must_use]
pub fn encode(input: &ModelInput) -> Vec<u8> {
    codec::encode(input).expect("a short model")
}

/// Larger models are no seeds: most of their bytes are values, and they take long.
const MOST_SEED_BYTES: usize = 32 * 1024;

/// Random models of NNAPI's operations as seeds.
#[must_use]
pub fn model_seeds(count: u64) -> Vec<Vec<u8>> {
    seeds_of(&Recipe::default(), count, |_| true)
}

/// Random models that have operations of the extension `org.nnhal.tflite`, as seeds.
#[must_use]
pub fn extension_seeds(count: u64) -> Vec<Vec<u8>> {
    seeds_of(&Recipe::with_extension(), count, |generated| {
        !generated.model.model.extension_name_to_prefix.is_empty()
    })
}

fn seeds_of(recipe: &Recipe, count: u64, is_wanted: fn(&Generated) -> bool) -> Vec<Vec<u8>> {
    let generated = (0..count).filter_map(|seed| recipe.generate(&mut Choices::from_seed(seed)));
    let encoded = generated.filter(is_wanted).filter_map(|generated| {
        let input = ModelInput {
            model: Model::clone(&generated.model.model),
            pools: Vec::clone(&generated.model.pools),
            request: generated.request,
            inputs: generated.inputs,
        };
        codec::encode(&input).ok()
    });
    encoded.filter(|bytes| bytes.len() <= MOST_SEED_BYTES).collect()
}

/// How far a model came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// Its bytes are no model.
    Bytes,
    /// It is not valid, or cannot be prepared.
    Validation,
    /// Its request is not valid, or asks for more than fuzzing runs.
    Request,
    /// An execution failed.
    Execution,
    /// The execution gave a result.
    Result,
}

/// The part of a valid model that an older version can express is valid too, and of that version.
fn check_versions(valid: &ValidModel, pools: &dyn ConstantPools) {
    for version in [HalVersion::V1_0, HalVersion::V1_1, HalVersion::V1_2] {
        let Some(part) = valid.slice(version) else {
            continue;
        };
        let again = ValidModel::new(Arc::new(part.model.clone()), pools, &[]);
        assert!(again.is_ok(), "the part for HAL {version}: {again:?}");
        let older = part.into_model_1_2();
        assert!(older.is_ok(), "the part for HAL {version}: {older:?}");
    }
}

/// Decodes a model, validates it, and runs it on both kernel sets if it is valid.
pub fn model(bytes: &[u8]) -> Reached {
    let Some(mut input) = decode(bytes) else {
        return Reached::Bytes;
    };
    if let Some(RequestPool::Memory { size }) = input.request.pools.first_mut() {
        *size = input.inputs.len() as u64;
    }
    let Ok(valid) = ValidModel::new(Arc::new(input.model), &input.pools, &[]) else {
        return Reached::Validation;
    };
    check_versions(&valid, &input.pools);
    let valid = Arc::new(valid);
    let mut reached = Reached::Result;
    for kernels in [KernelSet::Reference, KernelSet::Fast] {
        let Ok(program) = Program::with_kernels(Arc::clone(&valid), &input.pools, kernels) else {
            return Reached::Validation;
        };
        let execution = Execution::new(Arc::new(program));
        reached = reached.min(execute(execution, &input.request, &input.inputs));
    }
    reached
}

fn sizes(pools: &[Vec<u8>]) -> Vec<MemoryPool> {
    let size = |pool: &Vec<u8>| MemoryPool {
        size: pool.len() as u64,
    };
    pools.iter().map(size).collect()
}

fn execute(mut execution: Execution, request: &Request, inputs: &[u8]) -> Reached {
    let program = Arc::clone(execution.program());
    let Ok(plan) = ValidRequest::new(program.model(), request) else {
        return Reached::Request;
    };
    let bytes_of = |plan: &ArgumentPlan| match plan {
        ArgumentPlan::Memory { length, .. } => *length as usize,
        ArgumentPlan::Omitted | ArgumentPlan::Token { .. } => 0,
    };
    if plan.inputs().iter().map(bytes_of).sum::<usize>() > MOST_BYTES {
        return Reached::Request;
    }
    for (index, argument) in plan.inputs().iter().enumerate() {
        let ArgumentPlan::Memory { shape, offset, .. } = *argument else {
            let _ = execution.omit_input(index);
            continue;
        };
        let Ok(memory) = execution.input(index, &shape) else {
            return Reached::Request;
        };
        let given = inputs.get(offset as usize..).unwrap_or_default();
        let enough = memory.len().min(given.len());
        memory[..enough].copy_from_slice(&given[..enough]);
    }
    let budget = Budget(Cell::new(MOST_OPERATIONS));
    let options = RunOptions {
        interrupt: &budget,
        loop_timeout: LOOP_TIMEOUT,
        ..RunOptions::default()
    };
    if execution.run(&options).is_err() {
        return Reached::Execution;
    }
    for index in 0..plan.outputs().len() {
        assert!(
            execution.output(index).is_some(),
            "output {index} is missing after a success"
        );
    }
    Reached::Result
}

/// Cancels after a number of operations.
struct Budget(Cell<u32>);

impl Interrupt for Budget {
    fn check(&self) -> Result<(), Interrupted> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(Interrupted::Cancelled),
        }
    }
}

/// Reads bytes as everything that one side of a connection or a burst reads from the other.
pub fn messages(bytes: &[u8]) {
    for version in handshake::VERSIONS.oldest..=handshake::VERSIONS.newest {
        if let Ok(envelope) = codec::decode_in::<Envelope>(version, bytes) {
            let _ = envelope.call.fd_count();
            check_encoding(version, &envelope, bytes);
        }
        if let Ok(message) = codec::decode_in::<Message>(version, bytes) {
            check_encoding(version, &message, bytes);
        }
    }
    let _ = handshake::read_hello(bytes);
    let _ = handshake::read_answer(bytes, handshake::VERSIONS);
    let _ = burst::decode_request(bytes, &mut burst::RequestBody::default());
    let _ = burst::claimed_sequence(bytes);
    let _ = burst::decode_result(bytes, &mut burst::ResultBody::default());
}

/// What can be decoded has no other encoding.
fn check_encoding<T: Wire>(version: u32, value: &T, bytes: &[u8]) {
    let mut again = Vec::new();
    let encoded = codec::encode_in(version, value, &mut again);
    assert!(encoded.is_ok() && again == bytes, "a message has two encodings");
}

/// Calls as seeds.
#[must_use]
pub fn message_seeds(count: u64) -> Vec<Vec<u8>> {
    let inputs = model_seeds(count);
    let decoded = inputs
        .iter()
        .filter_map(|bytes| codec::decode::<ModelInput>(bytes).ok());
    let calls = decoded.flat_map(|input| {
        let request = RequestWithMemories {
            request: input.request,
            memories: Vec::new(),
        };
        let model = Handle {
            index: 1,
            generation: 2,
        };
        let execute = Execute {
            prepared_model: model.into(),
            request,
            form: ExecutionForm::Synchronous,
            measure: MeasureTiming::No,
            deadline_ns: Some(1),
            loop_timeout_ns: None,
        };
        let supported = Call::GetSupportedOperations {
            model: input.model,
            pools: Vec::new(),
        };
        [supported, Call::Execute(execute)]
    });
    let encoded = calls.filter_map(|call| codec::encode(&Envelope { id: 1, call }).ok());
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::seeds::{check, joined};
    use super::{Reached, extension_seeds, message_seeds, messages, model, model_seeds, mutate, rings};
    use crate::generator::choices::Random;

    /// Steps of each test; the targets in `fuzz/` run for as long as one lets them.
    const STEPS: usize = 20_000;

    fn run<T>(seeds: &[Vec<u8>], entry: fn(&[u8]) -> T) -> Vec<T> {
        let mut random = Random::new(1);
        let one = |step: usize| {
            let bytes = mutate(&seeds[step % seeds.len()], &mut random);
            // Told only if the test fails.
            std::panic::catch_unwind(|| entry(&bytes))
                .unwrap_or_else(|_| panic!("step {step} fails: {bytes:?}"))
        };
        (0..STEPS).map(one).collect()
    }

    #[test]
    fn mutated_models_are_refused_or_run() {
        let mut seeds = model_seeds(300);
        seeds.extend(extension_seeds(300));
        for seed in &seeds {
            assert_eq!(model(seed), Reached::Result);
        }
        let reached = run(&seeds, model);
        let count = |stage| reached.iter().filter(|reached| **reached == stage).count();
        // Each stage must see its share, or the test sees less than it seems to.
        for stage in [
            Reached::Bytes,
            Reached::Validation,
            Reached::Execution,
            Reached::Result,
        ] {
            println!("{stage:?}: {} of {STEPS}", count(stage));
            assert!(count(stage) > STEPS / 1000, "{stage:?}: {}", count(stage));
        }
    }

    #[test]
    fn mutated_messages_are_refused_or_read() {
        let mut seeds = message_seeds(20);
        seeds.iter().for_each(|seed| messages(seed));
        seeds.extend((0..32).map(|length| vec![1; length * 4]));
        run(&seeds, messages);
    }

    /// As many seeds of each kind are kept in the tree.
    const KEPT: usize = 24;

    /// The first of them that are short.
    fn short(seeds: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let short = seeds.into_iter().filter(|seed| seed.len() <= 2048);
        short.take(KEPT).collect()
    }

    /// The messages whose bytes are fixed.
    fn golden(text: &str) -> Vec<Vec<u8>> {
        let blocks = text.split(':').skip(1);
        let digits = |block: &str| {
            let lines = block.lines().filter_map(|line| line.strip_prefix("  "));
            lines.collect::<String>().into_bytes()
        };
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes = |block| digits(block).chunks(2).map(byte).collect();
        blocks.map(bytes).collect()
    }

    #[test]
    fn models_in_the_tree_are_refused_or_run() {
        let mut seeds = short(model_seeds(100));
        seeds.extend(short(extension_seeds(100)));
        check("model", &seeds, model);
    }

    #[test]
    fn messages_in_the_tree_are_refused_or_read() {
        let mut seeds = golden(include_str!("../../src/wire/golden.hex"));
        seeds.extend(golden(include_str!("../../src/burst/golden.hex")));
        check("messages", &seeds, messages);
    }

    #[test]
    fn rings_that_are_overwritten_as_in_the_tree_end_or_go_on() {
        let overwrite = |offset: u16, bytes: &[u8]| [&[0][..], &offset.to_le_bytes(), bytes].concat();
        let (request, result, receive) = ([1; 61], [2; 101], [3]);
        let both = [&request[..], &result, &receive].repeat(6);
        let mut seeds = vec![joined(&both)];
        // Each word that a side reads: the header, the controls of both rings, sequence words of both.
        let words = [0, 8, 12, 16, 20, 1024, 1152, 1156, 1160, 2048, 2176, 2180, 2184];
        let cells = [4096, 4160, 4536, 8192, 8256];
        for offset in words.into_iter().chain(cells) {
            for word in [1_u64 << 16 | 1, u64::MAX] {
                let mut steps: Vec<Vec<u8>> = both.iter().take(4).map(|step| step.to_vec()).collect();
                steps.push(overwrite(offset, &word.to_le_bytes()));
                steps.extend(both.iter().take(6).map(|step| step.to_vec()));
                seeds.push(joined(&steps));
            }
        }
        check("rings", &seeds, rings);
    }
}
