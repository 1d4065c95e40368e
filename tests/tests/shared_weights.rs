//! Packed weights that workers of one user share, with the real daemon: what a second client with the same
//! model costs, and that whatever happens to other clients or to the supervisor, models compute what they
//! should.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use nnhal_client::{
    CacheFiles, Device, Devices, ExecuteOptions, Input, Model, ModelBuilder, OperationType, Output,
    PrepareOptions, PreparedModel, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, is_alive, private_bytes, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// A layer whose packed weights are many times what a worker needs besides.
const INPUTS: usize = 8192;
const OUTPUTS: usize = 1024;
const WEIGHTS_BYTES: u64 = (INPUTS * OUTPUTS * size_of::<f32>()) as u64;

/// A user who owns nothing else. Not "nobody", who may stand for all that have no number here, and shares
/// nothing then.
const OTHER: u32 = 54_321;

/// Names the directory of the driver's sockets to the process that is the other user.
const DIRECTORY: &str = "NNHAL_TEST_SHARED_WEIGHTS";

/// Nothing that a worker keeps for its next execution counts here.
const SHARED: &str = "[execution]\nidle_release_ms = 1\n";
const ALONE: &str = "[execution]\nidle_release_ms = 1\n[weights]\nshare = false\n";

fn weight(seed: u32, output: usize, input: usize) -> f32 {
    // Whole numbers whose sums are exact in any order.
    let at = (output * INPUTS + input) as u32;
    ((at ^ seed).wrapping_mul(0x9E37_79B9) >> 29) as f32
}

fn model(seed: u32) -> Model {
    let weights: Vec<f32> = (0..OUTPUTS)
        .flat_map(|output| (0..INPUTS).map(move |input| weight(seed, output, input)))
        .collect();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, INPUTS as u32]));
    let filter = model.constant(TensorType::float32(&[OUTPUTS as u32, INPUTS as u32]), &weights);
    let bias = model.constant(TensorType::float32(&[OUTPUTS as u32]), &[0.5_f32; OUTPUTS]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[1, OUTPUTS as u32]));
    let inputs = [x, filter, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[y]);
    model.finish().unwrap()
}

/// A connection of its own, and so a worker of its own.
fn connect(runtime_dir: &Path) -> Device {
    Devices::open_in(runtime_dir)
        .unwrap()
        .device("nnhal-cpu")
        .unwrap()
}

/// Whether the layer gives for ones what it should.
fn is_right(prepared: &PreparedModel, seed: u32) -> bool {
    let mut output = vec![0.0_f32; OUTPUTS];
    let run = prepared.run(
        &[Input::from(&[1.0_f32; INPUTS][..])],
        &mut [Output::from(&mut output[..])],
        &ExecuteOptions::new(),
    );
    run.unwrap();
    let expected = |output| (0..INPUTS).map(|input| weight(seed, output, input)).sum::<f32>() + 0.5;
    // A sample: the test's own sums are not optimised.
    (0..OUTPUTS).step_by(17).all(|at| output[at] == expected(at))
}

/// A client with a prepared model.
struct Client {
    device: Device,
    prepared: PreparedModel,
}

impl Client {
    fn new(runtime_dir: &Path, seed: u32, options: &PrepareOptions) -> Client {
        let device = connect(runtime_dir);
        let prepared = device.prepare(&model(seed), options).unwrap();
        assert!(is_right(&prepared, seed));
        Client { device, prepared }
    }

    fn of(daemon: &TestDaemon, seed: u32) -> Client {
        Client::new(&daemon.runtime_dir(), seed, &PrepareOptions::new())
    }

    fn worker(&self) -> u32 {
        self.device.worker().pid
    }

    fn wait_until_it_shares(&self) {
        wait_until("the worker has no weights of its own", || {
            private_bytes(self.worker()) < WEIGHTS_BYTES / 5
        });
    }

    fn has_weights_of_its_own(&self) -> bool {
        private_bytes(self.worker()) >= WEIGHTS_BYTES
    }
}

