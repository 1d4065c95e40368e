//! Numbers of processes that are used again (T25). Alone in its binary, because it forks, and chooses which
//! number the kernel gives next.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use nix::sys::wait::WaitStatus;
use nnhal_os::time::{Deadline, TimePoint};
use nnhal_os::{fork, peer, pidfd};
use nnhal_tests::KillOnDrop;

/// T25: how often the number of a process that has ended is given to another one.
const REUSED: usize = 20;

#[test]
fn process_that_has_the_number_of_one_that_is_gone_is_not_taken_for_it() {
    // From which number on the kernel looks for the next one.
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let past = Deadline::at(TimePoint::from_nanos(1));
    let mut reused = 0;
    for _ in 0..100 * REUSED {
        if reused == REUSED {
            break;
        }
        let ended = fork::run_in_copy(|| u8::from(UnixStream::connect(&path).is_ok())).unwrap();
        let WaitStatus::Exited(number, 1) = ended else {
            panic!("{ended:?}")
        };
        let (connection, _) = listener.accept().unwrap();
        if let Err(error) = std::fs::write(LAST, (number.as_raw() - 1).to_string()) {
            return println!("SKIPPED: nobody may choose the numbers of processes here: {error}");
        }
        let other = KillOnDrop(Command::new("sleep").arg("1000").spawn().unwrap());
        // Another process of the machine was faster.
        if other.0.id() != number.as_raw().cast_unsigned() {
            continue;
        }
        reused += 1;
        let living = pidfd::open(number.as_raw()).unwrap();
        assert!(!pidfd::wait_for_end(&living, past).unwrap());
        let peer = peer::identify(&connection).unwrap();
        assert_eq!(peer.pid, number.as_raw());
        // Whoever is asked for by descriptor is the one that is gone, or nobody.
        let is_gone = |pidfd: &OwnedFd| pidfd::wait_for_end(pidfd, past).unwrap();
        assert!(peer.pidfd.as_ref().is_none_or(is_gone), "T25");
    }
    assert_eq!(reused, REUSED, "the kernel gives other numbers");
}
