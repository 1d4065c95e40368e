//! docs/hal-methods.md against the sources that it names.

use std::path::Path;

/// The interfaces and their methods, in the order of the HAL's interface text.
const METHODS: [(&str, &[&str]); 8] = [
    (
        "IDevice",
        &[
            "getCapabilities",
            "getSupportedOperations",
            "prepareModel",
            "getStatus",
            "getCapabilities_1_1",
            "getSupportedOperations_1_1",
            "prepareModel_1_1",
            "getVersionString",
            "getType",
            "getCapabilities_1_2",
            "getSupportedExtensions",
            "getSupportedOperations_1_2",
            "getNumberOfCacheFilesNeeded",
            "prepareModel_1_2",
            "prepareModelFromCache",
            "getCapabilities_1_3",
            "getSupportedOperations_1_3",
            "prepareModel_1_3",
            "prepareModelFromCache_1_3",
            "allocate",
        ],
    ),
    (
        "IPreparedModel",
        &[
            "execute",
            "execute_1_2",
            "executeSynchronously",
            "configureExecutionBurst",
            "execute_1_3",
            "executeSynchronously_1_3",
            "executeFenced",
        ],
    ),
    ("IPreparedModelCallback", &["notify", "notify_1_2", "notify_1_3"]),
    ("IExecutionCallback", &["notify", "notify_1_2", "notify_1_3"]),
    ("IFencedExecutionCallback", &["getExecutionInfo"]),
    ("IBurstContext", &["freeMemory"]),
    ("IBurstCallback", &["getMemories"]),
    ("IBuffer", &["copyTo", "copyFrom"]),
];

/// The file and the function of a cell such as `` `a.rs`: `f` ``.
fn named(cell: &str) -> (&str, &str) {
    let mut quoted = cell.split('`').skip(1).step_by(2);
    (quoted.next().expect("a file"), quoted.next().expect("a function"))
}

fn is_defined(source: &str, function: &str) -> bool {
    let head = format!("fn {function}");
    source
        .split(&head)
        .skip(1)
        .any(|rest| rest.starts_with(['(', '<']))
}

#[test]
fn page_of_methods_names_all_38_and_functions_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/hal-methods.md")).unwrap();
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for section in page.split("\n## ").skip(1) {
        let (interface, rest) = section.split_once('\n').unwrap();
        let rows = rest
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
        for (number, row) in rows.enumerate() {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let &[index, method, _, application, driver] = &cells[..] else {
                panic!("{row}");
            };
            assert_eq!(index, (number + 1).to_string(), "{row}");
            found.push((interface.to_owned(), method.to_owned()));
            for (file, function) in [named(application), named(driver)] {
                let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
                if !is_defined(&source, function) {
                    wrong.push(format!("{interface}.{method}: {file} has no function {function}"));
                }
            }
        }
    }
    let all = METHODS.iter().flat_map(|(interface, methods)| {
        methods
            .iter()
            .map(|method| ((*interface).to_owned(), (*method).to_owned()))
    });
    assert_eq!(found, all.collect::<Vec<_>>());
    assert_eq!(found.len(), 38);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
