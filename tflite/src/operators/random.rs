//! Random numbers. What goes on from one execution to the next is a state of the model.

use nnhal_hal::{OperationType, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{RandomOptions, StablehloRngBitGeneratorOptions};
use crate::generators::{self, Words};
use crate::graph::Id;
use crate::tensor::ElementType;

const GOES_ON: &str = "with seeds its generator is an input and an output of the model, or begins with them each \
                       time in graphs that others call; no seeds in loops; without them each execution draws its own";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::RANDOM_UNIFORM,
        &[tflite::RANDOM_UNIFORM],
        GOES_ON,
        |node| floats(node, tflite::RANDOM_UNIFORM),
    ),
    Mapping::new(
        Builtin::RANDOM_STANDARD_NORMAL,
        &[tflite::RANDOM_STANDARD_NORMAL],
        GOES_ON,
        |node| floats(node, tflite::RANDOM_STANDARD_NORMAL),
    ),
    Mapping::new(
        Builtin::MULTINOMIAL,
        &[tflite::MULTINOMIAL],
        "the same; 64-bit classes become 32-bit ones",
        |node| {
            let inputs = node.inputs(2)?;
            if node.output_tensor(0)?.element_type == ElementType::Int64 {
                let note = "its 64-bit results are 32-bit ones in the model".to_owned();
                node.graph.note(node.index(), note);
            }
            draw(node, tflite::MULTINOMIAL, inputs)
        },
    ),
    Mapping::new(
        Builtin::STABLEHLO_RNG_BIT_GENERATOR,
        &[tflite::RNG_BIT_GENERATOR],
        "32-bit integers with the bits of unsigned ones, the halves of 64 bits along one more axis, also in \
         the inputs and outputs of the model; no signed 64-bit bits",
        bits,
    ),
];

fn floats(node: &mut Node<'_, '_, '_, '_>, kind: OperationType) -> Result<(), Refusal> {
    // A shape without extents has no data: it asks for a scalar.
    let shape = match node.tensor(0)?.dimensions.as_slice() {
        [0] => node.tensor_i32(&[1])?,
        _ => node.input(0)?,
    };
    draw(node, kind, vec![shape])
}

/// Adds an operation whose last input and last output are the operator's generator.
fn draw(node: &mut Node<'_, '_, '_, '_>, kind: OperationType, mut inputs: Vec<Id>) -> Result<(), Refusal> {
    let [before, after] = generator(node)?;
    inputs.push(before);
    let output = node.output(0)?;
    node.emit(kind, &inputs, &[output, after])
}

/// The operator's generator before and after it. It begins with the seeds: the first one is its key, the
/// second one the upper half of its counter. In a graph that another calls, LiteRT begins anew each time.
fn generator(node: &mut Node<'_, '_, '_, '_>) -> Result<[Id; 2], Refusal> {
    let options = node.options::<RandomOptions>()?;
    // LiteRT reads the lower halves. Two zeros stand for any seeds, as do those of the operation.
    let seeds = [options.seed as i32, options.seed2 as i32];
    let words = words(seeds.map(i64::from));
    let index = node.index();
    let graph = &mut *node.graph;
    let is_seeded = seeds != [0, 0];
    if is_seeded && graph.is_main() {
        return Ok(graph.generators.add(index, words, &mut graph.builder)?);
    }
    if is_seeded && graph.stands_for.is_none() {
        graph.model.seeded.insert(graph.number);
    }
    Ok([node.tensor_i32(&words)?, node.temporary(generators::operand())?])
}

fn words([seed, second]: [i64; 2]) -> Words {
    let half = |seed: i64| [seed as i32, (seed >> 32) as i32];
    let ([low, high], [third, last]) = (half(seed), half(second));
    [low, high, 0, 0, third, last]
}

/// Refuses a loop of the graphs of these numbers if they draw random numbers by seeds: LiteRT's go on within
/// it.
pub(super) fn require_no_seeds(node: &Node<'_, '_, '_, '_>, numbers: [i32; 2]) -> Result<(), Refusal> {
    let seeded = &node.graph.model.seeded;
    let is_seeded = |number: i32| usize::try_from(number).is_ok_and(|number| seeded.contains(&number));
    if numbers.into_iter().any(is_seeded) {
        return Err("its loop draws random numbers by seeds, which would be the same each time".into());
    }
    Ok(())
}

fn bits(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let algorithm = node.options::<StablehloRngBitGeneratorOptions>()?.algorithm;
    let of_64_bits = |ty: ElementType| format!("has {ty} elements, must have uint64");
    let (state, after) = (node.tensor(0)?, node.output_tensor(0)?);
    if state.halves().is_none() {
        return Err(node.input_error(0, of_64_bits(state.element_type)));
    }
    if after.halves().is_none() {
        return Err(node.output_error(0, of_64_bits(after.element_type)));
    }
    let bits = node.output_tensor(1)?;
    let is_signed = matches!(bits.element_type, ElementType::Int32 | ElementType::Int64);
    if !(is_signed || bits.is_unsigned()) {
        let reason = format!(
            "has {} elements, must have integers of 32 or 64 bits",
            bits.element_type
        );
        return Err(node.output_error(1, reason));
    }
    let is_joined = bits.element_type == ElementType::Int64;
    let after = after.words().map_err(|reason| node.output_error(0, reason))?;
    let mut bits = bits.words().map_err(|reason| node.output_error(1, reason))?;
    if bits.dimensions.is_empty() {
        bits.dimensions.push(1);
    }
    if is_joined {
        bits.dimensions.push(2);
    }
    let shape = node.narrowed(bits.dimensions.iter().map(|extent| i64::from(*extent)))?;
    let inputs = [
        node.input_of_any_type(0)?,
        shape,
        node.scalar_i32(i32::from(algorithm))?,
    ];
    let after = node.declare(0, after)?;
    if !is_joined {
        let bits = node.declare(1, bits)?;
        return node.emit(tflite::RNG_BIT_GENERATOR, &inputs, &[after, bits]);
    }
    let halves = node.temporary(bits)?;
    node.emit(tflite::RNG_BIT_GENERATOR, &inputs, &[after, halves])?;
    let output = node.output(1)?;
    node.emit(tflite::BITCAST, &[halves], &[output])
}

/// A BITCAST from or to unsigned integers, whose bits 32-bit integers have.
pub(super) fn bitcast(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let (from, to) = (node.tensor(0)?, node.output_tensor(0)?);
    let is_of_words = |ty| matches!(ty, ElementType::Float32 | ElementType::Int32);
    for tensor in [from, to] {
        if !(tensor.is_unsigned() || is_of_words(tensor.element_type)) {
            return Err(Refusal::Reason(format!(
                "it takes {} elements to {}; with unsigned ones it takes float32, int32, uint32 and uint64 only",
                from.element_type, to.element_type
            )));
        }
    }
    let wanted = match to.is_unsigned() {
        true => to.words(),
        false => to.operand(),
    };
    let wanted = wanted.map_err(|reason| node.output_error(0, reason))?;
    let joins = from.halves().is_none() && to.halves().is_some();
    let input = node.input_of_any_type(0)?;
    let found = &node.graph.builder.operand(input).dimensions;
    if joins && found.last() != Some(&2) {
        let reason = format!("has dimensions {found:?}, the last must be 2: the halves of 64 bits");
        return Err(node.input_error(0, reason));
    }
    let output = node.declare(0, wanted)?;
    node.emit(tflite::BITCAST, &[input], &[output])
}
