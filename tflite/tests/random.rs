//! Random numbers: how their generators begin, and what is refused.

#![forbid(unsafe_code)]

mod support;

use nnhal_cpu::KernelSet;
use nnhal_tflite::ImportedModel;
use support::Runner;
use support::files::{Field, Graph, Operator, Options, Tensor, file, operator, tensor};

/// The format's numbers of operators.
const NEG: i32 = 59;
const LOGICAL_NOT: i32 = 87;
const IF: i32 = 118;
const WHILE: i32 = 119;
const RANDOM_UNIFORM: i32 = 148;
const BITCAST: i32 = 159;
const RNG_BIT_GENERATOR: i32 = 204;

/// Those of types.
const FLOAT32: i8 = 0;
const INT32: i8 = 2;
const INT64: i8 = 4;
const BOOL: i8 = 6;
const INT16: i8 = 7;
const UINT64: i8 = 12;
const UINT32: i8 = 15;

/// A graph without inputs that gives three random numbers.
fn uniform(seed: i64, seed2: i64) -> Graph {
    let shape = Tensor {
        data: 3_i32.to_le_bytes().to_vec(),
        ..tensor(INT32, &[1])
    };
    let seeds = Options {
        is_second: false,
        code: 114,
        fields: vec![Field::Long(seed), Field::Long(seed2)],
    };
    Graph {
        tensors: vec![shape, tensor(FLOAT32, &[3])],
        inputs: vec![],
        outputs: vec![1],
        operators: vec![operator(RANDOM_UNIFORM, &[0], &[1], Some(seeds))],
    }
}

/// A graph of one operator with one input.
fn of_one(code: i32, input: Tensor, outputs: Vec<Tensor>, options: Option<Options>) -> Graph {
    let numbers: Vec<i32> = (1..).take(outputs.len()).collect();
    Graph {
        tensors: std::iter::once(input).chain(outputs).collect(),
        inputs: vec![0],
        outputs: numbers.clone(),
        operators: vec![operator(code, &[0], &numbers, options)],
    }
}

fn bits(state: Tensor, after: Tensor, bits: Tensor, algorithm: i8) -> Graph {
    let options = Options {
        is_second: true,
        code: 19,
        fields: vec![Field::Byte(algorithm)],
    };
    of_one(RNG_BIT_GENERATOR, state, vec![after, bits], Some(options))
}

fn import(graphs: &[Graph]) -> ImportedModel {
    nnhal_tflite::import(&file(graphs)).unwrap()
}

fn refusal(graphs: &[Graph]) -> String {
    nnhal_tflite::import(&file(graphs)).unwrap_err().to_string()
}

#[test]
fn seeds_are_the_key_and_the_upper_half_of_the_counter() {
    let imported = import(&[uniform(5 << 32 | 7, -2)]);
    let [state] = imported.states.as_slice() else {
        panic!("{:?}", imported.states);
    };
    assert_eq!(state.name, "generator of operator #0");
    assert_eq!((state.input, state.output), (0, 1));
    assert_eq!(state.dimensions, [6]);
    // The upper halves of the file's are not read.
    let words = [7, 0, 0, 0, -2, -1_i32];
    assert_eq!(state.initial, words.map(i32::to_le_bytes).concat());
}

#[test]
fn without_seeds_each_execution_draws_its_own() {
    for seed in [0, 1 << 32] {
        let imported = import(&[uniform(seed, 0)]);
        assert!(imported.states.is_empty());
        let mut runner = Runner::with_kernels(imported, KernelSet::Fast).unwrap();
        assert_ne!(runner.run(&[]), runner.run(&[]));
    }
}

#[test]
fn graphs_that_others_call_have_no_state() {
    let choice = Options {
        is_second: false,
        code: 92,
        fields: vec![Field::Int(1), Field::Int(1)],
    };
    let main = of_one(IF, tensor(BOOL, &[1]), vec![tensor(FLOAT32, &[3])], Some(choice));
    assert!(import(&[main, uniform(1, 2)]).states.is_empty());
}

