//! The command as a driver, and drivers that are not as they should be.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{Outcome, Surroundings, arguments, digits};
use nnhal::wire::handshake::{self, Refusal, Versions};
use nnhal_os::socket::{Connection, Listener};
use nnhal_os::time::{Clock as _, Deadline, MonotonicClock};

/// A driver in the test's own folder; it ends with this value.
pub(crate) struct Driver(Child);

impl Driver {
    /// A driver in this directory, which it takes away at its end.
    pub(crate) fn start(here: &Surroundings, runtime_dir: &Path) -> Driver {
        Driver::start_with(here, runtime_dir, &["--device", "nnhal-reference"])
    }

    /// The same, with these arguments.
    pub(crate) fn start_with(here: &Surroundings, runtime_dir: &Path, more: &[&str]) -> Driver {
        let mut child = here
            .command(arguments(&[
                &"driver",
                &"--private",
                &"--runtime-dir",
                &runtime_dir,
            ]))
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "ready\n");
        Driver(child)
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        self.0.wait().unwrap().code()
    }
}

/// A directory that only drivers use.
pub(crate) fn runtime_dir(here: &Surroundings) -> PathBuf {
    let path = here.path().join("drivers");
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    path
}

/// Runs the command with drivers looked for in the test's own folder only.
pub(crate) fn run_in(here: &Surroundings, runtime_dir: &Path, parts: &[&str]) -> Outcome {
    let output = here
        .command(parts)
        .env("NNHAL_RUNTIME_DIR", runtime_dir)
        .output()
        .unwrap();
    Outcome::of(output)
}

#[test]
fn driver_that_runs_is_listed_used_and_left_running() {
    let here = Surroundings::new();
    let runtime_dir = runtime_dir(&here);
    let driver = Driver::start(&here, &runtime_dir);
    let devices = run_in(&here, &runtime_dir, &["devices", "--json"])
        .succeeds()
        .json();
    assert_eq!(devices[0]["name"], "nnhal-reference", "{devices}");
    assert_eq!(devices.as_array().unwrap().len(), 1, "{devices}");
    let text = run_in(&here, &runtime_dir, &["devices"]).succeeds().stdout;
    assert!(
        text.starts_with("nnhal-reference  CPU  HAL feature level 7"),
        "{text}"
    );
    let model = digits("digits_int8.tflite");
    let run = ["run", model.to_str().unwrap(), "--json"];
    let report = run_in(&here, &runtime_dir, &run).succeeds().json();
    assert_eq!(report["processes"]["supervisor"], driver.0.id());
    assert_eq!(driver.end(), Some(0));
    assert!(!runtime_dir.exists(), "the private driver left its directory");
}

#[test]
fn private_driver_is_started_when_none_runs() {
    let here = Surroundings::new();
    let devices = here.run(["devices", "--json"]).succeeds().json();
    let names: Vec<&str> = devices
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|device| device["name"].as_str())
        .collect();
    assert_eq!(names, ["nnhal-cpu", "nnhal-reference"]);
}

#[test]
fn unknown_device_is_named_with_those_that_there_are() {
    let here = Surroundings::new();
    let model = digits("digits_int8.tflite");
    let runtime_dir = runtime_dir(&here);
    let driver = Driver::start(&here, &runtime_dir);
    let run = ["run", model.to_str().unwrap(), "--device", "ACME-npu"];
    run_in(&here, &runtime_dir, &run).fails_saying(&["ACME-npu", "nnhal-reference"]);
    let vts = ["vts", "--corpus", ".", "--device", "ACME-npu"];
    std::fs::create_dir(here.path().join("V1_0")).unwrap();
    here.file("V1_0/empty.json", b"{}");
    run_in(&here, &runtime_dir, &vts).fails_saying(&["ACME-npu"]);
    assert_eq!(driver.end(), Some(0));
    // Without a driver that runs, the private one is asked.
    here.run(run).fails_saying(&["ACME-npu"]);
}

/// Whether the private driver was used, and a warning says that none runs in the directory that was named.
#[track_caller]
fn has_private_driver(outcome: Outcome, runtime_dir: &Path) {
    let warning = format!(
        "NNHAL_RUNTIME_DIR names {}, where no driver runs",
        runtime_dir.display()
    );
    assert_eq!(outcome.stderr.matches(&warning).count(), 1, "{outcome:#?}");
    let names = outcome.stdout.matches("nnhal-reference").count();
    assert!(names > 0, "{outcome:#?}");
    outcome.succeeds();
}

