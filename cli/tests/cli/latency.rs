//! `nnhal bench latency --json`: what programs that read it rely on.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::Surroundings;

/// The ways that are measured with the smallest payload, in the order of the table.
const WAYS: [&str; 9] = [
    "ping_pong",
    "in_process",
    "fmq",
    "burst_registered",
    "burst_general",
    "sync",
    "async",
    "fenced",
    "fenced_chain",
];

const CONDITIONS: [&str; 13] = [
    "version",
    "cpu",
    "cpus_online",
    "cpus_used",
    "kernel",
    "scheduling",
    "load_before",
    "optimised",
    "rounds",
    "clock_ns",
    "ping_pong_polls",
    "device",
    "notes",
];

const FIGURES: [&str; 9] = [
    "name",
    "payload_bytes",
    "arguments",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "ratio_p50",
    "ratio_copied_p50",
];

/// The report of a short measurement, which leaves the processors to other tests as well.
fn report() -> Value {
    let arguments = [
        ["--rounds", "1"],
        ["--trips", "50"],
        ["--payloads", "64,4096"],
        ["--json", "--without-real-time"],
    ];
    let arguments = ["bench", "latency"]
        .into_iter()
        .chain(arguments.into_iter().flatten());
    let outcome = Surroundings::new().run(arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn expect_conditions(conditions: &Value) {
    assert_eq!(keys(conditions), CONDITIONS.into());
    for key in [
        "version",
        "cpu",
        "kernel",
        "load_before",
        "ping_pong_polls",
        "device",
    ] {
        assert!(
            conditions[key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}: {conditions}"
        );
    }
    assert_eq!(conditions["rounds"], 1);
    assert_eq!(conditions["scheduling"], "normal");
    assert_eq!(conditions["optimised"], !cfg!(debug_assertions));
    assert_eq!(conditions["cpus_used"].as_array().unwrap().len(), 2);
    assert!(conditions["cpus_online"].as_u64() > Some(0) && conditions["clock_ns"].is_u64());
    assert_eq!(
        conditions["notes"],
        Value::Array(Vec::new()),
        "something was left out"
    );
}

fn expect_figures(row: &Value) {
    assert_eq!(keys(row), FIGURES.into(), "{row}");
    let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
    let quantiles = [figure("p50_ns"), figure("p99_ns"), figure("p999_ns")];
    assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{row}");
    // Histograms keep three digits.
    assert!(figure("max_ns") >= 0.999 * quantiles[2], "{row}");
    assert!(
        figure("ratio_p50") > 0.0 && figure("payload_bytes") >= 4.0,
        "{row}"
    );
}

/// Rows with payloads are compared with the ping-pong that copies as much, others with none.
fn expect_ratios_to_copied(rows: &[Value]) {
    for row in rows {
        let ratio = row["ratio_copied_p50"].as_f64();
        let has_payload = row["payload_bytes"].as_u64() >= Some(64);
        assert_eq!(ratio.is_some_and(|ratio| ratio > 0.0), has_payload, "{row}");
        if row["name"] == "copied_ping_pong" {
            assert_eq!(ratio, Some(1.0), "{row}");
        }
    }
}

/// A row's name, how its arguments are passed, and how large they are.
type Kind<'a> = (&'a str, Option<&'a str>, u64);

fn kind(row: &Value) -> Kind<'_> {
    let bytes = row["payload_bytes"].as_u64().unwrap();
    (row["name"].as_str().unwrap(), row["arguments"].as_str(), bytes)
}

/// What there must be beside the smallest payloads.
fn kinds_with_payloads() -> impl Iterator<Item = Kind<'static>> {
    let nnhal = [
        ("burst_registered", "own_memory"),
        ("burst_registered", "shared_memory"),
        ("burst_registered", "device_buffers"),
        ("burst_general", "shared_memory"),
        ("burst_general", "device_buffers"),
        ("sync", "shared_memory"),
        ("sync", "device_buffers"),
        ("async", "shared_memory"),
        ("async", "device_buffers"),
        ("fenced", "shared_memory"),
        ("fenced", "device_buffers"),
    ];
    let nnhal = nnhal.map(|(name, arguments)| (name, Some(arguments)));
    let others = ["copied_ping_pong", "in_process", "unix_seqpacket"];
    let payloads = nnhal.into_iter().chain(others.map(|name| (name, None)));
    let payloads = payloads.flat_map(|(name, arguments)| [64, 4096].map(|bytes| (name, arguments, bytes)));
    // More does not fit a cell.
    payloads.chain([("burst_registered", Some("inline"), 40)])
}

#[test]
fn report_has_conditions_and_a_row_for_each_way_and_for_each_way_to_pass_each_payload() {
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        println!("SKIPPED: the sides of a round trip are measured on a processor each");
        return;
    }
    let report = report();
    assert_eq!(keys(&report), ["conditions", "rows"].into());
    expect_conditions(&report["conditions"]);
    let rows = report["rows"].as_array().unwrap();
    rows.iter().for_each(expect_figures);
    assert_eq!(rows[0]["ratio_p50"], 1.0);

    let kinds: Vec<_> = rows.iter().map(kind).collect();
    expect_ratios_to_copied(rows);
    let is_smallest = |kind: &Kind<'_>| !kinds_with_payloads().any(|other| other == *kind);
    let (smallest, with_payloads): (Vec<_>, Vec<_>) = kinds.into_iter().partition(is_smallest);
    assert_eq!(smallest.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), WAYS);
    let of_driver = [Some("inline"), Some("shared_memory")];
    for (name, arguments, bytes) in &smallest {
        let is_of_driver = !matches!(*name, "ping_pong" | "in_process" | "fmq");
        assert_eq!(of_driver.contains(arguments), is_of_driver, "{name}");
        assert_eq!(*bytes, if *name == "fmq" { 56 } else { 4 }, "{name}");
    }
    let expected: BTreeSet<_> = kinds_with_payloads().collect();
    assert_eq!(with_payloads.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(with_payloads.len(), expected.len(), "{with_payloads:?}");
}