#[test]
fn loops_draw_no_numbers_by_seeds() {
    let negation = |code, options| of_one(code, tensor(BOOL, &[1]), vec![tensor(BOOL, &[1])], options);
    let repeated = |drawn: Graph| {
        let mut body = negation(LOGICAL_NOT, None);
        body.tensors.extend(drawn.tensors);
        body.operators
            .extend(drawn.operators.into_iter().map(|drawing| Operator {
                inputs: vec![2],
                outputs: vec![3],
                ..drawing
            }));
        let options = Options {
            is_second: false,
            code: 93,
            fields: vec![Field::Int(1), Field::Int(2)],
        };
        [negation(WHILE, Some(options)), negation(LOGICAL_NOT, None), body]
    };
    assert!(import(&repeated(uniform(0, 0))).states.is_empty());
    assert!(refusal(&repeated(uniform(1, 2))).contains("loop draws random numbers by seeds"));
}

#[test]
fn bits_of_other_types_and_algorithms_are_refused() {
    let state = || tensor(UINT64, &[2]);
    let found = import(&[bits(state(), state(), tensor(UINT32, &[3]), 2)]);
    assert_eq!(found.inputs[0].dimensions, [2, 2]);
    assert_eq!(found.outputs[1].dimensions, [3]);
    let error = refusal(&[bits(state(), state(), tensor(INT16, &[3]), 0)]);
    assert!(
        error.contains("has int16 elements, must have integers of 32 or 64 bits"),
        "{error}"
    );
    let error = refusal(&[bits(tensor(UINT32, &[4]), state(), tensor(INT32, &[3]), 0)]);
    assert!(
        error.contains("input 0") && error.contains("must have uint64"),
        "{error}"
    );
    let error = refusal(&[bits(state(), tensor(INT32, &[2]), tensor(INT32, &[3]), 0)]);
    assert!(
        error.contains("output 0") && error.contains("must have uint64"),
        "{error}"
    );
    assert!(refusal(&[bits(state(), state(), tensor(INT32, &[3]), 3)]).contains("(algorithm) is 3"));
    let long = || tensor(UINT64, &[3]);
    assert!(refusal(&[bits(long(), long(), tensor(INT32, &[3]), 2)]).contains("(state)"));
}

#[test]
fn bits_are_the_same_in_integers_of_all_kinds() {
    let drawn = |ty, dimensions: &[i32]| {
        let state = || tensor(UINT64, &[2]);
        let imported = import(&[bits(state(), state(), tensor(ty, dimensions), 1)]);
        let mut runner = Runner::with_kernels(imported, KernelSet::Fast).unwrap();
        runner.run(&[&[7; 16]]).remove(1)
    };
    let words = drawn(INT32, &[6]);
    assert_eq!(drawn(UINT32, &[6]), words);
    assert_eq!(drawn(UINT64, &[3]), words);
    assert_eq!(drawn(INT64, &[3]), words);
}

#[test]
fn unsigned_integers_are_for_bits_only() {
    for ty in [UINT32, UINT64] {
        let error = refusal(&[of_one(NEG, tensor(ty, &[2]), vec![tensor(INT32, &[2])], None)]);
        assert!(
            error.contains("which only STABLEHLO_RNG_BIT_GENERATOR and BITCAST take"),
            "{error}"
        );
    }
}

#[test]
fn unsigned_integers_are_cast_to_words_only() {
    let cast = |from, to| of_one(BITCAST, from, vec![to], None);
    let found = import(&[cast(tensor(UINT64, &[3]), tensor(FLOAT32, &[3, 2]))]);
    assert_eq!(found.outputs[0].dimensions, [3, 2]);
    let error = refusal(&[cast(tensor(UINT64, &[3]), tensor(INT16, &[3, 4]))]);
    assert!(error.contains("uint64 elements to int16"), "{error}");
    let error = refusal(&[cast(tensor(INT64, &[3]), tensor(UINT64, &[3]))]);
    assert!(error.contains("int64 elements to uint64"), "{error}");
    let error = refusal(&[cast(tensor(UINT32, &[3]), tensor(UINT64, &[]))]);
    assert!(error.contains("the last must be 2"), "{error}");
}
