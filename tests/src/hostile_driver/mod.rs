//! A driver that lies: it speaks the protocol to whoever connects, and spoils what it says at random, from a
//! seed. Threat T44.
//!
//! [`HostileDriver`] serves a socket, each connection on threads of its own. What it answers is what a driver
//! would answer, with shapes, counts and descriptors that are wrong now and then (`answers.rs`); then the
//! message is spoilt on its way (`mutation.rs`). Bursts it serves by rings whose words it also overwrites
//! (`rings.rs`).

mod answers;
mod lies;
mod mutation;
mod rings;
mod shared;
pub mod single;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal::wire::{Call, Envelope, Inbox, handshake};
use nnhal_conformance::generator::choices::Random;
use nnhal_os::poll;
use nnhal_os::socket::{Connection, Listener};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use self::answers::Answers;
pub use self::answers::DEVICE;
use self::mutation::Sender;
use self::shared::{Shared, soon};

/// A driver that lies, until dropped.
#[derive(Debug)]
pub struct HostileDriver {
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
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
            seed: seed.into(),
            true_welcomes: true_welcomes.into(),
            ..Shared::default()
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

    /// How often a client slept on a doorbell and was woken wrongly or not at all.
    #[must_use]
    pub fn found_asleep(&self) -> u64 {
        self.shared.found_asleep.load(Ordering::Relaxed)
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
