//! More unread descriptors than the kernel lets a user have. Whose they are counts, and root may have any
//! number: so this is a user's who is not root.

use std::os::fd::AsFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nnhal_os::socket::{Connection, SocketError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model};

use crate::common::{DRIVER, NOBODY, SYSTEM, again_as, expect_success, in_own_run, part};

const TEST: &str = "unread::descriptors_that_the_kernel_does_not_take_are_sent_later";
const NOW: Deadline = Deadline::from_raw(0);

/// How many a worker may have: those of its own, and three for each object.
const OF_WORKER: usize = 64 + 3;

#[test]
fn descriptors_that_the_kernel_does_not_take_are_sent_later() {
    match part().as_deref() {
        None => in_own_run(TEST),
        Some(SYSTEM) => expect_success(&mut again_as(NOBODY, TEST, "user")),
        Some(_) => {
            sending_waits_for_readers();
            client_is_welcomed_all_the_same();
        }
    }
}

/// Descriptors that nobody has read.
struct Unread(Connection, Connection);

impl Unread {
    /// So many, or as many as the kernel takes.
    fn new(most: usize) -> (Unread, usize) {
        let (here, there) = Connection::pair().unwrap();
        let mut count = 0;
        while count < most {
            match here.send(b"x", &[here.as_fd()], NOW) {
                Ok(()) => count += 1,
                Err(SocketError::TimedOut { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        (Unread(here, there), count)
    }

    fn read_one(&self) {
        self.1.receive(&mut [0; 4], NOW).unwrap();
    }
}

fn sending_waits_for_readers() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 40, hard).unwrap();
    let (unread, count) = Unread::new(200);
    assert!(count < 60, "{count}");
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
            unread.0.send(b"y", &[unread.0.as_fd()], deadline)
        });
        (0..count / 2).for_each(|_| unread.read_one());
        sent.join().unwrap().unwrap();
    });
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
}

fn client_is_welcomed_all_the_same() {
    let daemon = TestDaemon::start(DRIVER, &DaemonOptions::with_settings("[limits]\nobjects = 1\n"));
    let connect = || RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
    assert!(connect().welcome.has_pidfd);
    let (unread, count) = Unread::new(2 * OF_WORKER);
    assert!(count > OF_WORKER, "{count}");
    let mut client = connect();
    assert!(!client.welcome.has_pidfd);
    client.prepare(add_model(1)).unwrap();
    drop(unread);
    assert!(connect().welcome.has_pidfd);
}
