//! What the supervisor does with files that its other threads cannot reach.
//!
//! Landlock knows directories with all that is below them, and files that are there already. But a settings
//! file may be replaced by another one, and who removes a directory must be let remove all empty ones beside
//! it. So one thread is left out of Landlock. It reads the settings again and removes the runtime directory
//! when it is told to, and does nothing else. It hears the main thread only.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};

use nix::sys::signal::SigSet;

use crate::jail::{self, JailError};
use crate::settings::{JailSettings, Settings, SettingsError};

/// What to do, and where to tell that it is done.
#[derive(Debug)]
enum Wish {
    Reload(Sender<Result<Settings, SettingsError>>),
    RemoveDirectory(PathBuf, Sender<()>),
}

/// The thread, until dropped.
#[derive(Clone, Debug)]
pub(super) struct Keeper(Sender<Wish>);

impl Keeper {
    /// Starts the thread, and waits until it has given up what it does not need. `reload` reads the settings.
    pub(super) fn begin(
        settings: JailSettings,
        reload: impl Fn() -> Result<Settings, SettingsError> + Send + 'static,
    ) -> std::io::Result<Result<Keeper, JailError>> {
        let (wish, wishes) = mpsc::channel();
        let (told, entered) = mpsc::channel();
        std::thread::Builder::new()
            .name("keeper".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || {
                // Handlers wake the main thread by a call that this one gives up.
                let are_blocked = SigSet::all().thread_block();
                let has_entered = are_blocked
                    .map_err(|errno| {
                        JailError::Step("keep signals from the thread that reads settings", errno.into())
                    })
                    .and_then(|()| jail::enter_as_keeper(&settings));
                let is_jailed = has_entered.is_ok();
                if told.send(has_entered).is_ok() && is_jailed {
                    keep(&wishes, reload);
                }
            })?;
        // A thread that has panicked ends the process.
        let entered = entered.recv().unwrap_or(Ok(()));
        Ok(entered.map(|()| Keeper(wish)))
    }

    /// Reads the settings again. `None` if nobody can.
    pub(super) fn reload(&self) -> Option<Result<Settings, SettingsError>> {
        let (told, answer) = mpsc::channel();
        self.0.send(Wish::Reload(told)).ok()?;
        answer.recv().ok()
    }

    /// Removes a directory, if it is empty.
    pub(super) fn remove_directory(&self, path: PathBuf) {
        let (told, answer) = mpsc::channel();
        if self.0.send(Wish::RemoveDirectory(path, told)).is_ok() {
            let _ = answer.recv();
        }
    }
}

fn keep(wishes: &Receiver<Wish>, reload: impl Fn() -> Result<Settings, SettingsError>) {
    while let Ok(wish) = wishes.recv() {
        // Whoever wishes waits for the answer.
        match wish {
            Wish::Reload(told) => {
                let _ = told.send(reload());
            }
            Wish::RemoveDirectory(path, told) => {
                // Whatever is in it keeps it.
                let _ = std::fs::remove_dir(path);
                let _ = told.send(());
            }
        }
    }
}
