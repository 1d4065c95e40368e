//! What memory and stack it takes to look at what a hostile client sends (T13, T14 of the threat model).

#[path = "../src/counting_allocator.rs"]
mod counting_allocator;

use std::sync::Arc;

use nnhal::wire::{Call, Envelope, Message, codec};
use nnhal_conformance::fuzzing::{message_seeds, mutate};
use nnhal_conformance::generator::choices::Random;
use nnhal_cpu::{Execution, KernelSet, Program, RunOptions};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Subgraph};

#[global_allocator]
static ALLOCATOR: counting_allocator::CountingAllocator = counting_allocator::CountingAllocator;

/// How many messages are tried.
const MESSAGES: usize = 20_000;

/// How many times its own bytes a message may take: a list of empty lists is the worst.
const MOST_TIMES: u64 = 8;

/// What an error may take beside it.
const FREE_BYTES: u64 = 4096;

/// Decodes a message of either side, and returns the most memory that took.
fn memory_of(bytes: &[u8]) -> u64 {
    let (_, of_call) = counting_allocator::peak_of(|| codec::decode::<Envelope>(bytes).is_ok());
    let (_, of_message) = counting_allocator::peak_of(|| codec::decode::<Message>(bytes).is_ok());
    of_call.max(of_message)
}

#[test]
fn message_takes_a_few_times_its_own_bytes_of_memory() {
    let mut seeds = message_seeds(40);
    // A model of empty graphs, whose lists are the shortest that there are.
    let model = Model {
        referenced: vec![Subgraph::default(); 1000],
        ..Model::default()
    };
    let call = Call::GetSupportedOperations {
        model,
        pools: Vec::new(),
    };
    seeds.push(codec::encode(&Envelope { id: 1, call }).unwrap());
    let mut random = Random::new(13);
    let mut worst = 0.0_f64;
    for step in 0..MESSAGES {
        let seed = &seeds[step % seeds.len()];
        let mut bytes = if step < seeds.len() {
            seed.clone()
        } else {
            mutate(seed, &mut random)
        };
        if step % 2 == 1 && bytes.len() >= 24 {
            // A count that says far more than there is.
            let at = 12 + random.below(bytes.len() as u32 - 19) as usize;
            bytes[at..at + 8].copy_from_slice(&(u64::MAX >> random.below(60)).to_le_bytes());
        }
        let taken = memory_of(&bytes);
        assert!(
            taken <= MOST_TIMES * bytes.len() as u64 + FREE_BYTES,
            "T13: {taken} bytes of memory for {} of a message",
            bytes.len()
        );
        worst = worst.max(taken as f64 / bytes.len() as f64);
    }
    println!("{MESSAGES} messages; the worst took {worst:.1} times its bytes");
}

/// The stack of the thread that looks at models: an eighth of what threads have.
const STACK: usize = 256 * 1024;

/// As the limit of validation says.
const DEEPEST: u32 = 16;

fn truth(lifetime: OperandLifeTime) -> Operand {
    let mut operand = Operand::new(OperandType::TENSOR_BOOL8, &[1]).with_lifetime(lifetime);
    operand.number_of_consumers = u32::from(lifetime == OperandLifeTime::SubgraphInput);
    operand
}

/// A graph that negates its input.
fn leaf() -> Subgraph {
    Subgraph {
        operands: vec![
            truth(OperandLifeTime::SubgraphInput),
            truth(OperandLifeTime::SubgraphOutput),
        ],
        operations: vec![Operation {
            operation_type: OperationType::LOGICAL_NOT,
            inputs: vec![0],
            outputs: vec![1],
        }],
        input_indexes: vec![0],
        output_indexes: vec![1],
    }
}

/// A graph that runs graph `next` whatever its input is.
fn branching(next: u32) -> Subgraph {
    let mut input = truth(OperandLifeTime::SubgraphInput);
    input.number_of_consumers = 2;
    let mut reference = Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph);
    reference.location.offset = next;
    reference.number_of_consumers = 2;
    Subgraph {
        operands: vec![input, reference, truth(OperandLifeTime::SubgraphOutput)],
        operations: vec![Operation {
            operation_type: OperationType::IF,
            inputs: vec![0, 1, 1, 0],
            outputs: vec![2],
        }],
        input_indexes: vec![0],
        output_indexes: vec![2],
    }
}

/// A main graph that runs the first of `depth` graphs, each of which runs the next.
fn nested(depth: u32) -> Model {
    Model {
        main: branching(0),
        referenced: (1..depth).map(branching).chain([leaf()]).collect(),
        ..Model::default()
    }
}

/// Whether a model is valid, and computed then.
fn compute(model: &Model) -> bool {
    let bytes = codec::encode(model).unwrap();
    let model = codec::decode::<Model>(&bytes).unwrap();
    let Ok(valid) = ValidModel::new(Arc::new(model), &NoPools, &[]) else {
        return false;
    };
    let valid = Arc::new(valid);
    for kernels in [KernelSet::Reference, KernelSet::Fast] {
        let program = Program::with_kernels(Arc::clone(&valid), &NoPools, kernels).unwrap();
        let mut execution = Execution::new(Arc::new(program));
        let shape = nnhal_hal::Shape::new(&[1]).unwrap();
        execution.input(0, &shape).unwrap()[0] = 1;
        execution.run(&RunOptions::default()).unwrap();
        assert_eq!(execution.output(0).map(|(_, bytes)| bytes), Some(&[0][..]));
    }
    true
}

#[test]
fn deepest_graphs_are_computed_and_deeper_ones_refused_on_a_small_stack() {
    let small = std::thread::Builder::new().stack_size(STACK);
    let computing = small.spawn(|| {
        assert!(compute(&nested(DEEPEST)));
        assert!(!compute(&nested(DEEPEST + 1)));
        // As deep as there can be graphs, in a line and in a circle.
        assert!(!compute(&nested(4096)));
        let mut circle = nested(4096);
        circle.referenced[4095] = branching(0);
        assert!(!compute(&circle));
    });
    computing.unwrap().join().unwrap();
}
