//! The n-th system call fails: threat T28.
//!
//! strace makes one call of each thread fail, the n-th one of that name, with an error that fits it. The call
//! that is put in its place is `getpid`, which all jails allow. A call that the kernel never refuses gets a
//! signal instead, which ends its wait if it waits. Who is traced:
//!
//! - the supervisor's main thread, from its first instruction on;
//! - all threads of a supervisor that serves, and all workers that it starts, from their first instruction to
//!   their end;
//! - a client.
//!
//! A client makes every call of the protocol meanwhile. Each call ends with a result or with an error in
//! words. The driver serves a new client afterwards and has lost nothing, or has ended with a message and a
//! code.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal_conformance::generator::choices::Random;
use nnhal_os::pidfd;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{TestDaemon, group_of, is_alive, wait_until, write_script};

use crate::client::{Client, End, Said};
use crate::common::{EXE, Place, Stage, seed, send, sized};

/// Faults of the short form, for each process.
const FAULTS: u32 = 2;

/// Further ones that are tried if none of these hit anything.
const MORE_DRAWS: u32 = 20;

/// No call of a client may take longer, whatever fails. It ends its own waits after 20 s, which must not be
/// needed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// How long strace may take to let go of what it traces.
const LETS_GO_WITHIN: Duration = Duration::from_secs(5);

/// What Rust's library says when it ends a process for want of memory, which nothing here can prevent.
const NO_MEMORY: [&str; 3] = [
    "memory allocation of",
    "failed to allocate an alternative stack",
    "failed to set up alternative stack guard page",
];

/// In place of an error: a signal comes while the call is made. A wait for a futex ends with EINTR then, and
/// a wake, which strace cannot tell from it, happens: if it were left out, somebody would wait for ever.
const INTERRUPTED: &str = "a signal";

/// The signal. Processes have a handler for it or ignore it.
const INTERRUPTING: &str = "SIGCHLD";

/// Whose calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Supervisor,
    Workers,
    Client,
}

/// A call that fails: its name, which one of a thread's, and how.
#[derive(Clone, Debug)]
struct Fault {
    call: String,
    number: u32,
    error: &'static str,
}

/// The errors that a call can have while nothing is wrong with its arguments. Those that end or take away
/// something are left out: what the kernel refuses to take away stays. So is `brk`, which says by its value
/// and not by an error that it has failed.
fn errors(whose: Whose, call: &str) -> &'static [&'static str] {
    match call {
        // Workers write files by pwrite64. What they write to otherwise is events and the log, like the other
        // threads of the supervisor that are traced with them: no disk runs full of those.
        "write" if whose == Whose::Workers => &["EINTR"],
        "mmap" | "mremap" | "mprotect" | "madvise" | "execve" | "ioctl" => &["ENOMEM"],
        "openat" | "openat2" | "memfd_create" | "eventfd2" | "pipe2" | "socket" | "socketpair"
        | "signalfd4" | "pidfd_open" | "accept4" => &["EMFILE", "ENOMEM"],
        "fcntl" | "dup" => &["EMFILE"],
        "clone" | "clone3" | "vfork" => &["EAGAIN"],
        "read" | "pread64" => &["EIO", "EINTR"],
        "write" | "pwrite64" => &["ENOSPC", "EINTR"],
        "ftruncate" | "fallocate" | "mkdir" | "mkdirat" | "bind" => &["ENOSPC"],
        "connect" | "recvmsg" | "recvfrom" | "ppoll" | "poll" | "futex_waitv" => &["ENOMEM", "EINTR"],
        "sendmsg" | "sendto" => &["ENOBUFS", "EINTR"],
        "listen" | "getsockopt" | "setsockopt" | "getsockname" | "getpeername" => &["ENOBUFS"],
        "wait4" | "waitid" | "getrandom" => &["EINTR"],
        "futex" => &[INTERRUPTED],
        "flock" => &["ENOLCK", "EINTR"],
        "fstat" | "statx" | "newfstatat" | "fstatfs" | "getdents64" | "fchmod" | "fchmodat" | "rename"
        | "renameat" | "renameat2" | "readlink" => &["EIO"],
        "prctl"
        | "seccomp"
        | "landlock_create_ruleset"
        | "landlock_add_rule"
        | "landlock_restrict_self"
        | "unshare"
        | "mount"
        | "pivot_root"
        | "chroot"
        | "setgroups"
        | "setresuid"
        | "setresgid"
        | "capset" => &["ENOMEM"],
        _ => &[],
    }
}

