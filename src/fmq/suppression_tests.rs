use std::collections::HashSet;
use std::time::Duration;

use super::suppression::{BACKSTOP, SETTLE, SUPPRESS_AFTER, Suppression};
use super::words::{AWAKE, SLEEPING, SUPPRESSED};
use super::*;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

const PAST: Deadline = Deadline::at(TimePoint::from_nanos(1));

const CELLS: u32 = 512;

fn pair_with(wait: WaitSettings) -> (ChannelEnd, ChannelEnd) {
    let size = ChannelSize {
        outgoing: CELLS,
        incoming: 1,
    };
    let (client, memory) = ChannelEnd::create(size, wait).unwrap();
    let server = ChannelEnd::open(&memory, wait).unwrap();
    (client, server)
}

/// Has so many packets sent and received, none of them waited for.
fn stream(client: &mut ChannelEnd, server: &mut ChannelEnd, packets: u64) {
    let mut packet = server.consumer.new_packet();
    for _ in 0..packets {
        client.producer.send(&[1]).unwrap();
        server.consumer.receive(&mut packet, PAST).unwrap();
    }
}

#[test]
fn consumer_suppresses_notification_after_many_packets_until_it_sleeps() {
    let (mut client, mut server) = pair_with(WaitSettings::Sleep);
    let word = |client: &ChannelEnd| client.producer.sleeper_word();
    stream(&mut client, &mut server, SUPPRESS_AFTER - 1);
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, 1);
    assert_eq!(word(&client), SUPPRESSED);
    assert!(!client.producer.notify());
    let mut packet = server.consumer.new_packet();
    assert_eq!(
        server.consumer.receive(&mut packet, PAST),
        Err(ReceiveError::TimedOut)
    );
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, SUPPRESS_AFTER - 1);
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, 1);
    assert_eq!(word(&client), SUPPRESSED);
}

#[test]
fn sleeps_of_a_suppressing_consumer_are_short_until_two_have_lasted() {
    let (client, _server) = pair_with(WaitSettings::Sleep);
    let doorbell = client.producer.doorbell();
    let start = MonotonicClock.now();
    let late = Deadline::after(start, Duration::from_secs(60));
    let mut suppression = Suppression::new();
    assert_eq!(suppression.sleeps(start, late), late);
    suppression.wakes(1);
    suppression.received(SUPPRESS_AFTER, doorbell);
    assert_eq!(client.producer.sleeper_word(), AWAKE);
    suppression.received(1 + SUPPRESS_AFTER, doorbell);
    assert_eq!(client.producer.sleeper_word(), SUPPRESSED);
    for limit in [SETTLE, BACKSTOP] {
        // One that is cut short by its deadline, or by the limit of another consumer, settles nothing.
        assert_eq!(suppression.sleeps(start, PAST), PAST);
        suppression.has_settled(PAST);
        suppression.wakes(300);
        let until = suppression.sleeps(start, Deadline::NONE);
        assert_eq!(until, Deadline::after(start, limit));
        suppression.has_settled(until);
    }
    assert_eq!(suppression.sleeps(start, Deadline::NONE), Deadline::NONE);
    suppression.has_settled(late);
    assert_eq!(suppression.sleeps(start, late), late);
}

#[test]
fn short_sleep_does_not_end_the_wait_before_its_deadline() {
    let (mut client, mut server) = pair_with(WaitSettings::Sleep);
    stream(&mut client, &mut server, SUPPRESS_AFTER);
    assert_eq!(client.producer.sleeper_word(), SUPPRESSED);
    let mut packet = server.consumer.new_packet();
    let deadline = Deadline::after(MonotonicClock.now(), 4 * SETTLE);
    assert_eq!(
        server.consumer.receive(&mut packet, deadline),
        Err(ReceiveError::TimedOut)
    );
    assert!(deadline.is_past(MonotonicClock.now()));
}

#[test]
fn packet_at_the_last_look_before_a_sleep_leaves_the_consumer_able_to_suppress_notification() {
    let (mut client, mut server) = pair_with(WaitSettings::Sleep);
    stream(&mut client, &mut server, SUPPRESS_AFTER);
    let mut packet = server.consumer.new_packet();
    let send = |producer: &mut Producer| {
        producer.send(&[1]).unwrap();
        PAST
    };
    server
        .consumer
        .receive_by(&mut packet, || send(&mut client.producer))
        .unwrap();
    assert_eq!(client.producer.sleeper_word(), AWAKE);
    // It woke nobody.
    assert_eq!(server.consumer.wake_nanos(), 0);
    stream(&mut client, &mut server, SUPPRESS_AFTER);
    assert_eq!(client.producer.sleeper_word(), SUPPRESSED);
}

/// Calls `send` when the consumer has said that it sleeps, for a minute at most, and returns once it has the
/// packet. It may have found that by its last look, without a sleep.
fn send_to_sleeper(client: &mut ChannelEnd, server: &mut ChannelEnd, send: impl FnOnce(&mut Producer)) {
    let mut packet = server.consumer.new_packet();
    let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| server.consumer.receive(&mut packet, deadline));
        while client.producer.sleeper_word() != SLEEPING {
            std::thread::yield_now();
        }
        send(&mut client.producer);
        receiver.join().unwrap().unwrap();
    });
    assert!(!deadline.is_past(MonotonicClock.now()));
}

