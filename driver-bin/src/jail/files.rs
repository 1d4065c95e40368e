//! What a process may open, by Landlock.
//!
//! A worker may open nothing. A supervisor may read what the kernel says of processes and processors. It may
//! write in its runtime directory alone.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::error::JailError;

/// The newest interface whose rights are asked for. What an older kernel lacks of it is left out.
const NEWEST: ABI = ABI::V6;

/// How far a process was restricted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Restricted {
    /// By the kernel's interface of this version.
    Yes(String),
    /// Not at all.
    No(&'static str),
}

/// A directory or file, and what may be done there.
struct Allowed {
    path: PathBuf,
    access: BitFlags<AccessFs>,
}

/// Lets this thread, and all that come from it, open nothing but these files, and reach no process outside.
pub(super) fn open_only(nodes: &[&Path]) -> Result<Restricted, JailError> {
    let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let allowed = nodes.iter().map(|node| Allowed {
        path: node.to_path_buf(),
        access,
    });
    restrict(allowed, Scope::from_all(NEWEST))
}

/// The same, of what a supervisor needs: to write in its runtime directory and below its control group, and
/// to read what the kernel says of processes and processors.
pub(super) fn supervise(runtime_dir: &Path, group: Option<&Path>) -> Result<Restricted, JailError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let group = group.map(|group| {
        let change = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeDir | AccessFs::RemoveDir;
        (group.to_owned(), read | change)
    });
    let allowed = [
        (
            runtime_dir.to_owned(),
            AccessFs::from_all(NEWEST) & !AccessFs::Execute,
        ),
        (PathBuf::from("/proc"), read),
        // The page about processors, whose number a new thread may ask for.
        (PathBuf::from("/sys/devices/system/cpu"), read),
        (PathBuf::from("/sys/fs/cgroup"), read),
        (
            PathBuf::from("/dev/null"),
            AccessFs::ReadFile | AccessFs::WriteFile,
        ),
    ];
    // Its workers come from another thread and are outside, and it must kill them. A service manager may
    // listen on an abstract socket.
    let is_abstract = |socket: std::ffi::OsString| socket.as_encoded_bytes().starts_with(b"@");
    let scopes = if std::env::var_os("NOTIFY_SOCKET").is_some_and(is_abstract) {
        BitFlags::empty()
    } else {
        Scope::AbstractUnixSocket.into()
    };
    restrict(
        allowed
            .into_iter()
            .chain(group)
            .map(|(path, access)| Allowed { path, access }),
        scopes,
    )
}

fn restrict(
    allowed: impl Iterator<Item = Allowed>,
    scopes: BitFlags<Scope>,
) -> Result<Restricted, JailError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?;
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut created = ruleset.create()?;
    for Allowed { path, access } in allowed {
        created = allow(created, &path, access)?;
    }
    let status = created.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Restricted::No("Landlock is switched off")
        }
        (RulesetStatus::NotEnforced, _) => Restricted::No("the kernel has no Landlock"),
        (_, LandlockStatus::Available { effective_abi, .. }) => {
            Restricted::Yes(format!("{effective_abi:?}").trim_start_matches('V').to_owned())
        }
        _ => Restricted::No("the kernel has no Landlock"),
    })
}

/// Allows access to what is there; what is not needs no rule.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    // Rights to directories make no sense for files.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    };
    ruleset.add_rule(PathBeneath::new(opened, access))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn supervisor_writes_in_its_directory_and_reaches_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let [run, beside] = ["run", "beside"].map(|name| place.path().join(name));
        fs::create_dir(&run).unwrap();
        fs::create_dir(&beside).unwrap();
        let settings = place.path().join("settings.toml");
        fs::write(&settings, "").unwrap();
        // Landlock is each thread's own.
        let tried = std::thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                nnhal_os::process::set_no_new_privs().unwrap();
                if let Restricted::No(reason) = supervise(&run, None).unwrap() {
                    println!("SKIPPED: {reason}");
                    return None;
                }
                fs::write(run.join("lock"), "").unwrap();
                fs::rename(run.join("lock"), run.join("lock2")).unwrap();
                fs::remove_file(run.join("lock2")).unwrap();
                fs::read("/proc/self/stat").unwrap();
                Some([
                    fs::read(&settings).map(drop),
                    fs::write(place.path().join("new"), ""),
                    fs::remove_dir(&beside),
                    fs::remove_dir(&run),
                    fs::read("/etc/passwd").map(drop),
                ])
            });
            restricted.join().unwrap()
        });
        for result in tried.into_iter().flatten() {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
    }
}
