use std::collections::HashSet;
use std::time::Duration;

use super::alert::{ALERT_AFTER, Alertness, SETTLE};
use super::layout::{ALERT, AWAKE, SLEEPING};
use super::*;
use crate::time::{Clock, Deadline, MonotonicClock, TimePoint};

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
fn consumer_is_alert_after_many_packets_until_it_sleeps() {
    let (mut client, mut server) = pair_with(WaitSettings::Sleep);
    let word = |client: &ChannelEnd| client.producer.sleeper_word();
    stream(&mut client, &mut server, ALERT_AFTER - 1);
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, 1);
    assert_eq!(word(&client), ALERT);
    assert!(!client.producer.notify());
    let mut packet = server.consumer.new_packet();
    assert_eq!(
        server.consumer.receive(&mut packet, PAST),
        Err(ReceiveError::TimedOut)
    );
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, ALERT_AFTER - 1);
    assert_eq!(word(&client), AWAKE);
    stream(&mut client, &mut server, 1);
    assert_eq!(word(&client), ALERT);
}

#[test]
fn first_sleep_of_an_alert_consumer_is_short_until_one_has_lasted() {
    let (client, _server) = pair_with(WaitSettings::Sleep);
    let doorbell = client.producer.doorbell();
    let start = MonotonicClock.now();
    let late = Deadline::after(start, Duration::from_secs(60));
    let mut alertness = Alertness::new();
    assert_eq!(alertness.sleeps(0, late), late);
    alertness.received(ALERT_AFTER - 1, doorbell);
    assert_eq!(alertness.sleeps(1, late), late);
    alertness.received(ALERT_AFTER, doorbell);
    assert_eq!(client.producer.sleeper_word(), AWAKE);
    alertness.received(1 + ALERT_AFTER, doorbell);
    assert_eq!(client.producer.sleeper_word(), ALERT);
    // One that is cut short by its deadline, or by a packet, settles nothing.
    assert_eq!(alertness.sleeps(300, PAST), PAST);
    assert!(!alertness.settles(PAST, PAST));
    let until = alertness.sleeps(300, late);
    assert_eq!(until.earlier(late), until);
    assert!(Deadline::after(start, SETTLE) <= until && until < late);
    assert!(alertness.settles(until, late));
    assert_eq!(alertness.sleeps(300, late), late);
    assert!(!alertness.settles(late, late));
}

#[test]
fn short_sleep_does_not_end_the_wait_before_its_deadline() {
    let (mut client, mut server) = pair_with(WaitSettings::Sleep);
    stream(&mut client, &mut server, ALERT_AFTER);
    assert_eq!(client.producer.sleeper_word(), ALERT);
    let mut packet = server.consumer.new_packet();
    let deadline = Deadline::after(MonotonicClock.now(), 4 * SETTLE);
    assert_eq!(
        server.consumer.receive(&mut packet, deadline),
        Err(ReceiveError::TimedOut)
    );
    assert!(deadline.is_past(MonotonicClock.now()));
}

#[test]
fn alert_consumer_that_falls_asleep_loses_no_wake_up() {
    const SINGLES: u64 = 8;
    let window = Duration::from_micros(50);
    let (mut client, mut server) = pair_with(WaitSettings::Fixed { window });
    let push_many = |producer: &mut Producer| {
        for _ in 0..ALERT_AFTER {
            producer.push(&[1]).unwrap();
        }
    };
    // Before anybody receives, so that no sleep comes between them.
    push_many(&mut client.producer);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut packet = server.consumer.new_packet();
            let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
            let mut received = 0_u64;
            loop {
                match server.consumer.receive(&mut packet, deadline) {
                    Ok(()) => received += 1,
                    Err(ReceiveError::Closed) => return received,
                    Err(error) => panic!("after {received} packets: {error}"),
                }
                assert!(received != ALERT_AFTER || server.consumer.is_alert());
            }
        });
        let mut sent = ALERT_AFTER;
        for series in 0..100 {
            wait_until_read(&mut client.producer);
            // Closer and closer to the moment at which the consumer falls asleep, and past it.
            for _ in 0..SINGLES {
                let sends = Deadline::after(MonotonicClock.now(), window * (series + 50) / 100);
                while !sends.is_past(MonotonicClock.now()) {
                    std::hint::spin_loop();
                }
                client.producer.send(&[1]).unwrap();
                wait_until_read(&mut client.producer);
            }
            push_many(&mut client.producer);
            client.producer.notify();
            sent += ALERT_AFTER + SINGLES;
        }
        drop(client);
        assert_eq!(receiver.join().unwrap(), sent);
    });
}

/// Waits until the ring is empty; the consumer's own deadline bounds it.
fn wait_until_read(producer: &mut Producer) {
    while producer.room().unwrap() < CELLS as usize && !producer.is_closed() {
        std::hint::spin_loop();
    }
}

/// Every interleaving of a producer of two packets and a consumer that becomes alert whenever it is awake, on processors that
/// hold stores back in buffers (x86's model of memory), but none for as long as a short sleep takes. `settles` says whether
/// an alert consumer's first sleep is short.
struct Model {
    settles: bool,
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
    is_alert: bool,
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
            is_alert: false,
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
            Sending::Look if self.word_behind(&self.producer_buffer) == ALERT => self.after_packet(),
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

    fn receive(mut self, settles: bool) -> Option<State> {
        self.receiving = match self.receiving {
            Receiving::Awake => {
                self.consumer_buffer.push(Store::Word(AWAKE));
                self.consumer_buffer.push(Store::Word(ALERT));
                self.is_alert = true;
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
            Receiving::Wait if self.is_alert && settles => {
                self.settling = self.producer_buffer.len();
                Receiving::Dozing
            }
            Receiving::Wait => Receiving::Asleep,
            Receiving::Dozing => {
                for _ in 0..self.settling {
                    self = self.drain(true)?;
                }
                self.is_alert = false;
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
    fn loses_a_wake_up(settles: bool) -> bool {
        let mut model = Model {
            settles,
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
            state.clone().receive(self.settles),
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
    assert!(!Model::loses_a_wake_up(true));
}

#[test]
fn long_sleep_of_an_alert_consumer_would_lose_one() {
    assert!(Model::loses_a_wake_up(false));
}
