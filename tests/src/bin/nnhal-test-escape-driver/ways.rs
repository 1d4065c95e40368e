//! Ways out of a worker. Each gives what the kernel answered: what is not negative is a way out that is open.

use std::ffi::{CStr, CString};
use std::ptr;

use nix::libc;
use nnhal_tests::escape::{Way, escaped};

const PASSWORDS: &CStr = c"/etc/passwd";
const CURRENT: i64 = libc::AT_FDCWD as i64;
const PAGE: i64 = 4096;

/// Makes a system call with these arguments. Returns the result, or the error as a negative number.
pub(crate) fn call(number: i64, arguments: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the process is there to be harmed: its memory is its own, and the test expects it to die.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        -i64::from(nix::errno::Errno::last_raw())
    } else {
        result
    }
}

/// A call with up to six arguments.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let mut arguments = [0_i64; 6];
        let given = [$($argument as i64),*];
        arguments[..given.len()].copy_from_slice(&given);
        call($number, arguments)
    }};
}

/// A page of memory that is written and not executed.
fn page() -> i64 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    call!(
        libc::SYS_mmap,
        0,
        PAGE,
        prot,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
        0
    )
}

/// A memory with a descriptor that may be executed: a script, in a page.
fn executable_memory() -> i64 {
    const SCRIPT: &[u8] = b"#!/bin/true\n";
    let memory = call!(libc::SYS_memfd_create, c"code".as_ptr(), 0);
    call!(libc::SYS_write, memory, SCRIPT.as_ptr(), SCRIPT.len());
    call!(libc::SYS_ftruncate, memory, PAGE);
    memory
}

/// The number of a new process, which ends at once.
fn without_child(forked: i64) -> i64 {
    if forked == 0 {
        call!(libc::SYS_exit_group, 0);
    }
    forked
}

/// A page that begins with these words.
fn words(words: &[u32]) -> i64 {
    let page = page();
    let to = ptr::with_exposed_provenance_mut::<u32>(page as usize);
    // SAFETY: the page is this caller's, and no list here is longer. Where there is none, the process was to
    // be harmed anyway.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    page
}

/// Where a page that nobody can take for anything lies, for results that are not looked at.
fn scratch() -> i64 {
    page()
}

/// What some ways out need to be open, made by calls that are closed themselves where there is a jail. There
/// it is nothing, since it is the way's own call that must be closed.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Where another process may be read and written.
    address: i64,
    /// A file's handle.
    handle: i64,
    /// A socket that is not connected.
    socket: i64,
    /// The error, if what it needs is not there.
    lacking: Option<i64>,
}

impl Prepared {
    /// Nothing.
    pub(crate) fn in_jail() -> Prepared {
        Prepared {
            address: scratch(),
            handle: scratch(),
            socket: 3,
            lacking: None,
        }
    }

    /// What this way needs, on another process.
    pub(crate) fn without_jail(way: Way, other: i64) -> Prepared {
        let mut prepared = Prepared::in_jail();
        match way {
            Way::ReadParent | Way::WriteParent => {
                let maps = std::fs::read_to_string(format!("/proc/{other}/maps")).unwrap_or_default();
                let stack = maps.lines().find(|line| line.ends_with("[stack]"));
                let start = stack.and_then(|line| line.split('-').next());
                prepared.address = start.map_or(0, |start| i64::from_str_radix(start, 16).unwrap_or(0));
            }
            Way::OpenByHandle => {
                // How long a handle may be, its kind, and the handle.
                prepared.handle = words(&[128]);
                call!(libc::SYS_chdir, c"/tmp".as_ptr());
                let (place, mount) = (c".".as_ptr(), scratch());
                let found = call!(
                    libc::SYS_name_to_handle_at,
                    CURRENT,
                    place,
                    prepared.handle,
                    mount,
                    0
                );
                // Some file systems have none.
                prepared.lacking = Some(found).filter(|found| *found < 0);
            }
            Way::ConnectDescriptor => {
                prepared.socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0);
            }
            Way::PivotRoot => {
                let place = c"/tmp".as_ptr();
                call!(libc::SYS_mount, c"none".as_ptr(), place, c"tmpfs".as_ptr(), 0, 0);
                call!(libc::SYS_chdir, place);
            }
            _ => {}
        }
        prepared
    }
}

