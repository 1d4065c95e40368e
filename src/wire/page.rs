//! The tables of docs/protocol.md, which are made from the code.

use std::fmt::Write;

use super::*;

const START: &str = "<!-- Made from the code: NNHAL_GOLDEN=add cargo test -p nnhal --lib -->\n";
const END: &str = "<!-- End of what is made from the code -->\n";

/// What travels beside a call, and what answers it: descriptors, reply, event.
fn beside(call: &Call) -> [&'static str; 3] {
    let cache = "those of `cache`";
    match call {
        Call::GetStatus => ["", "Status", ""],
        Call::GetSupportedOperations { .. } => ["", "SupportedOperations", ""],
        Call::PrepareModel(_) | Call::PrepareModelFromCache(_) => [cache, "Launched", "Prepared"],
        Call::Allocate { .. } => ["", "Allocated", ""],
        Call::CopyTo { .. } | Call::CopyFrom { .. } => ["", "Done", ""],
        Call::RegisterMemory(_) => ["`fds`", "Memory", ""],
        Call::RegisterFence => ["the fence", "Fence", ""],
        Call::Execute(_) => [
            "",
            "Executed; Launched if asynchronous",
            "Executed if asynchronous",
        ],
        Call::ExecuteFenced(_) => ["those of `wait_for`", "Fenced", ""],
        Call::GetExecutionInfo { .. } => ["", "ExecutionInfo", ""],
        Call::ConfigureBurst { .. } => ["the memory of the rings", "Burst", ""],
        Call::Release { .. } | Call::Cancel { .. } => ["", "Done", ""],
        Call::StartTrace { .. } => ["the memory of the trace", "Done", ""],
        Call::CancelBurst { .. } => ["", "Done", ""],
        Call::GetBurstFence { .. } => ["", "BurstFence", ""],
    }
}

fn fields(variant: &Variant) -> String {
    let fields = variant.fields.iter().map(|field| {
        let since = match field.since {
            1 => String::new(),
            since => format!(" (since {since})"),
        };
        format!("`{}`: {}{since}", field.name, field.ty)
    });
    fields.collect::<Vec<_>>().join(", ")
}

/// `number name`, and the version that brought it, if it was not the first.
fn numbered(variant: &Variant) -> String {
    let (number, name) = variant.numbered.unwrap_or_default();
    match variant.since {
        1 => format!("{number} {name}"),
        since => format!("{number} {name} (since {since})"),
    }
}

fn tables() -> String {
    let mut types = Types::default();
    Envelope::describe(&mut types);
    Message::describe(&mut types);
    Welcome::describe(&mut types);
    let mut text = String::from("\n| call | fields | descriptors | reply | event |\n|---|---|---|---|---|\n");
    let variants = |name: &str| {
        let entry = types.entries.iter().find(|entry| entry.name == name);
        &entry.expect("a type of this name").variants
    };
    let calls = samples::calls();
    for variant in variants("Call") {
        let name = variant.numbered.unwrap_or_default().1;
        let (_, call) = calls.iter().find(|(_, call)| call.name() == name).unwrap();
        let beside = beside(call).join(" | ");
        let _ = writeln!(text, "| {} | {} | {beside} |", numbered(variant), fields(variant));
    }
    text += "\n| message, reply, event | fields |\n|---|---|\n";
    for name in ["Message", "Reply", "Event"] {
        for variant in variants(name) {
            let _ = writeln!(text, "| {name} {} | {} |", numbered(variant), fields(variant));
        }
    }
    text += "\n| structure | fields |\n|---|---|\n";
    for entry in &types.entries {
        if let [structure @ Variant { numbered: None, .. }] = &entry.variants[..] {
            let _ = writeln!(text, "| {} | {} |", entry.name, fields(structure));
        }
    }
    text += "\n| enumeration | numbers |\n|---|---|\n";
    for entry in &types.entries {
        let is_shown = ["Call", "Message", "Reply", "Event"].contains(&entry.name);
        if is_shown || entry.variants.iter().any(|variant| variant.numbered.is_none()) {
            continue;
        }
        let values = entry.variants.iter().map(|variant| match &variant.fields[..] {
            [] => numbered(variant),
            _ => format!("{} {{{}}}", numbered(variant), fields(variant)),
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| {} | {values} |", entry.name);
    }
    text.push('\n');
    text
}

#[test]
fn page_has_the_tables_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(START).expect("where the tables start");
    let (written, after) = rest.split_once(END).expect("where the tables end");
    let tables = tables();
    if crate::golden::is_adding() {
        std::fs::write(path, format!("{before}{START}{tables}{END}{after}")).unwrap();
    } else {
        assert!(written == tables, "docs/protocol.md should say:\n{tables}");
    }
}

#[test]
fn numbers_and_fields_are_only_added() {
    let mut types = Types::default();
    Envelope::describe(&mut types);
    Message::describe(&mut types);
    Welcome::describe(&mut types);
    for entry in &types.entries {
        for (at, variant) in entry.variants.iter().enumerate() {
            let number = variant.numbered.map(|(number, _)| number);
            let is_taken = entry.variants[..at]
                .iter()
                .any(|other| other.numbered.map(|(number, _)| number) == number);
            assert!(!is_taken, "{} has {number:?} twice", entry.name);
            let since = variant.fields.iter().map(|field| field.since);
            assert!(since.is_sorted(), "{}: newer fields come last", entry.name);
        }
    }
    // A worker's exit is told by a process that does not know which version was agreed on.
    let exits = types.entries.iter().find(|entry| entry.name == "WorkerExit");
    let fields = &exits.expect("what a worker's exit says").variants[0].fields;
    assert!(fields.iter().all(|field| field.since == 1));
}
