//! The whole corpus against the executor as a library, held to the counts in `passed.txt`.

use nnhal_conformance::corpus::{Corpus, Specification};
use nnhal_conformance::implementation::ModelWithPools;
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::instance::{Instance, Variation};
use nnhal_conformance::procedure::Outcome;
use nnhal_conformance::ratchet::Ratchet;
use nnhal_conformance::report::CaseReport;
use nnhal_conformance::runner::{self, Observer, Selection};
use nnhal_hal::validate::ValidModel;

struct PrintFailures;

impl Observer for PrintFailures {
    fn case(&self, report: &CaseReport) {
        if let Outcome::Failed { reason } = &report.outcome {
            println!("FAILED {}: {reason}", report.name);
        }
    }
}

/// The corpus, if it is there.
fn corpus() -> Option<Corpus> {
    let root = Corpus::default_root();
    if !root.is_dir() {
        // Told even where the harness keeps a test's output to itself.
        let message = format!("SKIPPED: there is no conformance corpus at {}\n", root.display());
        let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
        return None;
    }
    Some(Corpus::open(&root).unwrap())
}

#[test]
fn nearly_all_cases_stay_valid_with_dimensions_given_at_the_request() {
    let Some(corpus) = corpus() else { return };
    let variation = Variation {
        given_with_request: true,
        ..Variation::default()
    };
    let (mut cases, mut valid) = (0, 0);
    for file in &corpus.files {
        let specification = Specification::read(file).unwrap();
        for case in &specification.cases {
            let instance = Instance::new(&specification, case, variation).unwrap();
            let ModelWithPools { model, pools } = instance.model;
            cases += 1;
            valid += u32::from(ValidModel::new(model, &*pools, &[]).is_ok());
        }
    }
    println!("{valid} of {cases}");
    assert!(valid > cases * 9 / 10, "{valid} of {cases}");
}

/// Every case goes through the conditions of the HAL's harness, with and without timing: G01 and G02 all of
/// them, G03 and G04 those whose outputs may be left open, G06 and G12 those with extents of zero, omitted
/// arguments and constants in pools, G09 the timing, G10 those with a signed twin, G11 the endless loops.
#[test]
fn passed_counts_do_not_fall() {
    let Some(corpus) = corpus() else { return };
    let tally = runner::run(
        &corpus,
        &Selection::default(),
        2,
        || Ok(InProcess::default()),
        &PrintFailures,
    )
    .unwrap();
    println!("{}{}", tally.table(), tally.total);
    let total = tally.total;
    assert_eq!(
        (corpus.files.len(), total.passed + total.failed + total.skipped),
        (485, 7435),
        "the corpus is not whole"
    );
    let before = Ratchet::parse(include_str!("../passed.txt")).unwrap();
    let fallen = Ratchet::of(&tally).fallen_since(&before);
    assert!(fallen.is_empty(), "{}", fallen.join("\n"));
}
