//! Where drivers publish their sockets, and under which names.
//!
//! A driver publishes `{VENDOR}-{DEVICE_NAME}.sock` in a runtime directory for each of its devices; that
//! directory is all there is to discovery. The environment variable [`RUNTIME_DIR_VARIABLE`] names another
//! directory, for both sides.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use nnhal_hal::DeviceInfo;
use nnhal_os::environment;

/// Names the runtime directory, if set and not empty.
pub const RUNTIME_DIR_VARIABLE: &str = "NNHAL_RUNTIME_DIR";

/// Where drivers that serve the whole system publish their sockets.
pub const SYSTEM_RUNTIME_DIR: &str = "/run/nnhal";

const SOCKET_SUFFIX: &str = ".sock";

/// Where a driver publishes its sockets if it is not told: [`RUNTIME_DIR_VARIABLE`], else `nnhal` in
/// `XDG_RUNTIME_DIR`, else [`SYSTEM_RUNTIME_DIR`] for root and `/tmp/nnhal-UID` for anyone else.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    of_user(environment::var_os, nix::unistd::geteuid().as_raw())
}

/// What [`RUNTIME_DIR_VARIABLE`] names, if it is set and not empty.
#[must_use]
pub fn named() -> Option<PathBuf> {
    directory_of(&environment::var_os, RUNTIME_DIR_VARIABLE)
}

/// Where a client looks for drivers, in this order: only [`RUNTIME_DIR_VARIABLE`] if set; else `nnhal` in
/// `XDG_RUNTIME_DIR`, which is this user's alone, then [`SYSTEM_RUNTIME_DIR`], and last, without
/// `XDG_RUNTIME_DIR`, this user's place in `/tmp`, where others may have been first.
#[must_use]
pub fn search_path() -> Vec<PathBuf> {
    search_path_of(environment::var_os, nix::unistd::geteuid().as_raw())
}

/// Opens a runtime directory to look for sockets. No link is followed in this user's place in `/tmp`, where
/// anybody can make one under the name of another's.
///
/// # Errors
/// It is not there, is no directory, or may not be read.
pub fn open(directory: &Path) -> std::io::Result<File> {
    let mut flags = OFlag::O_DIRECTORY;
    if is_open_place(directory) {
        flags |= OFlag::O_NOFOLLOW;
    }
    File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(directory)
}

fn is_open_place(directory: &Path) -> bool {
    directory == without_session(nix::unistd::geteuid().as_raw())
}

/// The socket of the device with this name.
#[must_use]
pub fn socket_path(runtime_dir: &Path, device: &str) -> PathBuf {
    runtime_dir.join(format!("{device}{SOCKET_SUFFIX}"))
}

/// The name of the device whose socket has this file name; `None` for other files.
#[must_use]
pub fn device_of_socket(file_name: &str) -> Option<&str> {
    file_name
        .strip_suffix(SOCKET_SUFFIX)
        .filter(|name| DeviceInfo::is_valid_name(name))
}

/// The directory that a variable names, if it is set and not empty.
fn directory_of(variable: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn of_user(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> PathBuf {
    if let Some(named) = directory_of(&variable, RUNTIME_DIR_VARIABLE) {
        named
    } else if let Some(session) = directory_of(&variable, "XDG_RUNTIME_DIR") {
        session.join("nnhal")
    } else if uid == 0 {
        PathBuf::from(SYSTEM_RUNTIME_DIR)
    } else {
        without_session(uid)
    }
}

/// The directory of a user who has no other.
fn without_session(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/nnhal-{uid}"))
}

fn search_path_of(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Vec<PathBuf> {
    let own = of_user(&variable, uid);
    let system = PathBuf::from(SYSTEM_RUNTIME_DIR);
    if own == system || directory_of(&variable, RUNTIME_DIR_VARIABLE).is_some() {
        vec![own]
    } else if own == without_session(uid) {
        vec![system, own]
    } else {
        vec![own, system]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).into())
        }
    }

    #[test]
    fn directory_follows_the_environment() {
        let both = &[(RUNTIME_DIR_VARIABLE, "/a"), ("XDG_RUNTIME_DIR", "/b")];
        assert_eq!(of_user(environment(both), 7), Path::new("/a"));
        assert_eq!(
            of_user(environment(&[("XDG_RUNTIME_DIR", "/b")]), 7),
            Path::new("/b/nnhal")
        );
        assert_eq!(
            of_user(environment(&[(RUNTIME_DIR_VARIABLE, "")]), 0),
            Path::new("/run/nnhal")
        );
        assert_eq!(of_user(environment(&[]), 7), Path::new("/tmp/nnhal-7"));
    }

    #[test]
    fn clients_look_in_a_named_directory_only() {
        assert_eq!(
            search_path_of(environment(&[(RUNTIME_DIR_VARIABLE, "/a")]), 7),
            [Path::new("/a")]
        );
        assert_eq!(
            search_path_of(environment(&[]), 7),
            [Path::new("/run/nnhal"), Path::new("/tmp/nnhal-7")]
        );
        assert_eq!(
            search_path_of(environment(&[("XDG_RUNTIME_DIR", "/b")]), 7),
            [Path::new("/b/nnhal"), Path::new("/run/nnhal")]
        );
        assert_eq!(search_path_of(environment(&[]), 0), [Path::new("/run/nnhal")]);
    }

    #[test]
    fn socket_names_are_device_names() {
        let path = socket_path(Path::new("/run/nnhal"), "ACME-npu");
        assert_eq!(path, Path::new("/run/nnhal/ACME-npu.sock"));
        assert_eq!(device_of_socket("ACME-npu.sock"), Some("ACME-npu"));
        for other in ["ACME-npu", "ACME-npu.lock", ".sock", "npu.sock", "../A-b.sock"] {
            assert_eq!(device_of_socket(other), None, "{other}");
        }
    }
}
