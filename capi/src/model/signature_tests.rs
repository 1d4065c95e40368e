//! What is taken and what is refused when an operation is added.

use nnhal_hal::{ExtraParams, Operand, OperandType as T, OperationType as O, SymmPerChannelQuantParams};

use super::draft::Draft;

/// The element type that a word of the lists stands for, and its scale.
fn element(word: &str) -> (T, f32) {
    const SCALE: f32 = 1.0 / 256.0;
    match word {
        "FLOAT16" => (T::FLOAT16, 0.0),
        "FLOAT32" => (T::FLOAT32, 0.0),
        "INT32" => (T::INT32, 0.0),
        "BOOL" => (T::BOOL, 0.0),
        "f16" => (T::TENSOR_FLOAT16, 0.0),
        "f32" => (T::TENSOR_FLOAT32, 0.0),
        "i32" => (T::TENSOR_INT32, 0.0),
        "bias" => (T::TENSOR_INT32, 0.25),
        "b8" => (T::TENSOR_BOOL8, 0.0),
        "u8" => (T::TENSOR_QUANT8_ASYMM, SCALE),
        "s8" => (T::TENSOR_QUANT8_ASYMM_SIGNED, SCALE),
        "y8" => (T::TENSOR_QUANT8_SYMM, SCALE),
        "u16" => (T::TENSOR_QUANT16_ASYMM, SCALE),
        "s16" => (T::TENSOR_QUANT16_SYMM, SCALE),
        "pc" | "pc0" | "pc3" => (T::TENSOR_QUANT8_SYMM_PER_CHANNEL, 0.0),
        word => panic!("{word} is no element type"),
    }
}

/// The operands that a word such as `2*A[5,5]` stands for, with their element type.
fn operands(word: &str, letters: &[&str]) -> Vec<(Operand, String)> {
    let (count, rest) = word.split_once('*').unwrap_or(("1", word));
    let (name, dimensions) = rest.split_once('[').unwrap_or((rest, ""));
    let dimensions = dimensions.trim_end_matches(']').split(',');
    let dimensions: Vec<u32> = dimensions
        .filter(|extent| !extent.is_empty())
        .map(|extent| extent.parse().unwrap())
        .collect();
    let is_letter = name.len() == 1;
    let name = if is_letter {
        letters[usize::from(name.as_bytes()[0] - b'A')]
    } else {
        name
    };
    let (ty, scale) = element(name);
    let operand = Operand::new(ty, &dimensions).with_quantization(scale, 0);
    vec![(operand, name.to_owned()); count.parse().unwrap()]
}

/// Adds an operation whose operands a text such as `2*A[5,5] INT32 -> A[5,5]` says, to an empty draft.
pub(super) fn add(draft: &mut Draft, kind: O, signature: &str, letters: &[&str]) -> Result<(), String> {
    let mut lists = [Vec::new(), Vec::new()];
    for (side, list) in signature.split(" -> ").zip(&mut lists) {
        for (operand, name) in side.split(' ').flat_map(|word| operands(word, letters)) {
            let index = draft.operands.len();
            let channels = name.strip_prefix("pc").and_then(|axis| axis.parse::<u32>().ok());
            let extra = channels.map(|channel_dim| {
                let scales = vec![0.5; operand.dimensions[channel_dim as usize] as usize];
                ExtraParams::ChannelQuant(SymmPerChannelQuantParams { scales, channel_dim })
            });
            draft.add_operand(operand).unwrap();
            if let Some(extra) = extra {
                draft.set_extra_params(index as i32, extra).unwrap();
            }
            list.push(index as u32);
        }
    }
    let [inputs, outputs] = lists;
    draft
        .add_operation(kind, inputs, outputs)
        .map_err(|failure| failure.text.into())
}

/// Adds the operations of a line as often as it says, and gives what each came to.
fn each_of(line: &str) -> Vec<(String, Result<(), String>)> {
    let (names, rest) = line.split_once(": ").unwrap();
    let (signature, letters) = rest.split_once(" where ").unwrap_or((rest, ""));
    let mut ended = Vec::new();
    for name in names.split(' ') {
        for letters in letters.split(' ') {
            let kind = O::from_name(name).unwrap();
            let letters_of = letters.split('/').collect::<Vec<_>>();
            let found = add(&mut Draft::default(), kind, signature, &letters_of);
            ended.push((format!("{name}: {signature} where {letters}"), found));
        }
    }
    ended
}

