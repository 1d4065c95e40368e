//! A daemon for one test.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_os::poll;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::TIMEOUT;
use crate::process::{children_of, wait_until};

/// How to start a daemon.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// The devices; the daemon's default if empty.
    pub devices: Vec<String>,
    /// The content of its settings file.
    pub settings: String,
    /// What it logs; warnings by default.
    pub log: Option<String>,
    /// Further variables of its environment.
    pub environment: Vec<(String, OsString)>,
}

impl DaemonOptions {
    /// A daemon with these settings, in TOML.
    #[must_use]
    pub fn with_settings(settings: &str) -> DaemonOptions {
        DaemonOptions {
            settings: settings.to_owned(),
            ..DaemonOptions::default()
        }
    }
}

/// A daemon, until dropped.
#[derive(Debug)]
pub struct TestDaemon {
    child: Child,
    /// Closing it ends the daemon.
    owner: Option<ChildStdin>,
    directory: tempfile::TempDir,
    runtime_dir: PathBuf,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl TestDaemon {
    /// Starts the daemon `exe`, which is `env!("CARGO_BIN_EXE_nnhal-test-daemon")` in tests of this package,
    /// and waits until clients can connect.
    ///
    /// # Panics
    ///
    /// If it does not start; with its words.
    #[must_use]
    pub fn start(exe: &str, options: &DaemonOptions) -> TestDaemon {
        TestDaemon::started(exe, options, None)
    }

    /// As [`TestDaemon::start`], with sockets in this directory, which others may use too.
    ///
    /// # Panics
    ///
    /// If it does not start; with its words.
    #[must_use]
    pub fn start_in(runtime_dir: &Path, exe: &str, options: &DaemonOptions) -> TestDaemon {
        TestDaemon::started(exe, options, Some(runtime_dir))
    }

    fn started(exe: &str, options: &DaemonOptions, runtime_dir: Option<&Path>) -> TestDaemon {
        TestDaemon::try_started(exe, options, runtime_dir)
            .unwrap_or_else(|(status, text)| panic!("the daemon did not start ({status}): {text}"))
    }

    /// As [`TestDaemon::start_in`], for a daemon that may refuse.
    ///
    /// # Errors
    ///
    /// The exit status and what it said.
    ///
    /// # Panics
    ///
    /// If it cannot be run at all, or neither starts nor ends in time.
    pub fn try_start_in(
        runtime_dir: &Path,
        exe: &str,
        options: &DaemonOptions,
    ) -> Result<TestDaemon, (ExitStatus, String)> {
        TestDaemon::try_started(exe, options, Some(runtime_dir))
    }

    fn try_started(
        exe: &str,
        options: &DaemonOptions,
        runtime_dir: Option<&Path>,
    ) -> Result<TestDaemon, (ExitStatus, String)> {
        let mut daemon = TestDaemon::spawn(exe, options, runtime_dir);
        let mut line = String::new();
        let stdout = daemon.child.stdout.take().expect("a pipe");
        let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
        let readable = poll::one(&stdout, PollFlags::POLLIN, deadline).expect("a pipe to wait for");
        assert!(
            !readable.is_empty(),
            "the daemon neither starts nor ends: {}",
            daemon.log()
        );
        let read = BufReader::new(stdout).read_line(&mut line);
        if read.is_ok() && line == "ready\n" {
            return Ok(daemon);
        }
        let status = daemon.wait();
        Err((status, daemon.log()))
    }

    /// Starts the daemon and waits for its end, for daemons that are expected to refuse. Returns the exit
    /// status and what it said.
    ///
    /// # Panics
    ///
    /// If it cannot be run at all.
    #[must_use]
    pub fn run_to_end(
        exe: &str,
        options: &DaemonOptions,
        runtime_dir: Option<&Path>,
    ) -> (ExitStatus, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = command(exe, options, directory.path(), runtime_dir)
            .spawn()
            .expect("a daemon");
        let _owner = child.stdin.take();
        let mut text = String::new();
        child
            .stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut text)
            .expect("text");
        (child.wait().expect("an exit status"), text)
    }

    fn spawn(exe: &str, options: &DaemonOptions, runtime_dir: Option<&Path>) -> TestDaemon {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime_dir = runtime_dir.map_or_else(|| directory.path().join("run"), Path::to_owned);
        let mut child = command(exe, options, directory.path(), Some(&runtime_dir))
            .spawn()
            .expect("a daemon");
        let log = Arc::default();
        let stderr = child.stderr.take().expect("a pipe");
        let reader = read_log(stderr, Arc::clone(&log));
        TestDaemon {
            owner: child.stdin.take(),
            child,
            directory,
            runtime_dir,
            log,
            reader: Some(reader),
        }
    }

    /// Where it publishes its sockets.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.runtime_dir.clone()
    }

    /// The settings file, to be changed before [`TestDaemon::signal`] with `SIGHUP`.
    #[must_use]
    pub fn settings_file(&self) -> PathBuf {
        settings_file(self.directory.path())
    }

    /// The supervisor's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The workers' process ids.
    #[must_use]
    pub fn workers(&self) -> Vec<u32> {
        children_of(self.pid())
    }

    /// What it has logged so far.
    ///
    /// # Panics
    ///
    /// Never while the reader does not.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().expect("whole text").clone()
    }

    /// Waits until it has logged `text`.
    pub fn wait_for_log(&self, text: &str) {
        wait_until(&format!("the log says {text:?}"), || self.log().contains(text));
    }

    /// Sends the supervisor a signal.
    ///
    /// # Panics
    ///
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        kill(pid(self.pid()), signal).expect("a running daemon");
    }

    /// Closes what the daemon takes for its owner.
    pub fn close_owner(&mut self) {
        self.owner = None;
    }

    /// Waits for the supervisor's end.
    ///
    /// # Panics
    ///
    /// If it does not end in time.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the daemon has ended", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        self.join_reader();
        status.expect("a status")
    }

    fn join_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        for worker in self.workers() {
            let _ = kill(pid(worker), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed())
}

fn settings_file(directory: &Path) -> PathBuf {
    directory.join("settings.toml")
}

fn command(exe: &str, options: &DaemonOptions, directory: &Path, runtime_dir: Option<&Path>) -> Command {
    let settings = settings_file(directory);
    std::fs::write(&settings, &options.settings).expect("a settings file");
    let mut command = Command::new(exe);
    command
        // All of its processes are found by their group, and no terminal's signals reach them.
        .process_group(0)
        .arg("--private")
        .arg("--config")
        .arg(settings)
        .arg("--runtime-dir")
        .arg(runtime_dir.map_or_else(|| directory.join("run"), Path::to_owned))
        .envs(options.environment.iter().cloned())
        .args(options.devices.iter().flat_map(|device| ["--device", device]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(log) = &options.log {
        command.args(["--log", log]);
    }
    command
}

fn read_log(stderr: ChildStderr, log: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut log = log.lock().expect("whole text");
            log.push_str(&line);
            log.push('\n');
        }
    })
}
