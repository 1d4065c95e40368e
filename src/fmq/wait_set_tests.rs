use std::sync::Arc;
use std::time::Duration;

use super::*;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

/// Other rings, and a waker.
struct Neighbours {
    ends: Vec<ChannelEnd>,
    waker: Arc<Waker>,
}

impl WaitSet for Neighbours {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.ends.iter().map(|end| &end.consumer)
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.ends.iter_mut().map(|end| &mut end.consumer)
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.waker)
    }
}

fn pair(wait: WaitSettings) -> (ChannelEnd, ChannelEnd) {
    let size = ChannelSize {
        outgoing: 8,
        incoming: 8,
    };
    let (client, memory) = ChannelEnd::create(size, wait).unwrap();
    (client, ChannelEnd::open(&memory, wait).unwrap())
}

/// As many rings as a thread can wait for, the first of which it waits on: the ends that send, and those that
/// receive.
fn street(wait: WaitSettings) -> (Vec<ChannelEnd>, ChannelEnd, Neighbours) {
    let (clients, mut ends): (Vec<_>, Vec<_>) = (0..=MAX_WAIT_SET).map(|_| pair(wait)).unzip();
    let first = ends.remove(0);
    let waker = Arc::new(first.consumer.new_waker());
    (clients, first, Neighbours { ends, waker })
}

fn expect_elsewhere(first: &mut ChannelEnd, neighbours: &mut Neighbours, deadline: Deadline) {
    let mut packet = first.consumer.new_packet();
    let came = first
        .consumer
        .receive_in(neighbours, &mut packet, |_| Some(deadline));
    assert_eq!(came, Ok(Came::Elsewhere));
}

#[test]
fn every_packet_on_any_ring_ends_the_wait() {
    for wait in [WaitSettings::Sleep, WaitSettings::default()] {
        let (mut clients, mut first, mut neighbours) = street(wait);
        let count = clients.len();
        let sender = std::thread::spawn(move || {
            for number in 0..3000 {
                clients[number * 7 % count].producer.send(&[1]).unwrap();
                let mut packet = clients[0].consumer.new_packet();
                clients[0].consumer.receive(&mut packet, Deadline::NONE).unwrap();
            }
            clients
        });
        let mut packet = first.consumer.new_packet();
        for number in 0..3000 {
            let came = first
                .consumer
                .receive_in(&mut neighbours, &mut packet, |_| Some(Deadline::NONE));
            match number * 7 % count {
                0 => assert_eq!(came, Ok(Came::Here)),
                at => {
                    assert_eq!(came, Ok(Came::Elsewhere));
                    assert_eq!(
                        neighbours.ends[at - 1].consumer.try_receive(&mut packet),
                        Ok(true)
                    );
                }
            }
            first.producer.send(&[1]).unwrap();
        }
        drop(sender.join().unwrap());
    }
}

#[test]
fn wait_with_a_wait_set_keeps_its_deadline() {
    let (_clients, mut first, mut neighbours) = street(WaitSettings::Sleep);
    let mut packet = first.consumer.new_packet();
    let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(2));
    let outcome = first
        .consumer
        .receive_in(&mut neighbours, &mut packet, |_| Some(soon));
    assert_eq!(outcome, Err(ReceiveError::TimedOut));
    assert!(soon.is_past(MonotonicClock.now()));
    let past = Deadline::at(TimePoint::from_nanos(1));
    let outcome = first
        .consumer
        .receive_in(&mut neighbours, &mut packet, |_| Some(past));
    assert_eq!(outcome, Err(ReceiveError::TimedOut));
}

#[test]
fn waker_ends_waits_until_it_is_cleared() {
    let (_clients, mut first, mut neighbours) = street(WaitSettings::Sleep);
    let waker = Arc::clone(&neighbours.waker);
    let thread = std::thread::spawn(move || waker.wake());
    expect_elsewhere(&mut first, &mut neighbours, Deadline::NONE);
    thread.join().unwrap();
    expect_elsewhere(&mut first, &mut neighbours, Deadline::NONE);
    assert!(neighbours.waker.clear());
    assert!(!neighbours.waker.clear());
}

#[test]
fn end_of_any_ring_ends_the_wait_and_who_closes_does_not_wait_for_long() {
    let (clients, mut first, mut neighbours) = street(WaitSettings::Sleep);
    let closer = neighbours.ends[40].closer.clone();
    let watcher = std::thread::spawn(move || closer.close());
    expect_elsewhere(&mut first, &mut neighbours, Deadline::NONE);
    watcher.join().unwrap();
    let mut packet = first.consumer.new_packet();
    let gone = neighbours.ends.remove(40);
    assert!(gone.closer.is_closed());
    // A peer that goes.
    let sender = std::thread::spawn(move || drop(clients));
    let came = first
        .consumer
        .receive_in(&mut neighbours, &mut packet, |_| Some(Deadline::NONE));
    assert!(
        matches!(came, Ok(Came::Elsewhere) | Err(ReceiveError::Closed)),
        "{came:?}"
    );
    sender.join().unwrap();
}

#[test]
fn wait_without_a_deadline_is_over_with_its_first_polls() {
    for wait in [WaitSettings::Sleep, WaitSettings::default()] {
        let (mut clients, mut first, mut neighbours) = street(wait);
        let mut packet = first.consumer.new_packet();
        let mut receive =
            |neighbours: &mut Neighbours| first.consumer.receive_in(neighbours, &mut packet, |_| None);
        assert_eq!(receive(&mut neighbours), Err(ReceiveError::TimedOut));
        clients[3].producer.send(&[1]).unwrap();
        assert_eq!(receive(&mut neighbours), Ok(Came::Elsewhere));
        let mut other = neighbours.ends[2].consumer.new_packet();
        assert_eq!(neighbours.ends[2].consumer.try_receive(&mut other), Ok(true));
        drop(clients.remove(0));
        assert_eq!(receive(&mut neighbours), Err(ReceiveError::Closed));
    }
}
