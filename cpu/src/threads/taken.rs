//! Processors that an operation has taken for its helpers.

use nnhal_os::cores::Cores;

use super::Helpers;

/// Such processors. They are given back when this is dropped.
pub(super) struct Taken<'a> {
    pub(super) helpers: &'a Helpers,
    pub(super) cores: &'a dyn Cores,
    pub(super) count: usize,
}

impl<'a> Taken<'a> {
    /// At most so many, if there is any.
    pub(super) fn new(helpers: &'a Helpers, cores: &'a dyn Cores, wanted: usize) -> Option<Taken<'a>> {
        let count = cores.take(wanted);
        (count > 0).then_some(Taken {
            helpers,
            cores,
            count,
        })
    }

    /// Gives back what is beyond `count`.
    pub(super) fn keep(&mut self, count: usize) {
        let beyond = self.count.saturating_sub(count);
        if beyond > 0 {
            self.cores.give_back(beyond);
            self.count -= beyond;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.cores.give_back(self.count);
    }
}
