//! Entry points for fuzzing, for the tests of this crate and for cargo-fuzz alone: what a client reads of its
//! worker.

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal::fmq::{ChannelEnd, Consumer, WaitSettings};
use nnhal::wire::handshake::{self, VERSIONS};
use nnhal::wire::{self, Call, Envelope, ExecutionResult, Handle, Inbox, Message, Reply, Welcome};
use nnhal_conformance::fuzzing::seeds;
use nnhal_hal::{
    Capabilities, DeviceInfo, DeviceStatus, DeviceType, ExecutionPreference, HalVersion, NumberOfCacheFiles,
    PerformanceInfo, Timing, TypeLayouts,
};
use nnhal_os::shm::SharedMemory;
use nnhal_os::socket::Listener;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::burst::{Burst, BurstOptions};
use crate::connection::Connection;
use crate::error::Result;
use crate::execution::ExecuteOptions;
use crate::memory::Memory;
use crate::model::ArgumentTypes;
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::tensor::TensorType;
use crate::timeouts::Timeouts;
use crate::trust::Trust;
use crate::values::{Input, Output};

/// The most executions that are tried on one burst.
const EXECUTIONS: usize = 8;

/// How many of them are under way at once.
const IN_FLIGHT: u32 = 4;

/// How long an execution may wait. None needs to, as all results are there.
const WAIT: Duration = Duration::from_secs(5);

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_secs(60))
}

/// What a worker says of itself.
fn welcome() -> Welcome {
    let device = DeviceInfo {
        name: "fuzzing-device".into(),
        version: "1".into(),
        device_type: DeviceType::Other,
        hal_version: HalVersion::V1_3,
        capabilities: Capabilities::uniform(PerformanceInfo::REFERENCE, []),
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    };
    Welcome {
        device,
        worker_pid: 2,
        supervisor_pid: 1,
        has_pidfd: false,
    }
}

/// A worker that is a thread of this process. It answers calls as it should, and has the results of a burst
/// in its ring before the burst has begun.
#[derive(Debug, Default)]
struct Worker {
    results: Mutex<Vec<Vec<u8>>>,
}

impl Worker {
    fn results(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, listener: &Listener) -> Option<()> {
        nnhal_os::poll::one(listener, PollFlags::POLLIN, soon()).ok()?;
        let socket = listener.accept().ok()??;
        let mut inbox = Inbox::new();
        handshake::read_hello(inbox.receive_bytes(&socket, soon()).ok()?.0).ok()?;
        let answer = handshake::accept(VERSIONS, VERSIONS.newest, &welcome()).ok()?;
        socket.send(&answer, &[], soon()).ok()?;
        // The client's ring stays open until the next burst.
        let mut requests = None;
        loop {
            let (envelope, fds): (Envelope, _) = inbox.receive(&socket, Deadline::NONE).ok()?;
            let reply = self.answer(envelope.call, fds, &mut requests);
            let message = Message::Reply {
                id: envelope.id,
                result: Ok(reply),
            };
            wire::send::<Message>(&socket, VERSIONS.newest, &message, &[], soon()).ok()?;
        }
    }

    fn answer(&self, call: Call, fds: Vec<OwnedFd>, requests: &mut Option<Consumer>) -> Reply {
        match call {
            Call::ConfigureBurst { .. } => {
                *requests = self.fill_ring(fds);
                Reply::Burst(Handle::from_bits(3).into())
            }
            Call::RegisterMemory(_) => Reply::Memory(Handle::from_bits(9).into()),
            Call::Execute(_) => Reply::Executed(ExecutionResult {
                outcome: Ok(()),
                output_shapes: Vec::new(),
                timing: Timing::NONE,
            }),
            Call::GetStatus => Reply::Status(DeviceStatus::Available),
            _ => Reply::Done,
        }
    }

    /// Sends all results, and ends the ring of results behind them.
    fn fill_ring(&self, mut fds: Vec<OwnedFd>) -> Option<Consumer> {
        let fd = fds.pop()?;
        let size = nix::sys::stat::fstat(&fd).ok()?.st_size as u64;
        let memory = SharedMemory::from_fd(fd, size, size).ok()?;
        let mut end = ChannelEnd::open(&memory, WaitSettings::Sleep).ok()?;
        for result in self.results().drain(..) {
            let _ = end.producer.send(&result);
        }
        Some(end.consumer)
    }
}

/// A prepared model on a connection to the worker, made once.
#[derive(Debug)]
struct Bench {
    worker: Arc<Worker>,
    model: PreparedModel,
    request: Request,
}

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("fuzzing-device.sock");
        let listener = Listener::bind(&path).expect("a socket");
        let worker = Arc::new(Worker::default());
        let serving = Arc::clone(&worker);
        std::thread::spawn(move || serving.serve(&listener));
        let connection = Connection::open(&path, soon(), None, &Trust::default(), Timeouts::default());
        let connection = connection.expect("a connection");
        let types = ArgumentTypes {
            inputs: [TensorType::float32(&[4])].into(),
            outputs: [TensorType::float32(&[4])].into(),
            layouts: TypeLayouts::default(),
        };
        let preference = ExecutionPreference::FastSingleAnswer;
        let model = PreparedModel::new(&connection, Handle::from_bits(1).into(), Some(types), preference);
        let memory = Memory::new(32).expect("a memory");
        let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
        // The first execution goes by a message.
        model.execute(&request, &options()).expect("an execution");
        Bench {
            worker,
            model,
            request,
        }
    })
}

