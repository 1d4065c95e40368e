//! States of a model in buffers of its device: what one execution gives is there for the next, and nobody
//! copies it.

use nnhal_client::tflite::State;
use nnhal_client::{Buffer, Device, Memory, PreparedModel};
use nnhal_hal::{BufferDesc, BufferRole, ErrorStatus};

use crate::error::Error;

/// How many requests take turns: one reads what the other has written.
pub(crate) const TURNS: usize = 2;

/// Two device buffers for each state, since no execution may write what it reads.
pub(crate) struct KeptStates {
    states: Vec<Kept>,
    turn: usize,
}

struct Kept {
    initial: Memory,
    buffers: [Buffer; TURNS],
}

impl KeptStates {
    /// Buffers of `device` for these states of what was prepared there, with their initial values; `None` if
    /// it has none for them.
    pub(crate) fn allocate(
        device: &Device,
        prepared: &PreparedModel,
        states: &[State],
    ) -> Result<Option<KeptStates>, Error> {
        let mut kept = KeptStates {
            states: Vec::new(),
            turn: 0,
        };
        if states.iter().any(|state| state.initial.is_empty()) {
            return Ok(None);
        }
        for state in states {
            let Some(buffers) = buffers(device, prepared, state)? else {
                return Ok(None);
            };
            let initial = Memory::new(state.initial.len() as u64)?;
            initial.write_at(0, &state.initial)?;
            kept.states.push(Kept { initial, buffers });
        }
        kept.begin()?;
        Ok(Some(kept))
    }

    /// Gives every state its initial value.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.turn = 0;
        for Kept { initial, buffers } in &self.states {
            buffers[0].copy_from(initial, &[])?;
        }
        Ok(())
    }

    /// How many states there are.
    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    /// Which of the requests is the next.
    pub(crate) fn turn(&self) -> usize {
        self.turn
    }

    /// To be called when that has succeeded.
    pub(crate) fn end_turn(&mut self) {
        self.turn = (self.turn + 1) % TURNS;
    }

    /// What the request of a turn reads and writes, for each state.
    pub(crate) fn of_turn(&self, turn: usize) -> impl Iterator<Item = [&Buffer; TURNS]> {
        let states = self.states.iter();
        states.map(move |kept| std::array::from_fn(|at| &kept.buffers[(turn + at) % TURNS]))
    }
}

fn buffers(
    device: &Device,
    prepared: &PreparedModel,
    state: &State,
) -> Result<Option<[Buffer; TURNS]>, Error> {
    let role = |index: usize| BufferRole {
        model_index: 0,
        io_index: index as u32,
        frequency: 1.0,
    };
    let allocate = || {
        let description = BufferDesc::default();
        device.allocate(
            &description,
            &[prepared],
            &[role(state.input)],
            &[role(state.output)],
        )
    };
    match allocate().and_then(|first| Ok([first, allocate()?])) {
        Ok(buffers) => Ok(Some(buffers)),
        Err(error) if is_without(error.status()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a device says so that it has no buffers, or no more of them, which it need not have.
fn is_without(status: ErrorStatus) -> bool {
    matches!(
        status,
        ErrorStatus::GeneralFailure
            | ErrorStatus::ResourceExhaustedTransient
            | ErrorStatus::ResourceExhaustedPersistent
    )
}
