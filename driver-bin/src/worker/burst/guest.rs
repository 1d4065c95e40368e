//! A burst whose thread has lent it to another.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nnhal::fmq::Consumer;

use super::serve::Server;

/// A burst that is lent to a host. It goes home when this is dropped, whatever happens to the host.
#[derive(Debug)]
pub(super) struct Guest {
    server: Option<Box<Server>>,
    home: Arc<Home>,
    /// Looks since something has come for it.
    pub(super) looks_in_vain: u32,
}

/// Where a burst's thread waits for the burst.
#[derive(Debug, Default)]
pub(super) struct Home {
    returned: Mutex<Option<Box<Server>>>,
    has_returned: Condvar,
}

impl Guest {
    pub(super) fn new(mut server: Box<Server>, home: Arc<Home>) -> Guest {
        server.runner.shares_thread = true;
        Guest {
            server: Some(server),
            home,
            looks_in_vain: 0,
        }
    }

    pub(super) fn consumer(&self) -> Option<&Consumer> {
        self.server.as_ref().map(|server| server.consumer())
    }

    /// The burst's server; there is one until it goes home.
    #[inline]
    pub(super) fn server(&mut self) -> Option<&mut Server> {
        self.server.as_deref_mut()
    }

    /// Whether a packet has come. Of the end it says nothing.
    #[inline]
    pub(super) fn has_packet(&mut self) -> bool {
        let has_packet = self
            .server()
            .is_some_and(|server| server.consumer_mut().has_packet());
        self.looks_in_vain = if has_packet { 0 } else { self.looks_in_vain + 1 };
        has_packet
    }

    /// Whether a packet or the end has come.
    pub(super) fn is_ready(&mut self) -> bool {
        self.looks_in_vain = 0;
        self.server()
            .is_some_and(|server| server.consumer_mut().is_ready())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.rest();
            server.runner.shares_thread = false;
            *self.home.lock() = Some(server);
            self.home.has_returned.notify_one();
        }
    }
}

impl Home {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Server>>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the burst is home.
    pub(super) fn wait(&self) -> Box<Server> {
        let mut returned = self.lock();
        loop {
            match returned.take() {
                Some(server) => return server,
                None => {
                    let woken = self.has_returned.wait(returned);
                    returned = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
