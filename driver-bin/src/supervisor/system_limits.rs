//! What the system lets the driver have, for all its users.

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};

use crate::settings::UserLimits;

/// What the system lets the driver have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SystemLimits {
    /// Descriptors of this process.
    pub(super) descriptors: u64,
    /// Processes and threads of the whole driver.
    pub(super) threads: u64,
}

impl SystemLimits {
    /// Asks the system. `descriptors` is the limit of this process.
    pub(super) fn of_this_process(descriptors: u64) -> SystemLimits {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let mut limits = vec![number(&read(Path::new("/proc/sys/kernel/threads-max")))];
        // It does not hold for root.
        if !nix::unistd::geteuid().is_root() {
            limits.push(getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft));
        }
        if let Some(group) = group_of(&read(Path::new("/proc/self/cgroup"))) {
            let root = Path::new("/sys/fs/cgroup");
            for group in Path::new(group)
                .ancestors()
                .filter_map(|group| group.strip_prefix("/").ok())
            {
                limits.push(number(&read(&root.join(group).join("pids.max"))));
            }
        }
        SystemLimits {
            descriptors,
            threads: limits.into_iter().flatten().min().unwrap_or(u64::MAX),
        }
    }

    /// How many threads one user may have: what is set, or half of all, so that the other half is for others.
    pub(super) fn threads_of_user(self, limits: &UserLimits) -> u32 {
        match limits.threads {
            0 => u32::try_from(self.threads / 2).unwrap_or(u32::MAX),
            threads => threads,
        }
    }
}

/// A number that stands alone in a file; `None` for "max".
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The control group of a process in the one hierarchy of version 2.
pub(super) fn group_of(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_has_what_is_set_or_half_of_what_there_is() {
        let system = SystemLimits {
            descriptors: 1,
            threads: 300,
        };
        let of_user = |threads| {
            system.threads_of_user(&UserLimits {
                threads,
                ..UserLimits::default()
            })
        };
        assert_eq!((of_user(0), of_user(7), of_user(1000)), (150, 7, 1000));
        assert!(SystemLimits::of_this_process(9).threads > 1);
    }

    #[test]
    fn limits_and_groups_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            (number("4915\n"), number("max\n"), number("")),
            (Some(4915), None, None)
        );
        assert_eq!(
            group_of("8:pids:/a\n0::/system.slice/nnhald.service\n"),
            Some("/system.slice/nnhald.service")
        );
        assert_eq!(group_of("8:pids:/a\n"), None);
    }
}
