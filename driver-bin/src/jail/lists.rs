//! The system calls that the processes of a driver may make: data, each with its reason.
//!
//! A process has several lists together. What a worker inherits of the thread that starts it must allow what
//! it does later, so the lists of a later step are part of those of an earlier one. Where a call stands in
//! two lists, either one's conditions are enough.

use nix::libc;
use nnhal_os::sched;

use super::rule::Argument::{Is, Lacks, Null, ThisProcess};
use super::rule::{CHILD, Rule, THREAD, rule};

const EXECUTABLE: u32 = libc::PROT_EXEC as u32;

/// `_IOWR('>', 4, struct sync_file_info)`.
const SYNC_IOC_FILE_INFO: u32 = 0xC038_3E04;
/// `_IOW('b', 0, struct dma_buf_sync)`.
const DMA_BUF_IOCTL_SYNC: u32 = 0x4008_6200;

/// What a worker may do once it has a client.
pub(crate) const SERVING: &[Rule] = &[
    // Messages and descriptors.
    rule!(
        SYS_recvmsg,
        Always,
        [],
        "calls of the client, orders of the supervisor"
    ),
    rule!(
        SYS_shutdown,
        Machine,
        [],
        "a link to a supervisor that does not answer, a client that is dropped"
    ),
    rule!(
        SYS_sendmsg,
        Always,
        [],
        "answers, with descriptors; requests for packed weights"
    ),
    rule!(
        SYS_ppoll,
        Always,
        [],
        "waits for calls, orders, fences and room to answer"
    ),
    rule!(SYS_close, Always, [], "what a client has released"),
    rule!(
        SYS_read,
        Always,
        [],
        "counters of fences and of the process's own events"
    ),
    rule!(SYS_write, Always, [], "fences that signal, the log"),
    rule!(
        SYS_fcntl,
        Always,
        [
            &[Is(1, libc::F_GETFL as u32)],
            &[Is(1, libc::F_SETFL as u32)],
            &[Is(1, libc::F_GETFD as u32)],
            &[Is(1, libc::F_DUPFD_CLOEXEC as u32)],
            &[Is(1, libc::F_GET_SEALS as u32)],
            &[Is(1, libc::F_ADD_SEALS as u32)],
        ],
        "kinds, duplicates and seals of memories and fences"
    ),
    rule!(
        SYS_eventfd2,
        Always,
        [],
        "fences of executions, wakers of threads"
    ),
    rule!(
        SYS_ioctl,
        Clients,
        [
            &[Is(1, SYNC_IOC_FILE_INFO)],
            &[Is(1, DMA_BUF_IOCTL_SYNC)],
            &[Is(1, libc::TIOCOUTQ as u32)],
        ],
        "what a fence of the kernel has come to; access to a dma-buf; what a client has not read"
    ),
    // Memory, the client's and its own.
    rule!(
        SYS_mmap,
        Always,
        [&[Lacks(2, EXECUTABLE)]],
        "memories of clients, heap, stacks of threads"
    ),
    rule!(SYS_munmap, Always, [], "the end of those"),
    rule!(
        SYS_mprotect,
        Always,
        [&[Lacks(2, EXECUTABLE)]],
        "guards of stacks, growth of the heap"
    ),
    rule!(SYS_madvise, Always, [], "memory that is given back, huge pages"),
    rule!(SYS_brk, Always, [], "the heap"),
    rule!(SYS_memfd_create, Always, [], "packed weights for other workers"),
    rule!(SYS_ftruncate, Always, [], "the size of those"),
    rule!(SYS_statx, Always, [], "what kind a file is, and its size"),
    rule!(
        SYS_fstatfs,
        Always,
        [],
        "whether a memory is of huge pages, or of FUSE"
    ),
    rule!(SYS_lseek, Machine, [], "the size of a dma-buf"),
    rule!(SYS_pread64, Clients, [], "constants and cache files"),
    rule!(SYS_pwrite64, Always, [], "cache files"),
    // Threads and time.
    rule!(
        SYS_futex,
        Always,
        [],
        "locks, doorbells of bursts, helper threads"
    ),
    rule!(
        SYS_futex_waitv,
        Always,
        [],
        "one thread that serves several bursts"
    ),
    rule!(
        SYS_sched_yield,
        Clients,
        [],
        "a burst that polls, or work of low priority, lets others go first"
    ),
    rule!(SYS_clone, Always, [THREAD], "threads, and nothing but threads"),
    rule!(SYS_rseq, Always, [], "the start of a thread"),
    rule!(SYS_sigaltstack, Always, [], "the start and the end of a thread"),
    rule!(SYS_rt_sigprocmask, Always, [], "the start of a thread"),
    rule!(SYS_rt_sigaction, Machine, [], "the C library aborts"),
    rule!(SYS_rt_sigreturn, Elsewhere, [], "the end of a signal's handler"),
    rule!(
        SYS_setpriority,
        Clients,
        [&[Is(0, libc::PRIO_PROCESS), Is(1, 0), Is(2, sched::NICE as u32)]],
        "the nice value of a thread that works at low priority"
    ),
    rule!(
        SYS_sched_getaffinity,
        Always,
        [],
        "on how many processors a thread may run"
    ),
    rule!(
        SYS_prctl,
        Always,
        [&[Is(0, libc::PR_SET_NAME as u32)]],
        "names of threads"
    ),
    rule!(
        SYS_gettid,
        Always,
        [],
        "which thread it is, for locks and for an abort"
    ),
    rule!(
        SYS_getpid,
        Deaths,
        [],
        "which process it is, for forks and for an abort"
    ),
    rule!(
        SYS_getrusage,
        Always,
        [],
        "how often a thread that polls was interrupted"
    ),
    rule!(
        SYS_prlimit64,
        Elsewhere,
        [&[Null(2)]],
        "the limits that hold, to be read"
    ),
    rule!(
        SYS_clock_gettime,
        Elsewhere,
        [],
        "time, where the vDSO cannot tell it"
    ),
    rule!(
        SYS_restart_syscall,
        Machine,
        [],
        "a wait that was stopped and goes on"
    ),
    rule!(SYS_getrandom, Elsewhere, [], "seeds of hash tables"),
    rule!(
        SYS_tgkill,
        Deaths,
        [&[ThisProcess(0)]],
        "an abort, or another signal to itself"
    ),
    rule!(SYS_exit, Always, [], "the end of a thread"),
    rule!(SYS_exit_group, Always, [], "the end of the process"),
];

