//! A driver of this process's own, for when none runs.
//!
//! It is started with `--private` before a driver's other arguments: its sockets are in a directory of its
//! own that nobody else can enter, it says `ready` on its standard output, and it ends, and takes its workers
//! and its directory with it, when its standard input closes. That happens when the last handle on it is
//! dropped, and also when this process ends in any other way. If both are killed, whoever starts the next
//! private driver removes the directory.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal::diag::tags;
use nnhal_os::fork::{ForkStamp, PerProcess};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_os::{environment, pidfd, poll};

use crate::error::{Error, ErrorKind, Result};
use crate::private_directory::PrivateDirectory;

/// Names the driver's executable, if set and not empty.
pub const DRIVER_VARIABLE: &str = "NNHAL_DRIVER";

/// Executables that are a driver, in the order in which they are looked for.
const DRIVERS: [&str; 2] = ["nnhald", "nnhal"];

/// How long a driver may take until clients can connect.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a driver takes at most from closing its sockets to its end.
const DYING: Duration = Duration::from_secs(1);

/// How long a driver that nobody uses any more may take to end before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// How much of what a driver says before it is ready goes into an error message, in bytes.
const MAX_MESSAGE: usize = 2048;

/// How to start a driver: an executable, and the arguments before the driver's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DriverCommand {
    /// The executable.
    pub(crate) executable: PathBuf,
    /// Arguments that come first, for an executable that is more than a driver.
    pub(crate) arguments: Vec<OsString>,
    /// Whether [`DRIVER_VARIABLE`] names it, so that this is what a user can mend.
    pub(crate) is_of_environment: bool,
}

impl DriverCommand {
    /// This executable with these arguments, as a program has them.
    pub(crate) fn new(executable: PathBuf, arguments: Vec<OsString>) -> DriverCommand {
        DriverCommand {
            executable,
            arguments,
            is_of_environment: false,
        }
    }
}

/// Where to find the executable of a private driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum DriverChoice {
    /// [`DRIVER_VARIABLE`], else one of [`DRIVERS`] beside this executable, else on the `PATH`.
    #[default]
    Search,
    /// [`DRIVER_VARIABLE`], else this one.
    Unless(DriverCommand),
    /// This one.
    Explicit(DriverCommand),
    /// None is to be started.
    Never,
}

impl DriverChoice {
    /// The command, or why there is none.
    pub(crate) fn find(&self) -> std::result::Result<DriverCommand, String> {
        let named = environment::var_os(DRIVER_VARIABLE).filter(|name| !name.is_empty());
        match (self, named) {
            (DriverChoice::Never, _) => Err("the caller wants none".to_owned()),
            (DriverChoice::Explicit(command), _) => Ok(command.clone()),
            (_, Some(named)) => Ok(DriverCommand {
                is_of_environment: true,
                ..DriverCommand::new(named.into(), Vec::new())
            }),
            (DriverChoice::Unless(command), None) => Ok(command.clone()),
            (DriverChoice::Search, None) if environment::is_foreign() => Err(format!(
                "this program has more rights than whoever starts it, so that {DRIVER_VARIABLE} and the PATH do not count"
            )),
            (DriverChoice::Search, None) => beside_this_executable()
                .or_else(|| on_path(&std::env::var_os("PATH").unwrap_or_default()))
                .map(|executable| DriverCommand::new(executable, Vec::new()))
                .ok_or_else(|| {
                    format!(
                        "there is no {} beside this executable or on the PATH; {DRIVER_VARIABLE} can name one",
                        DRIVERS.join(" or ")
                    )
                }),
        }
    }
}

fn beside_this_executable() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let directory = executable.parent()?;
    // Test executables are one level deeper than the binaries that cargo builds with them.
    let above = directory.ends_with("deps").then(|| directory.parent()).flatten();
    driver_in([Some(directory), above].into_iter().flatten().map(Path::to_owned))
}

fn on_path(path: &OsStr) -> Option<PathBuf> {
    driver_in(std::env::split_paths(path))
}

/// The first driver in the first of these directories that has one.
fn driver_in(directories: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    directories
        .into_iter()
        .flat_map(|directory| DRIVERS.map(|name| directory.join(name)))
        .find(|path| path.is_file())
}

/// A private driver that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct PrivateDriver {
    command: DriverCommand,
    device: Option<String>,
    child: Child,
    pidfd: OwnedFd,
    directory: Option<PrivateDirectory>,
    log: Option<JoinHandle<()>>,
    stamp: ForkStamp,
}

/// The private drivers of this process; opening devices twice does not start two.
static RUNNING: PerProcess<Mutex<Vec<Weak<PrivateDriver>>>> = PerProcess::new(Mutex::default);

