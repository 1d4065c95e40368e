//! Finding devices.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nnhal::diag::tags;
use nnhal::wire::directory;
use nnhal_hal::{DeviceInfo, OperandType};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_os::{pidfd, socket};

use crate::connection::Connection;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::extension_access::Application;
use crate::private_driver::{DriverChoice, DriverCommand, PrivateDriver};

/// How long connecting may take: a driver that is busy starting a worker takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a worker may take to end after its client has closed the connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where and how to look for devices.
///
/// By default that is the directory that the environment variable `NNHAL_RUNTIME_DIR` names; without it `nnhal` in
/// `XDG_RUNTIME_DIR` and `/run/nnhal`. Directories and sockets that this user may not use are left out, with a warning in
/// the log. If no driver is left, a private one is started; see [`DevicesOptions::driver`] for which one.
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
    /// the one that the environment variable `NNHAL_DRIVER` names, else `nnhald` or `nnhal` beside this program's
    /// executable, else on the `PATH`.
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
    /// [`DevicesOptions::runtime_dir`] named it: drivers may come and go.
    ///
    /// # Errors
    /// [`ErrorKind::Directory`] if the directory that [`DevicesOptions::runtime_dir`] named is there but cannot be read, or
    /// the system has no descriptors left.
    pub fn open(self) -> Result<Devices> {
        let (directories, is_named) = match &self.runtime_dir {
            _ if self.is_private => (Vec::new(), false),
            Some(named) => (vec![named.clone()], true),
            None => (directory::search_path(), false),
        };
        let devices = Devices::new(self, directories, is_named);
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
    let arguments = arguments.into_iter().map(Into::into);
    DriverCommand::new(executable.into(), arguments.collect())
}

/// The devices that can be used.
///
/// Drivers may come and go at any time: every call looks anew.
#[derive(Clone, Debug)]
pub struct Devices {
    options: DevicesOptions,
    directories: Vec<PathBuf>,
    /// Whether the program has named the directory: then only a driver there will do.
    is_named: bool,
    /// The private drivers that were started for these handles.
    drivers: Arc<Mutex<Vec<Arc<PrivateDriver>>>>,
    /// What was warned of that stays as it is: every call looks anew, but says so once.
    told: Arc<Mutex<BTreeSet<String>>>,
}