/// Files, for whoever may open some.
pub(crate) const FILES: &[Rule] = &[
    rule!(
        SYS_openat,
        Always,
        [],
        "files about processors; what a device reads and loads; the runtime directory"
    ),
    rule!(
        SYS_newfstatat,
        Elsewhere,
        [],
        "whether there is a file, and of what kind"
    ),
    rule!(
        SYS_fcntl,
        Always,
        [&[Is(1, libc::F_SETFD as u32)]],
        "descriptors that executables do not get"
    ),
    rule!(SYS_fstat, Elsewhere, [], "the size of a file"),
    rule!(SYS_faccessat, Elsewhere, [], "whether there is a file"),
    rule!(SYS_faccessat2, Elsewhere, [], "the same"),
    rule!(
        SYS_getdents64,
        Devices,
        [],
        "a device that looks for its hardware"
    ),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_readlink, Devices, [], "where the executable is"),
    rule!(SYS_readlinkat, Devices, [], "where a descriptor's file is"),
    rule!(SYS_getcwd, Devices, [], "paths that are not whole"),
    rule!(
        SYS_writev,
        Devices,
        [],
        "the C library's last words before it aborts"
    ),
    rule!(SYS_set_robust_list, Always, [], "the start of a thread"),
    rule!(SYS_geteuid, Devices, [], "whose driver it is"),
    rule!(SYS_getuid, Devices, [], "whose driver it is"),
    rule!(SYS_getegid, Devices, [], "whose driver it is"),
    rule!(SYS_getgid, Devices, [], "whose driver it is"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_access, Always, [], "whether there is a file"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_stat, Elsewhere, [], "the same"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_lstat, Elsewhere, [], "the same"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_open, Elsewhere, [], "files, of libraries that are old"),
];

