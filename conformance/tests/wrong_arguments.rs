//! Arguments of the extension's operations with wrong values or dimensions. With the model or by the
//! execution, each is refused, with the prescribed status and the operation's place, on both kernel sets.

use std::collections::BTreeMap;

use nnhal_conformance::generator::choices::Choices;
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_conformance::implementation::{ExecutionCall, Form, Implementation as _, PreparedModel as _};
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::negative::{WrongArgument, wrong_shapes, wrong_values};
use nnhal_cpu::KernelSet;
use nnhal_hal::ops::{Param, Ty};
use nnhal_hal::{ErrorStatus, MeasureTiming, OperandType, OperationType, ops, tflite};

/// Models of each operation.
const MODELS: u64 = 60;

/// How many failures are told.
const MOST_TOLD: usize = 60;

/// Where a wrong argument is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Model,
    Execution,
}

fn refused(generated: &Generated, kernels: KernelSet) -> Result<Stage, String> {
    let prepared = InProcess::new(kernels).prepare(&generated.model);
    let (stage, failure) = match prepared.map_err(|breakdown| breakdown.to_string())? {
        Err(failure) => (Stage::Model, failure),
        Ok(mut prepared) => {
            let answer = prepared.execute(&ExecutionCall {
                form: Form::Synchronous,
                request: &generated.request,
                inputs: &generated.inputs,
                outputs: generated.outputs_size,
                measure: MeasureTiming::No,
                loop_timeout: None,
            });
            let outcome = answer.map_err(|breakdown| breakdown.to_string())?.result.outcome;
            let failure = outcome.err().ok_or("is taken")?;
            (Stage::Execution, failure)
        }
    };
    let prescribed = match stage {
        Stage::Model => ErrorStatus::InvalidArgument,
        Stage::Execution => ErrorStatus::GeneralFailure,
    };
    if failure.status == prescribed && failure.detail.contains("operation 0") {
        Ok(stage)
    } else {
        Err(format!("refused at the {stage:?} with {failure}"))
    }
}

/// Makes wrong arguments of the extension's operations, all of which must be refused. Tells the operations
/// that have none.
fn run(make: fn(&Generated, &mut dyn FnMut(WrongArgument))) -> Vec<OperationType> {
    let mut stages = BTreeMap::new();
    let (mut count, mut wrong, mut without) = (0, Vec::new(), Vec::new());
    for operation in ops::tflite::entries().map(|entry| entry.operation) {
        let recipe = Recipe::single(operation).unwrap();
        let before = count;
        for seed in 0..MODELS {
            let Some(generated) = recipe.generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            make(&generated, &mut |argument| {
                count += 1;
                for kernels in [KernelSet::Reference, KernelSet::Fast] {
                    match refused(&argument.generated, kernels) {
                        Ok(stage) => *stages.entry(stage).or_insert(0) += 1,
                        Err(message) => wrong.push(format!(
                            "{operation}, seed {seed}, {kernels:?}: {}: {message}",
                            argument.change
                        )),
                    }
                }
            });
        }
        if count == before {
            without.push(operation);
        }
    }
    println!("{count} wrong arguments: {stages:?}, none of {without:?}");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(MOST_TOLD)].join("\n")
    );
    assert_eq!(stages.len(), 2, "{stages:?}");
    without
}

fn params(operation: OperationType) -> impl Iterator<Item = &'static Param> {
    let forms = ops::entry(operation).map_or(&[][..], |entry| entry.forms);
    forms.iter().flat_map(|form| form.inputs)
}

#[test]
fn wrong_values_are_refused() {
    // Of data any value is right, and of flags. A start is cut to where there is room; boundaries are floats.
    // Extents that broadcast are what they are, as LiteRT takes them.
    let any_is_right = [
        tflite::DYNAMIC_UPDATE_SLICE,
        tflite::BUCKETIZE,
        tflite::BROADCAST_ARGS,
    ];
    let is_data_or_flag = |param: &Param| match param.ty {
        Ty::Is(ty) => ty == OperandType::BOOL || ty == OperandType::TENSOR_BOOL8,
        Ty::Var(_) | Ty::AnyOf(_) => true,
    };
    for operation in run(wrong_values) {
        let of_data = params(operation).all(is_data_or_flag);
        assert!(of_data || any_is_right.contains(&operation), "{operation}");
    }
}

#[test]
fn wrong_dimensions_are_refused() {
    // One tensor alone may have any, and so may indices.
    let any_are_right = [tflite::GATHER, tflite::GATHER_ND];
    let is_scalar = |param: &Param| matches!(param.ty, Ty::Is(ty) if !ty.is_tensor());
    for operation in run(wrong_shapes) {
        let tensors = params(operation).filter(|param| !is_scalar(param)).count();
        assert!(tensors == 1 || any_are_right.contains(&operation), "{operation}");
    }
}
