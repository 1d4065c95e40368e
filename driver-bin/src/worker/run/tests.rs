//! Runs of devices that are made for the tests.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use nnhal::wire::MemoryDescription;
use nnhal_device::{InputSource, QueuedExecution};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    DataLocation, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Priority,
    Request, RequestArgument, RequestPool, Subgraph,
};
use nnhal_os::eventfd;
use nnhal_os::shm::SharedMemory;

use super::*;
use crate::scheduler::{Observer, Scheduler};
use crate::settings::Limits;
use crate::worker::buffer::Buffer;
use crate::worker::memory::Memories;

type Pool = Option<Arc<Memory>>;

impl Pools for Vec<Pool> {
    fn memory(&self, pool: u32) -> Option<&Memory> {
        self.get(pool as usize)?.as_deref()
    }

    fn buffer(&self, _: u32) -> Option<&Buffer> {
        None
    }
}

/// Where an argument is: in which pool, from where on, how many bytes.
type At = (u32, u32, u32);

/// The pool that is the packets.
const PACKET: u32 = 0;

/// Adds one to each byte of its input, of which it gives the three from the middle on.
#[derive(Debug)]
struct PlusOne {
    input: Vec<u8>,
    output: [u8; 3],
    result: Shape,
    is_broken: bool,
    queue: Option<Queue>,
    seen: Arc<Mutex<Seen>>,
}

/// A queue that computes while it is submitted to.
#[derive(Debug)]
struct Queue {
    fence: OwnedFd,
    /// Work that somebody cancels when it has been submitted.
    cancels: Option<Observer>,
}

impl Queue {
    fn of(fence: impl Into<OwnedFd>) -> Queue {
        Queue {
            fence: fence.into(),
            cancels: None,
        }
    }
}

/// What the device was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    runs: u32,
    reads: u32,
    cancels: u32,
    collects: u32,
}

impl QueuedExecution for PlusOne {
    fn submit(&mut self, control: &Control<'_>) -> Result<OwnedFd, Failure> {
        self.run(control)?;
        let queue = self.queue.as_mut().unwrap();
        if let Some(work) = queue.cancels.take() {
            work.cancel();
        }
        Ok(queue.fence.try_clone().unwrap())
    }

    fn cancel(&mut self) {
        self.seen.lock().unwrap().cancels += 1;
        // Some of them are no events.
        let _ = eventfd::add(&self.queue.as_ref().unwrap().fence, 1);
    }

    fn collect(&mut self) -> Result<Option<Duration>, Failure> {
        self.seen.lock().unwrap().collects += 1;
        Ok(Some(Duration::ZERO))
    }
}

impl Execution for PlusOne {
    fn set_input(
        &mut self,
        _: usize,
        _: &Shape,
        source: &dyn InputSource,
        _: &Control<'_>,
    ) -> Result<(), Failure> {
        self.seen.lock().unwrap().reads += 1;
        let middle = self.input.len() / 2;
        let (first, second) = self.input.split_at_mut(middle);
        source.read(middle as u64, second)?;
        source.read(0, first)
    }

    fn omit_input(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn queued(&mut self) -> Option<&mut dyn QueuedExecution> {
        self.queue.is_some().then_some(self as &mut dyn QueuedExecution)
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        control.checkpoint()?;
        self.seen.lock().unwrap().runs += 1;
        let middle = self.input.len() / 2 - 1;
        for (at, byte) in self.output.iter_mut().enumerate() {
            *byte = self.input[middle + at] + 1;
        }
        if self.is_broken {
            return Err(Failure::general("broken"));
        }
        Ok(None)
    }

    fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        (index == 0).then_some((&self.result, &self.output))
    }

    fn release_memory(&mut self) {}
}

/// A context of an execution with an input of so many bytes.
struct Bench {
    model: ValidModel,
    context: Context,
    seen: Arc<Mutex<Seen>>,
}

/// That with an execution that is otherwise as `change` says.
fn bench(bytes: u32, change: impl FnOnce(&mut PlusOne)) -> Bench {
    bench_of(bytes, |execution, _| change(execution))
}

/// The same for a change that knows the work.
fn bench_of(bytes: u32, change: impl FnOnce(&mut PlusOne, Observer)) -> Bench {
    let tensor = |extent, lifetime| {
        Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[extent])
            .with_quantization(1.0, 0)
            .with_lifetime(lifetime)
    };
    let mut input = tensor(bytes, OperandLifeTime::SubgraphInput);
    input.number_of_consumers = 1;
    let model = Model {
        main: Subgraph {
            // What the device gives has its own dimensions.
            operands: vec![input, tensor(0, OperandLifeTime::SubgraphOutput)],
            operations: vec![Operation {
                operation_type: OperationType::RELU,
                inputs: vec![0],
                outputs: vec![1],
            }],
            input_indexes: vec![0],
            output_indexes: vec![1],
        },
        ..Model::default()
    };
    let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
    let seen = Arc::default();
    let mut execution = PlusOne {
        input: vec![0; bytes as usize],
        output: [0; 3],
        result: Shape::new(&[3]).unwrap(),
        is_broken: false,
        queue: None,
        seen: Arc::clone(&seen),
    };
    change(&mut execution, ticket.observer());
    let watchdog = Watchdog::new(None, eventfd::create().unwrap());
    Bench {
        model: ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap(),
        context: Context::new(
            Box::new(execution),
            ticket,
            &Arc::new(watchdog),
            &Arc::new(Estimate::unsteady()),
        ),
        seen,
    }
}

