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
use crate::settings::Settings;

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
        (self.options.on_ready)();
        Ok(())
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
                Phase::Draining { is_over, .. } => {
                    *is_over = true;
                    self.workers.kill_all();
                }
                Phase::Starting { .. } | Phase::Serving { .. } => self.drain(),
            }
        }
        Ok(())
    }

    fn reload(&mut self) {
        let settings = match (self.options.reload)(&self.options.source, &self.options.registry) {
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
        self.options.settings = Settings {
            devices: old.devices.clone(),
            runtime_dir: old.runtime_dir.clone(),
            ..settings
        };
        self.let_connect();
        self.admission.set_bounds(self.bounds());
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
        self.turn_away_applicants(&refused);
        self.starting.give_up();
        self.workers.dismiss_idle();
        self.workers.command(&Command::Drain);
    }
}