/// What a worker does until it has a client: it makes its devices and enters its jail.
pub(crate) const STARTING: &[Rule] = &[
    rule!(SYS_mmap, Always, [], "libraries"),
    rule!(SYS_mprotect, Always, [], "libraries"),
    rule!(SYS_uname, Devices, [], "which kernel it is"),
    rule!(SYS_sysinfo, Devices, [], "how much memory there is"),
    rule!(
        SYS_sched_setaffinity,
        Devices,
        [],
        "threads of a device that stay on a processor"
    ),
    rule!(
        SYS_clock_nanosleep,
        Devices,
        [],
        "a device that waits for its hardware"
    ),
    rule!(SYS_dup3, Elsewhere, [], "standard input, which becomes nobody's"),
    rule!(
        SYS_pidfd_open,
        Always,
        [&[ThisProcess(0)]],
        "what the client notices this process's end by"
    ),
    rule!(
        SYS_prctl,
        Always,
        [
            &[Is(0, libc::PR_SET_NO_NEW_PRIVS as u32)],
            &[Is(0, libc::PR_GET_NO_NEW_PRIVS as u32)],
            &[Is(0, libc::PR_SET_DUMPABLE as u32)],
            &[Is(0, libc::PR_GET_DUMPABLE as u32)],
        ],
        "steps into the jail"
    ),
    rule!(SYS_prlimit64, Always, [&[Is(0, 0)]], "limits that are lowered"),
    rule!(SYS_seccomp, Always, [], "the narrower list"),
    rule!(SYS_landlock_create_ruleset, Always, [], "no files any more"),
    rule!(SYS_landlock_add_rule, Always, [], "the files that a device needs"),
    rule!(SYS_landlock_restrict_self, Always, [], "no files any more"),
    rule!(SYS_capget, Elsewhere, [], "capabilities that are given up"),
    rule!(SYS_capset, Always, [], "capabilities that are given up"),
    rule!(SYS_setgroups, Root, [], "a user that has nothing"),
    rule!(SYS_setresgid, Root, [], "a user that has nothing"),
    rule!(SYS_setresuid, Root, [], "a user that has nothing"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_arch_prctl, Always, [], "the tiles of AMX"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_dup2, Always, [], "standard input, which becomes nobody's"),
];

/// What a worker does to have namespaces of its own.
pub(crate) const CONFINING: &[Rule] = &[
    rule!(SYS_unshare, Always, [], "namespaces of its own"),
    rule!(SYS_mount, Always, [], "an empty root"),
    rule!(SYS_umount2, Always, [], "the old root, which goes"),
    rule!(SYS_pivot_root, Always, [], "an empty root"),
    rule!(SYS_chroot, Machine, [], "an empty root, where it cannot be moved"),
    rule!(SYS_chdir, Always, [], "an empty root"),
    rule!(SYS_mkdirat, Elsewhere, [], "the folders of a device's files"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_mkdir, Elsewhere, [], "the folders of a device's files"),
];

/// What the thread does that starts workers, and a worker's executable until it is loaded.
pub(crate) const SPAWNING: &[Rule] = &[
    rule!(SYS_execve, Always, [], "a worker, which is this same executable"),
    rule!(SYS_clone, Always, [CHILD], "a worker"),
    rule!(
        SYS_prctl,
        NotRoot,
        [&[Is(0, libc::PR_CAP_AMBIENT as u32)]],
        "capabilities over a user namespace, which a worker keeps over exec"
    ),
    rule!(SYS_dup3, Always, [], "a worker's standard descriptors"),
    rule!(SYS_wait4, Machine, [], "a worker that could not be executed"),
    rule!(SYS_waitid, Elsewhere, [], "the same"),
    rule!(SYS_pipe2, Always, [], "why it could not"),
    rule!(SYS_pidfd_open, Always, [], "a worker that is watched"),
    rule!(SYS_pidfd_send_signal, Machine, [], "a worker that does not start"),
    rule!(SYS_kill, Machine, [], "the same"),
    rule!(
        SYS_tgkill,
        Machine,
        [],
        "an abort of what has another number than the thread that started it"
    ),
    rule!(SYS_set_tid_address, Always, [], "the start of an executable"),
    rule!(SYS_chdir, Always, [], "a worker's own directory"),
    rule!(SYS_socketpair, Always, [], "the links to a worker"),
    rule!(SYS_setsockopt, Always, [], "what a link takes"),
    rule!(SYS_getsockopt, Elsewhere, [], "what a link takes"),
    rule!(
        SYS_shutdown,
        Always,
        [],
        "the link for commands, which go one way"
    ),
    rule!(
        SYS_sendto,
        Always,
        [],
        "the signal that a process has ended wakes the main thread"
    ),
    #[cfg(target_arch = "x86_64")]
    rule!(
        SYS_poll,
        Always,
        [],
        "whether standard descriptors are open, at the start of an executable"
    ),
];

/// What the thread does that reads settings and removes the runtime directory.
pub(crate) const KEEPING: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_rmdir, Always, [], "the runtime directory"),
    #[cfg(not(target_arch = "x86_64"))]
    rule!(SYS_unlinkat, Always, [], "the runtime directory"),
];

