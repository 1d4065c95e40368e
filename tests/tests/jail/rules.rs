//! The lists of system calls have nothing that nobody uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use nnhal_client::{
    BurstOptions, CompilationCache, Deadline, Devices, ExecuteOptions, Input, Memory, Model, ModelBuilder,
    OperationType, Output, PrepareOptions, Priority, Request, TensorType,
};
use nnhal_os::socket::Listener;
use nnhal_tests::escape::LOOKING;
use nnhal_tests::{DaemonOptions, KillOnDrop, TIMEOUT, TestDaemon, wait_until, write_script};

use crate::common;

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// How often a driver is traced at most.
const TRIES: usize = 8;

/// Values that the layer takes and gives.
const SIZE: usize = 512;

/// A rule of `--list-system-calls`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    whose: String,
    call: String,
    when: String,
}

fn listed() -> BTreeSet<Listed> {
    let output = Command::new(EXE).arg("--list-system-calls").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rules = text.lines().map(|line| {
        let [whose, call, when, reason] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}");
        };
        assert!(!reason.is_empty(), "{line}");
        Listed {
            whose: whose.to_owned(),
            call: call.to_owned(),
            when: when.to_owned(),
        }
    });
    rules.collect()
}

/// What each step of a driver was seen to call, by strace.
#[derive(Debug, Default)]
struct Seen {
    serving: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// Reads what strace wrote. A worker serves from the moment on that it restricts all of its threads.
fn read(trace: &str) -> Seen {
    let mut seen = Seen::default();
    // By thread, the first one of its process; and of a worker, whether it has a client.
    let mut leaders: BTreeMap<&str, &str> = BTreeMap::new();
    let mut serving: BTreeSet<&str> = BTreeSet::new();
    // Those in the middle of a call for a new thread, of which the rest is on a later line.
    let mut starting: BTreeSet<&str> = BTreeSet::new();
    for line in trace.lines() {
        let Some((thread, event)) = line.split_once(' ') else {
            continue;
        };
        let event = event.trim_start();
        let event = event.strip_prefix("<... ").unwrap_or(event);
        let leader = *leaders.entry(thread).or_insert(thread);
        let name = event.split(['(', ' ']).next().unwrap_or_default();
        let calls = if serving.contains(leader) {
            &mut seen.serving
        } else {
            &mut seen.others
        };
        calls.insert(name.to_owned());
        if name.starts_with("clone") && (event.contains("CLONE_THREAD") || starting.remove(thread)) {
            match child_of(event) {
                Some(child) => {
                    leaders.insert(child, leader);
                }
                None => {
                    starting.insert(thread);
                }
            }
        }
        if event.starts_with("seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC") {
            serving.insert(leader);
        }
    }
    seen
}

/// The number of a new thread outside of its PID namespace, where strace is.
fn child_of(event: &str) -> Option<&str> {
    let (_, result) = event.rsplit_once(") = ")?;
    match result.split_once("/* ") {
        Some((_, outside)) => outside.split(' ').next(),
        None => Some(result.trim()),
    }
}

/// A layer whose packed weights are large enough to be shared.
fn layer() -> Model {
    let weights = vec![0.5_f32; SIZE * SIZE];
    let size = SIZE as u32;
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, size]));
    let filter = model.constant(TensorType::float32(&[size, size]), &weights);
    let bias = model.constant(TensorType::float32(&[size]), &[0.5_f32; SIZE]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[1, size]));
    let inputs = [x, filter, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[y]);
    model.finish().unwrap()
}