impl Bench {
    /// Runs with an input and an output there; pool 0 is the packets.
    fn run(
        &mut self,
        [input, output]: [At; 2],
        pools: &Vec<Pool>,
        (packet, reply): (&[u8], &mut [u8]),
    ) -> Result<Timing, Box<Failure>> {
        let argument = |(pool_index, offset, length), dimensions| RequestArgument {
            has_no_value: false,
            location: DataLocation {
                pool_index,
                offset,
                length,
            },
            dimensions,
        };
        // The worker may find less room than the client says that there is.
        let pool = RequestPool::Memory { size: u64::MAX };
        let request = Request {
            inputs: vec![argument(input, Vec::new())],
            outputs: vec![argument(output, vec![3])],
            pools: vec![pool; pools.len()],
        };
        let request = ValidRequest::new(&self.model, &request).unwrap();
        let run = Run {
            request: &request,
            pools,
            limits: RunLimits::from_hal(None, None),
            measure_since: None,
            tells_shapes: false,
            keeps_slot: true,
        };
        let mut packets = PacketPools {
            inputs: Some((PACKET, packet)),
            outputs: Some((PACKET, reply)),
        };
        self.context.run(&run, &mut packets)
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }
}

/// A memory that can be read, and written if `protection` says so.
fn memory(size: u64, protection: u32) -> Arc<Memory> {
    let memories = Memories::new(&Limits::default(), crate::usage::Quotas::alone());
    let description = MemoryDescription {
        name: "ashmem".into(),
        fds: 1,
        size,
        offset: 0,
        protection,
    };
    let fd = SharedMemory::create(size).unwrap().into();
    let handle = memories.register(&description, vec![fd]).unwrap();
    memories.get(handle).unwrap()
}

#[test]
fn arguments_are_in_packets_or_in_memory() {
    let pools = vec![None, Some(memory(8, 3))];
    let shared = pools[1].as_ref().unwrap();
    let mut bench = bench(3, |_| {});
    shared.write(1, &[7, 8, 9]).unwrap();
    let mut reply = [0; 5];
    bench
        .run([(1, 1, 3), (PACKET, 2, 3)], &pools, (&[], &mut reply))
        .unwrap();
    assert_eq!(reply, [0, 0, 8, 9, 10]);
    // Locations may be larger than what is in them.
    let packet = [0, 1, 2, 3];
    bench
        .run([(PACKET, 1, 4), (1, 4, 4)], &pools, (&packet, &mut []))
        .unwrap();
    let mut found = [0; 8];
    shared.read(0, &mut found).unwrap();
    assert_eq!(found, [0, 7, 8, 9, 2, 3, 4, 0]);
    assert_eq!(bench.seen().runs, 2);
}

#[test]
fn arguments_that_are_not_there_are_told_of_before_anything_is_computed() {
    let pools = vec![None, Some(memory(8, 3)), Some(memory(8, 1)), None];
    let packet = (PACKET, 0, 3);
    let cases = [
        ((3, 0, 3), packet, "pool 3 of the request is no memory"),
        ((1, 6, 3), packet, "input 0"),
        (packet, (3, 0, 3), "pool 3 of the request is no memory"),
        (packet, (2, 0, 3), "shared for reading only"),
    ];
    let mut bench = bench(3, |_| {});
    for (input, output, expected) in cases {
        let outcome = bench.run([input, output], &pools, (&[1, 2, 3], &mut [0; 3]));
        let failure = outcome.unwrap_err();
        assert!(failure.detail.contains(expected), "{expected}: {failure}");
    }
    assert_eq!(bench.seen().runs, 0);
}

#[test]
fn results_that_cannot_be_written_are_told_of() {
    let pools = vec![None, Some(memory(8, 3))];
    let packet = (PACKET, 0, 3);
    let mut reply = [0; 2];
    let mut same = bench(3, |_| {});
    for (output, status) in [
        ((PACKET, 0, 2), ErrorStatus::OutputInsufficientSize),
        ((PACKET, 0, 3), ErrorStatus::InvalidArgument),
        ((1, 6, 3), ErrorStatus::GeneralFailure),
    ] {
        let outcome = same.run([packet, output], &pools, (&[1, 2, 3], &mut reply));
        assert_eq!(outcome.unwrap_err().status, status, "{output:?}");
        let tells_shapes = status == ErrorStatus::OutputInsufficientSize;
        assert_eq!(!same.context.outputs().is_empty(), tells_shapes);
    }
    let mut other_shape = bench(3, |execution| execution.result = Shape::new(&[2]).unwrap());
    let outcome = other_shape.run([packet, packet], &pools, (&[1, 2, 3], &mut [0; 3]));
    assert!(outcome.unwrap_err().detail.contains("has dimensions"));
    assert_eq!((same.seen().runs, other_shape.seen().runs, reply), (3, 1, [0; 2]));
}

