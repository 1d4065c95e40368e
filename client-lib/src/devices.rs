//! Finding devices.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nnhal::diag::tags;
use nnhal::hal::{DeviceInfo, OperandType};
use nnhal::sys::{pidfd, socket};
use nnhal::time::{Clock, Deadline, MonotonicClock};
use nnhal::wire::directory;

use crate::connection::Connection;
use crate::extension_access::Application;
use crate::private_driver::{DriverChoice, DriverCommand, PrivateDriver};
use crate::{Device, Error, ErrorKind, Result};

/// How long connecting may take: a driver that is busy starting a worker takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a worker may take to end after its client has closed the connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where and how to look for devices.
///
/// By default that is the directory that the environment variable `NNHAL_RUNTIME_DIR` names; without it `nnhal` in
/// `XDG_RUNTIME_DIR` and `/run/nnhal`. If no driver runs there, and no directory was named, a private driver is
/// started; see [`DevicesOptions::driver`] for which one.
#[derive(Clone, Debug, Default)]
pub struct DevicesOptions {
    runtime_dir: Option<PathBuf>,
    is_private: bool,
    driver: DriverChoice,
    connect_timeout: Option<Duration>,
    application: Application,
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

    /// Which executable is the private driver, and the arguments that make it one, if any. Without this call it is
    /// the one that the environment variable `NNHAL_DRIVER` names, else `nnhald` beside this program's executable,
    /// else `nnhald` on the `PATH`.
    #[must_use]
    pub fn driver<A: Into<OsString>>(
        mut self,
        executable: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> DevicesOptions {
        self.driver = DriverChoice::Explicit(command(executable, arguments));
        self
    }

    /// As [`DevicesOptions::driver`], unless `NNHAL_DRIVER` names another: for programs that are a driver themselves.
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

    /// How long connecting to a driver may take; 10 seconds if not set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> DevicesOptions {
        self.connect_timeout = Some(timeout);
        self
    }

    /// The name by which the list of applications that may use vendor extensions knows this one, in reverse-domain form.
    /// Without it the list must have the path of its executable. See docs/settings.md.
    #[must_use]
    pub fn application(mut self, name: impl Into<String>) -> DevicesOptions {
        self.application.name = Some(name.into());
        self
    }

    /// The list of applications that may use vendor extensions. Without this call it is the file that the environment
    /// variable [`ALLOWLIST_VARIABLE`](crate::ALLOWLIST_VARIABLE) names, else
    /// [`SYSTEM_ALLOWLIST`](crate::SYSTEM_ALLOWLIST); if that is not there, every application may use them.
    #[must_use]
    pub fn extension_allowlist(mut self, path: impl Into<PathBuf>) -> DevicesOptions {
        self.application.allowlist = Some(path.into());
        self
    }

    /// Looks for devices. A directory that is not there yet is no error here, but in what is asked of the devices if
    /// it was named: drivers may come and go.
    ///
    /// # Errors
    /// [`ErrorKind::Directory`] if a directory is there but cannot be read.
    pub fn open(self) -> Result<Devices> {
        let (directories, is_named) = match &self.runtime_dir {
            _ if self.is_private => (Vec::new(), false),
            Some(named) => (vec![named.clone()], true),
            None => {
                let is_named =
                    std::env::var_os(directory::RUNTIME_DIR_VARIABLE).is_some_and(|name| !name.is_empty());
                (directory::search_path(), is_named)
            }
        };
        let devices = Devices {
            options: self,
            directories,
            is_named,
            drivers: Arc::default(),
        };
        match devices.sockets() {
            Err(error) if is_missing_directory(&error) => {}
            result => drop(result?),
        }
        Ok(devices)
    }
}

fn command<A: Into<OsString>>(
    executable: impl Into<PathBuf>,
    arguments: impl IntoIterator<Item = A>,
) -> DriverCommand {
    DriverCommand {
        executable: executable.into(),
        arguments: arguments.into_iter().map(Into::into).collect(),
    }
}

/// The devices that can be used.
///
/// Drivers may come and go at any time: every call looks anew.
#[derive(Clone, Debug)]
pub struct Devices {
    options: DevicesOptions,
    directories: Vec<PathBuf>,
    is_named: bool,
    /// The private drivers that were started for these handles.
    drivers: Arc<Mutex<Vec<Arc<PrivateDriver>>>>,
}

