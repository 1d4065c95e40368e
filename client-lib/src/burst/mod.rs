//! Bursts: executions through rings in shared memory.
//!
//! [`Exchange`] sends a packet and receives its result, [`Numbers`] names what the worker keeps between
//! executions, [`RunLayout`] passes the values of one model's arguments, [`Pipeline`] knows which executions
//! are under way. A [`Burst`] puts them together.

mod exchange;
mod known_memories;
mod numbers;
mod pipeline;
mod run_layout;
mod submit;
#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use nnhal::burst::{Pool, encode_general, encode_register, encode_unregister};
use nnhal::fmq::{ChannelEnd, ChannelSize, MAX_CELLS, WaitSettings};
use nnhal::wire::{BurstHandle, Call, Object, Reply};
use nnhal_hal::RequestPool;

use self::exchange::{BurstEnd, Exchange};
use self::known_memories::KnownMemories;
use self::numbers::{Number, Numbers};
use self::pipeline::Pipeline;
pub use self::pipeline::{Finished, MAX_IN_FLIGHT, Submission};
pub(crate) use self::run_layout::LayoutName;
use self::run_layout::RunLayout;
use crate::arguments::Arguments;
use crate::connection::call_deadline;
use crate::error::{Error, Result};
use crate::execution::{Completed, ExecuteOptions, nanoseconds};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::values::{Input, ListedValues, Output, OwnValues};

/// Cells of the ring of requests: 14 KiB, for requests of hundreds of arguments. Longer ones go by the
/// control connection.
const REQUEST_CELLS: u32 = 256;

/// Cells of the ring of results: 7 KiB, for the shapes of hundreds of outputs.
const RESULT_CELLS: u32 = 128;

/// How many layouts of arguments [`Burst::run`] keeps: calls that take turns among a few sizes meet them
/// again.
const KEPT_LAYOUTS: usize = 4;

/// How a burst waits for its results.
#[derive(Clone, Copy, Debug, Default)]
pub struct BurstOptions {
    wait: Option<WaitSettings>,
    polling_window: Option<Duration>,
    in_flight: Option<u32>,
}

impl BurstOptions {
    /// Both sides poll for windows that follow the measured times, and sleep after.
    #[must_use]
    pub fn new() -> BurstOptions {
        BurstOptions::default()
    }

    /// How this process waits for results. Without it, it polls for a window that follows the measured times,
    /// at most 100 us, or twice that where being woken takes so long, and sleeps after, but for the last 200
    /// us at most of long waits that are alike; it sleeps at once if the model was prepared for low power.
    #[must_use]
    pub fn wait(mut self, settings: WaitSettings) -> BurstOptions {
        self.wait = Some(settings);
        self
    }

    /// How long the worker looks for the next request before it sleeps, at most, or each time if the driver's
    /// settings say so (`execution.polling`); never longer than the driver's own window, which it is without
    /// this.
    #[must_use]
    pub fn polling_window(mut self, window: Duration) -> BurstOptions {
        self.polling_window = Some(window);
        self
    }

    /// How many executions may be under way at once by [`Burst::submit`]: 1, NNAPI's rule, without this; at
    /// most [`MAX_IN_FLIGHT`].
    #[must_use]
    pub fn in_flight(mut self, executions: u32) -> BurstOptions {
        self.in_flight = Some(executions);
        self
    }

    /// How many executions may be under way, and the rings that hold so many.
    fn depth(&self) -> Result<(u32, ChannelSize)> {
        let depth = self.in_flight.unwrap_or(1);
        if !(1..=MAX_IN_FLIGHT).contains(&depth) {
            return Err(Error::argument(format!(
                "a burst has from 1 to {MAX_IN_FLIGHT} executions in flight, not {depth}"
            )));
        }
        let times = depth.next_power_of_two();
        let size = ChannelSize {
            outgoing: (REQUEST_CELLS * times).min(MAX_CELLS),
            incoming: (RESULT_CELLS * times).min(MAX_CELLS),
        };
        Ok((depth, size))
    }
}

