//! Messages, descriptors, and what goes wrong with them.

use std::os::fd::RawFd;

use super::*;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

const NOW: Deadline = Deadline::from_raw(0);

fn within(timeout: Duration) -> Deadline {
    Deadline::after(MonotonicClock.now(), timeout)
}

fn soon() -> Deadline {
    within(Duration::from_secs(10))
}

fn inode(fd: impl AsFd) -> u64 {
    let file = File::from(fd.as_fd().try_clone_to_owned().unwrap());
    file.metadata().unwrap().ino()
}

/// True once no descriptor in any process refers to the write end any more.
fn is_released(reader: &mut File) -> bool {
    reader.read(&mut [0]).unwrap() == 0
}

#[test]
fn end_that_stopped_receiving_sends_on() {
    let (here, there) = Connection::pair().unwrap();
    here.stop_receiving();
    let sent = there.send(b"up", &[], Deadline::from_raw(0));
    assert!(matches!(sent, Err(SocketError::Closed)), "{sent:?}");
    here.send(b"down", &[], Deadline::from_raw(0)).unwrap();
    let received = there.receive(&mut [0; 8], Deadline::from_raw(0)).unwrap();
    assert_eq!(received.length, 4);
}

#[test]
fn what_the_peer_has_not_read_takes_up_memory() {
    let (here, there) = Connection::pair().unwrap();
    assert_eq!(here.unread_bytes().unwrap(), 0);
    for count in 1..=3 {
        here.send(b"x", &[here.as_fd()], NOW).unwrap();
        assert!(here.unread_bytes().unwrap() >= count * MESSAGE_BYTES);
    }
    for _ in 0..3 {
        there.receive(&mut [0; 4], NOW).unwrap();
    }
    assert_eq!(here.unread_bytes().unwrap(), 0);
    assert_eq!(there.unread_bytes().unwrap(), 0);
}

#[test]
fn message_and_descriptors_arrive_in_order() {
    let (left, right) = Connection::pair().unwrap();
    let files: Vec<File> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    left.send(b"hello", &fds, NOW).unwrap();
    let mut buffer = [0; 16];
    let received = right.receive(&mut buffer, soon()).unwrap();
    assert_eq!(&buffer[..received.length], b"hello");
    let expected: Vec<_> = files.iter().map(inode).collect();
    let actual: Vec<_> = received.fds.iter().map(inode).collect();
    assert_eq!(actual, expected);
}

#[test]
fn descriptors_are_refused_until_they_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    if !listener.refuse_fds() {
        println!("SKIPPED: this kernel cannot refuse descriptors");
        return;
    }
    let client = Connection::connect(&path, soon()).unwrap();
    let error = client.send(b"x", &[client.as_fd()], NOW).unwrap_err();
    assert!(
        matches!(&error, SocketError::Io { source, .. } if source.raw_os_error() == Some(libc::EPERM)),
        "{error}"
    );
    client.send(b"y", &[], NOW).unwrap();
    let server = listener.accept().unwrap().unwrap();
    server.take_fds();
    client.send(b"z", &[client.as_fd()], NOW).unwrap();
    for (text, fds) in [(b"y", 0), (b"z", 1)] {
        let mut bytes = [0; 4];
        let received = server.receive(&mut bytes, soon()).unwrap();
        assert_eq!((&bytes[..received.length], received.fds.len()), (&text[..], fds));
    }
}

#[test]
fn discarding_what_is_unread_closes_its_descriptors_whoever_else_has_the_end() {
    for closes in [false, true] {
        let (left, right) = Connection::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        left.send(b"x", &[writer.as_fd()], NOW).unwrap();
        left.send(b"", &[], NOW).unwrap();
        left.send(b"", &[writer.as_fd(); 2], NOW).unwrap();
        left.send(&[1; 100], &[writer.as_fd(); MAX_FDS], NOW).unwrap();
        drop(writer);
        // What this side has sent, and nobody has read, resets the connection where the other is closed.
        right.send(b"y", &[], NOW).unwrap();
        let left = (!closes).then_some(left);
        let _copy = right.try_clone().unwrap();
        right.discard_unread();
        assert!(is_released(&mut File::from(OwnedFd::from(reader))));
        if let Some(left) = left {
            assert!(matches!(left.send(b"x", &[], NOW), Err(SocketError::Closed)));
            assert_eq!(left.receive(&mut [0; 4], NOW).unwrap().length, 1);
        }
    }
}

