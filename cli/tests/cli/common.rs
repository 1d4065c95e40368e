//! Runs the command in surroundings of its own.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder of the test's own, which is also where the command looks for drivers first.
pub(crate) struct Surroundings {
    folder: TempDir,
}

impl Surroundings {
    pub(crate) fn new() -> Surroundings {
        Surroundings {
            // A driver refuses a runtime directory that others can enter.
            folder: tempfile::Builder::new()
                .permissions(std::fs::Permissions::from_mode(0o700))
                .tempdir()
                .unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The command with these arguments, not started yet.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env("XDG_RUNTIME_DIR", self.path())
            .env_remove("NNHAL_RUNTIME_DIR")
            .env_remove("NNHAL_DRIVER")
            .env_remove("NNHAL_LOG");
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Outcome {
        Outcome::of(self.command(arguments).output().unwrap())
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes an array.
    pub(crate) fn array(&self, name: &str, descr: &str, shape: &str, data: &[u8]) -> PathBuf {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        self.file(name, &bytes)
    }
}

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Outcome {
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Exit code 0.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Outcome {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Exit code 1 and one line that says why, without a panic's traces.
    #[track_caller]
    pub(crate) fn fails_saying(self, parts: &[&str]) -> Outcome {
        assert_eq!(self.code, Some(1), "{self:#?}");
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{self:#?}");
        for part in parts {
            assert!(last.contains(part), "{part:?} is missing in {last:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A file of the digit classifier.
pub(crate) fn digits(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/digits")
        .join(name)
}

/// The folder with what is too large for the repository, or `None` with a note.
pub(crate) fn shared(part: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("NNHAL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join(part);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: there is no {}", path.display());
    None
}

/// `--input FILE`, for file names with any characters.
pub(crate) fn arguments<'a>(parts: &'a [&'a dyn AsRef<OsStr>]) -> Vec<&'a OsStr> {
    parts.iter().map(|part| part.as_ref()).collect()
}
