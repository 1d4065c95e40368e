//! A burst whose thread has lent it to a shared poller.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nnhal::fmq::Consumer;

use super::serve::Server;

/// A burst that is lent. Its thread has it back when this is dropped, whatever happens to the shared poller.
#[derive(Debug)]
pub(super) struct LentBurst {
    server: Option<Box<Server>>,
    returns: Arc<ReturnSlot>,
}

/// Where a burst's thread waits for the burst.
#[derive(Debug, Default)]
pub(super) struct ReturnSlot {
    returned: Mutex<Option<Box<Server>>>,
    has_returned: Condvar,
}

impl LentBurst {
    pub(super) fn new(mut server: Box<Server>, returns: Arc<ReturnSlot>) -> LentBurst {
        server.runner.shares_thread = true;
        LentBurst {
            server: Some(server),
            returns,
        }
    }

    pub(super) fn consumer(&self) -> Option<&Consumer> {
        self.server.as_ref().map(|server| server.consumer())
    }

    /// The burst's server; there is one until it goes back.
    #[inline]
    pub(super) fn server(&mut self) -> Option<&mut Server> {
        self.server.as_deref_mut()
    }

    /// Whether a packet has come. Of the end it says nothing.
    #[inline]
    pub(super) fn has_packet(&mut self) -> bool {
        self.server()
            .is_some_and(|server| server.consumer_mut().has_packet())
    }

    /// Whether a packet or the end has come.
    pub(super) fn is_ready(&mut self) -> bool {
        self.server()
            .is_some_and(|server| server.consumer_mut().is_ready())
    }

    /// Has it give back what it keeps between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        if let Some(server) = self.server() {
            server.rest();
        }
    }
}

impl Drop for LentBurst {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.rest();
            server.runner.shares_thread = false;
            *self.returns.lock() = Some(server);
            self.returns.has_returned.notify_one();
        }
    }
}

impl ReturnSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Server>>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the burst is back.
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
