//! The procedures of the corpus: what is done with a case, and what must come of it.
//!
//! Source: the corpus' description, section 5, which sums up the HAL's own driver tests.

use std::sync::Arc;
use std::time::Duration;

use nnhal::wire::ExecutionResult;
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ErrorStatus, Failure, HalVersion, MeasureTiming, OperationSupport, OperationType, Request, Timing,
};

use crate::accuracy;
use crate::corpus::{Case, Specification, Suite};
use crate::coupling;
use crate::implementation::{
    Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools, PreparedModel,
};
use crate::instance::{Instance, Variation};

/// The limit that an endless loop is given.
const ENDLESS_LOOP_TIMEOUT: Duration = Duration::from_millis(1);

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It kept every rule of every procedure.
    Passed,
    /// It broke one.
    Failed {
        /// Which and how.
        reason: String,
    },
    /// The implementation says that it cannot run it.
    Skipped {
        /// Why, in its words.
        reason: String,
    },
}

/// Why a procedure ended early.
#[derive(Debug)]
enum Stop {
    Failed(String),
    Skipped(String),
}

impl Stop {
    fn failed<T>(reason: impl Into<String>) -> Result<T, Stop> {
        Err(Stop::Failed(reason.into()))
    }

    fn within(self, what: &str) -> Stop {
        match self {
            Stop::Failed(reason) => Stop::Failed(format!("{what}: {reason}")),
            Stop::Skipped(reason) => Stop::Skipped(format!("{what}: {reason}")),
        }
    }
}

impl From<Breakdown> for Stop {
    fn from(breakdown: Breakdown) -> Stop {
        Stop::Failed(breakdown.0)
    }
}

/// Takes `case` through all its procedures, up to the first that does not pass.
pub fn run<I: Implementation>(implementation: &mut I, specification: &Specification, case: &Case) -> Outcome {
    let run = CaseRun {
        implementation,
        specification,
        case,
    };
    match run.all_suites() {
        Ok(()) => Outcome::Passed,
        Err(Stop::Failed(reason)) => Outcome::Failed { reason },
        Err(Stop::Skipped(reason)) => Outcome::Skipped { reason },
    }
}

struct CaseRun<'a, I> {
    implementation: &'a mut I,
    specification: &'a Specification,
    case: &'a Case,
}

