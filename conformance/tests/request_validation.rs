//! Families R01, R02 and R05 of the HAL's request validation tests, each under its number, against the
//! executor in this process. The answers of a worker, R03 and R04 are in `tests/tests/validation.rs`.

use std::sync::Arc;

use nnhal_conformance::corpus::{Corpus, Specification, Suite};
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::negative;
use nnhal_conformance::procedure::{self, Outcome};
use nnhal_hal::Request;
use nnhal_hal::validate::{ValidModel, ValidRequest};

/// Removes every argument of a list in turn from every base model's request. Each request must be refused,
/// with both numbers of arguments.
fn remove_each(what: &str, list: fn(&mut Request) -> &mut Vec<nnhal_hal::RequestArgument>) {
    let mut count = 0;
    for base in negative::base_models() {
        let model = ValidModel::new(Arc::clone(&base.model.model), &*base.model.pools, &[]).unwrap();
        let whole = ValidRequest::new(&model, &base.request);
        assert!(whole.is_ok(), "{}: {}", base.name, whole.unwrap_err());
        let arguments = list(&mut base.request.clone()).len();
        for index in 0..arguments {
            let mut request = base.request.clone();
            list(&mut request).remove(index);
            let error = ValidRequest::new(&model, &request).unwrap_err().to_string();
            let expected = format!(
                "the request has {} {what}s, the model has {arguments}",
                arguments - 1
            );
            assert_eq!(error, expected, "{} without {what} {index}", base.name);
            count += 1;
        }
    }
    println!("{count} requests without an {what}");
    assert!(count > 0);
}

#[test]
fn r01_request_without_an_input_is_refused() {
    remove_each("input", |request| &mut request.inputs);
}

#[test]
fn r02_request_without_an_output_is_refused() {
    remove_each("output", |request| &mut request.outputs);
}

/// Takes back, one after another, every dimension that a base model declares of an argument. Each request
/// must be refused: an argument says what the model leaves open, no less than the model.
#[test]
fn request_that_says_less_of_an_argument_than_the_model_is_refused() {
    let mut count = 0;
    for base in negative::base_models() {
        let model = ValidModel::new(Arc::clone(&base.model.model), &*base.model.pools, &[]).unwrap();
        let main = &base.model.model.main;
        let sides = [("input", &main.input_indexes), ("output", &main.output_indexes)];
        for (side, (what, indexes)) in sides.into_iter().enumerate() {
            for (index, operand) in indexes.iter().enumerate() {
                let declared = &main.operands[*operand as usize].dimensions;
                for axis in (0..declared.len()).filter(|axis| declared[*axis] != 0) {
                    let mut request = base.request.clone();
                    let argument = match side {
                        0 => &mut request.inputs[index],
                        _ => &mut request.outputs[index],
                    };
                    if argument.has_no_value {
                        continue;
                    }
                    argument.dimensions.clone_from(declared);
                    argument.dimensions[axis] = 0;
                    let error = ValidRequest::new(&model, &request).unwrap_err().to_string();
                    let place = format!("{what} {index}: has dimensions");
                    assert!(
                        error.starts_with(&place) && error.contains("the model declares"),
                        "{}: {error}",
                        base.name
                    );
                    count += 1;
                }
            }
        }
    }
    println!("{count} requests that say less than the model");
    assert!(count > 0);
}

/// Models whose data must make the execution fail. The procedure asks for an error, no shapes and no timing.
#[test]
fn r05_data_that_must_fail_fails() {
    let root = Corpus::default_root();
    let Ok(corpus) = Corpus::open(&root) else {
        eprintln!("SKIPPED: there is no conformance corpus at {}", root.display());
        return;
    };
    let mut count = 0;
    for path in corpus.files {
        let specification = Specification::read(&path).unwrap();
        let cases = specification.cases.iter();
        for case in cases.filter(|case| case.suites.contains(&Suite::ExpectFailure)) {
            let outcome = procedure::run(&mut InProcess::default(), &specification, case);
            assert_eq!(outcome, Outcome::Passed, "{}", case.name);
            count += 1;
        }
    }
    assert_eq!(count, 56, "the corpus is not whole");
}
