//! Namespaces of a worker's own: no network, no shared memory by key, an empty root.
//!
//! A process may take them if it has the capability, as root has, or by a user namespace, where it has every
//! capability over what is its own. Each one that cannot be had is left out and reported.

use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, chroot, pivot_root};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};

use super::user::{self, Identity};

/// Where the new root may be put together: what is there is hidden for that moment.
const PLACES: [&str; 5] = ["/proc", "/sys", "/tmp", "/dev", "/usr"];

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
    pub(super) fn take() -> Namespaces {
        let mut namespaces = Namespaces::default();
        let own = user::own();
        // Root has the capability or is kept from it, and becomes another user later, of whom a user
        // namespace would know nothing.
        if own.uid != 0 {
            if !namespaces.take_one("user", CloneFlags::CLONE_NEWUSER) {
                return namespaces;
            }
            if let Err(error) = keep_number(own) {
                namespaces
                    .not_permitted
                    .push(format!("a number in the user namespace: {error}"));
            }
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
