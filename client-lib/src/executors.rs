//! What carries out the synchronous executions of a prepared model, as those see it who do not make it.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::BurstPermit;
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions};
use crate::request::Request;
use crate::values::{Input, Output};

/// How many a model has at most: as many threads execute it at once without messages.
const MOST_OF_MODEL: usize = 4;

/// Executes one request at a time.
pub(crate) trait Executor: Send + Debug {
    /// As [`crate::PreparedModel::execute`].
    fn execute(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Completed>;

    /// As [`crate::PreparedModel::run`].
    fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed>;
}

/// An executor, which counts among those of its connection.
#[derive(Debug)]
pub(crate) struct Permitted {
    pub(crate) executor: Box<dyn Executor>,
    _permit: BurstPermit,
}

impl Permitted {
    pub(crate) fn new(executor: Box<dyn Executor>, permit: BurstPermit) -> Permitted {
        Permitted {
            executor,
            _permit: permit,
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
    idle: Vec<Permitted>,
    /// Those in use, too.
    count: usize,
    /// Whether the model was executed before.
    has_executed: bool,
    /// The driver has no room for more.
    is_refused: bool,
}

/// What an execution goes by.
#[derive(Debug)]
pub(crate) enum Choice {
    Executor(Permitted),
    /// A new executor, which [`Executors::keep`] or [`Executors::lose`] must be told of.
    New,
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
        match state.idle.pop() {
            Some(executor) => Choice::Executor(executor),
            None if !state.has_executed => {
                state.has_executed = true;
                Choice::Message
            }
            None if state.is_refused || state.count == MOST_OF_MODEL => Choice::Message,
            None => {
                state.count += 1;
                Choice::New
            }
        }
    }

    /// Keeps one for the next execution.
    pub(crate) fn keep(&self, executor: Permitted) {
        self.lock().idle.push(executor);
    }

    /// There is one less.
    pub(crate) fn lose(&self) {
        self.lock().count -= 1;
    }

    /// There is one less, and none will be made: the driver or the connection has no room.
    pub(crate) fn refuse(&self) {
        let mut state = self.lock();
        state.count -= 1;
        state.is_refused = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_execution_goes_by_a_message_and_only_so_many_others_by_executors() {
        let executors = Executors::default();
        assert!(matches!(executors.take(), Choice::Message));
        for _ in 0..MOST_OF_MODEL {
            assert!(matches!(executors.take(), Choice::New));
        }
        assert!(matches!(executors.take(), Choice::Message));
        executors.lose();
        assert!(matches!(executors.take(), Choice::New));
        executors.refuse();
        assert!(matches!(executors.take(), Choice::Message));
    }
}
