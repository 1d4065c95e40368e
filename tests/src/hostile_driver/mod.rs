//! A driver that lies: it speaks the protocol to whoever connects, and spoils what it says at random, from a
//! seed. Threat T44.
//!
//! [`HostileDriver`] serves a socket, each connection on threads of its own. What it answers is what a driver
//! would answer, with shapes, counts and descriptors that are wrong now and then (`answers.rs`); then the
//! message is spoilt on its way (`mutation.rs`). Bursts it serves by rings whose words it also overwrites
//! (`rings.rs`).

mod answers;
mod mutation;
mod rings;
pub mod single;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal::wire::{Call, Envelope, Inbox, handshake};
use nnhal_conformance::generator::choices::Random;
use nnhal_os::poll;
use nnhal_os::socket::{Connection, Listener};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use self::answers::Answers;
use self::mutation::Sender;

/// The device's name, and so the file's name of its socket.
pub const DEVICE: &str = "hostile-device";

/// How long it waits for anything: far longer than its clients do.
const PATIENCE: Duration = Duration::from_secs(2);

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), PATIENCE)
}

/// A driver that lies, until dropped.
#[derive(Debug)]
pub struct HostileDriver {
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Of the next connection.
    seed: AtomicU64,
    /// How many connections are welcomed truly before the first that may not be.
    true_welcomes: AtomicU64,
    /// Messages that were spoilt, and states of rings that no driver makes.
    spoilt: AtomicU64,
    is_over: AtomicBool,
}

impl HostileDriver {
    /// Serves a socket in this directory. The first connections are welcomed truly.
    ///
    /// # Panics
    /// If the socket cannot be made.
    #[must_use]
    pub fn start(directory: &Path, seed: u64, true_welcomes: u64) -> HostileDriver {
        let path = directory.join(format!("{DEVICE}.sock"));
        let listener = Listener::bind(&path).expect("a socket");
        let shared = Arc::new(Shared {
            seed: AtomicU64::new(seed),
            true_welcomes: AtomicU64::new(true_welcomes),
            spoilt: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let listening = std::thread::spawn(move || listen(&listener, &own));
        HostileDriver {
            shared,
            listening: Some(listening),
        }
    }

    /// From now on connections are those of another seed.
    pub fn begin_case(&self, seed: u64) {
        self.shared.seed.store(seed, Ordering::Relaxed);
    }

    /// How many messages and states of rings it has spoilt.
    #[must_use]
    pub fn spoilt(&self) -> u64 {
        self.shared.spoilt.load(Ordering::Relaxed)
    }
}

impl Drop for HostileDriver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn listen(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let tick = Deadline::after(MonotonicClock.now(), Duration::from_millis(20));
        if poll::one(listener, PollFlags::POLLIN, tick).is_ok_and(|ready| ready.is_empty()) {
            continue;
        }
        let Ok(Some(connection)) = listener.accept() else {
            continue;
        };
        // Connections of one case differ.
        let seed = shared.seed.fetch_add(1 << 40, Ordering::Relaxed);
        let left = shared.true_welcomes.load(Ordering::Relaxed);
        shared
            .true_welcomes
            .store(left.saturating_sub(1), Ordering::Relaxed);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve(connection, Random::new(seed), left > 0, &shared));
    }
}

/// Serves one client until it, or this driver, closes the connection.
fn serve(connection: Connection, mut random: Random, is_true: bool, shared: &Arc<Shared>) {
    let mut inbox = Inbox::new();
    let Ok((hello, _)) = inbox.receive_bytes(&connection, soon()) else {
        return;
    };
    let Some(version) = handshake::read_hello(hello)
        .ok()
        .and_then(|versions| handshake::VERSIONS.agree(versions))
    else {
        return;
    };
    let mut sender = Sender::new(connection, version, Random::new(random.bits()), shared);
    if !sender.welcome(&answers::welcome(&mut random), is_true) {
        return;
    }
    inbox.set_version(version);
    let mut answers = Answers::new(random, Arc::clone(shared));
    while let Ok((Envelope { id, call }, fds)) = inbox.receive::<Envelope>(sender.connection(), soon()) {
        let is_release = matches!(call, Call::Release { .. });
        for (message, fds) in answers.answer(id, call, fds) {
            // Of releases there are many, and most go wrong in the same way.
            if !sender.send(&message, &fds, is_release) {
                return;
            }
        }
    }
}

/// True once in so many times.
fn once_in(random: &mut Random, times: u32) -> bool {
    random.below(times) == 0
}

/// A number that programs trip over, or any other.
fn odd_number(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 63,
        3 => u64::from(u32::MAX),
        4 => 1 << 32,
        5 => u64::from(random.below(70_000)),
        6..8 => u64::from(random.below(4)),
        _ => random.bits(),
    }
}
