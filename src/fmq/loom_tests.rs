//! Every interleaving of small sessions with at most three preemptions. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release -p nnhal --lib fmq:: --target-dir target/loom`.
//!
//! Sessions are too short for a consumer to suppress notification as it does elsewhere; those that are about
//! that have one that is behind its first packet. What time is to such a consumer, loom's model of a ring has
//! in another form (`memory_loom.rs`); the model in `suppression_tests.rs` has store buffers and time in
//! their place.
//!
//! A lost wake-up shows as a deadlock, which loom reports; a cell seen before its content, as a wrong value.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::closer::ChannelCloser;
use super::memory::RingMemory;
use super::parked::Parked;
use super::suppression::{LIMITS, Suppression};
use super::*;
use nnhal_os::time::Deadline;

fn ring(cells: u32) -> (Producer, Consumer, ChannelCloser) {
    let (ring, back) = (Arc::new(RingMemory::new(cells)), Arc::new(RingMemory::new(1)));
    let (here, there) = (Arc::new(Parked::new()), Arc::new(Parked::new()));
    let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(&here), WaitSettings::Sleep);
    let closer = ChannelCloser::new(back, Arc::clone(&ring), here);
    (Producer::new(ring, there), consumer, closer)
}

fn words(packet: &Packet) -> Vec<u64> {
    bytemuck::cast_slice(packet.bytes()).to_vec()
}

/// A packet of so many cells whose first words count up from `first`.
fn packet_of(first: u64, cells: usize) -> Vec<u8> {
    (first..)
        .take(cells)
        .flat_map(|word| {
            let mut cell = [0; PAYLOAD_BYTES];
            cell[..8].copy_from_slice(&word.to_ne_bytes());
            cell
        })
        .collect()
}

