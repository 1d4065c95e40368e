//! Models taken down to older HAL versions and up again: random ones and those of the corpus.

use std::sync::Arc;

use nnhal_conformance::corpus::{Corpus, Specification};
use nnhal_conformance::generator::property::{self, Verdict};
use nnhal_conformance::generator::{Generated, Recipe, mutation};
use nnhal_conformance::implementation::{
    ExecutionAnswer, ExecutionCall, Form, Implementation as _, ModelWithPools, PreparedModel as _,
};
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::instance::{Instance, Variation};
use nnhal_hal::validate::{Slice, ValidModel};
use nnhal_hal::versions::{Downcast, Inexpressible};
use nnhal_hal::{HalVersion, MeasureTiming, Model, OperationType};

const OLDER: [HalVersion; 3] = [HalVersion::V1_0, HalVersion::V1_1, HalVersion::V1_2];

fn valid(model: &Model, original: &ModelWithPools) -> Result<ValidModel, String> {
    ValidModel::new(Arc::new(model.clone()), &*original.pools, &[]).map_err(|error| error.to_string())
}

type Conversion<T> = Result<Downcast<T>, Inexpressible>;

/// A model of an older version taken up again, with what was lost on the way down.
fn up<T>(older: Conversion<T>) -> Result<Downcast<Model>, String>
where
    Model: From<T>,
{
    let older = older.map_err(|error| error.to_string())?;
    Ok(Downcast {
        value: older.value.into(),
        losses: older.losses,
    })
}

/// A part in the form of its version and up again.
fn down_and_up(slice: Slice, version: HalVersion) -> Result<Downcast<Model>, String> {
    match version {
        HalVersion::V1_0 => up(slice.into_model_1_0()),
        HalVersion::V1_1 => up(slice.into_model_1_1()),
        _ => up(slice.into_model_1_2()),
    }
}

/// The whole model in the form of a version and up again.
fn whole_down_and_up(model: &ValidModel, version: HalVersion) -> Result<Downcast<Model>, String> {
    match version {
        HalVersion::V1_0 => up(model.to_v1_0()),
        HalVersion::V1_1 => up(model.to_v1_1()),
        _ => up(model.to_v1_2()),
    }
}

/// The first version of a model if it need not be computed with relaxed floats.
fn strict_version(model: &ModelWithPools) -> Result<HalVersion, String> {
    let mut strict = (*model.model).clone();
    strict.relax_computation_float32_to_float16 = false;
    Ok(valid(&strict, model)?.version())
}

/// What must hold of a valid model and an older version.
fn check(original: &ModelWithPools, version: HalVersion) -> Result<(), String> {
    let model = valid(&original.model, original)?;
    let compliance = model.compliant_with(version);
    let is_compliant = strict_version(original)? <= version;
    if compliance.is_compliant() != is_compliant {
        return Err(format!("is of {}: {compliance:?}", model.version()));
    }
    let Some(slice) = model.slice(version) else {
        if is_compliant || compliance.operations.iter().any(Option::is_none) {
            return Err("there is no part of it though some operations can be expressed".into());
        }
        return Ok(());
    };
    let kept: Vec<usize> = (0..compliance.operations.len())
        .filter(|&index| compliance.operations[index].is_none())
        .collect();
    if slice.operations != kept {
        return Err(format!(
            "the part has operations {:?} instead of {kept:?}",
            slice.operations
        ));
    }
    let part = valid(&slice.model, original).map_err(|error| format!("the part is not valid: {error}"))?;
    if strict_version(&ModelWithPools {
        model: part.shared(),
        pools: Arc::clone(&original.pools),
    })? > version
    {
        return Err(format!("the part is of {}", part.version()));
    }
    let older = down_and_up(slice, version)?;
    if older.losses.is_empty()
        && (older.value != *part.model() || (is_compliant && older.value != *original.model))
    {
        return Err(format!("without a loss the model became {:?}", older.value));
    }
    let again = valid(&older.value, original)?;
    let second = whole_down_and_up(&again, version)?;
    if second.value != older.value || !second.losses.is_empty() {
        return Err(format!("taken down again there are losses {:?}", second.losses));
    }
    match whole_down_and_up(&model, version) {
        Ok(whole) if is_compliant && whole == older => Ok(()),
        Err(text) if !is_compliant && text.contains("HAL") => Ok(()),
        other => Err(format!("the model as a whole: {other:?}")),
    }
}