/// Of tries each of which works out only if the other thread is in time.
const TRIES: usize = 50;

#[test]
fn short_sleep_finds_a_packet_for_which_nobody_rings() {
    let is_found_by_short_sleep = || {
        let (mut client, mut server) = pair_with(WaitSettings::Sleep);
        stream(&mut client, &mut server, SUPPRESS_AFTER);
        assert_eq!(server.consumer.sleep_limit(), Some(SETTLE));
        let mut is_unaided = true;
        send_to_sleeper(&mut client, &mut server, |producer| {
            producer.push(&[1]).unwrap();
            // If this thread was held up before, the consumer has looked in vain and must be woken.
            let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(1));
            while is_unaided && !is_read(producer) {
                is_unaided = !deadline.is_past(MonotonicClock.now());
                std::thread::yield_now();
            }
            producer.notify();
        });
        if !is_unaided || server.consumer.sleep_limit() == Some(SETTLE) {
            return false;
        }
        // The packet was late by the short sleep, but that says nothing of waking up.
        assert_eq!(server.consumer.wake_nanos(), 0);
        true
    };
    assert!((0..TRIES).any(|_| is_found_by_short_sleep()));
}

#[test]
fn suppressing_consumer_that_falls_asleep_loses_no_wake_up() {
    const SERIES: u32 = 800;
    let window = Duration::from_micros(50);
    let (mut client, mut server) = pair_with(WaitSettings::Fixed { window });
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut packet = server.consumer.new_packet();
            let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
            let (mut received, mut suppressed) = (0_u64, 0_u32);
            loop {
                match server.consumer.receive(&mut packet, deadline) {
                    Ok(()) => received += 1,
                    Err(ReceiveError::Closed) => return (received, suppressed),
                    Err(error) => panic!("after {received} packets: {error}"),
                }
                let is_single_next = received % (SUPPRESS_AFTER + 1) == SUPPRESS_AFTER;
                suppressed += u32::from(is_single_next && server.consumer.sleeper_word() == SUPPRESSED);
            }
        });
        for number in 0..SERIES {
            // Enough of them after the last sleep for the consumer to suppress notification behind the last.
            for _ in 0..SUPPRESS_AFTER {
                client.producer.push(&[1]).unwrap();
            }
            client.producer.notify();
            wait_until_read(&mut client.producer);
            // Closer and closer to the moment at which the consumer falls asleep, and past it.
            let sends = Deadline::after(MonotonicClock.now(), window * (number + SERIES / 2) / SERIES);
            while !sends.is_past(MonotonicClock.now()) {
                std::hint::spin_loop();
            }
            client.producer.send(&[1]).unwrap();
            wait_until_read(&mut client.producer);
        }
        drop(client);
        let (received, suppressed) = receiver.join().unwrap();
        assert_eq!(received, u64::from(SERIES) * (SUPPRESS_AFTER + 1));
        // It is not where this thread was held up between the packets of a series, so that the consumer slept
        // there.
        assert!(
            suppressed > SERIES / 2,
            "suppressed behind {suppressed} series only"
        );
    });
}

/// Waits until the ring is empty; the consumer's own deadline bounds it.
fn wait_until_read(producer: &mut Producer) {
    while !is_read(producer) && !producer.is_closed() {
        std::hint::spin_loop();
    }
}

fn is_read(producer: &mut Producer) -> bool {
    producer.room().unwrap() == CELLS as usize
}

/// Every interleaving of a producer of two packets and a consumer that suppresses notification whenever it is
/// awake, on processors that hold stores back in buffers (x86's model of memory). Such a consumer has as many
/// short sleeps as `shorts` has entries; each says whether that sleep lasts for longer than any store is held
/// back.
struct Model {
    shorts: &'static [bool],
    seen: HashSet<State>,
    is_lost: bool,
}

const PACKETS: u8 = 2;