/// A socket in a runtime directory.
#[derive(Debug)]
struct Socket {
    device: String,
    path: PathBuf,
}

/// The fastest device so far.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    exec_time: f32,
    /// `None` once its connection had to make room for another.
    device: Option<Device>,
}

impl Devices {
    /// The devices of the drivers that run, or those of a private driver; see [`DevicesOptions`].
    ///
    /// # Errors
    /// As [`DevicesOptions::open`].
    pub fn open() -> Result<Devices> {
        DevicesOptions::new().open()
    }

    /// The devices of the drivers that publish theirs in this directory.
    ///
    /// # Errors
    /// As [`DevicesOptions::open`].
    pub fn open_in(runtime_dir: impl Into<PathBuf>) -> Result<Devices> {
        DevicesOptions::new().runtime_dir(runtime_dir).open()
    }

    /// The directories that are searched, in this order.
    #[must_use]
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// The names of all devices, sorted. If no driver runs, those of a private one, which is started and ends with the
    /// last handle on these devices.
    ///
    /// # Errors
    /// A directory cannot be read; a private driver cannot be started.
    pub fn names(&self) -> Result<Vec<String>> {
        let (sockets, _driver) = self.live_sockets()?;
        Ok(sockets.into_iter().map(|socket| socket.device).collect())
    }

