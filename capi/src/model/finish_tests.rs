//! What a finished model must get right beyond what is looked at when an operation is added.

use nnhal_hal::OperationType as O;

use super::draft::Draft;
use super::finished::Finished;
use super::signature_tests::add;
use super::value::Value;

/// A value that an input has in the model, and the input's number.
type Given = (usize, Vec<u8>);

fn int(input: usize, value: i32) -> Given {
    (input, value.to_ne_bytes().to_vec())
}

fn ints(input: usize, values: &[i32]) -> Given {
    (
        input,
        values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
    )
}

fn flag(input: usize, value: bool) -> Given {
    (input, vec![u8::from(value)])
}

/// Finishes a model of one operation, whose operands a text such as `2*f32[2] INT32 -> f32[2]` says. It must
/// be taken when it is added. What has no value is an input of the model.
fn finish(kind: O, signature: &str, given: &[Given]) -> Result<(), String> {
    let mut draft = Draft::default();
    add(&mut draft, kind, signature, &[]).unwrap();
    for (input, bytes) in given {
        let (offset, length) = (draft.copied.len().next_multiple_of(4), bytes.len());
        draft.copied.resize(offset, 0);
        draft.copied.extend_from_slice(bytes);
        draft.values[*input] = Value::Copied { offset, length };
    }
    let operation = draft.operations[0].clone();
    let has_value = |input: &u32| given.iter().any(|(at, _)| *at == *input as usize);
    let inputs = operation.inputs.iter().copied().filter(|input| !has_value(input));
    draft.identify(inputs.collect(), operation.outputs).unwrap();
    Finished::new(draft)
        .map(drop)
        .map_err(|failure| failure.text.into())
}

#[test]
fn recurrent_layers_have_tanh_and_logistic_beside_the_other_activations() {
    let of_each = |code: i32| {
        [
            finish(
                O::RNN,
                "f32[1,2] f32[3,2] f32[3,3] f32[3] f32[1,3] INT32 -> 2*f32[1,3]",
                &[int(5, code)],
            ),
            finish(
                O::UNIDIRECTIONAL_SEQUENCE_RNN,
                "f32[2,1,2] f32[3,2] f32[3,3] f32[3] f32[1,3] 2*INT32 -> f32[2,1,3]",
                &[int(5, code), int(6, 1)],
            ),
            finish(
                O::BIDIRECTIONAL_SEQUENCE_RNN,
                "f32[2,1,2] f32[3,2] f32[3,3] f32[3] f32[1,3] f32[3,2] f32[3,3] f32[3] f32[1,3] f32[2,1,2] 2*f32[3,2] \
                 INT32 2*BOOL -> 2*f32[2,1,3]",
                &[int(12, code), flag(13, true), flag(14, false)],
            ),
            finish(
                O::SVDF,
                "f32[1,2] f32[4,2] f32[4,5] f32[4] f32[1,20] 2*INT32 -> f32[1,20] f32[1,4]",
                &[int(5, 1), int(6, code)],
            ),
            finish(
                O::LSTM,
                "f32[1,2] 4*f32[3,2] 4*f32[3,3] 7*f32[3] f32[3,3] f32[3] 2*f32[1,3] INT32 2*FLOAT32 -> f32[1,12] 3*f32[1,3]",
                &[int(20, code)],
            ),
            finish(
                O::UNIDIRECTIONAL_SEQUENCE_LSTM,
                "f32[2,1,2] 4*f32[3,2] 4*f32[3,3] 7*f32[3] f32[3,3] f32[3] 2*f32[1,3] INT32 2*FLOAT32 BOOL 4*f32[3] -> \
                 f32[2,1,3]",
                &[int(20, code), flag(23, true)],
            ),
        ]
    };
    for code in [0, 1, 2, 3, 4, 6] {
        for (at, found) in of_each(code).into_iter().enumerate() {
            assert_eq!(found, Ok(()), "layer {at}, activation {code}");
        }
    }
    for code in [-1, 5, 7, 999] {
        for (at, found) in of_each(code).into_iter().enumerate() {
            let text = found.unwrap_err();
            let what = format!("(activation) is {code}");
            assert!(text.contains(&what), "layer {at}, activation {code}: {text}");
        }
    }
}

/// Android finishes these models, and every execution of them fails.
#[test]
fn models_that_no_execution_can_compute_are_refused_when_they_are_finished() {
    let window = [int(3, 1), int(4, 1), int(5, 1), int(6, 0)];
    let zeros = |input| ints(input, &[0, 0, 0]);
    let slice = [
        zeros(1),
        zeros(2),
        ints(3, &[1; 3]),
        int(4, 0),
        int(5, 0),
        int(6, 0),
    ];
    let paddings = "(paddings) has rank 1, must have rank 2";
    let refused: [(O, &str, &[Given], &str); 10] = [
        (
            O::ADD,
            "2*f32[2] INT32 -> f32[2]",
            &[int(2, 999)],
            "(activation) is 999",
        ),
        (O::PAD, "f32[2,2,2,2] i32[8] -> f32[4,4,4,4]", &[], paddings),
        (
            O::PAD_V2,
            "f32[2,2,2,2] i32[8] FLOAT32 -> f32[4,4,4,4]",
            &[],
            paddings,
        ),
        (
            O::SPACE_TO_BATCH_ND,
            "f32[2,2,2,2] i32[2] i32[4] -> f32[8,1,1,2]",
            &[],
            paddings,
        ),
        (
            O::UNIDIRECTIONAL_SEQUENCE_RNN,
            "f32[2,1,2] f32[3,2] f32[3,3] f32[3] f32[1,3] 2*INT32 -> f32[2,3]",
            &[int(5, 0), int(6, 1)],
            "(output) has rank 2, must have rank 3",
        ),
        (
            O::LSTM,
            "f32[1,2] 4*f32[3,2] 4*f32[3,3] 3*f32[3,1] 4*f32[3] f32[3,3] f32[3] 2*f32[1,3] INT32 2*FLOAT32 -> f32[1,12] \
             3*f32[1,3]",
            &[int(20, 4)],
            "(cell_to_input_weights) has rank 2, must have rank 1",
        ),
        (
            O::CONV_2D,
            "f32[1,4,4,2] f32[2,1,1,3] f32[2] 4*INT32 -> f32[1,4,4,2]",
            &window,
            "(filter) has dimensions [2, 1, 1, 3]",
        ),
        (O::CAST, "f32[2,3] -> i32[3,2]", &[], "the model declares [3, 2]"),
        (
            O::STRIDED_SLICE,
            "f32[5,5] 3*i32[3] 3*INT32 -> f32[5,5]",
            &slice,
            "has 3 elements, must have 2",
        ),
        (O::LESS, "2*f32[1,2,3] -> b8[1]", &[], "the model declares [1]"),
    ];
    for (kind, signature, given, expected) in refused {
        let text = finish(kind, signature, given).unwrap_err();
        assert!(text.contains(expected), "{kind}: {text}");
    }
}
