//! Starting a program, if the kernel permits it as the first process of a PID namespace of its own.
//!
//! The standard library starts programs without namespaces, and a process cannot change its own PID
//! namespace afterwards. So this is `fork` and `exec` by hand.

use std::ffi::{CStr, CString};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, pipe2};

use super::{SysError, pidfd, poll};
use crate::time::{Clock, Deadline, MonotonicClock};

/// What to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// The executable.
    pub path: &'a CStr,
    /// Its arguments, its own name included.
    pub arguments: &'a [CString],
    /// Its whole environment, as `NAME=VALUE`.
    pub environment: &'a [CString],
    /// Its standard input, which is not descriptor 0 here.
    pub stdin: BorrowedFd<'a>,
    /// Its standard output, which is not descriptor 1 here.
    pub stdout: BorrowedFd<'a>,
}

/// Which namespaces a program begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNamespaces {
    /// Those of this process.
    None,
    /// A PID namespace, whose first process it is. Takes `CAP_SYS_ADMIN`.
    Pid,
    /// That and a user namespace. No user has a number there until it says which; it has the capabilities
    /// that mounting takes, over its own namespaces.
    UserAndPid,
}

/// The capabilities that the first process of a user namespace keeps over exec, by number:
/// `CAP_DAC_OVERRIDE`, `CAP_SYS_CHROOT` and `CAP_SYS_ADMIN`.
const KEPT: [u32; 3] = [1, 18, 21];

