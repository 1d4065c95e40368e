//! What the kernel says of a worker's jail: as much as every user may read.

use serde::Serialize;

/// What a process gave up, by `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Jail {
    /// Whether filters stand between it and system calls.
    system_calls_are_filtered: bool,
    /// Whether exec gives it nothing.
    has_no_new_privileges: bool,
    /// Whether it has any capability.
    has_capabilities: bool,
    /// Whether it is the first process of a PID namespace, so that it sees none but those that it started.
    is_alone: bool,
    /// Whose it is.
    user: Option<u32>,
}

impl Jail {
    /// Of a process on this machine; `None` if it cannot be seen.
    pub(crate) fn of(process: u32) -> Option<Jail> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(Jail::read(&status))
    }

    fn read(status: &str) -> Jail {
        let values = |key: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.unwrap_or_default().split_whitespace()
        };
        Jail {
            system_calls_are_filtered: values("Seccomp").next() == Some("2"),
            has_no_new_privileges: values("NoNewPrivs").next() == Some("1"),
            has_capabilities: values("CapEff")
                .next()
                .is_some_and(|set| !set.trim_start_matches('0').is_empty()),
            // Its number here, then inside of each namespace.
            is_alone: values("NSpid").skip(1).last() == Some("1"),
            user: values("Uid").next().and_then(|uid| uid.parse().ok()),
        }
    }
}

impl std::fmt::Display for Jail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if self.system_calls_are_filtered {
            parts.push("system calls filtered".to_owned());
        }
        if self.has_no_new_privileges {
            parts.push("no new privileges".to_owned());
        }
        if !self.has_capabilities {
            parts.push("no capabilities".to_owned());
        }
        if self.is_alone {
            parts.push("no other process in sight".to_owned());
        }
        if let Some(user) = self.user {
            parts.push(format!("user {user}"));
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_worker_is_read() {
        let jail = Jail::read(
            "Name:\tx\nNSpid:\t4711\t1\nUid:\t65534\t65534\t65534\t65534\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n\
             Seccomp:\t2\nSeccomp_filters:\t5\n",
        );
        assert_eq!(
            jail.to_string(),
            "system calls filtered, no new privileges, no capabilities, no other process in sight, user 65534"
        );
        let free = Jail::read(
            "NSpid:\t1\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n",
        );
        assert_eq!(free.to_string(), "user 0");
    }
}