/// What strace does beside tracing: nothing, or a fault.
fn injection(fault: Option<&Fault>) -> Vec<String> {
    let Some(Fault { call, number, error }) = fault else {
        return Vec::new();
    };
    let what = if *error == INTERRUPTED {
        format!("signal={INTERRUPTING}")
    } else {
        format!("error={error}:syscall=getpid")
    };
    vec![
        "-e".to_owned(),
        format!("trace={call}"),
        "-e".to_owned(),
        format!("inject={call}:{what}:when={number}"),
    ]
}

/// What came of a run.
struct Ran {
    /// How often each call was made, by the thread that made it most often.
    calls: BTreeMap<String, u32>,
    has_failed: bool,
}

/// Reads what strace wrote.
fn read(trace: &Path) -> Ran {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let mut by_thread: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for line in text.lines() {
        // Without -f there are no numbers of threads.
        let (thread, event) = match line.split_once(' ') {
            Some((first, rest)) if first.bytes().all(|byte| byte.is_ascii_digit()) => {
                (first, rest.trim_start())
            }
            _ => ("", line),
        };
        if let Some((name, _)) = event.split_once('(')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            *by_thread.entry((thread, name)).or_default() += 1;
        }
    }
    let mut calls: BTreeMap<String, u32> = BTreeMap::new();
    for ((_, name), count) in by_thread {
        let most = calls.entry(name.to_owned()).or_default();
        *most = count.max(*most);
    }
    // The kernel's own signals of this kind are of children that have ended.
    let interruption = format!("--- {INTERRUPTING} {{si_signo={INTERRUPTING}, si_code=SI_KERNEL");
    Ran {
        calls,
        has_failed: text.contains("(INJECTED)") || text.contains(&interruption),
    }
}

/// strace, attached to a process and to all that it starts, until dropped.
struct Tracer(Child);

impl Tracer {
    fn attach(pid: u32, trace: &Path, fault: Option<&Fault>) -> Tracer {
        Tracer::try_attach(pid, trace, fault).unwrap_or_else(|said| panic!("strace did not attach: {said}"))
    }

