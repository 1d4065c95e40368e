//! What the tests of several users share: processes of other users, and a `/run` of their own.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use nix::unistd::geteuid;
use tracing_subscriber::filter::LevelFilter;

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// The user "nobody", who owns nothing else.
pub(crate) const NOBODY: u32 = 65_534;

/// The same executable in the place of [`in_own_run`], where every user can reach it.
pub(crate) const DRIVER: &str = "/run/bin/nnhal-test-daemon";

/// The part of the process that [`in_own_run`] has started.
pub(crate) const SYSTEM: &str = "system";

/// Names the part that a process plays in its test.
const PART: &str = "NNHAL_TEST_PART";

/// The part that this process plays; none is the test's first.
pub(crate) fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Whether this process can be several users; says so if not.
pub(crate) fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can be several users");
    }
    is_root
}

/// Has the process play this part, and look for drivers in the usual places.
fn playing(mut command: Command, part: &str) -> Command {
    for variable in [
        "NNHAL_RUNTIME_DIR",
        "NNHAL_DRIVER",
        "NNHAL_DRIVER_USERS",
        "NNHAL_RECOVERY",
        "XDG_RUNTIME_DIR",
    ] {
        command.env_remove(variable);
    }
    command.env(PART, part).env_remove("TMPDIR").current_dir("/");
    command
}

/// A test again, as another user who plays this part.
pub(crate) fn again_as(user: u32, test: &str, part: &str) -> Command {
    // By this name also a user can run the test who cannot reach the folder that it is in.
    run_as(user, Path::new("/proc/self/exe"), test, part)
}

/// The same by another name of this executable.
pub(crate) fn run_as(user: u32, executable: &Path, test: &str, part: &str) -> Command {
    let mut command = playing(Command::new(executable), part);
    command.args(["--exact", test, "--nocapture"]).uid(user).gid(user);
    command
}

#[track_caller]
pub(crate) fn expect_success(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// A test again, as [`SYSTEM`], where `/run` has nothing but the folder of [`DRIVER`], and `/tmp` nothing at
/// all: there the directories in which drivers are looked for are the test's own. Without the right to mount,
/// it says so and ends.
pub(crate) fn in_own_run(test: &str) {
    const SCRIPT: &str = "mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/bin && mount --bind \"$1\" /run/bin && \
                          mount -t tmpfs -o mode=1777 tmpfs /tmp && exec \"$2\" --exact \"$3\" --nocapture";
    if !is_root() {
        return;
    }
    let probe = Command::new("unshare").args(["--mount", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("SKIPPED: this process may not mount");
        return;
    }
    let executables = Path::new(EXE).parent().unwrap();
    let this = std::env::current_exe().unwrap();
    let this = Path::new("/run/bin").join(this.strip_prefix(executables).unwrap());
    let mut command = playing(Command::new("unshare"), SYSTEM);
    command.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
    expect_success(command.arg(executables).arg(this).arg(test));
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Makes a directory of this user's with this mode.
pub(crate) fn make_directory(path: &Path, mode: u32, user: u32) {
    fs::create_dir(path).unwrap();
    set_mode(path, mode);
    chown(path, Some(user), Some(user)).unwrap();
}

/// What this process has warned of.
static WARNINGS: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        WARNINGS.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps what this process warns of from now on.
pub(crate) fn keep_warnings() {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false)
        .without_time()
        .with_writer(|| Kept)
        .init();
}

/// The warnings since the last call.
pub(crate) fn warnings() -> Vec<String> {
    let text = std::mem::take(&mut *WARNINGS.lock().unwrap());
    String::from_utf8(text)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}
