//! The procedures notice what an implementation does wrong.

use nnhal::wire::ExecutionResult;
use nnhal_conformance::corpus::Specification;
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools, PreparedModel,
};
use nnhal_conformance::in_process::{InProcess, InProcessModel};
use nnhal_conformance::procedure::{self, Outcome};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OperationSupport, OutputShape, Timing};

/// What happens to answers on their way.
type Tamper = fn(&ExecutionCall<'_>, &mut ExecutionAnswer);

/// The executor, with answers tampered with.
struct Tampered {
    tamper: Tamper,
    unsupported: Option<&'static str>,
    breaks_down: bool,
}

struct TamperedModel {
    model: InProcessModel,
    tamper: Tamper,
    breaks_down: bool,
}

impl Implementation for Tampered {
    type Prepared = TamperedModel;

    fn forms(&self) -> &[Form] {
        &[Form::Synchronous]
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        match self.unsupported {
            None => InProcess::default().supported_operations(model),
            Some(reason) => Ok(Ok(vec![OperationSupport::Unsupported {
                reason: reason.to_owned(),
            }])),
        }
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<TamperedModel> {
        let prepared = InProcess::default().prepare(model)?;
        Ok(prepared.map(|model| TamperedModel {
            model,
            tamper: self.tamper,
            breaks_down: self.breaks_down,
        }))
    }
}

impl PreparedModel for TamperedModel {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        if self.breaks_down {
            return Err(Breakdown("the worker is dead".into()));
        }
        let mut answer = self.model.execute(call)?;
        (self.tamper)(call, &mut answer);
        Ok(answer)
    }
}

/// `op1 + op2`, with `suites` to go through and `expected` as the sum.
fn addition(suites: &str, expect_failure: bool, expected: &str) -> Specification {
    let text = format!(
        r#"{{"format":1,"spec":"add","version":"V1_0","buffers":[[1,2],[3,4],[0],{expected}],
        "cases":[{{"name":"add","minVersion":"V1_0","relaxed":false,"expectFailure":{expect_failure},
        "multinomialTolerance":0,"suites":{suites},
        "main":{{"name":"","inputs":[0,1],"outputs":[3],"operands":[
        {{"name":"op1","type":"TENSOR_QUANT8_ASYMM","dims":[2],"scale":1,"lifetime":"SUBGRAPH_INPUT","data":0}},
        {{"name":"op2","type":"TENSOR_QUANT8_ASYMM","dims":[2],"scale":1,"lifetime":"SUBGRAPH_INPUT","data":1}},
        {{"name":"act","type":"INT32","dims":[],"lifetime":"CONSTANT_REFERENCE","data":2}},
        {{"name":"op3","type":"TENSOR_QUANT8_ASYMM","dims":[2],"scale":1,"lifetime":"SUBGRAPH_OUTPUT","data":3}}],
        "operations":[{{"op":"ADD","inputs":[0,1,2],"outputs":[3]}}]}},"referenced":[]}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn run(specification: &Specification, implementation: &mut Tampered) -> Outcome {
    procedure::run(implementation, specification, &specification.cases[0])
}

fn tampered(tamper: Tamper) -> Tampered {
    Tampered {
        tamper,
        unsupported: None,
        breaks_down: false,
    }
}

fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

const EVERY_SUITE: &str = r#"["general","dynamic_output_shape","quant8_coupling"]"#;

#[test]
fn right_answers_pass_every_suite() {
    let specification = addition(EVERY_SUITE, false, "[4,6]");
    assert_eq!(run(&specification, &mut tampered(|_, _| ())), Outcome::Passed);
}

#[test]
fn wrong_values_fail_with_the_first_of_them() {
    let specification = addition(EVERY_SUITE, false, "[4,9]");
    let reason = reason(run(&specification, &mut tampered(|_, _| ())));
    assert!(reason.contains("[1] is 6, expected 9"), "{reason}");
}

#[test]
fn every_false_report_fails() {
    let faults: &[(Tamper, &str)] = &[
        (
            |_, answer| {
                answer.result = ExecutionResult::failed(Failure::general("no"));
            },
            "GENERAL_FAILURE: no",
        ),
        (
            |_, answer| answer.result.output_shapes.push(OutputShape::default()),
            "2 output shapes",
        ),
        (
            |_, answer| {
                answer
                    .result
                    .output_shapes
                    .iter_mut()
                    .for_each(|shape| shape.is_sufficient = false);
            },
            "too small",
        ),
        (
            |_, answer| {
                answer
                    .result
                    .output_shapes
                    .iter_mut()
                    .for_each(|shape| shape.dimensions = vec![2, 1]);
            },
            "dimensions [2, 1], expected [2]",
        ),
        (
            |call, answer| {
                if call.measure == MeasureTiming::No {
                    answer.result.timing.time_in_driver_us = 1;
                }
            },
            "none was asked for",
        ),
        (
            |_, answer| {
                answer.result.timing = Timing {
                    time_on_device_us: 9,
                    time_in_driver_us: 8,
                };
            },
            "none was asked for",
        ),
    ];
    let specification = addition(r#"["general"]"#, false, "[4,6]");
    for (tamper, expected) in faults {
        let reason = reason(run(&specification, &mut tampered(*tamper)));
        assert!(reason.contains(expected), "{reason:?} does not say {expected:?}");
    }
}

#[test]
fn output_that_is_not_written_where_its_dimensions_come_with_the_request_fails() {
    let mut forgetful = tampered(|call, answer| {
        if !call.request.outputs[0].dimensions.is_empty() {
            answer.outputs.fill(0);
        }
    });
    let specification = addition(r#"["general"]"#, false, "[4,6]");
    let reason = reason(run(&specification, &mut forgetful));
    assert!(
        reason.contains("with dimensions given at the request") && reason.contains("[0] is 0, expected 4"),
        "{reason}"
    );
}

#[test]
fn signed_result_one_step_from_the_unsigned_one_fails() {
    let mut signed_is_off = tampered(|call, answer| {
        // The signed model's inputs are lowered bytes.
        if call.inputs[0] >= 0x80 {
            answer.outputs[0] = answer.outputs[0].wrapping_add(1);
        }
    });
    let specification = addition(r#"["general","quant8_coupling"]"#, false, "[4,6]");
    let reason = reason(run(&specification, &mut signed_is_off));
    assert!(
        reason.contains("element 0 is 4 if unsigned, -123 if signed"),
        "{reason}"
    );
}

#[test]
fn missing_shapes_fail_only_where_dimensions_are_unspecified() {
    let mut silent = tampered(|_, answer| answer.result.output_shapes.clear());
    let general = addition(r#"["general"]"#, false, "[4,6]");
    assert_eq!(run(&general, &mut silent), Outcome::Passed);
    let dynamic = addition(r#"["dynamic_output_shape"]"#, false, "[4,6]");
    assert!(reason(run(&dynamic, &mut silent)).contains("no output shapes"));
}

#[test]
fn g05_general_failure_with_unspecified_outputs_skips() {
    let mut fixed_only = tampered(|_, answer| {
        answer.result = ExecutionResult::failed(Failure::general("only fixed outputs"));
    });
    let specification = addition(r#"["dynamic_output_shape"]"#, false, "[4,6]");
    let outcome = run(&specification, &mut fixed_only);
    assert!(
        matches!(&outcome, Outcome::Skipped { reason } if reason.contains("only fixed outputs")),
        "{outcome:?}"
    );
}

#[test]
fn buffer_that_is_too_small_must_be_told_by_its_status() {
    let mut wrong_status = tampered(|_, answer| {
        if answer.result.status() == ErrorStatus::OutputInsufficientSize {
            answer.result.outcome = Err(Failure::invalid_argument("small"));
        }
    });
    let specification = addition(r#"["dynamic_output_shape"]"#, false, "[4,6]");
    let reason = reason(run(&specification, &mut wrong_status));
    assert!(
        reason.contains("OUTPUT_INSUFFICIENT_SIZE is expected"),
        "{reason}"
    );
}

#[test]
fn success_fails_a_case_that_must_fail() {
    let specification = addition(r#"["expect_failure"]"#, true, "[4,6]");
    assert!(reason(run(&specification, &mut tampered(|_, _| ()))).contains("an error is expected"));
    let mut failing = tampered(|_, answer| {
        answer.result = ExecutionResult::failed(Failure::general("as it should"));
    });
    assert_eq!(run(&specification, &mut failing), Outcome::Passed);
}

#[test]
fn breakdown_fails_even_a_case_that_must_fail() {
    let specification = addition(r#"["expect_failure"]"#, true, "[4,6]");
    let mut dead = Tampered {
        breaks_down: true,
        ..tampered(|_, _| ())
    };
    assert_eq!(reason(run(&specification, &mut dead)), "the worker is dead");
}

#[test]
fn endless_loop_must_miss_its_deadline() {
    let specification = addition(r#"["loop_timeout"]"#, true, "[4,6]");
    assert!(reason(run(&specification, &mut tampered(|_, _| ()))).contains("a missed deadline is expected"));
}

#[test]
fn unsupported_operation_skips_with_its_reason() {
    let specification = addition(EVERY_SUITE, false, "[4,6]");
    let mut refusing = Tampered {
        unsupported: Some("no adder"),
        ..tampered(|_, _| ())
    };
    let expected = Outcome::Skipped {
        reason: "ADD: no adder".into(),
    };
    assert_eq!(run(&specification, &mut refusing), expected);
}
