//! Fenced executions: what they wait for, how they end, and what they say of it.

use std::os::fd::{AsFd, OwnedFd};

use nnhal::fence::{Fence, FenceState};
use nnhal::wire::{
    Call, ExecuteFenced, ExecutionHandle, ExecutionInfo, FenceArgument, FenceHandle, FencedLimits,
    MemoryHandle, Message, PreparedModelHandle, Reply,
};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, Timing};
use nnhal_os::shm::Mapping;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model, request_in_one_memory, shared_floats,
    wait_until,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

struct Bench {
    client: RawClient,
    model: PreparedModelHandle,
    memory: MemoryHandle,
    _mapping: Mapping,
    _daemon: TestDaemon,
}

/// An execution that was launched.
struct Launched {
    id: u64,
    execution: ExecutionHandle,
    fence: Fence,
}

impl Bench {
    fn new(device: &str, settings: &str) -> Bench {
        let options = DaemonOptions {
            devices: vec![device.into()],
            ..DaemonOptions::with_settings(settings)
        };
        let daemon = TestDaemon::start(EXE, &options);
        let mut client = RawClient::connect(&daemon.runtime_dir(), device);
        let model = client.prepare(add_model(2)).unwrap();
        let (memory, mapping) = shared_floats(&[1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
        let memory = client.register(&memory);
        Bench {
            client,
            model,
            memory,
            _mapping: mapping,
            _daemon: daemon,
        }
    }

    fn arguments(&self, wait_for: Vec<FenceArgument>) -> ExecuteFenced {
        ExecuteFenced {
            prepared_model: self.model,
            request: request_in_one_memory(self.memory, 2, 1, 8),
            wait_for,
            measure: MeasureTiming::No,
            limits: FencedLimits::default(),
        }
    }

    fn execute(&mut self, arguments: ExecuteFenced, fences: &[&OwnedFd]) -> Result<Launched, Failure> {
        let fds: Vec<_> = fences.iter().map(AsFd::as_fd).collect();
        let sent = self.client.send(Call::ExecuteFenced(arguments), &fds).unwrap();
        match self.client.receive().unwrap() {
            (
                Message::Reply {
                    id,
                    result: Ok(Reply::Fenced(started)),
                },
                mut fds,
            ) if id == sent => {
                let fence = Fence::from_handle(fds.pop()).unwrap();
                Ok(Launched {
                    id,
                    execution: started.execution,
                    fence,
                })
            }
            (
                Message::Reply {
                    id,
                    result: Err(failure),
                },
                _,
            ) if id == sent => Err(failure),
            (other, _) => panic!("{other:?}"),
        }
    }

    fn info(&mut self, launched: &Launched) -> Result<ExecutionInfo, Failure> {
        match self.client.call(
            Call::GetExecutionInfo {
                execution: launched.execution,
            },
            &[],
        )? {
            Reply::ExecutionInfo(info) => Ok(info),
            other => panic!("{other:?}"),
        }
    }

    fn register_fence(&mut self, fence: &Fence) -> FenceHandle {
        match self.client.call(Call::RegisterFence, &[fence.as_fd()]) {
            Ok(Reply::Fence(handle)) => handle,
            other => panic!("{other:?}"),
        }
    }

    fn failure(&mut self, launched: &Launched) -> Failure {
        assert_eq!(wait(&launched.fence), FenceState::Failed);
        self.info(launched).unwrap().result.unwrap_err()
    }
}

fn wait(fence: &Fence) -> FenceState {
    fence
        .wait(Deadline::after(MonotonicClock.now(), TIMEOUT))
        .unwrap()
}

const ATTACHED: FenceArgument = FenceArgument::Attached { fds: 1 };

#[test]
fn execution_waits_for_all_its_fences_and_signals_its_own() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (first_source, first) = Fence::create().unwrap();
    let (second_source, second) = Fence::create().unwrap();
    let fds = [first.try_clone_fd().unwrap(), second.try_clone_fd().unwrap()];
    let mut arguments = bench.arguments(vec![ATTACHED, ATTACHED]);
    arguments.measure = MeasureTiming::Yes;
    let launched = bench.execute(arguments, &[&fds[0], &fds[1]]).unwrap();
    first_source.signal().unwrap();
    assert_eq!(
        bench.info(&launched).unwrap_err().status,
        ErrorStatus::GeneralFailure
    );
    assert_eq!(launched.fence.state().unwrap(), FenceState::Pending);
    second_source.signal().unwrap();
    assert_eq!(wait(&launched.fence), FenceState::Signalled);
    let info = bench.info(&launched).unwrap();
    assert_eq!(info.result, Ok(()));
    let (launched, fenced) = (info.timing_launched, info.timing_fenced);
    assert!(
        launched.time_on_device_us <= launched.time_in_driver_us,
        "{launched:?}"
    );
    assert!(fenced.time_on_device_us <= fenced.time_in_driver_us, "{fenced:?}");
    assert!(
        fenced.time_in_driver_us <= launched.time_in_driver_us,
        "{launched:?} {fenced:?}"
    );
    assert_ne!(launched.time_in_driver_us, u64::MAX);
}

#[test]
fn executions_without_fences_begin_at_once_and_are_not_measured_unasked() {
    let mut bench = Bench::new("nnhal-reference", "");
    let arguments = bench.arguments(Vec::new());
    let launched = bench.execute(arguments, &[]).unwrap();
    assert_eq!(wait(&launched.fence), FenceState::Signalled);
    let info = bench.info(&launched).unwrap();
    assert_eq!(
        (info.timing_launched, info.timing_fenced),
        (Timing::NONE, Timing::NONE)
    );
}

#[test]
fn bad_fences_are_invalid_arguments() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (source, failed) = Fence::create().unwrap();
    source.fail().unwrap();
    let failed = failed.try_clone_fd().unwrap();
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap().try_clone().unwrap());
    let regular = OwnedFd::from(tempfile::tempfile().unwrap());
    let unknown = FenceArgument::Registered(
        nnhal::wire::Handle {
            index: 5,
            generation: 0,
        }
        .into(),
    );
    let none = FenceArgument::Attached { fds: 0 };
    let two = FenceArgument::Attached { fds: 2 };
    let cases: [(&str, FenceArgument, Vec<&OwnedFd>); 5] = [
        ("R04 null handle", none, vec![]),
        ("two descriptors", two, vec![&file, &file]),
        ("failed already", ATTACHED, vec![&failed]),
        ("a regular file", ATTACHED, vec![&regular]),
        ("unknown handle", unknown, vec![]),
    ];
    for (name, argument, fds) in cases {
        let arguments = bench.arguments(vec![argument]);
        let status = bench.execute(arguments, &fds).err().map(|failure| failure.status);
        assert_eq!(status, Some(ErrorStatus::InvalidArgument), "{name}");
    }
}