/// How many memories with weights the supervisor has.
fn memories_of(daemon: &TestDaemon) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let size =
        |fd: std::io::Result<std::fs::DirEntry>| std::fs::metadata(fd.ok()?.path()).ok().map(|of| of.len());
    fds.filter_map(size).filter(|size| *size >= WEIGHTS_BYTES).count()
}

fn wait_for_memories(daemon: &TestDaemon, count: usize) {
    wait_until(
        &format!("the supervisor has {count} memories with weights"),
        || memories_of(daemon) == count,
    );
}

fn start(settings: &str) -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::with_settings(settings))
}

/// What the worker of a client that shares nothing has for itself.
fn alone() -> u64 {
    let daemon = start(ALONE);
    let client = Client::of(&daemon, 1);
    let mut bytes = u64::MAX;
    wait_until("the worker has given back what it does not need", || {
        let before = std::mem::replace(&mut bytes, private_bytes(client.worker()));
        bytes == before && bytes < 2 * WEIGHTS_BYTES
    });
    assert!(bytes >= WEIGHTS_BYTES);
    bytes
}

#[test]
fn second_client_with_the_same_model_takes_a_fifth_of_the_memory_at_most() {
    let alone = alone();
    let daemon = start(SHARED);
    let first = Client::of(&daemon, 1);
    let second = Client::of(&daemon, 1);
    assert_ne!(first.worker(), second.worker());
    for client in [&first, &second] {
        wait_until("the worker has a fifth of what one has that is alone", || {
            private_bytes(client.worker()) <= alone / 5
        });
    }
    println!(
        "alone {} KiB, second {} KiB",
        alone / 1024,
        private_bytes(second.worker()) / 1024
    );
    assert!(is_right(&first.prepared, 1) && is_right(&second.prepared, 1));
}

#[test]
fn clients_that_prepare_at_the_same_time_share_one_copy() {
    let daemon = start(SHARED);
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(|| Client::of(&daemon, 1)));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    clients.iter().for_each(Client::wait_until_it_shares);
    assert!(clients.iter().all(|client| is_right(&client.prepared, 1)));
}

#[test]
fn weights_outlive_the_client_that_packed_them_and_end_with_the_last_that_uses_them() {
    let daemon = start(SHARED);
    let first = Client::of(&daemon, 1);
    let second = Client::of(&daemon, 1);
    second.wait_until_it_shares();
    let worker = first.worker();
    kill(Pid::from_raw(worker.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until("the first worker is gone", || !is_alive(worker));
    assert!(is_right(&second.prepared, 1));
    let third = Client::of(&daemon, 1);
    for client in [&second, &third] {
        client.wait_until_it_shares();
        assert!(is_right(&client.prepared, 1));
    }
    assert_eq!(memories_of(&daemon), 1);
    drop((first, second, third));
    wait_for_memories(&daemon, 0);
}

#[test]
fn weights_end_with_the_models_that_use_them_while_their_workers_go_on() {
    let daemon = start(SHARED);
    let Client { device, prepared } = Client::of(&daemon, 1);
    assert_eq!(memories_of(&daemon), 1);
    drop(prepared);
    wait_for_memories(&daemon, 0);
    let again = device.prepare(&model(1), &PrepareOptions::new()).unwrap();
    assert!(is_right(&again, 1));
    assert_eq!(memories_of(&daemon), 1);
}

#[test]
fn other_weights_are_another_model() {
    let daemon = start(SHARED);
    let first = Client::of(&daemon, 1);
    let second = Client::of(&daemon, 2);
    assert!(is_right(&first.prepared, 1) && is_right(&second.prepared, 2));
    assert!(second.has_weights_of_its_own());
    assert_eq!(memories_of(&daemon), 2);
}

#[test]
fn models_from_cache_files_share_with_those_that_were_packed() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(directory.path().join(name)).unwrap()
    };
    let options = PrepareOptions::new().cache(Arc::new(CacheFiles {
        model: vec![open("model").into()],
        data: vec![open("data").into()],
        token: [3; 32],
    }));
    let daemon = start(SHARED);
    let from_cache = || {
        let device = connect(&daemon.runtime_dir());
        let prepared = device.prepare_from_cache(Some(&model(1)), &options).unwrap();
        assert!(is_right(&prepared, 1));
        Client { device, prepared }
    };
    let packed = Client::new(&daemon.runtime_dir(), 1, &options);
    let cached = from_cache();
    packed.wait_until_it_shares();
    cached.wait_until_it_shares();
    drop((packed, cached));
    // Nobody packs them this time.
    let (first, second) = (from_cache(), from_cache());
    first.wait_until_it_shares();
    second.wait_until_it_shares();
    assert!(is_right(&first.prepared, 1) && is_right(&second.prepared, 1));
}