/// Executions of one prepared model, one after the other, through rings in shared memory: while both
/// processes are awake an execution costs a cache line each way, no system call and no allocation. The role
/// of the HAL's `IBurstContext`.
///
/// A thread of the worker serves it, and one thread of this process uses it at a time. Several bursts of one
/// model run side by side.
///
/// An execution whose wait was given up ([`ExecuteOptions::wait_at_most`]) runs on in the worker, and the
/// next one waits for it; give the driver a deadline too ([`ExecuteOptions::deadline`]) to have it end early.
///
/// ```no_run
/// # use nnhal_client::{BurstOptions, ExecuteOptions, Input, Output, PreparedModel, Result};
/// # fn example(prepared: &PreparedModel) -> Result<()> {
/// let mut burst = prepared.burst(&BurstOptions::new())?;
/// let mut sum = [0.0_f32; 4];
/// for step in 0..1000 {
///     let values = [step as f32; 4];
///     burst.run(
///         &[Input::from(&values)],
///         &mut [Output::from(&mut sum)],
///         &ExecuteOptions::new(),
///     )?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Burst {
    handle: BurstHandle,
    exchange: Exchange,
    /// The pools of the request that is being sent.
    pools: Vec<Pool>,
    memories: KnownMemories,
    numbers: Arc<Numbers>,
    /// The one that was used last is the last.
    layouts: Vec<RunLayout>,
    pipeline: Pipeline,
}

/// A request that a burst's worker knows, so that executing it again takes one cell. Made by
/// [`Burst::register`]. Its memories stay alive as long as it does.
#[derive(Debug)]
pub struct RegisteredRequest {
    /// `None` for a request that no ring can carry.
    number: Option<Number>,
    /// Those of its burst.
    numbers: Arc<Numbers>,
    request: Request,
}

impl RegisteredRequest {
    /// The request.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }
}

impl PreparedModel {
    /// HAL `configureExecutionBurst`: a burst that executes this model.
    ///
    /// # Errors
    /// The driver has no room for another burst; the system has no memory or descriptors.
    pub fn burst(&self, options: &BurstOptions) -> Result<Burst> {
        let (depth, size) = options.depth()?;
        let wait = options.wait.unwrap_or_else(|| self.wait_settings());
        let (end, memory) =
            ChannelEnd::create(size, wait).map_err(Error::ring("make the rings of a burst"))?;
        let connection = self.connection();
        let call = Call::ConfigureBurst {
            prepared_model: self.handle_on(connection)?,
            polling_window_ns: options.polling_window.map(nanoseconds),
        };
        let (name, link) = (call.name(), connection.link());
        let handle = match link.call(call, &[memory.as_fd()], call_deadline())? {
            (Reply::Burst(handle), _) => handle,
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        let burst_end = Arc::new(BurstEnd {
            closer: end.closer.clone(),
        });
        let listener: Weak<BurstEnd> = Arc::downgrade(&burst_end);
        link.on_end(listener);
        Ok(Burst {
            handle,
            exchange: Exchange::new(self, end, burst_end),
            pools: Vec::new(),
            memories: KnownMemories::default(),
            numbers: Arc::default(),
            layouts: Vec::with_capacity(KEPT_LAYOUTS),
            pipeline: Pipeline::new(depth),
        })
    }
}

impl Burst {
    /// The model that it executes.
    #[must_use]
    pub fn model(&self) -> &PreparedModel {
        self.exchange.model()
    }