/// What is stored in memory that both see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Store {
    Cell(u8),
    Word(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sending {
    Store,
    Look,
    LookBehindFence,
    Wake,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Receiving {
    Awake,
    Announce,
    Fence,
    Look,
    Wait,
    Dozing,
    Asleep,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cells: u8,
    word: u32,
    sent: u8,
    received: u8,
    /// The short sleeps to come.
    shorts: &'static [bool],
    /// How many of the producer's stores are older than the short sleep.
    settling: usize,
    sending: Sending,
    receiving: Receiving,
    producer_buffer: Vec<Store>,
    consumer_buffer: Vec<Store>,
}

impl State {
    fn begin() -> State {
        State {
            cells: 0,
            word: AWAKE,
            sent: 0,
            received: 0,
            shorts: &[],
            settling: 0,
            sending: Sending::Store,
            receiving: Receiving::Awake,
            producer_buffer: Vec::new(),
            consumer_buffer: Vec::new(),
        }
    }

    fn commit(&mut self, store: Store) {
        match store {
            Store::Cell(cells) => self.cells = cells,
            Store::Word(word) => self.word = word,
        }
    }

    fn empty_producer_buffer(&mut self) {
        self.settling = 0;
        for store in std::mem::take(&mut self.producer_buffer) {
            self.commit(store);
        }
    }

    fn empty_consumer_buffer(&mut self) {
        for store in std::mem::take(&mut self.consumer_buffer) {
            self.commit(store);
        }
    }

    /// The word as a side sees it, which has the newest of its own stores.
    fn word_behind(&self, buffer: &[Store]) -> u32 {
        let own = buffer.iter().rev().find_map(|store| match store {
            Store::Word(word) => Some(*word),
            Store::Cell(_) => None,
        });
        own.unwrap_or(self.word)
    }

    fn send(mut self) -> Option<State> {
        self.sending = match self.sending {
            Sending::Store => {
                self.sent += 1;
                self.producer_buffer.push(Store::Cell(self.sent));
                Sending::Look
            }
            Sending::Look if self.word_behind(&self.producer_buffer) == SUPPRESSED => self.after_packet(),
            Sending::Look => {
                self.empty_producer_buffer();
                Sending::LookBehindFence
            }
            Sending::LookBehindFence if self.word == SLEEPING => {
                self.producer_buffer.push(Store::Word(AWAKE));
                Sending::Wake
            }
            Sending::LookBehindFence => self.after_packet(),
            Sending::Wake => {
                self.empty_producer_buffer();
                if matches!(self.receiving, Receiving::Dozing | Receiving::Asleep) {
                    self.receiving = Receiving::Announce;
                }
                self.after_packet()
            }
            Sending::Done => return None,
        };
        Some(self)
    }

    fn after_packet(&self) -> Sending {
        if self.sent == PACKETS {
            Sending::Done
        } else {
            Sending::Store
        }
    }

    fn receive(mut self, shorts: &'static [bool]) -> Option<State> {
        self.receiving = match self.receiving {
            Receiving::Awake => {
                self.consumer_buffer.push(Store::Word(AWAKE));
                self.consumer_buffer.push(Store::Word(SUPPRESSED));
                self.shorts = shorts;
                Receiving::Announce
            }
            Receiving::Announce => {
                self.consumer_buffer.push(Store::Word(SLEEPING));
                Receiving::Fence
            }
            Receiving::Fence => {
                self.empty_consumer_buffer();
                Receiving::Look
            }
            Receiving::Look if self.cells > self.received => {
                self.received = self.cells;
                if self.received == PACKETS {
                    Receiving::Done
                } else {
                    Receiving::Awake
                }
            }
            Receiving::Look => Receiving::Wait,
            Receiving::Wait if self.word != SLEEPING => Receiving::Announce,
            Receiving::Wait if let Some(settles) = self.shorts.first() => {
                self.settling = if *settles { self.producer_buffer.len() } else { 0 };
                Receiving::Dozing
            }
            Receiving::Wait => Receiving::Asleep,
            Receiving::Dozing => {
                for _ in 0..self.settling {
                    self = self.drain(true)?;
                }
                self.shorts = &self.shorts[1..];
                Receiving::Announce
            }
            Receiving::Asleep | Receiving::Done => return None,
        };
        Some(self)
    }

    /// A buffer's oldest store reaches memory.
    fn drain(mut self, of_producer: bool) -> Option<State> {
        let buffer = if of_producer {
            &mut self.producer_buffer
        } else {
            &mut self.consumer_buffer
        };
        let oldest = (!buffer.is_empty()).then(|| buffer.remove(0))?;
        if of_producer {
            self.settling = self.settling.saturating_sub(1);
        }
        self.commit(oldest);
        Some(self)
    }
}

impl Model {
    fn loses_a_wake_up(shorts: &'static [bool]) -> bool {
        let mut model = Model {
            shorts,
            seen: HashSet::new(),
            is_lost: false,
        };
        let mut open = vec![State::begin()];
        while let Some(state) = open.pop() {
            if model.seen.insert(state.clone()) {
                open.extend(model.follow(state));
            }
        }
        assert!(model.seen.len() > 100, "only {} states", model.seen.len());
        model.is_lost
    }

    fn follow(&mut self, state: State) -> impl Iterator<Item = State> + use<> {
        let next = [
            state.clone().send(),
            state.clone().receive(self.shorts),
            state.clone().drain(true),
            state.clone().drain(false),
        ];
        if next.iter().all(Option::is_none) {
            self.is_lost |= state.receiving != Receiving::Done;
        }
        next.into_iter().flatten()
    }
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    assert!(!Model::loses_a_wake_up(&[true, true]));
}

#[test]
fn second_short_sleep_saves_what_the_first_was_too_short_for() {
    assert!(Model::loses_a_wake_up(&[false]));
    assert!(!Model::loses_a_wake_up(&[false, true]));
}

#[test]
fn long_sleep_of_a_suppressing_consumer_would_lose_one() {
    assert!(Model::loses_a_wake_up(&[]));
}
