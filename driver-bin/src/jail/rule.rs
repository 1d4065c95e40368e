//! What one rule of a system-call list says.

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::error::JailError;

/// A system call that a list allows, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Its name, as the manual pages have it.
    pub(crate) name: &'static str,
    pub(crate) number: i64,
    /// What its arguments must be. Any of these is enough; none allows all.
    pub(crate) only: &'static [&'static [Argument]],
    /// Who makes the call, and what for.
    pub(crate) reason: &'static str,
    /// When it is used. A test brings about what it can of that, and must see it used then.
    pub(crate) seen: Seen,
}

/// When a rule is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// By every driver with a few clients.
    Always,
    /// By a driver that is root.
    Root,
    /// By one that is not.
    NotRoot,
    /// By one that a service manager starts, with sockets and to be told.
    Service,
    /// Where a client shares memories and fences of all kinds, holds on to answers and goes.
    Clients,
    /// Where a worker or a client is ended, or ends by a mistake.
    Deaths,
    /// By devices that look for hardware while they are made.
    Devices,
    /// By C libraries, kernels or architectures other than those that the tests run on, which have the same
    /// under another name.
    Elsewhere,
    /// Where there is hardware, or a kernel gives or refuses what no test can make it.
    Machine,
}

impl Seen {
    /// Its name in lists.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Seen::Always => "always",
            Seen::Root => "root",
            Seen::NotRoot => "not root",
            Seen::Service => "service",
            Seen::Clients => "clients",
            Seen::Deaths => "deaths",
            Seen::Devices => "devices",
            Seen::Elsewhere => "elsewhere",
            Seen::Machine => "machine",
        }
    }
}

/// A condition on an argument, by its number from 0 on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// It is this number of 32 bits.
    Is(u8, u32),
    /// None of these bits is set in its lower half.
    Lacks(u8, u32),
    /// All bits but these are those of the value.
    IsBut { argument: u8, ignored: u64, value: u64 },
    /// It is a null pointer.
    Null(u8),
    /// It is the number of this process.
    ThisProcess(u8),
}

impl Argument {
    pub(super) fn condition(self) -> Result<SeccompCondition, JailError> {
        use SeccompCmpArgLen::{Dword, Qword};
        let (argument, length, operator, value) = match self {
            Argument::Is(argument, value) => (argument, Dword, SeccompCmpOp::Eq, u64::from(value)),
            Argument::Lacks(argument, bits) => (argument, Qword, SeccompCmpOp::MaskedEq(u64::from(bits)), 0),
            Argument::IsBut {
                argument,
                ignored,
                value,
            } => (argument, Qword, SeccompCmpOp::MaskedEq(!ignored), value),
            Argument::Null(argument) => (argument, Qword, SeccompCmpOp::Eq, 0),
            Argument::ThisProcess(argument) => {
                (argument, Dword, SeccompCmpOp::Eq, u64::from(std::process::id()))
            }
        };
        Ok(SeccompCondition::new(argument, length, operator, value)?)
    }
}

impl Rule {
    /// What the compiler of filters takes.
    pub(super) fn compiled(&self) -> Result<Vec<SeccompRule>, JailError> {
        let rule = |arguments: &&[Argument]| {
            let conditions = arguments.iter().map(|argument| argument.condition());
            Ok(SeccompRule::new(conditions.collect::<Result<_, JailError>>()?)?)
        };
        self.only.iter().map(rule).collect()
    }
}

/// Threads and nothing else: the flags with which C libraries start them. musl adds one that does nothing.
pub(super) const THREAD: &[Argument] = &[Argument::IsBut {
    argument: 0,
    ignored: libc::CLONE_DETACHED as u64,
    value: (libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID) as u64,
}];

/// Processes as `nnhal_os::spawn` makes them: with its own copy of memory, and namespaces of its own or not.
pub(super) const CHILD: &[Argument] = &[Argument::IsBut {
    argument: 0,
    ignored: (libc::CLONE_NEWPID | libc::CLONE_NEWUSER) as u64,
    value: libc::SIGCHLD as u64,
}];

/// A rule: the call, when it is seen, its conditions, the reason. Without conditions its arguments
/// are free.
macro_rules! rule {
    ($number:ident, $seen:ident, [$($only:expr),* $(,)?], $reason:literal) => {
        $crate::jail::rule::Rule {
            name: stringify!($number).split_at("SYS_".len()).1,
            number: ::nix::libc::$number,
            only: &[$($only),*],
            reason: $reason,
            seen: $crate::jail::rule::Seen::$seen,
        }
    };
}

pub(super) use rule;
