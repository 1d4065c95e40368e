use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

const PAST: Deadline = Deadline::at(TimePoint::from_nanos(1));

fn pair_of(size: ChannelSize, wait: WaitSettings) -> (ChannelEnd, ChannelEnd, SharedMemory) {
    let (client, memory) = ChannelEnd::create(size, wait).unwrap();
    let server = ChannelEnd::open(&memory, wait).unwrap();
    (client, server, memory)
}

fn pair(cells: u32) -> (ChannelEnd, ChannelEnd) {
    let (client, server, _) = pair_of(
        ChannelSize {
            outgoing: cells,
            incoming: cells,
        },
        WaitSettings::Sleep,
    );
    (client, server)
}

/// A packet of `length` bytes that differs from its neighbours in every word.
fn content(index: u64, length: usize) -> Vec<u8> {
    let word = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length)
        .map(|at| word.rotate_left(at as u32 * 5) as u8 ^ at as u8)
        .collect()
}

fn assert_received(packet: &Packet, expected: &[u8]) {
    let (bytes, padding) = packet.bytes().split_at(expected.len());
    assert_eq!(bytes, expected);
    assert!(padding.len() < PAYLOAD_BYTES.max(1) || expected.is_empty());
    assert!(padding.iter().all(|&byte| byte == 0));
}

#[test]
fn packets_of_every_length_arrive_whole_and_padded_over_many_laps() {
    let (mut client, mut server) = pair(8);
    let mut packet = server.consumer.new_packet();
    for index in 0..2000 {
        let bytes = content(index, (index as usize * 37) % (8 * PAYLOAD_BYTES + 1));
        client.producer.send(&bytes).unwrap();
        server.consumer.receive(&mut packet, PAST).unwrap();
        assert_received(&packet, &bytes);
        server.producer.send(&bytes).unwrap();
        client.consumer.receive(&mut packet, PAST).unwrap();
        assert_received(&packet, &bytes);
    }
    assert!(!server.consumer.try_receive(&mut packet).unwrap());
}

#[test]
fn full_ring_refuses_and_takes_more_after_a_read() {
    let (mut client, mut server) = pair(4);
    let mut packet = server.consumer.new_packet();
    for index in 0..4 {
        client.producer.send(&[index; 56]).unwrap();
    }
    assert_eq!(client.producer.send(&[9]), Err(SendError::Full));
    assert_eq!(client.producer.room(), Ok(0));
    server.consumer.receive(&mut packet, PAST).unwrap();
    assert_eq!(client.producer.send(&[9; 57]), Err(SendError::Full));
    client.producer.send(&[4; 56]).unwrap();
    for index in 1..5 {
        server.consumer.receive(&mut packet, PAST).unwrap();
        assert_eq!(packet.bytes(), [index; 56]);
    }
}

#[test]
fn room_of_what_was_answered_comes_back_without_the_consumers_word() {
    let (mut client, mut server) = pair(2);
    let mut packet = server.consumer.new_packet();
    client.producer.send(&[0; 2 * PAYLOAD_BYTES]).unwrap();
    let sent = client.producer.sent();
    assert_eq!(client.producer.send(&[1]), Err(SendError::Full));
    // A position that was never sent frees nothing.
    client.producer.release(sent + 1);
    assert_eq!(client.producer.send(&[1]), Err(SendError::Full));
    server.consumer.receive(&mut packet, PAST).unwrap();
    client.producer.release(sent);
    client.producer.send(&[1]).unwrap();
    server.consumer.receive(&mut packet, PAST).unwrap();
    assert_received(&packet, &[1]);
    assert_eq!(client.producer.room(), Ok(2));
}

#[test]
fn packet_longer_than_the_ring_is_refused_with_the_limit() {
    let (mut client, _server) = pair(4);
    let error = client.producer.send(&[0; 4 * PAYLOAD_BYTES + 1]).unwrap_err();
    assert_eq!(
        error,
        SendError::TooLong {
            length: 225,
            capacity: 224
        }
    );
    client.producer.send(&[0; 4 * PAYLOAD_BYTES]).unwrap();
}

