//! What must hold of every model, and the search for one of which it does not.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nnhal_hal::{MeasureTiming, Model, Operand, OperandType, OutputShape, RequestArgument};

use super::choices::{Choices, shrink};
use super::generated::Generated;
use super::{Recipe, criteria};
use crate::coupling;
use crate::element;
use crate::implementation::{ExecutionAnswer, ExecutionCall, Form, Implementation, PreparedModel};

/// Whether a property holds of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Kept,
    /// It does not, and this is what was seen.
    Broken(String),
}

/// A model that breaks a property, shrunk.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The seed that led to it.
    pub seed: u64,
    /// The choices that make it.
    pub choices: Vec<u32>,
    /// What was seen.
    pub message: String,
    /// The model.
    pub model: String,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "seed {}: {}\nchoices {:?}\n{}",
            self.seed, self.message, self.choices, self.model
        )
    }
}

/// Looks for a model, among those of these seeds, that breaks `property`, and shrinks the first it finds. The
/// property may draw further choices. A panic breaks any property.
pub fn search(
    recipe: &Recipe,
    seeds: Range<u64>,
    mut property: impl FnMut(&Generated, &mut Choices) -> Verdict,
) -> Option<Counterexample> {
    let mut judge = |choices: &mut Choices| {
        let generated = recipe.generate(choices)?;
        let verdict = catch_unwind(AssertUnwindSafe(|| property(&generated, choices)))
            .unwrap_or_else(|panic| Verdict::Broken(format!("panicked: {}", panic_text(panic.as_ref()))));
        match verdict {
            Verdict::Kept => None,
            Verdict::Broken(message) => Some((message, generated)),
        }
    };
    for seed in seeds {
        let mut choices = Choices::from_seed(seed);
        if judge(&mut choices).is_none() {
            continue;
        }
        let shrunk = shrink(choices.made().to_vec(), |candidate| {
            judge(&mut Choices::replay(candidate.to_vec())).is_some()
        });
        let (message, generated) = judge(&mut Choices::replay(shrunk.clone()))?;
        return Some(Counterexample {
            seed,
            choices: shrunk,
            message,
            model: describe(&generated.model.model),
        });
    }
    None
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("with no message")
}

/// A model's graph in a few lines.
#[must_use]
pub fn describe(model: &Model) -> String {
    let mut text = String::new();
    for (at, graph) in model.subgraphs() {
        text.push_str(&format!("{at}:\n"));
        for (index, operand) in graph.operands.iter().enumerate() {
            text.push_str(&format!(
                "  operand {index}: {} {:?} scale {} zero point {} {:?}\n",
                operand.operand_type, operand.dimensions, operand.scale, operand.zero_point, operand.lifetime
            ));
        }
        for operation in &graph.operations {
            text.push_str(&format!(
                "  {} {:?} -> {:?}\n",
                operation.operation_type, operation.inputs, operation.outputs
            ));
        }
    }
    text
}

fn execute<I: Implementation>(
    prepared: &mut I::Prepared,
    generated: &Generated,
    form: Form,
    loop_timeout: Option<Duration>,
) -> Result<ExecutionAnswer, String> {
    prepared
        .execute(&ExecutionCall {
            form,
            request: &generated.request,
            inputs: &generated.inputs,
            outputs: generated.outputs_size,
            measure: MeasureTiming::No,
            loop_timeout,
        })
        .map_err(|breakdown| format!("{form} execution: {breakdown}"))
}

/// What is compared between executions: the outcome and, if it is good, the outputs.
fn result_of(answer: ExecutionAnswer, generated: &Generated) -> Result<Vec<Computed>, String> {
    match answer.result.outcome {
        Ok(()) => Ok(computed(generated, &answer.result.output_shapes, &answer.outputs)),
        Err(failure) => Err(failure.to_string()),
    }
}

/// One output of an execution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Computed {
    pub(super) ty: OperandType,
    dimensions: Vec<u32>,
    bytes: Vec<u8>,
}

