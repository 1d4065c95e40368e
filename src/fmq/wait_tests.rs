use super::*;

const MAX: Duration = Duration::from_micros(50);

// Tests of polling take their permit themselves, whatever number of threads poll in other tests beside them.

fn policy() -> WaitPolicy {
    let settings = WaitSettings::Adaptive { max_window: MAX };
    WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2))
}

/// Replays waits that would last `trace` nanoseconds: one within the window is seen by polling, another costs
/// a sleep. Returns how many slept and how long was polled in all.
fn replay(policy: &mut WaitPolicy, trace: impl IntoIterator<Item = u64>) -> (usize, u64) {
    let (mut sleeps, mut polled) = (0, 0);
    for nanos in trace {
        policy.review_if_due();
        let window = policy.window().as_nanos() as u64;
        let slept = nanos > window;
        sleeps += usize::from(slept);
        polled += nanos.min(window);
        let wake = if slept { 8_000 } else { 0 };
        policy.record(Waited {
            nanos: nanos + wake,
            slept,
        });
    }
    (sleeps, polled)
}

#[test]
fn short_regular_waits_are_all_polled_through() {
    for nanos in [200, 3_000, 10_000, 30_000, 45_000] {
        let (sleeps, _) = replay(&mut policy(), std::iter::repeat_n(nanos, 1000));
        assert_eq!(sleeps, 0, "waits of {nanos} ns");
    }
}

#[test]
fn waits_as_long_as_the_longest_window_are_polled_through() {
    for max in [20, 40, 50, 80, 85, 100, 170] {
        let settings = WaitSettings::Adaptive {
            max_window: Duration::from_micros(max),
        };
        let mut policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2));
        let (sleeps, _) = replay(&mut policy, std::iter::repeat_n(max * 950, 1000));
        assert_eq!(sleeps, 0, "waits of 0.95 of {max} us");
    }
}

#[test]
fn waits_beyond_the_longest_window_are_slept_through_without_polling() {
    for nanos in [100_000, 1_000_000, 1_000_000_000] {
        let mut policy = policy();
        replay(&mut policy, std::iter::repeat_n(nanos, 4));
        let (sleeps, polled) = replay(&mut policy, std::iter::repeat_n(nanos, 1000));
        assert_eq!((sleeps, polled), (1000, 0), "waits of {nanos} ns");
    }
}

#[test]
fn bursts_with_pauses_between_are_polled_for_as_long_as_the_short_waits_take() {
    let mut policy = policy();
    let trace = |bursts: usize| {
        (0..bursts)
            .flat_map(|_| std::iter::repeat_n(1_500, 20).chain([20_000_000]))
            .collect::<Vec<u64>>()
    };
    replay(&mut policy, trace(10));
    let (sleeps, polled) = replay(&mut policy, trace(100));
    assert_eq!(sleeps, 100);
    // Of 50 us that could be polled in vain before each pause, at most an eighth is.
    assert!(polled <= 100 * (20 * 1_500 + 6_250), "polled {polled} ns");
}

#[test]
fn window_comes_back_soon_after_waits_become_short_again() {
    let mut policy = policy();
    replay(&mut policy, std::iter::repeat_n(1_000_000, 500));
    assert_eq!(policy.window(), Duration::ZERO);
    let (sleeps, _) = replay(&mut policy, std::iter::repeat_n(2_000, 1000));
    assert!(sleeps <= 150, "slept {sleeps} times");
}

#[test]
fn window_goes_soon_after_waits_become_long() {
    let mut policy = policy();
    replay(&mut policy, std::iter::repeat_n(2_000, 500));
    replay(&mut policy, std::iter::repeat_n(400_000, 10));
    assert!(policy.window() <= MAX / 8, "{:?}", policy.window());
    replay(&mut policy, std::iter::repeat_n(400_000, 400));
    assert_eq!(policy.window(), Duration::ZERO);
}

#[test]
fn classes_follow_each_other_without_a_gap() {
    for nanos in (0..5000).chain((5..4000).map(|at| at * 1000)) {
        let class = class_of(nanos);
        assert!(class + 1 == CLASSES || nanos < class_end(class), "{nanos}");
        assert!(nanos >= class_start(class), "{nanos}");
    }
}

/// One of two sides that send to each other by turns, and what it does between.
struct Side {
    policy: WaitPolicy,
    /// When it began to wait, and until when it polls.
    waits_since: u64,
    polls_until: u64,
    excused: u64,
    /// By how much its present turn is late because it slept.
    late: u64,
}