impl<I: Implementation> CaseRun<'_, I> {
    fn all_suites(mut self) -> Result<(), Stop> {
        self.require_support()?;
        if self.case.suites.is_empty() {
            return Stop::failed("the case names no procedure");
        }
        for suite in &self.case.suites {
            match suite {
                Suite::General => self
                    .general(Variation::default())
                    .and_then(|()| self.given_with_request()),
                Suite::DynamicOutputShape => self
                    .dynamic_output_shape()
                    .map_err(|stop| stop.within("unspecified output dimensions")),
                // Twins of signed bytes came with 1.3.
                Suite::Quant8Coupling if self.implementation.hal_version() < HalVersion::V1_3 => Ok(()),
                Suite::Quant8Coupling => self
                    .quant8_coupling()
                    .map_err(|stop| stop.within("with signed bytes")),
                Suite::ExpectFailure => self.expect_failure(),
                Suite::LoopTimeout => self.loop_timeout(),
            }?;
        }
        Ok(())
    }

    fn instance(&self, variation: Variation) -> Result<Instance, Stop> {
        Instance::new(self.specification, self.case, variation)
            .map_err(|error| Stop::Failed(error.to_string()))
    }

    /// Skips a model that the implementation does not support. One that it refuses outright as invalid goes
    /// on to its procedure.
    fn require_support(&mut self) -> Result<(), Stop> {
        let instance = self.instance(Variation::default())?;
        match self.unsupported(&instance)? {
            None => Ok(()),
            Some(reason) => Err(Stop::Skipped(reason)),
        }
    }

    /// The reason for the first operation that is not supported.
    fn unsupported(&mut self, instance: &Instance) -> Result<Option<String>, Stop> {
        let Ok(answers) = self.implementation.supported_operations(&instance.model)? else {
            return Ok(None);
        };
        let operations = &instance.model.model.main.operations;
        if answers.len() != operations.len() {
            return Stop::failed(format!(
                "supported operations: {} answers for {} operations",
                answers.len(),
                operations.len()
            ));
        }
        let refused = answers
            .into_iter()
            .zip(operations)
            .find_map(|(answer, operation)| match answer {
                OperationSupport::Supported => None,
                OperationSupport::Unsupported { reason } => {
                    Some(format!("{}: {reason}", operation.operation_type))
                }
            });
        Ok(refused)
    }

    fn prepare(&mut self, instance: &Instance) -> Result<I::Prepared, Stop> {
        self.implementation
            .prepare(&instance.model)?
            .map_err(|failure| Stop::Failed(format!("preparing: {failure}")))
    }

    fn forms(&self) -> Vec<Form> {
        self.implementation.forms().to_vec()
    }

    fn general(&mut self, variation: Variation) -> Result<(), Stop> {
        let instance = self.instance(variation)?;
        let mut prepared = self.prepare(&instance)?;
        for form in self.forms() {
            for measure in [MeasureTiming::No, MeasureTiming::Yes] {
                let answer = prepared.execute(&call(&instance, &instance.request, form, measure))?;
                let checked = if form == Form::Fenced && instance.has_zero_sized_output() {
                    refused_as_invalid(&answer.result)
                } else {
                    self.check_success(&instance, &answer, measure)
                };
                checked.map_err(|stop| stop.within(&format!("{form} execution")))?;
            }
        }
        Ok(())
    }

    /// The model leaves the extents of inputs and outputs open, and the request gives them: each form
    /// succeeds as with a model that says them, where such a model is valid.
    fn given_with_request(&mut self) -> Result<(), Stop> {
        let variation = Variation {
            given_with_request: true,
            ..Variation::default()
        };
        let instance = self.instance(variation)?;
        let ModelWithPools { model, pools } = &instance.model;
        let is_valid = ValidModel::new(Arc::clone(model), &**pools, &[]).is_ok();
        // An extent of 0 in a request is one that is not given.
        if instance.has_zero_sized_output() || !is_valid || !self.finds_dimensions() {
            return Ok(());
        }
        let within = |stop: Stop| stop.within("with dimensions given at the request");
        if let Some(reason) = self.unsupported(&instance)? {
            return Stop::failed(format!("is not supported: {reason}")).map_err(within);
        }
        let mut prepared = self.prepare(&instance).map_err(within)?;
        for form in self.forms() {
            let answer = prepared.execute(&call(&instance, &instance.request, form, MeasureTiming::No))?;
            self.check_success(&instance, &answer, MeasureTiming::No)
                .map_err(|stop| within(stop.within(&format!("{form} execution"))))?;
        }
        Ok(())
    }

    fn check_success(
        &self,
        instance: &Instance,
        answer: &ExecutionAnswer,
        measure: MeasureTiming,
    ) -> Result<(), Stop> {
        if let Err(failure) = &answer.result.outcome {
            return Stop::failed(failure.to_string());
        }
        check_timing(answer.result.timing, measure)?;
        check_shapes(instance, &answer.result)?;
        self.check_values(instance, &answer.outputs)
    }

    fn check_values(&self, instance: &Instance, pool: &[u8]) -> Result<(), Stop> {
        for (index, expected) in instance.outputs.iter().enumerate() {
            if expected.ignored && self.case.multinomial_tolerance == 0.0 {
                continue;
            }
            let Some(bytes) = instance.output_bytes(index, pool) else {
                return Stop::failed(format!("output {index} is outside of its pool"));
            };
            let actual = crate::element::decode(expected.operand_type, bytes);
            let compared = if self.case.multinomial_tolerance > 0.0 {
                let logarithms = first_input(instance);
                accuracy::compare_frequencies(&actual, &logarithms, self.case.multinomial_tolerance)
            } else {
                accuracy::compare(&actual, &expected.values, expected.tolerance)
            };
            if let Err(difference) = compared {
                return Stop::failed(format!(
                    "output {index} ({}{:?}): {difference}",
                    expected.operand_type, expected.dimensions
                ));
            }
        }
        Ok(())
    }

    fn dynamic_output_shape(&mut self) -> Result<(), Stop> {
        let instance = self.instance(Variation {
            unspecified_outputs: true,
            ..Variation::default()
        })?;
        let mut prepared = self.prepare(&instance)?;
        let short = instance.short_of_one_byte();
        for form in self.forms() {
            for measure in [MeasureTiming::No, MeasureTiming::Yes] {
                let answer = prepared.execute(&call(&instance, &instance.request, form, measure))?;
                self.check_unspecified(&instance, &answer, form, measure)
                    .map_err(|stop| stop.within(&format!("{form} execution")))?;
                let Some(short) = &short else { continue };
                let answer = prepared.execute(&call(&instance, short, form, measure))?;
                if !self.finds_dimensions() {
                    refused_as_invalid(&answer.result)?;
                    continue;
                }
                check_insufficient(&instance, &answer, form).map_err(|stop| {
                    stop.within(&format!("{form} execution with an output short of one byte"))
                })?;
            }
        }
        Ok(())
    }

    /// Whether outputs may have dimensions that nobody knows before they are computed.
    fn finds_dimensions(&self) -> bool {
        self.implementation.hal_version() >= HalVersion::V1_2
    }

    fn check_unspecified(
        &self,
        instance: &Instance,
        answer: &ExecutionAnswer,
        form: Form,
        measure: MeasureTiming,
    ) -> Result<(), Stop> {
        if form == Form::Fenced || !self.finds_dimensions() {
            return refused_as_invalid(&answer.result);
        }
        if let Err(Failure {
            status: ErrorStatus::GeneralFailure,
            detail,
            ..
        }) = &answer.result.outcome
        {
            return Err(Stop::Skipped(format!(
                "{}: {detail}",
                ErrorStatus::GeneralFailure
            )));
        }
        self.check_success(instance, answer, measure)?;
        if answer.result.output_shapes.is_empty() {
            return Stop::failed("no output shapes are reported");
        }
        Ok(())
    }

    fn quant8_coupling(&mut self) -> Result<(), Stop> {
        let variation = Variation {
            signed: true,
            ..Variation::default()
        };
        // The unsigned model is supported, or the case would have been skipped.
        let instance = self.instance(variation)?;
        if let Some(reason) = self.unsupported(&instance)? {
            return Stop::failed(format!(
                "is not supported although the unsigned model is: {reason}"
            ));
        }
        self.general(variation)?;
        let unsigned = self.instance(Variation::default())?;
        self.check_coupling(&unsigned, &instance)
    }

    /// Beyond that both are right: the outputs of a model and its signed twin are exactly 128 apart.
    fn check_coupling(&mut self, unsigned: &Instance, signed: &Instance) -> Result<(), Stop> {
        let form = self
            .forms()
            .into_iter()
            .find(|form| *form != Form::Fenced || !unsigned.has_zero_sized_output());
        let Some(form) = form else {
            return Ok(());
        };
        let mut pools = Vec::new();
        for instance in [unsigned, signed] {
            let mut prepared = self.prepare(instance)?;
            let answer = prepared.execute(&call(instance, &instance.request, form, MeasureTiming::No))?;
            if let Err(failure) = answer.result.outcome {
                return Stop::failed(failure.to_string());
            }
            pools.push(answer.outputs);
        }
        let operations = &unsigned.model.model.main.operations;
        let most_steps = coupling::most_steps(operations.iter().map(|operation| operation.operation_type));
        for (index, output) in unsigned.outputs.iter().enumerate() {
            let bytes = |instance: &Instance, pool: &[u8]| {
                instance
                    .output_bytes(index, pool)
                    .map(<[u8]>::to_vec)
                    .unwrap_or_default()
            };
            let (one, other) = (bytes(unsigned, &pools[0]), bytes(signed, &pools[1]));
            coupling::compare(output.operand_type, &one, &other, most_steps)
                .map_err(|difference| Stop::Failed(format!("output {index}: {difference}")))?;
        }
        Ok(())
    }

    fn expect_failure(&mut self) -> Result<(), Stop> {
        let instance = self.instance(Variation::default())?;
        let Ok(mut prepared) = self.implementation.prepare(&instance.model)? else {
            return Ok(());
        };
        for form in self.forms() {
            let answer = prepared.execute(&call(&instance, &instance.request, form, MeasureTiming::Yes))?;
            check_failed(&answer.result).map_err(|stop| stop.within(&format!("{form} execution")))?;
        }
        Ok(())
    }

    fn loop_timeout(&mut self) -> Result<(), Stop> {
        let instance = self.instance(Variation::default())?;
        let mut prepared = self.prepare(&instance)?;
        for form in self.forms() {
            let mut call = call(&instance, &instance.request, form, MeasureTiming::No);
            call.loop_timeout = Some(ENDLESS_LOOP_TIMEOUT);
            let result = prepared.execute(&call)?.result;
            let status = result.status();
            if !matches!(
                status,
                ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent
            ) {
                return Stop::failed(format!(
                    "{form} execution of an endless loop ends with {}, a missed deadline is expected",
                    describe(&result)
                ));
            }
        }
        Ok(())
    }
}

