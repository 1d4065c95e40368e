//! Bursts that share a thread.
//!
//! Each burst has a thread of its own. Where one thread of the client drives many bursts, all of these
//! threads would want a processor now and then, and most would be asleep when their requests come. So a
//! thread whose burst has brief executions becomes a host: it waits for the requests of its guests, too, and
//! carries them out. Guests are bursts of the same kind whose threads have lent them to the host and rest
//! until they come home, when they end, when their executions are brief no more, or when the host ceases to
//! be one. Of each kind there are no more hosts than half of the processors, the other half being for the
//! threads of the client, so that with no more bursts than that each keeps its own thread.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::fmq::{MAX_WAIT_SET, Waker};
use nnhal_os::futex;

use super::guest::{Guest, Home};
use super::serve::{Kind, Server};

/// The hosts of a client's worker.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Of each kind.
    most_hosts: AtomicUsize,
    hosts: Mutex<Vec<Host>>,
    /// Counts up when a place for a guest or a host may have become free.
    openings: AtomicU32,
}

/// A host as those see it who look for one.
#[derive(Debug)]
struct Host {
    waker: Arc<Waker>,
    kind: Kind,
    /// With those that arrive.
    guests: usize,
    /// Those that the host has not yet let in.
    arriving: Vec<Guest>,
}

impl Sharing {
    /// With at most so many hosts of each kind; 0 for half of the processors.
    pub(super) fn new(most_hosts: u32) -> Sharing {
        let processors = crate::cores::processors();
        let most_hosts = match most_hosts {
            0 => (processors / 2).max(1),
            most => most as usize,
        };
        Sharing {
            // Without this a thread cannot sleep for several bursts.
            most_hosts: AtomicUsize::new(if futex::can_wait_on_any() { most_hosts } else { 0 }),
            hosts: Mutex::default(),
            openings: AtomicU32::new(0),
        }
    }

    /// How often a place may have become free.
    #[inline]
    pub(super) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Host>> {
        // The list is whole between any two statements of this module.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread of a burst a host, if there may be one more of its kind: the waker that calls it.
    pub(super) fn new_host(&self, server: &Server) -> Option<Arc<Waker>> {
        let mut hosts = self.lock();
        let same = hosts.iter().filter(|host| host.kind == server.kind()).count();
        if same >= self.most_hosts.load(Ordering::Relaxed) {
            return None;
        }
        let waker = Arc::new(server.consumer().new_waker());
        hosts.push(Host {
            waker: Arc::clone(&waker),
            kind: server.kind(),
            guests: 0,
            arriving: Vec::new(),
        });
        self.openings.fetch_add(1, Ordering::Relaxed);
        Some(waker)
    }

    /// Lends a burst to the host of its kind that has the fewest guests, if there is one with room.
    pub(super) fn lend(&self, server: Box<Server>) -> Result<Arc<Home>, Box<Server>> {
        let kind = server.kind();
        let mut hosts = self.lock();
        let host = hosts
            .iter_mut()
            .filter(|host| host.kind == kind && host.guests < MAX_WAIT_SET)
            .min_by_key(|host| host.guests);
        let Some(host) = host else { return Err(server) };
        let home = Arc::<Home>::default();
        host.guests += 1;
        host.arriving.push(Guest::new(server, Arc::clone(&home)));
        host.waker.wake();
        Ok(home)
    }

    /// From now on no thread becomes a host: one could not sleep for several bursts. Those that are hosts
    /// already stay so until they find out the same.
    pub(super) fn give_up(&self) {
        self.most_hosts.store(0, Ordering::Relaxed);
    }

    /// Those who have come to a host since it was last asked.
    pub(super) fn arrived(&self, waker: &Arc<Waker>) -> Vec<Guest> {
        let mut hosts = self.lock();
        let host = hosts.iter_mut().find(|host| Arc::ptr_eq(&host.waker, waker));
        host.map(|host| std::mem::take(&mut host.arriving))
            .unwrap_or_default()
    }

    /// A guest leaves its host.
    pub(super) fn has_left(&self, waker: &Arc<Waker>) {
        let mut hosts = self.lock();
        if let Some(host) = hosts.iter_mut().find(|host| Arc::ptr_eq(&host.waker, waker)) {
            host.guests -= 1;
        }
        self.openings.fetch_add(1, Ordering::Relaxed);
    }

    /// A host ceases to be one. Guests who are on their way to it go home.
    pub(super) fn closes(&self, waker: &Arc<Waker>) {
        self.lock().retain(|host| !Arc::ptr_eq(&host.waker, waker));
        self.openings.fetch_add(1, Ordering::Relaxed);
    }
}
