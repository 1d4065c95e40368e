//! Whose a worker is: of a supervisor that is root, a user's who has nothing.

use nix::unistd::{Gid, Uid, User, getegid, geteuid, setgroups, setresgid, setresuid};
use nnhal_os::SysError;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::error::JailError;

/// The user that workers are given to if there is one.
const OWN: &str = "nnhal";

/// What a kernel calls those who have no number: by custom the user "nobody", who owns nothing.
const NOBODY: u32 = 65_534;

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Why there is no user for workers.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The settings name one that there is not.
    #[error("jail.user is {0:?}, and there is no such user")]
    Unknown(String),
    /// Only root can be several users.
    #[error("jail.user is {0:?}, and only a driver that runs as root can give its workers to another user")]
    NotRoot(String),
    /// Root without what it takes.
    #[error(
        "this driver runs as root, and may not give its workers to another user ({0}); \
         jail.user = \"root\" leaves them to root"
    )]
    NotPermitted(String),
}

/// Whose workers are to be: `None` if the driver's own user's.
pub(crate) fn of_workers(setting: &str) -> Result<Option<Identity>, UserError> {
    if !geteuid().is_root() {
        let own = User::from_uid(geteuid()).ok().flatten();
        let is_own = setting.is_empty()
            || setting == geteuid().to_string()
            || own.is_some_and(|own| own.name == setting);
        return if is_own {
            Ok(None)
        } else {
            Err(UserError::NotRoot(setting.to_owned()))
        };
    }
    let identity = match setting {
        "" => named(OWN).unwrap_or(Identity {
            uid: NOBODY,
            gid: NOBODY,
        }),
        setting => match setting.parse() {
            Ok(number) => Identity {
                uid: number,
                gid: User::from_uid(Uid::from_raw(number))
                    .ok()
                    .flatten()
                    .map_or(number, |user| user.gid.as_raw()),
            },
            Err(_) => named(setting).ok_or_else(|| UserError::Unknown(setting.to_owned()))?,
        },
    };
    let map = |file| std::fs::read_to_string(file).unwrap_or_default();
    let has_number = has_number(&map("/proc/self/uid_map"), identity.uid)
        && has_number(&map("/proc/self/gid_map"), identity.gid);
    // Root of a user namespace alone is one user as any other is outside.
    if identity.uid == 0 || (setting.is_empty() && !has_number) {
        return Ok(None);
    }
    if !has_number {
        return Err(UserError::NotPermitted(
            "this user namespace does not have it".to_owned(),
        ));
    }
    // A worker of another user must be killed, too.
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
    let own = capabilities(None).map_err(|errno| UserError::NotPermitted(errno.to_string()))?;
    if !own.effective.contains(needed) {
        let lacking = needed & !own.effective;
        return Err(UserError::NotPermitted(format!("it lacks {lacking:?}")));
    }
    Ok(Some(identity))
}

/// Whether a user or group has a number, by the ranges that there are of them.
fn has_number(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(number))
    })
}

fn named(name: &str) -> Option<Identity> {
    let user = User::from_name(name).ok().flatten()?;
    Some(Identity {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    })
}

/// Makes all threads of this process that user's.
pub(super) fn become_user(identity: Identity) -> Result<(), JailError> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    // Without other groups. A user namespace may forbid that, which has none that count.
    let groups = setgroups(&[]);
    setresgid(gid, gid, gid).map_err(SysError::of("setresgid"))?;
    setresuid(uid, uid, uid).map_err(SysError::of("setresuid"))?;
    groups.map_err(SysError::of("setgroups"))?;
    Ok(())
}

/// Gives up all capabilities of this thread, and of those that come from it.
pub(super) fn drop_capabilities() -> Result<(), JailError> {
    keep_capabilities(CapabilitySet::empty())
}

/// Gives up all capabilities of this thread, and of those that come from it, but the one to end workers that
/// are another user's.
pub(super) fn keep_signals() -> Result<(), JailError> {
    let own = capabilities(None).map_err(not_given_up)?;
    keep_capabilities(own.permitted & CapabilitySet::KILL)
}

fn keep_capabilities(kept: CapabilitySet) -> Result<(), JailError> {
    let kept = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept).map_err(not_given_up)
}

fn not_given_up(errno: rustix::io::Errno) -> JailError {
    JailError::Step("give up capabilities", std::io::Error::from(errno))
}

/// Who this process is, in its own user namespace.
pub(super) fn own() -> Identity {
    Identity {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_numbers_within_the_ranges_of_the_map() {
        let all = "         0          0 4294967295\n";
        assert!(has_number(all, 0) && has_number(all, NOBODY));
        let some = "0 1000 1\n1 100000 65536\n";
        assert!(has_number(some, 65_536) && !has_number(some, 65_537));
        assert!(!has_number("0 0 1\n", NOBODY) && !has_number("", 0) && !has_number("nonsense", 0));
    }

    #[test]
    fn settings_name_a_user_by_name_or_number() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can be several users");
            return;
        }
        let identity = |setting| of_workers(setting).unwrap();
        assert_eq!(identity("root"), None);
        assert_eq!(identity("0"), None);
        assert_eq!(
            identity("54321"),
            Some(Identity {
                uid: 54_321,
                gid: 54_321
            })
        );
        assert!(identity("").is_some_and(|identity| identity.uid != 0));
        assert!(matches!(of_workers("no such user"), Err(UserError::Unknown(_))));
    }
}
