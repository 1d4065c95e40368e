//! Bursts: executions through rings in shared memory.
//!
//! [`Exchange`] sends a packet and receives its result, a [`RegisteredRequest`] is what the worker keeps
//! between executions and passes the values of its arguments, [`Pipeline`] knows which executions are under
//! way. A [`Burst`] puts them together.

mod exchange;
mod found_valid;
mod kept_for_values;
mod memory_names;
mod own_values;
mod pipeline;
mod registered;
mod start;
mod submit;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use nnhal::burst::{
    Fencing, MAX_DETAIL_BYTES, Pool, encode_general, encode_register, encode_register_fenced,
    encode_unregister,
};
use nnhal::fmq::{ChannelEnd, ChannelSize, Consumer, MAX_CELLS, PAYLOAD_BYTES, WaitSettings};
use nnhal::wire::{BurstHandle, Call, Object, Reply};
use nnhal_hal::RequestPool;
use nnhal_os::time::Deadline;

use self::exchange::{BurstEnd, Exchange};
use self::found_valid::{FoundValid, Held};
use self::kept_for_values::KeptForValues;
use self::memory_names::MemoryNames;
use self::pipeline::Pipeline;
pub use self::pipeline::{Completion, MAX_IN_FLIGHT, Submission};
pub use self::registered::RegisteredRequest;
use self::registered::{Number, Numbers};
use crate::error::{Error, Result};
use crate::execution::{Completed, ExecuteOptions, nanoseconds};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::timeouts::Timeouts;
use crate::values::OwnValues;

/// Cells of the ring of requests: 14 KiB, for requests of hundreds of arguments. Longer ones go by the
/// control connection.
const REQUEST_CELLS: u32 = 256;

/// Cells of the ring of results: 7 KiB, for the shapes of hundreds of outputs.
const RESULT_CELLS: u32 = 128;

/// How many fenced executions wait for each other on one ring, whose longest results find room in it.
const FENCED_IN_FLIGHT: u32 = 4;

const _: () = {
    let longest = MAX_DETAIL_BYTES + 2 * PAYLOAD_BYTES;
    assert!(FENCED_IN_FLIGHT as usize * longest.div_ceil(PAYLOAD_BYTES) <= RESULT_CELLS as usize);
};

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
    /// at most 100 us, or twice that where being woken takes so long. Then it sleeps, but for the last 200 us
    /// at most of long waits that are alike. It sleeps at once if the model was prepared for low power.
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
    memories: MemoryNames,
    numbers: Arc<Numbers>,
    values: KeptForValues,
    /// Requests that were started before. The one that was started last is the last.
    found_valid: Vec<FoundValid>,
    /// What the executions use that were started, the oldest first.
    held: VecDeque<Held>,
    pipeline: Pipeline,
}

impl PreparedModel {
    /// HAL `configureExecutionBurst`: a burst that executes this model.
    ///
    /// # Errors
    /// The driver has no room for another burst; the system has no memory or descriptors.
    pub fn burst(&self, options: &BurstOptions) -> Result<Burst> {
        let open = || Burst::open(self, options, "the burst execution");
        match open() {
            // What this library keeps by itself is in the way, perhaps.
            Err(error) if error.failure().is_some() && self.executors().clear() => open(),
            opened => opened,
        }
    }
}

impl Burst {
    /// A burst of this model, whose executions messages call `name`.
    pub(crate) fn open(model: &PreparedModel, options: &BurstOptions, name: &'static str) -> Result<Burst> {
        let (depth, size) = options.depth()?;
        let wait = options.wait.unwrap_or_else(|| model.wait_settings());
        let (end, memory) =
            ChannelEnd::create(size, wait).map_err(Error::ring("make the rings of a burst"))?;
        let connection = model.connection();
        let call = Call::ConfigureBurst {
            prepared_model: model.handle_on(connection)?,
            polling_window_ns: options.polling_window.map(nanoseconds),
        };
        let (call_name, link) = (call.name(), connection.link());
        let handle = match link.call(call, &[memory.as_fd()])? {
            (Reply::Burst(handle), _) => handle,
            (other, _) => return Err(link.misplaced(call_name, &other)),
        };
        let burst_end = Arc::new(BurstEnd {
            closer: end.closer.clone(),
        });
        let listener: Weak<BurstEnd> = Arc::downgrade(&burst_end);
        link.on_end(listener);
        Ok(Burst {
            handle,
            exchange: Exchange::new(model, (name, handle), end, burst_end),
            pools: Vec::new(),
            memories: MemoryNames::default(),
            numbers: Arc::default(),
            values: KeptForValues::default(),
            found_valid: Vec::new(),
            held: VecDeque::new(),
            pipeline: Pipeline::new(depth),
        })
    }

