//! The daemon's life: start, service, signals, end, and the ways to refuse to start.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal::wire::{Call, Event, Execute, ExecutionForm, Message, Reply};
use nnhal_hal::{ErrorStatus, MeasureTiming, Timing};
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TIMEOUT, TestDaemon, activities_of, add_execution, add_model, children_of,
    is_alive, shared_floats, wait_until, write_script,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";

fn start() -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::default())
}

fn floats(mapping: &nnhal_os::shm::Mapping, range: std::ops::Range<u64>) -> Vec<f32> {
    let read = |index| {
        let mut bytes = [0; 4];
        mapping.as_slice().read_at(index * 4, &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    };
    range.map(read).collect()
}

#[test]
fn model_is_prepared_and_executed_in_another_process() {
    let daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    assert_eq!(client.welcome.device.name, REFERENCE);
    assert_eq!(client.welcome.supervisor_pid, daemon.pid());
    assert_ne!(client.welcome.worker_pid, std::process::id());
    let (memory, mapping) = shared_floats(&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]);
    let handle = client.register(&memory);
    let prepared_model = client.prepare(add_model(2)).unwrap();
    let mut execute = add_execution(prepared_model, handle, 2);
    let reply = client.call(Call::Execute(execute.clone()), &[]).unwrap();
    let Reply::Executed(result) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(result.outcome, Ok(()));
    assert_eq!(result.timing, Timing::NONE);
    assert_eq!(floats(&mapping, 4..6), [11.0, 22.0]);

    mapping.as_slice().write_at(0, &5_f32.to_le_bytes()).unwrap();
    execute.form = ExecutionForm::Asynchronous;
    execute.measure = MeasureTiming::Yes;
    assert_eq!(client.call(Call::Execute(execute), &[]), Ok(Reply::Launched));
    let Event::Executed(result) = client.event() else {
        panic!("not an execution")
    };
    assert_eq!(result.outcome, Ok(()));
    assert!(result.timing.time_on_device_us <= result.timing.time_in_driver_us);
    assert_ne!(result.timing.time_in_driver_us, u64::MAX);
    assert_eq!(floats(&mapping, 4..6), [15.0, 22.0]);
}

#[test]
fn end_of_the_client_ends_its_worker_and_nothing_else() {
    let daemon = start();
    let mut other = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let worker = client.welcome.worker_pid;
    assert_ne!(worker, other.welcome.worker_pid);
    assert!(is_alive(worker));
    drop(client);
    wait_until("the worker is reaped", || {
        !children_of(daemon.pid()).contains(&worker)
    });
    assert!(matches!(other.call(Call::GetStatus, &[]), Ok(Reply::Status(_))));
}

#[test]
fn death_of_the_worker_is_told_to_its_client() {
    let daemon = start();
    let mut other = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let worker = client.welcome.worker_pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker.cast_signed()), Signal::SIGKILL).unwrap();
    let last = client.drain().pop().expect("how the worker ended");
    let Message::WorkerExit(worker_exit) = last else {
        panic!("{last:?}")
    };
    assert_eq!(worker_exit.worker_pid, worker);
    assert!(worker_exit.to_string().contains("SIGKILL"), "{worker_exit}");
    assert!(matches!(other.call(Call::GetStatus, &[]), Ok(Reply::Status(_))));
}

#[test]
fn workers_serve_on_without_their_supervisor() {
    let daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let worker = client.welcome.worker_pid;
    let idle: Vec<_> = daemon
        .workers()
        .into_iter()
        .filter(|&pid| pid != worker)
        .collect();
    daemon.signal(Signal::SIGKILL);
    wait_until("the supervisor is gone", || !is_alive(daemon.pid()));
    wait_until("workers without a client are gone", || {
        idle.iter().all(|&pid| !is_alive(pid))
    });
    assert!(client.prepare(add_model(1)).is_ok());
    assert!(is_alive(worker));
    drop(client);
    wait_until("the worker is gone", || !is_alive(worker));
}

#[test]
fn workers_start_where_no_file_can_be_made() {
    let mut daemon = TestDaemon::start(
        EXE,
        &DaemonOptions {
            environment: vec![("TMPDIR".to_owned(), "/nonexistent".into())],
            ..DaemonOptions::default()
        },
    );
    // As whoever cleans up directories for temporary files would.
    for entry in std::fs::read_dir(daemon.runtime_dir()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let clients = [(); 5].map(|()| RawClient::connect(&daemon.runtime_dir(), REFERENCE));
    drop(clients);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success(), "{}", daemon.log());
}