#[test]
fn operations_that_programs_add_are_taken() {
    let lines = include_str!("added_operations.txt").lines();
    let all: Vec<_> = lines
        .filter(|line| !line.starts_with('#'))
        .flat_map(each_of)
        .collect();
    let refused = all
        .iter()
        .filter_map(|(what, found)| Some((what, found.as_ref().err()?)));
    let refused: Vec<String> = refused.map(|(what, text)| format!("{what}: {text}")).collect();
    assert!(
        refused.is_empty(),
        "{} of {}:\n{}",
        refused.len(),
        all.len(),
        refused.join("\n")
    );
    assert!(all.len() > 600, "{}", all.len());
}

/// Ranks that Android's reference looks at when an operation is added.
#[test]
fn ranks_that_an_operation_never_takes_are_refused_when_it_is_added() {
    for line in [
        "ADD MUL SUB DIV: 2*A[2,2,2,2,2] INT32 -> A[2,2,2,2,2] where f32",
        "RELU RELU1 RELU6 LOGISTIC TANH FLOOR: A[2,2,2,2,2] -> A[2,2,2,2,2] where f32",
        "CONCATENATION: 2*A[5,5,1,1,1] INT32 -> A[5,5] where f32",
        "CONV_2D: A[2,4,4] A[2,4,4,2] A[2] 4*INT32 -> A[2,4,4,2] where f32",
        "CONV_2D: A[2,4,4,2] A[2,4,4,2,1] A[2] 4*INT32 -> A[2,4,4,2] where f32",
        "FULLY_CONNECTED: A[5] A[5,5] A[5] INT32 -> A[5,5] where f32",
        "FULLY_CONNECTED: A[5,5] A[5,5,1] A[5] INT32 -> A[5,5] where f32",
        "FULLY_CONNECTED: A[5,5] A[5,5] A[5,1] INT32 -> A[5,5] where f32",
        "DEQUANTIZE: u8[2,2,2,2,1] -> f32[2,2,2,2]",
        "PAD: A[2,2,2,2,1] i32[4,2] -> A[4,3,4,3] where f32",
        "RESHAPE: A[2,3,4,1,1] i32[2] -> A[4,6] where f32",
        "MIRROR_PAD: A[2,2] i32[4] INT32 -> A[3,3] where f32",
        "REVERSE: A[2,2] i32[1,1] -> A[2,2] where f32",
        "REDUCE_SUM: A[2,2,2,2,1] i32[2] BOOL -> A[2,2,2,2] where f32",
    ] {
        for (what, found) in each_of(line) {
            let text = found.expect_err(&what);
            assert!(text.contains("must have rank"), "{what}: {text}");
        }
    }
}

/// What quantised operands declare does not change any more.
#[test]
fn quantisation_that_an_operation_never_takes_is_refused_when_it_is_added() {
    // A scale of 1/256 is not above 0.25 * 0.25.
    for ty in [T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED] {
        let multiply = |scale| {
            let mut draft = Draft::default();
            for scale in [0.25, 0.25, scale] {
                let operand = Operand::new(ty, &[2]).with_quantization(scale, 0);
                draft.add_operand(operand).unwrap();
            }
            draft.add_operand(Operand::new(T::INT32, &[])).unwrap();
            draft.add_operation(O::MUL, vec![0, 1, 3], vec![2])
        };
        let failure = multiply(1.0 / 256.0).unwrap_err();
        assert!(
            failure.text.contains("must be above 0.25 * 0.25"),
            "{}",
            failure.text
        );
        assert!(multiply(0.0625).is_err());
        assert!(multiply(0.0626).is_ok());
    }
    for line in [
        "CONV_2D: u8[1,4,4,4] pc3[4,4,4,4] i32[4] 4*INT32 -> u8[1,4,4,4]",
        "CONV_2D: s8[1,4,4,4] pc3[4,4,4,4] i32[4] 4*INT32 -> s8[1,4,4,4]",
        "GROUPED_CONV_2D: u8[1,3,3,2] pc3[2,2,2,1] i32[2] 5*INT32 BOOL -> u8[1,2,2,2]",
        "TRANSPOSE_CONV_2D: u8[1,2,2,2] pc3[2,3,3,1] i32[2] 7*INT32 BOOL -> u8[1,5,5,2]",
        "DEPTHWISE_CONV_2D: u8[1,2,2,2] pc0[1,2,2,2] i32[2] 5*INT32 -> u8[1,2,2,2]",
    ] {
        for (what, found) in each_of(line) {
            let text = found.expect_err(&what);
            assert!(
                text.contains("quantised per channel along axis"),
                "{what}: {text}"
            );
        }
    }
}
