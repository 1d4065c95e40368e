use super::*;

const SHORT: Event = Event::Served {
    has_ended: false,
    is_short: true,
};
const LONG: Event = Event::Served {
    has_ended: false,
    is_short: false,
};
const ENDED: Event = Event::Served {
    has_ended: true,
    is_short: true,
};

fn after(events: impl IntoIterator<Item = Event>) -> Role {
    events.into_iter().fold(Role::FIRST, Role::next)
}

#[test]
fn thread_of_short_tasks_becomes_a_shared_poller_if_there_is_a_place() {
    assert_eq!(after([LONG]), Role::Alone);
    assert_eq!(after([SHORT]), Role::Seeking { was_refused: false });
    assert_eq!(after([SHORT, Event::Granted]), Role::Polling);
    assert_eq!(after([SHORT, Event::Granted, LONG]), Role::Alone);
}

#[test]
fn thread_without_a_place_lends_its_burst_in_a_pause() {
    let refused = [SHORT, Event::Refused];
    assert_eq!(after(refused), Role::Separating { was_refused: false });
    let lent = after(refused.into_iter().chain([Event::Paused, Event::Granted]));
    assert_eq!(lent, Role::Lent);
    assert_eq!(lent.next(LONG), Role::Alone);
    assert_eq!(lent.next(SHORT), Role::Seeking { was_refused: false });
}

#[test]
fn thread_that_nobody_takes_the_burst_of_waits_for_an_opening() {
    let again = after([SHORT, Event::Refused, Event::Paused, Event::Refused]);
    assert_eq!(again, Role::Seeking { was_refused: true });
    assert_eq!(again.next(Event::Refused), Role::Separating { was_refused: true });
    assert_eq!(again.next(Event::Granted), Role::Polling);
}

#[test]
fn thread_whose_burst_has_ended_is_over() {
    let separating = Role::Separating { was_refused: true };
    for role in [Role::Alone, Role::Polling, separating, Role::Lent] {
        assert_eq!(role.next(ENDED), Role::Over);
    }
}

/// Polls so often, where these rings have packets; those that were seen.
fn poll(order: &mut PollOrder<usize>, polls: usize, ready: &[usize]) -> Vec<usize> {
    let see = |ring: &mut usize| ready.contains(ring);
    let mut seen = Vec::new();
    for _ in 0..polls {
        if order.poll(see, |_| {}) {
            seen.push(*order.take_ready().unwrap().1);
        }
    }
    seen
}

#[test]
fn ring_that_is_in_use_is_looked_at_in_each_poll_and_all_others_in_turn() {
    let mut order = PollOrder::new();
    (0..16).for_each(|ring| order.push(ring));
    poll(&mut order, 16 * BUSY_FOR as usize, &[]);
    assert_eq!(order.looks_in_poll(), 1, "none is in use");
    assert_eq!(poll(&mut order, 16, &[7])[0], 7);
    assert_eq!(order.looks_in_poll(), 2);
    assert_eq!(poll(&mut order, 10, &[7]), [7; 10]);
    assert!(poll(&mut order, 17, &[7, 11]).contains(&11));
}

#[test]
fn ring_that_is_used_no_more_rests() {
    let mut order = PollOrder::new();
    order.push("ring");
    let mut rests = 0;
    for _ in 0..2 * BUSY_FOR {
        order.poll(|_| false, |_| rests += 1);
    }
    assert_eq!((rests, order.looks_in_poll()), (1, 1));
}

#[test]
fn look_at_all_leaves_none_out() {
    let mut order = PollOrder::new();
    (0..40).for_each(|ring| order.push(ring));
    for ring in 0..40 {
        assert!(order.poll_all(|other| *other == ring));
        assert_eq!(*order.take_ready().unwrap().1, ring);
    }
    assert!(!order.poll_all(|_| false));
    assert!(order.take_ready().is_none());
}

#[test]
fn round_comes_after_many_batches_without_a_pause() {
    let mut order = PollOrder::new();
    assert!(
        (0..2 * BATCHES_IN_ROUND).all(|_| !order.end_batch()),
        "there are no others"
    );
    (0..4).for_each(|ring| order.push(ring));
    assert_eq!((1..).find(|_| order.end_batch()), Some(BATCHES_IN_ROUND));
    assert_eq!(order.take_gone(|ring| *ring == 2), [2]);
    order.pause().for_each(drop);
    assert!(order.has_gone_round());
    assert_eq!((1..).find(|_| order.end_batch()), Some(BATCHES_IN_ROUND));
}