fn call<'a>(
    instance: &'a Instance,
    request: &'a Request,
    form: Form,
    measure: MeasureTiming,
) -> ExecutionCall<'a> {
    ExecutionCall {
        form,
        request,
        inputs: &instance.inputs,
        outputs: instance.outputs_size,
        measure,
        loop_timeout: None,
    }
}

fn describe(result: &ExecutionResult) -> String {
    match &result.outcome {
        Ok(()) => "success".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

fn check_timing(timing: Timing, measure: MeasureTiming) -> Result<(), Stop> {
    if measure == MeasureTiming::No {
        return if timing == Timing::NONE {
            Ok(())
        } else {
            Stop::failed(format!("{timing:?} is reported although none was asked for"))
        };
    }
    let Timing {
        time_on_device_us: device,
        time_in_driver_us: driver,
    } = timing;
    if device != u64::MAX && driver != u64::MAX && device > driver {
        return Stop::failed(format!(
            "time on device, {device} us, is above time in driver, {driver} us"
        ));
    }
    Ok(())
}

/// Shapes are either not reported at all, or complete, sufficient and right.
fn check_shapes(instance: &Instance, result: &ExecutionResult) -> Result<(), Stop> {
    let shapes = &result.output_shapes;
    if shapes.is_empty() {
        return Ok(());
    }
    check_shape_count(instance, result)?;
    for (index, (shape, expected)) in shapes.iter().zip(&instance.outputs).enumerate() {
        if !shape.is_sufficient {
            return Stop::failed(format!("output {index} is reported as too small"));
        }
        if shape.dimensions != expected.dimensions {
            return Stop::failed(format!(
                "output {index} has dimensions {:?}, expected {:?}",
                shape.dimensions, expected.dimensions
            ));
        }
    }
    Ok(())
}

fn check_shape_count(instance: &Instance, result: &ExecutionResult) -> Result<(), Stop> {
    let (count, expected) = (result.output_shapes.len(), instance.outputs.len());
    if count == expected {
        Ok(())
    } else {
        Stop::failed(format!(
            "{count} output shapes are reported for {expected} outputs"
        ))
    }
}

fn check_insufficient(instance: &Instance, answer: &ExecutionAnswer, form: Form) -> Result<(), Stop> {
    let result = &answer.result;
    if form == Form::Fenced {
        return refused_as_invalid(result);
    }
    if result.status() == ErrorStatus::GeneralFailure {
        return Err(Stop::Skipped(describe(result)));
    }
    if result.status() != ErrorStatus::OutputInsufficientSize {
        return Stop::failed(format!(
            "ends with {}, {} is expected",
            describe(result),
            ErrorStatus::OutputInsufficientSize
        ));
    }
    if result.timing != Timing::NONE {
        return Stop::failed("timing is reported although the execution failed");
    }
    check_shape_count(instance, result)?;
    for (index, (shape, expected)) in result.output_shapes.iter().zip(&instance.outputs).enumerate() {
        if shape.is_sufficient != (index != 0) {
            return Stop::failed(format!(
                "output {index} is reported as {}",
                if shape.is_sufficient {
                    "sufficient"
                } else {
                    "too small"
                }
            ));
        }
        let agrees = shape.dimensions.len() == expected.dimensions.len()
            && shape
                .dimensions
                .iter()
                .zip(&expected.dimensions)
                .all(|(dimension, expected)| *dimension == 0 || dimension == expected);
        if !agrees {
            return Stop::failed(format!(
                "output {index} has dimensions {:?}, expected {:?}",
                shape.dimensions, expected.dimensions
            ));
        }
    }
    Ok(())
}

fn check_failed(result: &ExecutionResult) -> Result<(), Stop> {
    if result.outcome.is_ok() {
        return Stop::failed("succeeds, an error is expected");
    }
    if !result.output_shapes.is_empty() || result.timing != Timing::NONE {
        return Stop::failed("fails as expected, but reports output shapes or timing");
    }
    Ok(())
}

fn refused_as_invalid(result: &ExecutionResult) -> Result<(), Stop> {
    if result.status() == ErrorStatus::InvalidArgument {
        return check_failed(result);
    }
    Stop::failed(format!(
        "ends with {}, {} is expected",
        describe(result),
        ErrorStatus::InvalidArgument
    ))
}

/// The values that the first operation's first input is fed.
fn first_input(instance: &Instance) -> Vec<f64> {
    let main = &instance.model.model.main;
    let operand = main
        .operations
        .iter()
        .find(|operation| operation.operation_type == OperationType::RANDOM_MULTINOMIAL)
        .and_then(|operation| operation.inputs.first())
        .and_then(|index| main.input_indexes.iter().position(|input| input == index));
    let Some(position) = operand else {
        return Vec::new();
    };
    let location = instance.request.inputs[position].location;
    let operand = &main.operands[main.input_indexes[position] as usize];
    let range = location.offset as usize..(location.offset + location.length) as usize;
    crate::element::decode(
        operand.operand_type,
        instance.inputs.get(range).unwrap_or_default(),
    )
}
