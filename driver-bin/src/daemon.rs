//! From a command line to a driver that runs.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use nnhal::diag::tags;
use nnhal::wire::directory;
use tracing_subscriber::filter::Targets;

use crate::device::registry::DeviceRegistry;
use crate::jail;
use crate::log;
use crate::settings::{Settings, SettingsError};
use crate::supervisor::{self, Invocation, SettingsSource, SupervisorOptions, WORKER_ARGUMENT};
use crate::worker;

/// A driver daemon: `nnhald`, or a vendor's own.
#[derive(Debug)]
pub struct Daemon {
    registry: DeviceRegistry,
    invocation: Invocation,
    name: &'static str,
    version: &'static str,
}

/// Serves neural-network devices to other processes.
///
/// SIGTERM and SIGINT let running work finish and end the driver; SIGHUP reads the settings again.
#[derive(Debug, Parser)]
struct Arguments {
    /// Settings file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Device to serve; may be given several times. Overrides the settings file.
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Directory for the sockets. Overrides the settings file; by default NNHAL_RUNTIME_DIR, else nnhal in
    /// XDG_RUNTIME_DIR, else /run/nnhal for root and /tmp/nnhal-UID for others.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Belong to the process that started this one: print "ready" when clients can connect, and end when
    /// standard input closes.
    #[arg(long)]
    private: bool,
    /// What to log, such as "info" or "driver=debug"; by default NNHAL_LOG, else "warn".
    #[arg(long, value_name = "FILTER", value_parser = log::filter)]
    log: Option<Targets>,
    /// List the devices that this binary knows, and end.
    #[arg(long)]
    list_devices: bool,
    /// List the system calls that the processes of this driver may make, and why, and end.
    #[arg(long)]
    list_system_calls: bool,
}

impl Daemon {
    /// A daemon for these devices.
    #[must_use]
    pub fn new(registry: DeviceRegistry) -> Daemon {
        Daemon {
            registry,
            invocation: Invocation::default(),
            name: "nnhald",
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// What the daemon calls itself in its help and its messages, and its version: those of the vendor's
    /// binary. Without this call it is `nnhald` in this library's version.
    #[must_use]
    pub fn named(mut self, name: &'static str, version: &'static str) -> Daemon {
        self.name = name;
        self.version = version;
        self
    }

    /// For binaries that are more than a driver: the arguments that lead to the call of [`Daemon::run`], so
    /// that workers can be started by the same way.
    #[must_use]
    pub fn reached_by<S: Into<OsString>>(mut self, prefix: impl IntoIterator<Item = S>) -> Daemon {
        self.invocation.prefix = prefix.into_iter().map(Into::into).collect();
        self
    }

    /// Runs the driver, or a worker if that is what `arguments` ask for; `arguments` are what follows the
    /// binary's name and the prefix. Returns when all is over; failures are told on standard error, with exit
    /// code 1, mistakes on the command line with 2.
    pub fn run(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        let mut arguments = arguments.into_iter().peekable();
        if arguments.next_if(|first| first == WORKER_ARGUMENT).is_some() {
            return worker::main(&self.registry);
        }
        let command = Arguments::command().name(self.name).version(self.version);
        let words = std::iter::once(OsString::from(self.name)).chain(arguments);
        let parsed = command
            .try_get_matches_from(words)
            .and_then(|matches| Arguments::from_arg_matches(&matches));
        let arguments = match parsed {
            Ok(arguments) => arguments,
            Err(error) => {
                let _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            }
        };
        self.run_supervisor(arguments)
    }

    fn run_supervisor(self, arguments: Arguments) -> ExitCode {
        let list = if arguments.list_devices {
            Some(
                self.registry
                    .names()
                    .map(|name| format!("{name}\n"))
                    .collect::<String>(),
            )
        } else {
            arguments.list_system_calls.then(jail::listed)
        };
        if let Some(list) = list {
            return match std::io::stdout().write_all(list.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => self.fail(error),
            };
        }
        let source = SettingsSource {
            config: arguments.config,
            devices: arguments.device,
            runtime_dir: arguments.runtime_dir,
        };
        let settings = match read_settings(&source, &self.registry) {
            Ok(settings) => settings,
            Err(error) => return self.fail(error),
        };
        let owner = if arguments.private {
            match std::io::stdin().as_fd().try_clone_to_owned() {
                Ok(owner) => Some(owner),
                Err(error) => return self.fail(format!("--private needs an open standard input: {error}")),
            }
        } else {
            None
        };
        let targets = arguments.log.unwrap_or_else(log::of_environment);
        log::start(&targets);
        std::panic::set_hook(Box::new(end_by_panic));
        let name = self.name;
        let options = SupervisorOptions {
            registry: self.registry,
            settings,
            reload: read_settings,
            source,
            on_ready: if arguments.private { say_ready } else { || Ok(()) },
            invocation: Invocation {
                log: targets.to_string(),
                ..self.invocation
            },
            owner,
        };
        match supervisor::run(options) {
            Ok(()) => {
                log::flush();
                ExitCode::SUCCESS
            }
            Err(error) => {
                log::say(&format!("{name}: {error}"));
                ExitCode::FAILURE
            }
        }
    }

    fn fail(&self, error: impl Display) -> ExitCode {
        fail(self.name, error)
    }
}

fn read_settings(source: &SettingsSource, registry: &DeviceRegistry) -> Result<Settings, SettingsError> {
    let mut settings = match &source.config {
        Some(path) => Settings::read(path)?,
        None => Settings::default(),
    };
    if !source.devices.is_empty() {
        settings.devices.clone_from(&source.devices);
    }
    if let Some(directory) = &source.runtime_dir {
        settings.runtime_dir.clone_from(directory);
    }
    if settings.runtime_dir.as_os_str().is_empty() {
        settings.runtime_dir = directory::runtime_dir();
    }
    settings.check(registry)?;
    Ok(settings)
}

/// Whoever started a private driver waits for this line.
fn say_ready() -> io::Result<()> {
    let mut out = io::stdout();
    match writeln!(out, "ready").and_then(|()| out.flush()) {
        // There is nobody to tell; the end of standard input will end the driver.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}

/// A driver without one of its threads would go on half dead; one that has ended can be started again.
fn end_by_panic(info: &PanicHookInfo<'_>) {
    tracing::error!(target: tags::DRIVER, "{}", log::describe_panic(info));
    log::flush();
    std::process::abort();
}

fn fail(name: &str, error: impl Display) -> ExitCode {
    // Standard error is the last resort; if it is closed, the exit code says enough.
    let _ = writeln!(std::io::stderr(), "{name}: {error}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn panic_of_any_thread_ends_the_driver() {
        const PART: &str = "NNHAL_TEST_PART";
        if std::env::var_os(PART).is_some() {
            std::panic::set_hook(Box::new(end_by_panic));
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            std::process::exit(0);
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "daemon::tests::panic_of_any_thread_ends_the_driver"]);
        let output = again.env(PART, "1").output().unwrap();
        assert_eq!(output.status.signal(), Some(nix::libc::SIGABRT), "{output:?}");
    }
}
