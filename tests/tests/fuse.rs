//! Memory in a file whose bytes another process of the client makes up as it likes (T2 of the threat model).
//! It needs root, to mount such a file system.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nnhal::wire::{Call, MemoryDescription, Reply};
use nnhal_hal::{DeviceStatus, ErrorStatus};
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, is_alive, wait_until};
use tempfile::TempDir;

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// Bytes of the one file there.
const SIZE: u64 = 4096;

/// The kernel's numbers of requests, and of the bytes before each and before an answer.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const REQUEST_BYTES: usize = 40;
const ANSWER_BYTES: usize = 16;
const ENOSYS: i32 = 38;

/// A list of words of 32 bits, as the kernel's structures are.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The attributes of a node: 1 is the directory, all others are the file.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == 1 {
        (0o040_755, 0)
    } else {
        (0o100_666, SIZE as u32)
    };
    // Node, size, blocks and three times, 64 bits each; parts of seconds; mode and links, owner, kind, block.
    let mut attributes = vec![node as u32, 0, size, 0];
    attributes.resize(15, 0);
    attributes.extend([mode, 1, 0, 0, 0, 4096, 0]);
    words(&attributes)
}

/// What the file system answers; `None` to a request that has no answer.
fn answer(number: u32, node: u64) -> Option<Result<Vec<u8>, i32>> {
    Some(match number {
        FORGET => return None,
        // The protocol's version, then limits.
        INIT => Ok(words(&[7, 31, 0, 0, 1, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        // Node and generation, and for how long that holds: not at all.
        LOOKUP => Ok([words(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]), attributes(2)].concat()),
        GETATTR => Ok([words(&[0; 4]), attributes(node)].concat()),
        OPEN => Ok(words(&[0; 4])),
        STATFS => Ok(words(&[0; 20])),
        _ => Err(-ENOSYS),
    })
}

/// Whether the file system answers.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
    /// Whether a request has come that is not answered.
    holds_somebody: AtomicBool,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        if *closed {
            self.holds_somebody.store(true, Ordering::Release);
        }
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// Serves the file system until it is mounted no more.
fn serve(mut device: File, gate: &Gate) {
    let mut request = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut request) {
        gate.pass();
        if length < REQUEST_BYTES {
            return;
        }
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let node = u64::from(word(16)) | u64::from(word(20)) << 32;
        let Some(answer) = answer(word(4), node) else {
            continue;
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (error, Vec::new()),
        };
        let mut packet = words(&[(ANSWER_BYTES + body.len()) as u32, error as u32]);
        packet.extend_from_slice(&request[8..16]);
        packet.extend(body);
        // A request that was given up has no answer.
        let _ = device.write(&packet);
    }
}

/// Mounts the file system and opens its file, in a thread with a view of its own of what is mounted.
fn file_of_user_file_system(directory: &Path, gate: &Arc<Gate>) -> Result<OwnedFd, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| text(&error))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| text(&error))?;
    fcntl(&device, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|error| text(&error))?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(directory).output();
    let private = Command::new("mount").args(["--make-rprivate", "/"]).output();
    private.map_err(|error| text(&error))?;
    let mounted =
        mount(&["-i", "-n", "-t", "fuse", "-o", &options, "nnhal"]).map_err(|error| text(&error))?;
    if !mounted.status.success() {
        return Err(String::from_utf8_lossy(&mounted.stderr).into_owned());
    }
    let gate = Arc::clone(gate);
    std::thread::spawn(move || serve(device, &gate));
    let opened = File::options()
        .read(true)
        .write(true)
        .open(directory.join("memory"));
    Ok(opened.map_err(|error| text(&error))?.into())
}

/// A file of such a file system, if one can be mounted here.
fn file(gate: &Arc<Gate>) -> Option<(TempDir, OwnedFd)> {
    let directory = TempDir::new().unwrap();
    let opened = std::thread::scope(|scope| {
        let opening = scope.spawn(|| file_of_user_file_system(directory.path(), gate));
        opening.join().unwrap()
    });
    let opened =
        opened.inspect_err(|reason| eprintln!("SKIPPED: no FUSE file system can be mounted: {reason}"));
    Some((directory, opened.ok()?))
}

