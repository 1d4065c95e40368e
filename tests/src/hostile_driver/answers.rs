//! What the driver says: what any driver would, with a lie now and then.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nnhal::fence::{Fence, FenceSource};
use nnhal::wire::{
    Allocated, Call, CauseOfDeath, Event, ExecutionForm, ExecutionInfo, ExecutionResult, FenceStarted,
    Handle, Message, Reply, Welcome, WorkerExit,
};
use nnhal_conformance::generator::choices::Random;
use nnhal_hal::{
    Capabilities, DeviceInfo, DeviceStatus, DeviceType, ErrorStatus, Failure, HalVersion, NumberOfCacheFiles,
    OperationSupport, PerformanceInfo, Timing,
};

use super::lies::{odd_fd, odd_number, once_in, shapes};
use super::rings;
use super::shared::Shared;

/// The device's name, and so the file's name of its socket.
pub const DEVICE: &str = "hostile-device";

/// A message with its descriptors.
pub(super) type Outgoing = (Message, Vec<OwnedFd>);

/// One in so many answers is a lie, beside what becomes of it on its way.
const LIES: u32 = 5;

pub(super) struct Answers {
    random: Random,
    shared: Arc<Shared>,
    /// Memories and caches of the client, which it may still use.
    files: Vec<File>,
    /// Fences that nobody has signalled yet.
    sources: Vec<FenceSource>,
    handles: u32,
}

/// What the driver says of its device.
pub(super) fn welcome(random: &mut Random) -> Welcome {
    let same = PerformanceInfo {
        exec_time: 0.5,
        power_usage: 0.5,
    };
    let version = [
        HalVersion::LATEST,
        HalVersion::V1_3,
        HalVersion::V1_2,
        HalVersion::V1_0,
    ];
    let files = random.below(3);
    Welcome {
        device: DeviceInfo {
            name: DEVICE.to_owned(),
            version: "1".to_owned(),
            device_type: DeviceType::Accelerator,
            hal_version: version[random.below(4) as usize],
            capabilities: Capabilities::uniform(same, []),
            extensions: Vec::new(),
            cache_files: NumberOfCacheFiles {
                model: files,
                data: files,
            },
        },
        worker_pid: std::process::id(),
        supervisor_pid: std::process::id(),
        has_pidfd: false,
    }
}

impl Answers {
    pub(super) fn new(random: Random, shared: Arc<Shared>) -> Answers {
        Answers {
            random,
            shared,
            files: Vec::new(),
            sources: Vec::new(),
            handles: 0,
        }
    }

    fn lies(&mut self) -> bool {
        let lies = once_in(&mut self.random, LIES);
        if lies {
            self.shared.count();
        }
        lies
    }

    fn handle<T: From<Handle>>(&mut self) -> T {
        self.handles += 1;
        let index = if self.lies() {
            odd_number(&mut self.random) as u32
        } else {
            self.handles
        };
        Handle { index, generation: 1 }.into()
    }

    /// The answers to a call.
    pub(super) fn answer(&mut self, id: u64, call: Call, fds: Vec<OwnedFd>) -> Vec<Outgoing> {
        self.meddle();
        let mut answers = Vec::new();
        if once_in(&mut self.random, 50) {
            let farewell = self.farewell();
            answers.push((farewell, Vec::new()));
        }
        if self.lies() && once_in(&mut self.random, 3) {
            let failure = self.failure();
            answers.push((
                Message::Reply {
                    id,
                    result: Err(failure),
                },
                Vec::new(),
            ));
            return answers;
        }
        let (reply, event, fd) = self.right_answer(call, fds);
        let (reply, fd) = if self.lies() && once_in(&mut self.random, 3) {
            self.other_answer()
        } else {
            (reply, fd)
        };
        answers.push((
            Message::Reply {
                id,
                result: Ok(reply),
            },
            fd.into_iter().collect(),
        ));
        answers.extend(event.map(|event| (Message::Event { id, event }, Vec::new())));
        if self.lies() {
            // In another order.
            answers.reverse();
        }
        answers
    }

    fn right_answer(&mut self, call: Call, mut fds: Vec<OwnedFd>) -> (Reply, Option<Event>, Option<OwnedFd>) {
        let reply = match call {
            Call::GetStatus => Reply::Status(DeviceStatus::Available),
            Call::GetSupportedOperations { model, .. } => {
                let operations = model.main.operations.len() + usize::from(self.lies());
                Reply::SupportedOperations(vec![OperationSupport::Supported; operations])
            }
            Call::PrepareModel(_) | Call::PrepareModelFromCache(_) => {
                self.files.extend(fds.into_iter().map(File::from));
                let prepared = if self.lies() {
                    Err(self.failure())
                } else {
                    Ok(self.handle())
                };
                return (Reply::Launched, Some(Event::Prepared(prepared)), None);
            }
            Call::Allocate { .. } => Reply::Allocated(Allocated {
                buffer: self.handle(),
                token: self.handles,
            }),
            Call::RegisterMemory(_) => {
                self.files.extend(fds.into_iter().map(File::from));
                Reply::Memory(self.handle())
            }
            Call::RegisterFence => Reply::Fence(self.handle()),
            Call::Execute(arguments) => {
                let result = self.result(arguments.request.request.outputs.len());
                return match arguments.form {
                    ExecutionForm::Synchronous => (Reply::Executed(result), None, None),
                    ExecutionForm::Asynchronous => (Reply::Launched, Some(Event::Executed(result)), None),
                };
            }
            Call::ExecuteFenced(_) => {
                let fence = self.fence();
                let has_fence = fence.is_some() != self.lies();
                let execution = self.handle();
                return (Reply::Fenced(FenceStarted { execution, has_fence }), None, fence);
            }
            Call::GetExecutionInfo { .. } => Reply::ExecutionInfo(ExecutionInfo {
                result: if self.lies() { Err(self.failure()) } else { Ok(()) },
                timing_launched: self.timing(),
                timing_fenced: self.timing(),
            }),
            Call::ConfigureBurst { .. } => {
                if let Some(fd) = fds.pop() {
                    rings::serve(fd, Random::new(self.random.bits()), &self.shared);
                }
                Reply::Burst(self.handle())
            }
            Call::StartTrace { .. } => {
                self.files.extend(fds.into_iter().map(File::from));
                Reply::Done
            }
            Call::GetBurstFence { .. } => {
                let fence = self.fence();
                let has_fence = fence.is_some() != self.lies();
                return (Reply::BurstFence { has_fence }, None, fence);
            }
            Call::CopyTo { .. }
            | Call::CopyFrom { .. }
            | Call::Release { .. }
            | Call::Cancel { .. }
            | Call::CancelBurst { .. } => Reply::Done,
        };
        (reply, None, None)
    }