/// Work of every kind that a driver has for its clients.
fn keep_busy(runtime_dir: &Path) {
    let model = layer();
    let directory = tempfile::tempdir().unwrap();
    let cache = CompilationCache::open(directory.path().join("cache"), 1 << 30).unwrap();
    let options = ExecuteOptions::new();
    for _ in 0..3 {
        let device = Devices::open_in(runtime_dir)
            .unwrap()
            .device("nnhal-cpu")
            .unwrap();
        let prepared = cache.prepare(&device, &model, &PrepareOptions::new()).unwrap();
        let mut bursts: Vec<_> = (0..3)
            .map(|_| prepared.burst(&BurstOptions::new()).unwrap())
            .collect();
        for round in 0..300 {
            let mut output = vec![0.0_f32; SIZE];
            let inputs = vec![1.0_f32; SIZE];
            let run = bursts[round % 3].run(
                &[Input::from(&inputs[..])],
                &mut [Output::from(&mut output[..])],
                &options,
            );
            run.unwrap();
        }
        drop(bursts);
        let low = PrepareOptions::new().priority(Priority::Low);
        let low = device.prepare(&model, &low).unwrap();
        drop(low.burst(&BurstOptions::new()).unwrap());
        let memory = Memory::new(8 * SIZE as u64).unwrap();
        let half = 4 * SIZE as u64;
        let request = Request::new()
            .input(&memory, 0..half)
            .output(&memory, half..2 * half);
        let fenced = prepared.execute_fenced(&request, &[], &options).unwrap();
        fenced.wait(Deadline::NONE).unwrap();
    }
}

/// A driver that is traced: the executable to start, and the trace.
struct Traced {
    directory: tempfile::TempDir,
    exe: String,
}

impl Traced {
    /// Of this executable, with strace started by this command.
    fn new(exe: &str, command: &str) -> Traced {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("driver");
        let trace = directory.path().join("trace");
        std::fs::write(&trace, "").unwrap();
        let script = format!(
            "exec {command} strace -D -f -q -s 0 --pidns-translation -A -o '{}' '{exe}' \"$@\"",
            trace.display()
        );
        write_script(&started, &script);
        for path in [directory.path(), &trace] {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        Traced {
            exe: started.to_str().unwrap().to_owned(),
            directory,
        }
    }

    fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    /// Runs a driver while `work` is done with it.
    fn run(&self, options: &DaemonOptions, work: impl Fn(&TestDaemon)) {
        let mut daemon = TestDaemon::start(&self.exe, options);
        work(&daemon);
        let supervisor = daemon.pid();
        daemon.close_owner();
        daemon.wait();
        self.wait_for_end(supervisor);
    }

    /// Waits until strace, which is no parent of the driver, has written all.
    fn wait_for_end(&self, supervisor: u32) {
        wait_until("the trace ends", || {
            let trace = std::fs::read_to_string(self.trace()).unwrap();
            trace.lines().any(|line| {
                let line = line.strip_prefix(&supervisor.to_string());
                line.is_some_and(|line| line.trim_start().starts_with("+++ "))
            })
        });
    }
}

/// What drivers were seen to call so far.
impl Seen {
    fn add(&mut self, traced: &Traced) {
        let again = read(&std::fs::read_to_string(traced.trace()).unwrap());
        self.serving.extend(again.serving);
        self.others.extend(again.others);
    }