/// Executes on a burst whose worker answers with the packets of `bytes`, but for the first byte, which says
/// how.
pub fn burst_results(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let bench = bench();
    *bench.worker.results() = seeds::packets(rest).map(<[u8]>::to_vec).collect();
    if kind % 5 == 4 {
        let _ = start();
        return;
    }
    let options = BurstOptions::new().in_flight(IN_FLIGHT).wait(WaitSettings::Sleep);
    let mut burst = bench.model.burst(&options).expect("a burst");
    let _ = match kind % 5 {
        0 => execute(&mut burst),
        1 => run(&mut burst),
        2 => fire(&mut burst),
        _ => submit(&mut burst),
    };
}

fn options() -> ExecuteOptions {
    ExecuteOptions::new().wait_at_most(WAIT)
}

fn execute(burst: &mut Burst) -> Result<()> {
    for _ in 0..EXECUTIONS {
        let completed = burst.execute(&bench().request, &options());
        go_on(completed)?;
    }
    Ok(())
}

fn run(burst: &mut Burst) -> Result<()> {
    for _ in 0..EXECUTIONS {
        let mut output = [0.0_f32; 4];
        let completed = burst.run(
            &[Input::from(&[1.0_f32; 4])],
            &mut [Output::from(&mut output)],
            &options(),
        );
        go_on(completed)?;
    }
    Ok(())
}

fn fire(burst: &mut Burst) -> Result<()> {
    let registered = burst.register(&bench().request)?;
    for _ in 1..EXECUTIONS {
        let completed = burst.fire(&registered, &options());
        go_on(completed)?;
    }
    burst.unregister(registered)
}

fn submit(burst: &mut Burst) -> Result<()> {
    let registered = burst.register(&bench().request)?;
    for _ in 0..EXECUTIONS as u32 / IN_FLIGHT {
        for _ in 0..IN_FLIGHT {
            burst.submit(&registered, &options())?;
        }
        while let Some(completion) = burst.next_finished(&options())? {
            go_on(completion.result)?;
        }
    }
    Ok(())
}

/// By a ring that the client makes of itself. The ends are waited for and told to callbacks, in turns.
fn start() -> Result<()> {
    let Bench { model, request, .. } = bench();
    model.executors().clear();
    for number in 0..EXECUTIONS {
        let mut pending = model.start(request, &ExecuteOptions::new())?;
        let result = if number % 2 == 0 {
            pending.wait(soon())
        } else {
            let (sender, outcome) = channel();
            pending.on_end(move |result| drop(sender.send(result)))?;
            outcome.recv().expect("an outcome")
        };
        go_on(result)?;
    }
    Ok(())
}

/// An execution that failed says nothing of the next one, unless the burst has ended.
fn go_on<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(error) if error.failure().is_none() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use nnhal::burst::{encode_failure, encode_success};
    use nnhal_hal::{ErrorStatus, OutputShape};

    use super::*;

    /// A result of each kind under this sequence.
    fn results(sequence: u32) -> [Vec<u8>; 4] {
        let mut packets: [Vec<u8>; 4] = Default::default();
        let timing = Timing {
            time_on_device_us: 3,
            time_in_driver_us: 5,
        };
        let [plain, timed, shaped, failed] = &mut packets;
        encode_success(plain, sequence, Timing::NONE, None, &[1; 16]);
        encode_success(timed, sequence, timing, None, &[2; 16]);
        let mut shapes = [(&[4_u32][..], true)].into_iter();
        encode_success(shaped, sequence, timing, Some(&mut shapes), &[3; 16]);
        let shape = OutputShape {
            dimensions: vec![5],
            is_sufficient: false,
        };
        let status = ErrorStatus::OutputInsufficientSize;
        encode_failure(failed, sequence, status, &[shape], "too small");
        packets
    }

    fn made() -> Vec<Vec<u8>> {
        let mut made = Vec::new();
        for kind in 0..5_u8 {
            for first in 0..4 {
                // Each kind in turn; with one of an earlier sequence, and one that nobody asked for.
                let of = |sequence: u32| results(sequence)[(sequence as usize + first) % 4].clone();
                let mut packets: Vec<Vec<u8>> = (1..9).map(of).collect();
                if first == 3 {
                    packets.insert(3, of(1));
                    packets.push(of(100));
                }
                made.push([&[kind][..], &seeds::joined(&packets)].concat());
            }
        }
        made
    }

    #[test]
    fn burst_results_in_the_tree_are_refused_or_taken() {
        seeds::check("burst_results", &made(), burst_results);
    }
}
