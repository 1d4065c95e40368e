//! What the supervisor does with files that its other threads cannot reach.
//!
//! Landlock knows directories with all that is below them, and files that are there already. But a settings
//! file may be replaced by another one, and who removes a directory must be let remove all empty ones beside
//! it. So one thread is left out of Landlock. It reads the settings again and removes the runtime directory
//! when it is told to, and does nothing else. It hears the main thread only.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

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
pub(super) struct Keeper {
    wishes: Sender<Wish>,
    /// How long it may take to read the settings.
    limit: Duration,
}

/// How long the main thread waits, which serves nobody meanwhile. A file system that does not answer must not
/// keep the driver from what else it does.
const LIMIT: Duration = Duration::from_secs(2);

/// The same at the end, when there is nobody to serve.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// Why the settings were not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("they could not be read within {} ms", .0.as_millis())]
    Late(Duration),
}

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
        Ok(entered.map(|()| Keeper {
            wishes: wish,
            limit: LIMIT,
        }))
    }

    /// Reads the settings again.
    pub(super) fn reload(&self) -> Result<Settings, ReloadError> {
        let settings = self.granted(self.limit, Wish::Reload);
        Ok(settings.ok_or(ReloadError::Late(self.limit))??)
    }

    /// Removes a directory, if it is empty.
    pub(super) fn remove_directory(&self, path: PathBuf) {
        // Where that is late, the process ends without it, and the next driver takes the directory.
        let _ = self.granted(REMOVAL_LIMIT, |told| Wish::RemoveDirectory(path, told));
    }

    /// The answer to a wish. A thread that has panicked has none, and ends the process.
    fn granted<T>(&self, limit: Duration, wish: impl FnOnce(Sender<T>) -> Wish) -> Option<T> {
        let (told, answer) = mpsc::channel();
        self.wishes.send(wish(told)).ok()?;
        answer.recv_timeout(limit).ok()
    }
}

fn keep(wishes: &Receiver<Wish>, reload: impl Fn() -> Result<Settings, SettingsError>) {
    while let Ok(wish) = wishes.recv() {
        // Whoever wishes waits for the answer, or has given it up.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_read_are_given_up_and_the_next_ones_taken() {
        let open = JailSettings {
            system_calls: false,
            files: false,
            ..JailSettings::default()
        };
        let (let_go, gate) = mpsc::channel::<()>();
        let mut keeper = Keeper::begin(open, move || {
            // As a file system that does not answer, once.
            let _ = gate.recv();
            Ok(Settings::default())
        })
        .unwrap()
        .unwrap();
        keeper.limit = Duration::from_millis(1);
        assert!(matches!(keeper.reload(), Err(ReloadError::Late(_))));
        drop(let_go);
        keeper.limit = Duration::from_secs(60);
        assert!(matches!(keeper.reload(), Ok(settings) if settings == Settings::default()));
    }
}