/// Has it suppress notification behind each packet that it has not slept for, and sleep shortly as often as
/// `limits` says before it sleeps for long.
fn suppress_notification(consumer: &mut Consumer, limits: &'static [Duration]) {
    consumer.set_suppression(Suppression::after(1, limits));
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn sleeping_consumer_misses_no_packet_and_no_end() {
    model(|| {
        let (mut producer, mut consumer, _closer) = ring(2);
        let sender = thread::spawn(move || {
            producer.send(&packet_of(1, 1)).unwrap();
            producer.send(&packet_of(2, 1)).unwrap();
        });
        let mut packet = consumer.new_packet();
        for expected in [1, 2] {
            consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_eq!(words(&packet), [expected]);
        }
        assert_eq!(
            consumer.receive(&mut packet, Deadline::NONE),
            Err(ReceiveError::Closed)
        );
        sender.join().unwrap();
    });
}

#[test]
fn packet_of_several_cells_is_seen_whole() {
    model(|| {
        let (mut producer, mut consumer, _closer) = ring(4);
        let sender = thread::spawn(move || {
            producer.send(&packet_of(1, 3)).unwrap();
            producer
        });
        let mut packet = consumer.new_packet();
        consumer.receive(&mut packet, Deadline::NONE).unwrap();
        assert_eq!(words(&packet), [1, 2, 3]);
        drop(sender.join().unwrap());
    });
}

#[test]
fn cell_is_not_used_again_before_it_was_read() {
    model(|| {
        let (mut producer, mut consumer, _closer) = ring(1);
        let sender = thread::spawn(move || {
            for word in [1, 2] {
                while producer.send(&packet_of(word, 1)) == Err(SendError::Full) {
                    thread::yield_now();
                }
            }
        });
        let mut packet = consumer.new_packet();
        for expected in [1, 2] {
            consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_eq!(words(&packet), [expected]);
        }
        sender.join().unwrap();
    });
}

/// Two packets, `between` which the producer may look for a sleeper, and one notification behind both.
fn expect_series_to_arrive(between: fn(&Producer)) {
    model(move || {
        let (mut producer, mut consumer, _closer) = ring(2);
        let sender = thread::spawn(move || {
            producer.push(&packet_of(1, 1)).unwrap();
            between(&producer);
            producer.push(&packet_of(2, 1)).unwrap();
            producer.notify();
            producer
        });
        let mut packet = consumer.new_packet();
        for expected in [1, 2] {
            consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_eq!(words(&packet), [expected]);
        }
        drop(sender.join().unwrap());
    });
}

#[test]
fn pushed_packets_are_announced_by_one_notify() {
    expect_series_to_arrive(|_| {});
}

#[test]
fn series_of_packets_needs_a_fence_behind_the_last_alone() {
    expect_series_to_arrive(|producer| {
        producer.notify_sleeper();
    });
}

#[test]
fn closer_in_another_thread_ends_a_sleep() {
    model(|| {
        let (_producer, mut consumer, closer) = ring(1);
        let watcher = thread::spawn(move || closer.close());
        let mut packet = consumer.new_packet();
        assert_eq!(
            consumer.receive(&mut packet, Deadline::NONE),
            Err(ReceiveError::Closed)
        );
        watcher.join().unwrap();
    });
}

#[test]
fn closer_ends_a_sleep_though_the_peer_puts_the_doorbell_back() {
    model(|| {
        let (producer, mut consumer, closer) = ring(1);
        let hostile = closer.clone();
        let peer = thread::spawn(move || {
            hostile.tamper();
            producer
        });
        let watcher = thread::spawn(move || closer.close());
        let mut packet = consumer.new_packet();
        assert_eq!(
            consumer.receive(&mut packet, Deadline::NONE),
            Err(ReceiveError::Closed)
        );
        watcher.join().unwrap();
        drop(peer.join().unwrap());
    });
}

/// Two packets to a consumer that suppresses notification behind the first; `prepare` is called before each
/// wait. The producer sends nothing more and stays, so that nothing but the packets' own wake-ups ends the
/// waits.
fn expect_suppressing_consumer_to_miss_no_packet(limits: &'static [Duration], prepare: fn(&mut Consumer)) {
    model(move || {
        let (mut producer, mut consumer, _closer) = ring(2);
        suppress_notification(&mut consumer, limits);
        let sender = thread::spawn(move || {
            producer.send(&packet_of(1, 1)).unwrap();
            producer.send(&packet_of(2, 1)).unwrap();
            producer
        });
        let mut packet = consumer.new_packet();
        for expected in [1, 2] {
            prepare(&mut consumer);
            consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_eq!(words(&packet), [expected]);
        }
        drop(sender.join().unwrap());
    });
}

#[test]
fn suppressing_consumer_misses_no_packet() {
    expect_suppressing_consumer_to_miss_no_packet(&LIMITS, |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn suppressing_consumer_that_slept_for_long_at_once_would_miss_one() {
    expect_suppressing_consumer_to_miss_no_packet(&[], |_| {});
}

#[test]
fn consumer_with_a_timed_sleep_misses_no_packet() {
    expect_suppressing_consumer_to_miss_no_packet(&LIMITS, Consumer::expect_timed_sleep);
}

/// A packet behind which the consumer suppresses notification, and the end.
fn expect_suppressing_consumer_to_see_the_end(prepare: fn(&mut Consumer)) {
    model(move || {
        let (mut producer, mut consumer, _closer) = ring(1);
        suppress_notification(&mut consumer, &LIMITS);
        let sender = thread::spawn(move || producer.send(&packet_of(1, 1)).unwrap());
        let mut packet = consumer.new_packet();
        prepare(&mut consumer);
        consumer.receive(&mut packet, Deadline::NONE).unwrap();
        assert_eq!(words(&packet), [1]);
        prepare(&mut consumer);
        assert_eq!(
            consumer.receive(&mut packet, Deadline::NONE),
            Err(ReceiveError::Closed)
        );
        sender.join().unwrap();
    });
}

#[test]
fn suppressing_consumer_misses_no_end() {
    expect_suppressing_consumer_to_see_the_end(|_| {});
}

#[test]
fn consumer_with_a_timed_sleep_misses_no_end() {
    expect_suppressing_consumer_to_see_the_end(Consumer::expect_timed_sleep);
}

/// Another ring beside the one that is waited for, and a waker.
struct Neighbours {
    consumers: Vec<Consumer>,
    waker: Arc<Waker>,
}

impl Neighbours {
    fn of(consumer: &Consumer, consumers: Vec<Consumer>) -> Neighbours {
        Neighbours {
            consumers,
            waker: Arc::new(consumer.new_waker()),
        }
    }
}

impl WaitSet for Neighbours {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.consumers.iter()
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.consumers.iter_mut()
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.waker)
    }
}

/// Two packets to the neighbour of a ring on which nothing comes; both suppress notification as `limits` says
/// behind what they have received.
fn expect_no_packet_of_a_neighbour_to_be_missed(limits: &'static [Duration]) {
    model(move || {
        let (_quiet, mut consumer, _closer) = ring(1);
        let (mut producer, mut neighbour, _closer) = ring(2);
        suppress_notification(&mut consumer, limits);
        suppress_notification(&mut neighbour, limits);
        let sender = thread::spawn(move || {
            producer.send(&packet_of(1, 1)).unwrap();
            producer.send(&packet_of(2, 1)).unwrap();
            producer
        });
        let mut wait_set = Neighbours::of(&consumer, vec![neighbour]);
        let mut packet = consumer.new_packet();
        for expected in [1, 2] {
            let came = consumer.receive_in(&mut wait_set, &mut packet, |_| Some(Deadline::NONE));
            assert_eq!(came, Ok(Came::Elsewhere));
            assert_eq!(wait_set.consumers[0].try_receive(&mut packet), Ok(true));
            assert_eq!(words(&packet), [expected]);
        }
        drop(sender.join().unwrap());
    });
}

#[test]
fn packets_of_a_neighbour_end_the_sleep() {
    expect_no_packet_of_a_neighbour_to_be_missed(&LIMITS);
}

#[test]
#[should_panic(expected = "maximum number of branches")]
fn suppressing_neighbour_that_slept_for_long_at_once_would_miss_one() {
    expect_no_packet_of_a_neighbour_to_be_missed(&[]);
}

#[test]
fn end_of_a_neighbour_ends_the_sleep() {
    model(|| {
        let (_quiet, mut consumer, _closer) = ring(1);
        let (_peer, neighbour, closer) = ring(1);
        let watcher = thread::spawn(move || closer.close());
        let mut wait_set = Neighbours::of(&consumer, vec![neighbour]);
        let mut packet = consumer.new_packet();
        let came = consumer.receive_in(&mut wait_set, &mut packet, |_| Some(Deadline::NONE));
        assert_eq!(came, Ok(Came::Elsewhere));
        assert_eq!(
            wait_set.consumers[0].try_receive(&mut packet),
            Err(ReceiveError::Closed)
        );
        watcher.join().unwrap();
    });
}

/// A waker ends the wait of a consumer, be there other rings or none.
fn expect_waker_to_end_the_sleep(neighbours: usize) {
    model(move || {
        let (_quiet, mut consumer, _closer) = ring(1);
        let (others, consumers): (Vec<_>, Vec<_>) = (0..neighbours)
            .map(|_| ring(1))
            .map(|(producer, consumer, closer)| ((producer, closer), consumer))
            .unzip();
        let mut wait_set = Neighbours::of(&consumer, consumers);
        let waker = Arc::clone(&wait_set.waker);
        let thread = thread::spawn(move || waker.wake());
        let mut packet = consumer.new_packet();
        let came = consumer.receive_in(&mut wait_set, &mut packet, |_| Some(Deadline::NONE));
        assert_eq!(came, Ok(Came::Elsewhere));
        assert!(wait_set.waker.clear());
        thread.join().unwrap();
        drop(others);
    });
}

#[test]
fn waker_ends_the_sleep() {
    expect_waker_to_end_the_sleep(0);
}

#[test]
fn waker_ends_the_sleep_on_several_rings() {
    expect_waker_to_end_the_sleep(1);
}

#[test]
fn packet_on_the_ring_itself_is_received_beside_others() {
    model(|| {
        let (mut producer, mut consumer, _closer) = ring(1);
        let (_quiet, neighbour, _closer) = ring(1);
        let sender = thread::spawn(move || {
            producer.send(&packet_of(1, 1)).unwrap();
            producer
        });
        let mut wait_set = Neighbours::of(&consumer, vec![neighbour]);
        let mut packet = consumer.new_packet();
        let came = consumer.receive_in(&mut wait_set, &mut packet, |_| Some(Deadline::NONE));
        assert_eq!((came, words(&packet)), (Ok(Came::Here), vec![1]));
        drop(sender.join().unwrap());
    });
}