    /// What all devices say of themselves, sorted by name. A device whose driver does not answer properly is left out,
    /// with a warning in the log.
    ///
    /// # Errors
    /// As [`Devices::names`].
    pub fn list(&self) -> Result<Vec<Arc<DeviceInfo>>> {
        let (sockets, driver) = self.live_sockets()?;
        let mut infos = Vec::new();
        for socket in sockets {
            match self.connect(&socket.path, driver.clone()) {
                Ok(device) => {
                    infos.push(Arc::clone(device.info()));
                    release(Some(device));
                }
                Err(error) => {
                    tracing::warn!(target: tags::MANAGER, device = socket.device, %error, "device left out")
                }
            }
        }
        Ok(infos)
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchDevice`] with the names that there are; [`ErrorKind::PrivateDriver`] if no driver runs and a
    /// private one cannot be started or has no such device; what connecting can fail with.
    pub fn device(&self, name: &str) -> Result<Device> {
        let socket = self.sockets()?.into_iter().find(|socket| socket.device == name);
        if let Some(socket) = socket {
            match self.connect(&socket.path, None) {
                Err(error) if self.may_start() && is_stale(&error) => {}
                result => return result,
            }
        }
        let live = self.running_sockets()?;
        if live.is_empty() && self.may_start() {
            if !DeviceInfo::is_valid_name(name) {
                return Err(self.no_such_device(name, Vec::new()));
            }
            let driver = match self.started(name) {
                Some(driver) => driver,
                None => self.start(Some(name))?,
            };
            let path = directory::socket_path(driver.runtime_dir(), name);
            return self.connect(&path, Some(driver));
        }
        Err(self.no_such_device(name, live.into_iter().map(|socket| socket.device).collect()))
    }

    /// Opens the device that computes 32-bit floats fastest by its own account, the first by name among equals. A device
    /// whose driver does not answer properly is passed over, with a warning in the log.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if there is none; [`ErrorKind::Handshake`] if a driver serves as many clients as it may,
    /// since its device may be the fastest; otherwise as [`Devices::device`].
    pub fn fastest(&self) -> Result<Device> {
        let (sockets, driver) = self.live_sockets()?;
        let mut best: Option<Candidate> = None;
        let mut last_error = None;
        for socket in sockets {
            let opened = match self.connect(&socket.path, driver.clone()) {
                // There may be no room beside the connection that this one would have to be better than.
                Err(error) if error.is_busy() && best.is_some() => {
                    release(best.as_mut().and_then(|best| best.device.take()));
                    self.connect(&socket.path, driver.clone())
                }
                result => result,
            };
            match opened {
                Ok(device) => {
                    let exec_time = exec_time(&device);
                    let beaten = if best.as_ref().is_none_or(|best| exec_time < best.exec_time) {
                        let winner = Candidate {
                            path: socket.path,
                            exec_time,
                            device: Some(device),
                        };
                        best.replace(winner).and_then(|best| best.device)
                    } else {
                        Some(device)
                    };
                    release(beaten);
                }
                Err(error) if error.is_busy() => return Err(error),
                Err(error) => {
                    tracing::warn!(target: tags::MANAGER, device = socket.device, %error, "device passed over");
                    last_error = Some(error);
                }
            }
        }
        match best {
            Some(Candidate {
                device: Some(device), ..
            }) => Ok(device),
            Some(best) => self.connect(&best.path, driver),
            None => match last_error {
                Some(error) => Err(error),
                None => Err(self.no_device()?),
            },
        }
    }

    fn no_device(&self) -> Result<Error> {
        let kind = ErrorKind::NoDevice {
            searched: self.directories.clone(),
            stale: self.sockets()?.into_iter().map(|socket| socket.path).collect(),
        };
        Ok(kind.into())
    }

    fn no_such_device(&self, name: &str, available: Vec<String>) -> Error {
        ErrorKind::NoSuchDevice {
            name: name.to_owned(),
            searched: self.directories.clone(),
            available,
        }
        .into()
    }

    fn connect(&self, path: &Path, driver: Option<Arc<PrivateDriver>>) -> Result<Device> {
        let timeout = self.options.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let deadline = Deadline::after(MonotonicClock.now(), timeout);
        Ok(Device::new(
            Connection::open(path, deadline, driver)?,
            self.clone(),
        ))
    }

    /// Whether a private driver may be started.
    fn may_start(&self) -> bool {
        !self.is_named && self.options.driver != DriverChoice::Never
    }

    fn start(&self, device: Option<&str>) -> Result<Arc<PrivateDriver>> {
        let driver =
            PrivateDriver::get(&self.options.driver, device).map_err(|error| match error.kind() {
                ErrorKind::NoDriver { reason, .. } => {
                    let (searched, reason) = (self.directories.clone(), reason.clone());
                    ErrorKind::NoDriver { searched, reason }.into()
                }
                _ => error,
            })?;
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|known| known.is_usable() && !Arc::ptr_eq(known, &driver));
        drivers.push(Arc::clone(&driver));
        Ok(driver)
    }

    /// The private driver of these handles that has the device already, if one has.
    fn started(&self, device: &str) -> Option<Arc<PrivateDriver>> {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers
            .iter()
            .find(|driver| {
                driver.is_usable() && socket::is_served(&directory::socket_path(driver.runtime_dir(), device))
            })
            .cloned()
    }

    /// The sockets of drivers that run, or of a private driver.
    fn live_sockets(&self) -> Result<(Vec<Socket>, Option<Arc<PrivateDriver>>)> {
        let live = self.running_sockets()?;
        if !live.is_empty() || !self.may_start() {
            return Ok((live, None));
        }
        let driver = self.start(None)?;
        let mut sockets = Vec::new();
        collect_sockets(driver.runtime_dir(), &mut sockets)?;
        Ok((sockets, Some(driver)))
    }

    /// Who uses the devices, for what only some may do.
    pub(crate) fn application(&self) -> &Application {
        &self.options.application
    }

    /// The devices of drivers that run, sorted, and their sockets; none in a directory that is not there.
    pub(crate) fn served(&self) -> Result<Vec<(String, PathBuf)>> {
        let sockets = match self.running_sockets() {
            Err(error) if is_missing_directory(&error) => Vec::new(),
            result => result?,
        };
        let pairs = sockets.into_iter().map(|socket| (socket.device, socket.path));
        Ok(pairs.collect())
    }

    fn running_sockets(&self) -> Result<Vec<Socket>> {
        let mut sockets = self.sockets()?;
        sockets.retain(|socket| socket::is_served(&socket.path));
        Ok(sockets)
    }

    /// All sockets, sorted by name; where two directories have a device of the same name, that of the first.
    fn sockets(&self) -> Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for directory in &self.directories {
            match collect_sockets(directory, &mut sockets) {
                // The places to look at by default need not be there.
                Err(error) if !self.is_named && is_missing_directory(&error) => {}
                result => result?,
            }
        }
        Ok(sockets)
    }
}

fn collect_sockets(directory: &Path, sockets: &mut Vec<Socket>) -> Result<()> {
    let failed = |source: std::io::Error| {
        Error::from(ErrorKind::Directory {
            path: directory.to_owned(),
            source: Arc::new(source),
        })
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        let Some(device) = file_name.to_str().and_then(directory::device_of_socket) else {
            continue;
        };
        if sockets.iter().all(|known| known.device != device) {
            sockets.push(Socket {
                device: device.to_owned(),
                path: entry.path(),
            });
        }
    }
    sockets.sort_by(|left, right| left.device.cmp(&right.device));
    Ok(())
}

/// Closes a connection and waits until its worker has ended: then the driver has room for another client.
fn release(device: Option<Device>) {
    let worker = device.as_ref().and_then(Device::worker_pidfd);
    drop(device);
    if let Some(worker) = worker {
        let deadline = Deadline::after(MonotonicClock.now(), RELEASE_TIMEOUT);
        // Whoever wants the room is told if there is none after all.
        let _ = pidfd::wait_for_end(&worker, deadline);
    }
}

/// Whether a directory that was named is not there.
fn is_missing_directory(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Directory { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Whether nobody listens on the socket any more.
fn is_stale(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Connect { source, .. } => {
            matches!(source.errno(), Some(Errno::ECONNREFUSED | Errno::ENOENT))
        }
        _ => false,
    }
}

fn exec_time(device: &Device) -> f32 {
    device
        .info()
        .capabilities
        .lookup(OperandType::TENSOR_FLOAT32)
        .exec_time
}

#[cfg(test)]
mod tests {
    use nnhal::sys::socket::Listener;

    use super::*;

    #[test]
    fn stale_socket_is_no_device() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a-stale.sock");
        drop(Listener::bind(&path).unwrap());
        let _live = Listener::bind(&directory.path().join("a-live.sock")).unwrap();
        std::fs::write(directory.path().join("a-live.lock"), "").unwrap();
        let devices = Devices::open_in(directory.path()).unwrap();
        assert_eq!(devices.names().unwrap(), ["a-live"]);
        let error = devices.device("a-stale").unwrap_err();
        assert!(error.to_string().contains("nobody listens"), "{error}");
        let error = devices.device("a-missing").unwrap_err();
        assert!(error.to_string().ends_with("there is a-live"), "{error}");
    }

    #[test]
    fn stale_socket_is_named_where_any_device_would_do() {
        let directory = tempfile::tempdir().unwrap();
        let devices = Devices::open_in(directory.path()).unwrap();
        let error = devices.fastest().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoDevice { .. }), "{error}");
        assert!(error.to_string().contains("no driver publishes any"), "{error}");
        let path = directory.path().join("a-stale.sock");
        drop(Listener::bind(&path).unwrap());
        let text = devices.fastest().unwrap_err().to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("nobody listens"), "{text}");
    }

    #[test]
    fn looking_for_devices_connects_to_none() {
        let directory = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&directory.path().join("a-live.sock")).unwrap();
        let devices = Devices::open_in(directory.path()).unwrap();
        assert_eq!(devices.names().unwrap(), ["a-live"]);
        devices.device("a-missing").unwrap_err();
        let waiting = nnhal::sys::poll::one(
            &listener,
            nix::poll::PollFlags::POLLIN,
            Deadline::after(MonotonicClock.now(), Duration::from_millis(1)),
        );
        assert!(waiting.unwrap().is_empty());
    }

    #[test]
    fn missing_directory_that_was_named_and_a_file_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none");
        let devices = Devices::open_in(&missing).unwrap();
        for error in [
            devices.names().unwrap_err(),
            devices.fastest().unwrap_err(),
            devices.device("a-b").unwrap_err(),
        ] {
            assert!(is_missing_directory(&error), "{error}");
            assert!(
                error.to_string().contains(&missing.display().to_string()),
                "{error}"
            );
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(
            Devices::open_in(file).unwrap_err().kind(),
            ErrorKind::Directory { .. }
        ));
    }
}
