//! How many cases pass for each operation, as a file: a count may rise but never fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::Tally;

/// Passed cases by operation; `all` stands for all cases.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ratchet {
    passed: BTreeMap<String, u32>,
}

/// Why a ratchet file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} is not an operation and a count")]
pub struct RatchetError {
    /// Which line, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
}

/// The counter of all cases; operations are in capitals.
const ALL: &str = "all";

impl Ratchet {
    /// The counts of a run.
    #[must_use]
    pub fn of(tally: &Tally) -> Ratchet {
        let operations = tally
            .operations
            .iter()
            .map(|(operation, counts)| (operation.clone(), counts.passed));
        let mut passed: BTreeMap<String, u32> = operations.filter(|(_, passed)| *passed > 0).collect();
        passed.insert(ALL.to_owned(), tally.total.passed);
        Ratchet { passed }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A line is not `NAME COUNT`.
    pub fn parse(text: &str) -> Result<Ratchet, RatchetError> {
        let mut passed = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = line
                .split_once(' ')
                .and_then(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)));
            let (name, count) = entry.ok_or_else(|| RatchetError {
                line: index + 1,
                text: line.to_owned(),
            })?;
            passed.insert(name, count);
        }
        Ok(Ratchet { passed })
    }

    /// The file's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# Conformance cases that pass, by operation that occurs in them. Made by\n\
             # `conformance-in-process --record`; a count that falls fails the tests.\n",
        );
        for (name, passed) in &self.passed {
            let _ = writeln!(text, "{name} {passed}");
        }
        text
    }

    /// What has fallen since `before`, a line each.
    #[must_use]
    pub fn fallen_since(&self, before: &Ratchet) -> Vec<String> {
        before
            .passed
            .iter()
            .filter_map(|(name, &before)| {
                let now = self.passed.get(name).copied().unwrap_or(0);
                (now < before).then(|| format!("{name}: {now} cases pass, {before} passed before"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Ratchet;

    #[test]
    fn text_survives_and_falls_are_named() {
        let before = Ratchet::parse("# comment\nADD 5\nMUL 2\nall 7\n").unwrap();
        assert_eq!(Ratchet::parse(&before.to_text()).unwrap(), before);
        let now = Ratchet::parse("ADD 6\nall 7\n").unwrap();
        assert_eq!(now.fallen_since(&before), ["MUL: 0 cases pass, 2 passed before"]);
        assert!(before.fallen_since(&before).is_empty());
    }

    #[test]
    fn line_without_a_count_is_an_error_with_its_number() {
        assert_eq!(Ratchet::parse("ADD 5\nMUL\n").unwrap_err().line, 2);
    }
}
