//! The jail of the supervisor, and what is told of the workers'.

use nnhal::diag::tags;

use super::control_groups::ControlGroups;
use super::options::SupervisorError;
use super::state::Supervisor;
use crate::jail::{self, InForce};

impl Supervisor {
    /// Gives up what the threads that deal with clients do not need.
    pub(super) fn enter_jail(&self) -> Result<(), SupervisorError> {
        let group = self.groups.as_ref().map(ControlGroups::own);
        let in_force = jail::enter_as_supervisor(&self.options.settings.jail, self.directory.path(), group)
            .map_err(|error| SupervisorError::Jail(error.to_string()))?;
        tell("the supervisor's", &in_force);
        Ok(())
    }

    /// Logs what is in force in workers, once and when it has changed.
    pub(super) fn tell_of_jail(&mut self, in_force: InForce) {
        if self.jail != in_force {
            tell("the workers'", &in_force);
            self.jail = in_force;
        }
    }
}

fn tell(whose: &str, in_force: &InForce) {
    tracing::info!(target: tags::DRIVER, "{whose} jail: {in_force}");
    if !in_force.lacking.is_empty() {
        tracing::warn!(target: tags::DRIVER, "{whose} jail lacks {}", in_force.lacking.join("; "));
    }
}