/// The sockets of drivers that do not serve this user.
type Closed = BTreeSet<PathBuf>;

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
    fn new(options: DevicesOptions, directories: Vec<PathBuf>, is_named: bool) -> Devices {
        Devices {
            options,
            directories,
            is_named,
            drivers: Arc::default(),
            told: Arc::default(),
        }
    }

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
    /// The directory that was named cannot be read; a private driver cannot be started.
    pub fn names(&self) -> Result<Vec<String>> {
        let (sockets, _driver) = self.live_sockets(&Closed::new())?;
        Ok(sockets.into_iter().map(|socket| socket.device).collect())
    }

    /// What all devices say of themselves, sorted by name. A device whose driver does not answer properly is left out,
    /// with a warning in the log.
    ///
    /// # Errors
    /// As [`Devices::names`].
    pub fn list(&self) -> Result<Vec<Arc<DeviceInfo>>> {
        let mut closed = Closed::new();
        loop {
            let (sockets, driver) = self.live_sockets(&closed)?;
            let known = closed.len();
            let mut infos = Vec::new();
            for socket in sockets {
                match self.connect(&socket.path, driver.clone()) {
                    Ok(device) => {
                        infos.push(Arc::clone(device.info()));
                        release(Some(device));
                    }
                    Err(error) => self.leave_out(socket, &error, &mut closed),
                }
            }
            if !infos.is_empty() || closed.len() == known || !self.may_start() {
                return Ok(infos);
            }
        }
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchDevice`] with the names that there are; [`ErrorKind::PrivateDriver`] if no driver runs and a
    /// private one cannot be started or has no such device; what connecting can fail with.
    pub fn device(&self, name: &str) -> Result<Device> {
        let mut closed = Closed::new();
        let mut failure = None;
        for socket in self.sockets()?.into_iter().filter(|socket| socket.device == name) {
            match self.connect(&socket.path, None) {
                // Another directory may have one.
                Err(error) if error.is_not_allowed() => {
                    self.leave_out(socket, &error, &mut closed);
                    failure.get_or_insert(error);
                }
                Err(error) if is_stale(&error) => {
                    failure.get_or_insert(error);
                }
                result => return result,
            }
        }
        if self.may_start() && !closed.is_empty() {
            // Who does not let this user in may have other devices, too.
            for socket in self.running_sockets(&closed)? {
                match self.connect(&socket.path, None) {
                    Ok(device) => release(Some(device)),
                    Err(error) => self.leave_out(socket, &error, &mut closed),
                }
            }
        }
        let live = self.running_sockets(&closed)?;
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
        Err(failure.unwrap_or_else(|| {
            self.no_such_device(name, live.into_iter().map(|socket| socket.device).collect())
        }))
    }

    /// Opens the device that computes 32-bit floats fastest by its own account, the first by name among equals. A device
    /// whose driver does not answer properly is passed over, with a warning in the log.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if there is none; [`ErrorKind::Handshake`] if a driver serves as many clients as it may,
    /// since its device may be the fastest; otherwise as [`Devices::device`].
    pub fn fastest(&self) -> Result<Device> {
        let mut closed = Closed::new();
        loop {
            let known = closed.len();
            let result = self.fastest_of_open(&mut closed);
            if result.is_ok() || closed.len() == known || !self.may_start() {
                return result;
            }
        }
    }

    /// The fastest device beside those that are closed, to which those are added that are found to be.
    fn fastest_of_open(&self, closed: &mut Closed) -> Result<Device> {
        let (sockets, driver) = self.live_sockets(closed)?;
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
                    self.leave_out(socket, &error, closed);
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

    /// Why there is no device: of those whose sockets are there, none can be connected to.
    fn no_device(&self) -> Result<Error> {
        let mut stale = Vec::new();
        for socket in self.sockets()? {
            match probe(&socket.path) {
                Err(error) if error.is_not_allowed() => return Ok(error),
                _ => stale.push(socket.path),
            }
        }
        let searched = self.directories.clone();
        Ok(ErrorKind::NoDevice { searched, stale }.into())
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
        // Who names a directory counts on a driver there.
        if let ([directory], Some(_)) = (&self.directories[..], directory::named()) {
            self.warn_once(format!(
                "{} names {}, where no driver runs that this user may use; a private driver is started",
                directory::RUNTIME_DIR_VARIABLE,
                directory.display()
            ));
        }
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
                driver.is_usable() && probe(&directory::socket_path(driver.runtime_dir(), device)).is_ok()
            })
            .cloned()
    }

    /// The sockets of drivers that run, or of a private driver.
    fn live_sockets(&self, closed: &Closed) -> Result<(Vec<Socket>, Option<Arc<PrivateDriver>>)> {
        let live = self.running_sockets(closed)?;
        if !live.is_empty() || !self.may_start() {
            return Ok((live, None));
        }
        let driver = self.start(None)?;
        let mut sockets = sockets_in(driver.runtime_dir())?;
        sockets.sort_by(|left, right| left.device.cmp(&right.device));
        Ok((sockets, Some(driver)))
    }

    /// Who uses the devices, for what only some may do.
    pub(crate) fn application(&self) -> &Application {
        &self.options.application
    }

    /// The devices of drivers that run, sorted, and their sockets; none in a directory that is not there.
    pub(crate) fn served(&self) -> Result<Vec<(String, PathBuf)>> {
        let sockets = match self.running_sockets(&Closed::new()) {
            Err(error) if is_missing_directory(&error) => Vec::new(),
            result => result?,
        };
        let pairs = sockets.into_iter().map(|socket| (socket.device, socket.path));
        Ok(pairs.collect())
    }

    /// The sockets that can be connected to as far as that is known without trying, sorted by name; where two directories
    /// have a device of the same name, that of the first.
    fn running_sockets(&self, closed: &Closed) -> Result<Vec<Socket>> {
        let mut running: Vec<Socket> = Vec::new();
        for socket in self.sockets()? {
            let is_known = running.last().is_some_and(|known| known.device == socket.device);
            if is_known || closed.contains(&socket.path) {
                continue;
            }
            match probe(&socket.path) {
                Ok(()) => running.push(socket),
                Err(error) if error.is_not_allowed() => self.warn_of_closed(&socket.device, &error),
                Err(_) => {}
            }
        }
        Ok(running)
    }

    /// All sockets, sorted by name; those of the same name in the order of their directories.
    fn sockets(&self) -> Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for directory in &self.directories {
            match self.sockets_in_trusted(directory) {
                Ok(found) => sockets.extend(found),
                Err(error) if self.is_named || is_exhaustion(&error) => return Err(error),
                // The places to look at by default need not be there.
                Err(error) if is_missing_directory(&error) => {}
                Err(error) => self.warn_once(format!("directory left out: {error}")),
            }
        }
        sockets.sort_by(|left, right| left.device.cmp(&right.device));
        Ok(sockets)
    }

    /// The sockets in a directory; none in one that somebody else made in this user's place.
    fn sockets_in_trusted(&self, directory: &Path) -> Result<Vec<Socket>> {
        let failed = directory_error(directory);
        let opened = directory::open(directory).map_err(failed)?;
        let squatter = directory::squatter(directory, &opened).map_err(failed)?;
        if let (false, Some(owner)) = (self.is_named, squatter) {
            let path = directory.display();
            self.warn_once(format!(
                "directory left out: {path} belongs to user {owner}, whose drivers are not trusted"
            ));
            return Ok(Vec::new());
        }
        sockets_in(directory)
    }

    /// Says that a device cannot be used, and notes it if that is so for good.
    fn leave_out(&self, socket: Socket, error: &Error, closed: &mut Closed) {
        if error.is_not_allowed() {
            self.warn_of_closed(&socket.device, error);
            closed.insert(socket.path);
        } else {
            tracing::warn!(target: tags::MANAGER, device = socket.device, %error, "device left out");
        }
    }

    fn warn_of_closed(&self, device: &str, error: &Error) {
        self.warn_once(format!("device {device} left out: {error}"));
    }

    fn warn_once(&self, text: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(text.clone()) {
            tracing::warn!(target: tags::MANAGER, "{text}");
        }
    }
}

/// The error of a directory that cannot be looked into.
fn directory_error(directory: &Path) -> impl Fn(std::io::Error) -> Error + Copy + '_ {
    |source| {
        let path = directory.to_owned();
        let source = Arc::new(source);
        ErrorKind::Directory { path, source }.into()
    }
}

/// The sockets in a directory.
fn sockets_in(directory: &Path) -> Result<Vec<Socket>> {
    let failed = directory_error(directory);
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        if let Some(device) = file_name.to_str().and_then(directory::device_of_socket) {
            sockets.push(Socket {
                device: device.to_owned(),
                path: entry.path(),
            });
        }
    }
    Ok(sockets)
}

/// What connecting to a socket would fail with, as far as that is known without trying.
fn probe(path: &Path) -> Result<()> {
    socket::probe(path).map_err(|source| {
        ErrorKind::Connect {
            path: path.to_owned(),
            source: Arc::new(source),
        }
        .into()
    })
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

/// Whether a directory could not be read for want of what may be there again later.
fn is_exhaustion(error: &Error) -> bool {
    let ErrorKind::Directory { source, .. } = error.kind() else {
        return false;
    };
    let errno = source.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
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
    use nnhal_os::socket::Listener;

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

    /// As looked for by default.
    fn devices_in(directories: Vec<PathBuf>) -> Devices {
        let options = DevicesOptions::new().without_private_driver();
        Devices::new(options, directories, false)
    }

    #[test]
    fn what_cannot_be_used_hides_nothing_that_can() {
        let place = tempfile::tempdir().unwrap();
        let [file, missing, first, second] =
            ["file", "missing", "first", "second"].map(|name| place.path().join(name));
        std::fs::write(&file, "").unwrap();
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
        }
        // A driver that was killed, before one that runs.
        drop(Listener::bind(&first.join("a-both.sock")).unwrap());
        let _live = ["a-both.sock", "a-second.sock"].map(|name| Listener::bind(&second.join(name)).unwrap());
        let devices = devices_in(vec![file.clone(), missing, first, second.clone()]);
        assert_eq!(devices.names().unwrap(), ["a-both", "a-second"]);
        let running = devices.running_sockets(&Closed::new()).unwrap();
        assert!(
            running.iter().all(|socket| socket.path.starts_with(&second)),
            "{running:?}"
        );
        let told: Vec<String> = devices.told.lock().unwrap().iter().cloned().collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(&file.display().to_string()), "{told:?}");
    }

    #[test]
    fn driver_that_lets_nobody_in_does_not_hide_another() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| place.path().join(name));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
        }
        let _live = [&first, &second].map(|directory| Listener::bind(&directory.join("a-b.sock")).unwrap());
        let devices = devices_in(vec![first.clone(), second.clone()]);
        let in_use = |closed| {
            devices
                .running_sockets(&closed)
                .unwrap()
                .pop()
                .map(|socket| socket.path)
        };
        let path = |directory: &Path| directory.join("a-b.sock");
        assert_eq!(in_use(Closed::new()), Some(path(&first)));
        assert_eq!(in_use(Closed::from([path(&first)])), Some(path(&second)));
        assert_eq!(in_use(Closed::from([path(&first), path(&second)])), None);
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
        let waiting = nnhal_os::poll::one(
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
