//! The operation table against an independent one: `operations.json`, a machine-readable summary of the HAL's
//! text, read in place from the folder `shared` beside the checkout or from `$NNHAL_SHARED`.
//!
//! The summary ends with HAL 1.3: what came with a later feature level is left out of the comparison.
//!
//! The two cut argument lists differently into forms, so they are compared by what can be told from outside:
//! for each operation which numbers of arguments it takes, and for each number which types each argument may
//! have, since when, and whether it may be omitted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::entry;
use super::operation_entry::OperationEntry;
use super::signature::{Form, Param, Presence, Rank, Ty, Variant};
use crate::{HalVersion, OperandType, OperationType};

/// Arguments of a list that may be any length are compared up to this many repetitions.
const REPETITIONS: usize = 3;

/// Types that the HAL's text names and its reference implementation refuses, by operation and input: the
/// text's image sizes of quantised proposals are symmetric, the reference's and those of every generated test
/// are asymmetric.
const WRITTEN_BUT_REFUSED: &[(OperationType, usize, OperandType)] = &[(
    OperationType::GENERATE_PROPOSALS,
    3,
    OperandType::TENSOR_QUANT16_SYMM,
)];

/// What is known of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    types: BTreeMap<OperandType, HalVersion>,
    omissible: bool,
}

/// By number of arguments, the arguments.
type Lists = BTreeMap<usize, Vec<Facts>>;

