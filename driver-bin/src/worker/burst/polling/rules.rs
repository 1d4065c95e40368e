//! The rules of the polling policy, each of which the simulator can leave out.

/// A rule, and what it gains: by how much a request takes longer without it, in the scenario of
/// `simulator.rs` that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Rings on which nothing has come of late are looked at more rarely. Gains 30 % where one lent ring of
    /// 64 is used.
    MoveToFront,
    /// A poll looks at three of the rings that are in use at most. Gains 8 % where 16 are used by turns.
    FewLooks,
    /// Others are served between two batches of the own ring. Without it they starve beside one that never
    /// empties.
    ServeBetween,
    /// Requests that wait behind each other are carried out in one go. Gains 32 % in requests of 300 ns, 16
    /// behind each other.
    Batches,
    /// As many as take 20 us. Gains 83 % for short requests beside others of 18 us, 16 behind each other.
    BatchTime,
    /// One batch of 64 is timed, where there is only one request in each. Gains 10 % in requests of 300 ns on
    /// 64 rings by turns.
    RareTiming,
}

/// Which rules there are: all, but in the simulator.
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