fn description(name: &str) -> MemoryDescription {
    MemoryDescription {
        name: name.into(),
        fds: 1,
        size: SIZE,
        offset: 0,
        protection: 3,
    }
}

#[test]
fn file_of_a_file_system_that_a_user_serves_is_no_memory() {
    let Some((_directory, file)) = file(&Arc::default()) else {
        return;
    };
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    for name in ["mmap_fd", "ashmem", "hardware_buffer_blob"] {
        let refused = client.call(Call::RegisterMemory(description(name)), &[file.as_fd()]);
        let failure = refused.unwrap_err();
        assert_eq!(failure.status, ErrorStatus::InvalidArgument, "T2");
        assert!(failure.detail.contains("FUSE"), "T2: {failure}");
    }
    client.prepare(add_model(1)).unwrap();
    let status = client.call(Call::GetStatus, &[]);
    assert_eq!(status, Ok(Reply::Status(DeviceStatus::Available)));
}

/// The file system answers again at the end, whatever has happened: whoever closes its files waits for that.
struct OpenOnDrop<'a>(&'a Gate);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// Has the worker of this client wait for the file system, which does not answer from now on.
fn hold(client: &mut RawClient, gate: &Gate, file: &impl AsFd) {
    gate.set_closed(true);
    client
        .send(Call::RegisterMemory(description("mmap_fd")), &[file.as_fd()])
        .unwrap();
    wait_until("its worker waits for the file system", || {
        gate.holds_somebody.load(Ordering::Acquire)
    });
}

#[test]
fn file_system_that_does_not_answer_holds_the_worker_of_its_own_client_and_nobody_else() {
    let gate = Arc::new(Gate::default());
    let Some((_directory, file)) = file(&gate) else {
        return;
    };
    // Closing a descriptor asks the file system too, until it has said that it does not want to know: an end
    // that is asked for cannot be interrupted.
    drop(file.try_clone().unwrap());
    let daemon = TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[workers]\nlinger_timeout_ms = 100\n[clients]\nmax_per_user = 4\n"),
    );
    let connect = || RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    let mut before = connect();
    let mut held = connect();
    let worker = held.welcome.worker_pid;
    let _opens = OpenOnDrop(&gate);
    hold(&mut held, &gate, &file);
    // Those who were there, and those who come, are served.
    for client in [&mut before, &mut connect()] {
        client.prepare(add_model(1)).unwrap();
        let status = client.call(Call::GetStatus, &[]);
        assert_eq!(status, Ok(Reply::Status(DeviceStatus::Available)));
    }
    drop(held);
    before.prepare(add_model(1)).unwrap();
    assert!(is_alive(worker), "T2: it waits, whatever becomes of its client");
    // Its client keeps the place of one, and no longer than that.
    let others: Vec<_> = (0..2).map(|_| connect()).collect();
    let refused = RawClient::try_connect(&daemon.runtime_dir(), "nnhal-reference").unwrap_err();
    assert!(refused.to_string().contains("clients.max_per_user"), "{refused}");
    gate.set_closed(false);
    wait_until("the worker has gone with its client", || !is_alive(worker));
    let mut last = None;
    wait_until("the place is free", || {
        last = RawClient::try_connect(&daemon.runtime_dir(), "nnhal-reference").ok();
        last.is_some()
    });
    drop(others);
    before.prepare(add_model(1)).unwrap();
}

#[test]
fn driver_ends_before_a_worker_that_waits_for_a_file_system() {
    let gate = Arc::new(Gate::default());
    let Some((_directory, file)) = file(&gate) else {
        return;
    };
    drop(file.try_clone().unwrap());
    let mut daemon = TestDaemon::start(
        EXE,
        &DaemonOptions::with_settings("[workers]\nlinger_timeout_ms = 100\ndrain_timeout_ms = 100\n"),
    );
    let mut held = RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    let worker = held.welcome.worker_pid;
    let _opens = OpenOnDrop(&gate);
    hold(&mut held, &gate, &file);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for_log("the kernel keeps workers");
    wait_until("the driver has ended", || !is_alive(daemon.pid()));
    assert!(is_alive(worker), "T2: it waits");
    assert!(!daemon.runtime_dir().exists());
    gate.set_closed(false);
    wait_until("the worker has gone, too", || !is_alive(worker));
    assert!(daemon.wait().success());
}
