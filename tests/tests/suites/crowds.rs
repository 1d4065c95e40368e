//! More of everything than there should be: clients, and descriptors that nobody asked for. Threats T10 and
//! T11.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nnhal::wire::{Call, directory};
use nnhal_client::{Clock, Deadline, DevicesOptions, MonotonicClock};
use nnhal_os::socket::{Connection, MAX_FDS};
use nnhal_tests::{RawClient, TIMEOUT, fds_of, private_bytes};

use crate::common::{Bystander, DEVICE, Place, Stage, sized};

/// Clients at once in the short form.
const CLIENTS: usize = 40;

/// Threads that connect.
const CONNECTING: usize = 8;

/// Descriptors in a message, the most that the kernel takes.
const IN_A_MESSAGE: usize = 253;

/// Descriptors of the short form's flood.
const DESCRIPTORS: usize = 1_500;

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// Connects so many clients at once. Returns those that are served and what the others were told.
fn connect(place: &Place, clients: usize) -> (Vec<Bystander>, Vec<String>) {
    let (served, refused) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CONNECTING {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < clients {
                    let devices = DevicesOptions::new()
                        .runtime_dir(place.runtime_dir())
                        .connect_timeout(TIMEOUT)
                        .open()
                        .unwrap();
                    match devices.device(DEVICE) {
                        Ok(device) => served.lock().unwrap().push(Bystander::on(device)),
                        Err(error) => refused.lock().unwrap().push(error.to_string()),
                    }
                }
            });
        }
    });
    (served.into_inner().unwrap(), refused.into_inner().unwrap())
}

#[test]
fn crowd_of_clients_is_served_or_told_and_goes_without_a_trace() {
    let clients = sized("NNHAL_TEST_CLIENTS", CLIENTS);
    let place = Place::new();
    let quota = clients + 8;
    let mut options = place.options();
    options.settings = format!("[clients]\nmax = {quota}\nmax_per_user = {quota}\nreserved = 0\n");
    let mut stage = Stage::start(&place, &options);
    let pid = stage.daemon.pid();
    let before = (private_bytes(pid), fds_of(pid));
    let (mut served, refused) = connect(&place, clients);
    // All of them at once have what they compute.
    served.iter_mut().for_each(Bystander::computes);
    stage.bystander.computes();
    let each = |now: u64, before: u64| now.saturating_sub(before) / served.len().max(1) as u64;
    println!(
        "{clients} clients at once: {} served, {} told why not; of the supervisor {} bytes and {} descriptors for \
         each, of a worker {} bytes",
        served.len(),
        refused.len(),
        each(private_bytes(pid), before.0),
        each(fds_of(pid) as u64, before.1 as u64),
        served
            .first()
            .map_or(0, |client| private_bytes(client.device.worker().pid)),
    );
    for text in &refused {
        assert!(text.contains("the driver"), "{text}");
    }
    assert!(
        refused.is_empty() || clients > CLIENTS,
        "{} clients find no place: {:?}",
        refused.len(),
        refused.first()
    );
    drop(served);
    stage.expect_as_before("a crowd that is gone");
}

#[test]
fn crowd_beyond_its_quota_is_told_and_those_within_go_on() {
    const QUOTA: usize = 6;
    let clients = sized("NNHAL_TEST_CLIENTS", CLIENTS);
    let place = Place::new();
    let mut options = place.options();
    options.settings = format!("[clients]\nmax_per_user = {QUOTA}\n");
    let mut stage = Stage::start(&place, &options);
    let (mut served, refused) = connect(&place, clients);
    // The bystander has one of the places.
    assert_eq!((served.len(), refused.len()), (QUOTA - 1, clients - QUOTA + 1));
    for text in &refused {
        assert!(text.contains("max_per_user"), "{text}");
    }
    served.iter_mut().for_each(Bystander::computes);
    drop(served);
    stage.expect_as_before("a crowd that was turned away");
}

/// Sends one descriptor as often as a message takes it, whatever the receiver takes. Returns whether it went.
fn flood(connection: &Connection, fd: BorrowedFd<'_>) -> bool {
    let fds = [fd.as_raw_fd(); IN_A_MESSAGE];
    sendmsg::<()>(
        connection.as_fd().as_raw_fd(),
        &[IoSlice::new(&[0; 8])],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .is_ok()
}

#[test]
fn flood_of_descriptors_is_closed_and_its_client_dropped() {
    let total = sized("NNHAL_TEST_DESCRIPTORS", DESCRIPTORS);
    let place = Place::new();
    let mut stage = Stage::new(&place);
    let event = nnhal_os::eventfd::create().unwrap();
    let (mut offered, mut refused, mut clients) = (0, 0, 0);
    while offered < total {
        clients += 1;
        // What the kernel does not pass on, as the receiver takes none, never reaches the driver.
        let mut count = |number: usize, is_sent: bool| {
            offered += number;
            refused += if is_sent { 0 } else { number };
            is_sent
        };
        if clients % 2 == 0 {
            // To whoever takes connections, before anybody has said hello.
            let path = directory::socket_path(&place.runtime_dir(), DEVICE);
            let connection = Connection::connect(&path, default_deadline()).unwrap();
            while count(IN_A_MESSAGE, flood(&connection, event.as_fd())) {}
        } else {
            // With a call that takes none, then until the driver has had enough.
            let mut client = RawClient::connect(&place.runtime_dir(), DEVICE);
            let fds = [event.as_fd(); MAX_FDS];
            count(MAX_FDS, client.send(Call::GetStatus, &fds).is_ok());
            while count(IN_A_MESSAGE, flood(&client.connection, event.as_fd())) {}
            client.drain();
        }
        stage.bystander.computes();
    }
    stage.expect_as_before("a flood of descriptors");
    println!(
        "{offered} descriptors of {clients} clients: the kernel refused {refused}, all others are closed"
    );
}
