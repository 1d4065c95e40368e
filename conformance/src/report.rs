//! Counts of what became of the cases, altogether and for each operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::procedure::Outcome;

/// What became of one case.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// The case's name.
    pub name: String,
    /// Every operation in it, each once.
    pub operations: Vec<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// How many cases passed, failed and were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Kept every rule.
    pub passed: u32,
    /// Broke one.
    pub failed: u32,
    /// The implementation cannot run them.
    pub skipped: u32,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed { .. } => &mut self.failed,
            Outcome::Skipped { .. } => &mut self.skipped,
        } += 1;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// All counts of a run.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// All cases.
    pub total: Counts,
    /// The cases in which an operation occurs, by its name.
    pub operations: BTreeMap<String, Counts>,
}

impl Tally {
    /// Counts a case.
    pub fn add(&mut self, report: &CaseReport) {
        self.total.add(&report.outcome);
        for operation in &report.operations {
            self.operations
                .entry(operation.clone())
                .or_default()
                .add(&report.outcome);
        }
    }

    /// A line for each operation.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.operations.keys().map(String::len).max().unwrap_or(0);
        let mut table = format!("{:width$}  passed  failed  skipped\n", "");
        for (operation, counts) in &self.operations {
            let _ = writeln!(
                table,
                "{operation:width$}  {:6}  {:6}  {:7}",
                counts.passed, counts.failed, counts.skipped
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::{CaseReport, Counts, Tally};
    use crate::procedure::Outcome;

    #[test]
    fn cases_count_for_each_of_their_operations() {
        let mut tally = Tally::default();
        let report = |operations: &[&str], outcome| CaseReport {
            name: "case".into(),
            operations: operations.iter().map(ToString::to_string).collect(),
            outcome,
        };
        tally.add(&report(&["ADD", "MUL"], Outcome::Passed));
        let reason = String::new();
        tally.add(&report(&["ADD"], Outcome::Failed { reason }));
        assert_eq!(tally.total.to_string(), "1 passed, 1 failed, 0 skipped");
        let both = Counts {
            passed: 1,
            failed: 1,
            skipped: 0,
        };
        assert_eq!(tally.operations["ADD"], both);
        assert_eq!(tally.operations["MUL"].failed, 0);
        assert!(tally.table().contains("ADD"));
    }
}
