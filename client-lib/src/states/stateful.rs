//! A model with states that is called again and again.

use std::sync::Arc;

use nnhal_tflite::State;

use super::{States, StatesCopy};
use crate::arguments::Arguments;
use crate::burst::{Burst, BurstOptions, RegisteredRequest};
use crate::device::{Device, PrepareOptions};
use crate::driver_process::Death;
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{Completed, ExecuteOptions, is_given_up};
use crate::model::{ArgumentTypes, Model};
use crate::tflite::TfliteModel;
use crate::values::{Input, ListedValues, Output};

/// How a [`StatefulModel`] is used.
#[derive(Clone, Debug, Default)]
pub struct StatefulOptions {
    prepare: PrepareOptions,
    recovers: bool,
}

impl StatefulOptions {
    /// Prepared as by default; no recovery.
    #[must_use]
    pub fn new() -> StatefulOptions {
        StatefulOptions::default()
    }

    /// How the model is prepared, each time if there are several.
    #[must_use]
    pub fn prepare(mut self, options: PrepareOptions) -> StatefulOptions {
        self.prepare = options;
        self
    }

    /// Whether a call that finds the worker dead goes on in another, from the copy that was kept last
    /// ([`StatefulModel::keep_copy`]).
    #[must_use]
    pub fn recover(mut self, recovers: bool) -> StatefulOptions {
        self.recovers = recovers;
        self
    }
}

/// A model of a `.tflite` file that is called again and again, by burst, and whose states stay in the worker
/// from one call to the next. A program gives and takes the file's own inputs and outputs only.
///
/// ```no_run
/// # use nnhal_client::{Devices, ExecuteOptions, Input, Output, StatefulModel, StatefulOptions, TfliteModel};
/// # fn example(frames: &[[f32; 160]]) -> nnhal_client::Result<()> {
/// let file = TfliteModel::load("denoise.tflite")?;
/// let device = Devices::open()?.fastest()?;
/// let mut model = StatefulModel::open(&device, &file, &StatefulOptions::new().recover(true))?;
/// let mut clean = [0.0_f32; 160];
/// for frame in frames {
///     model.run(&[Input::from(frame)], &mut [Output::from(&mut clean)], &ExecuteOptions::new())?;
///     // A call that finds the worker dead from now on starts another, and nothing is lost.
///     model.keep_copy()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// States that are nowhere else are lost with the worker. They never become zeros by themselves:
///
/// - Without recovery, or without a copy, the call fails with [`ErrorKind::StatesLost`], and so does every
///   later one until [`StatefulModel::restore`] or [`StatefulModel::reset`] says how to go on.
/// - With recovery and a copy, another worker is started and the states of the copy are put there. If nothing
///   has changed them since the copy was made, the call is made again, and nobody notices. Otherwise it
///   fails with [`ErrorKind::StatesLost`] once, which says how many calls the copy has seen. The caller goes
///   on with the inputs of the calls behind it.
///
/// A call that fails for another reason leaves the states as they were.
#[derive(Debug)]
pub struct StatefulModel {
    device: Device,
    model: Model,
    states: Vec<State>,
    options: StatefulOptions,
    worker: Worker,
    /// How many calls the states have seen since they had their initial values.
    calls: u64,
    copy: Option<KeptCopy>,
}

/// What the calls go by.
#[derive(Debug)]
enum Worker {
    Lives(Box<InWorker>),
    /// The states died with it.
    Dead(Arc<Death>),
}

/// What is in the worker.
#[derive(Debug)]
struct InWorker {
    states: States,
    burst: Burst,
    /// The file's own arguments.
    types: ArgumentTypes,
    bound: Option<Bound>,
}

/// Memory for arguments of given sizes, and a request for each turn.
#[derive(Debug)]
struct Bound {
    arguments: Arguments,
    requests: [RegisteredRequest; States::TURNS],
}

#[derive(Debug)]
struct KeptCopy {
    copy: StatesCopy,
    /// How many calls it has seen.
    calls: u64,
    /// Whether the states still have these values.
    is_current: bool,
}

impl StatefulModel {
    /// Prepares the model on a device and gives its states their initial values there.
    ///
    /// # Errors
    /// As [`Device::prepare`], [`PreparedModel::burst`](crate::PreparedModel::burst) and
    /// [`States::allocate`].
    pub fn open(device: &Device, file: &TfliteModel, options: &StatefulOptions) -> Result<StatefulModel> {
        let worker = InWorker::start(device, (&file.model, &file.states), options)?;
        Ok(StatefulModel {
            device: device.clone(),
            model: file.model.clone(),
            states: file.states.clone(),
            options: options.clone(),
            worker: Worker::Lives(Box::new(worker)),
            calls: 0,
            copy: None,
        })
    }