impl PrivateDriver {
    /// The driver that serves `device`, or whatever it serves by default; started if it does not run.
    pub(crate) fn get(choice: &DriverChoice, device: Option<&str>) -> Result<Arc<PrivateDriver>> {
        let command = choice.find().map_err(|reason| ErrorKind::NoDriver {
            searched: Vec::new(),
            reason,
        })?;
        // Held while the driver starts: who wants the same one has to wait for it anyway.
        let mut running = RUNNING.get().lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|driver| driver.strong_count() > 0);
        let known = running.iter().filter_map(Weak::upgrade).find(|driver| {
            driver.command == command && driver.device.as_deref() == device && driver.is_usable()
        });
        if let Some(driver) = known {
            return Ok(driver);
        }
        let driver = Arc::new(PrivateDriver::start(command, device)?);
        running.push(Arc::downgrade(&driver));
        Ok(driver)
    }

    /// The directory of its sockets.
    pub(crate) fn runtime_dir(&self) -> &Path {
        self.directory
            .as_ref()
            .map_or(Path::new(""), PrivateDirectory::path)
    }

    fn start(command: DriverCommand, device: Option<&str>) -> Result<PrivateDriver> {
        let failed = |message: String| {
            Error::from(ErrorKind::PrivateDriver {
                executable: command.executable.clone(),
                message,
            })
        };
        if environment::is_foreign() && !command.executable.is_absolute() {
            return Err(failed(
                "a program with more rights than who starts it names its driver by an absolute path"
                    .to_owned(),
            ));
        }
        let directory = PrivateDirectory::create()
            .map_err(|error| failed(format!("failed to make a directory for its sockets: {error}")))?;
        // The executable may be none that is a driver.
        let failed = |message: String| {
            failed(if command.is_of_environment {
                let names = DRIVERS.join(", ");
                format!(
                    "{message}; {DRIVER_VARIABLE} names it, and must name a driver: {names} or another vendor's"
                )
            } else {
                message
            })
        };
        let mut process = Command::new(&command.executable);
        process
            .args(&command.arguments)
            .arg("--private")
            .arg("--runtime-dir")
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C is for this process, which ends the driver when it ends itself.
            .process_group(0);
        if let Some(device) = device {
            process.arg("--device").arg(device);
        }
        let mut child = process.spawn().map_err(|error| failed(error.to_string()))?;
        let deadline = Deadline::after(MonotonicClock.now(), START_TIMEOUT);
        let ready = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => wait_until_ready(stdout, stderr, deadline),
            _ => Err("its output cannot be read".to_owned()),
        };
        let watched = ready.and_then(|log| {
            let pid = i32::try_from(child.id()).unwrap_or_default();
            let pidfd = pidfd::open(pid).map_err(|error| error.to_string())?;
            Ok((log, pidfd))
        });
        match watched {
            Ok((log, pidfd)) => {
                tracing::info!(
                    target: tags::MANAGER,
                    executable = %command.executable.display(),
                    pid = child.id(),
                    "private driver started"
                );
                Ok(PrivateDriver {
                    device: device.map(str::to_owned),
                    command,
                    child,
                    pidfd,
                    directory: Some(directory),
                    log: Some(log),
                    stamp: ForkStamp::take(),
                })
            }
            Err(message) => {
                // Failing is only possible if it has ended already.
                let _ = child.kill();
                let end = child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(failed(format!("{message} ({end})")))
            }
        }
    }

    /// Whether it runs, and belongs to this process rather than to the one it was forked from.
    pub(crate) fn is_usable(&self) -> bool {
        let now = Deadline::from_raw(0);
        self.stamp.is_current() && !pidfd::wait_for_end(&self.pidfd, now).unwrap_or(true)
    }

    /// Whether it has ended, or does so in a moment: its sockets may close before it is gone.
    pub(crate) fn ends_soon(&self) -> bool {
        let soon = Deadline::after(MonotonicClock.now(), DYING);
        pidfd::wait_for_end(&self.pidfd, soon).unwrap_or(false)
    }
}

impl Drop for PrivateDriver {
    fn drop(&mut self) {
        if !self.stamp.is_current() {
            // The driver and its directory belong to the process that this one was forked from.
            if let Some(directory) = self.directory.take() {
                directory.keep();
            }
            return;
        }
        drop(self.child.stdin.take());
        let deadline = Deadline::after(MonotonicClock.now(), END_TIMEOUT);
        if !pidfd::wait_for_end(&self.pidfd, deadline).unwrap_or(false) {
            tracing::warn!(target: tags::MANAGER, pid = self.child.id(), "private driver does not end; killing it");
            // Failing is only possible if it has ended meanwhile.
            let _ = self.child.kill();
        }
        if let Err(error) = self.child.wait() {
            tracing::warn!(target: tags::MANAGER, %error, "failed to reap the private driver");
        }
        // Workers that outlive the driver keep its log open; they end with their clients.
        if let Some(log) = self.log.take().filter(JoinHandle::is_finished) {
            let _ = log.join();
        }
    }
}