#[test]
fn directory_without_a_driver_that_can_be_used_leaves_the_private_one() {
    let here = Surroundings::new();
    let file = here.file("file", b"");
    let outcome = run_in(&here, &file, &["devices"]);
    assert!(
        outcome.stderr.contains("failed to look for drivers in"),
        "{outcome:#?}"
    );
    has_private_driver(outcome, &file);
    let model = digits("digits_int8.tflite");
    let run = ["run", model.to_str().unwrap(), "--device", "nnhal-reference"];
    for directory in [here.path().join("missing"), runtime_dir(&here)] {
        for command in [&["devices"][..], &run] {
            has_private_driver(run_in(&here, &directory, command), &directory);
        }
    }
}

#[test]
fn variable_may_name_this_command_as_the_driver() {
    let here = Surroundings::new();
    // Whatever it is called.
    let other_name = here.path().join("driver-of-ours");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nnhal"), &other_name).unwrap();
    for executable in [Path::new(env!("CARGO_BIN_EXE_nnhal")), &other_name] {
        let output = here.command(["devices"]).env("NNHAL_DRIVER", executable).output();
        let outcome = Outcome::of(output.unwrap()).succeeds();
        assert!(outcome.stdout.starts_with("nnhal-cpu "), "{outcome:#?}");
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn variable_that_names_no_driver_is_told_with_what_would_be_right() {
    let here = Surroundings::new();
    let missing = here.path().join("missing");
    let no_program = here.file("file", b"");
    for executable in [missing.as_path(), &no_program, here.path(), Path::new("/bin/cat")] {
        let output = here.command(["devices"]).env("NNHAL_DRIVER", executable).output();
        let executable = executable.display().to_string();
        let outcome = Outcome::of(output.unwrap());
        outcome.fails_saying(&[
            &executable,
            "NNHAL_DRIVER names it, and must name a driver",
            "nnhald",
        ]);
    }
}

#[test]
fn unusable_runtime_directory_of_a_driver_is_named() {
    let here = Surroundings::new();
    let file = here.file("file", b"");
    let below = file.join("below");
    let outcome = here.run(arguments(&[&"driver", &"--runtime-dir", &below]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("below"), "{outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
}

#[test]
fn socket_left_behind_is_no_device_and_in_nobodys_way() {
    let here = Surroundings::new();
    let runtime_dir = runtime_dir(&here);
    let path = runtime_dir.join("nnhal-reference.sock");
    drop(Listener::bind(&path).unwrap());
    assert!(path.exists(), "a listener leaves its socket behind");
    let model = digits("digits_int8.tflite");
    let run = ["run", model.to_str().unwrap(), "--device", "nnhal-reference"];
    for command in [&["devices"][..], &run] {
        has_private_driver(run_in(&here, &runtime_dir, command), &runtime_dir);
    }
    let driver = Driver::start(&here, &runtime_dir);
    let outcome = run_in(&here, &runtime_dir, &run).succeeds();
    assert_eq!(outcome.stderr, "");
    assert_eq!(driver.end(), Some(0));
}

#[test]
fn driver_of_another_protocol_version_is_told_with_both_versions() {
    let here = Surroundings::new();
    let path = here.path().join("nnhal-reference.sock");
    let listener = Listener::bind(&path).unwrap();
    let newer = Versions { newest: 9, oldest: 8 };
    let serve = move || {
        let deadline = || Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
        // Who only looks whether somebody listens says no hello.
        loop {
            let connection: Connection = accept(&listener);
            let mut hello = [0; 256];
            let Ok(received) = connection.receive(&mut hello, deadline()) else {
                continue;
            };
            if received.length == 0 {
                continue;
            }
            let answer = handshake::refuse(newer, Refusal::Version, "too old");
            connection.send(&answer, &[], deadline()).unwrap();
            break;
        }
    };
    let server = std::thread::spawn(serve);
    let model = digits("digits_int8.tflite");
    let run = ["run", model.to_str().unwrap(), "--device", "nnhal-reference"];
    run_in(&here, here.path(), &run).fails_saying(&["speaks protocol 8 to 9", "newer client"]);
    server.join().unwrap();
}

fn accept(listener: &Listener) -> Connection {
    loop {
        nnhal_os::poll::one(
            listener,
            nix::poll::PollFlags::POLLIN,
            Deadline::after(MonotonicClock.now(), Duration::from_secs(60)),
        )
        .unwrap();
        if let Some(connection) = listener.accept().unwrap() {
            return connection;
        }
    }
}
