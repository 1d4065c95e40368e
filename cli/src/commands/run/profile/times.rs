//! How long the operations of a model took, call by call.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

use nnhal_client::{Span, SpanKind, WorkerSpans};
use nnhal_cpu::Program;
use nnhal_cpu::{ObservedOperation, Observer};
use nnhal_hal::{OperationType, SubgraphIndex};

/// The operations of the main graph in one call: which, and how many nanoseconds each took.
pub(super) type Call = Vec<(usize, u64)>;

/// Where it is learned what operations take.
pub(super) enum Source {
    /// From the executor in this process.
    Here(Rc<Observed>),
    /// From the worker of a driver.
    Worker(WorkerSpans),
}

impl Source {
    /// The last call; `None` if more was recorded than could be kept.
    pub(super) fn last_call(&mut self) -> Option<Call> {
        match self {
            Source::Here(observed) => Some(observed.0.take()),
            Source::Worker(spans) => {
                let mut operations = Vec::new();
                let lost = spans.drain(|span| {
                    if span.kind == SpanKind::Operation {
                        operations.push(span);
                    }
                });
                (lost == 0).then(|| outermost(&operations))
            }
        }
    }
}

/// What the executor in this process has told of the call that runs.
#[derive(Debug, Default)]
pub(super) struct Observed(RefCell<Call>);

impl Observer for Observed {
    fn operation_ended(&self, observed: &ObservedOperation) {
        if observed.graph == SubgraphIndex::Main {
            let nanos = observed.ended.saturating_since(observed.started).as_nanos();
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            self.0.borrow_mut().push((observed.index, nanos));
        }
    }
}

/// The operations that no other one runs: those inside IF and WHILE come before it, and lie within it in
/// time.
fn outermost(spans: &[Span]) -> Call {
    let mut outer: Option<&Span> = None;
    let mut call = Call::new();
    for span in spans.iter().rev() {
        // One that took no time, computed with the one before, may have ended in the moment that the outer
        // one began.
        let is_inside = outer.is_some_and(|outer| {
            span.start > outer.start || (span.start == outer.start && span.duration_ns > 0)
        });
        if is_inside {
            continue;
        }
        let operation = u32::try_from(span.detail).map(OperationType);
        if matches!(operation, Ok(OperationType::IF | OperationType::WHILE)) {
            outer = Some(span);
        }
        // An index that no model has is that of no operation.
        call.push((
            usize::try_from(span.subject).unwrap_or(usize::MAX),
            span.duration_ns,
        ));
    }
    call.reverse();
    call
}

/// What calls in which the same operations were computed together have shown.
pub(super) struct Medians {
    /// By operation, in microseconds.
    pub(super) times: Vec<f64>,
    /// How many calls these are.
    pub(super) calls: usize,
    /// What is computed together where so many threads compute was so.
    pub(super) threads: usize,
}

impl Medians {
    /// The median time of each of so many operations. An execution may find that it is faster without
    /// helpers, and compute other operations together then: the calls that count are those of which there
    /// were more, or all if none was as the program has it, which is where dimensions are known in executions
    /// only, or if there is no program to tell.
    pub(super) fn of(
        calls: &[Call],
        operations: usize,
        program: Option<&Program>,
        threads: usize,
    ) -> Medians {
        let of = |threads: usize| -> Vec<&Call> {
            let Some(program) = program else { return Vec::new() };
            let expected: Vec<bool> = (0..operations)
                .map(|index| {
                    let first = program.computed_with(SubgraphIndex::Main, index, threads);
                    first.is_some_and(|first| first < index)
                })
                .collect();
            // What was computed with one before takes no time.
            let is_so = |call: &&Call| {
                let mut known = call.iter().filter(|(index, _)| *index < operations);
                known.all(|&(index, nanos)| (nanos == 0) == expected[index])
            };
            calls.iter().filter(is_so).collect()
        };
        let (several, alone) = (of(threads), of(1));
        let (calls, threads) = match several.len().cmp(&alone.len()) {
            Ordering::Less => (alone, 1),
            _ if several.is_empty() => (calls.iter().collect(), threads),
            _ => (several, threads),
        };
        let mut times = vec![Vec::new(); operations];
        for &(index, nanos) in calls.iter().copied().flatten() {
            if let Some(times) = times.get_mut(index) {
                times.push(nanos);
            }
        }
        Medians {
            times: times.iter_mut().map(|times| median_us(times)).collect(),
            calls: calls.len(),
            threads,
        }
    }
}

/// The median of times in nanoseconds, in microseconds; 0 for an operation that never ran.
fn median_us(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, |nanos| *nanos as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use nnhal_os::time::TimePoint;

    use super::*;

    fn span(index: u64, operation: OperationType, [start, end]: [u64; 2]) -> Span {
        Span {
            kind: SpanKind::Operation,
            thread: 1,
            start: TimePoint::from_nanos(start),
            duration_ns: end - start,
            subject: index,
            detail: u64::from(operation.0),
        }
    }

    #[test]
    fn operations_inside_control_flow_are_left_out() {
        let spans = [
            span(0, OperationType::ADD, [10, 20]),
            // With the one before, in the moment that the next begins.
            span(1, OperationType::RELU, [20, 20]),
            span(0, OperationType::LESS, [20, 22]),
            span(0, OperationType::ADD, [23, 25]),
            span(1, OperationType::IF, [22, 27]),
            span(2, OperationType::WHILE, [20, 30]),
            span(3, OperationType::MUL, [30, 34]),
        ];
        assert_eq!(outermost(&spans), [(0, 10), (1, 0), (2, 10), (3, 4)]);
    }

    #[test]
    fn operations_that_the_model_has_not_change_nothing() {
        let calls = [
            vec![(0, 2000), (7, 1), (usize::MAX, 1)],
            vec![(0, 4000)],
            vec![(0, 3000)],
        ];
        let medians = Medians::of(&calls, 2, None, 1);
        assert_eq!((medians.times, medians.calls), (vec![3.0, 0.0], 3));
    }
}