fn reference() -> Option<Vec<Value>> {
    let shared = std::env::var_os("NNHAL_SHARED").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = shared.unwrap_or_else(beside).join("reference/operations.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        // Told even where the harness keeps a test's output to itself.
        let message = format!("SKIPPED: there is no reference table at {}\n", path.display());
        let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
        return None;
    };
    let table: Value = serde_json::from_str(&text).unwrap();
    Some(table["operations"].as_array().unwrap().clone())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn version(value: &Value, key: &str) -> HalVersion {
    match value[key].as_str() {
        None | Some("1.0") => HalVersion::V1_0,
        Some("1.1") => HalVersion::V1_1,
        Some("1.2") => HalVersion::V1_2,
        Some("1.3") => HalVersion::V1_3,
        Some(other) => panic!("unknown version {other}"),
    }
}

fn operation(reference: &Value) -> OperationType {
    OperationType::from_name(text(reference, "name")).unwrap()
}

/// The operations that have signatures to compare: graphs and vendors' have none in the table.
fn has_signature(operation: OperationType) -> bool {
    !operation.is_control_flow() && operation != OperationType::OEM_OPERATION
}

fn merge(lists: &mut Lists, count: usize, mut facts: Vec<Facts>) {
    // A list is as young as its youngest argument.
    let youngest = facts
        .iter()
        .filter_map(|facts| facts.types.values().min().copied())
        .max();
    for since in facts.iter_mut().flat_map(|facts| facts.types.values_mut()) {
        *since = youngest.map_or(*since, |youngest| youngest.max(*since));
    }
    match lists.get_mut(&count) {
        None => {
            lists.insert(count, facts);
        }
        Some(known) => {
            for (known, facts) in known.iter_mut().zip(facts) {
                known.omissible |= facts.omissible;
                for (ty, since) in facts.types {
                    let earliest = known.types.entry(ty).or_insert(since);
                    *earliest = since.min(*earliest);
                }
            }
        }
    }
}

fn facts_of_reference(argument: &Value, floor: HalVersion) -> Facts {
    let floor = floor.max(version(argument, "since"));
    let types = array(argument, "types").iter().map(|listed| {
        let ty = OperandType::from_name(text(listed, "type")).unwrap();
        (ty, floor.max(version(listed, "since")))
    });
    Facts {
        types: types.collect(),
        omissible: argument["omittedBy"]
            .as_str()
            .is_some_and(|by| by.contains("NO_VALUE")),
    }
}

fn lists_of_reference(reference: &Value) -> Lists {
    let mut lists = Lists::new();
    let introduced = version(reference, "introducedIn");
    for signature in array(reference, "signatures") {
        let floor = introduced.max(version(signature, "since"));
        let inputs = array(signature, "inputs");
        let facts = |input| facts_of_reference(input, floor);
        let repeated = inputs
            .iter()
            .position(|input| input["index"].is_string() && !input["repeats"].is_null());
        if let Some(repeated) = repeated {
            for copies in 1..=REPETITIONS {
                let list = inputs.iter().enumerate().flat_map(|(index, input)| {
                    std::iter::repeat_n(facts(input), if index == repeated { copies } else { 1 })
                });
                merge(&mut lists, inputs.len() - 1 + copies, list.collect());
            }
            continue;
        }
        let counts: Vec<usize> = match signature["acceptedInputCounts"].as_array() {
            Some(counts) => counts
                .iter()
                .map(|count| count.as_u64().unwrap() as usize)
                .collect(),
            None => vec![inputs.len()],
        };
        for count in counts {
            // What a shorter list leaves off is beyond it.
            let omissible_later = count < inputs.len();
            let list = inputs[..count].iter().map(|input| {
                let mut facts = facts(input);
                facts.omissible &= !omissible_later || input["omittedBy"] == "NO_VALUE operand";
                facts
            });
            merge(&mut lists, count, list.collect());
        }
    }
    lists
}

fn facts_of_table(entry: &OperationEntry, form: &Form, param: &Param) -> Facts {
    Facts {
        types: entry
            .types_of(form, param)
            .into_iter()
            .filter(|(_, since)| *since <= HalVersion::V1_3)
            .collect(),
        omissible: param.presence == Presence::Omissible,
    }
}

fn lists_of_table(entry: &OperationEntry) -> Lists {
    let mut lists = Lists::new();
    for form in entry.forms {
        let (least, most) = form.arity();
        let most = if most == usize::MAX {
            form.inputs.len() - 1 + REPETITIONS
        } else {
            most
        };
        for count in least..=most {
            let params = (0..count).map(|index| form.param(index, count).unwrap());
            merge(
                &mut lists,
                count,
                params.map(|param| facts_of_table(entry, form, param)).collect(),
            );
        }
    }
    lists
}

/// Compares two of something for one operation.
fn differ<T: PartialEq + std::fmt::Debug>(wrong: &mut Vec<String>, what: String, table: T, reference: T) {
    if table != reference {
        wrong.push(format!("{what}: {table:?}, the reference has {reference:?}"));
    }
}

/// Runs a comparison over every operation that both have.
fn compare(compare: impl Fn(&mut Vec<String>, &OperationEntry, &Value)) {
    let Some(references) = reference() else { return };
    let mut wrong = Vec::new();
    for reference in &references {
        if let Some(entry) = entry(operation(reference)) {
            compare(&mut wrong, entry, reference);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn names_codes_and_versions_agree() {
    let Some(references) = reference() else { return };
    let of_1_3 = |operation: &&OperationType| operation.since() <= Some(HalVersion::V1_3);
    assert_eq!(references.len(), OperationType::ALL.iter().filter(of_1_3).count());
    for reference in &references {
        let operation = operation(reference);
        assert_eq!(
            u64::from(operation.0),
            reference["code"].as_u64().unwrap(),
            "{operation}"
        );
        assert_eq!(
            operation.since(),
            Some(version(reference, "introducedIn")),
            "{operation}"
        );
    }
}

#[test]
fn the_table_has_every_operation() {
    let missing: Vec<&OperationType> = OperationType::ALL
        .iter()
        .filter(|operation| has_signature(**operation) && entry(**operation).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn numbers_of_arguments_agree() {
    compare(|wrong, entry, reference| {
        let table: Vec<usize> = lists_of_table(entry).into_keys().collect();
        let reference: Vec<usize> = lists_of_reference(reference).into_keys().collect();
        differ(wrong, format!("{} takes", entry.operation), table, reference);
    });
}

#[test]
fn types_and_versions_of_arguments_agree() {
    compare(|wrong, entry, reference| {
        let references = lists_of_reference(reference);
        for (count, table) in lists_of_table(entry) {
            let Some(reference) = references.get(&count) else {
                continue;
            };
            for (index, (table, reference)) in table.iter().zip(reference).enumerate() {
                let mut reference = reference.clone();
                for (operation, input, refused) in WRITTEN_BUT_REFUSED {
                    if (entry.operation, index) == (*operation, *input) {
                        reference.types.remove(refused);
                    }
                }
                let what = format!("{} input {index} of {count}", entry.operation);
                differ(wrong, what, table, &reference);
            }
        }
    });
}

#[test]
fn types_and_versions_of_results_agree() {
    compare(|wrong, entry, reference| {
        let results = array(reference, "outputs");
        differ(
            wrong,
            format!("{} gives", entry.operation),
            entry.outputs.len(),
            results.len(),
        );
        let form = entry.forms.iter().min_by_key(|form| form.since).unwrap();
        for (index, (param, result)) in entry.outputs.iter().zip(results).enumerate() {
            let what = format!("{} output {index}", entry.operation);
            let table = facts_of_table(entry, form, param);
            differ(
                wrong,
                what.clone(),
                table.types,
                facts_of_reference(result, version(reference, "introducedIn")).types,
            );
            let optional = result["optional"] == true || !result["presentWhen"].is_null();
            differ(
                wrong,
                format!("{what} is optional"),
                param.presence == Presence::Trailing,
                optional,
            );
        }
    });
}

/// The type of a parameter under a variant.
fn bound(param: &Param, variant: &Variant) -> Option<OperandType> {
    match param.ty {
        Ty::Is(only) => Some(only),
        Ty::Var(variable) => variant.types.get(variable).copied(),
        Ty::AnyOf(_) => None,
    }
}

#[test]
fn types_that_go_together_agree() {
    compare(|wrong, entry, reference| {
        for signature in array(reference, "signatures") {
            let configurations = array(signature, "typeConfigurations");
            if configurations.is_empty() {
                continue;
            }
            let introduced = version(reference, "introducedIn");
            let mut expected = BTreeMap::new();
            for configuration in configurations {
                let types: Vec<_> = ["input", "filter", "bias", "output"]
                    .iter()
                    .map(|key| OperandType::from_name(text(configuration, key)))
                    .collect();
                expected.insert(types, introduced.max(version(configuration, "since")));
            }
            let form = &entry.forms[0];
            let mut table = BTreeMap::new();
            for variant in entry.variants {
                let params = form.inputs[..3].iter().chain(&entry.outputs[..1]);
                let types: Vec<_> = params.map(|param| bound(param, variant)).collect();
                let since = introduced.max(variant.since);
                let earliest = table.entry(types).or_insert(since);
                *earliest = since.min(*earliest);
            }
            differ(
                wrong,
                format!("{} combinations", entry.operation),
                table,
                expected,
            );
        }
    });
}

#[test]
fn arguments_of_the_same_type_agree() {
    compare(|wrong, entry, reference| {
        let lists = array(reference, "signatures")
            .iter()
            .map(|signature| array(signature, "inputs"));
        for inputs in lists {
            let forms = entry
                .forms
                .iter()
                .filter(|form| form.inputs.len() == inputs.len());
            for (form, variant) in
                forms.flat_map(|form| entry.variants.iter().map(move |variant| (form, variant)))
            {
                for (index, input) in inputs.iter().enumerate() {
                    let first = || bound(&form.inputs[0], variant);
                    let expected = match input["typeRule"].as_str() {
                        Some("same type as input0") => first(),
                        Some(rule) if rule.contains("FLOAT16 when input0 is TENSOR_FLOAT16") => match first()
                        {
                            Some(OperandType::TENSOR_FLOAT16) => Some(OperandType::FLOAT16),
                            _ => Some(OperandType::FLOAT32),
                        },
                        _ => continue,
                    };
                    let what = format!(
                        "{} input {index} beside {first:?}",
                        entry.operation,
                        first = first()
                    );
                    differ(wrong, what, bound(&form.inputs[index], variant), expected);
                }
            }
        }
        let results = array(reference, "outputs");
        for (variant, form) in entry.variants.iter().zip(std::iter::repeat(&entry.forms[0])) {
            for (index, result) in results.iter().enumerate() {
                if result["typeRule"] == "same as input0" {
                    let what = format!("{} output {index}", entry.operation);
                    differ(
                        wrong,
                        what,
                        bound(&entry.outputs[index], variant),
                        bound(&form.inputs[0], variant),
                    );
                }
            }
        }
    });
}

/// Ranks beyond this are not told apart.
const LARGEST_RANK: usize = 6;

/// The ranks that a text such as "4", "exactly 4", "up to 4", "from 1", ">= 2", "2 to 4" or "2..4" allows.
/// What follows in parentheses or after a semicolon speaks of other tensors or of the reference.
fn ranks_of_text(text: &str) -> Option<Vec<usize>> {
    let said = text.split(['(', ';']).next()?.trim();
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let (low, high) = if let Some(most) = said.strip_prefix("up to ") {
        (1, number(most)?)
    } else if let Some(least) = said.strip_prefix("from ").or_else(|| said.strip_prefix(">= ")) {
        (number(least)?, LARGEST_RANK)
    } else if let Some((low, high)) = said.split_once(" to ").or_else(|| said.split_once("..")) {
        (number(low)?, number(high)?)
    } else {
        let only = number(said.strip_prefix("exactly ").unwrap_or(said))?;
        (only, only)
    };
    Some((low..=high).collect())
}

fn ranks_of_table(rank: Rank) -> Vec<usize> {
    (1..=LARGEST_RANK).filter(|tried| rank.allows(*tried)).collect()
}

#[test]
fn texts_of_ranks_are_understood() {
    for (text, expected) in [
        ("4", &[4][..]),
        ("exactly 4", &[4]),
        ("up to 3", &[1, 2, 3]),
        ("from 5", &[5, 6]),
        (">= 6", &[6]),
        ("2 to 4 (input); weights 2", &[2, 3, 4]),
        ("2..4", &[2, 3, 4]),
    ] {
        assert_eq!(ranks_of_text(text).as_deref(), Some(expected), "{text}");
    }
    assert_eq!(ranks_of_text("the same"), None);
}

/// Operations whose rank in the text is not that of the first input in every form, with the reason.
const RANKS_APART: &[(OperationType, &str)] = &[
    (
        OperationType::EMBEDDING_LOOKUP,
        "the first input is the lookups, the text speaks of the values",
    ),
    (
        OperationType::FILL,
        "the first input is the extents, the text speaks of the output",
    ),
    (
        OperationType::L2_NORMALIZATION,
        "exactly 4 in the form without an axis, as in HAL 1.0",
    ),
    (
        OperationType::LOCAL_RESPONSE_NORMALIZATION,
        "exactly 4 in the form without an axis, as in HAL 1.0",
    ),
    (
        OperationType::LSH_PROJECTION,
        "the first input is the hash functions, the text speaks of what is hashed",
    ),
    (
        OperationType::SOFTMAX,
        "2 or 4 in the form without an axis, as in HAL 1.0",
    ),
];

#[test]
fn ranks_agree() {
    compare(|wrong, entry, reference| {
        for signature in array(reference, "signatures") {
            let inputs = array(signature, "inputs");
            for form in entry
                .forms
                .iter()
                .filter(|form| form.inputs.len() == inputs.len())
            {
                for (index, (param, input)) in form.inputs.iter().zip(inputs).enumerate() {
                    let Some(ranks) = input["rank"].as_str().and_then(ranks_of_text) else {
                        continue;
                    };
                    let what = format!("{} input {index} rank", entry.operation);
                    differ(wrong, what, ranks_of_table(param.rank), ranks);
                }
            }
        }
    });
}

/// What the text says of an operation's rank it says of its first tensor.
#[test]
fn ranks_of_first_inputs_agree() {
    compare(|wrong, entry, reference| {
        let Some(ranks) = reference["rank"].as_str().and_then(ranks_of_text) else {
            return;
        };
        let is_listed = RANKS_APART.iter().any(|(listed, _)| *listed == entry.operation);
        let agrees = entry.forms.iter().all(|form| {
            let first = form.inputs.first();
            first.is_some_and(|param| ranks_of_table(param.rank) == ranks)
        });
        if agrees == is_listed {
            let table: Vec<_> = entry
                .forms
                .iter()
                .filter_map(|form| form.inputs.first())
                .map(|param| param.rank)
                .collect();
            wrong.push(format!(
                "{}: {table:?}, the reference has {ranks:?}",
                entry.operation
            ));
        }
    });
}
