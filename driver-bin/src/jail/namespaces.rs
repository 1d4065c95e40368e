//! Namespaces of a worker's own: no other process, no network, no shared memory by key, an empty root.
//!
//! A process may take them if it has the capability, as root has, or by a user namespace, where it has every
//! capability over what is its own. Each one that cannot be had is left out and reported.
//!
//! The PID namespace is the one that a process cannot take for itself, but only for those that it starts. So
//! a worker is born into it: see [`bear`]. A user namespace that this takes is born with it.

use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, chroot, pivot_root};
use nnhal_os::SysError;
use nnhal_os::spawn::{NewNamespaces, Program, spawn};
use nnhal_os::time::Deadline;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};

use super::user::{self, Identity};
use crate::settings::JailSettings;

/// Where the new root may be put together: what is there is hidden for that moment.
const PLACES: [&str; 5] = ["/proc", "/sys", "/tmp", "/dev", "/usr"];

/// How a kernel says that it has no such namespace for this process: it may not make one, there are none, or
/// there are as many as there may be. Other errors have other reasons, and pass.
const REFUSALS: [Errno; 5] = [
    Errno::EPERM,
    Errno::EINVAL,
    Errno::ENOSPC,
    Errno::EUSERS,
    Errno::ENOSYS,
];

/// What a worker begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Birth {
    /// Who it is outside, if it was born into a user namespace.
    pub(crate) user_outside: Option<Identity>,
    /// Why it has no PID namespace; empty if it has one, or none is wanted.
    pub(crate) refused: String,
}

/// Starts a worker as the first process of a PID namespace, or without one where that is not permitted.
/// Returns its number here. It must have begun by the deadline.
pub(crate) fn bear(
    program: &Program<'_>,
    settings: &JailSettings,
    deadline: Deadline,
) -> Result<(i32, Birth), SysError> {
    let mut birth = Birth::default();
    if settings.namespaces {
        let own = user::own();
        let (wanted, user_outside) = if own.uid == 0 {
            (NewNamespaces::Pid, None)
        } else {
            (NewNamespaces::UserAndPid, Some(own))
        };
        match spawn(program, wanted, deadline) {
            Ok(pid) => {
                birth.user_outside = user_outside;
                return Ok((pid, birth));
            }
            Err(error) if REFUSALS.contains(&error.errno) => birth.refused = error.errno.to_string(),
            Err(error) => return Err(error),
        }
    }
    spawn(program, NewNamespaces::None, deadline).map(|pid| (pid, birth))
}

/// What a process has of its own.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    names: Vec<&'static str>,
    pub(super) not_permitted: Vec<String>,
    has_mounts: bool,
    /// How the root was emptied, if it was.
    root: Option<&'static str>,
}

impl Namespaces {
    /// Takes what may be taken. This process must have one thread.
    pub(super) fn take(birth: &Birth) -> Namespaces {
        let mut namespaces = Namespaces::default();
        if birth.refused.is_empty() {
            namespaces.names.push("PID");
        } else {
            namespaces
                .not_permitted
                .push(format!("PID namespace: {}", birth.refused));
        }
        let own = user::own();
        // Root has the capability or is kept from it, and becomes another user later, of whom a user
        // namespace would know nothing.
        let outside = match birth.user_outside {
            Some(outside) => {
                namespaces.names.push("user");
                Some(outside)
            }
            None if own.uid == 0 => None,
            None if namespaces.take_one("user", CloneFlags::CLONE_NEWUSER) => Some(own),
            None => return namespaces,
        };
        if let Some(Err(error)) = outside.map(keep_number) {
            namespaces
                .not_permitted
                .push(format!("a number in the user namespace: {error}"));
        }
        namespaces.has_mounts = namespaces.take_one("mount", CloneFlags::CLONE_NEWNS);
        namespaces.take_one("network", CloneFlags::CLONE_NEWNET);
        namespaces.take_one("IPC", CloneFlags::CLONE_NEWIPC);
        namespaces
    }

    fn take_one(&mut self, name: &'static str, flag: CloneFlags) -> bool {
        match unshare(flag) {
            Ok(()) => {
                self.names.push(name);
                true
            }
            Err(errno) => {
                self.not_permitted.push(format!("{name} namespace: {errno}"));
                false
            }
        }
    }

    /// Leaves nothing of the file system but these files.
    pub(super) fn empty_root(&mut self, files: &[&Path]) {
        if !self.has_mounts {
            return;
        }
        match replace_root(files) {
            Ok(how) => self.root = Some(how),
            Err(error) => self.not_permitted.push(format!("empty root: {error}")),
        }
    }

    /// Whether only a device's files are left.
    pub(super) fn has_empty_root(&self) -> bool {
        self.root.is_some()
    }

    /// What there is, for people.
    pub(super) fn parts(&self) -> Vec<String> {
        let namespaces = self.names.iter().map(|name| format!("{name} namespace"));
        namespaces.chain(self.root.map(str::to_owned)).collect()
    }
}

/// Keeps the number that this process has outside.
fn keep_number(own: Identity) -> std::io::Result<()> {
    // The kernel permits a map of groups only to who cannot drop out of some.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{0} {0} 1", own.uid))?;
    std::fs::write("/proc/self/gid_map", format!("{0} {0} 1", own.gid))
}

/// Puts an empty file system in the place of the root, for all threads.
fn replace_root(files: &[&Path]) -> std::io::Result<&'static str> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let place = PLACES.into_iter().find(|place| {
        mount(
            "nnhal",
            *place,
            "tmpfs",
            flags,
            c"mode=0555,size=64k,nr_inodes=64",
        )
        .is_ok()
    });
    let place = place.ok_or_else(|| std::io::Error::other("no place for it may be mounted on"))?;
    for file in files {
        keep(file, Path::new(place))?;
    }
    mount_remount(place, flags | MountFlags::RDONLY, c"")?;
    chdir(place)?;
    // The old root comes to lie over the new one, and is taken away from there.
    match pivot_root(".", ".") {
        Ok(()) => {
            unmount(".", UnmountFlags::DETACH)?;
            chdir("/")?;
            Ok("empty root")
        }
        // The first file system of a machine cannot be moved.
        Err(_) => {
            chroot(".")?;
            chdir("/")?;
            Ok("changed root")
        }
    }
}

/// Has a file under the same name in the new root.
fn keep(file: &Path, root: &Path) -> std::io::Result<()> {
    // A device that is not there is not needed either.
    if !file.exists() {
        return Ok(());
    }
    let inside = root.join(file.strip_prefix("/").unwrap_or(file));
    if let Some(folder) = inside.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::File::create(&inside)?;
    mount_bind(file, &inside)?;
    Ok(())
}
