//! C programs, compiled for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

use nnhal_tests::{DaemonOptions, TestDaemon};

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

/// Compiles a C program against the header and links it to the library.
pub(crate) fn compile(source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().expect("a name"));
    let library = library();
    let libraries = library.parent().expect("a folder");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
        .arg("-I")
        .arg(include_dir())
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

/// Runs one case of a test program beside a daemon of its own.
#[track_caller]
pub(crate) fn run_case(program: &str, case: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let source = root().join(format!("capi/tests/c/{program}.c"));
    let executable = compile(&source, folder.path());
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let output = Command::new(executable)
        .arg(case)
        .env("NNHAL_RUNTIME_DIR", daemon.runtime_dir())
        .env("NNHAL_TEST_DEVICE", "nnhal-reference")
        .output()
        .expect("a program");
    assert!(
        output.status.success(),
        "{program} {case} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
