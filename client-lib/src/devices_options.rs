//! Where and how to look for devices.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::extension_access::Application;
use crate::private_driver::{DriverChoice, DriverCommand};

/// Where and how to look for devices.
///
/// By default that is the directory that the environment variable `NNHAL_RUNTIME_DIR` names; without it
/// `nnhal` in `XDG_RUNTIME_DIR`, `/run/nnhal`, and without `XDG_RUNTIME_DIR` last `/tmp/nnhal-UID`.
/// Directories and sockets that this user may not use are left out, with a warning in the log, and so are
/// drivers of users who are not trusted; see [`DevicesOptions::trust_driver_of`]. If no driver is left, a
/// private one is started; see [`DevicesOptions::driver`] for which one.
#[derive(Clone, Debug, Default)]
pub struct DevicesOptions {
    pub(crate) runtime_dir: Option<PathBuf>,
    pub(crate) is_private: bool,
    pub(crate) driver: DriverChoice,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) work_timeout: Option<Duration>,
    pub(crate) application: Application,
    pub(crate) driver_users: Vec<u32>,
}

impl DevicesOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> DevicesOptions {
        DevicesOptions::default()
    }

    /// Looks in this directory only. No private driver is started.
    #[must_use]
    pub fn runtime_dir(mut self, path: impl Into<PathBuf>) -> DevicesOptions {
        self.runtime_dir = Some(path.into());
        self
    }

    /// Looks for no driver that runs: a private one is started in any case.
    #[must_use]
    pub fn private(mut self) -> DevicesOptions {
        self.is_private = true;
        self
    }

    /// Which executable is the private driver, and the arguments that make it one, if any. Without this call
    /// it is the one that the environment variable `NNHAL_DRIVER` names, else `nnhald` or `nnhal` beside this
    /// program's executable, else on the `PATH`.
    #[must_use]
    pub fn driver<A: Into<OsString>>(
        mut self,
        executable: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> DevicesOptions {
        self.driver = DriverChoice::Explicit(command(executable, arguments));
        self
    }

    /// As [`DevicesOptions::driver`], unless `NNHAL_DRIVER` names another: for programs that are a driver
    /// themselves.
    #[must_use]
    pub fn own_driver<A: Into<OsString>>(
        mut self,
        executable: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> DevicesOptions {
        self.driver = DriverChoice::Unless(command(executable, arguments));
        self
    }

    /// Starts no private driver.
    #[must_use]
    pub fn without_private_driver(mut self) -> DevicesOptions {
        self.driver = DriverChoice::Never;
        self
    }

    /// Trusts the drivers of this user, too, who can then see and decide what this program computes. Without
    /// this call drivers are trusted that belong to this process's effective user, to root, or to whom
    /// [`DRIVER_USERS_VARIABLE`] names; in `/run/nnhal` also those of the user to whom that directory
    /// belongs, as only root can make it.
    ///
    /// [`DRIVER_USERS_VARIABLE`]: crate::DRIVER_USERS_VARIABLE
    #[must_use]
    pub fn trust_driver_of(mut self, user: u32) -> DevicesOptions {
        self.driver_users.push(user);
        self
    }

    /// How long connecting to a driver may take; 10 seconds if not set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> DevicesOptions {
        self.connect_timeout = Some(timeout);
        self
    }

    /// How long a driver may take to answer what needs no computing. Without this call it is what the
    /// environment variable [`CALL_TIMEOUT_VARIABLE`](crate::CALL_TIMEOUT_VARIABLE) says, else 60 seconds.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> DevicesOptions {
        self.call_timeout = Some(timeout);
        self
    }

    /// How long an execution or a preparation may take that is given no limit of its own
    /// ([`ExecuteOptions::wait_at_most`](crate::ExecuteOptions::wait_at_most)); zero: as long as the worker
    /// lives, whatever it does. Without this call it is what the environment variable
    /// [`WORK_TIMEOUT_VARIABLE`](crate::WORK_TIMEOUT_VARIABLE) says, else an hour.
    #[must_use]
    pub fn work_timeout(mut self, timeout: Duration) -> DevicesOptions {
        self.work_timeout = Some(timeout);
        self
    }

    /// The name by which the list of applications that may use vendor extensions knows this one, in
    /// reverse-domain form. Without it the list must have the path of its executable. See docs/settings.md.
    #[must_use]
    pub fn application(mut self, name: impl Into<String>) -> DevicesOptions {
        self.application.name = Some(name.into());
        self
    }

    /// The list of applications that may use vendor extensions. Without this call it is the file that the
    /// environment variable [`ALLOWLIST_VARIABLE`](crate::ALLOWLIST_VARIABLE) names, else
    /// [`SYSTEM_ALLOWLIST`](crate::SYSTEM_ALLOWLIST); if that is not there, every application may use them.
    #[must_use]
    pub fn extension_allowlist(mut self, path: impl Into<PathBuf>) -> DevicesOptions {
        self.application.allowlist = Some(path.into());
        self
    }
}

fn command<A: Into<OsString>>(
    executable: impl Into<PathBuf>,
    arguments: impl IntoIterator<Item = A>,
) -> DriverCommand {
    let arguments = arguments.into_iter().map(Into::into);
    DriverCommand::new(executable.into(), arguments.collect())
}
