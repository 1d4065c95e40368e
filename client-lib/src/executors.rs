//! What carries out the executions of a prepared model, as those see it who do not make it.
//!
//! By messages go a model's first execution; what no ring can say, as a time limit for loops or for the wait;
//! fenced executions that wait for what is not on their ring; what is too long for a ring; and what finds all
//! of the model's or the connection's taken. Models that are not used any more give theirs up then.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::burst::Fencing;
use nnhal::fmq::Consumer;
use nnhal::wire::BurstHandle;
use nnhal_hal::Timing;
use nnhal_os::time::Deadline;

use crate::connection::{BurstPermit, Holder};
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions};
use crate::request::Request;
use crate::values::{Input, Output};

/// How many a model has at most: as many threads execute it at once without messages.
const MOST_OF_MODEL: usize = 4;

/// Executes one request at a time, and several fenced ones one behind the other.
pub(crate) trait Executor: Send + Sync + Debug {
    /// As [`crate::PreparedModel::execute`].
    fn execute(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Completed>;

    /// As [`crate::PreparedModel::run`].
    fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed>;

    /// Begins to execute a request, unless no ring can carry it. It keeps the memories until
    /// [`Executor::finish`] has the end.
    ///
    /// # Errors
    /// What is wrong with the request; nothing was begun.
    fn start(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Option<Started>>;

    /// Waits for the end of what was begun. After [`crate::ErrorKind::TimedOut`] it can be waited for again.
    fn finish(&mut self, deadline: Deadline) -> Result<Completed>;

    /// As [`Executor::start`] for a fenced execution, while others may be under way; `None` also if it cannot
    /// be sent now.
    fn start_fenced(
        &mut self,
        fencing: Fencing,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<Started>>;

    /// Waits for the end of the fenced execution that was begun first. After [`crate::ErrorKind::TimedOut`]
    /// it can be waited for again. What became of the execution itself is in the result.
    fn finish_fenced(&mut self, deadline: Deadline) -> Result<Result<Timing>>;

    /// Whether nothing that was begun has yet to be finished.
    fn is_idle(&self) -> bool;

    /// Where the results come from, if there is anything.
    fn consumer(&self) -> Option<&Consumer>;

    /// The same, to be used.
    fn consumer_mut(&mut self) -> Option<&mut Consumer>;
}

/// What an execution that was begun has for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) burst: BurstHandle,
    pub(crate) sequence: u32,
}

/// A place among those of a model, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "it is counted")] Arc<()>);

/// An executor, which counts among those of its model and of its connection.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) executor: Box<dyn Executor>,
    _counts: (Place, BurstPermit),
}

impl Counted {
    pub(crate) fn new(executor: Box<dyn Executor>, place: Place, permit: BurstPermit) -> Counted {
        Counted {
            executor,
            _counts: (place, permit),
        }
    }
}

/// The executors of a model.
#[derive(Debug, Default)]
pub(crate) struct Executors {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Counted>,
    /// Whether any was used since others last asked for what is not used.
    is_used: bool,
    /// Its other holders are the places.
    places: Arc<()>,
    /// Whether the model was executed before.
    has_executed: bool,
}

/// What an execution goes by.
#[derive(Debug)]
pub(crate) enum Choice {
    Executor(Counted),
    /// A new executor, for which there is a place.
    New(Place),
    Message,
}

impl Executors {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one that is idle. The first execution goes by a message: a program that makes no other needs no
    /// rings.
    pub(crate) fn take(&self) -> Choice {
        let mut state = self.lock();
        if let Some(executor) = state.idle.pop() {
            state.is_used = true;
            return Choice::Executor(executor);
        }
        let is_first = !std::mem::replace(&mut state.has_executed, true);
        if is_first || Arc::strong_count(&state.places) > MOST_OF_MODEL {
            return Choice::Message;
        }
        state.is_used = true;
        Choice::New(Place(Arc::clone(&state.places)))
    }

    /// Keeps one for the next execution.
    pub(crate) fn keep(&self, executor: Counted) {
        self.lock().idle.push(executor);
    }

    /// Gives up those that are idle; whether there were any.
    pub(crate) fn clear(&self) -> bool {
        let idle = std::mem::take(&mut self.lock().idle);
        !idle.is_empty()
    }
}

impl Holder for Executors {
    fn give_up_unused(&self) {
        let is_used = std::mem::take(&mut self.lock().is_used);
        if !is_used {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(executors: &Executors) -> Option<Place> {
        match executors.take() {
            Choice::New(place) => Some(place),
            _ => None,
        }
    }

    #[test]
    fn first_execution_goes_by_a_message_and_only_so_many_others_by_executors() {
        let executors = Executors::default();
        assert!(place(&executors).is_none());
        let mut places: Vec<Place> = (0..MOST_OF_MODEL).map(|_| place(&executors).unwrap()).collect();
        assert!(place(&executors).is_none());
        places.pop();
        assert!(place(&executors).is_some());
    }
}
