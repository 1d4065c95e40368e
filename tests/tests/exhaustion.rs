//! What is said to a client that asks for more than it may have: whether another try can be of use (T18,
//! T19).

use std::os::fd::AsFd;

use nnhal::wire::{
    Call, Event, Execute, ExecutionForm, MemoryDescription, MemoryHandle, PreparedModelHandle, Reply,
};
use nnhal_hal::{BufferDesc, BufferRole, ErrorStatus, MeasureTiming};
use nnhal_os::shm::SharedMemory;
use nnhal_tests::{
    DaemonOptions, RawClient, TestDaemon, add_model, is_alive, request_in_one_memory, wait_until,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const PERSISTENT: ErrorStatus = ErrorStatus::ResourceExhaustedPersistent;
const TRANSIENT: ErrorStatus = ErrorStatus::ResourceExhaustedTransient;

/// Quotas that a few small objects use up.
const LIMITS: &str = "[limits]\nshared_bytes = 400000\nbuffer_bytes = 100\nobjects = 4\n\
                      address_space_bytes = 1073741824\n";

struct Bench {
    client: RawClient,
    _daemon: TestDaemon,
}

impl Bench {
    fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(LIMITS));
        Bench {
            client: RawClient::connect(&daemon.runtime_dir(), "nnhal-reference"),
            _daemon: daemon,
        }
    }

    fn share(&mut self, size: u64) -> Result<MemoryHandle, ErrorStatus> {
        let memory = SharedMemory::create(size).unwrap();
        let description = MemoryDescription {
            name: "ashmem".into(),
            fds: 1,
            size,
            offset: 0,
            protection: 3,
        };
        let call = Call::RegisterMemory(description);
        match self.client.call(call, &[memory.as_fd()]) {
            Ok(Reply::Memory(handle)) => Ok(handle),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.status),
        }
    }

    fn prepare(&mut self, elements: u32) -> Result<PreparedModelHandle, ErrorStatus> {
        self.client
            .prepare(add_model(elements))
            .map_err(|failure| failure.status)
    }

    /// A device buffer for so many floats.
    fn allocate(&mut self, elements: u32) -> Result<(), ErrorStatus> {
        let model = self.prepare(elements)?;
        let call = Call::Allocate {
            desc: BufferDesc::default(),
            prepared_models: vec![model],
            input_roles: vec![BufferRole {
                model_index: 0,
                io_index: 0,
                frequency: 1.0,
            }],
            output_roles: Vec::new(),
        };
        let allocated = self.client.call(call, &[]);
        allocated.map(drop).map_err(|failure| failure.status)
    }

    /// An execution that computes a square of floats, so many to a side, and that has no room for it.
    fn execute(&mut self, side: u32) -> Result<(), ErrorStatus> {
        let mut prepare = add_model(1);
        let operands = &mut prepare.model.main.operands;
        operands[0].dimensions = vec![side, 1];
        operands[1].dimensions = vec![1, side];
        operands[3].dimensions = vec![side, side];
        let model = self.client.prepare(prepare).unwrap();
        let memory = self.share(u64::from(3 * side * 4)).unwrap();
        let request = request_in_one_memory(memory, 2, 1, side * 4);
        let call = Call::Execute(Execute {
            prepared_model: model,
            request,
            form: ExecutionForm::Synchronous,
            measure: MeasureTiming::No,
            deadline_ns: None,
            loop_timeout_ns: None,
        });
        match self.client.call(call, &[]) {
            Ok(Reply::Executed(result)) => result.outcome.map_err(|failure| failure.status),
            other => panic!("{other:?}"),
        }
    }

    /// Preparing when the deadline has passed already.
    fn prepare_too_late(&mut self) -> Result<(), ErrorStatus> {
        let mut arguments = add_model(1);
        arguments.deadline_ns = Some(1);
        let launched = self.client.call(Call::PrepareModel(Box::new(arguments)), &[]);
        assert_eq!(launched, Ok(Reply::Launched));
        match self.client.event() {
            Event::Prepared(prepared) => prepared.map(drop).map_err(|failure| failure.status),
            other @ Event::Executed(_) => panic!("{other:?}"),
        }
    }
}

type Attempt = fn(&mut Bench) -> Result<(), ErrorStatus>;

#[test]
fn exhaustion_is_persistent_only_where_another_try_is_of_no_use() {
    let table: [(&str, Attempt, ErrorStatus); 8] = [
        (
            "one memory above the quota",
            |bench| bench.share(400_001).map(drop),
            PERSISTENT,
        ),
        (
            "one memory above the quota together with another",
            |bench| {
                bench.share(300_000).unwrap();
                bench.share(300_000).map(drop)
            },
            TRANSIENT,
        ),
        (
            "a memory too many",
            |bench| {
                assert!((0..4).all(|_| bench.share(8).is_ok()));
                bench.share(8).map(drop)
            },
            TRANSIENT,
        ),
        (
            "a model too many",
            |bench| {
                assert!((0..4).all(|_| bench.prepare(1).is_ok()));
                bench.prepare(1).map(drop)
            },
            TRANSIENT,
        ),
        (
            "one device buffer above the quota",
            |bench| bench.allocate(26),
            PERSISTENT,
        ),
        (
            "one device buffer above the quota together with another",
            |bench| {
                bench.allocate(15).unwrap();
                bench.allocate(15)
            },
            TRANSIENT,
        ),
        (
            "one tensor above the address space of a worker",
            |bench| bench.execute(1 << 14),
            PERSISTENT,
        ),
        (
            "a deadline that had passed when the call came",
            Bench::prepare_too_late,
            ErrorStatus::MissedDeadlinePersistent,
        ),
    ];
    for (case, attempt, expected) in table {
        let mut bench = Bench::new();
        assert_eq!(attempt(&mut bench), Err(expected), "{case}");
    }
}

#[test]
fn clients_of_one_user_are_told_what_they_have_together() {
    let share = |client: &mut RawClient, size: u64| {
        let memory = SharedMemory::create(size).unwrap();
        let description = MemoryDescription {
            name: "ashmem".into(),
            fds: 1,
            size,
            offset: 0,
            protection: 3,
        };
        client.call(Call::RegisterMemory(description), &[memory.as_fd()])
    };
    let cases = [
        ("shared_bytes = 1048576", 700_000, "user_limits.shared_bytes"),
        ("descriptors = 1", 8, "user_limits.descriptors"),
    ];
    for (setting, size, mention) in cases {
        let options = DaemonOptions::with_settings(&format!("[user_limits]\n{setting}\n"));
        let daemon = TestDaemon::start(EXE, &options);
        let connect = || RawClient::connect(&daemon.runtime_dir(), "nnhal-reference");
        let (mut first, mut second) = (connect(), connect());
        share(&mut first, size).unwrap();
        let refused = share(&mut second, size).unwrap_err();
        assert_eq!(refused.status, TRANSIENT, "{refused}");
        assert!(refused.detail.contains(mention), "{refused}");
        let worker = first.welcome.worker_pid;
        drop(first);
        wait_until("the first client's worker has ended", || !is_alive(worker));
        wait_until("there is room", || share(&mut second, size).is_ok());
    }
}
