//! Clients that are gone, but for closing what is left of their workers.
//!
//! Closing a connection closes the descriptors in its unread messages, and with some the mere closing waits
//! for whoever made them: a socket that lingers, a file of a file system in user space. So a thread of its
//! own does it, and as long as any thread deals with what came from a client, the client counts as one of its
//! user's.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, MonotonicClock, TimePoint};

/// What a thread needs that closes.
const STACK_BYTES: usize = 64 * 1024;

/// A client's place among those of its user, taken for as long as anybody has this.
#[derive(Clone, Debug, Default)]
pub(super) struct Place(Arc<()>);

/// The connection of a client that is gone or turned away. Dropping it closes what has not been read, which
/// may take long.
///
/// A worker that is being started at the moment has a copy of the connection until it runs its own program,
/// and would otherwise be the one who closes it last.
#[derive(Debug)]
pub(super) struct UnreadConnection(pub(super) Connection);

impl Drop for UnreadConnection {
    fn drop(&mut self) {
        self.0.discard_unread();
    }
}

/// The clients whose workers have ended, and what is left of them has not.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    users: Vec<(u32, Weak<()>, TimePoint)>,
}

impl Reaper {
    /// Has `remains` of a client of this user dropped by a thread; whoever else deals with them has the place
    /// too. It drops `freed` afterwards, which takes its time but needs nobody.
    pub(super) fn close(
        &mut self,
        uid: Option<u32>,
        place: Place,
        remains: impl Send + 'static,
        freed: impl Send + 'static,
    ) {
        if let Some(uid) = uid {
            self.users
                .push((uid, Arc::downgrade(&place.0), MonotonicClock.now()));
        }
        let closing = std::thread::Builder::new()
            .name("closing".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                drop(remains);
                drop(place);
                drop(freed);
            });
        // Then it has been closed here.
        if let Err(error) = closing {
            tracing::warn!(target: tags::DRIVER, %error, "no thread can be had to close connections");
        }
    }

    /// The users of the clients that have left altogether since this was asked last, once for each.
    pub(super) fn left(&mut self) -> Vec<u32> {
        let is_gone = |(_, place, _): &mut (u32, Weak<()>, TimePoint)| place.strong_count() == 0;
        self.users.extract_if(.., is_gone).map(|(uid, ..)| uid).collect()
    }

    /// Whether anybody, of this user if one is given, has begun to leave less than so long ago, or has left
    /// and has not been counted out.
    pub(super) fn is_anybody_leaving(&self, within: Duration, of: Option<u32>) -> bool {
        let now = MonotonicClock.now();
        self.users.iter().any(|(uid, place, since)| {
            let is_leaving = place.strong_count() == 0 || now.saturating_since(*since) < within;
            is_leaving && of.is_none_or(|of| of == *uid)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes as long to be dropped as the other side keeps its end.
    struct Stuck(mpsc::Receiver<()>);

    impl Drop for Stuck {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn client_counts_until_all_is_closed_and_nobody_waits_for_that() {
        let mut reaper = Reaper::default();
        let (held, end) = mpsc::channel();
        reaper.close(Some(7), Place::default(), Stuck(end), ());
        reaper.close(Some(8), Place::default(), (), ());
        while reaper.left() != [8] {
            std::thread::yield_now();
        }
        for (within, of, expected) in [
            (Duration::MAX, None, true),
            (Duration::MAX, Some(7), true),
            (Duration::MAX, Some(8), false),
            (Duration::ZERO, None, false),
        ] {
            assert_eq!(reaper.is_anybody_leaving(within, of), expected, "{of:?}");
        }
        drop(held);
        while reaper.left() != [7] {
            std::thread::yield_now();
        }
        assert!(!reaper.is_anybody_leaving(Duration::MAX, None));
    }

    #[test]
    fn place_is_taken_while_another_thread_has_it() {
        let (mut reaper, place) = (Reaper::default(), Place::default());
        reaper.close(Some(1), place.clone(), (), ());
        assert!(reaper.left().is_empty());
        drop(place);
        while reaper.left() != [1] {
            std::thread::yield_now();
        }
    }
}