    /// Fails with what strace says, mostly that it may not.
    fn try_attach(pid: u32, trace: &Path, fault: Option<&Fault>) -> Result<Tracer, String> {
        let mut strace = Command::new("strace")
            .args(["-f", "-s", "0", "-o"])
            .arg(trace)
            .args(injection(fault))
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(strace.stderr.take().unwrap());
        let tracer = Tracer(strace);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if !line.contains("attached") {
            return Err(line.trim_end().to_owned());
        }
        // It says more about each process that it meets.
        std::thread::spawn(move || said.lines().map_while(Result::ok).count());
        Ok(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let pid = self.0.id();
        send(pid, Signal::SIGTERM);
        // It may wait for a thread that has just been started, which waits for it.
        let deadline = Deadline::after(MonotonicClock.now(), LETS_GO_WITHIN);
        let ended = pidfd::open(pid.cast_signed()).and_then(|process| pidfd::wait_for_end(process, deadline));
        if !matches!(ended, Ok(true)) {
            send(pid, Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// Runs a client to its end, with a call of its own that fails or none. Its calls are all answered in time;
/// it leaves nothing in its own process.
fn serve(mut client: Client, (what, own): (&str, Option<&Fault>), on_reload: impl Fn()) {
    let (mut kept, mut has_begun) = (None, false);
    while let Some(said) = client.next() {
        has_begun = true;
        match said {
            Said::At(step) if step == "reload" => on_reload(),
            Said::At(_) | Said::Worker(_) | Said::Latency(_) => {}
            Said::Done(step, took) => {
                assert!(took < ANSWERED_WITHIN, "{what}: {step} took {took:?}");
            }
            Said::Failed(step, took, text) => {
                assert!(took < ANSWERED_WITHIN, "{what}: {step} took {took:?}: {text}");
                assert!(!text.is_empty(), "{what}: {step} failed without a word");
            }
            Said::Kept(fds, mappings) => kept = Some((fds, mappings)),
        }
    }
    let End { status, text } = client.end();
    if status.success() {
        assert_eq!(kept, Some((0, 0)), "{what}: the client has kept something");
        return;
    }
    expect_clean((what, own), &text);
    // The code of the dynamic linker, which says what it lacks; and 3, if nothing can be said.
    let is_told = status.code().is_some_and(|code| code == 127 || code == 3);
    let is_of_linker = !has_begun && is_crash_of_linker(own, status);
    let has_no_memory = NO_MEMORY.iter().any(|words| text.contains(words));
    assert!(
        is_told || has_no_memory || is_of_linker,
        "{what}: the client ended with {status}: {text}"
    );
}

/// Whether a fault crashes the GNU dynamic linker, which does not look at what its first mmap answers,
/// whichever program it begins.
fn crashes_linker(fault: Option<&Fault>) -> bool {
    fault.is_some_and(|fault| fault.call == "mmap" && fault.number == 1)
}

/// Whether a process has ended so.
fn is_crash_of_linker(fault: Option<&Fault>, status: ExitStatus) -> bool {
    crashes_linker(fault) && status.signal() == Some(Signal::SIGSEGV as i32)
}

/// No process has ended in another way than by saying why.
fn expect_clean((what, fault): (&str, Option<&Fault>), log: &str) {
    for line in log.lines() {
        let is_crash = [
            "panicked", "SIGSEGV", "SIGBUS", "SIGSYS", "SIGABRT", "SIGILL", "SIGTRAP",
        ]
        .iter()
        .any(|word| line.contains(word));
        let is_of_linker = crashes_linker(fault) && line.contains("by SIGSEGV before it was ready");
        let has_no_memory = NO_MEMORY.iter().any(|words| log.contains(words));
        assert!(
            !is_crash || is_of_linker || has_no_memory,
            "{what}: {line}\n{log}"
        );
    }
}

/// A daemon whose main thread is traced.
fn run_supervisor(place: &Place, fault: Option<&Fault>) -> Ran {
    let what = format!("the supervisor's {fault:?}");
    let (trace, traced) = (place.trace(), place.temporary().join("traced"));
    let script = format!(
        "exec strace -DDD -q -s 0 {} -o '{}' '{EXE}' \"$@\"",
        injection(fault).join(" "),
        trace.display()
    );
    write_script(&traced, &script);
    let started = TestDaemon::try_start_in(&place.runtime_dir(), traced.to_str().unwrap(), &place.options());
    match started {
        Ok(mut daemon) => {
            let pid = daemon.pid();
            serve(Client::start_brief(place), (&what, None), || {
                send(pid, Signal::SIGHUP)
            });
            daemon.close_owner();
            let status = daemon.wait();
            wait_until("all processes of the driver are gone", || {
                group_of(pid).is_empty()
            });
            expect_end((&what, fault), (status, true), &daemon.log());
        }
        Err((status, log)) => {
            assert!(!status.success(), "{what}: {log}");
            expect_end((&what, fault), (status, false), &log);
        }
    }
    wait_until("the trace is whole", || is_over(&trace));
    let ran = read(&trace);
    // Sockets of a driver that could not take them away are in nobody's way.
    let _ = std::fs::remove_dir_all(place.runtime_dir());
    ran
}

/// strace notes the end of its tracee last.
fn is_over(trace: &Path) -> bool {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    text.lines().last().is_some_and(|line| line.contains("+++ "))
}

/// A supervisor has ended as it was told to, or with a message and a code. One that has not begun to serve
/// may not even have been linked.
fn expect_end((what, fault): (&str, Option<&Fault>), (status, has_begun): (ExitStatus, bool), log: &str) {
    expect_clean((what, fault), log);
    if status.success() || (!has_begun && is_crash_of_linker(fault, status)) {
        return;
    }
    let is_told = status.code() == Some(1) || status.code() == Some(127);
    let has_no_memory = NO_MEMORY.iter().any(|words| log.contains(words));
    assert!(is_told || has_no_memory, "{what}: {status}: {log}");
    assert!(!log.trim().is_empty(), "{what}: {status} without a word");
}

/// How often in turn the processes of a driver are seen to be the same when none is being started any more.
const UNCHANGED: u32 = 50;

/// Waits until nothing is being started: a tracer that lets go meanwhile waits for what waits for it.
fn wait_for_quiet(group: u32) {
    let mut processes = group_of(group);
    let mut unchanged = 0;
    wait_until("no process is being started", || {
        let before = std::mem::replace(&mut processes, group_of(group));
        unchanged = if processes == before && !is_starting(group) {
            unchanged + 1
        } else {
            0
        };
        unchanged >= UNCHANGED
    });
}

/// Whether a thread of the process waits for a child that has not run its own program yet.
fn is_starting(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let is_in_disk_sleep = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        Some(stat.rsplit_once(") ")?.1.starts_with('D'))
    };
    tasks
        .into_iter()
        .any(|task| is_in_disk_sleep(task).unwrap_or(false))
}

/// A client of a daemon that is traced with all workers that it starts.
fn run_workers(place: &Place, stage: &mut Option<Stage>, fault: Option<&Fault>) -> Ran {
    let what = format!("the workers' {fault:?}");
    let mut on = stage.take().unwrap_or_else(|| Stage::new(place));
    let before = on.daemon.log().len();
    let pid = on.daemon.pid();
    let tracer = Tracer::attach(pid, &place.trace(), fault);
    serve(Client::start_brief(place), (&what, None), || {
        send(pid, Signal::SIGHUP)
    });
    wait_for_quiet(pid);
    drop(tracer);
    expect_clean((&what, fault), &on.daemon.log()[before..]);
    // What the fault has left of workers goes with the next client. A supervisor that ends has said why.
    if is_alive(pid) && on.goes_on_as_before(&what) {
        *stage = Some(on);
    } else {
        drop(on.bystander);
        let status = on.daemon.wait();
        expect_end((&what, fault), (status, true), &on.daemon.log());
    }
    read(&place.trace())
}

/// A client that is traced.
fn run_client(place: &Place, stage: &mut Option<Stage>, fault: Option<&Fault>) -> Ran {
    let what = format!("the client's {fault:?}");
    let mut on = stage.take().unwrap_or_else(|| Stage::new(place));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-s", "0", "-o"]).arg(place.trace());
    strace.args(injection(fault));
    serve(Client::start_under(strace, place), (&what, fault), || ());
    expect_clean((&what, None), &on.daemon.log());
    on.expect_as_before(&what);
    *stage = Some(on);
    read(&place.trace())
}

/// The fault that a text like `ppoll:25:ENOMEM` names.
fn named(whose: Whose, text: &str) -> Option<Fault> {
    let (call, rest) = text.split_once(':')?;
    let (number, error) = rest.split_once(':')?;
    Some(Fault {
        call: call.to_owned(),
        number: number.parse().ok()?,
        error: errors(whose, call).iter().find(|known| **known == error)?,
    })
}

/// Has calls fail: so many that the seed draws, or every one if `NNHAL_TEST_FAULTS` is `all`, or those of a
/// call or the one that it names, to repeat them.
fn faults_of(whose: Whose) {
    if !Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("SKIPPED: there is no strace, which makes system calls fail, or it may trace nothing");
        return;
    }
    let place = Place::new();
    let mut stage = None;
    if whose == Whose::Workers {
        let on = Stage::new(&place);
        // A kernel may let only root trace what is no child, and a supervisor lets nobody else.
        if let Err(said) = Tracer::try_attach(on.daemon.pid(), &place.trace(), None) {
            println!("SKIPPED: strace may not trace a process that runs already: {said}");
            return;
        }
        stage = Some(on);
    }
    let mut run = |fault: Option<&Fault>| match whose {
        Whose::Supervisor => run_supervisor(&place, fault),
        Whose::Workers => run_workers(&place, &mut stage, fault),
        Whose::Client => run_client(&place, &mut stage, fault),
    };
    let calls = run(None).calls;
    assert!(!calls.is_empty(), "{whose:?}: the trace has no calls");
    let (mut injected, mut names) = (0, BTreeSet::new());
    let mut inject = |fault: &Fault| {
        let hit = run(Some(fault)).has_failed;
        if hit {
            injected += 1;
            names.insert(fault.call.clone());
        }
        hit
    };
    let wanted = std::env::var("NNHAL_TEST_FAULTS").unwrap_or_default();
    if let Some(fault) = named(whose, &wanted) {
        inject(&fault);
    } else if wanted == "all" || !errors(whose, &wanted).is_empty() {
        for call in calls.keys().filter(|&call| wanted == "all" || *call == wanted) {
            for error in errors(whose, call) {
                let numbered = |number| Fault {
                    call: call.clone(),
                    number,
                    error,
                };
                // One that is missed may be one that a thread does not always make.
                let mut missed = 0;
                for number in 1.. {
                    missed = if inject(&numbered(number)) { 0 } else { missed + 1 };
                    if missed == 3 {
                        break;
                    }
                }
            }
        }
    } else {
        let mut random = Random::new(seed());
        let calls: Vec<_> = calls
            .iter()
            .filter(|(call, _)| !errors(whose, call).is_empty())
            .collect();
        let draws = sized("NNHAL_TEST_FAULTS", FAULTS);
        let mut hits = 0;
        for draw in 0..draws + MORE_DRAWS {
            // A thread may make a call less often this time.
            if draw >= draws && hits > 0 {
                break;
            }
            let (call, &most) = calls[random.below(calls.len() as u32) as usize];
            let errors = errors(whose, call);
            hits += u32::from(inject(&Fault {
                call: call.clone(),
                number: 1 + random.below(most),
                error: errors[random.below(errors.len() as u32) as usize],
            }));
        }
    }
    drop(stage);
    assert!(injected > 0, "{whose:?}: no call has failed");
    println!(
        "{whose:?}: {injected} faults in {} different calls (seed {}): no crash, no hang, nothing left; {names:?}",
        names.len(),
        seed()
    );
}

#[test]
fn supervisor_whose_system_calls_fail_serves_or_ends_with_a_message() {
    faults_of(Whose::Supervisor);
}

#[test]
fn workers_whose_system_calls_fail_harm_nobody_else_and_leave_nothing() {
    faults_of(Whose::Workers);
}

#[test]
fn client_whose_system_calls_fail_is_told_and_leaves_nothing() {
    faults_of(Whose::Client);
}
