//! Which parts of the jail are in force, where the kernel has all of them and where it has not.

use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;
use nnhal_tests::escape::{DEVICE, THREAD, THREADED, Way};
use nnhal_tests::{DaemonOptions, TestDaemon, write_script};

use crate::common::{EXE, Jailed, Outcome, is_possible};

/// Files, processes, network, the kernel: what several parts keep closed.
const WAYS: [Way; 6] = [
    Way::OpenPassword,
    Way::OpenRoot,
    Way::CreateFile,
    Way::TraceParent,
    Way::KillParent,
    Way::Mount,
];

/// What the kernel says where something is not permitted, or not in sight.
const CLOSED: [i32; 5] = [libc::EACCES, libc::EPERM, libc::EROFS, libc::ENOENT, libc::ESRCH];

/// The number of the capability to signal processes of other users.
const CAP_KILL: u32 = 5;

fn options(settings: &str) -> DaemonOptions {
    DaemonOptions {
        devices: vec![DEVICE.to_owned()],
        log: Some("warn,driver=info".to_owned()),
        ..DaemonOptions::with_settings(settings)
    }
}

/// The line of the log about the jail of workers.
fn told(daemon: &TestDaemon) -> String {
    daemon.wait_for_log("the workers' jail: ");
    let log = daemon.log();
    let line = log
        .lines()
        .find_map(|line| line.split_once("the workers' jail: "));
    line.unwrap().1.to_owned()
}

fn status(process: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_default()
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn namespace(process: impl std::fmt::Display, name: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap()
}

/// An executable that starts the driver by this command.
fn started_by(command: &str, directory: &Path) -> String {
    let path = directory.join("driver");
    write_script(&path, &format!("exec {command} '{EXE}' \"$@\""));
    path.to_str().unwrap().to_owned()
}

#[test]
fn kernel_confirms_what_the_log_says() {
    let mut jailed = Jailed::start("");
    let worker = jailed.worker().0.worker().pid;
    let told = told(&jailed.daemon);
    println!("{told}");
    assert!(told.starts_with("44 system calls"), "{told}");
    assert_eq!(status(worker, "Seccomp"), "2");
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    assert_eq!(status(worker, "CapEff").trim_start_matches('0'), "");
    assert_eq!(status(worker, "CapPrm").trim_start_matches('0'), "");
    // To end workers of another user; who is not root has none.
    for key in ["CapEff", "CapPrm"] {
        let kept = u64::from_str_radix(&status(jailed.daemon.pid(), key), 16).unwrap();
        assert_eq!(kept & !(1 << CAP_KILL), 0, "{key} of the supervisor");
    }
    assert_eq!(status(jailed.daemon.pid(), "Seccomp"), "2");
    if !geteuid().is_root() {
        return;
    }
    // Only root may look at what follows.
    assert_ne!(status(worker, "Uid"), "0");
    let (has, _) = told.split_once(';').unwrap_or((&told, ""));
    for (part, name) in [
        ("network", "net"),
        ("IPC", "ipc"),
        ("mount", "mnt"),
        ("PID", "pid"),
    ] {
        let is_own = namespace(worker, name) != namespace("self", name);
        assert_eq!(
            is_own,
            has.contains(&format!("{part} namespace")),
            "{part}: {told}"
        );
    }
    if has.contains("empty root") {
        // Of the device that needs a file there.
        let root = std::fs::read_dir(format!("/proc/{worker}/root")).unwrap();
        let names: Vec<_> = root.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["dev"]);
    }
}

#[test]
fn parts_that_are_switched_off_leave_the_others() {
    for off in ["system_calls", "files", "namespaces"] {
        let mut jailed = Jailed::start(&format!("[jail]\n{off} = false\n"));
        let _ = jailed.worker();
        for way in WAYS {
            let outcome = jailed.way(way);
            let is_closed = match outcome {
                Outcome::Killed => true,
                Outcome::Refused(errno) => CLOSED.contains(&errno),
                _ => false,
            };
            assert!(is_closed, "{off}: {way:?}: {outcome:?}");
        }
    }
}

#[test]
fn nothing_is_in_force_that_is_switched_off() {
    let settings = "[jail]\nsystem_calls = false\nfiles = false\nnamespaces = false\nuser = \"root\"\n";
    let settings = if geteuid().is_root() {
        settings
    } else {
        &settings.replace("user = \"root\"\n", "")
    };
    let mut jailed = Jailed::start(settings);
    let worker = jailed.worker().0.worker().pid;
    assert_eq!(status(worker, "Seccomp"), "0");
    assert!(matches!(jailed.way(Way::OpenPassword), Outcome::Done(_)));
}