#[test]
fn wait_without_packet_times_out_and_can_be_repeated() {
    let (mut client, mut server) = pair(4);
    let mut packet = server.consumer.new_packet();
    let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(2));
    assert_eq!(
        server.consumer.receive(&mut packet, soon),
        Err(ReceiveError::TimedOut)
    );
    assert!(soon.is_past(MonotonicClock.now()));
    client.producer.send(b"late").unwrap();
    server.consumer.receive(&mut packet, PAST).unwrap();
    assert_received(&packet, b"late");
}

#[test]
fn dropped_producer_ends_the_ring_after_its_last_packet() {
    let (mut client, mut server) = pair(4);
    let mut packet = server.consumer.new_packet();
    client.producer.send(b"last").unwrap();
    drop(client);
    assert_eq!(server.producer.send(b"x"), Err(SendError::Closed));
    server.consumer.receive(&mut packet, Deadline::NONE).unwrap();
    assert_received(&packet, b"last");
    assert_eq!(
        server.consumer.receive(&mut packet, Deadline::NONE),
        Err(ReceiveError::Closed)
    );
    assert_eq!(
        server.consumer.try_receive(&mut packet),
        Err(ReceiveError::Closed)
    );
}

#[test]
fn closer_ends_a_sleep_without_deadline_and_the_peers_too() {
    let (mut client, mut server) = pair(4);
    let closer = client.closer.clone();
    let sleeper = |mut consumer: Consumer| {
        std::thread::spawn(move || {
            let mut packet = consumer.new_packet();
            (consumer.receive(&mut packet, Deadline::NONE), consumer)
        })
    };
    let here = sleeper(client.consumer);
    let there = sleeper(server.consumer);
    closer.close();
    let (result, _consumer) = here.join().unwrap();
    assert_eq!(result, Err(ReceiveError::Closed));
    assert_eq!(there.join().unwrap().0, Err(ReceiveError::Closed));
    assert_eq!(client.producer.send(b"x"), Err(SendError::Closed));
    assert_eq!(server.producer.send(b"x"), Err(SendError::Closed));
    closer.close();
}

#[test]
fn end_that_consumes_no_more_answers_what_has_come() {
    let (mut client, mut server) = pair(4);
    client.producer.send(b"request").unwrap();
    server.closer.close_consumed();
    let mut packet = server.consumer.new_packet();
    server.consumer.receive(&mut packet, Deadline::NONE).unwrap();
    assert_eq!(&packet.bytes()[..7], b"request");
    let ended = server.consumer.receive(&mut packet, Deadline::NONE);
    assert_eq!(ended, Err(ReceiveError::Closed));
    server.producer.send(b"result").unwrap();
    client.consumer.receive(&mut packet, Deadline::NONE).unwrap();
    assert_eq!(&packet.bytes()[..6], b"result");
    assert_eq!(client.producer.send(b"x"), Err(SendError::Closed));
}

#[test]
fn end_is_final_on_this_side_though_the_peer_takes_the_closed_word_back() {
    let (mut client, _server, memory) = pair_of(
        ChannelSize {
            outgoing: 4,
            incoming: 4,
        },
        WaitSettings::Sleep,
    );
    client.closer.close();
    Mapping::new(&memory, Access::ReadWrite)
        .unwrap()
        .slice(0x400, 0xC00)
        .unwrap()
        .clear()
        .unwrap();
    let mut packet = client.consumer.new_packet();
    assert_eq!(
        client.consumer.receive(&mut packet, Deadline::NONE),
        Err(ReceiveError::Closed)
    );
    assert_eq!(client.producer.send(b"x"), Err(SendError::Closed));
}

#[test]
fn peer_that_rings_without_end_does_not_outlast_the_deadline_or_the_close() {
    let (mut client, mut server, memory) = pair_of(
        ChannelSize {
            outgoing: 4,
            incoming: 4,
        },
        WaitSettings::Sleep,
    );
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hostile = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
            let words = mapping.slice(2048 + 128, 4).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for value in [0, 1, 2, 3, 0x8000_0001, u32::MAX] {
                    words.write_at(0, &value.to_ne_bytes()).unwrap();
                }
            }
        }
    });
    let mut packet = client.consumer.new_packet();
    let mut suppress = |consumer: &mut Consumer| {
        let mut packet = consumer.new_packet();
        for _ in 0..suppression::SUPPRESS_AFTER {
            server.producer.send(&[1]).unwrap();
            consumer.receive(&mut packet, PAST).unwrap();
        }
        assert_eq!(consumer.sleep_limit(), Some(suppression::SETTLE));
    };
    for _ in 0..20 {
        suppress(&mut client.consumer);
        let soon = Deadline::after(MonotonicClock.now(), Duration::from_micros(300));
        assert_eq!(
            client.consumer.receive(&mut packet, soon),
            Err(ReceiveError::TimedOut)
        );
    }
    suppress(&mut client.consumer);
    let closer = client.closer.clone();
    let sleeper = std::thread::spawn(move || client.consumer.receive(&mut packet, Deadline::NONE));
    closer.close();
    assert_eq!(sleeper.join().unwrap(), Err(ReceiveError::Closed));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    hostile.join().unwrap();
}

