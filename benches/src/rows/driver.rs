//! The driver's own ways, through the public API of the client library: one operation, ADD of a constant,
//! whose result is looked at.

use nnhal::burst::FIRE_INLINE_BYTES;
use nnhal_client::{
    Arguments, Burst, BurstOptions, Deadline, Device, ExecuteOptions, FencedExecution, Input, Output,
    PrepareOptions, PreparedModel, RegisteredRequest, Request, WaitFor,
};

use crate::models::{self, ADDEND};
use crate::other_side::default_deadline;
use crate::passing::{BufferPair, Passing};
use crate::{Contest, Contestant, Error, Result};

/// Bytes of one value.
const VALUE_BYTES: usize = models::VALUE_BYTES as usize;

/// A way to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// [`Burst::run`] or [`Burst::fire`]: a layout that the worker knows, fired again and again.
    BurstRegistered,
    /// [`Burst::execute`]: every argument spelled out each time.
    BurstGeneral,
    /// [`PreparedModel::execute`].
    Sync,
    /// [`PreparedModel::start`] and waiting.
    Async,
    /// [`PreparedModel::execute_fenced`] and waiting for the fence.
    Fenced,
    /// Three of them, each waiting for the one before, and waiting for the last.
    FencedChain,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] = [
        Way::BurstRegistered,
        Way::BurstGeneral,
        Way::Sync,
        Way::Async,
        Way::Fenced,
        Way::FencedChain,
    ];

    /// The name of its rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::BurstRegistered => "burst_registered",
            Way::BurstGeneral => "burst_general",
            Way::Sync => "sync",
            Way::Async => "async",
            Way::Fenced => "fenced",
            Way::FencedChain => "fenced_chain",
        }
    }

    fn is_burst(self) -> bool {
        matches!(self, Way::BurstRegistered | Way::BurstGeneral)
    }
}

/// What is measured with each payload.
const WITH_PAYLOADS: [(Way, Passing); 11] = [
    (Way::BurstRegistered, Passing::OwnMemory),
    (Way::BurstRegistered, Passing::SharedMemory),
    (Way::BurstRegistered, Passing::DeviceBuffers),
    (Way::BurstGeneral, Passing::SharedMemory),
    (Way::BurstGeneral, Passing::DeviceBuffers),
    (Way::Sync, Passing::SharedMemory),
    (Way::Sync, Passing::DeviceBuffers),
    (Way::Async, Passing::SharedMemory),
    (Way::Async, Passing::DeviceBuffers),
    (Way::Fenced, Passing::SharedMemory),
    (Way::Fenced, Passing::DeviceBuffers),
];

/// Adds every way with one value; if there are `payloads`, also with so many bytes, by shared memory and by
/// device buffers, and registered requests with the most that their cells can carry. What the device's driver
/// does not have is left out; returns what it says of each.
///
/// Each row has a connection of its own, as if it were an application by itself: one with many models may
/// have to do without some rings.
///
/// # Errors
/// The driver cannot be connected to; a model cannot be prepared.
pub fn add_all(contest: &mut Contest, device: &Device, payloads: &[u32]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for way in Way::ALL {
        let passing = match way {
            Way::BurstRegistered => Passing::Inline,
            _ => Passing::SharedMemory,
        };
        let mut row = DriverRow::new(&device.reopen()?, (way, passing), 1)?;
        match row.begin(1) {
            Ok(()) => contest.add(row)?,
            Err(error) => missing.push(format!("{} is left out: {error}", way.name())),
        }
    }
    if !payloads.is_empty() {
        let most = (FIRE_INLINE_BYTES / VALUE_BYTES) as u32;
        contest.add(DriverRow::new(
            &device.reopen()?,
            (Way::BurstRegistered, Passing::Inline),
            most,
        )?)?;
    }
    let has_buffers = BufferPair::new(device, &prepare(device, 1)?, VALUE_BYTES as u64)
        .inspect_err(|error| missing.push(format!("{} are left out: {error}", Passing::DeviceBuffers.name())))
        .is_ok();
    for (way, passing) in WITH_PAYLOADS {
        if passing == Passing::DeviceBuffers && !has_buffers {
            continue;
        }
        for payload in payloads {
            let count = payload / models::VALUE_BYTES;
            contest.add(DriverRow::new(&device.reopen()?, (way, passing), count)?)?;
        }
    }
    Ok(missing)
}

fn prepare(device: &Device, count: u32) -> Result<PreparedModel> {
    Ok(device.prepare(&models::add(count)?, &PrepareOptions::new())?)
}

/// One way, one size.
#[derive(Debug)]
pub struct DriverRow {
    way: Way,
    passing: Passing,
    worker: u32,
    prepared: PreparedModel,
    burst: Option<Burst>,
    place: Place,
    /// What is fired, unless the burst makes it up itself.
    registered: Option<RegisteredRequest>,
    input: Vec<f32>,
    output: Vec<f32>,
    options: ExecuteOptions,
    count: u32,
}

/// Where a row's arguments are.
#[derive(Debug)]
enum Place {
    /// Here; [`Burst::run`] passes them.
    Here,
    Memory(Arguments),
    Buffers(BufferPair),
}