/// Without the list of system calls, which would end it for looking.
#[test]
fn worker_sees_no_other_process() {
    let mut jailed = Jailed::start("[jail]\nsystem_calls = false\nfiles = false\n");
    let outside = jailed.worker().0.worker().pid;
    let told = told(&jailed.daemon);
    if !told
        .split("; not permitted")
        .next()
        .unwrap()
        .contains("PID namespace")
    {
        println!("SKIPPED: this kernel permits no PID namespace: {told}");
        return;
    }
    assert_eq!(jailed.call(libc::SYS_getpid, &[]), Outcome::Done(1));
    assert_eq!(jailed.call(libc::SYS_getppid, &[]), Outcome::Done(0));
    let nobody = Outcome::Refused(libc::ESRCH);
    for other in [jailed.daemon.pid(), outside, std::process::id()] {
        let other = other.cast_signed();
        assert_eq!(jailed.call(libc::SYS_kill, &[other, 0, 0]), nobody, "{other}");
        assert_eq!(jailed.call(libc::SYS_pidfd_open, &[other]), nobody, "{other}");
    }
    // All but itself.
    assert_eq!(jailed.call(libc::SYS_kill, &[-1, 0]), nobody);
    // No /proc tells of others either.
    assert_eq!(jailed.way(Way::OpenOwnMemory), Outcome::Refused(libc::ENOENT));
}

#[test]
fn device_that_starts_a_thread_while_it_is_made_is_not_served() {
    let options = DaemonOptions {
        devices: vec![THREADED.to_owned()],
        ..DaemonOptions::default()
    };
    let (status, said) = TestDaemon::run_to_end(EXE, &options, None);
    assert!(!status.success());
    assert!(
        said.contains(&format!(
            "device {THREADED} has started threads while it was made ({THREAD})"
        )),
        "{said}"
    );
}

#[test]
fn root_that_may_not_mount_has_the_rest() {
    let command = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    if !is_possible(command) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = TestDaemon::start(&started_by(command, directory.path()), &options(""));
    let told = told(&daemon);
    assert!(told.starts_with("44 system calls, as user "), "{told}");
    let (has, lacks) = told.split_once("; not permitted here: ").unwrap();
    assert!(!has.contains("root") && !has.contains("namespace"), "{told}");
    assert!(
        lacks.contains("PID namespace: ")
            && lacks.contains("mount namespace: ")
            && lacks.contains("network namespace: "),
        "{told}"
    );
}

#[test]
fn root_that_may_not_kill_other_users_does_not_start_unless_it_is_told() {
    let command = "setpriv --bounding-set=-kill --inh-caps=-kill";
    if !is_possible(command) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let driver = started_by(command, directory.path());
    let (status, said) = TestDaemon::run_to_end(&driver, &options(""), None);
    assert!(!status.success());
    assert!(
        said.contains("jail.user = \"root\" leaves them to root"),
        "{said}"
    );
    let daemon = TestDaemon::start(&driver, &options("[jail]\nuser = \"root\"\n"));
    assert!(!told(&daemon).contains("as user"));
}

#[test]
fn root_of_a_user_namespace_has_namespaces_in_it() {
    let command = "unshare --user --map-root-user";
    if !is_possible(command) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = TestDaemon::start(&started_by(command, directory.path()), &options(""));
    let told = told(&daemon);
    assert!(
        told.contains("PID namespace, mount namespace, network namespace, IPC namespace, empty root")
            && !told.contains("as user"),
        "{told}"
    );
}

#[test]
fn user_without_privileges_has_a_user_namespace() {
    let command = "unshare --user --map-user=1000 --map-group=1000";
    if !is_possible(command) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = TestDaemon::start(&started_by(command, directory.path()), &options(""));
    let told = told(&daemon);
    assert!(
        told.contains(
            "PID namespace, user namespace, mount namespace, network namespace, IPC namespace, empty root"
        ),
        "{told}"
    );
}

#[test]
fn user_who_may_make_no_user_namespace_has_the_rest() {
    // The namespace that the driver runs in is the only one that may be made here.
    let command = "unshare --user --map-root-user sh -c 'echo 1 > /proc/sys/user/max_user_namespaces && \
                   exec unshare --user --map-user=1000 --map-group=1000 \"$@\"' sh";
    if !is_possible(command) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = TestDaemon::start(&started_by(command, directory.path()), &options(""));
    let told = told(&daemon);
    let (has, lacks) = told.split_once("; not permitted here: ").unwrap();
    assert!(has.starts_with("44 system calls, files"), "{told}");
    assert!(
        !has.contains("namespace")
            && lacks.starts_with("PID namespace: ")
            && lacks.contains("user namespace: "),
        "{told}"
    );
}
