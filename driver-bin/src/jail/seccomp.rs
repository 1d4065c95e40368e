//! System-call filters, made of lists.
//!
//! A call that its list does not allow ends the process at once. Some calls are refused with an error
//! instead: those that the C library and Rust's make by the way, and can do without.

use std::collections::BTreeMap;

use nix::libc;
use nnhal_device::Needs;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use super::error::JailError;
use super::rule::{Argument, Rule};

/// Calls that fail, as if the kernel did not have them or did not permit them.
pub(crate) const REFUSED: &[(i64, i32, &str)] = &[
    (
        libc::SYS_clone3,
        libc::ENOSYS,
        "its flags lie where no filter can see them; the C library then calls clone",
    ),
    (
        libc::SYS_openat,
        libc::EACCES,
        "a panic looks for the executable's names, the C library for its files",
    ),
    #[cfg(target_arch = "x86_64")]
    (
        libc::SYS_readlink,
        libc::EACCES,
        "a panic looks for the executable",
    ),
    (
        libc::SYS_readlinkat,
        libc::EACCES,
        "a panic looks for the executable",
    ),
    (libc::SYS_getcwd, libc::EACCES, "a panic shortens paths"),
    (
        libc::SYS_mremap,
        libc::ENOSYS,
        "a large block of the heap that grows; the C library then copies it",
    ),
    (
        libc::SYS_membarrier,
        libc::ENOSYS,
        "some C libraries ask for it, and do without",
    ),
    (
        libc::SYS_mseal,
        libc::ENOSYS,
        "newer C libraries ask for it, and do without",
    ),
    (
        libc::SYS_set_robust_list,
        libc::ENOSYS,
        "the start of a thread, for locks that nobody has here",
    ),
    (
        libc::SYS_writev,
        libc::EACCES,
        "the C library says why it aborts, to nobody",
    ),
];

/// Filters that are ready to be put in force.
#[derive(Debug)]
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Allows what these lists have, and what devices need. Of the rest, [`REFUSED`] calls fail and all
    /// others end the process.
    pub(crate) fn allowing(lists: &[&[Rule]], further: &Further) -> Result<Filters, JailError> {
        let mut rules = allowed(lists)?;
        further.add_to(&mut rules)?;
        let mut by_error: BTreeMap<i32, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
        for &(number, errno, _) in REFUSED {
            // What one of the lists allows is not refused.
            if rules.contains_key(&number) {
                continue;
            }
            rules.insert(number, Vec::new());
            by_error.entry(errno).or_default().insert(number, Vec::new());
        }
        let mut programs = Vec::new();
        for (errno, refused) in by_error {
            let refuse = SeccompAction::Errno(errno.cast_unsigned());
            programs.push(compile(refused, SeccompAction::Allow, refuse)?);
        }
        // Last, since it need not allow that further filters are added.
        programs.push(compile(rules, SeccompAction::KillProcess, SeccompAction::Allow)?);
        Ok(Filters(programs))
    }

    /// Puts them in force, for this thread and those that come from it, for good.
    pub(crate) fn apply_to_thread(&self) -> Result<(), JailError> {
        for program in &self.0 {
            seccompiler::apply_filter(program)?;
        }
        Ok(())
    }

    /// Puts them in force, for all threads and for good.
    pub(crate) fn apply_to_process(&self) -> Result<(), JailError> {
        for program in &self.0 {
            seccompiler::apply_filter_all_threads(program)?;
        }
        Ok(())
    }
}

/// What devices need beside the lists.
#[derive(Debug, Default)]
pub(crate) struct Further {
    calls: Vec<i64>,
    ioctls: Vec<u32>,
}

impl Further {
    /// What a device needs at any time.
    pub(crate) fn of(needs: &Needs) -> Further {
        Further {
            calls: needs.calls.iter().map(|call| call.what).collect(),
            ioctls: needs.ioctls.iter().map(|ioctl| ioctl.what).collect(),
        }
    }

    /// What it needs while it serves a client. It opens files only where it cannot open others.
    pub(crate) fn serving(needs: &Needs, may_open: bool) -> Further {
        let mut further = Further::of(needs);
        if may_open && !needs.files.is_empty() {
            further.calls.push(libc::SYS_openat);
        }
        further
    }

    fn add_to(&self, rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), JailError> {
        for &number in &self.calls {
            rules.insert(number, Vec::new());
        }
        for &ioctl in &self.ioctls {
            let condition = Argument::Is(1, ioctl).condition()?;
            let known = rules.entry(libc::SYS_ioctl).or_default();
            known.push(SeccompRule::new(vec![condition])?);
        }
        Ok(())
    }
}

impl FromIterator<Further> for Further {
    fn from_iter<T: IntoIterator<Item = Further>>(all: T) -> Further {
        let mut sum = Further::default();
        for mut further in all {
            sum.calls.append(&mut further.calls);
            sum.ioctls.append(&mut further.ioctls);
        }
        sum
    }
}

/// The rules of the lists by call. Of two for one call the first that is free of conditions counts, else any
/// of them is enough.
fn allowed(lists: &[&[Rule]]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, JailError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for rule in lists.iter().copied().flatten() {
        let conditions = rule.compiled()?;
        match rules.get_mut(&rule.number) {
            None => {
                rules.insert(rule.number, conditions);
            }
            Some(known) if known.is_empty() || conditions.is_empty() => known.clear(),
            Some(known) => known.extend(conditions),
        }
    }
    Ok(rules)
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, JailError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, otherwise, matched, architecture)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::super::lists::{SERVING, SPAWNER, SUPERVISOR, WORKER};
    use super::*;

    #[test]
    fn no_call_is_allowed_to_a_worker_with_a_client_and_refused() {
        for (number, _, reason) in REFUSED {
            assert!(
                SERVING.iter().all(|rule| rule.number != *number),
                "{number}: {reason}"
            );
        }
    }

    #[test]
    fn all_lists_compile() {
        for lists in [&[SERVING][..], WORKER, SPAWNER, SUPERVISOR] {
            Filters::allowing(lists, &Further::default()).unwrap();
        }
    }

    #[test]
    fn conditions_of_two_lists_for_one_call_are_joined() {
        let number = libc::SYS_prctl;
        let count = |lists: &[&[Rule]]| allowed(lists).unwrap().get(&number).map(Vec::len);
        assert!(count(WORKER) > count(&[SERVING]));
        // Without conditions all arguments are allowed.
        let free = allowed(WORKER).unwrap();
        assert!(free.get(&libc::SYS_mmap).is_some_and(Vec::is_empty));
    }
}
