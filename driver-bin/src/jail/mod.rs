//! What the processes of a driver give up, and when.
//!
//! The supervisor starts workers with their standard descriptors only; everything else it has open closes on
//! exec. Here a process takes from itself what it does not need from then on. The order counts: each step may
//! be the last one that still allows what a later one forbids.
//!
//! A worker has three steps: [`WorkerJail::begin`] before its devices are made, [`WorkerJail::enter`] after
//! that, and [`WorkerJail::meet_client`] when it has a client. What the kernel lacks or does not permit is
//! left out and reported; what it has must work, or the worker does not start.
//!
//! A supervisor has one jail for the thread that starts workers, which inherit it, and one for all others.

mod error;
mod files;
mod limits;
mod lists;
mod namespaces;
mod needs;
mod rule;
mod seccomp;
mod threads;
mod user;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use nnhal_device::Needs;
use nnhal_os::process;

pub(crate) use self::error::JailError;
pub(crate) use self::namespaces::{Birth, bear};
pub(crate) use self::needs::DeviceNeeds;
pub(crate) use self::threads::Threads;
pub use self::user::UserError;
pub(crate) use self::user::{Identity, of_workers};

use self::files::Restricted;
use self::namespaces::Namespaces;
use self::seccomp::{Filters, Further};
use crate::settings::{JailSettings, Limits};

/// What is in force in a process, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    /// What is, part by part.
    pub(crate) parts: Vec<String>,
    /// What many systems do not permit, with the reason.
    pub(crate) not_permitted: Vec<String>,
    /// What is asked for and not there, with the reason.
    pub(crate) lacking: Vec<String>,
}

impl std::fmt::Display for InForce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.parts.join(", "))?;
        if self.not_permitted.is_empty() {
            Ok(())
        } else {
            write!(f, "; not permitted here: {}", self.not_permitted.join(", "))
        }
    }
}

/// The jail of a worker, step by step.
#[derive(Debug)]
pub(crate) struct WorkerJail {
    settings: JailSettings,
    needs: DeviceNeeds,
    identity: Option<Identity>,
    namespaces: Namespaces,
    in_force: InForce,
    /// What it may do once it has a client, by device.
    serving: HashMap<String, Filters>,
}

impl WorkerJail {
    /// Before devices are made, while this process has one thread.
    pub(crate) fn begin(
        settings: &JailSettings,
        identity: Option<Identity>,
        birth: &Birth,
        needs: DeviceNeeds,
    ) -> Result<WorkerJail, JailError> {
        let namespaces = if settings.namespaces {
            Namespaces::take(birth)
        } else {
            Namespaces::default()
        };
        if settings.system_calls {
            let further = needs.iter().map(|(_, needs)| Further::of(needs)).collect();
            Filters::allowing(lists::WORKER, &further)?.apply_to_thread()?;
        }
        Ok(WorkerJail {
            settings: settings.clone(),
            needs,
            identity,
            namespaces,
            in_force: InForce::default(),
            serving: HashMap::new(),
        })
    }

    /// When devices are made, before there is a client, while this process has none but its own threads.
    pub(crate) fn enter(&mut self, limits: &Limits) -> Result<(), JailError> {
        let files = self.needs.files();
        self.namespaces.empty_root(&files);
        limits::lower(limits)?;
        if let Some(identity) = self.identity {
            user::become_user(identity)?;
            self.in_force.parts.push(format!("as user {}", identity.uid));
        }
        user::drop_capabilities()?;
        process::set_no_new_privs()?;
        // Other processes of the same user cannot read this one's memory or descriptors.
        process::set_dumpable(false)?;
        let mut may_open = self.namespaces.has_empty_root();
        if self.settings.files {
            match files::open_only(&files)? {
                Restricted::Yes(version) => {
                    may_open = true;
                    self.in_force.parts.push(format!("files (Landlock {version})"));
                }
                Restricted::No(reason) => self.in_force.lacking.push(format!("files: {reason}")),
            }
        }
        self.in_force.parts.append(&mut self.namespaces.parts());
        self.in_force
            .not_permitted
            .append(&mut self.namespaces.not_permitted);
        if self.settings.system_calls {
            self.compile(may_open)?;
        }
        Ok(())
    }

    fn compile(&mut self, may_open: bool) -> Result<(), JailError> {
        for (name, needs) in self.needs.iter() {
            let further = Further::serving(needs, may_open);
            let filters = Filters::allowing(&[lists::SERVING], &further)?;
            self.serving.insert(name.to_owned(), filters);
            if !needs.is_none() {
                self.in_force.parts.push(told(name, needs));
            }
        }
        let count = lists::SERVING.len();
        self.in_force.parts.insert(0, format!("{count} system calls"));
        Ok(())
    }

    /// What is in force from the first client on.
    pub(crate) fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// From now on the process does what its client wants, with the device of this name.
    pub(crate) fn meet_client(&self, device: &str) -> Result<(), JailError> {
        match self.serving.get(device) {
            Some(serving) => serving.apply_to_process(),
            None => Ok(()),
        }
    }
}

/// What a device needs more, for people.
fn told(name: &str, needs: &Needs) -> String {
    format!(
        "more for {name}: {} files, {} ioctls, {} calls",
        needs.files.len(),
        needs.ioctls.len(),
        needs.calls.len()
    )
}

/// The lists of system calls as text, a line for each rule: whose it is, the call, when a driver makes it,
/// and the reason.
pub(crate) fn listed() -> String {
    let mut text = String::new();
    for (whose, lists) in lists::ALL {
        for rule in lists.iter().copied().flatten() {
            let seen = rule.seen.name();
            // Text never fails to be written to.
            let _ = writeln!(text, "{whose}\t{}\t{seen}\t{}", rule.name, rule.reason);
        }
    }
    text
}

/// For the thread of a supervisor that starts workers, and for what it starts.
pub(crate) fn enter_as_spawner(settings: &JailSettings, needs: &DeviceNeeds) -> Result<(), JailError> {
    if settings.system_calls {
        let further = needs.iter().map(|(_, needs)| Further::of(needs)).collect();
        Filters::allowing(lists::SPAWNER, &further)?.apply_to_thread()?;
    }
    Ok(())
}

/// For the thread of a supervisor that reads its settings again and removes its directory.
pub(crate) fn enter_as_keeper(settings: &JailSettings) -> Result<(), JailError> {
    process::set_no_new_privs()?;
    if settings.system_calls {
        Filters::allowing(lists::KEEPER, &Further::default())?.apply_to_thread()?;
    }
    Ok(())
}

/// For the thread of a supervisor that serves clients, and for those that come from it. Whether the process
/// is dumpable counts for all. Returns what is in force.
pub(crate) fn enter_as_supervisor(
    settings: &JailSettings,
    runtime_dir: &Path,
    group: Option<&Path>,
) -> Result<InForce, JailError> {
    let mut in_force = InForce::default();
    // Its descriptors are those of all clients.
    process::set_dumpable(false)?;
    process::set_no_new_privs()?;
    user::keep_signals()?;
    if settings.files {
        match files::supervise(runtime_dir, group)? {
            Restricted::Yes(version) => in_force.parts.push(format!("files (Landlock {version})")),
            Restricted::No(reason) => in_force.lacking.push(format!("files: {reason}")),
        }
    }
    if settings.system_calls {
        Filters::allowing(lists::SUPERVISOR, &Further::default())?.apply_to_thread()?;
        in_force.parts.insert(0, "system calls".to_owned());
    }
    Ok(in_force)
}
