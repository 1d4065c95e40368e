//! Control groups of users, where a hierarchy of version 2 was delegated to the driver.
//!
//! The kernel then weighs users against each other, however many workers each has, and bounds what all
//! workers of one user have together. Elsewhere the driver's own accounting is all that there is, and it goes
//! on where there are groups.
//!
//! A group that has others below it may have no processes of its own. So the driver moves itself into one
//! below, where workers begin, and each worker into its user's group with its client.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, geteuid};
use nnhal::diag::tags;
use rustix::fs::getxattr;

use super::system_limits::group_of;
use crate::settings::UserLimits;

/// Where hierarchies of version 2 are mounted: alone, or beside those of version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What is asked of a hierarchy.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// What systemd gives a group that it delegates, with the value 1.
const MARKS: [&str; 2] = ["trusted.delegate", "user.delegate"];

/// The group of the driver itself.
const DRIVER: &str = "driver";

/// What a user's processes may have beside the threads that are counted by the driver: those that end.
const THREADS_THAT_END: u32 = 64;

/// The groups of users below the driver's own.
#[derive(Debug)]
pub(super) struct ControlGroups {
    own: PathBuf,
    /// How many workers there are in the group of each user.
    workers: HashMap<u32, u32>,
    /// Files of limits that could not be written, and of which the log tells.
    told: HashSet<&'static str>,
}

impl ControlGroups {
    /// Takes over the group of this process, if it was delegated. The text says why it was not.
    pub(super) fn take() -> Result<ControlGroups, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group_of(&groups).ok_or("there is no hierarchy of version 2")?;
        let group = group.strip_prefix('/').unwrap_or(group);
        let own = ROOTS.map(|root| Path::new(root).join(group));
        let own = own
            .into_iter()
            .find(|own| own.join("cgroup.controllers").exists());
        let own = own.ok_or("no hierarchy of version 2 is mounted")?;
        // Root may write everywhere, so that alone does not tell whether another one manages the group.
        if geteuid().is_root() && !is_marked(&own) {
            return Err(format!(
                "the group was not delegated: it has neither {}",
                MARKS.join(" nor ")
            ));
        }
        ControlGroups::take_over(&own, std::process::id())
    }

    /// Takes over this group, whose only process is this one.
    fn take_over(own: &Path, process: u32) -> Result<ControlGroups, String> {
        // The group of the whole machine is nobody's.
        if !own.join("cgroup.type").exists() {
            return Err("the group is the root".to_owned());
        }
        let offered = read(&own.join("cgroup.controllers"));
        let offered: Vec<_> = offered.split_whitespace().collect();
        let wanted = CONTROLLERS.iter().filter(|name| offered.contains(name));
        let wanted: Vec<_> = wanted.map(|name| format!("+{name}")).collect();
        if wanted.is_empty() {
            return Err(format!("the group has none of {}", CONTROLLERS.join(", ")));
        }
        for file in ["cgroup.procs", "cgroup.subtree_control"] {
            access(&own.join(file), AccessFlags::W_OK)
                .map_err(|errno| format!("the group was not delegated: {file}: {errno}"))?;
        }
        let others = read(&own.join("cgroup.procs"));
        if others.lines().any(|other| other != process.to_string()) {
            return Err("other processes are in the group".to_owned());
        }
        let driver = own.join(DRIVER);
        let taken = make(&driver)
            .and_then(|()| join(&driver, process))
            .and_then(|()| std::fs::write(own.join("cgroup.subtree_control"), wanted.join(" ")));
        if let Err(error) = taken {
            let _ = join(own, process);
            let _ = std::fs::remove_dir(&driver);
            return Err(error.to_string());
        }
        Ok(ControlGroups {
            own: own.to_owned(),
            workers: HashMap::new(),
            told: HashSet::new(),
        })
    }

    /// The group that was taken over. The driver writes below it.
    pub(super) fn own(&self) -> &Path {
        &self.own
    }

    /// A worker has a client of this user from now on, who may have so many threads.
    pub(super) fn enter(&mut self, uid: u32, worker: i32, limits: &UserLimits, threads: u32) {
        let count = self.workers.entry(uid).or_default();
        *count += 1;
        let is_first = *count == 1;
        let group = group(&self.own, uid);
        // A group that has stayed has the limits of its time.
        let joined = if is_first {
            Err(ErrorKind::NotFound.into())
        } else {
            join(&group, worker)
        };
        let entered = match joined {
            Err(error) if error.kind() == ErrorKind::NotFound => make(&group).and_then(|()| {
                self.limit(&group, limits, threads);
                join(&group, worker)
            }),
            joined => joined,
        };
        if let Err(error) = entered {
            tracing::warn!(target: tags::DRIVER, uid, worker, %error, "the worker is in no control group of its user");
        }
    }

    /// Writes what a user's workers may have together. A controller that is not there has no file.
    fn limit(&mut self, group: &Path, limits: &UserLimits, threads: u32) {
        let memory = match limits.memory_bytes {
            0 => "max".to_owned(),
            bytes => bytes.to_string(),
        };
        for (file, value) in [
            ("cpu.weight", limits.cpu_weight.to_string()),
            ("memory.max", memory),
            ("pids.max", threads.saturating_add(THREADS_THAT_END).to_string()),
        ] {
            let path = group.join(file);
            let Err(error) = std::fs::write(&path, value) else {
                continue;
            };
            if path.exists() && self.told.insert(file) {
                tracing::warn!(target: tags::DRIVER, path = %path.display(), %error, "a limit of a user does not hold in its control group");
            } else {
                tracing::debug!(target: tags::DRIVER, path = %path.display(), %error, "a control group has no such limit");
            }
        }
    }

    /// A worker of this user has ended.
    pub(super) fn leave(&mut self, uid: u32) {
        let Some(count) = self.workers.get_mut(&uid) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.workers.remove(&uid);
            // One that stays is used again.
            let _ = std::fs::remove_dir(group(&self.own, uid));
        }
    }
}