#[test]
fn wait_that_begins_with_a_timed_sleep_keeps_its_deadline_and_hears_packets_and_the_end() {
    let expecting = || {
        let size = ChannelSize {
            outgoing: 8,
            incoming: 8,
        };
        let (client, mut server, _) = pair_of(size, WaitSettings::default());
        let is_timed = server.consumer.expect_waits_of(Duration::from_millis(2));
        // Where there is one processor nobody polls, and so no sleep is timed.
        assert_eq!(is_timed, server.consumer.window() > Duration::ZERO);
        let packet = server.consumer.new_packet();
        (client, server, packet)
    };

    let (_client, mut server, mut packet) = expecting();
    for limit in [Duration::from_micros(500), Duration::from_millis(6)] {
        let deadline = Deadline::after(MonotonicClock.now(), limit);
        let result = server.consumer.receive(&mut packet, deadline);
        assert!(matches!(result, Err(ReceiveError::TimedOut)), "{result:?}");
        assert!(deadline.is_past(MonotonicClock.now()));
    }

    let (mut client, mut server, mut packet) = expecting();
    std::thread::scope(|scope| {
        scope.spawn(|| client.producer.send(&content(1, 8)).unwrap());
        server.consumer.receive(&mut packet, Deadline::NONE).unwrap();
        assert_received(&packet, &content(1, 8));
    });

    let (_client, mut server, mut packet) = expecting();
    let closer = server.closer.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| closer.close());
        let result = server.consumer.receive(&mut packet, Deadline::NONE);
        assert!(matches!(result, Err(ReceiveError::Closed)), "{result:?}");
    });
}

#[test]
fn memory_that_is_no_channel_is_refused() {
    let open = |memory: &SharedMemory| ChannelEnd::open(memory, WaitSettings::Sleep).unwrap_err();
    let (_client, _server, memory) = pair_of(
        ChannelSize {
            outgoing: 4,
            incoming: 64,
        },
        WaitSettings::Sleep,
    );
    assert!(matches!(
        open(&SharedMemory::create(100).unwrap()),
        ChannelError::NotAChannel
    ));
    assert!(matches!(
        open(&SharedMemory::create(8192).unwrap()),
        ChannelError::NotAChannel
    ));
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let unsealed = SharedMemory::from_fd(file.into(), 1 << 20, u64::MAX).unwrap();
    assert!(matches!(open(&unsealed), ChannelError::CanShrink));
    let header = memory.read_to_vec(0, 64).unwrap();
    let longer = SharedMemory::create(memory.size() + 4096).unwrap();
    Mapping::new(&longer, Access::ReadWrite)
        .unwrap()
        .as_slice()
        .write_at(0, &header)
        .unwrap();
    assert!(matches!(open(&longer), ChannelError::Size { .. }));
    let size = ChannelSize {
        outgoing: 3,
        incoming: 4,
    };
    let refused = ChannelEnd::create(size, WaitSettings::Sleep).unwrap_err();
    assert!(matches!(refused, ChannelError::CellCount { count: 3 }));
}

/// Sends packets from one thread to another and checks each one.
fn stream(wait: WaitSettings, packets: u64, cells: u32) {
    let (mut client, mut server, _) = pair_of(
        ChannelSize {
            outgoing: cells,
            incoming: 1,
        },
        wait,
    );
    let length = |index: u64| (index.wrapping_mul(7919) % 200) as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for index in 0..packets {
                let bytes = content(index, length(index));
                while client.producer.send(&bytes) == Err(SendError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut packet = server.consumer.new_packet();
        for index in 0..packets {
            server.consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_received(&packet, &content(index, length(index)));
        }
        assert_eq!(
            server.consumer.receive(&mut packet, Deadline::NONE),
            Err(ReceiveError::Closed)
        );
    });
}

