//! The driver's own ways, through the public API of the client library: one operation, ADD of a constant, whose result
//! is looked at.

use nnhal_client::{
    Arguments, Burst, BurstOptions, Deadline, Device, ExecuteOptions, Input, Output, PrepareOptions,
    PreparedModel,
};

use crate::models::{self, ADDEND};
use crate::other_side::patience;
use crate::{Contest, Contestant, Error, Result};

/// Bytes of one value.
const VALUE_BYTES: u32 = 4;

/// A way to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// [`Burst::run`]: a layout that the worker knows, fired again and again; small values travel in the cells, larger
    /// ones through shared memory.
    BurstRegistered,
    /// [`Burst::execute`]: every argument spelled out each time, values in shared memory.
    BurstGeneral,
    /// [`PreparedModel::execute`].
    Sync,
    /// [`PreparedModel::start`] and waiting.
    Async,
    /// [`PreparedModel::execute_fenced`] and waiting for the fence.
    Fenced,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [
        Way::BurstRegistered,
        Way::BurstGeneral,
        Way::Sync,
        Way::Async,
        Way::Fenced,
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
        }
    }

    fn is_burst(self) -> bool {
        matches!(self, Way::BurstRegistered | Way::BurstGeneral)
    }
}

/// Adds every way with one value, and bursts and messages with `payloads` bytes. Ways that the device's driver does not
/// have are left out; returns what it says of each.
///
/// # Errors
/// A model cannot be prepared.
pub fn add_all(contest: &mut Contest, device: &Device, payloads: &[u32]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for way in Way::ALL {
        let mut row = DriverRow::new(device, way, 1)?;
        match row.trip() {
            Ok(()) => contest.add(row)?,
            Err(error) => missing.push(format!("{} is left out: {error}", way.name())),
        }
    }
    for way in [Way::BurstRegistered, Way::BurstGeneral, Way::Sync] {
        for payload in payloads {
            contest.add(DriverRow::new(device, way, payload / VALUE_BYTES)?)?;
        }
    }
    Ok(missing)
}

/// One way, one size.
#[derive(Debug)]
pub struct DriverRow {
    way: Way,
    worker: u32,
    prepared: PreparedModel,
    burst: Option<Burst>,
    arguments: Arguments,
    input: Vec<f32>,
    output: Vec<f32>,
    options: ExecuteOptions,
    count: u32,
}

impl DriverRow {
    /// Prepares the model that adds to `count` values.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Device, way: Way, count: u32) -> Result<DriverRow> {
        let prepared = device.prepare(&models::add(count)?, &PrepareOptions::new())?;
        let burst = way
            .is_burst()
            .then(|| prepared.burst(&BurstOptions::new()))
            .transpose()?;
        Ok(DriverRow {
            way,
            worker: device.worker().pid,
            arguments: prepared.new_arguments()?,
            prepared,
            burst,
            input: vec![0.0; count as usize],
            output: vec![0.0; count as usize],
            options: ExecuteOptions::new(),
            count: 0,
        })
    }

    /// Executes with what is in `input` and leaves the result in `output`.
    fn execute(&mut self) -> Result<()> {
        match (self.way, &mut self.burst) {
            (Way::BurstRegistered, Some(burst)) => {
                burst.run(
                    &[Input::from(&self.input)],
                    &mut [Output::from(&mut self.output)],
                    &self.options,
                )?;
                return Ok(());
            }
            (Way::BurstGeneral, Some(burst)) => {
                self.arguments.write(0, &self.input)?;
                burst.execute(self.arguments.request(), &self.options)?;
            }
            (Way::Async, _) => {
                self.arguments.write(0, &self.input)?;
                self.prepared
                    .start(self.arguments.request(), &self.options)?
                    .wait(Deadline::NONE)?;
            }
            (Way::Fenced, _) => {
                self.arguments.write(0, &self.input)?;
                self.prepared
                    .execute_fenced(self.arguments.request(), &[], &self.options)?
                    .wait(patience())?;
            }
            _ => {
                self.arguments.write(0, &self.input)?;
                self.prepared.execute(self.arguments.request(), &self.options)?;
            }
        }
        self.arguments.read_into(0, &mut self.output)?;
        Ok(())
    }
}

impl Contestant for DriverRow {
    fn name(&self) -> &'static str {
        self.way.name()
    }

    fn payload_bytes(&self) -> u64 {
        self.input.len() as u64 * u64::from(VALUE_BYTES)
    }

    fn others(&self) -> Vec<u32> {
        vec![self.worker]
    }

    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn trip(&mut self) -> Result<()> {
        // Exact in float32.
        self.count = (self.count + 1) % 1_000_000;
        let value = self.count as f32;
        if let Some(first) = self.input.first_mut() {
            *first = value;
        }
        self.execute()?;
        if self.output.first() == Some(&(value + ADDEND)) {
            Ok(())
        } else {
            Err(Error::wrong_answer(self.way.name()))
        }
    }
}