/// Waits for the driver's word; then has what it says on standard error forwarded.
fn wait_until_ready(
    stdout: ChildStdout,
    stderr: ChildStderr,
    deadline: Deadline,
) -> std::result::Result<JoinHandle<()>, String> {
    let is_readable = poll::one(&stdout, PollFlags::POLLIN, deadline).map_err(|error| error.to_string())?;
    if is_readable.is_empty() {
        return Err(format!(
            "it is not ready after {} seconds",
            START_TIMEOUT.as_secs()
        ));
    }
    let line = read_until(&stdout, (64, deadline), |said| said.ends_with(b"\n"));
    if line.trim_ascii_end() == b"ready" {
        let forward = move || forward_log(stderr);
        let thread = std::thread::Builder::new()
            .name("nnhal-driver-log".into())
            .spawn(forward);
        return thread.map_err(|error| format!("failed to start a thread for its log: {error}"));
    }
    let said = read_until(&stderr, (MAX_MESSAGE, deadline), |_| false);
    let said = String::from_utf8_lossy(&said);
    // An error is one line.
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        Err("it ended before it was ready".to_owned())
    } else {
        Err(format!("it said: {}", lines.join("; ")))
    }
}

/// What a process says, up to its end, so many bytes, or what is enough. A process of its own that it leaves
/// behind, or that says half of a line, must not hold this up.
fn read_until(
    stream: impl AsFd,
    (most, deadline): (usize, Deadline),
    is_enough: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut said = Vec::new();
    while said.len() < most
        && !is_enough(&said)
        && poll::one(&stream, PollFlags::POLLIN, deadline).is_ok_and(|ready| !ready.is_empty())
    {
        let mut block = [0; 512];
        match nix::unistd::read(&stream, &mut block) {
            Ok(0) | Err(_) => break,
            Ok(count) => said.extend_from_slice(&block[..count]),
        }
    }
    said
}

fn forward_log(stderr: ChildStderr) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(mut line) = line else { return };
        line.push(b'\n');
        // Without a standard error there is nobody to tell.
        let _ = std::io::stderr().write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> DriverCommand {
        DriverCommand::new("/bin/sh".into(), ["-c", script].map(OsString::from).to_vec())
    }

    #[test]
    fn driver_that_ends_before_it_is_ready_is_reported_with_its_words() {
        let error = PrivateDriver::start(
            command("printf 'no such device\n\n there is a-b\n' >&2; exit 3"),
            None,
        )
        .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("it said: no such device; there is a-b (exit status: 3)"),
            "{text}"
        );
    }

    #[test]
    fn process_that_says_half_of_a_line_is_not_waited_for() {
        let (mut process, here) = std::os::unix::net::UnixStream::pair().unwrap();
        process.write_all(b"rea").unwrap();
        let soon = Deadline::after(MonotonicClock.now(), std::time::Duration::from_millis(1));
        let said = read_until(&here, (64, soon), |said| said.ends_with(b"\n"));
        assert_eq!(said, b"rea");
    }

    #[test]
    fn missing_executable_is_named() {
        let missing = DriverCommand::new("/nonexistent/nnhald".into(), Vec::new());
        let error = PrivateDriver::start(missing.clone(), None).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/nnhald"), "{error}");
        assert!(!error.to_string().contains(DRIVER_VARIABLE), "{error}");
        let named = DriverCommand {
            is_of_environment: true,
            ..missing
        };
        let error = PrivateDriver::start(named, None).unwrap_err();
        assert!(error.to_string().contains(DRIVER_VARIABLE), "{error}");
    }

    #[test]
    fn file_that_has_a_driver_in_it_will_do_where_there_is_no_daemon() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| place.path().join(name));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
        }
        let path = std::env::join_paths([&first, &second]).unwrap();
        assert_eq!(on_path(&path), None);
        std::fs::write(second.join("nnhal"), "").unwrap();
        assert_eq!(on_path(&path), Some(second.join("nnhal")));
        std::fs::write(second.join("nnhald"), "").unwrap();
        assert_eq!(on_path(&path), Some(second.join("nnhald")));
        std::fs::write(first.join("nnhal"), "").unwrap();
        assert_eq!(on_path(&path), Some(first.join("nnhal")));
    }

    #[test]
    fn driver_ends_when_its_standard_input_closes_and_its_directory_goes() {
        let driver = PrivateDriver::start(command("echo ready; cat >/dev/null"), None).unwrap();
        let directory = driver.runtime_dir().to_owned();
        let pidfd = driver.pidfd.try_clone().unwrap();
        assert!(driver.is_usable() && directory.is_dir());
        drop(driver);
        assert!(pidfd::wait_for_end(&pidfd, Deadline::from_raw(0)).unwrap());
        assert!(!directory.exists());
    }

    #[test]
    fn same_driver_is_started_once() {
        let choice = DriverChoice::Explicit(command("echo ready; cat >/dev/null # shared"));
        let first = PrivateDriver::get(&choice, None).unwrap();
        let second = PrivateDriver::get(&choice, None).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let other = PrivateDriver::get(&choice, Some("a-b")).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
    }
}
