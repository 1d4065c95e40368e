//! The programs of a model for shapes that its inputs have often, and when they are made. By burst, a network
//! of three layers takes a third of the time with one (`cargo bench --bench shapes`: `open`, `changing`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use nnhal_hal::Shape;
use nnhal_hal::validate::ValidModel;

/// The shapes of the inputs of one run; none of those that are left out.
pub(crate) type InputShapes = Vec<Option<Shape>>;

/// How many runs with the same shapes have a program made for them: what two runs cost more without it is
/// less than making it.
const LEAST_RUNS: u32 = 3;

/// How many shapes are remembered.
const MOST_SHAPES: usize = 8;

/// Most bytes of constants that all programs may pack again, but for one program, which is made always.
const MOST_PACKED_BYTES: u64 = 256 << 20;

/// The programs `P` for shapes that inputs have often. All executions of the general program share them.
#[derive(Debug)]
pub(crate) struct ShapedPrograms<P> {
    state: Mutex<State<P>>,
    /// How many there are at most.
    most: usize,
}

#[derive(Debug)]
struct State<P> {
    /// What was looked for last is the last.
    known: Vec<Known<P>>,
    /// How many runs have the next one made.
    runs_before: u32,
}

#[derive(Debug)]
struct Known<P> {
    shapes: InputShapes,
    runs: u32,
    found: Found<P>,
}

/// What there is for some shapes.
#[derive(Clone, Debug)]
pub(crate) enum Found<P> {
    /// It may be made some runs later.
    NotYet,
    /// The program.
    Program(P),
    /// The general program computes them.
    Never,
}

impl<P: Clone> ShapedPrograms<P> {
    /// None yet; `None` if all shapes of the model's inputs are known.
    pub(super) fn of(model: &ValidModel) -> Option<ShapedPrograms<P>> {
        let main = &model.model().main;
        let is_open = main.input_indexes.iter().any(|&input| {
            let operand = &main.operands[input as usize];
            let is_open = Shape::new(&operand.dimensions).is_ok_and(|shape| !is_exact(&shape));
            operand.operand_type.is_tensor() && is_open
        });
        let constants = main
            .operands
            .iter()
            .filter(|operand| operand.lifetime.is_constant());
        let bytes: u64 = constants.map(|operand| u64::from(operand.location.length)).sum();
        let most = MOST_PACKED_BYTES.checked_div(bytes).unwrap_or(u64::MAX);
        is_open.then(|| ShapedPrograms {
            state: Mutex::new(State {
                known: Vec::with_capacity(MOST_SHAPES),
                runs_before: LEAST_RUNS,
            }),
            most: usize::try_from(most).unwrap_or(usize::MAX).clamp(1, MOST_SHAPES),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is for these shapes.
    pub(crate) fn find(&self, shapes: &InputShapes) -> Found<P> {
        let mut state = self.lock();
        state
            .of(shapes)
            .map_or(Found::NotYet, |known| known.found.clone())
    }

    /// Counts a run of the general program with these shapes; whether the program for them is to be made now.
    pub(crate) fn count_run(&self, shapes: &InputShapes) -> bool {
        let mut state = self.lock();
        let runs_before = state.runs_before;
        if let Some(known) = state.of(shapes) {
            known.runs = known.runs.saturating_add(1);
            return known.runs == runs_before;
        }
        state.add(Known {
            shapes: shapes.clone(),
            runs: 1,
            found: Found::NotYet,
        });
        false
    }

    /// Keeps what there is for these shapes from now on.
    pub(crate) fn put(&self, shapes: &InputShapes, found: Found<P>) {
        let mut state = self.lock();
        state.known.retain(|known| known.shapes != *shapes);
        let is_program = |known: &Known<P>| matches!(known.found, Found::Program(_));
        let programs = state.known.iter().filter(|known| is_program(known)).count();
        if matches!(found, Found::Program(_))
            && programs >= self.most
            && let Some(oldest) = state.known.iter().position(is_program)
        {
            state.known.remove(oldest);
            // Where shapes take turns for which there is no room, making programs must not become the work.
            state.runs_before = state.runs_before.saturating_mul(2);
        }
        state.add(Known {
            shapes: shapes.clone(),
            runs: 0,
            found,
        });
    }
}

impl<P> State<P> {
    /// What is known of these shapes, which were looked for last from now on.
    fn of(&mut self, shapes: &InputShapes) -> Option<&mut Known<P>> {
        let at = self.known.iter().position(|known| known.shapes == *shapes)?;
        self.known[at..].rotate_left(1);
        self.known.last_mut()
    }

    fn add(&mut self, known: Known<P>) {
        if self.known.len() >= MOST_SHAPES {
            self.known.remove(0);
        }
        self.known.push(known);
    }
}

/// Whether a declared shape leaves nothing open.
pub(super) fn is_exact(shape: &Shape) -> bool {
    shape.rank() > 0 && shape.is_fully_specified()
}