#[test]
fn driver_without_descriptors_to_spare_serves_or_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = Vec::new();
    for limit in 4..36 {
        let script = format!("ulimit -n {limit} && exec \"$@\"");
        let mut driver = Command::new("sh")
            .args(["-c", &script, "sh", EXE, "--private", "--runtime-dir"])
            .arg(directory.path().join("run"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = driver.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        drop(driver.stdin.take());
        wait_until("the driver has ended", || driver.try_wait().unwrap().is_some());
        let status = driver.wait().unwrap();
        assert_eq!(status.success(), line == "ready\n", "{limit}: {status}");
        served.push(status.success());
    }
    assert!(!served[0] && served.ends_with(&[true]), "{served:?}");
}

#[test]
fn private_driver_that_cannot_say_that_it_is_ready_ends() {
    let directory = tempfile::tempdir().unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut driver = Command::new(EXE)
        .args(["--private", "--runtime-dir"])
        .arg(directory.path().join("run"))
        .stdin(Stdio::piped())
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _owner = driver.stdin.take();
    wait_until("the driver has ended", || driver.try_wait().unwrap().is_some());
    let output = driver.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("failed to say that the driver is ready"), "{said}");
}

#[test]
fn worker_in_reserve_that_ends_is_followed_by_one_when_a_client_comes() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    wait_until("there is a worker in reserve", || !daemon.workers().is_empty());
    let reserve = daemon.workers();
    kill(Pid::from_raw(reserve[0].cast_signed()), Signal::SIGKILL).unwrap();
    daemon.wait_for_log(&format!("pid={}", reserve[0]));
    // One that ends at once would be started again for ever.
    assert!(daemon.workers().is_empty());
    let _client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    wait_until("there is one in reserve again", || daemon.workers().len() == 2);
}

