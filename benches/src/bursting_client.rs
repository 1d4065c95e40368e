//! An application as others see it: a process with a connection, a worker and a burst of its own, which
//! executes as fast as it can for as long as it is told.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nnhal_client::{
    Burst, BurstOptions, Device, DevicesOptions, ExecuteOptions, Input, Output, PrepareOptions,
};
use serde::{Deserialize, Serialize};

use crate::other_side::{Caller, Role};
use crate::{Error, Result, models};

/// Such a process. It is set up with a [`Task`] in JSON; each of its rounds lasts so many milliseconds, and
/// ends with what it has [`Seen`], in JSON.
pub const ROLE: Role = ("client", execute);

/// What a client is told to begin with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Where the driver publishes its devices.
    pub directory: PathBuf,
    /// The name of the device.
    pub device: String,
    /// How many values each execution adds.
    pub values: u32,
}

/// What a client has seen in a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// How many executions there were.
    pub executions: u64,
    /// How long one took, the median in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Task {
    /// What the device that was opened needs of its clients.
    #[must_use]
    pub fn new(device: &Device, values: u32) -> Task {
        Task {
            directory: device.runtime_dir().to_owned(),
            device: device.name().to_owned(),
            values,
        }
    }

    /// The task in JSON.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::row("task"))
    }

    /// The task in these bytes.
    ///
    /// # Errors
    /// They hold none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Task> {
        serde_json::from_slice(bytes).map_err(Error::row("task"))
    }

    /// Connects.
    ///
    /// # Errors
    /// The client's.
    pub fn open(&self) -> Result<Subject> {
        let device = DevicesOptions::new()
            .runtime_dir(&self.directory)
            .open()?
            .device(&self.device)?;
        let prepared = device.prepare(&models::add(self.values)?, &PrepareOptions::new())?;
        Ok(Subject {
            burst: prepared.burst(&BurstOptions::new())?,
            device,
            input: vec![1.0; self.values as usize],
            output: vec![0.0; self.values as usize],
        })
    }
}

/// A connection with a burst.
#[derive(Debug)]
pub struct Subject {
    device: Device,
    burst: Burst,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl Subject {
    /// The process that serves it.
    #[must_use]
    pub fn worker(&self) -> u32 {
        self.device.worker().pid
    }

    /// Executes once.
    ///
    /// # Errors
    /// The client's.
    pub fn execute(&mut self) -> std::result::Result<(), nnhal_client::Error> {
        let outputs = &mut [Output::from(&mut self.output)];
        self.burst
            .run(&[Input::from(&self.input)], outputs, &ExecuteOptions::new())?;
        Ok(())
    }
}

impl Seen {
    /// What [`ROLE`] said at the end of a round.
    ///
    /// # Errors
    /// That is not what it said.
    pub fn from_bytes(bytes: &[u8]) -> Result<Seen> {
        serde_json::from_slice(bytes).map_err(Error::row("client"))
    }
}

fn execute() -> Result<()> {
    let (caller, setup) = Caller::setup()?;
    let mut subject = Task::from_bytes(&setup.bytes)?.open()?;
    caller.serve(|millis| {
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).map_err(Error::row("histogram"))?;
        let end = Instant::now() + Duration::from_millis(u64::from(millis));
        let mut last = Instant::now();
        while last < end {
            subject.execute()?;
            let now = Instant::now();
            histogram.saturating_record(now.duration_since(last).as_nanos() as u64);
            last = now;
        }
        let seen = Seen {
            executions: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        };
        caller.send(&serde_json::to_vec(&seen).map_err(Error::row("client"))?)
    })
}
