//! The lists of system calls have nothing that nobody uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nnhal_client::{
    BurstOptions, CompilationCache, Deadline, Devices, ExecuteOptions, Input, Memory, Model, ModelBuilder,
    OperationType, Output, PrepareOptions, Request, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// How often a driver is traced at most.
const TRIES: usize = 8;

/// Values that the layer takes and gives.
const SIZE: usize = 512;

/// The calls of `--list-system-calls` that every driver with clients makes, by whose they are.
fn listed() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(EXE).arg("--list-system-calls").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let [whose, call, seen, reason] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}");
        };
        assert!(!reason.is_empty(), "{line}");
        if seen == "always" {
            listed
                .entry(whose.to_owned())
                .or_default()
                .insert(call.to_owned());
        }
    }
    listed
}

/// What each step of a driver was seen to call, by strace.
#[derive(Debug, Default)]
struct Seen {
    serving: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// Reads what strace wrote. A worker serves from the moment on that it restricts all of its threads.
fn read(trace: &str) -> Seen {
    let mut seen = Seen::default();
    // By thread, the first one of its process; and of a worker, whether it has a client.
    let mut leaders: BTreeMap<&str, &str> = BTreeMap::new();
    let mut serving: BTreeSet<&str> = BTreeSet::new();
    for line in trace.lines() {
        let Some((thread, event)) = line.split_once(' ') else {
            continue;
        };
        let event = event.trim_start();
        let event = event.strip_prefix("<... ").unwrap_or(event);
        let leader = *leaders.entry(thread).or_insert(thread);
        let name = event.split(['(', ' ']).next().unwrap_or_default();
        let calls = if serving.contains(leader) {
            &mut seen.serving
        } else {
            &mut seen.others
        };
        calls.insert(name.to_owned());
        if name.starts_with("clone")
            && event.contains("CLONE_THREAD")
            && let Some((_, child)) = event.rsplit_once("= ")
        {
            leaders.insert(child, leader);
        }
        if event.starts_with("seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC") {
            serving.insert(leader);
        }
    }
    seen
}

/// A layer whose packed weights are large enough to be shared.
fn layer() -> Model {
    let weights = vec![0.5_f32; SIZE * SIZE];
    let size = SIZE as u32;
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, size]));
    let filter = model.constant(TensorType::float32(&[size, size]), &weights);
    let bias = model.constant(TensorType::float32(&[size]), &[0.5_f32; SIZE]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[1, size]));
    let inputs = [x, filter, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[y]);
    model.finish().unwrap()
}

/// Work of every kind that a driver has for its clients.
fn keep_busy(runtime_dir: &Path) {
    let model = layer();
    let directory = tempfile::tempdir().unwrap();
    let cache = CompilationCache::open(directory.path().join("cache"), 1 << 30).unwrap();
    let options = ExecuteOptions::new();
    for _ in 0..3 {
        let device = Devices::open_in(runtime_dir)
            .unwrap()
            .device("nnhal-cpu")
            .unwrap();
        let prepared = cache.prepare(&device, &model, &PrepareOptions::new()).unwrap();
        let mut bursts: Vec<_> = (0..3)
            .map(|_| prepared.burst(&BurstOptions::new()).unwrap())
            .collect();
        for round in 0..300 {
            let mut output = vec![0.0_f32; SIZE];
            let inputs = vec![1.0_f32; SIZE];
            let run = bursts[round % 3].run(
                &[Input::from(&inputs[..])],
                &mut [Output::from(&mut output[..])],
                &options,
            );
            run.unwrap();
        }
        drop(bursts);
        let memory = Memory::new(8 * SIZE as u64).unwrap();
        let half = 4 * SIZE as u64;
        let request = Request::new()
            .input(&memory, 0..half)
            .output(&memory, half..2 * half);
        let fenced = prepared.execute_fenced(&request, &[], &options).unwrap();
        fenced.wait(Deadline::NONE).unwrap();
    }
}

/// What is listed and was not seen.
fn not_in(seen: &Seen) -> Vec<(String, String)> {
    let unused = |(whose, calls): (String, BTreeSet<String>)| {
        let seen = if whose == "serving" {
            &seen.serving
        } else {
            &seen.others
        };
        let unused: Vec<_> = calls.difference(seen).cloned().collect();
        unused.into_iter().map(move |call| (whose.clone(), call))
    };
    listed().into_iter().flat_map(unused).collect()
}

#[test]
fn lists_of_system_calls_have_nothing_that_nobody_uses() {
    if !Command::new("strace")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("SKIPPED: there is no strace, which shows the calls of a driver");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let traced = directory.path().join("driver");
    let script = format!(
        "#!/bin/sh\nexec strace -f -qq -s 0 -o '{}' '{EXE}' \"$@\"\n",
        trace.display()
    );
    std::fs::write(&traced, script).unwrap();
    std::fs::set_permissions(&traced, Permissions::from_mode(0o700)).unwrap();
    let mut seen = Seen::default();
    let mut unused = Vec::new();
    // What a driver does only if it is in time, which it may not be while it is traced, is seen sooner or
    // later.
    for _ in 0..TRIES {
        let mut daemon = TestDaemon::start(traced.to_str().unwrap(), &DaemonOptions::default());
        keep_busy(&daemon.runtime_dir());
        daemon.close_owner();
        daemon.wait();
        let again = read(&std::fs::read_to_string(&trace).unwrap());
        seen.serving.extend(again.serving);
        seen.others.extend(again.others);
        unused = not_in(&seen);
        if unused.is_empty() {
            break;
        }
    }
    assert!(unused.is_empty(), "{unused:?}");
    println!(
        "a worker with clients made {} different calls: {:?}",
        seen.serving.len(),
        seen.serving
    );
}