#[test]
fn log_that_nobody_reads_stops_nothing() {
    let (_reader, mut full) = std::io::pipe().unwrap();
    let room = fcntl(&full, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    full.write_all(&vec![b'\n'; room as usize]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let runtime_dir = directory.path().join("run");
    let mut driver = Command::new(EXE)
        .args([
            "--private",
            "--log",
            "trace",
            "--device",
            REFERENCE,
            "--runtime-dir",
        ])
        .arg(&runtime_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(full)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = driver.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for _ in 0..20 {
        let mut client = RawClient::connect(&runtime_dir, REFERENCE);
        client.prepare(add_model(1)).unwrap();
    }
    drop(driver.stdin.take());
    wait_until("the driver has ended", || driver.try_wait().unwrap().is_some());
    assert!(driver.wait().unwrap().success());
}

#[test]
fn sigterm_ends_the_driver_with_all_its_workers_and_files() {
    let mut daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let workers = daemon.workers();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    let messages = client.drain();
    let is_told =
        |message: &Message| matches!(message, Message::Goodbye { reason } if reason.contains("ending"));
    assert!(messages.iter().any(is_told), "{messages:?}");
    assert!(workers.iter().all(|&pid| !is_alive(pid)));
    assert!(
        !daemon.runtime_dir().exists(),
        "a private driver's directory goes with it"
    );
}

/// Tells a driver to end while a worker is stopped, which cannot end by itself, then does as `hurried` says;
/// waits for its end.
fn expect_end_in_spite_of_a_stopped_worker(drain_timeout_ms: u32, hurried: impl FnOnce(&TestDaemon)) {
    let settings = format!("[workers]\ndrain_timeout_ms = {drain_timeout_ms}\n");
    let options = DaemonOptions {
        log: Some("info".into()),
        ..DaemonOptions::with_settings(&settings)
    };
    let mut daemon = TestDaemon::start(EXE, &options);
    let client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let worker = client.welcome.worker_pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker.cast_signed()), Signal::SIGSTOP).unwrap();
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for_log("ending");
    hurried(&daemon);
    assert!(daemon.wait().success());
    assert!(!is_alive(worker));
}

#[test]
fn drain_that_takes_too_long_is_cut_short() {
    expect_end_in_spite_of_a_stopped_worker(50, |_| {});
}

#[test]
fn second_sigterm_waits_for_nobody() {
    expect_end_in_spite_of_a_stopped_worker(600_000, |daemon| daemon.signal(Signal::SIGTERM));
}

#[test]
fn child_that_nobody_waits_for_is_reaped() {
    // As one is whose program did not begin in time.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("driver");
    write_script(&script, &format!("sleep 60 & exec {EXE} \"$@\""));
    let daemon = TestDaemon::start(script.to_str().unwrap(), &DaemonOptions::default());
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let is_sleep =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    let mut child = None;
    wait_until("the child is there", || {
        child = daemon.workers().into_iter().find(is_sleep);
        child.is_some()
    });
    let child = child.unwrap();
    kill(nix::unistd::Pid::from_raw(child.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until("the child is reaped", || !daemon.workers().contains(&child));
    client.prepare(add_model(1)).unwrap();
}

#[test]
fn private_driver_ends_with_its_owner() {
    let mut daemon = start();
    daemon.close_owner();
    assert!(daemon.wait().success());
}

#[test]
fn sighup_reads_the_settings_again() {
    let options = DaemonOptions::with_settings("[clients]\nmax = 9\n");
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions {
            log: Some("info".into()),
            ..options
        },
    );
    let _first = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    std::fs::write(daemon.settings_file(), "[clients]\nmax = 1\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_log("settings read again");
    let refused = RawClient::try_connect(&daemon.runtime_dir(), REFERENCE).unwrap_err();
    assert!(refused.to_string().contains("as many as it may"), "{refused}");
    std::fs::write(daemon.settings_file(), "[clients]\nmaximum = 1\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_log("the settings stay as they are");
}

/// The kernel gives a signal to another thread if the first one is about to handle one, or is traced.
#[test]
fn signals_are_heeded_whichever_thread_of_the_supervisor_they_come_to() {
    let options = DaemonOptions {
        log: Some("info".into()),
        ..DaemonOptions::default()
    };
    let daemon = TestDaemon::start(EXE, &options);
    let mut signals = 0;
    for &thread in activities_of(daemon.pid()).keys() {
        // It tries the thread of this number first.
        let is_there =
            [Signal::SIGCHLD, Signal::SIGHUP].map(|signal| kill(Pid::from_raw(thread), signal).is_ok());
        signals += usize::from(is_there[1]);
        wait_until("the settings are read again", || {
            assert!(
                is_alive(daemon.pid()),
                "a signal to thread {thread} has ended the supervisor"
            );
            daemon.log().matches("settings read again").count() >= signals
        });
    }
    let _client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
}

#[test]
fn client_beyond_its_quota_is_turned_away() {
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[clients]\nmax_per_user = 2\n"),
    );
    let first = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let _second = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let refused = RawClient::try_connect(&daemon.runtime_dir(), REFERENCE).unwrap_err();
    assert!(
        refused.to_string().contains("as many as one user may"),
        "{refused}"
    );
    drop(first);
    wait_until("there is room again", || {
        RawClient::try_connect(&daemon.runtime_dir(), REFERENCE).is_ok()
    });
}

#[test]
fn clients_that_hang_up_get_no_worker() {
    const COUNT: usize = 200;
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions {
            log: Some("driver=debug".into()),
            ..DaemonOptions::default()
        },
    );
    let path = nnhal::wire::directory::socket_path(&daemon.runtime_dir(), REFERENCE);
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    for _ in 0..COUNT {
        drop(Connection::connect(&path, deadline).unwrap());
    }
    let _client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let workers = daemon.log().matches("worker ended").count();
    assert!(workers < COUNT / 4, "{workers}");
}

#[test]
fn worker_that_starts_while_settings_are_read_is_replaced() {
    let options = DaemonOptions {
        devices: vec!["nnhal-empty".into()],
        log: Some("info".into()),
        ..DaemonOptions::default()
    };
    let daemon = TestDaemon::start(EXE, &options);
    let reload = |settings: &str, times: usize| {
        std::fs::write(daemon.settings_file(), settings).unwrap();
        daemon.signal(Signal::SIGHUP);
        wait_until("the settings are read", || {
            daemon.log().matches("settings read again").count() == times
        });
    };
    let first = daemon.workers();
    reload(
        "[workers]\nstart_timeout_ms = 600000\n[device.nnhal-empty]\ncreate = \"hang\"\n",
        1,
    );
    wait_until("a worker hangs while it starts", || {
        let workers = daemon.workers();
        workers.len() == 1 && workers != first
    });
    reload("[workers]\nstart_timeout_ms = 600000\n", 2);
    let _client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
}

#[test]
fn workers_are_ended_before_the_supervisor_when_memory_runs_out() {
    let daemon = start();
    let client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let score = |pid: u32| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse().unwrap()
    };
    assert_eq!(score(client.welcome.worker_pid), score(daemon.pid()).max(300));
}

#[test]
fn unknown_handles_are_invalid_arguments() {
    let daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let guess = nnhal::wire::Handle {
        index: 0,
        generation: 0,
    };
    let execute = Execute {
        form: ExecutionForm::Asynchronous,
        ..add_execution(guess.into(), guess.into(), 1)
    };
    let failure = client.call(Call::Execute(execute), &[]).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::InvalidArgument);
}

#[test]
fn daemon_that_cannot_start_says_why_and_exits_with_1() {
    let refuses = |options: &DaemonOptions, runtime_dir: Option<&std::path::Path>, mention: &str| {
        let (status, text) = TestDaemon::run_to_end(EXE, options, runtime_dir);
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(mention), "{text}");
    };
    let unknown = DaemonOptions {
        devices: vec!["ACME-none".into()],
        ..DaemonOptions::default()
    };
    refuses(&unknown, None, "ACME-none");
    refuses(&DaemonOptions::with_settings("nonsense = 1"), None, "nonsense");
    let bad_option = DaemonOptions {
        devices: vec!["nnhal-empty".into()],
        ..DaemonOptions::with_settings("[device.nnhal-empty]\nfault = \"bad luck\"")
    };
    refuses(&bad_option, None, "bad luck");
    refuses(
        &DaemonOptions::default(),
        Some("/proc/nnhal".as_ref()),
        "/proc/nnhal",
    );
    let daemon = start();
    refuses(
        &DaemonOptions::default(),
        Some(&daemon.runtime_dir()),
        "already served",
    );
}