/// An argument that says nothing.
const NONE: libc::c_long = 0;

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// How long a process that is killed may take to end.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// Starts `program` in `/`, with the calling thread's signal mask, and returns its process number here.
///
/// # Errors
/// What the kernel refused: to make the process or its namespaces, or to execute the program. `ETIMEDOUT` if
/// the program has not begun by the deadline, as from a disk that does not answer; it is killed then.
pub fn spawn(program: &Program<'_>, namespaces: NewNamespaces, deadline: Deadline) -> Result<i32, SysError> {
    let arguments = pointers(program.arguments);
    let environment = pointers(program.environment);
    let (failure, told) = pipe2(OFlag::O_CLOEXEC).map_err(SysError::of("pipe2"))?;
    let flags = match namespaces {
        NewNamespaces::None => libc::SIGCHLD,
        NewNamespaces::Pid => libc::SIGCHLD | libc::CLONE_NEWPID,
        NewNamespaces::UserAndPid => libc::SIGCHLD | libc::CLONE_NEWPID | libc::CLONE_NEWUSER,
    };
    // The kernel reads whole words.
    let flags = libc::c_long::from(flags);
    let child = Child {
        path: program.path.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        stdin: program.stdin.as_raw_fd(),
        stdout: program.stdout.as_raw_fd(),
        keeps_capabilities: namespaces == NewNamespaces::UserAndPid,
    };
    // SAFETY: without CLONE_VM the new process has a copy of all memory, this stack included, so it may go on
    // here. It has this thread only, and the C library does not know of it: it makes plain system calls,
    // takes no lock, allocates nothing, and never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE) };
    if pid == 0 {
        // SAFETY: all that `child` points to lives in this frame's copy.
        let errno = unsafe { child.run() };
        let bytes = errno.to_ne_bytes();
        // SAFETY: the bytes live here.
        unsafe { libc::write(told.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: ending the process touches nothing of the parent's.
        unsafe { libc::_exit(127) }
    }
    let pid = i32::try_from(pid).unwrap_or(-1);
    if pid < 0 {
        return Err(SysError::last("clone"));
    }
    drop(told);
    let refused = |errno| SysError {
        call: "execve",
        errno,
    };
    // The other end says why there is no program, or is closed by exec.
    if poll::one(&failure, PollFlags::POLLIN, deadline)?.is_empty() {
        end(pid);
        return Err(refused(Errno::ETIMEDOUT));
    }
    let mut errno = [0; 4];
    match std::fs::File::from(failure).read_exact(&mut errno) {
        Err(_) => Ok(pid),
        Ok(()) => {
            end(pid);
            Err(refused(Errno::from_raw(i32::from_ne_bytes(errno))))
        }
    }
}

/// Kills a child of this process, and reaps it unless the kernel keeps it in a call of its own for longer
/// than a second. Then it is for others to reap.
pub fn end(pid: i32) {
    let child = Pid::from_raw(pid);
    let _ = kill(child, Signal::SIGKILL);
    if let Ok(pidfd) = pidfd::open(pid) {
        let _ = pidfd::wait_for_end(pidfd, Deadline::after(MonotonicClock.now(), LAST_BREATH));
    }
    let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
}

/// A list as `execve` takes it.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([ptr::null()]).collect()
}

/// What the new process needs to become the program.
struct Child {
    path: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    stdin: i32,
    stdout: i32,
    keeps_capabilities: bool,
}

impl Child {
    /// Becomes the program, or returns the error.
    ///
    /// # Safety
    /// The pointers are to texts and lists that end with null.
    unsafe fn run(&self) -> i32 {
        let is_ready = stands_at(self.stdin, 0)
            && stands_at(self.stdout, 1)
            // SAFETY: the call reads a literal.
            && unsafe { libc::chdir(c"/".as_ptr()) } == 0
            && (!self.keeps_capabilities || keep_capabilities());
        if is_ready {
            // SAFETY: the caller vouches for what the pointers point to.
            unsafe { libc::execve(self.path, self.arguments, self.environment) };
        }
        Errno::last_raw()
    }
}

/// Has a descriptor under another number, which the program inherits.
fn stands_at(fd: i32, number: i32) -> bool {
    // SAFETY: the call changes descriptors of this process, which runs nothing but this.
    unsafe { libc::dup3(fd, number, 0) == number }
}

/// Keeps [`KEPT`] capabilities over exec, which takes them all from users who are not root.
fn keep_capabilities() -> bool {
    let kept = KEPT.iter().fold(0_u32, |kept, capability| kept | 1 << capability);
    let header = [CAPABILITY_VERSION, 0];
    // Effective, permitted and inheritable, of the lower half and of the upper one.
    let sets = [kept, kept, kept, 0, 0, 0];
    // SAFETY: the two arrays are what the call reads in this version.
    let mut is_done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) } == 0;
    for capability in KEPT {
        // SAFETY: the call takes numbers only.
        let raised = unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                libc::c_ulong::from(capability),
                0_u64,
                0_u64,
            )
        };
        is_done &= raised == 0;
    }
    is_done
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use nix::sys::wait::WaitStatus;

    use super::*;

    fn wait_for(pid: i32) -> WaitStatus {
        loop {
            match waitpid(Pid::from_raw(pid), None) {
                Err(Errno::EINTR) => {}
                result => return result.unwrap(),
            }
        }
    }

    fn start(words: &[&str], namespaces: NewNamespaces) -> Result<(i32, File), SysError> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let null = File::open("/dev/null").unwrap();
        let arguments: Vec<_> = words.iter().map(|word| CString::new(*word).unwrap()).collect();
        let program = Program {
            path: &arguments[0],
            arguments: &arguments,
            environment: &[c"PLACE=here".to_owned()],
            stdin: null.as_fd(),
            stdout: write.as_fd(),
        };
        let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
        spawn(&program, namespaces, deadline).map(|pid| (pid, File::from(read)))
    }

    #[test]
    fn program_that_does_not_begin_is_given_up() {
        let null = File::open("/dev/null").unwrap();
        let arguments = [c"sh".to_owned()];
        let program = Program {
            path: c"/bin/sh",
            arguments: &arguments,
            environment: &[],
            stdin: null.as_fd(),
            stdout: null.as_fd(),
        };
        let past = Deadline::at(crate::time::TimePoint::from_nanos(1));
        // It may have begun all the same.
        match spawn(&program, NewNamespaces::None, past) {
            Ok(pid) => {
                wait_for(pid);
            }
            Err(error) => assert_eq!(error.errno, Errno::ETIMEDOUT),
        }
    }

    #[test]
    fn program_has_its_arguments_its_environment_and_its_descriptors() {
        let words = ["/bin/sh", "-c", "echo $0 $PLACE $PWD; exit 3", "word"];
        let (pid, mut output) = start(&words, NewNamespaces::None).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "word here /\n");
        let status = wait_for(pid);
        assert_eq!(status, WaitStatus::Exited(Pid::from_raw(pid), 3));
    }

    #[test]
    fn program_that_is_not_there_is_an_error_and_leaves_no_process() {
        let error = start(&["/nowhere/at/all"], NewNamespaces::None).unwrap_err();
        assert_eq!(error.errno, Errno::ENOENT);
    }

    #[test]
    fn program_of_a_pid_namespace_is_its_first_process() {
        let is_root = nix::unistd::geteuid().is_root();
        let namespaces = [NewNamespaces::Pid, NewNamespaces::UserAndPid];
        let started = start(&["/bin/sh", "-c", "echo $$"], namespaces[usize::from(!is_root)]);
        let (pid, mut output) = match started {
            Ok(started) => started,
            Err(error) if [Errno::EPERM, Errno::ENOSPC, Errno::EUSERS].contains(&error.errno) => {
                println!("SKIPPED: this kernel permits no PID namespace: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1\n");
        let status = wait_for(pid);
        assert_eq!(status, WaitStatus::Exited(Pid::from_raw(pid), 0));
    }
}