fn execute(model: Model, generated: &Generated) -> Result<ExecutionAnswer, String> {
    let model = ModelWithPools {
        model: Arc::new(model),
        pools: Arc::clone(&generated.model.pools),
    };
    let text = |error: nnhal_conformance::implementation::Breakdown| error.to_string();
    let prepared = InProcess::default().prepare(&model).map_err(text)?;
    let mut prepared = prepared.map_err(|failure| failure.detail)?;
    prepared
        .execute(&ExecutionCall {
            form: Form::Synchronous,
            request: &generated.request,
            inputs: &generated.inputs,
            outputs: generated.outputs_size,
            measure: MeasureTiming::No,
            loop_timeout: None,
        })
        .map_err(text)
}

/// A model taken down and up computes what it did.
fn check_results(generated: &Generated, version: HalVersion) -> Result<(), String> {
    let model = valid(&generated.model.model, &generated.model)?;
    if !model.compliant_with(version).is_compliant() {
        return Ok(());
    }
    let mut older = whole_down_and_up(&model, version)?.value;
    older.relax_computation_float32_to_float16 = model.model().relax_computation_float32_to_float16;
    let (before, after) = (
        execute(model.model().clone(), generated)?,
        execute(older, generated)?,
    );
    let are_same = before.result.outcome.is_ok() == after.result.outcome.is_ok()
        && before.result.output_shapes == after.result.output_shapes
        && (before.result.outcome.is_err() || before.outputs == after.outputs);
    if are_same {
        return Ok(());
    }
    Err(format!("computed {:?}, then {:?}", before.result, after.result))
}

fn verdict(generated: &Generated) -> Verdict {
    for version in OLDER {
        let held = check(&generated.model, version).and_then(|()| check_results(generated, version));
        if let Err(message) = held {
            return Verdict::Broken(format!("HAL {version}: {message}"));
        }
    }
    Verdict::Kept
}

#[test]
fn random_models_go_down_and_up() {
    for recipe in [Recipe::default(), Recipe::with_extension()] {
        let counterexample = property::search(&recipe, 0..1500, |generated, _| verdict(generated));
        assert!(counterexample.is_none(), "{}", counterexample.unwrap());
    }
}

#[test]
fn random_models_of_one_old_operation_go_down_and_up() {
    for operation in OperationType::ALL
        .iter()
        .filter(|kind| kind.since() < Some(HalVersion::V1_2))
    {
        let Some(recipe) = Recipe::single(*operation) else {
            continue;
        };
        let counterexample = property::search(&recipe, 0..60, |generated, _| verdict(generated));
        assert!(
            counterexample.is_none(),
            "{operation}: {}",
            counterexample.unwrap()
        );
    }
}

#[test]
fn models_of_the_corpus_go_down_and_up() {
    let root = Corpus::default_root();
    if !root.is_dir() {
        eprintln!("SKIPPED: there is no conformance corpus at {}", root.display());
        return;
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in Corpus::open(&root).unwrap().files {
        let specification = Specification::read(&path).unwrap();
        for case in specification.cases.iter().filter(|case| !case.expect_failure) {
            let model = Instance::new(&specification, case, Variation::default())
                .unwrap()
                .model;
            if valid(&model.model, &model).is_err() {
                continue;
            }
            for version in OLDER {
                checked += 1;
                wrong.extend(
                    check(&model, version)
                        .err()
                        .map(|error| format!("{} {version}: {error}", case.name)),
                );
            }
        }
    }
    println!("{checked} conversions checked");
    assert!(checked > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whatever a client makes of a model, as long as it is valid.
#[test]
fn changed_models_that_stay_valid_go_down_and_up() {
    let mut still_valid = 0;
    let counterexample = property::search(&Recipe::with_extension(), 0..4000, |generated, choices| {
        let changed = mutation::change(generated, choices);
        if valid(&changed.model.model, &changed.model).is_err() {
            return Verdict::Kept;
        }
        still_valid += 1;
        for version in OLDER {
            if let Err(message) = check(&changed.model, version) {
                return Verdict::Broken(format!("HAL {version}: {message}"));
            }
        }
        Verdict::Kept
    });
    assert!(counterexample.is_none(), "{}", counterexample.unwrap());
    assert!(still_valid > 100, "{still_valid} models");
}
