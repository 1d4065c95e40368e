//! Clients that leave behind what takes long to close. Another client is served meanwhile.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use nnhal::wire::handshake::{HandshakeError, Refusal};
use nnhal_os::time::Deadline;
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const DEVICE: &str = "nnhal-reference";

/// For so many seconds closing such a socket waits for its peer to read: for longer than any test.
const LINGER_SECONDS: i32 = 600;

/// What the client leaves unread.
const MESSAGES: usize = 8;

/// Sockets whose closing waits until their peers, which come first, are closed.
fn lingering_sockets(count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let pair = |_| {
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 16]).is_ok() {}
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: LINGER_SECONDS,
        };
        setsockopt(&socket, sockopt::Linger, &linger).unwrap();
        (peer, socket)
    };
    (0..count).map(pair).collect()
}

#[test]
fn what_a_client_leaves_unread_holds_up_nobody_and_counts_until_it_is_closed() {
    let settings = "[workers]\nlinger_timeout_ms = 1\n[clients]\nmax_per_user = 2\n";
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(settings));
    let connect = || RawClient::try_connect(&daemon.runtime_dir(), DEVICE);
    let (peers, sockets): (Vec<_>, Vec<_>) = lingering_sockets(MESSAGES).into_iter().unzip();
    let client = connect().unwrap();
    // So that it takes nothing out of the connection, in which the sockets are then nowhere else.
    let worker = client.welcome.worker_pid;
    kill(Pid::from_raw(worker as i32), Signal::SIGSTOP).unwrap();
    for socket in &sockets {
        let fds = [socket.as_fd()];
        client
            .connection
            .send(b"a message", &fds, Deadline::from_raw(0))
            .unwrap();
    }
    drop((sockets, client));
    wait_until("the worker is given up", || !is_alive(worker));

    let mut other = connect().unwrap();
    other.prepare(add_model(1)).unwrap();
    let refused = connect().expect_err("the first client's place is taken yet");
    assert!(
        matches!(
            &refused,
            HandshakeError::Refused {
                refusal: Refusal::Busy,
                ..
            }
        ),
        "{refused}"
    );

    drop(peers);
    wait_until("the first client's place is free", || connect().is_ok());
}
