//! The service manager, if there is one: the sockets that it has made, and what it is told.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nnhal::diag::tags;
use sd_notify::NotifyState;

use super::options::SupervisorError;

/// Sockets that a service manager made for this driver, by device: `FileDescriptorName=` is the device's
/// name.
pub(super) fn activated_sockets() -> Result<HashMap<String, OwnedFd>, SupervisorError> {
    let failed = SupervisorError::system("take over sockets from the service manager");
    let sockets = sd_notify::listen_fds_with_names().map_err(failed)?;
    let mut by_device = HashMap::new();
    for (raw, name) in sockets {
        // The number stays open beside the duplicate, owned by nobody, as the service manager gave it.
        let duplicate = nnhal_os::fds::duplicate(raw)
            .map_err(|error| SupervisorError::system("take over an activated socket")(error.errno))?;
        let device = name.strip_suffix(".sock").unwrap_or(&name).to_owned();
        by_device.insert(device, duplicate);
    }
    Ok(by_device)
}

/// Says that clients can connect.
pub(super) fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Says that the driver ends.
pub(super) fn notify_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(target: tags::DRIVER, %error, "cannot tell the service manager");
    }
}
