use super::*;

const MAX: Duration = Duration::from_micros(50);

fn policy() -> WaitPolicy {
    let settings = WaitSettings::Adaptive { max_window: MAX };
    WaitPolicy::with_rates(settings, PollRates::of(1, 40, 2))
}

/// Replays waits that would last `trace` nanoseconds: one within the window is seen by polling, another costs a
/// sleep. Returns how many slept and how long was polled in all.
fn replay(policy: &mut WaitPolicy, trace: impl IntoIterator<Item = u64>) -> (usize, u64) {
    let (mut sleeps, mut polled) = (0, 0);
    for nanos in trace {
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
    // Of 50 us that could be polled in vain before each pause, at most a few are.
    assert!(polled <= 100 * (20 * 1_500 + 5_000), "polled {polled} ns");
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
    assert!(
        policy.window() <= Duration::from_micros(3),
        "{:?}",
        policy.window()
    );
    replay(&mut policy, std::iter::repeat_n(400_000, 400));
    assert_eq!(policy.window(), Duration::ZERO);
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
    while spin.next() {}
    while spin.next_stretch() {
        while spin.next() {}
    }
    let waited = spin.waited();
    assert!((49_000..=50_100).contains(&waited.nanos), "{waited:?}");
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