#[test]
fn received_descriptors_are_closed_on_exec() {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let (left, right) = Connection::pair().unwrap();
    left.send(b"x", &[left.as_fd()], NOW).unwrap();
    let received = right.receive(&mut [0; 4], soon()).unwrap();
    let flags = fcntl(&received.fds[0], FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
}

#[test]
fn receive_of_too_long_message_closes_its_descriptors() {
    let (left, right) = Connection::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    left.send(&[1; 9], &[writer.as_fd()], NOW).unwrap();
    drop(writer);
    let error = right.receive(&mut [0; 8], soon()).unwrap_err();
    assert!(
        matches!(error, SocketError::MessageTooLong { limit: 8 }),
        "{error}"
    );
    assert!(is_released(&mut File::from(OwnedFd::from(reader))));
}

#[test]
fn receive_of_too_many_descriptors_closes_them_all() {
    let (left, right) = Connection::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    // The kernel takes more than this side ever sends, as a hostile peer would.
    let fds = vec![writer.as_fd(); MAX_FDS + 5];
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let message = [nix::sys::socket::ControlMessage::ScmRights(&raw)];
    let flags = nix::sys::socket::MsgFlags::empty();
    let bytes = [io::IoSlice::new(b"x")];
    nix::sys::socket::sendmsg::<()>(left.as_fd().as_raw_fd(), &bytes, &message, flags, None).unwrap();
    drop(writer);
    let error = right.receive(&mut [0; 8], soon()).unwrap_err();
    assert!(matches!(error, SocketError::TooManyFds), "{error}");
    assert!(is_released(&mut File::from(OwnedFd::from(reader))));
}

#[test]
fn send_of_too_many_descriptors_is_refused() {
    let (left, _right) = Connection::pair().unwrap();
    let fds = vec![left.as_fd(); MAX_FDS + 1];
    assert!(matches!(left.send(b"x", &fds, NOW), Err(SocketError::TooManyFds)));
    left.send(b"x", &fds[..MAX_FDS], NOW).unwrap();
}

#[test]
fn receive_without_message_gives_timed_out() {
    let (_left, right) = Connection::pair().unwrap();
    let mut buffer = [0; 8];
    assert!(matches!(
        right.receive(&mut buffer, NOW),
        Err(SocketError::TimedOut { .. })
    ));
    let deadline = within(Duration::from_millis(3));
    assert!(matches!(
        right.receive(&mut buffer, deadline),
        Err(SocketError::TimedOut { .. })
    ));
    assert!(deadline.is_past(MonotonicClock.now()));
}

#[test]
fn receive_after_peer_closed_gives_its_messages_then_closed() {
    let (left, right) = Connection::pair().unwrap();
    left.send(b"last", &[], NOW).unwrap();
    drop(left);
    let mut buffer = [0; 8];
    assert_eq!(right.receive(&mut buffer, soon()).unwrap().length, 4);
    assert!(matches!(
        right.receive(&mut buffer, soon()),
        Err(SocketError::Closed)
    ));
    assert!(matches!(right.send(b"x", &[], NOW), Err(SocketError::Closed)));
}

#[test]
fn last_message_of_a_peer_that_did_not_read_arrives() {
    let (left, right) = Connection::pair().unwrap();
    left.send(b"unread", &[], NOW).unwrap();
    right.send(b"last", &[], NOW).unwrap();
    drop(right);
    let mut buffer = [0; 8];
    assert_eq!(left.receive(&mut buffer, soon()).unwrap().length, 4);
    assert!(matches!(
        left.receive(&mut buffer, soon()),
        Err(SocketError::Closed)
    ));
}

#[test]
fn send_to_peer_that_does_not_read_gives_timed_out() {
    let (left, _right) = Connection::pair().unwrap();
    let block = vec![0; 32 * 1024];
    let deadline = within(Duration::from_millis(5));
    let error = loop {
        if let Err(error) = left.send(&block, &[], deadline) {
            break error;
        }
    };
    assert!(matches!(error, SocketError::TimedOut { .. }), "{error}");
}

#[test]
fn connect_reaches_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("driver.sock");
    let listener = Listener::bind(&path).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let client = Connection::connect(&path, soon()).unwrap();
    let server = listener.accept().unwrap().expect("a waiting connection");
    client.send(b"x", &[], NOW).unwrap();
    assert_eq!(server.receive(&mut [0; 8], soon()).unwrap().length, 1);
}

#[test]
fn connect_to_full_queue_gives_timed_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("driver.sock");
    let fd = new_socket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK).unwrap();
    bind(fd.as_raw_fd(), &address(&path).unwrap().0).unwrap();
    listen(&fd, Backlog::new(0).unwrap()).unwrap();
    let _first = Connection::connect(&path, soon()).unwrap();
    let error = Connection::connect(&path, within(Duration::from_millis(5))).unwrap_err();
    assert!(matches!(error, SocketError::TimedOut { .. }), "{error}");
}

#[test]
fn connect_to_missing_socket_gives_enoent() {
    let directory = tempfile::tempdir().unwrap();
    let error = Connection::connect(&directory.path().join("none.sock"), soon()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOENT));
}

#[test]
fn directories_may_be_deeper_than_an_address_is_long() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(90)).join("e".repeat(90));
    std::fs::create_dir_all(&deep).unwrap();
    let path = deep.join("driver.sock");
    let listener = Listener::bind(&path).unwrap();
    let _client = Connection::connect(&path, soon()).unwrap();
    assert!(listener.accept().unwrap().is_some());
}

#[test]
fn bind_of_too_long_name_is_refused() {
    let path = Path::new("/").join("x".repeat(120));
    assert!(matches!(
        Listener::bind(&path),
        Err(SocketError::PathTooLong { .. })
    ));
}

#[test]
fn activation_with_other_socket_kind_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let stream = std::os::unix::net::UnixListener::bind(directory.path().join("stream.sock")).unwrap();
    assert!(Listener::from_activation(stream.into()).is_err());
    let listener = Listener::bind(&directory.path().join("packets.sock")).unwrap();
    assert!(Listener::from_activation(listener.fd).is_ok());
}

#[test]
fn shutdown_reaches_peer_although_another_handle_is_open() {
    let (left, right) = Connection::pair().unwrap();
    let _other = left.try_clone().unwrap();
    left.shutdown();
    assert!(matches!(
        right.receive(&mut [0; 8], soon()),
        Err(SocketError::Closed)
    ));
}
