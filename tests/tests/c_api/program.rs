//! C programs, compiled for one test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_os::pidfd;
use nnhal_os::time::{Clock as _, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// The top of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where the library's header is.
pub(crate) fn include_dir() -> PathBuf {
    root().join("capi/include")
}

/// The shared library, which is built with this test.
pub(crate) fn library() -> PathBuf {
    // Names the crate, so that it is built.
    use neuralnetworks as _;
    let exe = std::env::current_exe().expect("a path");
    let beside = exe.parent().expect("a folder").join("libneuralnetworks.so");
    assert!(beside.exists(), "{} was not built", beside.display());
    beside
}

/// Compiles a C program against the header, where it is installed or beside it, and links it to the library.
pub(crate) fn compile(source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().expect("a name"));
    let installed = folder.join("include");
    std::fs::create_dir_all(installed.join("android")).expect("a folder");
    let header = include_dir().join("NeuralNetworks.h");
    std::fs::copy(header, installed.join("android/NeuralNetworks.h")).expect("a header");
    let library = library();
    let libraries = library.parent().expect("a folder");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
        .arg("-I")
        .arg(include_dir())
        .arg("-I")
        .arg(installed)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// A program, compiled into this folder.
fn program(source: &str, folder: &Path) -> Command {
    let mut command = Command::new(compile(&root().join(source), folder));
    command
        // Cargo's own has the folder above first, where another build may have left its library.
        .env("LD_LIBRARY_PATH", library().parent().expect("a folder"))
        .env_remove("NNHAL_RECOVERY");
    command
}

/// A program to be run beside a daemon.
fn command(source: &str, folder: &Path, daemon: &TestDaemon) -> Command {
    let mut command = program(source, folder);
    command
        .env("NNHAL_RUNTIME_DIR", daemon.runtime_dir())
        .env("NNHAL_TEST_DEVICE", "nnhal-reference");
    command
}

/// Kills a program that does not end in time; tells whether it has ended by itself.
fn watch(child: &Child) -> JoinHandle<bool> {
    let pidfd = pidfd::open(child.id().cast_signed()).expect("a process");
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    std::thread::spawn(move || {
        let has_ended = pidfd::wait_for_end(&pidfd, deadline).expect("a process");
        // One that ends meanwhile was late all the same.
        has_ended || pidfd::send_signal(&pidfd, Signal::SIGKILL).is_err()
    })
}

/// Waits for a program to end and gives what it has printed. One that hangs is killed, and the test fails.
#[track_caller]
fn output_in_time(child: Child, watchdog: JoinHandle<bool>) -> Output {
    let output = child.wait_with_output().expect("a program");
    assert!(
        watchdog.join().expect("a watchdog"),
        "it was killed after {TIMEOUT:?}; it said:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a program to its end, in time.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let child = started(command);
    let watchdog = watch(&child);
    output_in_time(child, watchdog)
}

/// Starts a program whose output is kept.
fn started(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program")
}

#[track_caller]
fn expect_success(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs one case of a test program beside a daemon of its own.
#[track_caller]
pub(crate) fn run_case(program: &str, case: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let source = format!("capi/tests/c/{program}.c");
    let output = run(command(&source, folder.path(), &daemon).arg(case));
    expect_success(case, &output);
}

/// Runs one case of a test program that traces; gives the trace.
#[track_caller]
pub(crate) fn trace_of_case(program: &str, case: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let source = format!("capi/tests/c/{program}.c");
    let trace = folder.path().join("trace.json");
    let mut command = command(&source, folder.path(), &daemon);
    let output = run(command.arg(case).env("NNHAL_TRACE", &trace));
    expect_success(case, &output);
    std::fs::read_to_string(trace).expect("a trace")
}

/// Runs one case of a test program beside the example driver of another vendor, on its device.
#[track_caller]
pub(crate) fn run_beside_vendor(program: &str, case: &str, device: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = TestDaemon::start(
        env!("CARGO_BIN_EXE_nnhal-test-vendor-driver"),
        &DaemonOptions::default(),
    );
    let mut command = command(&format!("capi/tests/c/{program}.c"), folder.path(), &daemon);
    let output = run(command.env("NNHAL_TEST_DEVICE", device).arg(case));
    expect_success(case, &output);
}

/// Runs the example and gives what it prints.
#[track_caller]
pub(crate) fn run_example(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let mut command = command("examples/c/classify.c", folder.path(), &daemon);
    let output = run(command.args(arguments));
    expect_success("classify", &output);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the example where no driver runs and this is to be the private one; gives what it says on standard
/// error.
#[track_caller]
pub(crate) fn run_example_with_driver(driver: &Path) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program("examples/c/classify.c", folder.path());
    let output = run(command
        .env("NNHAL_RUNTIME_DIR", folder.path().join("none"))
        .env("NNHAL_DRIVER", driver)
        .env("NNHAL_LOG", "warn"));
    expect_success("classify", &output);
    String::from_utf8(output.stderr).expect("text")
}

/// Runs a program where no driver is, with a trace of each of its processes.
#[track_caller]
pub(crate) fn run_without_driver(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program(&format!("capi/tests/c/{name}.c"), folder.path());
    let output = run(command
        .env("NNHAL_RUNTIME_DIR", folder.path().join("none"))
        .env("NNHAL_DRIVER", folder.path().join("none"))
        .env("NNHAL_TRACE", folder.path().join("trace-%p.json")));
    expect_success(name, &output);
}

/// Runs one case of the program whose workers are killed whenever it says so, with this policy in the
/// environment.
#[track_caller]
pub(crate) fn run_with_deaths(case: &str, recovery: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let mut command = command("capi/tests/c/deaths.c", folder.path(), &daemon);
    command.arg(case);
    if let Some(recovery) = recovery {
        command.env("NNHAL_RECOVERY", recovery);
    }
    let mut child = started(&mut command);
    let watchdog = watch(&child);
    let mut answers = child.stdin.take().expect("a pipe");
    let wishes = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut deaths = 0;
    for wish in wishes.lines() {
        assert_eq!(wish.expect("a line"), "kill");
        let workers = daemon.workers();
        for worker in &workers {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(worker.cast_signed()), Signal::SIGKILL);
        }
        wait_until("the workers are dead", || {
            !workers.iter().any(|worker| is_alive(*worker))
        });
        deaths += 1;
        // A program that has ended needs no answer.
        let _ = answers.write_all(b"\n");
    }
    drop(answers);
    expect_success(case, &output_in_time(child, watchdog));
    assert!(deaths > 5 || recovery == Some("often"), "{deaths} deaths");
}
