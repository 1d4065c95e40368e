//! Opening devices: by name, the fastest, or all of them to ask what they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nnhal::wire::directory;
use nnhal_hal::{DeviceInfo, OperandType};
use nnhal_os::pidfd;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::connection::Connection;
use crate::device::Device;
use crate::devices_options::DevicesOptions;
use crate::drivers::{Closed, Drivers};
use crate::error::{Error, ErrorKind, Result};
use crate::private_driver::PrivateDriver;

/// How long a worker may take to end after its client has closed the connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

impl DevicesOptions {
    /// Looks for devices. A directory that is not there yet is no error here, but in what is asked of the
    /// devices if [`DevicesOptions::runtime_dir`] named it: drivers may come and go.
    ///
    /// # Errors
    /// [`ErrorKind::Directory`] if the directory that [`DevicesOptions::runtime_dir`] named is there but
    /// cannot be read, or the system has no descriptors left.
    pub fn open(self) -> Result<Devices> {
        let drivers = Drivers::open(self)?;
        Ok(Devices { drivers })
    }
}

/// The devices that can be used.
///
/// Drivers may come and go at any time: every call looks anew.
#[derive(Clone, Debug)]
pub struct Devices {
    pub(crate) drivers: Drivers,
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
        self.drivers.directories()
    }

    /// The names of all devices, sorted. If no driver runs, those of a private one, which is started and ends
    /// with the last handle on these devices.
    ///
    /// This connects to no driver. A driver that refuses this user only when it is connected to has its
    /// devices here all the same; [`Devices::list`] leaves them out.
    ///
    /// # Errors
    /// The directory that was named cannot be read; a private driver cannot be started.
    pub fn names(&self) -> Result<Vec<String>> {
        let (sockets, _driver) = self.drivers.live_sockets(&Closed::new())?;
        Ok(sockets.into_iter().map(|socket| socket.device).collect())
    }

    /// What all devices say of themselves, sorted by name. A device whose driver does not answer properly is
    /// left out, with a warning in the log.
    ///
    /// # Errors
    /// As [`Devices::names`].
    pub fn list(&self) -> Result<Vec<Arc<DeviceInfo>>> {
        let mut closed = Closed::new();
        loop {
            let (sockets, driver) = self.drivers.live_sockets(&closed)?;
            let known = closed.len();
            let mut infos = Vec::new();
            for socket in sockets {
                match self.connect(&socket.path, driver.clone()) {
                    Ok(device) => {
                        infos.push(Arc::clone(device.info()));
                        release(Some(device));
                    }
                    Err(error) => self.drivers.leave_out(socket, &error, &mut closed),
                }
            }
            // What is closed may have hidden another driver's.
            if closed.len() == known {
                return Ok(infos);
            }
        }
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchDevice`] with the names that there are; [`ErrorKind::PrivateDriver`] if no driver
    /// runs and a private one cannot be started or has no such device; what connecting can fail with.
    pub fn device(&self, name: &str) -> Result<Device> {
        let mut closed = Closed::new();
        let mut failure = None;
        for socket in self
            .drivers
            .sockets()?
            .into_iter()
            .filter(|socket| socket.device == name)
        {
            match self.connect(&socket.path, None) {
                // Another directory may have one.
                Err(error) if error.is_not_allowed() => {
                    self.drivers.leave_out(socket, &error, &mut closed);
                    failure.get_or_insert(error);
                }
                Err(error) if is_stale(&error) => {
                    failure.get_or_insert(error);
                }
                result => return result,
            }
        }
        if self.drivers.may_start() && !closed.is_empty() {
            // Who does not let this user in may have other devices, too.
            for socket in self.drivers.running_sockets(&closed)? {
                match self.connect(&socket.path, None) {
                    Ok(device) => release(Some(device)),
                    Err(error) => self.drivers.leave_out(socket, &error, &mut closed),
                }
            }
        }
        let live = self.drivers.running_sockets(&closed)?;
        if live.is_empty() && self.drivers.may_start() {
            if !DeviceInfo::is_valid_name(name) {
                return Err(self.drivers.no_such_device(name, Vec::new()));
            }
            return match self.connect_privately(name)? {
                // It was dying, and its socket still there.
                (Err(error), driver)
                    if (error.is_dead_object() || is_stale(&error)) && driver.ends_soon() =>
                {
                    self.connect_privately(name)?.0
                }
                (result, _) => result,
            };
        }
        Err(failure.unwrap_or_else(|| {
            self.drivers
                .no_such_device(name, live.into_iter().map(|socket| socket.device).collect())
        }))
    }

    /// Opens a device of a private driver.
    fn connect_privately(&self, name: &str) -> Result<(Result<Device>, Arc<PrivateDriver>)> {
        let driver = self.drivers.private_with(name)?;
        let path = directory::socket_path(driver.runtime_dir(), name);
        Ok((self.connect(&path, Some(Arc::clone(&driver))), driver))
    }

    /// Opens the device that computes 32-bit floats fastest by its own account, the first by name among
    /// equals. A device whose driver does not answer properly is passed over, with a warning in the log.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if there is none; [`ErrorKind::Handshake`] if a driver serves as many clients
    /// as it may, since its device may be the fastest; otherwise as [`Devices::device`].
    pub fn fastest(&self) -> Result<Device> {
        let mut closed = Closed::new();
        loop {
            let known = closed.len();
            let result = self.fastest_of_open(&mut closed);
            if closed.len() == known || result.is_err() && !self.drivers.may_start() {
                return result;
            }
            // What is closed may have hidden another driver's, which may be faster.
            release(result.ok());
        }
    }

    /// The fastest device beside those that are closed, to which those are added that are found to be.
    fn fastest_of_open(&self, closed: &mut Closed) -> Result<Device> {
        let (sockets, driver) = self.drivers.live_sockets(closed)?;
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
                    self.drivers.leave_out(socket, &error, closed);
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
                None => Err(self.drivers.no_device()?),
            },
        }
    }

    fn connect(&self, path: &Path, driver: Option<Arc<PrivateDriver>>) -> Result<Device> {
        let timeouts = self.drivers.timeouts();
        let deadline = timeouts.connect_deadline(self.drivers.options().connect_timeout);
        Ok(Device::new(
            Connection::open(path, deadline, driver, self.drivers.trust(), timeouts)?,
            self.drivers.clone(),
        ))
    }
}

impl Device {
    /// The same device through a new worker: after the old one has died, or beside it. Nothing of the old one
    /// can be used with it.
    ///
    /// # Errors
    /// As [`Devices::device`].
    pub fn reopen(&self) -> Result<Device> {
        let drivers = self.drivers().clone();
        Devices { drivers }.device(self.name())
    }
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
            let is_missing = matches!(
                error.kind(),
                ErrorKind::Directory { source, .. } if source.kind() == std::io::ErrorKind::NotFound
            );
            assert!(is_missing, "{error}");
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