#[test]
fn devices_read_inputs_part_by_part() {
    let mut bench = bench(6, |_| {});
    let pools = vec![None, Some(memory(10, 3))];
    let mut run = |input: At, packet: &[u8]| {
        let mut reply = [0; 3];
        let outcome = bench.run([input, (PACKET, 0, 3)], &pools, (packet, &mut reply));
        outcome
            .map(|_| (reply, bench.seen().reads))
            .map_err(|failure| failure.detail)
    };
    // Not mapped yet.
    assert_eq!(run((1, 4, 6), &[]), Ok(([1; 3], 1)));
    pools[1].as_ref().unwrap().write(6, &[7, 8, 9]).unwrap();
    assert_eq!(run((1, 4, 6), &[]), Ok(([8, 9, 10], 2)));
    // The memory is too short.
    assert!(run((1, 5, 6), &[]).is_err());
    assert_eq!(run((PACKET, 0, 6), &[0, 1, 2, 3, 4, 5]), Ok(([3, 4, 5], 4)));
}

#[test]
fn failures_are_the_devices_and_the_schedulers() {
    let arguments = [(PACKET, 0, 3); 2];
    let mut broken = bench(3, |execution| execution.is_broken = true);
    let outcome = broken.run(arguments, &vec![None], (&[1, 2, 3], &mut [0; 3]));
    let failure = outcome.unwrap_err();
    assert_eq!(
        (failure.status, &*failure.detail),
        (ErrorStatus::GeneralFailure, "broken")
    );
    let mut cancelled = bench(3, |_| {});
    cancelled.context.ticket().observer().cancel();
    let outcome = cancelled.run(arguments, &vec![None], (&[1, 2, 3], &mut [0; 3]));
    let failure = outcome.unwrap_err();
    assert!(failure.detail.contains("cancelled"), "{}", failure.detail);
    assert_eq!(cancelled.seen().runs, 0);
}

const PACKETS: [At; 2] = [(PACKET, 0, 3); 2];

#[test]
fn queued_run_is_over_when_its_fence_has_signalled() {
    let fence = eventfd::create().unwrap();
    eventfd::add(&fence, 1).unwrap();
    let mut bench = bench(3, |execution| execution.queue = Some(Queue::of(fence)));
    let mut reply = [0; 3];
    bench.run(PACKETS, &vec![None], (&[1, 2, 3], &mut reply)).unwrap();
    assert_eq!(reply, [2, 3, 4]);
    let seen = bench.seen();
    assert_eq!((seen.runs, seen.collects, seen.cancels), (1, 1, 0));
}

#[test]
fn queued_run_whose_fence_has_failed_is_a_failure() {
    let fence = eventfd::create().unwrap();
    eventfd::add(&fence, eventfd::MAX_COUNT).unwrap();
    let mut bench = bench(3, |execution| execution.queue = Some(Queue::of(fence)));
    let outcome = bench.run(PACKETS, &vec![None], (&[1, 2, 3], &mut [0; 3]));
    let failure = outcome.unwrap_err();
    assert!(failure.detail.contains("fence has failed"), "{failure}");
    assert_eq!(bench.seen().collects, 1);
    assert!(!bench.context.is_lost());
}

#[test]
fn execution_whose_fence_cannot_be_waited_for_is_never_used_again() {
    let file = SharedMemory::create(8).unwrap();
    let mut bench = bench(3, |execution| execution.queue = Some(Queue::of(file)));
    let mut run = || {
        let outcome = bench.run(PACKETS, &vec![None], (&[1, 2, 3], &mut [0; 3]));
        (outcome.unwrap_err().detail, bench.seen(), bench.context.is_lost())
    };
    let (detail, seen, is_lost) = run();
    assert!(
        detail.contains("is a file, which cannot be waited for"),
        "{detail}"
    );
    assert_eq!((seen.cancels, seen.collects, is_lost), (1, 0, true));
    let (detail, again, _) = run();
    assert!(detail.contains("may still compute"), "{detail}");
    assert_eq!(again, seen);
}

#[test]
fn cancelled_queued_run_waits_until_the_device_has_let_go() {
    let fence = eventfd::create().unwrap();
    let mut bench = bench_of(3, |execution, work| {
        execution.queue = Some(Queue {
            cancels: Some(work),
            ..Queue::of(fence)
        });
    });
    let outcome = bench.run(PACKETS, &vec![None], (&[1, 2, 3], &mut [0; 3]));
    let failure = outcome.unwrap_err();
    assert!(failure.detail.contains("cancelled"), "{failure}");
    let seen = bench.seen();
    assert_eq!((seen.runs, seen.cancels, seen.collects), (1, 1, 1));
    // Of the next call's work it is known that nobody has cancelled it; its fence has come already.
    bench.context.ticket().reset();
    bench
        .run(PACKETS, &vec![None], (&[1, 2, 3], &mut [0; 3]))
        .unwrap();
}