impl Side {
    fn new() -> Side {
        Side {
            policy: policy(),
            waits_since: 0,
            polls_until: 0,
            excused: 0,
            late: 0,
        }
    }

    fn wait(&mut self, now: u64, peer_slept: bool) {
        self.policy.review_if_due();
        let mut spin = self.policy.start();
        if peer_slept {
            self.policy.await_sleeper(&mut spin);
        }
        self.waits_since = now;
        self.excused = spin.excused;
        self.polls_until = now + self.policy.window().as_nanos() as u64 + spin.excused;
    }

    /// Something was sent at `now` by a side that was late by so much; returns when this side has it, and
    /// whether it slept.
    fn receive(&mut self, now: u64, late: u64, wake: u64) -> (u64, bool) {
        let slept = now > self.polls_until;
        let needed = now.saturating_sub(if slept { late } else { 0 });
        let nanos = needed
            .saturating_sub(self.waits_since)
            .saturating_sub(self.excused);
        self.policy.record(Waited { nanos, slept });
        self.late = if slept { wake } else { 0 };
        if slept {
            self.policy.record_wake(Duration::from_nanos(wake));
        }
        (now + self.late, slept)
    }
}

/// Two sides with work of `work` nanoseconds each; returns how many of the last half of 400 turns were slept
/// through. At turn 100 one of them is held up for a millisecond.
fn sleeps_of_two(work: [u64; 2], wake: u64) -> usize {
    let mut sides = [Side::new(), Side::new()];
    // Both have learned to sleep.
    for side in &mut sides {
        replay(&mut side.policy, std::iter::repeat_n(1_000_000, 100));
        side.wait(0, false);
    }
    let (mut now, mut sleeps) = (1_000_000, 0);
    for turn in 0..400 {
        let [receiver, sender] = [turn % 2, 1 - turn % 2];
        let (at, slept) = sides[receiver].receive(now, sides[sender].late, wake);
        sides[sender].wait(now, slept);
        sleeps += usize::from(slept && turn >= 200);
        now = at + work[receiver] + if turn == 100 { 1_000_000 } else { 0 };
    }
    sleeps
}

#[test]
fn two_sides_that_sleep_find_out_of_it() {
    for wake in [6_000, 30_000, 45_000, 60_000, 95_000] {
        let sleeps = sleeps_of_two([200, 500], wake);
        assert!(
            sleeps <= 2,
            "slept {sleeps} times of 200 where waking takes {wake} ns"
        );
    }
}

#[test]
fn side_whose_peer_works_for_longer_than_the_window_sleeps_and_its_peer_does_not() {
    let sleeps = sleeps_of_two([1_000_000, 500], 45_000);
    assert_eq!(sleeps, 100);
}

#[test]
fn peer_that_gets_up_too_late_is_not_polled_for() {
    let mut policy = policy();
    let mut spin = policy.start();
    policy.record_wake(MAX * 3);
    policy.await_sleeper(&mut spin);
    assert_eq!(spin.excused, 0);
    let mut policy = self::policy();
    policy.record_wake(MAX / 2);
    policy.await_sleeper(&mut spin);
    assert_eq!(spin.excused, 37_500);
}

#[test]
fn settings_without_adaptation_keep_their_window() {
    for (settings, window) in [
        (WaitSettings::Fixed { window: MAX }, MAX),
        (WaitSettings::Sleep, Duration::ZERO),
    ] {
        let mut policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2));
        replay(&mut policy, [1, 1_000_000, 1_000].into_iter().cycle().take(300));
        assert_eq!(policy.window(), window);
    }
}

#[test]
fn single_processor_never_polls() {
    for settings in [WaitSettings::default(), WaitSettings::Fixed { window: MAX }] {
        let policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 1));
        assert_eq!(policy.window(), Duration::ZERO);
        assert!(!policy.start().next());
    }
}

#[test]
fn polling_covers_the_window_and_no_more() {
    let policy = WaitPolicy::with_rates(WaitSettings::Fixed { window: MAX }, PollRates::of(1, 40, 2));
    let mut spin = policy.start();
    spin.permit = SpinPermit::take(&SPINNING, u32::MAX);
    while spin.next() {}
    while spin.next_stretch(STRETCH_NANOS) {
        while spin.next() {}
    }
    let waited = spin.waited();
    assert!((49_000..=50_100).contains(&waited.nanos), "{waited:?}");
}