impl Computed {
    pub(super) fn elements(&self) -> Vec<f64> {
        element::decode(self.ty, &self.bytes)
    }
}

/// The outputs in their pool. Their extents are those that were answered or, if none were, as after a fenced
/// execution, those of the request or the model. What lies behind an output that is smaller than its place is
/// nobody's.
fn computed(generated: &Generated, shapes: &[OutputShape], pool: &[u8]) -> Vec<Computed> {
    let main = &generated.model.model.main;
    let arguments = main.output_indexes.iter().zip(&generated.request.outputs);
    let outputs = arguments.enumerate().filter_map(|(number, (index, argument))| {
        let operand = main.operands.get(*index as usize)?;
        let known = known_dimensions(operand, argument);
        let dimensions = shapes
            .get(number)
            .map_or(known, |shape| shape.dimensions.as_slice());
        let elements: usize = dimensions.iter().map(|extent| *extent as usize).product();
        let from = argument.location.offset as usize;
        let length = elements * operand.operand_type.element_size();
        Some(Computed {
            ty: operand.operand_type,
            dimensions: dimensions.to_vec(),
            bytes: pool.get(from..from + length).unwrap_or_default().to_vec(),
        })
    });
    outputs.collect()
}

/// A valid model: what the implementation says it supports is what it prepares, and every way to execute
/// gives the same bytes, also the second time.
pub fn one_result_by_every_path<I: Implementation>(implementation: &mut I, generated: &Generated) -> Verdict {
    match check_paths(implementation, generated) {
        Ok(_) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

/// A valid model: every way to execute on `other`, all of its forms, each twice, gives the bytes that
/// `reference` gives synchronously, and both support the same operations. Meant for one executor seen from
/// two sides, such as in this process and behind a driver.
pub fn same_result_by_every_path<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Verdict {
    match check_same(reference, other, generated) {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

fn check_same<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Result<(), String> {
    let expected =
        check_paths(reference, generated).map_err(|message| format!("the reference: {message}"))?;
    let found = check_paths(other, generated)?;
    match (expected, found) {
        (Found::Outputs(expected), Found::Outputs(found)) if expected != found => Err(format!(
            "differs from the reference: {}",
            difference(&expected, &found)
        )),
        (Found::Unsupported, Found::Unsupported) => Ok(()),
        (_, Found::Unsupported) => Err("is not supported, although the reference supports it".into()),
        (Found::Unsupported, _) => Err("is supported, although the reference does not support it".into()),
        _ => Ok(()),
    }
}

/// Where two executions' outputs differ first.
fn difference(expected: &[Computed], found: &[Computed]) -> String {
    let outputs = expected.iter().zip(found).enumerate();
    for (number, (expected, found)) in outputs {
        if expected.dimensions != found.dimensions {
            return format!(
                "output {number} has dimensions {:?}, expected {:?}",
                found.dimensions, expected.dimensions
            );
        }
        let bytes = expected.bytes.iter().zip(&found.bytes);
        if let Some((at, (one, other))) = bytes.enumerate().find(|(_, (one, other))| one != other) {
            return format!("output {number}: byte {at} is {other}, expected {one}");
        }
    }
    format!("{} outputs, expected {}", found.len(), expected.len())
}

/// What all forms of execution gave alike.
enum Found {
    /// Nothing: the implementation says that it does not support the model, and does not prepare it.
    Unsupported,
    /// Nothing: no form that it has can execute the model.
    NotExecutable,
    /// The outputs.
    Outputs(Vec<Computed>),
}

/// Executes in every form, twice.
fn check_paths<I: Implementation>(implementation: &mut I, generated: &Generated) -> Result<Found, String> {
    let supported = implementation
        .supported_operations(&generated.model)
        .map_err(|breakdown| breakdown.to_string())?
        .map_err(|failure| format!("a valid model was refused: {failure}"))?;
    let all_supported = supported
        .iter()
        .all(|support| *support == nnhal_hal::OperationSupport::Supported);
    let prepared = implementation
        .prepare(&generated.model)
        .map_err(|breakdown| breakdown.to_string())?;
    let mut prepared = match (prepared, all_supported) {
        (Ok(prepared), true) => prepared,
        (Err(_), false) => return Ok(Found::Unsupported),
        (Err(failure), true) => return Err(format!("supported, but not prepared: {failure}")),
        (Ok(_), false) => return Err(format!("prepared, but supported is only {supported:?}")),
    };
    let forms = implementation.forms().to_vec();
    let mut first: Option<Vec<Computed>> = None;
    for form in forms.iter().chain(&forms) {
        if *form == Form::Fenced && !is_fully_specified(generated) {
            continue;
        }
        let found = result_of(execute::<I>(&mut prepared, generated, *form, None)?, generated)
            .map_err(|failure| format!("{form} execution of a valid model failed: {failure}"))?;
        match &first {
            Some(first) if *first != found => {
                return Err(format!(
                    "{form} execution gave another result than the first: {}",
                    difference(first, &found)
                ));
            }
            Some(_) => {}
            None => first = Some(found),
        }
    }
    Ok(first.map_or(Found::NotExecutable, Found::Outputs))
}

/// A valid model: another implementation's result is close to that of the reference.
///
/// Source of the limits: the HAL's criteria for random operations, for a model of one, and for random graphs.
/// Floats that are not finite or large are not compared; neither are truth values and integers that depend on
/// a rounded number, where its last bit decides.
pub fn agrees_with<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Verdict {
    match compare(reference, other, generated) {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

fn compare<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Result<(), String> {
    let expected = synchronous_result(reference, generated)?;
    let actual = synchronous_result(other, generated)?;
    let outputs = &generated.model.model.main.output_indexes;
    let limits = criteria::limits(&generated.model.model);
    expect_same_dimensions(&expected, &actual)
        .map_err(|difference| format!("differs from the reference: {difference}"))?;
    for (number, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let index = outputs.get(number).map_or(usize::MAX, |index| *index as usize);
        let Some(Some(limits)) = limits.get(index) else {
            continue;
        };
        limits
            .check(&actual.elements(), &expected.elements(), expected.ty)
            .map_err(|found| format!("output {number} differs from the reference: {found}"))?;
    }
    Ok(())
}

/// As [`agrees_with`], and the same bits if the model has no tensors of floats: what implementations promise
/// that round integers as the reference does.
pub fn gives_the_same_integers<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Verdict {
    if has_float_tensors(&generated.model.model) {
        return agrees_with(reference, other, generated);
    }
    match expect_same_bytes(reference, other, generated) {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

/// Whether any tensor of the model, or of one that it refers to, is of floats.
pub(super) fn has_float_tensors(model: &Model) -> bool {
    std::iter::once(&model.main)
        .chain(&model.referenced)
        .flat_map(|subgraph| &subgraph.operands)
        .any(|operand| {
            matches!(
                operand.operand_type,
                OperandType::TENSOR_FLOAT32 | OperandType::TENSOR_FLOAT16
            )
        })
}

fn expect_same_bytes<R: Implementation, I: Implementation>(
    reference: &mut R,
    other: &mut I,
    generated: &Generated,
) -> Result<(), String> {
    let expected = synchronous_result(reference, generated)?;
    let found = synchronous_result(other, generated)?;
    expect_same_dimensions(&expected, &found)?;
    for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let differs = expected
            .bytes
            .iter()
            .zip(&found.bytes)
            .position(|(one, other)| one != other);
        if let Some(at) = differs {
            let [expected, found] = [expected, found].map(|output| output.bytes.get(at).copied());
            return Err(format!(
                "byte {at} of output {number} is {found:?}, the reference gives {expected:?}"
            ));
        }
    }
    Ok(())
}

/// Extents are exact, whatever the values are.
pub(super) fn expect_same_dimensions(expected: &[Computed], found: &[Computed]) -> Result<(), String> {
    let differs = |(one, other): (&Computed, &Computed)| one.dimensions != other.dimensions;
    if expected.len() != found.len() || expected.iter().zip(found).any(differs) {
        let extents = |outputs: &[Computed]| -> Vec<Vec<u32>> {
            outputs.iter().map(|output| output.dimensions.clone()).collect()
        };
        return Err(format!(
            "the outputs have dimensions {:?}, expected {:?}",
            extents(found),
            extents(expected)
        ));
    }
    Ok(())
}

/// A valid model and its signed twin: both are prepared, and their outputs are exactly 128 apart.
pub fn are_coupled<I: Implementation>(
    implementation: &mut I,
    unsigned: &Generated,
    signed: &Generated,
) -> Verdict {
    let mut check = || {
        let one = synchronous_result(implementation, unsigned)?;
        let other = synchronous_result(implementation, signed)
            .map_err(|message| format!("the signed twin: {message}"))?;
        expect_same_dimensions(&one, &other)
            .map_err(|difference| format!("the signed twin: {difference}"))?;
        for (number, (one, other)) in one.iter().zip(&other).enumerate() {
            coupling::compare(one.ty, &one.bytes, &other.bytes, 0)
                .map_err(|difference| format!("output {number}: {difference}"))?;
        }
        Ok(())
    };
    match check() {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

pub(super) fn synchronous_result<I: Implementation>(
    implementation: &mut I,
    generated: &Generated,
) -> Result<Vec<Computed>, String> {
    let mut prepared = implementation
        .prepare(&generated.model)
        .map_err(|breakdown| breakdown.to_string())?
        .map_err(|failure| format!("a valid model was not prepared: {failure}"))?;
    result_of(
        execute::<I>(&mut prepared, generated, Form::Synchronous, None)?,
        generated,
    )
}

/// The dimensions of an output as far as they are known before the execution. What a generated request gives
/// says all that the model says.
fn known_dimensions<'a>(operand: &'a Operand, argument: &'a RequestArgument) -> &'a [u32] {
    if argument.dimensions.is_empty() {
        &operand.dimensions
    } else {
        &argument.dimensions
    }
}

/// Whether every output's size is known before the execution, as fenced executions need.
fn is_fully_specified(generated: &Generated) -> bool {
    let main = &generated.model.model.main;
    let mut outputs = main.output_indexes.iter().zip(&generated.request.outputs);
    outputs.all(|(index, argument)| {
        main.operands.get(*index as usize).is_some_and(|operand| {
            let dimensions = known_dimensions(operand, argument);
            let known = !dimensions.is_empty() || !operand.operand_type.is_tensor();
            known && !dimensions.contains(&0)
        })
    })
}

/// A model that breaks a rule: it must not be prepared.
pub fn is_refused<I: Implementation>(implementation: &mut I, generated: &Generated) -> Verdict {
    match implementation.prepare(&generated.model) {
        Ok(Err(_)) => Verdict::Kept,
        Ok(Ok(_)) => Verdict::Broken("a broken model was prepared".into()),
        Err(breakdown) => Verdict::Broken(breakdown.to_string()),
    }
}

/// Any model: prepared and executed or refused, but no breakdown and no panic.
pub fn does_not_crash<I: Implementation>(implementation: &mut I, generated: &Generated) -> Verdict {
    let outcome = match implementation.prepare(&generated.model) {
        Ok(Ok(mut prepared)) => {
            // A loop may no longer end.
            let limit = Some(Duration::from_millis(10));
            execute::<I>(&mut prepared, generated, Form::Synchronous, limit).map(|_| ())
        }
        Ok(Err(_)) => Ok(()),
        Err(breakdown) => Err(breakdown.to_string()),
    };
    match outcome {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}