#[allow(clippy::too_many_lines, reason = "a table")]
/// Tries one of them, on the process with this number where it takes another one.
pub(crate) fn try_out(way: Way, other: i64, prepared: &Prepared) -> i64 {
    if let Some(error) = prepared.lacking {
        return error;
    }
    let file = CString::new(escaped(other as u32)).unwrap_or_default();
    let empty: [*const libc::c_char; 1] = [ptr::null()];
    // A shell that does nothing; this executable, which then does nothing else.
    let shell = [c"sh".as_ptr(), c"-c".as_ptr(), c":".as_ptr(), ptr::null()];
    let list = [c"driver".as_ptr(), c"--list-devices".as_ptr(), ptr::null()];
    match way {
        Way::OpenPassword => call!(libc::SYS_openat, CURRENT, PASSWORDS.as_ptr(), libc::O_RDONLY),
        #[cfg(target_arch = "x86_64")]
        Way::OpenByOlderCall => call!(libc::SYS_open, PASSWORDS.as_ptr(), libc::O_RDONLY),
        #[cfg(not(target_arch = "x86_64"))]
        Way::OpenByOlderCall => -i64::from(libc::ENOSYS),
        Way::OpenByNewerCall => {
            let how = [0_u64; 3];
            call!(
                libc::SYS_openat2,
                CURRENT,
                PASSWORDS.as_ptr(),
                how.as_ptr(),
                size_of_val(&how)
            )
        }
        Way::CreateFile => {
            let flags = libc::O_CREAT | libc::O_WRONLY;
            call!(libc::SYS_openat, CURRENT, file.as_ptr(), flags, 0o600)
        }
        Way::OpenNull => call!(libc::SYS_openat, CURRENT, c"/dev/null".as_ptr(), libc::O_RDWR),
        Way::OpenRoot => call!(
            libc::SYS_openat,
            CURRENT,
            c"/".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY
        ),
        Way::OpenMemoryOfParent => {
            let path = format!("/proc/{}/mem\0", other);
            call!(libc::SYS_openat, CURRENT, path.as_ptr(), libc::O_RDWR)
        }
        Way::OpenOwnMemory => call!(
            libc::SYS_openat,
            CURRENT,
            c"/proc/self/mem".as_ptr(),
            libc::O_RDWR
        ),
        Way::OpenOwnDescriptor => {
            call!(
                libc::SYS_openat,
                CURRENT,
                c"/proc/self/fd/2".as_ptr(),
                libc::O_WRONLY
            )
        }
        Way::ExecuteShell => {
            call!(
                libc::SYS_execve,
                c"/bin/sh".as_ptr(),
                shell.as_ptr(),
                empty.as_ptr()
            )
        }
        Way::ExecuteItself => {
            call!(
                libc::SYS_execve,
                c"/proc/self/exe".as_ptr(),
                list.as_ptr(),
                empty.as_ptr()
            )
        }
        Way::ExecuteMemory => {
            let memory = executable_memory();
            let flags = libc::AT_EMPTY_PATH;
            call!(
                libc::SYS_execveat,
                memory,
                c"".as_ptr(),
                shell.as_ptr(),
                empty.as_ptr(),
                flags
            )
        }
        Way::MapMemoryAsCode => {
            let prot = libc::PROT_READ | libc::PROT_EXEC;
            call!(
                libc::SYS_mmap,
                0,
                PAGE,
                prot,
                libc::MAP_SHARED,
                executable_memory(),
                0
            )
        }
        Way::MapWritableCode => {
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            call!(
                libc::SYS_mmap,
                0,
                PAGE,
                prot,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0
            )
        }
        Way::ProtectAsCode => call!(
            libc::SYS_mprotect,
            page(),
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC
        ),
        Way::ProtectAsCodeByKey => {
            call!(
                libc::SYS_pkey_mprotect,
                page(),
                PAGE,
                libc::PROT_READ | libc::PROT_EXEC,
                -1
            )
        }
        Way::PersonalityOfCode => call!(libc::SYS_personality, libc::READ_IMPLIES_EXEC),
        Way::Fork => without_child(call!(libc::SYS_clone, libc::SIGCHLD)),
        #[cfg(target_arch = "x86_64")]
        Way::ForkByOlderCall => without_child(call!(libc::SYS_fork)),
        #[cfg(not(target_arch = "x86_64"))]
        Way::ForkByOlderCall => -i64::from(libc::ENOSYS),
        Way::ForkByNewerCall => {
            let mut arguments = [0_u64; 11];
            arguments[4] = libc::SIGCHLD as u64;
            without_child(call!(
                libc::SYS_clone3,
                arguments.as_ptr(),
                size_of_val(&arguments)
            ))
        }
        Way::ForkInNewNamespace => without_child(call!(libc::SYS_clone, libc::SIGCHLD | libc::CLONE_NEWNET)),
        Way::TraceParent => call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, other),
        Way::ReadParent | Way::WriteParent => {
            let [part, there] = [scratch(), prepared.address].map(|address| libc::iovec {
                iov_base: ptr::with_exposed_provenance_mut(address as usize),
                iov_len: 8,
            });
            let number = if way == Way::ReadParent {
                libc::SYS_process_vm_readv
            } else {
                libc::SYS_process_vm_writev
            };
            call!(number, other, &raw const part, 1, &raw const there, 1, 0)
        }
        Way::TakeDescriptorOfParent => {
            let open = call!(libc::SYS_pidfd_open, other, 0);
            call!(libc::SYS_pidfd_getfd, open, 0, 0)
        }
        Way::OpenParent => call!(libc::SYS_pidfd_open, other, 0),
        Way::CompareWithParent => call!(libc::SYS_kcmp, std::process::id(), other, 1, 0, 0),
        Way::KillParent => call!(libc::SYS_kill, other, 0),
        Way::KillAll => call!(libc::SYS_kill, -1, 0),
        Way::KillThreadOfParent => call!(libc::SYS_tgkill, other, other, 0),
        Way::InternetSocket => call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
        Way::PacketSocket => call!(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0),
        Way::NetlinkSocket => call!(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0),
        Way::UnixSocket => call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
        Way::SocketPair => {
            call!(
                libc::SYS_socketpair,
                libc::AF_UNIX,
                libc::SOCK_STREAM,
                0,
                scratch()
            )
        }
        Way::ConnectDescriptor => {
            let address = [libc::AF_UNSPEC as u16; 8];
            call!(libc::SYS_connect, prepared.socket, address.as_ptr(), 16)
        }
        Way::IoUring => call!(libc::SYS_io_uring_setup, 1, scratch()),
        Way::UserFaultFd => call!(libc::SYS_userfaultfd, 1),
        // An array with one value.
        Way::Bpf => call!(libc::SYS_bpf, 0, words(&[2, 4, 8, 1]), 72),
        // Its own processor time, by the software that counts it.
        Way::PerfEvents => call!(libc::SYS_perf_event_open, words(&[1, 64]), 0, -1, -1, 0),
        Way::Keys => call!(libc::SYS_keyctl, 0, -2, 1),
        Way::AddKey => call!(
            libc::SYS_add_key,
            c"user".as_ptr(),
            c"k".as_ptr(),
            c"v".as_ptr(),
            1,
            -2
        ),
        Way::Mount => {
            call!(
                libc::SYS_mount,
                c"none".as_ptr(),
                c"/".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                0
            )
        }
        Way::MountByNewerCall => call!(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0),
        Way::ChangeRoot => call!(libc::SYS_chroot, c"/".as_ptr()),
        Way::PivotRoot => call!(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()),
        Way::NewUserNamespace => call!(libc::SYS_unshare, libc::CLONE_NEWUSER),
        Way::NewNetwork => call!(libc::SYS_unshare, libc::CLONE_NEWNET),
        Way::JoinNamespace => {
            let open = call!(libc::SYS_pidfd_open, other, 0);
            call!(libc::SYS_setns, open, libc::CLONE_NEWNET)
        }
        Way::BecomeRoot => call!(libc::SYS_setresuid, 0, 0, 0),
        Way::TakeCapabilities => {
            let header = [0x2008_0522_u32, 0];
            let all = [u32::MAX; 6];
            call!(libc::SYS_capset, header.as_ptr(), all.as_ptr())
        }
        Way::BeDumpable => call!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1),
        Way::RaiseLimit | Way::RaiseLimitOfParent => {
            let limit = [64_u64, 64];
            let process = if way == Way::RaiseLimit { 0 } else { other };
            call!(
                libc::SYS_prlimit64,
                process,
                libc::RLIMIT_NOFILE,
                limit.as_ptr(),
                0
            )
        }
        Way::RealTime => {
            let priority = 1_i32;
            call!(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_FIFO,
                &raw const priority
            )
        }
        Way::PriorityOfParent => call!(libc::SYS_setpriority, libc::PRIO_PROCESS, other, 0),
        Way::SharedMemoryByKey => call!(libc::SYS_shmget, 0, PAGE, 0o1600),
        Way::MessagesByKey => call!(libc::SYS_msgget, 0, 0o1600),
        Way::LoadModule => call!(libc::SYS_finit_module, 0, c"".as_ptr(), 0),
        Way::LoadKernel => call!(libc::SYS_kexec_load, 0, 0, 0, 0),
        // No command has this number.
        Way::Reboot => call!(libc::SYS_reboot, 0xFEE1_DEAD_u32, 672_274_793, 1, 0),
        Way::MakeNode => {
            call!(
                libc::SYS_mknodat,
                CURRENT,
                file.as_ptr(),
                libc::S_IFCHR | 0o600,
                0x0103
            )
        }
        // To no time at all, which takes the same right and changes nothing.
        Way::SetClock => call!(libc::SYS_settimeofday, 0, 0),
        Way::TypeOnTerminal => {
            let terminal = call!(libc::SYS_openat, CURRENT, c"/dev/ptmx".as_ptr(), libc::O_RDWR);
            call!(libc::SYS_ioctl, terminal, libc::TIOCSTI, c"x".as_ptr())
        }
        Way::SignalDescriptor => call!(libc::SYS_signalfd4, -1, scratch(), 8, 0),
        Way::WatchFiles => call!(libc::SYS_fanotify_init, 0, 0),
        Way::OpenByHandle => call!(
            libc::SYS_open_by_handle_at,
            CURRENT,
            prepared.handle,
            libc::O_RDONLY
        ),
        Way::FilterOfItsOwn => call!(libc::SYS_seccomp, 2, 0, scratch()),
        #[cfg(target_arch = "x86_64")]
        Way::CallOf32Bits => {
            let result: i64;
            // SAFETY: getuid of the older interface (24) reads and writes no memory.
            unsafe {
                core::arch::asm!("int 0x80", inlateout("rax") 24_i64 => result,
                    out("r8") _, out("r9") _, out("r10") _, out("r11") _);
            }
            result
        }
        #[cfg(target_arch = "x86_64")]
        Way::CallOfX32 => call!(0x4000_0000 | libc::SYS_getpid),
        #[cfg(not(target_arch = "x86_64"))]
        Way::CallOf32Bits | Way::CallOfX32 => -i64::from(libc::ENOSYS),
    }
}