/// Sends a packet there and back again and again.
fn ping_pong(wait: WaitSettings, rounds: u64) {
    let (mut client, mut server, _) = pair_of(
        ChannelSize {
            outgoing: 2,
            incoming: 2,
        },
        wait,
    );
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut packet = server.consumer.new_packet();
            while server.consumer.receive(&mut packet, Deadline::NONE).is_ok() {
                server.producer.send(packet.bytes()).unwrap();
            }
        });
        let mut packet = client.consumer.new_packet();
        for index in 0..rounds {
            let bytes = content(index, 56);
            client.producer.send(&bytes).unwrap();
            client.consumer.receive(&mut packet, Deadline::NONE).unwrap();
            assert_received(&packet, &bytes);
        }
        drop(client);
    });
}

#[test]
fn stream_between_sleeping_threads_keeps_order_and_content() {
    stream(WaitSettings::Sleep, 30_000, 16);
}

#[test]
fn stream_between_polling_threads_keeps_order_and_content() {
    stream(WaitSettings::default(), 60_000, 64);
}

#[test]
fn ping_pong_between_sleeping_threads_loses_no_wake_up() {
    ping_pong(WaitSettings::Sleep, 5_000);
}

#[test]
fn ping_pong_with_windows_about_as_long_as_the_gaps_loses_no_wake_up() {
    ping_pong(
        WaitSettings::Fixed {
            window: Duration::from_micros(2),
        },
        5_000,
    );
    ping_pong(WaitSettings::default(), 20_000);
}

/// One step of a session with a peer that writes what it likes.
#[derive(Clone, Debug)]
enum Step {
    Scribble {
        word: usize,
        value: u64,
    },
    ScribbleSequence {
        ring: usize,
        slot: u64,
        position: u64,
        count: u16,
    },
    Send(usize),
    Receive,
    Room,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (any::<usize>(), any::<u64>()).prop_map(|(word, value)| Step::Scribble { word, value }),
        (any::<usize>(), 0_u64..9).prop_map(|(word, value)| Step::Scribble {
            word: word % 512,
            value
        }),
        (
            0_usize..2,
            0_u64..8,
            0_u64..20,
            prop_oneof![0_u16..10, any::<u16>()]
        )
            .prop_map(|(ring, slot, position, count)| Step::ScribbleSequence {
                ring,
                slot,
                position,
                count
            }),
        (0_usize..600).prop_map(Step::Send),
        Just(Step::Receive),
        Just(Step::Room),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn hostile_peer_can_only_poison_or_close(steps in steps()) {
        let (mut client, memory) =
            ChannelEnd::create(ChannelSize { outgoing: 8, incoming: 8 }, WaitSettings::Sleep).unwrap();
        let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
        let write = |offset: u64, value: u64| {
            mapping.as_slice().write_at(offset, &value.to_ne_bytes()).unwrap();
        };
        let mut packet = client.consumer.new_packet();
        let (mut send_poison, mut receive_poison) = (None, None);
        for step in steps {
            match step {
                Step::Scribble { word, value } => write((word % (memory.size() as usize / 8)) as u64 * 8, value),
                Step::ScribbleSequence { ring, slot, position, count } => {
                    let word = layout::sequence_word(position, count);
                    write(4096 * (1 + ring as u64) + slot * 64, word);
                }
                Step::Send(length) => {
                    let result = client.producer.send(&content(1, length));
                    if let Some(poison) = send_poison {
                        prop_assert_eq!(result, Err(poison));
                    } else if let Err(poison @ SendError::Poisoned(_)) = result {
                        send_poison = Some(poison);
                    }
                }
                Step::Receive => {
                    let result = client.consumer.receive(&mut packet, PAST);
                    prop_assert!(packet.bytes().len() <= 8 * PAYLOAD_BYTES);
                    if let Some(poison) = receive_poison {
                        prop_assert_eq!(result, Err(poison));
                    } else if let Err(poison @ ReceiveError::Poisoned(_)) = result {
                        receive_poison = Some(poison);
                    }
                }
                Step::Room => {
                    if let Ok(room) = client.producer.room() {
                        prop_assert!(room <= 8);
                    }
                }
            }
        }
    }
}
