//! The page that says which test stands for which case of the HAL's own test suites.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A group of cases: its letter, what it is about, and the first and last numbers of its runs.
type Group = (&'static str, &'static str, &'static [(u32, u32)]);

/// The inventory.
const GROUPS: [Group; 11] = [
    ("A", "allocation of device buffers", &[(1, 15)]),
    ("B", "bursts", &[(1, 5)]),
    ("C", "compilation caching", &[(1, 30)]),
    ("D", "device basics", &[(1, 8)]),
    ("E", "device buffers in executions", &[(1, 10)]),
    ("G", "conditions of the generated tests", &[(1, 12)]),
    ("K", "copies of device buffers", &[(1, 7)]),
    ("M", "invalid models", &[(1, 23)]),
    (
        "N",
        "the application's interface, through the C library",
        &[(1, 1), (10, 23), (30, 36), (40, 48), (50, 51), (60, 60), (70, 74)],
    ),
    ("Q", "deadlines and priorities", &[(1, 11)]),
    ("R", "invalid requests", &[(1, 5)]),
];

/// Where tests that cite cases are.
const FOLDERS: [&str; 3] = ["tests/tests", "conformance/tests", "cli/tests"];

/// The page, made from the tests below `root`, the top of the workspace.
///
/// # Panics
///
/// If the tests cannot be read.
#[must_use]
pub fn page(root: &Path) -> String {
    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in FOLDERS {
        for file in sources(&root.join(folder)) {
            let text = std::fs::read_to_string(&file).expect("a source");
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            for (case, function) in citations(&text) {
                let tests = cited.entry(case).or_default();
                let test = format!("`{name}`: `{function}`");
                if !tests.contains(&test) {
                    tests.push(test);
                }
            }
        }
    }
    let mut page = String::from(
        "# Cases of the HAL's own test suites\n\nMade from the tests, which cite the cases: `cargo run -p nnhal-tests \
         --example vts_cases > docs/vts-cases.md`. Every test named\nhere is run by `.ci/run`, which a change must pass; \
         that is what the result says. A case without a test is open.\n",
    );
    for (letter, title, ranges) in GROUPS {
        let width = if letter == "N" { 3 } else { 2 };
        let _ = write!(
            page,
            "\n## {letter}: {title}\n\n| case | result | test |\n|---|---|---|\n"
        );
        for number in ranges.iter().flat_map(|&(first, last)| first..=last) {
            let case = format!("{letter}{number:0width$}");
            let (result, tests) = cited.get(&case).map_or_else(
                || ("open", String::new()),
                |tests| ("passes in CI", tests.join("<br>")),
            );
            let _ = writeln!(page, "| {case} | {result} | {tests} |");
        }
    }
    page
}

/// All Rust sources below a folder, in order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of tests");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    let below = |path: PathBuf| {
        if path.is_dir() { sources(&path) } else { vec![path] }
    };
    let all = found.into_iter().flat_map(below);
    all.filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The cases that a source cites, each with the function that does: in its name, as in
/// `r01_without_an_input`, in the comment above it or in its body. What is said of a whole file names no
/// test.
fn citations(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut function = String::new();
    // A comment above a function speaks of the function.
    let mut ahead = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        if code.starts_with("//!") {
            continue;
        }
        let named = code.strip_prefix("pub ").unwrap_or(code).strip_prefix("fn ");
        if let Some(name) = named.and_then(|rest| rest.split(['(', '<']).next()) {
            function = name.to_owned();
            let named = cases_of_name(name).into_iter().chain(ahead.drain(..));
            found.extend(named.map(|case| (case, function.clone())));
        }
        if code.starts_with("///") {
            ahead.extend(cases(code));
        } else {
            found.extend(cases(code).into_iter().map(|case| (case, function.clone())));
        }
    }
    found
}

/// The cases that a function is named for: those before its first word that is none, `m01_to_m20` being all
/// from the one to the other.
fn cases_of_name(name: &str) -> Vec<String> {
    let words: Vec<String> = name.split('_').map(str::to_uppercase).collect();
    let end = words
        .iter()
        .position(|word| number(word).is_none() && word != "TO")
        .unwrap_or(words.len());
    cases(&words[..end].join(" ").replace(" TO ", "-"))
}

/// The case numbers in a line: `X12`, `N123`, and `X12-X14` for all from the one to the other.
fn cases(line: &str) -> Vec<String> {
    let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let mut found = Vec::new();
    for word in words {
        match word.split_once('-') {
            None => found.extend(number(word).map(|_| word.to_owned())),
            Some((first, last)) => {
                if let (Some(from), Some(to)) = (number(first), number(last)) {
                    let (letter, width) = (&first[..1], first.len() - 1);
                    found.extend((from..=to).map(|number| format!("{letter}{number:0width$}")));
                }
            }
        }
    }
    found
}

/// The number of a case, if the word is one.
fn number(word: &str) -> Option<u32> {
    let (letter, digits) = word.split_at_checked(1)?;
    let width = if letter == "N" { 3 } else { 2 };
    let is_case = GROUPS.iter().any(|group| group.0 == letter)
        && digits.len() == width
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_case.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_in_docs_is_the_one_made_from_the_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let kept = std::fs::read_to_string(root.join("docs/vts-cases.md")).unwrap_or_default();
        assert!(
            page(&root.canonicalize().unwrap()) == kept,
            "docs/vts-cases.md is out of date: cargo run -p nnhal-tests --example vts_cases > docs/vts-cases.md"
        );
    }

    #[test]
    fn cases_are_found_in_text_and_told_from_other_words() {
        assert_eq!(cases("assert!(x, \"K01, K03: {y}\");"), ["K01", "K03"]);
        assert_eq!(cases("// C26-C28 and N010"), ["C26", "C27", "C28", "N010"]);
        assert!(cases("U32 T19 A1 N01 QUANT8 E0599 XA01").is_empty());
    }

    #[test]
    fn cases_are_found_in_names_of_functions() {
        assert_eq!(cases_of_name("m21_m22_unknown_preference"), ["M21", "M22"]);
        assert_eq!(cases_of_name("r01_to_r03_something"), ["R01", "R02", "R03"]);
        assert!(cases_of_name("cycle_of_m23_is_refused").is_empty());
        assert!(cases_of_name("to_be").is_empty());
    }

    #[test]
    fn citations_belong_to_the_function_they_are_in_or_above() {
        let text = "//! A15\n/// A01.\nfn one() {\n    \"A02\"\n}\n\nfn a04_two(a: u8) {\n    // A03\n}\n";
        let expected = [
            ("A01", "one"),
            ("A02", "one"),
            ("A04", "a04_two"),
            ("A03", "a04_two"),
        ];
        let expected = expected.map(|(case, function)| (case.to_owned(), function.to_owned()));
        assert_eq!(citations(text), expected);
    }
}