impl Place {
    fn request(&self) -> Option<&Request> {
        match self {
            Place::Here => None,
            Place::Memory(arguments) => Some(arguments.request()),
            Place::Buffers(buffers) => Some(buffers.request()),
        }
    }

    fn put(&mut self, values: &[f32]) -> Result<()> {
        match self {
            Place::Here => Ok(()),
            Place::Memory(arguments) => Ok(arguments.write(0, values)?),
            Place::Buffers(buffers) => buffers.set(values),
        }
    }

    fn get(&self, values: &mut [f32]) -> Result<()> {
        match self {
            Place::Here => Ok(()),
            Place::Memory(arguments) => Ok(arguments.read_into(0, values)?),
            Place::Buffers(buffers) => buffers.get(values),
        }
    }
}

impl DriverRow {
    /// Prepares the model that adds to `count` values. A registered request with values in its cells, or in
    /// own memory, is what [`Burst::run`] makes of them: which of the two depends on their number.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Device, (way, passing): (Way, Passing), count: u32) -> Result<DriverRow> {
        let prepared = prepare(device, count)?;
        let bytes = u64::from(count) * VALUE_BYTES as u64;
        let place = match passing {
            Passing::Inline | Passing::OwnMemory => Place::Here,
            Passing::SharedMemory => Place::Memory(prepared.new_arguments()?),
            Passing::DeviceBuffers => Place::Buffers(BufferPair::new(device, &prepared, bytes)?),
        };
        let mut burst = way
            .is_burst()
            .then(|| prepared.burst(&BurstOptions::new()))
            .transpose()?;
        let registered = match (way, &mut burst, place.request()) {
            (Way::BurstRegistered, Some(burst), Some(request)) => Some(burst.register(request)?),
            _ => None,
        };
        Ok(DriverRow {
            way,
            passing: match place {
                Place::Here => Passing::by_run(count as usize * VALUE_BYTES),
                _ => passing,
            },
            worker: device.worker().pid,
            prepared,
            burst,
            place,
            registered,
            input: vec![0.0; count as usize],
            output: vec![0.0; count as usize],
            options: ExecuteOptions::new(),
            count: 0,
        })
    }

    /// Executes with what is in its place.
    fn execute(&mut self) -> Result<()> {
        let Some(request) = self.place.request() else {
            return self.run();
        };
        let options = &self.options;
        match (self.way, &mut self.burst, &self.registered) {
            (Way::BurstRegistered, Some(burst), Some(registered)) => {
                burst.fire(registered, options)?;
            }
            (Way::BurstGeneral, Some(burst), _) => {
                burst.execute(request, options)?;
            }
            (Way::Async, ..) => {
                self.prepared.start(request, options)?.wait(Deadline::NONE)?;
            }
            (Way::Fenced, ..) => {
                let execution = self.prepared.execute_fenced(request, &[], options)?;
                execution.wait(default_deadline())?;
            }
            (Way::FencedChain, ..) => {
                let first = self.prepared.execute_fenced(request, &[], options)?;
                let behind = |execution: &FencedExecution| {
                    let wait_for = [WaitFor::Execution(execution)];
                    self.prepared.execute_fenced(request, &wait_for, options)
                };
                let second = behind(&first)?;
                behind(&second)?.wait(default_deadline())?;
            }
            _ => {
                self.prepared.execute(request, options)?;
            }
        }
        Ok(())
    }

    /// Executes with values that the burst passes.
    fn run(&mut self) -> Result<()> {
        let inputs = [Input::from(&self.input)];
        let outputs = &mut [Output::from(&mut self.output)];
        match &mut self.burst {
            Some(burst) => burst.run(&inputs, outputs, &self.options)?,
            None => self.prepared.run(&inputs, outputs, &self.options)?,
        };
        Ok(())
    }

    /// Executes with another input and looks at the first result.
    fn execute_and_look(&mut self) -> Result<()> {
        // Exact in float32.
        self.count = (self.count + 1) % 1_000_000;
        let value = self.count as f32;
        if let Some(first) = self.input.first_mut() {
            *first = value;
        }
        self.place.put(&self.input)?;
        self.execute()?;
        self.place.get(&mut self.output)?;
        if self.output.first() == Some(&(value + ADDEND)) {
            Ok(())
        } else {
            Err(Error::wrong_answer(self.way.name()))
        }
    }
}

impl Contestant for DriverRow {
    fn name(&self) -> &'static str {
        self.way.name()
    }

    fn payload_bytes(&self) -> u64 {
        (self.input.len() * VALUE_BYTES) as u64
    }

    fn arguments(&self) -> Option<Passing> {
        Some(self.passing)
    }

    fn others(&self) -> Vec<u32> {
        vec![self.worker]
    }

    /// Looks at what comes out, which for device buffers is not part of a trip.
    fn begin(&mut self, _: u32) -> Result<()> {
        self.execute_and_look()
    }

    fn trip(&mut self) -> Result<()> {
        match self.place {
            Place::Buffers(_) => self.execute(),
            _ => self.execute_and_look(),
        }
    }
}