/// What the supervisor does in all its other threads.
pub(crate) const SUPERVISING: &[Rule] = &[
    rule!(SYS_wait4, Always, [], "how workers ended"),
    rule!(SYS_waitid, Always, [], "the same"),
    rule!(SYS_pidfd_send_signal, Machine, [], "workers that are killed"),
    rule!(SYS_accept4, Always, [], "clients"),
    rule!(SYS_getsockopt, Always, [], "who a client is"),
    rule!(SYS_setsockopt, Always, [], "what a socket takes"),
    rule!(SYS_shutdown, Always, [], "connections that end"),
    rule!(
        SYS_socket,
        Always,
        [],
        "the sockets of devices; the service manager"
    ),
    rule!(SYS_socketpair, Always, [], "what wakes a thread"),
    rule!(SYS_bind, Always, [], "the sockets of devices"),
    rule!(SYS_listen, Always, [], "the sockets of devices"),
    rule!(
        SYS_connect,
        Service,
        [],
        "the service manager; whether another driver answers"
    ),
    rule!(
        SYS_getsockname,
        Service,
        [],
        "sockets that the service manager gave"
    ),
    rule!(SYS_getpeername, Elsewhere, [], "the same"),
    rule!(
        SYS_sendto,
        Always,
        [],
        "the service manager; a signal that wakes the main thread"
    ),
    rule!(SYS_recvfrom, Always, [], "signals that have woken it"),
    rule!(SYS_mkdirat, Elsewhere, [], "the runtime directory"),
    rule!(SYS_unlinkat, Always, [], "sockets that are left behind"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_renameat, Always, [], "sockets that appear at once"),
    rule!(SYS_renameat2, Elsewhere, [], "the same"),
    rule!(SYS_fchmodat, Elsewhere, [], "who may connect"),
    rule!(SYS_fchmod, Machine, [], "who may connect"),
    rule!(SYS_flock, Always, [], "who serves a device"),
    rule!(SYS_umask, Elsewhere, [], "the mode of a socket"),
    rule!(SYS_getppid, Elsewhere, [], "whether its owner is there"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_mkdir, Machine, [], "the runtime directory"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_rmdir, Machine, [], "the control group of a user who is gone"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_unlink, Elsewhere, [], "sockets that are left behind"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_rename, Elsewhere, [], "sockets that appear at once"),
    #[cfg(target_arch = "x86_64")]
    rule!(SYS_chmod, Service, [], "who may connect"),
];

/// A worker that has no client.
pub(crate) const WORKER: &[&[Rule]] = &[SERVING, FILES, STARTING, CONFINING];

/// The thread that starts workers, and what it starts.
pub(crate) const SPAWNER: &[&[Rule]] = &[SERVING, FILES, STARTING, CONFINING, SPAWNING];

/// The thread of a supervisor that reads its settings again and removes its directory.
pub(crate) const KEEPER: &[&[Rule]] = &[SERVING, FILES, KEEPING];

/// All other threads of a supervisor.
pub(crate) const SUPERVISOR: &[&[Rule]] = &[SERVING, FILES, SUPERVISING];

/// All lists, by what has them beside the lists that come before.
pub(crate) const ALL: &[(&str, &[&[Rule]])] = &[
    ("serving", &[SERVING]),
    ("starting", &[FILES, STARTING, CONFINING]),
    ("spawning", &[SPAWNING]),
    ("keeping", &[KEEPING]),
    ("supervising", &[SUPERVISING]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_with_a_client_may_make_at_most_45_calls() {
        assert!(SERVING.len() <= 45, "{}", SERVING.len());
    }

    #[test]
    fn every_rule_has_a_reason_and_no_list_has_a_call_twice() {
        for (whose, lists) in ALL {
            let mut names: Vec<_> = lists.iter().copied().flatten().map(|rule| rule.name).collect();
            for rule in lists.iter().copied().flatten() {
                assert!(!rule.reason.is_empty(), "{whose}: {}", rule.name);
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{whose}");
        }
    }

    #[test]
    fn later_steps_may_do_nothing_that_earlier_ones_may_not() {
        let numbers = |lists: &[&[Rule]]| -> std::collections::HashSet<i64> {
            lists.iter().copied().flatten().map(|rule| rule.number).collect()
        };
        assert!(numbers(&[SERVING]).is_subset(&numbers(WORKER)));
        assert!(numbers(WORKER).is_subset(&numbers(SPAWNER)));
    }
}
