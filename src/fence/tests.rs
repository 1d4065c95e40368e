use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;

use super::*;
use nnhal_os::time::{Deadline, TimePoint};
use nnhal_os::{eventfd, poll};

const PAST: Deadline = Deadline::at(TimePoint::from_nanos(1));

/// The same event as another process would see it.
fn received(fence: &Fence) -> Fence {
    Fence::from_fd(fence.try_clone_fd().unwrap()).unwrap()
}

#[test]
fn signalled_fence_is_seen_here_and_through_another_descriptor_for_ever() {
    let (source, fence) = Fence::create().unwrap();
    let early = received(&fence);
    assert_eq!(early.state().unwrap(), FenceState::Pending);
    assert_eq!(fence.wait(PAST).unwrap(), FenceState::Pending);
    source.signal().unwrap();
    let late = received(&fence);
    for fence in [&fence, &early, &late] {
        assert_eq!(fence.wait(Deadline::NONE).unwrap(), FenceState::Signalled);
        assert_eq!(fence.state().unwrap(), FenceState::Signalled);
    }
}

#[test]
fn failed_fence_is_told_apart_from_a_signalled_one_through_its_descriptor() {
    let (source, fence) = Fence::create().unwrap();
    let early = received(&fence);
    source.fail().unwrap();
    let late = received(&fence);
    for fence in [fence, early, late] {
        assert_eq!(fence.wait(Deadline::NONE).unwrap(), FenceState::Failed);
    }
}

#[test]
fn source_dropped_without_signal_fails_the_fence() {
    let (source, fence) = Fence::create().unwrap();
    let other = received(&fence);
    drop(source);
    assert_eq!(other.wait(Deadline::NONE).unwrap(), FenceState::Failed);
}

#[test]
fn waiter_in_another_thread_is_woken() {
    let (source, fence) = Fence::create().unwrap();
    let other = received(&fence);
    let waiter = std::thread::spawn(move || other.wait(Deadline::NONE).unwrap());
    source.signal().unwrap();
    assert_eq!(waiter.join().unwrap(), FenceState::Signalled);
}

#[test]
fn saturated_counter_without_o_nonblock_does_not_block_the_signal() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let (source, fence) = Fence::create().unwrap();
    let hostile = fence.try_clone_fd().unwrap();
    eventfd::add(&hostile, eventfd::MAX_COUNT).unwrap();
    fcntl(&hostile, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    source.signal().unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Signalled);
}

#[test]
fn state_once_seen_outlives_a_peer_that_reads_the_counter() {
    let (source, fence) = Fence::create().unwrap();
    let other = received(&fence);
    source.signal().unwrap();
    assert_eq!(other.state().unwrap(), FenceState::Signalled);
    nix::unistd::read(&other, &mut [0; 8]).unwrap();
    assert_eq!(other.wait(Deadline::NONE).unwrap(), FenceState::Signalled);
}

#[test]
fn descriptor_that_is_always_ready_is_refused() {
    let refused: [(OwnedFd, &str); 3] = [
        (tempfile::tempfile().unwrap().into(), "a file"),
        (File::open("/").unwrap().into(), "a directory"),
        (File::open("/dev/zero").unwrap().into(), "a device"),
    ];
    for (fd, kind) in refused {
        let error = Fence::from_fd(fd).unwrap_err();
        assert!(error.to_string().contains(kind), "{error} does not say {kind}");
    }
    assert!(matches!(Fence::from_handle(None), Err(FenceError::Missing)));
}

#[test]
fn pipe_is_signalled_by_data_and_failed_by_its_writers_end() {
    let (read, write) = nix::unistd::pipe().unwrap();
    let fence = Fence::from_fd(read).unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Pending);
    File::from(write).write_all(b"x").unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Signalled);

    let (read, write) = nix::unistd::pipe().unwrap();
    let fence = Fence::from_fd(read).unwrap();
    drop(write);
    assert_eq!(fence.wait(Deadline::NONE).unwrap(), FenceState::Failed);
}

#[test]
fn only_eventfds_are_failed_for_a_source_that_is_gone() {
    let (source, fence) = Fence::create().unwrap();
    let elsewhere = received(&fence);
    elsewhere.fail_without_source();
    assert_eq!(fence.state().unwrap(), FenceState::Failed);
    drop(source);
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    there.set_nonblocking(true).unwrap();
    Fence::from_fd(here.try_clone().unwrap().into())
        .unwrap()
        .fail_without_source();
    let read = std::io::Read::read(&mut &there, &mut [0; 8]);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn expired_timer_and_readable_socket_are_signalled_not_failed() {
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).unwrap();
    let soon = Expiration::OneShot(TimeSpec::new(0, 1));
    timer.set(soon, TimerSetTimeFlags::empty()).unwrap();
    poll::one(&timer, PollFlags::POLLIN, Deadline::NONE).unwrap();
    let fence = Fence::from_fd(timer.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Signalled);

    let (socket, mut peer) = UnixStream::pair().unwrap();
    let fence = Fence::from_fd(socket.into()).unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Pending);
    peer.write_all(b"x").unwrap();
    assert_eq!(fence.state().unwrap(), FenceState::Signalled);
}

#[test]
fn wait_for_all_needs_every_fence_and_ends_at_the_first_failure() {
    assert_eq!(wait_all(&[], PAST).unwrap(), WaitOutcome::AllSignalled);
    let (first_source, first) = Fence::create().unwrap();
    let (second_source, second) = Fence::create().unwrap();
    let (third_source, third) = Fence::create().unwrap();
    let fences = [received(&first), received(&second), received(&third)];
    assert_eq!(wait_all(&fences, PAST).unwrap(), WaitOutcome::TimedOut(0));
    first_source.signal().unwrap();
    assert_eq!(wait_all(&fences, PAST).unwrap(), WaitOutcome::TimedOut(1));
    third_source.fail().unwrap();
    assert_eq!(wait_all(&fences, Deadline::NONE).unwrap(), WaitOutcome::Failed(2));
    second_source.signal().unwrap();
    assert_eq!(
        wait_all(&fences[..2], Deadline::NONE).unwrap(),
        WaitOutcome::AllSignalled
    );
}
