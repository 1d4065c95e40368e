//! Programs that a test writes and starts.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script of `sh` that anybody may start, to start it at once.
///
/// A process of its own writes the file. If this one did, a process that another test starts meanwhile could
/// inherit the file open for writing, and the kernel starts no such file (`ETXTBSY`).
///
/// # Panics
///
/// If the file cannot be written.
pub fn write_script(path: &Path, commands: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut script = writer.stdin.take().expect("a pipe");
    write!(script, "#!/bin/sh\n{commands}\n").expect("a pipe that is read");
    drop(script);
    let status = writer.wait().expect("an exit status");
    assert!(status.success(), "{} cannot be written: {status}", path.display());
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a file of one's own");
}
