//! The rules of the waiting policy, each of which the simulator can leave out.

/// A rule, and what it gains: by how much the price of a request is higher without it, in the scenario of
/// `scenarios.rs` that is named. The price is the round trip and the processor time of both sides' waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The window follows the waits of late. Gains 93 % in bursts of ten with pauses of 3 ms.
    Window,
    /// A window that is not nothing is an eighth of the longest at least. Gains 15 % in the steady trace.
    LeastWindow,
    /// The longest window is twice as long where being woken takes longer than it. Gains 185 % where a client
    /// thinks for 60 us and being woken takes 90 us.
    WakeWindow,
    /// A side that has woken its peer polls for as long as getting up takes besides. Gains 659 % where short
    /// waits follow long ones, so that both sides sleep at first.
    AwaitSleeper,
    /// Of a sleep counts what passed until somebody rang. Gains 210 % where a worker works for 30 us and
    /// being woken takes 90 us.
    CountUntilRung,
    /// Waits that are alike are slept through until a little before their end. Gains 158 % in bursts of ten
    /// with pauses of 3 ms, 22 % where a worker works for 300 us.
    TimedSleep,
    /// One wait that is much longer than others changes the next sleep little. Gains 8 % in the trace of a
    /// client that thinks.
    TimedSleepOutlier,
    /// Lateness is forgotten where sleeps are not timed. Gains 22 % after a time in which timers were late.
    TimedSleepForget,
    /// Who polls for long offers its processor to others. Gains 142 % where 8 pairs with 60 us of work share
    /// 4 processors.
    Yield,
    /// Where others take it, that comes before the first poll. Gains 86 % where 8 pairs share 4 processors.
    YieldFirst,
    /// Once nobody takes it for a while, it is not offered. Spares 5 system calls for each request that a
    /// worker works on for 80 us.
    YieldAlone,
    /// An offer counts as taken only if the system has run another thread. Gains 14 % where a system call
    /// takes 3 us.
    YieldSwitched,
    /// Where others keep it for long on average, waits sleep at once. Without it a pair beside two threads
    /// that compute, on two processors, takes 700 times as long.
    SleepAtOnce,
}

/// Which rules there are: all, but in tests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    #[cfg(test)]
    pub(super) without: Option<Rule>,
}

impl Rules {
    #[inline(always)]
    #[cfg(test)]
    pub(super) fn has(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    #[inline(always)]
    #[cfg(not(test))]
    pub(super) fn has(self, _rule: Rule) -> bool {
        true
    }
}