    /// The rules that this is the time of and that were not used.
    fn unused(&self, listed: &BTreeSet<Listed>, when: &[&str]) -> Vec<Listed> {
        let is_unused = |rule: &&Listed| {
            let seen = if rule.whose == "serving" {
                &self.serving
            } else {
                &self.others
            };
            when.contains(&&*rule.when) && !seen.contains(&rule.call)
        };
        listed.iter().filter(is_unused).cloned().collect()
    }
}

/// Clients that are served, as often as it takes to see what a driver does only if it is in time.
fn serve(seen: &mut Seen, command: &str, listed: &BTreeSet<Listed>, when: &[&str]) {
    for _ in 0..TRIES {
        let traced = Traced::new(EXE, command);
        traced.run(&DaemonOptions::default(), |daemon| {
            keep_busy(&daemon.runtime_dir());
        });
        seen.add(&traced);
        if seen.unused(listed, when).is_empty() {
            break;
        }
    }
}

/// A driver that a service manager starts when the first client comes, and is told to read its settings
/// again.
fn be_a_service(seen: &mut Seen) {
    let traced = Traced::new(EXE, "");
    let directory = traced.directory.path();
    let run = directory.join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
    let listener = Listener::bind(&run.join("nnhal-cpu.sock")).unwrap();
    let notified = directory.join("notify");
    let manager = UnixDatagram::bind(&notified).unwrap();
    let settings = directory.join("settings.toml");
    std::fs::write(&settings, "[clients]\nother_users = true\n").unwrap();
    let script =
        "exec 3<&0 </dev/null && export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=nnhal-cpu && exec \"$@\"";
    let driver = Command::new("sh")
        .args(["-c", script, "sh", &traced.exe, "--device", "nnhal-cpu"])
        .args(["--device", "nnhal-reference", "--runtime-dir"])
        .args([run.as_os_str(), "--config".as_ref(), settings.as_os_str()])
        .env("NOTIFY_SOCKET", &notified)
        .stdin(Stdio::from(listener.as_fd().try_clone_to_owned().unwrap()))
        .spawn()
        .unwrap();
    let mut driver = KillOnDrop(driver);
    let mut told = [0; 64];
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    manager.recv(&mut told).unwrap();
    let _ = Devices::open_in(run.clone())
        .unwrap()
        .device("nnhal-cpu")
        .unwrap();
    let pid = Pid::from_raw(driver.0.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    let socket = run.join("nnhal-reference.sock");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o666);
    std::fs::write(&settings, "").unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    wait_until("the settings are read again", || {
        let status = driver.0.try_wait().unwrap();
        assert_eq!(
            status, None,
            "the driver has ended instead of reading its settings"
        );
        mode(&socket) == 0o600
    });
    kill(pid, Signal::SIGTERM).unwrap();
    let mut status = None;
    wait_until("the driver has ended", || {
        status = driver.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    traced.wait_for_end(driver.0.id());
    seen.add(&traced);
}

/// Workers that end by mistakes. Not by a fault: who is traced does not end by one, as the
/// first process of a PID namespace.
fn die(seen: &mut Seen) {
    const EMPTY: &str = "nnhal-empty";
    let options = |settings: &str| DaemonOptions {
        devices: vec![EMPTY.to_owned()],
        ..DaemonOptions::with_settings(settings)
    };
    for fault in ["abort", "overflow", "panic", "hang"] {
        let traced = Traced::new(EXE, "");
        let settings = format!("[execution]\nhang_limit_ms = 200\n[device.{EMPTY}]\nprepare = {fault:?}\n");
        traced.run(&options(&settings), |daemon| {
            let device = Devices::open_in(daemon.runtime_dir()).unwrap();
            let device = device.device(EMPTY).unwrap();
            let error = device.prepare(&layer(), &PrepareOptions::new()).unwrap_err();
            assert!(error.is_dead_object(), "{error}");
        });
        seen.add(&traced);
    }
}

/// A device that looks for hardware while it is made.
fn look_for_hardware(seen: &mut Seen) {
    let traced = Traced::new(common::EXE, "");
    let options = DaemonOptions {
        devices: vec![LOOKING.to_owned()],
        ..DaemonOptions::default()
    };
    traced.run(&options, |daemon| {
        let _ = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(LOOKING)
            .unwrap();
    });
    seen.add(&traced);
}

#[test]
fn lists_of_system_calls_have_nothing_that_nobody_uses() {
    if !Command::new("strace")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("SKIPPED: there is no strace, which shows the calls of a driver");
        return;
    }
    let listed = listed();
    let mut seen = Seen::default();
    let own = if geteuid().is_root() { "root" } else { "not root" };
    let when = ["always", own];
    be_a_service(&mut seen);
    die(&mut seen);
    look_for_hardware(&mut seen);
    serve(&mut seen, "", &listed, &when);
    let unused = seen.unused(&listed, &when);
    assert!(unused.is_empty(), "{unused:?}");
    println!(
        "a worker with clients made {} different calls: {:?}",
        seen.serving.len(),
        seen.serving
    );
    let unused = seen.unused(&listed, &["service", "deaths", "devices", "clients"]);
    println!("not seen in what was brought about: {unused:?}");
    let others: Vec<_> = listed
        .iter()
        .filter(|rule| !when.contains(&&*rule.when))
        .collect();
    println!(
        "{} of {} rules are used always; {} are for one time or another: {:?}",
        listed.len() - others.len(),
        listed.len(),
        others.len(),
        others.iter().map(|rule| &rule.call).collect::<Vec<_>>()
    );
}