    /// One that this library makes of itself. Several fenced executions may be under way on it: a cell is
    /// enough for each, and the text of a failure is the longest result that one has.
    pub(crate) fn open_executor(model: &PreparedModel, name: &'static str) -> Result<Burst> {
        let mut burst = Burst::open(model, &BurstOptions::new(), name)?;
        burst.pipeline = Pipeline::new(FENCED_IN_FLIGHT);
        Ok(burst)
    }

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
        self.expect_idle(|_| options.wait_deadline())?;
        if options.loop_timeout.is_some() || !self.name_pools(request)? {
            return self.model().execute_by_message(request, options);
        }
        let header = self.exchange.next_header(options);
        encode_general(&mut self.exchange.buffer, &header, hal, &self.pools, &[]);
        if !self.exchange.can_carry() {
            return self.model().execute_by_message(request, options);
        }
        let result = self.exchange.send_and_receive(&header, options.wait_deadline())?;
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
        self.expect_idle(Timeouts::call_deadline)?;
        let number = if self.name_pools(request)? {
            self.register_hal(hal)?
        } else {
            None
        };
        Ok(RegisteredRequest::in_place(
            number,
            &self.numbers,
            request.clone(),
        ))
    }

    /// Executes a registered request and waits for the end.
    ///
    /// # Errors
    /// As [`PreparedModel::execute`]; the request is registered with another burst.
    #[inline]
    pub fn fire(&mut self, registered: &RegisteredRequest, options: &ExecuteOptions) -> Result<Completed> {
        self.fire_with(registered, &mut (), options)
    }

    /// The same, with the values of a request whose values are in this process's own memory; of those no loop
    /// can have a time limit.
    #[inline]
    pub(crate) fn fire_with(
        &mut self,
        registered: &RegisteredRequest,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        self.expect_own(registered)?;
        self.expect_idle(|_| options.wait_deadline())?;
        let number = registered.number();
        let Some(number) = number.filter(|_| options.loop_timeout.is_none()) else {
            return self.model().execute_by_message(registered.request(), options);
        };
        if registered.has_own_values() {
            // Before anything is written: a forked child has the memory in common with its parent.
            self.model().link().check_process()?;
        }
        let header = self.exchange.next_header(options);
        registered.encode(number, &header, values, &mut self.exchange.buffer)?;
        let received = self.exchange.send_and_receive(&header, options.wait_deadline())?;
        let completed = self.exchange.complete(received.header)?;
        registered.read_outputs(&self.exchange, (&received, &completed), values)?;
        Ok(completed)
    }

    /// Has the worker forget a registered request.
    ///
    /// # Errors
    /// The request is registered with another burst; what keeps the worker from answering.
    pub fn unregister(&mut self, registered: RegisteredRequest) -> Result<()> {
        self.expect_own(&registered)?;
        self.expect_idle(Timeouts::call_deadline)?;
        match registered.into_number() {
            Some(number) => self.forget(number),
            None => Ok(()),
        }
    }

    /// Whether a request is registered with this burst.
    #[cfg(feature = "runtime")]
    #[inline]
    pub(crate) fn has_registered(&self, registered: &RegisteredRequest) -> bool {
        registered.is_of(&self.numbers)
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
        let is_registered = self.register_as(&number, request, Fencing::No)?;
        Ok(is_registered.then_some(number))
    }

    /// The same under a number, in place of what has it; `false` if it is too long.
    fn register_as(
        &mut self,
        number: &Number,
        request: &nnhal_hal::Request,
        fencing: Fencing,
    ) -> Result<bool> {
        let (header, deadline) = self.exchange.next_header_of_message();
        let encode = match fencing {
            Fencing::No => encode_register,
            Fencing::Fenced | Fencing::Behind => encode_register_fenced,
        };
        encode(
            &mut self.exchange.buffer,
            header.sequence,
            number.value,
            request,
            &self.pools,
        );
        if !self.exchange.can_carry() {
            return Ok(false);
        }
        let result = self.exchange.send_and_receive(&header, deadline)?;
        self.exchange.complete(result.header)?;
        Ok(true)
    }

    fn forget(&mut self, number: Number) -> Result<()> {
        let (header, deadline) = self.exchange.next_header_of_message();
        encode_unregister(&mut self.exchange.buffer, header.sequence, number.value);
        let result = self.exchange.send_and_receive(&header, deadline)?;
        self.exchange.complete(result.header)?;
        Ok(())
    }

    /// Where the results come from.
    pub(crate) fn consumer(&self) -> Option<&Consumer> {
        self.exchange.consumer()
    }

    /// The same, to be used.
    pub(crate) fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        self.exchange.consumer_mut()
    }

    /// Refuses while executions that were submitted are under way, and waits by a deadline for the end of one
    /// whose wait was given up.
    #[inline]
    fn expect_idle(&mut self, deadline: impl FnOnce(&Timeouts) -> Deadline) -> Result<()> {
        self.pipeline.expect_idle()?;
        self.exchange.await_given_up(deadline)
    }

    #[inline]
    fn expect_own(&self, registered: &RegisteredRequest) -> Result<()> {
        if registered.is_of(&self.numbers) {
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
