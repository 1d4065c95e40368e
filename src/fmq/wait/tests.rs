use super::*;

const MAX: Duration = Duration::from_micros(50);
const ADAPTIVE: WaitSettings = WaitSettings::Adaptive { max_window: MAX };

/// With more processors than tests, which run side by side and poll in one process.
fn rates() -> PollRates {
    PollRates::of(1, 40, u32::MAX)
}

fn policy() -> WaitPolicy {
    WaitPolicy::new(ADAPTIVE, rates())
}

/// Has waits of these lengths in nanoseconds: one within the window is seen by polling, another costs a
/// sleep. Returns how many slept and how long was polled in all.
fn replay(policy: &mut WaitPolicy, waits: impl IntoIterator<Item = u64>) -> (usize, u64) {
    let (mut sleeps, mut polled) = (0, 0);
    for nanos in waits {
        policy.begin();
        let window = policy.window().as_nanos() as u64;
        let slept = nanos > window;
        sleeps += usize::from(slept);
        polled += nanos.min(window);
        let wake = if slept { 8_000 } else { 0 };
        policy.record(nanos + wake, slept);
    }
    (sleeps, polled)
}

/// Has a wait of 80 us end by a sleep from which getting up took so long.
fn be_woken(policy: &mut WaitPolicy, nanos: u64) {
    let wait = policy.begin();
    let needed = Duration::from_micros(80);
    let slept = Slept {
        whole: needed + Duration::from_nanos(nanos),
        needed,
        was_woken: true,
    };
    policy.woken(&wait, slept);
}

/// Polls in vain; what follows.
fn poll(policy: &mut WaitPolicy, wait: &mut Wait, has_rung: bool) -> Step {
    wait.polls.skip(u32::MAX);
    policy.next(wait, Event::Polled { has_rung })
}