    /// Executes a request and waits for the end. A request that no ring can carry is executed all the same,
    /// by the control connection: one that is too long, one with a time limit for loops.
    ///
    /// # Errors
    /// As [`PreparedModel::execute`].
    pub fn execute(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Completed> {
        let hal = request.checked()?;
        self.pipeline.expect_idle()?;
        if options.loop_timeout.is_some() || !self.name_pools(request)? {
            return self.model().execute(request, options);
        }
        let header = self.exchange.next_header(options);
        encode_general(&mut self.exchange.buffer, &header, hal, &self.pools, &[]);
        if !self.exchange.can_carry() {
            return self.model().execute(request, options);
        }
        let result = self.exchange.send_and_receive(&header, options)?;
        self.exchange.complete(result.header)
    }

    /// Tells the worker a request once, so that executing it again is short. A burst knows at most
    /// [`nnhal::burst::MAX_REGISTERED`] of them. Dropping one frees its number, [`Burst::unregister`] what
    /// the worker holds too.
    ///
    /// # Errors
    /// What is wrong with the request, as far as it can be told without its bytes; too many are registered.
    pub fn register(&mut self, request: &Request) -> Result<RegisteredRequest> {
        let hal = request.checked()?;
        self.pipeline.expect_idle()?;
        let number = if self.name_pools(request)? {
            self.register_hal(hal)?
        } else {
            None
        };
        Ok(RegisteredRequest {
            number,
            numbers: Arc::clone(&self.numbers),
            request: request.clone(),
        })
    }

    /// Executes a registered request and waits for the end.
    ///
    /// # Errors
    /// As [`PreparedModel::execute`]; the request is registered with another burst.
    #[inline]
    pub fn fire(&mut self, registered: &RegisteredRequest, options: &ExecuteOptions) -> Result<Completed> {
        self.expect_own(registered)?;
        self.pipeline.expect_idle()?;
        match &registered.number {
            Some(number) if options.loop_timeout.is_none() => {
                let header = self.exchange.encode_fire(number.value(), options);
                let result = self.exchange.send_and_receive(&header, options)?;
                self.exchange.complete(result.header)
            }
            _ => self.model().execute(&registered.request, options),
        }
    }

    /// Has the worker forget a registered request.
    ///
    /// # Errors
    /// The request is registered with another burst; what keeps the worker from answering.
    pub fn unregister(&mut self, registered: RegisteredRequest) -> Result<()> {
        self.expect_own(&registered)?;
        self.pipeline.expect_idle()?;
        match registered.number {
            Some(number) => self.forget(number),
            None => Ok(()),
        }
    }

    /// Executes with inputs and outputs in this process's own memory: [`PreparedModel::run`] by burst. Values
    /// of the same sizes as before are passed by a layout that the worker knows: small ones inside the cells
    /// of the rings, larger ones through shared memory that is kept.
    ///
    /// # Errors
    /// As [`PreparedModel::run`].
    pub fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        Ok(self.run_by_layout(inputs, outputs, options)?.0)
    }