#[test]
fn fence_that_fails_later_fails_the_execution_and_its_dependents() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (source, fence) = Fence::create().unwrap();
    let fd = fence.try_clone_fd().unwrap();
    let arguments = bench.arguments(vec![ATTACHED]);
    let first = bench.execute(arguments, &[&fd]).unwrap();
    let arguments = bench.arguments(vec![FenceArgument::Execution(first.execution)]);
    let second = bench.execute(arguments, &[]).unwrap();
    let arguments = bench.arguments(vec![FenceArgument::Execution(second.execution)]);
    let third = bench.execute(arguments, &[]).unwrap();
    drop(source);
    for launched in [&first, &second, &third] {
        assert_eq!(bench.failure(launched).status, ErrorStatus::GeneralFailure);
    }
}

#[test]
fn executions_follow_each_other_inside_the_worker() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (source, fence) = Fence::create().unwrap();
    let fd = fence.try_clone_fd().unwrap();
    let arguments = bench.arguments(vec![ATTACHED]);
    let mut last = bench.execute(arguments, &[&fd]).unwrap();
    for _ in 0..20 {
        let arguments = bench.arguments(vec![FenceArgument::Execution(last.execution)]);
        last = bench.execute(arguments, &[]).unwrap();
    }
    source.signal().unwrap();
    assert_eq!(wait(&last.fence), FenceState::Signalled);
    let arguments = bench.arguments(vec![FenceArgument::Execution(last.execution)]);
    let after = bench.execute(arguments, &[]).unwrap();
    assert_eq!(wait(&after.fence), FenceState::Signalled);
}

#[test]
fn limits_end_executions_that_wait_or_run() {
    let mut bench = Bench::new("nnhal-empty", "[device.nnhal-empty]\nfault = \"loop\"\n");
    let (_source, fence) = Fence::create().unwrap();
    let fd = fence.try_clone_fd().unwrap();
    let soon = MonotonicClock.now().as_nanos() + 400_000_000;
    let mut arguments = bench.arguments(vec![ATTACHED]);
    arguments.limits.deadline_ns = Some(soon);
    let waiting = bench.execute(arguments, &[&fd]).unwrap();
    let mut arguments = bench.arguments(Vec::new());
    arguments.limits.deadline_ns = Some(soon);
    let running = bench.execute(arguments, &[]).unwrap();
    let mut arguments = bench.arguments(Vec::new());
    arguments.limits.duration_ns = Some(10_000_000);
    let limited = bench.execute(arguments, &[]).unwrap();
    for launched in [&waiting, &running, &limited] {
        assert_eq!(
            bench.failure(launched).status,
            ErrorStatus::MissedDeadlineTransient
        );
    }
    let mut arguments = bench.arguments(Vec::new());
    arguments.limits.deadline_ns = Some(1);
    let late = bench.execute(arguments, &[]).err().map(|failure| failure.status);
    assert_eq!(late, Some(ErrorStatus::MissedDeadlinePersistent));
}

