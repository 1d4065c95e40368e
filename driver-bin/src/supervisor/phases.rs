//! From the start over serving to the end, and new settings in between.

use std::time::Duration;

use nnhal::diag::tags;
use nnhal::wire::handshake::Refusal;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::admission::Refused;
use super::options::SupervisorError;
use super::service_manager::{notify_ready, notify_stopping};
use super::state::{Phase, Supervisor, others};
use crate::link::Command;
use crate::settings::{JailSettings, Settings};

/// How long a worker that was killed may take to end while the driver does. The kernel keeps one for as long
/// as it waits for whoever serves a file, such as a daemon of FUSE.
const KILLED_WORKERS_TIMEOUT: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Publishes the devices once there is a worker for the first client.
    pub(super) fn start_serving(&mut self) -> Result<(), SupervisorError> {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return Ok(());
        }
        let placeholder = Phase::Serving {
            published: Vec::new(),
        };
        let Phase::Starting { claims } = std::mem::replace(&mut self.phase, placeholder) else {
            return Ok(());
        };
        let mut all = Vec::new();
        for (claim, activated) in claims {
            let others = others(&self.options.settings);
            let published = self.directory.publish(claim, activated, others)?;
            tracing::info!(target: tags::DRIVER, device = published.device(), directory = %self.directory.path().display(), "serving");
            all.push(published);
        }
        self.phase = Phase::Serving { published: all };
        notify_ready();
        (self.options.on_ready)().map_err(SupervisorError::system("say that the driver is ready"))
    }

    pub(super) fn heed_signals(&mut self) -> Result<(), SupervisorError> {
        let raised = self.signals.take();
        if raised.child {
            self.reap()?;
        }
        if raised.reload {
            self.reload();
        }
        if raised.terminate {
            match &mut self.phase {
                Phase::Draining { .. } => self.cut_short(),
                Phase::Starting { .. } | Phase::Serving { .. } => self.drain(),
            }
        }
        Ok(())
    }

    fn reload(&mut self) {
        let settings = match self.keeper.reload() {
            Ok(settings) => settings,
            Err(error) => {
                tracing::error!(target: tags::DRIVER, %error, "the settings stay as they are");
                return;
            }
        };
        let old = &self.options.settings;
        if settings.devices != old.devices || settings.runtime_dir != old.runtime_dir {
            tracing::warn!(target: tags::DRIVER, "devices and the runtime directory change with the next start only");
        }
        for warning in jail_warnings(&old.jail, &settings.jail) {
            tracing::warn!(target: tags::DRIVER, "{warning}");
        }
        self.options.settings = Settings {
            devices: old.devices.clone(),
            runtime_dir: old.runtime_dir.clone(),
            ..settings
        };
        self.let_connect();
        self.admission.set_bounds(self.bounds());
        let threads = self.system.threads_of_user(&self.options.settings.user_limits);
        self.workers.set_threads_of_user(threads);
        self.listeners.reconfigure(self.options.settings.weights.clone());
        // Workers without a client are replaced, so that the next client's has the new settings in full.
        self.workers.dismiss_idle();
        self.starting.give_up();
        let execution = self.options.settings.execution.clone();
        self.workers.command(&Command::Reconfigure(execution));
        self.has_start_failed = false;
        tracing::info!(target: tags::DRIVER, "settings read again");
    }

    /// Has the sockets' modes say who may connect now.
    fn let_connect(&self) {
        let others = others(&self.options.settings);
        if let Err(error) = self.directory.let_look(others) {
            tracing::error!(target: tags::DRIVER, %error, "other users cannot find the sockets");
        }
        let Phase::Serving { published } = &self.phase else {
            return;
        };
        for published in published {
            if let Err(error) = published.let_connect(others) {
                tracing::error!(
                    target: tags::DRIVER, device = published.device(), %error,
                    "the mode of the socket does not say who may connect"
                );
            }
        }
    }

    /// Has nobody finish what runs while the driver ends.
    pub(super) fn cut_short(&mut self) {
        if let Phase::Draining { until, is_over } = &mut self.phase
            && !std::mem::replace(is_over, true)
        {
            *until = Deadline::after(MonotonicClock.now(), KILLED_WORKERS_TIMEOUT);
            self.workers.kill_all();
        }
    }

    /// Whether the driver ends and nobody is left to wait for.
    pub(super) fn has_ended(&self) -> bool {
        let Phase::Draining { until, is_over } = self.phase else {
            return false;
        };
        let left = self.workers.count();
        if left > 0 && is_over && until.is_past(MonotonicClock.now()) {
            tracing::warn!(target: tags::DRIVER, left, "the kernel keeps workers that were killed; the driver ends before them");
            return true;
        }
        left == 0 && (self.starting.count() == 0 || is_over)
    }

    /// Takes no more clients, and has the workers come to an end.
    pub(super) fn drain(&mut self) {
        if matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        tracing::info!(target: tags::DRIVER, "ending");
        notify_stopping();
        let limit = Duration::from_millis(self.workers_settings().drain_timeout_ms);
        // Dropping what was published takes the sockets away.
        self.phase = Phase::Draining {
            until: Deadline::after(MonotonicClock.now(), limit),
            is_over: false,
        };
        let refused = Refused {
            refusal: Refusal::ShuttingDown,
            reason: "the driver is ending".to_owned(),
        };
        while self.waiting.len() > 0 {
            self.turn_away_next(&refused);
        }
        self.turn_away_pending(&refused);
        self.starting.give_up();
        self.workers.dismiss_idle();
        self.workers.command(&Command::Drain);
    }
}

/// What a change of the jail does not do at once.
fn jail_warnings(old: &JailSettings, new: &JailSettings) -> Vec<String> {
    let parts = [
        ("system_calls", old.system_calls, new.system_calls),
        ("files", old.files, new.files),
        ("namespaces", old.namespaces, new.namespaces),
    ];
    let changed = parts.iter().filter(|(_, old, new)| old != new);
    let mut warnings: Vec<_> = changed
        .map(|(part, ..)| {
            format!(
                "jail.{part} has changed: that counts for workers that start from now on; those with a client, and \
                 the supervisor, stay as they are until the driver is started again"
            )
        })
        .collect();
    if old.system_calls && !new.system_calls {
        warnings.push(
            "jail.system_calls = false takes nothing from new workers but the list for a client: they inherit one from \
             the thread that starts them until the driver is started again"
                .to_owned(),
        );
    }
    if old.user != new.user {
        warnings.push("jail.user has changed: that counts with the next start of the driver only".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_jail_say_from_when_on_they_count() {
        let old = JailSettings::default();
        assert!(jail_warnings(&old, &old).is_empty());
        let new = JailSettings {
            system_calls: false,
            files: false,
            user: "nobody".to_owned(),
            ..JailSettings::default()
        };
        let warnings = jail_warnings(&old, &new).join("\n");
        for text in [
            "jail.system_calls has changed: that counts for workers that start from now on",
            "jail.files has changed",
            "they inherit one from the thread that starts them",
            "jail.user has changed: that counts with the next start",
        ] {
            assert!(warnings.contains(text), "{warnings}");
        }
        assert!(!warnings.contains("jail.namespaces"), "{warnings}");
        assert!(!jail_warnings(&new, &old).join("").contains("inherit"));
    }
}
