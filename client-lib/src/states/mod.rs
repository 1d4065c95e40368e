//! States of a model in buffers of its device: what one execution gives is there for the next, and nobody
//! copies it.

mod copy;
mod stateful;

pub use self::copy::StatesCopy;
use self::copy::expect_size;
pub use self::stateful::{StatefulModel, StatefulOptions};

use nnhal_hal::{BufferDesc, BufferRole};
use nnhal_tflite::State;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::prepared_model::PreparedModel;
use crate::request::Request;

/// The states of a model, in buffers of its device. [`StatefulModel`] executes with them; this is for
/// programs that make their requests themselves.
///
/// Each state has two buffers, since no execution may write what it reads. So requests take turns: one reads
/// what the other has written. An execution that fails leaves the states as they were.
///
/// ```no_run
/// # use nnhal_client::{Device, ExecuteOptions, Memory, PrepareOptions, Request, States, TfliteModel};
/// # fn example(device: &Device, memory: &Memory) -> nnhal_client::Result<()> {
/// let file = TfliteModel::load("counter.tflite")?;
/// let prepared = device.prepare(&file.model, &PrepareOptions::new())?;
/// let mut states = States::allocate(device, &prepared, &file.states)?;
/// let own = Request::new().input(memory, 0..4).output(memory, 4..8);
/// let requests = [0, 1].map(|turn| states.bind(own.clone(), turn));
/// for _ in 0..1000 {
///     prepared.execute(&requests[states.turn()], &ExecuteOptions::new())?;
///     states.end_turn();
/// }
/// let sum = states.value("sum")?;
/// # Ok(())
/// # }
/// ```
///
/// The buffers are in the worker and die with it. Then every call here fails, and says which process died;
/// [`States::copy`] is what can be carried to another worker ([`States::restore`]).
#[derive(Debug)]
pub struct States {
    all: Vec<Kept>,
    turn: usize,
}

/// One state.
#[derive(Debug)]
struct Kept {
    state: State,
    /// Through which its value goes in and out.
    memory: Memory,
    /// Those that the requests of the turns read.
    buffers: [Buffer; States::TURNS],
}

impl States {
    /// How many requests take turns.
    pub const TURNS: usize = 2;

    /// Buffers of `device` for these states of what was prepared there, with their initial values.
    ///
    /// # Errors
    /// The device has no buffers, or no more of them; the size of a state is not known; there is no memory.
    pub fn allocate(device: &Device, prepared: &PreparedModel, states: &[State]) -> Result<States> {
        let all = states.iter().map(|state| Kept::allocate(device, prepared, state));
        let mut states = States {
            all: all.collect::<Result<_>>()?,
            turn: 0,
        };
        states.reset()?;
        Ok(states)
    }

    /// Gives every state its initial value.
    ///
    /// # Errors
    /// What keeps the worker from answering. Then the states are not to be used before this has succeeded.
    pub fn reset(&mut self) -> Result<()> {
        let mut all = self.all.iter();
        all.try_for_each(|kept| kept.put(self.turn, &kept.state.initial))
    }

    /// The states, in the order in which they are the model's last inputs and outputs.
    pub fn states(&self) -> impl ExactSizeIterator<Item = &State> {
        self.all.iter().map(|kept| &kept.state)
    }

    /// Which of the requests is the next.
    #[must_use]
    #[inline]
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// To be called when that has succeeded.
    #[inline]
    pub fn end_turn(&mut self) {
        self.turn = (self.turn + 1) % States::TURNS;
    }

    /// A request with the states of a turn behind its own inputs and outputs.
    #[must_use]
    pub fn bind(&self, request: Request, turn: usize) -> Request {
        self.all.iter().fold(request, |request, kept| {
            let [read, written] = [0, 1].map(|at| &kept.buffers[(turn + at) % States::TURNS]);
            request.input_buffer(read).output_buffer(written)
        })
    }

    /// The value of the state with this name, as the operand's bytes.
    ///
    /// # Errors
    /// No state has the name, or several have it; what keeps the worker from answering.
    pub fn value(&self, name: &str) -> Result<Vec<u8>> {
        self.find(name)?.take(self.turn)
    }

    /// Gives the state with this name a value.
    ///
    /// # Errors
    /// As [`States::value`]; the value has not the state's size. After an error of the worker's the state has
    /// no value until it is given one.
    pub fn set_value(&mut self, name: &str, value: &[u8]) -> Result<()> {
        self.find(name)?.put(self.turn, value)
    }

    /// A copy of all states in this process, which outlives the worker.
    ///
    /// # Errors
    /// What keeps the worker from answering.
    pub fn copy(&self) -> Result<StatesCopy> {
        let values = self.all.iter().map(|kept| {
            let value = kept.take(self.turn)?;
            Ok((kept.state.name.clone(), value))
        });
        Ok(StatesCopy::new(values.collect::<Result<_>>()?))
    }

    /// Gives all states the values of a copy: of these, or of the same model's states in another worker.
    ///
    /// # Errors
    /// The copy is one of other states, and nothing was changed; what keeps the worker from answering.
    pub fn restore(&mut self, copy: &StatesCopy) -> Result<()> {
        copy.expect_of(self.states())?;
        let mut values = self.all.iter().zip(copy.values());
        values.try_for_each(|(kept, (_, value))| kept.put(self.turn, value))
    }

    fn find(&self, name: &str) -> Result<&Kept> {
        let mut found = self.all.iter().filter(|kept| kept.state.name == name);
        match (found.next(), found.next()) {
            (Some(kept), None) => Ok(kept),
            (Some(_), Some(_)) => Err(Error::argument(format!(
                "several states of the model have the name {name:?}; copy all of them"
            ))),
            (None, _) => {
                let names: Vec<&str> = self.states().map(|state| &state.name[..]).collect();
                Err(Error::argument(format!(
                    "the model has no state {name:?}; it has {names:?}"
                )))
            }
        }
    }
}

impl Kept {
    fn allocate(device: &Device, prepared: &PreparedModel, state: &State) -> Result<Kept> {
        if state.initial.is_empty() {
            return Err(Error::argument(format!(
                "the size of state {:?} is not known, so that the device cannot keep it; carry it from output {} to \
                 input {}",
                state.name, state.output, state.input
            )));
        }
        let role = |index: usize| BufferRole {
            model_index: 0,
            io_index: index as u32,
            frequency: 1.0,
        };
        let roles = [[role(state.input)], [role(state.output)]];
        let buffer = || device.allocate(&BufferDesc::default(), &[prepared], &roles[0], &roles[1]);
        Ok(Kept {
            memory: Memory::new(state.initial.len() as u64)?,
            buffers: [buffer()?, buffer()?],
            state: state.clone(),
        })
    }

    /// Gives what the request of this turn reads a value.
    fn put(&self, turn: usize, value: &[u8]) -> Result<()> {
        expect_size(&self.state, value)?;
        self.memory.write_at(0, value)?;
        self.buffers[turn].copy_from(&self.memory, &[])
    }

    fn take(&self, turn: usize) -> Result<Vec<u8>> {
        self.buffers[turn].copy_to(&self.memory)?;
        let mut value = vec![0; self.state.initial.len()];
        self.memory.read_at(0, &mut value)?;
        Ok(value)
    }
}