fn group(own: &Path, uid: u32) -> PathBuf {
    own.join(format!("user-{uid}"))
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn make(group: &Path) -> io::Result<()> {
    match std::fs::create_dir(group) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn join(group: &Path, process: impl ToString) -> io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), process.to_string())
}

/// Whether systemd says that it leaves this group to the processes in it.
fn is_marked(group: &Path) -> bool {
    let mut value = [0; 2];
    MARKS
        .iter()
        .any(|mark| getxattr(group, *mark, &mut value).is_ok_and(|length| value[..length] == *b"1"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nnhal_os::time::{Clock, Deadline, MonotonicClock};

    use super::*;

    /// A directory that looks like a group with these controllers and processes.
    fn delegated(controllers: &str, processes: &str) -> tempfile::TempDir {
        let group = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cgroup.type", "domain\n"),
            ("cgroup.controllers", controllers),
            ("cgroup.procs", processes),
            ("cgroup.subtree_control", ""),
        ] {
            std::fs::write(group.path().join(file), text).unwrap();
        }
        group
    }

    #[test]
    fn workers_are_in_the_group_of_their_user_with_its_limits() {
        let place = delegated("cpuset cpu io memory pids\n", "7\n");
        let mut groups = ControlGroups::take_over(place.path(), 7).unwrap();
        let text = |file: &str| std::fs::read_to_string(place.path().join(file)).unwrap();
        assert_eq!(text("driver/cgroup.procs"), "7");
        assert_eq!(text("cgroup.subtree_control"), "+cpu +memory +pids");
        let limits = UserLimits {
            cpu_weight: 50,
            memory_bytes: 1 << 30,
            ..UserLimits::default()
        };
        groups.enter(1000, 11, &limits, 100);
        groups.enter(1001, 12, &UserLimits::default(), u32::MAX);
        groups.enter(1000, 13, &limits, 100);
        assert_eq!(text("user-1000/cgroup.procs"), "13");
        assert_eq!(text("user-1000/cpu.weight"), "50");
        assert_eq!(text("user-1000/memory.max"), "1073741824");
        assert_eq!(text("user-1000/pids.max"), "164");
        assert_eq!(text("user-1001/cgroup.procs"), "12");
        assert_eq!(text("user-1001/cpu.weight"), "100");
        assert_eq!(text("user-1001/memory.max"), "max");
        assert_eq!(groups.workers, HashMap::from([(1000, 2), (1001, 1)]));
        groups.leave(1000);
        groups.leave(1001);
        assert_eq!(groups.workers, HashMap::from([(1000, 1)]));
    }

    #[test]
    fn group_that_was_not_delegated_is_left_alone_with_a_reason() {
        for (controllers, processes, reason) in [
            ("", "7\n", "the group has none of cpu, memory, pids"),
            ("cpu\n", "7\n8\n", "other processes are in the group"),
        ] {
            let place = delegated(controllers, processes);
            let refused = ControlGroups::take_over(place.path(), 7).unwrap_err();
            assert_eq!(refused, reason);
            assert!(!place.path().join(DRIVER).exists());
        }
        let place = delegated("cpu\n", "7\n");
        std::fs::remove_file(place.path().join("cgroup.subtree_control")).unwrap();
        let refused = ControlGroups::take_over(place.path(), 7).unwrap_err();
        assert!(refused.contains("not delegated"), "{refused}");
        let place = delegated("cpu\n", "7\n");
        std::fs::remove_file(place.path().join("cgroup.type")).unwrap();
        assert!(
            ControlGroups::take_over(place.path(), 7)
                .unwrap_err()
                .contains("root")
        );
    }

    #[test]
    fn group_that_cannot_be_taken_over_is_given_back() {
        let place = delegated("cpu\n", "7\n");
        // In the way of the file that is to be written.
        let control = place.path().join("cgroup.subtree_control");
        std::fs::remove_file(&control).unwrap();
        std::fs::create_dir(&control).unwrap();
        assert!(ControlGroups::take_over(place.path(), 7).is_err());
        assert_eq!(read(&place.path().join("cgroup.procs")), "7");
    }

    #[test]
    fn group_that_could_not_be_made_is_made_for_the_next_worker() {
        let place = delegated("cpu memory\n", "7\n");
        let mut groups = ControlGroups::take_over(place.path(), 7).unwrap();
        let in_the_way = place.path().join("user-1000");
        std::fs::write(&in_the_way, "").unwrap();
        groups.enter(1000, 11, &UserLimits::default(), 100);
        std::fs::remove_file(&in_the_way).unwrap();
        groups.enter(1000, 12, &UserLimits::default(), 100);
        assert_eq!(read(&in_the_way.join("cgroup.procs")), "12");
        assert_eq!(read(&in_the_way.join("pids.max")), "164");
        assert_eq!(groups.workers, HashMap::from([(1000, 2)]));
    }

    #[test]
    fn limit_that_is_there_and_cannot_be_written_is_told_of_once() {
        let place = delegated("memory\n", "7\n");
        let mut groups = ControlGroups::take_over(place.path(), 7).unwrap();
        for (uid, told) in [(1000, true), (1001, false)] {
            // In the way of the file that is to be written.
            let file = place.path().join(format!("user-{uid}/memory.max"));
            std::fs::create_dir_all(file).unwrap();
            let before = groups.told.len();
            groups.enter(uid, 11, &UserLimits::default(), 100);
            assert_eq!(groups.told.len() > before, told);
        }
        assert_eq!(groups.told, HashSet::from(["memory.max"]));
    }

    #[test]
    fn group_without_a_mark_was_not_delegated() {
        let place = tempfile::tempdir().unwrap();
        assert!(!is_marked(place.path()));
        for (value, is_delegated) in [("0", false), ("1", true), ("10", false)] {
            let set = rustix::fs::setxattr(
                place.path(),
                MARKS[1],
                value.as_bytes(),
                rustix::fs::XattrFlags::empty(),
            );
            if let Err(error) = set {
                println!("SKIPPED: directories for temporary files have no such attributes: {error}");
                return;
            }
            assert_eq!(is_marked(place.path()), is_delegated, "{value}");
        }
    }

    /// A group of the kernel with a process in it. Both go when this is dropped.
    struct Populated(PathBuf, std::process::Child);

    impl Drop for Populated {
        fn drop(&mut self) {
            let _ = self.1.kill();
            let _ = self.1.wait();
            // As soon as the kernel has let the process go.
            let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(10));
            while std::fs::remove_dir(&self.0).is_err_and(|error| error.kind() != ErrorKind::NotFound)
                && !deadline.is_past(MonotonicClock.now())
            {
                std::thread::yield_now();
            }
        }
    }

    fn root() -> Option<&'static Path> {
        let mut roots = ROOTS.map(Path::new).into_iter();
        roots.find(|root| root.join("cgroup.controllers").exists())
    }

    /// A program that waits, in a group with this name below the root, if one can be made there.
    fn populated(name: &str) -> Option<Populated> {
        let place = root()?.join(format!("nnhal-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&place).ok()?;
        let child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn();
        let child = child.inspect_err(|_| {
            let _ = std::fs::remove_dir(&place);
        });
        let populated = Populated(place.clone(), child.unwrap());
        join(&place, populated.1.id()).unwrap();
        Some(populated)
    }

    /// Of the kernel's own groups, where it has the controllers in this hierarchy.
    #[test]
    fn limits_hold_in_groups_of_the_kernel() {
        let has = |file: &str| {
            let text = read(&root().unwrap_or(Path::new("/nowhere")).join(file));
            CONTROLLERS
                .iter()
                .all(|name| text.split_whitespace().any(|other| other == *name))
        };
        if !has("cgroup.controllers") || !has("cgroup.subtree_control") {
            println!("SKIPPED: the kernel has not {CONTROLLERS:?} in a hierarchy of version 2");
            return;
        }
        let (Some(driver), Some(worker)) = (populated("driver"), populated("worker")) else {
            println!("SKIPPED: no group can be made here");
            return;
        };
        let mut groups = ControlGroups::take_over(&driver.0, driver.1.id()).unwrap();
        let limits = UserLimits {
            cpu_weight: 50,
            memory_bytes: 1 << 30,
            ..UserLimits::default()
        };
        groups.enter(1000, worker.1.id().cast_signed(), &limits, 100);
        let place = driver.0.join("user-1000");
        let told =
            ["cpu.weight", "memory.max", "pids.max", "cgroup.procs"].map(|file| read(&place.join(file)));
        drop(worker);
        let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(10));
        while std::fs::remove_dir(&place).is_err() && !deadline.is_past(MonotonicClock.now()) {
            std::thread::yield_now();
        }
        let _ = join(root().unwrap(), driver.1.id());
        let _ = std::fs::remove_dir(driver.0.join(DRIVER));
        let [weight, memory, pids, processes] = &told;
        assert_eq!(
            [weight.trim(), memory.trim(), pids.trim()],
            ["50", "1073741824", "164"]
        );
        assert_eq!(processes.lines().count(), 1);
    }

    #[test]
    fn process_joins_a_group_of_the_kernel() {
        let Some(populated) = populated("joins") else {
            println!("SKIPPED: no group can be made here");
            return;
        };
        let groups = read(Path::new(&format!("/proc/{}/cgroup", populated.1.id())));
        let place = populated.0.clone();
        drop(populated);
        let name = place.file_name().unwrap().to_str().unwrap();
        assert!(group_of(&groups).unwrap().ends_with(name), "{groups}");
    }
}