/// Polls in vain for as long as the policy says; for how many nanoseconds, and what follows.
fn poll_on(policy: &mut WaitPolicy, wait: &mut Wait, has_rung: bool) -> (u64, Step) {
    let mut step = poll(policy, wait, has_rung);
    while step == Step::Poll {
        step = poll(policy, wait, false);
    }
    (policy.waited(wait) + wait.excused, step)
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
        let mut policy = WaitPolicy::new(settings, rates());
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
fn settings_without_adaptation_keep_their_window() {
    for (settings, window) in [
        (WaitSettings::Fixed { window: MAX }, MAX),
        (WaitSettings::Sleep, Duration::ZERO),
    ] {
        let mut policy = WaitPolicy::new(settings, rates());
        replay(&mut policy, [1, 1_000_000, 1_000].into_iter().cycle().take(300));
        assert_eq!(policy.window(), window);
    }
}

#[test]
fn where_being_woken_takes_long_waits_of_that_length_are_polled_through() {
    const WAIT: u64 = 80_000;
    let mut policy = policy();
    replay(&mut policy, [WAIT; 100]);
    assert_eq!(policy.window(), Duration::ZERO);
    for _ in 0..20 {
        be_woken(&mut policy, 90_000);
    }
    replay(&mut policy, [WAIT; 100]);
    assert!(policy.window() > Duration::from_nanos(WAIT), "{policy:?}");
    // Processors that are busy are no reason to poll for longer.
    be_woken(&mut policy, 1_000_000_000);
    replay(&mut policy, [WAIT; 100]);
    assert_eq!(policy.window(), Duration::ZERO);
}

#[test]
fn polling_covers_the_window_and_no_more() {
    for (settings, window) in [
        (WaitSettings::Fixed { window: MAX }, 50_000),
        (WaitSettings::Sleep, 0),
    ] {
        let mut policy = WaitPolicy::new(settings, rates());
        let mut wait = policy.begin();
        let (polled, step) = poll_on(&mut policy, &mut wait, false);
        assert!((window..=window + 100).contains(&polled), "{polled}");
        assert_eq!(step, Step::Sleep);
    }
}

#[test]
fn polling_ends_early_with_the_time_so_far() {
    let mut policy = policy();
    let mut wait = policy.begin();
    for _ in 0..10 {
        assert!(wait.polls.next(1));
    }
    assert_eq!(policy.waited(&wait), 10);
    assert_eq!(poll(&mut policy, &mut wait, false), Step::Poll);
    wait.polls.skip(20);
    assert_eq!(policy.waited(&wait), 1000 + 20 * 40);
}

#[test]
fn polling_that_is_stopped_ends_in_a_sleep() {
    let mut policy = policy();
    let mut wait = policy.begin();
    assert_eq!(policy.next(&mut wait, Event::Stopped), Step::Sleep);
    let mut wait = policy.begin();
    assert_eq!(poll(&mut policy, &mut wait, false), Step::Poll);
    assert_eq!(policy.next(&mut wait, Event::Stopped), Step::Sleep);
}

#[test]
fn single_processor_never_polls() {
    for settings in [WaitSettings::default(), WaitSettings::Fixed { window: MAX }] {
        let mut policy = WaitPolicy::new(settings, PollRates::of(1, 40, 1));
        let mut wait = policy.begin();
        assert!(!wait.polls.next(1));
        assert_eq!(poll(&mut policy, &mut wait, false), Step::Sleep);
    }
}

#[test]
fn side_that_has_woken_its_peer_polls_on_for_as_long_as_getting_up_takes() {
    let mut policy = policy();
    be_woken(&mut policy, 20_000);
    replay(&mut policy, [2_000; 100]);
    let window = policy.window().as_nanos() as u64;
    for (has_rung, excused) in [(false, 0), (true, 30_000)] {
        let mut wait = policy.begin();
        policy.yields.yielded(0, Duration::ZERO, false);
        wait.yield_at = None;
        let (polled, _) = poll_through_yields(&mut policy, &mut wait, has_rung);
        let expected = window + excused;
        assert!(polled.abs_diff(expected) < 200, "{polled}, not {expected}");
    }
    be_woken(&mut policy, 3_000_000);
    let mut wait = policy.begin();
    poll(&mut policy, &mut wait, true);
    assert_eq!(wait.excused, 0, "a peer that gets up too late is not polled for");
}

/// The same as [`poll_on`] where nobody takes the processor that is offered.
fn poll_through_yields(policy: &mut WaitPolicy, wait: &mut Wait, has_rung: bool) -> (u64, Step) {
    let mut step = poll(policy, wait, has_rung);
    loop {
        step = match step {
            Step::Poll => poll(policy, wait, false),
            Step::Yield => {
                let took = Duration::ZERO;
                policy.next(
                    wait,
                    Event::Yielded {
                        took,
                        was_switched: false,
                    },
                )
            }
            _ => return (policy.waited(wait) + wait.excused, step),
        };
    }
}

#[test]
fn only_an_adaptive_side_offers_its_processor() {
    for (settings, offers) in [(ADAPTIVE, true), (WaitSettings::Fixed { window: MAX }, false)] {
        let mut policy = WaitPolicy::new(settings, rates());
        let mut wait = policy.begin();
        let (polled, step) = poll_on(&mut policy, &mut wait, false);
        assert_eq!(step == Step::Yield, offers);
        assert_eq!(polled < 5_000, offers);
    }
}

#[test]
fn where_others_want_the_processor_they_come_before_the_first_poll() {
    let taken = Event::Yielded {
        took: Duration::from_micros(5),
        was_switched: true,
    };
    for max_window in [MAX, Duration::from_micros(7)] {
        let mut policy = WaitPolicy::new(WaitSettings::Adaptive { max_window }, rates());
        replay(&mut policy, [300; 100]);
        let mut wait = policy.begin();
        wait.state = State::Yielding;
        policy.next(&mut wait, taken);
        let mut wait = policy.begin();
        assert!(!wait.polls.next(1));
        assert_eq!(poll(&mut policy, &mut wait, false), Step::Yield);
        assert_eq!(policy.next(&mut wait, taken), Step::Poll);
    }
}

#[test]
fn where_others_keep_the_processor_for_long_waits_sleep_at_once_for_a_while() {
    let kept = Event::Yielded {
        took: Duration::from_millis(3),
        was_switched: true,
    };
    let mut policy = policy();
    // Waits that would have timed sleeps.
    assert!(policy.expect_waits_of(2_000_000));
    for _ in 0..3 {
        let mut wait = policy.begin();
        wait.state = State::Yielding;
        policy.next(&mut wait, kept);
    }
    for _ in 0..5 {
        assert!(policy.yields.sleeps_at_once());
        let mut wait = policy.begin();
        assert_eq!(poll(&mut policy, &mut wait, false), Step::Sleep);
        policy.woken(&wait, Slept::in_vain(Duration::from_millis(100)));
    }
    assert!(!policy.yields.sleeps_at_once());
}

#[test]
fn timed_sleep_is_followed_by_polls_and_then_by_a_sleep() {
    let mut policy = policy();
    assert!(policy.expect_waits_of(2_000_000));
    replay(&mut policy, [2_000_000; 4]);
    let mut wait = policy.begin();
    let (_, step) = poll_through_yields(&mut policy, &mut wait, false);
    let Step::SleepFor(length) = step else {
        panic!("{step:?}")
    };
    assert!(length > Duration::from_micros(1500) && length < Duration::from_millis(2));
    let late = length + Duration::from_micros(30);
    let mut step = policy.next(&mut wait, Event::SleptFor(late));
    assert_eq!(
        step,
        Step::Yield,
        "whoever has had the processor may be about to send"
    );
    let before = policy.waited(&wait);
    assert!(before >= late.as_nanos() as u64);
    while step != Step::Sleep {
        step = match step {
            Step::Yield => policy.next(
                &mut wait,
                Event::Yielded {
                    took: Duration::ZERO,
                    was_switched: false,
                },
            ),
            _ => poll(&mut policy, &mut wait, false),
        };
    }
    let polled = policy.waited(&wait) - before;
    assert!((50_000..=101_000).contains(&polled), "{polled}");
}

#[test]
fn timed_sleep_that_cannot_be_is_a_sleep_until_woken() {
    let mut policy = policy();
    policy.expect_waits_of(2_000_000);
    replay(&mut policy, [2_000_000; 4]);
    let mut wait = policy.begin();
    let (_, step) = poll_through_yields(&mut policy, &mut wait, false);
    assert!(matches!(step, Step::SleepFor(_)), "{step:?}");
    assert_eq!(policy.next(&mut wait, Event::Stopped), Step::Sleep);
}