#[test]
fn permit_is_refused_where_all_are_taken_until_one_is_given_back() {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let take = || SpinPermit::take(&TAKEN, 2);
    let (first, second) = (take(), take());
    assert!(first.is_some() && second.is_some());
    assert!(take().is_none() && take().is_none());
    drop(first);
    let third = take();
    assert!(third.is_some(), "who was refused has taken none");
    drop((second, third));
    assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
}

#[test]
fn who_is_refused_a_permit_sleeps_after_the_first_polls() {
    for settings in [
        WaitSettings::Adaptive { max_window: MAX },
        WaitSettings::Fixed { window: MAX },
    ] {
        let mut policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2));
        let polling = [0; 2].map(|_| SpinPermit::take(&SPINNING, u32::MAX));
        let mut spin = policy.start();
        while spin.next() {}
        policy.begin_long_wait(&mut spin);
        assert!(!policy.next_stretch(&mut spin), "{settings:?}");
        // Nor later in the same wait, which is known to be as long as the first polls.
        drop(polling);
        assert!(!policy.next_stretch(&mut spin), "{settings:?}");
        assert_eq!(spin.waited().nanos, 1000);
    }
}

#[test]
fn permit_is_held_while_a_wait_polls_and_given_back_when_it_sleeps() {
    let mut policy = WaitPolicy::with_rates(
        WaitSettings::Fixed { window: MAX },
        PollRates::of(1, 40, u32::MAX),
    );
    let mut spin = policy.start();
    assert!(spin.permit.is_none(), "the first polls need none");
    assert!(policy.next_stretch(&mut spin));
    assert!(spin.permit.is_some());
    policy.stop(&mut spin);
    assert!(spin.permit.is_none());
}

#[test]
fn polling_ends_early_with_the_time_so_far() {
    let mut spin = policy().start();
    for _ in 0..10 {
        assert!(spin.next());
    }
    assert_eq!(
        spin.waited(),
        Waited {
            nanos: 10,
            slept: false
        }
    );
}

#[test]
fn classes_double_and_the_last_takes_the_rest() {
    assert_eq!(class_of(0), 0);
    assert_eq!(class_of(511), 0);
    assert_eq!(class_of(512), 1);
    assert_eq!(class_of(u64::MAX), CLASSES - 1);
    for class in 0..CLASSES - 1 {
        assert_eq!(class_of(class_end(class) - 1), class);
    }
}

#[test]
fn settings_without_adaptation_offer_the_processor_to_nobody() {
    let settings = WaitSettings::Fixed { window: MAX };
    let mut policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2));
    let mut spin = policy.start();
    policy.begin_long_wait(&mut spin);
    assert_eq!(spin.offer_at, None);
}

#[test]
fn who_is_alone_polls_without_offers() {
    let mut policy = policy();
    replay(&mut policy, [20_000; 100]);
    for _ in 0..100 {
        policy.yield_policy.refuse();
    }
    let mut spin = policy.start();
    policy.begin_long_wait(&mut spin);
    assert_eq!(spin.offer_at, None);
}

#[test]
fn where_others_want_the_processor_they_come_before_the_first_poll() {
    let mut policy = policy();
    policy.yield_policy.take();
    policy.set_eager_polls();
    let mut spin = policy.start();
    assert!(!spin.next());
    policy.begin_long_wait(&mut spin);
    assert_eq!(spin.offer_at, Some(0));
}

#[test]
fn where_being_woken_takes_long_waits_of_that_length_are_polled_through() {
    const WAIT: u64 = 80_000;
    let mut policy = policy();
    replay(&mut policy, [WAIT; 100]);
    assert_eq!(policy.window(), Duration::ZERO);
    for _ in 0..20 {
        policy.record_wake(Duration::from_micros(90));
    }
    replay(&mut policy, [WAIT; 100]);
    assert!(policy.window() > Duration::from_nanos(WAIT), "{policy:?}");
    // Processors that are busy are no reason to poll for longer.
    policy.record_wake(Duration::from_secs(1));
    replay(&mut policy, [WAIT; 100]);
    assert_eq!(policy.window(), Duration::ZERO);
}

#[test]
fn offers_go_on_where_windows_are_hardly_longer_than_the_first_polls() {
    let settings = WaitSettings::Adaptive {
        max_window: Duration::from_micros(7),
    };
    let mut policy = WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2));
    replay(&mut policy, [300; 100]);
    policy.yield_policy.take();
    policy.set_eager_polls();
    let mut spin = policy.start();
    spin.permit = SpinPermit::take(&SPINNING, u32::MAX);
    policy.begin_long_wait(&mut spin);
    assert!(policy.next_stretch(&mut spin));
}
