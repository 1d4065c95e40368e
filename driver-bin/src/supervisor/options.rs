//! How a driver is run, and why it cannot be.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::runtime_dir::RuntimeDirError;
use super::spawner::Invocation;
use crate::device::registry::DeviceRegistry;
use crate::jail::UserError;
use crate::settings::{Settings, SettingsError};

/// How a driver is run.
#[derive(Debug)]
pub struct SupervisorOptions {
    /// The devices that there are.
    pub registry: DeviceRegistry,
    /// The settings, checked.
    pub settings: Settings,
    /// Reads the settings again, on SIGHUP.
    pub reload: fn(&SettingsSource, &DeviceRegistry) -> Result<Settings, SettingsError>,
    /// What to read them from.
    pub source: SettingsSource,
    /// Called once clients can connect. A driver that cannot say so to who waits for it ends.
    pub on_ready: fn() -> std::io::Result<()>,
    /// How workers are started.
    pub invocation: Invocation,
    /// Ends the driver when it closes, for drivers that belong to one application.
    pub owner: Option<OwnedFd>,
}

/// What settings are made of: a file, and what the command line says instead.
#[derive(Clone, Debug, Default)]
pub struct SettingsSource {
    /// The settings file.
    pub config: Option<PathBuf>,
    /// Devices from the command line.
    pub devices: Vec<String>,
    /// The runtime directory from the command line.
    pub runtime_dir: Option<PathBuf>,
}

/// Why a driver cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Its sockets cannot be published.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// It has no user for its workers.
    #[error(transparent)]
    User(#[from] UserError),
    /// It cannot give up what it should.
    #[error("failed to give up privileges: {0}")]
    Jail(String),
    /// The first worker did not come up.
    #[error("no worker could be started: {0}")]
    Worker(String),
    /// The system refused something.
    #[error("failed to {action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl SupervisorError {
    pub(super) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl FnOnce(E) -> SupervisorError {
        move |source| SupervisorError::System {
            action,
            source: source.into(),
        }
    }
}