    /// Calls the model with the file's inputs. Its states are what the call before has left.
    ///
    /// # Errors
    /// As [`Burst::run`]; [`ErrorKind::StatesLost`] if the worker died, as above.
    pub fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        if let Worker::Dead(_) = self.worker {
            self.recover()?;
        }
        let mut outcome = self.call(inputs, outputs, options);
        if let Err(error) = &outcome
            && let ErrorKind::DeadObject { death, .. } = error.kind()
        {
            self.worker = Worker::Dead(Arc::clone(death));
            self.recover()?;
            outcome = self.call(inputs, outputs, options);
        }
        outcome.map_err(|error| self.lost_by(error))
    }

    /// The device, which another worker serves after this one has died and the model has gone on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many calls the states have seen since they had their initial values.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The model's states.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The value of the state with this name, as the operand's bytes.
    ///
    /// # Errors
    /// As [`States::value`]; [`ErrorKind::StatesLost`] if the worker died.
    pub fn value(&mut self, name: &str) -> Result<Vec<u8>> {
        let value = self.in_worker()?.states.value(name);
        value.map_err(|error| self.lost_by(error))
    }

    /// Gives the state with this name a value.
    ///
    /// # Errors
    /// As [`States::set_value`]; [`ErrorKind::StatesLost`] if the worker died.
    pub fn set_value(&mut self, name: &str, value: &[u8]) -> Result<()> {
        let is_set = self.in_worker()?.states.set_value(name, value);
        // What was refused has changed nothing.
        let is_refused = |error: &Error| matches!(error.kind(), ErrorKind::Argument { .. });
        if !is_set.as_ref().is_err_and(is_refused) {
            self.states_change();
        }
        is_set.map_err(|error| self.lost_by(error))
    }

    /// A copy of all states in this process.
    ///
    /// # Errors
    /// [`ErrorKind::StatesLost`] if the worker died; what keeps it from answering.
    pub fn copy(&mut self) -> Result<StatesCopy> {
        let copy = self.in_worker()?.states.copy();
        copy.map_err(|error| self.lost_by(error))
    }

    /// The same, and keeps it: with recovery on, calls that find the worker dead go on from it.
    ///
    /// # Errors
    /// As [`StatefulModel::copy`]. The copy that was kept before stays.
    pub fn keep_copy(&mut self) -> Result<&StatesCopy> {
        let kept = KeptCopy {
            copy: self.copy()?,
            calls: self.calls,
            is_current: true,
        };
        Ok(&self.copy.insert(kept).copy)
    }

    /// Gives all states the values of a copy that has seen so many `calls`, in another worker if this one
    /// died. Keeps the copy.
    ///
    /// # Errors
    /// As [`States::restore`], and [`StatefulModel::open`] for another worker.
    pub fn restore(&mut self, copy: &StatesCopy, calls: u64) -> Result<()> {
        copy.expect_of(self.states.iter())?;
        self.put_all(|states| states.restore(copy))?;
        self.calls = calls;
        self.copy = Some(KeptCopy {
            copy: copy.clone(),
            calls,
            is_current: true,
        });
        Ok(())
    }

    /// Gives all states their initial values, in another worker if this one died. Keeps no copy.
    ///
    /// # Errors
    /// As [`States::reset`], and [`StatefulModel::open`] for another worker.
    pub fn reset(&mut self) -> Result<()> {
        self.copy = None;
        self.put_all(States::reset)?;
        self.calls = 0;
        Ok(())
    }

    fn call(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        let worker = self.in_worker()?;
        let turn = worker.states.turn();
        let completed = worker.call(inputs, outputs, options);
        // Reading the outputs may fail after the states have changed.
        if worker.states.turn() != turn {
            self.states_change();
            self.calls += 1;
        }
        completed
    }

    fn in_worker(&mut self) -> Result<&mut InWorker> {
        match &mut self.worker {
            Worker::Lives(worker) => Ok(worker),
            Worker::Dead(death) => Err(lost(&self.states, death, None)),
        }
    }

    fn states_change(&mut self) {
        if let Some(kept) = &mut self.copy {
            kept.is_current = false;
        }
    }

    /// Gives all states values, in another worker if this one died, which may be noticed only here.
    fn put_all(&mut self, put: impl Fn(&mut States) -> Result<()>) -> Result<()> {
        self.states_change();
        let mut is_noticed = matches!(self.worker, Worker::Dead(_));
        loop {
            self.begin()?;
            match put(&mut self.in_worker()?.states) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let error = self.lost_by(error);
                    if !error.is_dead_object() || std::mem::replace(&mut is_noticed, true) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Sees to it that there is a worker, whose states are not to be used before they have got values.
    fn begin(&mut self) -> Result<()> {
        if let Worker::Lives(worker) = &self.worker
            && worker.burst.model().link().ended_with().is_none()
        {
            return Ok(());
        }
        let device = self.device.reopen()?;
        let worker = InWorker::start(&device, (&self.model, &self.states), &self.options)?;
        self.device = device;
        self.worker = Worker::Lives(Box::new(worker));
        Ok(())
    }

    /// After the worker's death: goes on in another from the copy that was kept, if that is wished for.
    ///
    /// # Errors
    /// The states are lost, wholly or but for the copy; another worker could not be had.
    fn recover(&mut self) -> Result<()> {
        let Worker::Dead(death) = &self.worker else {
            return Ok(());
        };
        let death = Arc::clone(death);
        let kept = self.copy.as_ref().filter(|_| self.options.recovers);
        let Some(KeptCopy {
            copy,
            calls,
            is_current,
        }) = kept
        else {
            return Err(lost(&self.states, &death, None));
        };
        let (copy, calls, is_current) = (copy.clone(), *calls, *is_current);
        let restored = self.restore(&copy, calls);
        if let Err(error) = restored {
            // The next call tries again, with the same copy.
            self.worker = Worker::Dead(death);
            if let Some(kept) = &mut self.copy {
                kept.is_current = is_current;
            }
            return Err(error);
        }
        if is_current {
            return Ok(());
        }
        Err(lost(&self.states, &death, Some(calls)))
    }

    /// The error of a call, which is that of the lost states if the worker died.
    fn lost_by(&mut self, error: Error) -> Error {
        let ErrorKind::DeadObject { death, .. } = error.kind() else {
            return error;
        };
        let death = Arc::clone(death);
        self.worker = Worker::Dead(Arc::clone(&death));
        lost(&self.states, &death, None)
    }
}

/// The error of states that died with their worker; those of a copy that has seen so many calls are back.
fn lost(states: &[State], death: &Arc<Death>, restored: Option<u64>) -> Error {
    ErrorKind::StatesLost {
        states: states.iter().map(|state| state.name.clone()).collect(),
        death: Arc::clone(death),
        restored,
    }
    .into()
}

impl InWorker {
    fn start(
        device: &Device,
        (model, states): (&Model, &[State]),
        options: &StatefulOptions,
    ) -> Result<InWorker> {
        let prepared = device.prepare(model, &options.prepare)?;
        let ArgumentTypes {
            inputs,
            outputs,
            layouts,
        } = ArgumentTypes::of(model, device.info());
        let own = |count: usize| count.saturating_sub(states.len());
        Ok(InWorker {
            states: States::allocate(device, &prepared, states)?,
            burst: prepared.burst(&BurstOptions::new())?,
            types: ArgumentTypes {
                inputs: inputs[..own(inputs.len())].into(),
                outputs: outputs[..own(outputs.len())].into(),
                layouts,
            },
            bound: None,
        })
    }

    fn call(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        let bound = match self.bound.take() {
            Some(bound) if bound.arguments.fits(inputs, outputs) => bound,
            other => self.place(other, inputs, outputs)?,
        };
        let mut values = ListedValues { inputs, outputs };
        bound.arguments.write_all(&values)?;
        let fired = self.burst.fire(&bound.requests[self.states.turn()], options);
        // After a wait that was given up, the worker may still write to the memory: it is not used again.
        if is_given_up(&fired) {
            return fired;
        }
        let outcome = fired.and_then(|completed| {
            self.states.end_turn();
            bound.arguments.read_all(&completed, &mut values)?;
            Ok(completed)
        });
        self.bound = Some(bound);
        outcome
    }

    /// Arguments of these sizes, in place of others.
    fn place(&mut self, other: Option<Bound>, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Bound> {
        for request in other.into_iter().flat_map(|bound| bound.requests) {
            self.burst.unregister(request)?;
        }
        let arguments = Arguments::for_values(&self.types, inputs, outputs)?;
        let mut register = |turn| {
            let request = self.states.bind(arguments.request().clone(), turn);
            self.burst.register(&request)
        };
        let requests = [register(0)?, register(1)?];
        Ok(Bound { arguments, requests })
    }
}