#[test]
fn nothing_is_shared_when_it_is_switched_off() {
    let daemon = start(ALONE);
    let first = Client::of(&daemon, 1);
    let second = Client::of(&daemon, 1);
    assert!(first.has_weights_of_its_own() && second.has_weights_of_its_own());
    assert_eq!(memories_of(&daemon), 0);
}

#[test]
fn models_are_prepared_and_computed_without_a_supervisor() {
    let daemon = start(SHARED);
    let first = Client::of(&daemon, 1);
    let second = Client::of(&daemon, 1);
    // One that hangs first, so that requests stay unanswered.
    daemon.signal(Signal::SIGSTOP);
    let alone = second.device.prepare(&model(2), &PrepareOptions::new()).unwrap();
    assert!(is_right(&alone, 2));
    drop(alone);
    daemon.signal(Signal::SIGKILL);
    wait_until("the supervisor is gone", || !is_alive(daemon.pid()));
    for client in [&first, &second] {
        assert!(is_right(&client.prepared, 1));
        let alone = client.device.prepare(&model(3), &PrepareOptions::new()).unwrap();
        assert!(is_right(&alone, 3));
    }
    let workers = [first.worker(), second.worker()];
    drop((first, second));
    wait_until("the workers have ended with their clients", || {
        !workers.iter().any(|&worker| is_alive(worker))
    });
}

/// Only root can be two users: without its rights the test says so and ends.
#[test]
fn another_user_is_never_given_the_weights() {
    const NAME: &str = "another_user_is_never_given_the_weights";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        assert_eq!(geteuid().as_raw(), OTHER);
        let client = Client::new(Path::new(&directory), 1, &PrepareOptions::new());
        println!("\nWORKER {}", client.worker());
        std::io::stdout().flush().unwrap();
        // Until the first user has looked.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        assert!(is_right(&client.prepared, 1));
        return;
    }
    if !geteuid().is_root() {
        println!("SKIPPED: only root can be two users");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let runtime_dir = place.path().join("run");
    let options = DaemonOptions::with_settings(&format!("[clients]\nother_users = true\n{SHARED}"));
    let daemon = TestDaemon::start_in(&runtime_dir, EXE, &options);
    let first = Client::new(&runtime_dir, 1, &PrepareOptions::new());
    let second = Client::new(&runtime_dir, 1, &PrepareOptions::new());
    second.wait_until_it_shares();
    // By this name also a user can run the test who cannot reach the folder that it is in.
    let mut other = Command::new("/proc/self/exe")
        .args(["--exact", NAME, "--nocapture"])
        .env(DIRECTORY, &runtime_dir)
        .current_dir("/")
        .uid(OTHER)
        .gid(OTHER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    let worker = lines
        .find_map(|line| line.unwrap().strip_prefix("WORKER ")?.parse().ok())
        .expect("the other user has prepared the model");
    assert!(daemon.workers().contains(&worker));
    assert_eq!(memories_of(&daemon), 2, "T31: one of each user");
    assert!(
        private_bytes(worker) >= WEIGHTS_BYTES,
        "T31: the other user's worker has no weights of its own"
    );
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert!(is_right(&first.prepared, 1) && is_right(&second.prepared, 1));
}