#[test]
fn fences_may_be_waited_for_more_often_than_there_can_be_descriptors() {
    // The worker may have 256.
    let mut bench = Bench::new("nnhal-reference", "[limits]\nobjects = 64\n");
    let (sources, fences): (Vec<_>, Vec<_>) = (0..20).map(|_| Fence::create().unwrap()).unzip();
    let registered: Vec<_> = fences.iter().map(|fence| bench.register_fence(fence)).collect();
    let launched: Vec<Launched> = (0..20)
        .map(|_| {
            let arguments = registered.iter().map(|fence| FenceArgument::Registered(*fence));
            let arguments = bench.arguments(arguments.cycle().take(600).collect());
            bench.execute(arguments, &[]).unwrap()
        })
        .collect();
    // The worker has waited since, and waits again.
    assert!(bench.client.call(Call::GetStatus, &[]).is_ok());
    sources.into_iter().for_each(|source| source.signal().unwrap());
    for launched in launched {
        assert_eq!(wait(&launched.fence), FenceState::Signalled);
    }
}

#[test]
fn fence_that_never_signals_holds_nothing_and_times_out() {
    let mut bench = Bench::new(
        "nnhal-reference",
        "[execution]\nfence_timeout_ms = 300\nslots = 1\n[limits]\nthreads = 1\n",
    );
    let (_source, fence) = Fence::create().unwrap();
    let fd = fence.try_clone_fd().unwrap();
    let stuck: Vec<_> = (0..8)
        .map(|_| {
            let arguments = bench.arguments(vec![ATTACHED]);
            bench.execute(arguments, &[&fd]).unwrap()
        })
        .collect();
    let arguments = bench.arguments(Vec::new());
    let free = bench.execute(arguments, &[]).unwrap();
    assert_eq!(wait(&free.fence), FenceState::Signalled);
    for launched in &stuck {
        assert_eq!(bench.failure(launched).status, ErrorStatus::GeneralFailure);
    }
}

#[test]
fn waiting_execution_can_be_cancelled() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (_source, fence) = Fence::create().unwrap();
    let fd = fence.try_clone_fd().unwrap();
    let arguments = bench.arguments(vec![ATTACHED]);
    let launched = bench.execute(arguments, &[&fd]).unwrap();
    assert_eq!(
        bench.client.call(Call::Cancel { id: launched.id }, &[]),
        Ok(Reply::Done)
    );
    assert!(bench.failure(&launched).detail.contains("cancelled"));
}

#[test]
fn outputs_must_be_known_and_have_room() {
    let mut bench = Bench::new("nnhal-reference", "");
    let mut arguments = bench.arguments(Vec::new());
    arguments.request.request.outputs[0].location.length = 7;
    let status = bench.execute(arguments, &[]).err().map(|failure| failure.status);
    assert_eq!(status, Some(ErrorStatus::InvalidArgument), "G04");
}

#[test]
fn fence_can_be_registered_before_it_is_waited_for() {
    let mut bench = Bench::new("nnhal-reference", "");
    let (source, fence) = Fence::create().unwrap();
    let registered = bench.register_fence(&fence);
    let arguments = bench.arguments(vec![FenceArgument::Registered(registered); 3]);
    let launched = bench.execute(arguments, &[]).unwrap();
    source.signal().unwrap();
    assert_eq!(wait(&launched.fence), FenceState::Signalled);
}

#[test]
fn unread_fences_of_a_client_are_few_and_those_of_others_are_sent() {
    const COUNT: usize = 50;
    let mut bench = Bench::new("nnhal-reference", "[user_limits]\nunread_descriptors = 4\n");
    let mut other = RawClient::connect(&bench._daemon.runtime_dir(), "nnhal-reference");
    let arguments = bench.arguments(Vec::new());
    for _ in 0..COUNT {
        let call = Call::ExecuteFenced(arguments.clone());
        bench.client.send(call, &[]).unwrap();
    }
    wait_until("the worker has taken all calls", || {
        bench.client.connection.unread_bytes().unwrap() == 0
    });
    // The other client has its part.
    let model = other.prepare(add_model(2)).unwrap();
    let (memory, _mapping) = shared_floats(&[1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
    let memory = other.register(&memory);
    let call = Call::ExecuteFenced(ExecuteFenced {
        prepared_model: model,
        request: request_in_one_memory(memory, 2, 1, 8),
        ..arguments
    });
    assert!(matches!(other.call(call, &[]), Ok(Reply::Fenced(_))));
    let now = Deadline::from_raw(0);
    let mut bytes = vec![0; 1 << 16];
    let at_once = std::iter::from_fn(|| bench.client.connection.receive(&mut bytes, now).ok()).count();
    assert!((1..COUNT / 2).contains(&at_once), "{at_once}");
    for _ in at_once..COUNT {
        let (message, fds) = bench.client.receive().unwrap();
        assert!(matches!(message, Message::Reply { .. }), "{message:?}");
        assert_eq!(fds.len(), 1);
    }
}
