//! Families M01 to M23 of the HAL's model validation tests, each under its number, against validation itself:
//! every mutant of every base model is refused, and the refusal names the place and the rule. The same
//! families across the process boundary, with M21 and M22, are in `tests/tests/validation.rs`.

use std::sync::{Arc, LazyLock};

use nnhal_conformance::negative::{self, BaseModel, MUTATIONS, Mutant};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{HalVersion, Model, OperandType};

static MODELS: LazyLock<Vec<BaseModel>> = LazyLock::new(negative::base_models);

/// How many failures are told.
const MOST_TOLD: usize = 60;

fn validate(model: Model, base: &BaseModel) -> Result<ValidModel, String> {
    ValidModel::new(Arc::new(model), &*base.model.pools, &[]).map_err(|error| error.to_string())
}

/// Runs the family with this number over all base models.
fn run(number: &str) {
    let mutation = MUTATIONS
        .iter()
        .find(|mutation| mutation.number == number)
        .unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for base in MODELS.iter() {
        (mutation.mutants)(&base.model.model, &mut |mutant: Mutant| {
            count += 1;
            let (change, names) = (mutant.change.clone(), mutant.clone());
            match validate(mutant.model, base) {
                Ok(_) => wrong.push(format!("{}: {change}: accepted", base.name)),
                Err(message) if !names.is_named_in(&message) => wrong.push(format!(
                    "{}: {change}: {message:?} names none of {:?}",
                    base.name, names.places
                )),
                Err(message) if !mutation.rule.iter().any(|rule| message.contains(rule)) => {
                    wrong.push(format!("{}: {change}: {message:?} says no rule", base.name));
                }
                Err(_) => {}
            }
        });
    }
    println!(
        "{number} ({}): {count} mutants of {} models",
        mutation.what,
        MODELS.len()
    );
    assert!(count > 0, "no model could be changed so");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(MOST_TOLD)].join("\n")
    );
}

#[test]
fn base_models_are_valid() {
    for base in MODELS.iter() {
        let valid = validate(Model::clone(&base.model.model), base);
        assert!(valid.is_ok(), "{}: {}", base.name, valid.unwrap_err());
    }
}

#[test]
fn m01_execution_order_that_reads_before_writing_is_refused() {
    run("M01");
}

#[test]
fn m02_unknown_operand_type_is_refused() {
    run("M02");
}

#[test]
fn m03_scalar_with_a_dimension_is_refused() {
    run("M03");
}

/// What 1.0 and 1.1 refuse is a tensor of unknown rank since 1.2: the model needs 1.2 then.
#[test]
fn m03_tensor_without_dimensions_needs_1_2() {
    for base in MODELS.iter() {
        for (at, operand) in base.model.model.main.operands.iter().enumerate() {
            if operand.operand_type == OperandType::TENSOR_FLOAT32 {
                let mut model = Model::clone(&base.model.model);
                model.main.operands[at].dimensions.clear();
                if let Ok(valid) = validate(model, base) {
                    assert!(valid.version() >= HalVersion::V1_2, "{}", base.name);
                }
            }
        }
    }
}

#[test]
fn m04_scale_that_the_type_cannot_have_is_refused() {
    run("M04");
}

#[test]
fn m05_zero_point_that_the_type_cannot_have_is_refused() {
    run("M05");
}

#[test]
fn m06_lifetime_that_contradicts_the_writers_is_refused() {
    run("M06");
}

#[test]
fn m07_lifetime_that_contradicts_the_index_lists_is_refused() {
    run("M07");
}

#[test]
fn m08_wrong_number_of_consumers_is_refused() {
    run("M08");
}

#[test]
fn m09_second_writer_is_refused() {
    run("M09");
}

#[test]
fn m10_operand_type_that_the_operation_does_not_take_is_refused() {
    run("M10");
}

#[test]
fn m11_unknown_operation_is_refused() {
    run("M11");
}

#[test]
fn m12_input_past_the_operands_is_refused() {
    run("M12");
}

#[test]
fn m13_output_past_the_operands_is_refused() {
    run("M13");
}

#[test]
fn m14_operand_that_nobody_writes_any_more_is_refused() {
    run("M14");
}

#[test]
fn m15_missing_operand_is_refused() {
    run("M15");
}

#[test]
fn m16_missing_operation_is_refused() {
    run("M16");
}

#[test]
fn m17_missing_input_is_refused() {
    run("M17");
}

#[test]
fn m18_missing_output_is_refused() {
    run("M18");
}

#[test]
fn m19_input_too_many_is_refused() {
    run("M19");
}

#[test]
fn m20_output_too_many_is_refused() {
    run("M20");
}

/// M21 and M22 are no property of a model; a driver's answer is tested across processes.
#[test]
fn m21_m22_unknown_preference_and_priority_have_no_value() {
    use nnhal_hal::{ExecutionPreference, Priority};
    for code in [-1, 3] {
        assert_eq!(ExecutionPreference::from_code(code), None);
        assert_eq!(Priority::from_code(code), None);
    }
}

#[test]
fn m23_cycle_is_refused() {
    let model = negative::cycle();
    let error = ValidModel::new(model, &nnhal_hal::NoPools, &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("operation 0 (ADD)") && error.contains("before an operation has written it"),
        "{error}"
    );
}