    /// The same; also gives the name of the layout by which the values were passed, if there was one.
    #[inline]
    pub(crate) fn run_by_layout(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<(Completed, Option<LayoutName>)> {
        // Before anything is written: a forked child has the memory in common with its parent.
        self.model().link().check_process()?;
        self.pipeline.expect_idle()?;
        if options.loop_timeout.is_none() && self.choose_layout(inputs, outputs)? {
            let values = &mut ListedValues { inputs, outputs };
            if let Some((name, result)) = self.run_last(values, options) {
                return Ok((result?, Some(name)));
            }
        }
        Ok((self.model().run(inputs, outputs, options)?, None))
    }

    /// Executes with values for this layout; `None` if the burst does not keep it any more.
    #[cfg(feature = "runtime")]
    pub(crate) fn run_again(
        &mut self,
        layout: LayoutName,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
    ) -> Option<Result<Completed>> {
        if options.loop_timeout.is_some() {
            return None;
        }
        let index = self.layouts.iter().rposition(|kept| kept.name() == layout)?;
        let is_ready = self
            .model()
            .link()
            .check_process()
            .and_then(|()| self.pipeline.expect_idle())
            .and_then(|()| self.layouts[index].expect_sizes(values));
        if let Err(error) = is_ready {
            return Some(Err(error));
        }
        self.use_layout(index);
        self.run_last(values, options).map(|(_, result)| result)
    }

    /// Makes a layout that these values fit the last one; `false` if no ring can carry any.
    #[inline]
    fn choose_layout(&mut self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<bool> {
        let kept = self
            .layouts
            .iter()
            .rposition(|layout| layout.fits(inputs, outputs));
        match kept {
            Some(index) => self.use_layout(index),
            None => match self.new_layout(inputs, outputs)? {
                Some(layout) => self.layouts.push(layout),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Makes a layout the last one.
    #[inline]
    fn use_layout(&mut self, index: usize) {
        if index + 1 < self.layouts.len() {
            self.layouts[index..].rotate_left(1);
        }
    }

    /// Executes with values for the last layout, if there is one.
    #[inline]
    fn run_last(
        &mut self,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
    ) -> Option<(LayoutName, Result<Completed>)> {
        let layout = self.layouts.last_mut()?;
        let name = layout.name();
        let result = layout.run(&mut self.exchange, values, options);
        // After a wait that was given up, the worker may still write to the memory: it is not used again.
        // What is wrong with an argument is found before anything is sent, or after the end.
        if matches!(&result, Err(error) if error.failure().is_none() && !error.is_argument()) {
            self.layouts.pop();
        }
        Some((name, result))
    }

    /// A layout for values of these sizes; `None` if no ring can carry it.
    #[cold]
    fn new_layout(&mut self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Option<RunLayout>> {
        let arguments = Arguments::for_values(self.model().types()?, inputs, outputs)?;
        if self.layouts.len() == KEPT_LAYOUTS {
            let oldest = self.layouts.remove(0);
            self.forget(oldest.into_number())?;
        }
        let model = self.exchange.model();
        let memory = self.memories.handle(arguments.memory(), model.connection())?;
        let planned = run_layout::plan(&arguments, memory);
        self.pools.clone_from(&planned.pools);
        let number = self.register_hal(&planned.request)?;
        Ok(number.map(|number| RunLayout::new(arguments, number, &planned)))
    }

    /// Fills `pools` with those of a request; `false` if no ring can carry them.
    fn name_pools(&mut self, request: &Request) -> Result<bool> {
        self.pools.clear();
        let connection = self.exchange.model().connection();
        let mut memories = request.memories().iter();
        request.expect_buffers_of(connection)?;
        for pool in &request.hal().pools {
            self.pools.push(match *pool {
                RequestPool::Token(token) => Pool::Buffer(token),
                RequestPool::Memory { .. } => {
                    let Some(memory) = memories.next() else {
                        return Ok(false);
                    };
                    Pool::Memory(self.memories.handle(memory, connection)?)
                }
            });
        }
        Ok(true)
    }

    /// Has the worker keep a request, whose pools are in `pools`; `None` if it is too long for the ring.
    fn register_hal(&mut self, request: &nnhal_hal::Request) -> Result<Option<Number>> {
        let number = Numbers::take(&self.numbers)?;
        let (header, options) = self.exchange.next_header_of_message();
        encode_register(
            &mut self.exchange.buffer,
            header.sequence,
            number.value(),
            request,
            &self.pools,
        );
        if !self.exchange.can_carry() {
            return Ok(None);
        }
        let result = self.exchange.send_and_receive(&header, &options)?;
        self.exchange.complete(result.header)?;
        Ok(Some(number))
    }

    fn forget(&mut self, number: Number) -> Result<()> {
        let (header, options) = self.exchange.next_header_of_message();
        encode_unregister(&mut self.exchange.buffer, header.sequence, number.value());
        let result = self.exchange.send_and_receive(&header, &options)?;
        self.exchange.complete(result.header)?;
        Ok(())
    }

    #[inline]
    fn expect_own(&self, registered: &RegisteredRequest) -> Result<()> {
        if Arc::ptr_eq(&registered.numbers, &self.numbers) {
            Ok(())
        } else {
            Err(Error::argument("the request is registered with another burst"))
        }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.exchange.model().link().release(Object::Burst(self.handle));
    }
}