    /// The answer to some other call.
    fn other_answer(&mut self) -> (Reply, Option<OwnedFd>) {
        let reply = match self.random.below(10) {
            0 => Reply::Done,
            1 => Reply::Status(DeviceStatus::Unknown),
            2 => Reply::SupportedOperations(Vec::new()),
            3 => Reply::Launched,
            4 => Reply::Memory(self.handle()),
            5 => Reply::Allocated(Allocated {
                buffer: self.handle(),
                token: 0,
            }),
            6 => Reply::Executed(self.result(1)),
            7 => Reply::Burst(self.handle()),
            8 => Reply::BurstFence { has_fence: false },
            _ => {
                let fence = self.fence();
                let started = FenceStarted {
                    execution: self.handle(),
                    has_fence: fence.is_some(),
                };
                return (Reply::Fenced(started), fence);
            }
        };
        (reply, None)
    }

    /// Some message of a driver.
    pub(super) fn any_message(&mut self) -> Message {
        let id = odd_number(&mut self.random);
        match self.random.below(5) {
            0 => self.farewell(),
            1 => Message::Event {
                id,
                event: Event::Prepared(Ok(self.handle())),
            },
            2 => Message::Event {
                id,
                event: Event::Executed(self.result(3)),
            },
            3 => Message::Reply {
                id,
                result: Err(self.failure()),
            },
            _ => Message::Reply {
                id,
                result: Ok(self.other_answer().0),
            },
        }
    }

    fn failure(&mut self) -> Failure {
        let statuses = [
            ErrorStatus::GeneralFailure,
            ErrorStatus::OutputInsufficientSize,
            ErrorStatus::InvalidArgument,
            ErrorStatus::DeviceUnavailable,
            ErrorStatus::ResourceExhaustedTransient,
        ];
        let status = statuses[self.random.below(5) as usize];
        Failure::new(status, "x".repeat(self.random.below(3000) as usize))
    }

    fn timing(&mut self) -> Timing {
        Timing {
            time_on_device_us: odd_number(&mut self.random),
            time_in_driver_us: odd_number(&mut self.random),
        }
    }

    fn result(&mut self, outputs: usize) -> ExecutionResult {
        let outcome = if self.lies() { Err(self.failure()) } else { Ok(()) };
        let output_shapes = match self.random.below(4) {
            0 => Vec::new(),
            _ => shapes(&mut self.random, outputs),
        };
        ExecutionResult {
            outcome,
            output_shapes,
            timing: self.timing(),
        }
    }

    fn fence(&mut self) -> Option<OwnedFd> {
        if self.lies() {
            return Some(odd_fd(&mut self.random));
        }
        if once_in(&mut self.random, 4) {
            return None;
        }
        let (source, fence) = Fence::create().expect("a fence");
        match self.random.below(4) {
            0 => drop(source),
            // Later, or never.
            1 => self.sources.push(source),
            _ => drop(source.signal()),
        }
        fence.try_clone_fd().ok()
    }

    /// Does what it likes with what it was given.
    fn meddle(&mut self) {
        if once_in(&mut self.random, 3)
            && let Some(source) = self.sources.pop()
        {
            drop(source.signal());
        }
        let count = self.files.len() as u32;
        if count == 0 || !self.lies() {
            return;
        }
        let file = &self.files[self.random.below(count) as usize];
        let noise: Vec<u8> = (0..64).map(|_| self.random.bits() as u8).collect();
        let place = u64::from(self.random.below(9000));
        match self.random.below(3) {
            // Where the memory is sealed, nothing comes of it.
            0 => drop(file.set_len(0)),
            _ => drop(file.write_at(&noise, place)),
        }
    }

    fn farewell(&mut self) -> Message {
        self.shared.count();
        if once_in(&mut self.random, 2) {
            return Message::Goodbye {
                reason: "so be it".to_owned(),
            };
        }
        Message::WorkerExit(WorkerExit {
            worker_pid: self.random.bits() as u32,
            cause: CauseOfDeath::Killed {
                signal: self.random.bits() as i32,
                core_dumped: true,
            },
            last_words: "x".repeat(self.random.below(5000) as usize),
        })
    }
}
