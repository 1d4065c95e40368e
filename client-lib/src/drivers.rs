//! Finding drivers: the sockets of those that run, and the private one where none does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nnhal::diag::tags;
use nnhal::wire::directory;
use nnhal_os::socket;

use crate::devices_options::DevicesOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::private_driver::{DriverChoice, PrivateDriver};
use crate::timeouts::Timeouts;
use crate::trust::Trust;

/// The drivers that can be used, and the private ones that were started. Drivers may come and go at any time:
/// every call looks anew.
#[derive(Clone, Debug)]
pub(crate) struct Drivers {
    options: DevicesOptions,
    directories: Vec<PathBuf>,
    /// Whether the program has named the directory: then only a driver there will do.
    is_named: bool,
    trust: Trust,
    timeouts: Timeouts,
    /// The private drivers that were started for these handles.
    private: Arc<Mutex<Vec<Arc<PrivateDriver>>>>,
    /// What was warned of that stays as it is: every call looks anew, but says so once.
    told: Arc<Mutex<BTreeSet<String>>>,
}

/// The sockets of drivers that do not serve this user.
pub(crate) type Closed = BTreeSet<PathBuf>;

/// A socket in a runtime directory.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) device: String,
    pub(crate) path: PathBuf,
}

impl Drivers {
    /// Looks for drivers. A directory that is not there yet is no error here.
    ///
    /// # Errors
    /// As [`DevicesOptions::open`].
    pub(crate) fn open(options: DevicesOptions) -> Result<Drivers> {
        let (directories, is_named) = match &options.runtime_dir {
            _ if options.is_private => (Vec::new(), false),
            Some(named) => (vec![named.clone()], true),
            None => (directory::search_path(), false),
        };
        let drivers = Drivers::new(options, directories, is_named);
        match drivers.sockets() {
            Err(error) if is_missing_directory(&error) => {}
            result => drop(result?),
        }
        Ok(drivers)
    }

    fn new(options: DevicesOptions, directories: Vec<PathBuf>, is_named: bool) -> Drivers {
        Drivers {
            trust: Trust::new(&options.driver_users),
            timeouts: Timeouts::of(&options),
            options,
            directories,
            is_named,
            private: Arc::default(),
            told: Arc::default(),
        }
    }

    /// How they were looked for.
    pub(crate) fn options(&self) -> &DevicesOptions {
        &self.options
    }

    /// Whose drivers may serve this process.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The limits of waits that have none of their own.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// The directories that are searched, in this order.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Whether a private driver may be started.
    pub(crate) fn may_start(&self) -> bool {
        !self.is_named && self.options.driver != DriverChoice::Never
    }

    /// The private driver that has this device: one that these handles have, or else a new one.
    pub(crate) fn private_with(&self, device: &str) -> Result<Arc<PrivateDriver>> {
        match self.started(device) {
            Some(driver) => Ok(driver),
            None => self.start(Some(device)),
        }
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
        let mut drivers = self.private.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|known| known.is_usable() && !Arc::ptr_eq(known, &driver));
        drivers.push(Arc::clone(&driver));
        Ok(driver)
    }

    /// The private driver of these handles that has the device already, if one has.
    fn started(&self, device: &str) -> Option<Arc<PrivateDriver>> {
        let drivers = self.private.lock().unwrap_or_else(PoisonError::into_inner);
        drivers
            .iter()
            .find(|driver| {
                driver.is_usable() && probe(&directory::socket_path(driver.runtime_dir(), device)).is_ok()
            })
            .cloned()
    }

    /// The sockets of drivers that run, or of a private driver.
    pub(crate) fn live_sockets(&self, closed: &Closed) -> Result<(Vec<Socket>, Option<Arc<PrivateDriver>>)> {
        let live = self.running_sockets(closed)?;
        if !live.is_empty() || !self.may_start() {
            return Ok((live, None));
        }
        let driver = self.start(None)?;
        let mut sockets = sockets_in(driver.runtime_dir())?;
        sockets.sort_by(|left, right| left.device.cmp(&right.device));
        Ok((sockets, Some(driver)))
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

    /// The sockets that can be connected to as far as that is known without trying, sorted by name; where two
    /// directories have a device of the same name, that of the first.
    pub(crate) fn running_sockets(&self, closed: &Closed) -> Result<Vec<Socket>> {
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
    pub(crate) fn sockets(&self) -> Result<Vec<Socket>> {
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

    /// The sockets in a directory of somebody who is trusted.
    fn sockets_in_trusted(&self, directory: &Path) -> Result<Vec<Socket>> {
        let failed = directory_error(directory);
        let opened = directory::open(directory).map_err(failed)?;
        let judged = self.trust.directory(directory, &opened).map_err(failed)?;
        judged.map_err(|reason| ErrorKind::Untrusted {
            path: directory.to_owned(),
            reason,
        })?;
        sockets_in(directory)
    }

    /// Why there is no device: of those whose sockets are there, none can be connected to.
    pub(crate) fn no_device(&self) -> Result<Error> {
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

    /// The error of a device that is not among those that there are.
    pub(crate) fn no_such_device(&self, name: &str, available: Vec<String>) -> Error {
        ErrorKind::NoSuchDevice {
            name: name.to_owned(),
            searched: self.directories.clone(),
            available,
        }
        .into()
    }

    /// Says that a device cannot be used, and notes it if that is so for good.
    pub(crate) fn leave_out(&self, socket: Socket, error: &Error, closed: &mut Closed) {
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
pub(crate) fn probe(path: &Path) -> Result<()> {
    socket::probe(path).map_err(|source| {
        ErrorKind::Connect {
            path: path.to_owned(),
            source: Arc::new(source),
        }
        .into()
    })
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

#[cfg(test)]
mod tests {
    use nnhal_os::socket::Listener;

    use super::*;

    /// As looked for by default.
    fn drivers_in(directories: Vec<PathBuf>) -> Drivers {
        let options = DevicesOptions::new().without_private_driver();
        Drivers::new(options, directories, false)
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
        let drivers = drivers_in(vec![file.clone(), missing, first, second.clone()]);
        let running = drivers.running_sockets(&Closed::new()).unwrap();
        let names: Vec<&str> = running.iter().map(|socket| socket.device.as_str()).collect();
        assert_eq!(names, ["a-both", "a-second"]);
        assert!(
            running.iter().all(|socket| socket.path.starts_with(&second)),
            "{running:?}"
        );
        let told: Vec<String> = drivers.told.lock().unwrap().iter().cloned().collect();
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
        let drivers = drivers_in(vec![first.clone(), second.clone()]);
        let in_use = |closed| {
            drivers
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
}
