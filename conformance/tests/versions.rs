//! The first HAL version that can express a model, as the corpus states it and as validation finds it.

use std::sync::Arc;

use nnhal_conformance::corpus::{Corpus, Specification};
use nnhal_conformance::implementation::{Implementation as _, ModelWithPools};
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::instance::{Instance, Variation};
use nnhal_hal::HalVersion;
use nnhal_hal::validate::ValidModel;

/// Stated as 1.2, though all of its operations, types and arguments are those of 1.0: 32-bit floats in
/// convolutions, depthwise convolutions, an average pool and LOGISTIC, all by the argument lists of 1.0. Its
/// 1.1 twin is not stated.
const STATED_TOO_LATE: &str = "mobilenet_224_gender_basic_fixed";

/// Whether every operation is in the operation table, so that its version can be known.
fn is_known(model: &ModelWithPools) -> bool {
    let answers = InProcess::default().supported_operations(model).unwrap().unwrap();
    answers.iter().all(|answer| answer.is_supported())
}

#[test]
fn models_have_the_version_that_the_corpus_states() {
    let root = Corpus::default_root();
    if !root.is_dir() {
        eprintln!("SKIPPED: there is no conformance corpus at {}", root.display());
        return;
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in Corpus::open(&root).unwrap().files {
        let specification = Specification::read(&path).unwrap();
        for case in specification.cases.iter().filter(|case| !case.expect_failure) {
            let Some(stated) = case.min_version else { continue };
            let stated = if case.name == STATED_TOO_LATE {
                HalVersion::V1_0
            } else {
                stated
            };
            let model = Instance::new(&specification, case, Variation::default())
                .unwrap()
                .model;
            if !is_known(&model) {
                continue;
            }
            checked += 1;
            match ValidModel::new(Arc::clone(&model.model), &*model.pools, &[]) {
                Ok(valid) if valid.version() == stated => {}
                Ok(valid) => wrong.push(format!(
                    "{} is of {}, stated is {stated}",
                    case.name,
                    valid.version()
                )),
                Err(error) => wrong.push(format!("{}: {error}", case.name)),
            }
        }
    }
    println!("{checked} models checked");
    assert!(checked > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}
