//! The memory of a second client that prepares the model that another client has prepared.

use std::path::Path;
use std::time::{Duration, Instant};

use nnhal_bench::machine::private_kib;
use nnhal_bench::{Error, Result, program};
use nnhal_client::{
    Device, ExecuteOptions, Memory, PrepareOptions, PreparedModel, Request, TensorType, TfliteModel,
};
use nnhal_hal::{Shape, TypeLayouts};
use serde::Serialize;

use super::cost::model_name;

/// Memory of executions is given back soon: what is measured is what stays.
const AT_REST: &str = "[execution]\nidle_release_ms = 200\n";

/// How long a worker's memory must stay the same to be taken for at rest.
const REST: Duration = Duration::from_millis(700);
/// How long it may take for that.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Alignment of arguments in their memory.
const ALIGNMENT: u64 = 64;

/// What a model's second client costs beside its first. Private memory is what a process shares with no
/// other.
#[derive(Debug, Serialize)]
pub(super) struct Shares {
    model: String,
    /// Private memory of a worker that shares no weights, after an execution.
    alone_kib: u64,
    /// Private memory of the worker of the first of two clients that share.
    first_kib: u64,
    /// Private memory of the worker of the second.
    second_kib: u64,
}

impl Shares {
    pub(super) fn line(&self) -> String {
        let Shares {
            model,
            alone_kib,
            first_kib,
            second_kib,
        } = self;
        let share = *second_kib as f64 / (*alone_kib).max(1) as f64 * 100.0;
        format!(
            "{:<60} {second_kib:>7} KiB, {share:.1} % of the {alone_kib} KiB of one alone (the first: {first_kib} KiB)",
            format!("{model}: private memory of a second client")
        )
    }
}

/// Measures it for the model of a file.
pub(super) fn shares(path: &Path) -> Result<Shares> {
    let alone_kib = {
        let devices = driver(&format!("{AT_REST}[weights]\nshare = false\n"))?;
        let client = Client::new(devices.fastest()?, path)?;
        client.kib_at_rest()?
    };
    let devices = driver(AT_REST)?;
    let first = Client::new(devices.fastest()?, path)?;
    let second = Client::new(devices.fastest()?, path)?;
    let second_kib = second.kib_at_rest()?;
    Ok(Shares {
        model: model_name(path),
        alone_kib,
        first_kib: first.kib_at_rest()?,
        second_kib,
    })
}

fn driver(settings: &str) -> Result<nnhal_client::Devices> {
    let mut file = tempfile::NamedTempFile::new().map_err(Error::io("make a settings file"))?;
    std::io::Write::write_all(&mut file, settings.as_bytes()).map_err(Error::io("write the settings"))?;
    let devices = program::own_driver_with(Some(file.path()))?;
    // The driver has read the file once the first connection is there.
    devices.fastest()?;
    Ok(devices)
}

/// A client that has executed the model once.
struct Client {
    device: Device,
    _prepared: PreparedModel,
}

impl Client {
    fn new(device: Device, path: &Path) -> Result<Client> {
        // Constants in memory of its own, as an application that has just read its model, which it does not
        // need afterwards.
        let model = TfliteModel::load(path)?.model;
        let prepared = device.prepare(&model, &PrepareOptions::new())?;
        execute(&prepared)?;
        Ok(Client {
            device,
            _prepared: prepared,
        })
    }

    /// The private memory of its worker, once it does not change any more.
    fn kib_at_rest(&self) -> Result<u64> {
        let gone = || Error::Row {
            what: "a second client".to_owned(),
            reason: "the worker's memory cannot be read".to_owned(),
        };
        let pid = self.device.worker().pid;
        let start = Instant::now();
        let mut last = private_kib(pid).ok_or_else(gone)?;
        let mut since = Instant::now();
        while since.elapsed() < REST && start.elapsed() < TIMEOUT {
            std::thread::park_timeout(REST / 10);
            let now = private_kib(pid).ok_or_else(gone)?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

/// One execution with zeros as inputs.
fn execute(prepared: &PreparedModel) -> Result<()> {
    let sizes = |types: &[TensorType]| -> Result<Vec<u64>> {
        let size = |ty: &TensorType| {
            let shape = Shape::new(ty.dimensions()).ok()?;
            let bytes = TypeLayouts::default().byte_size(ty.operand_type(), &shape)?;
            (bytes > 0).then_some(bytes as u64)
        };
        let unknown = || Error::Row {
            what: "a second client".to_owned(),
            reason: "the model leaves the size of an input or output open".to_owned(),
        };
        types.iter().map(|ty| size(ty).ok_or_else(unknown)).collect()
    };
    let (inputs, outputs) = (sizes(prepared.inputs())?, sizes(prepared.outputs())?);
    let padded = |size: &u64| size.next_multiple_of(ALIGNMENT);
    let memory = Memory::new(inputs.iter().chain(&outputs).map(padded).sum())?;
    let mut request = Request::new();
    let mut at = 0;
    let mut next = |size: u64| {
        let start = at;
        at += padded(&size);
        start..start + size
    };
    for size in inputs {
        request = request.input(&memory, next(size));
    }
    for size in outputs {
        request = request.output(&memory, next(size));
    }
    prepared.execute(&request, &ExecuteOptions::new())?;
    Ok(())
}
