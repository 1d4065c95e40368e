//! Plain requests: shapes known beforehand, every argument in memory or in the packet. What there is to look
//! up of them is looked up once; for small models it takes longer than to compute.

use nnhal::burst::copy_values;
use nnhal_device::{Control, Execution};
use nnhal_hal::validate::{ArgumentPlan, ValidRequest};
use nnhal_hal::{Failure, Shape, loop_timeout};
use nnhal_os::time::Deadline;

use super::{Context, InlineBytes, LARGE_INPUT, Pools};
use crate::worker::memory::Memory;

/// A request whose arguments are all plain, if that was found. Its memory is used again for others.
#[derive(Debug, Default)]
pub(crate) struct PlainRequest {
    is_plain: bool,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
}

#[derive(Debug)]
struct Argument {
    shape: Shape,
    place: Place,
    offset: u64,
    length: u64,
}

/// How far a plain request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainRun {
    /// To the end.
    Done,
    /// The device has computed, but not all outputs are where they are to be: [`Context::finish`] is to do
    /// the rest, or to tell what is wrong.
    Computed,
    /// Nothing was computed, since something is not as it mostly is: [`Context::run`] is to do all of it.
    NotBegun,
}

/// What an argument's offset is in.
#[derive(Clone, Copy, Debug)]
enum Place {
    Packet,
    Pool(u32),
}

impl PlainRequest {
    /// Whether [`Context::run_plain`] may run it.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The request is another one, of which nothing was looked up.
    pub(crate) fn forget(&mut self) {
        self.is_plain = false;
    }

    /// Whether an argument is in this pool.
    pub(crate) fn names(&self, pool: u32) -> bool {
        let mut arguments = self.inputs.iter().chain(&self.outputs);
        arguments.any(|argument| matches!(argument.place, Place::Pool(named) if named == pool))
    }

    /// Looks up the arguments of a request whose outputs have shapes that are known: it is plain if none is
    /// left out and none is a device buffer.
    pub(crate) fn look_up(&mut self, request: &ValidRequest, inline: &InlineBytes) {
        self.is_plain = fill(&mut self.inputs, request.inputs(), inline.input_pool)
            && fill(&mut self.outputs, request.outputs(), inline.output_pool);
    }
}

/// Says whether all arguments are plain.
fn fill(arguments: &mut Vec<Argument>, plans: &[ArgumentPlan], packet: Option<u32>) -> bool {
    arguments.clear();
    arguments.extend(plans.iter().map_while(|plan| Argument::of(plan, packet)));
    arguments.len() == plans.len()
}

impl Argument {
    fn of(plan: &ArgumentPlan, packet: Option<u32>) -> Option<Argument> {
        let ArgumentPlan::Memory {
            shape,
            pool,
            offset,
            length,
        } = plan
        else {
            return None;
        };
        Some(Argument {
            shape: *shape,
            place: if packet == Some(*pool) {
                Place::Packet
            } else {
                Place::Pool(*pool)
            },
            offset: *offset,
            length: *length,
        })
    }

    /// The place of so many bytes of it in a packet.
    #[inline(always)]
    fn in_packet(&self, length: usize) -> std::ops::Range<usize> {
        let start = self.offset as usize;
        start..start.saturating_add(length)
    }

    /// Copies an input; says whether it could.
    #[inline(always)]
    fn read(&self, pools: &impl Pools, packet: &[u8], bytes: &mut [u8]) -> bool {
        if bytes.len() as u64 > self.length {
            return false;
        }
        match self.place {
            Place::Packet => packet
                .get(self.in_packet(bytes.len()))
                .map(|from| copy_values(from, bytes))
                .is_some(),
            Place::Pool(pool) => pools
                .memory(pool)
                .is_some_and(|memory| memory.read(self.offset, bytes).is_ok()),
        }
    }

    /// Where an input of so many bytes is, if that is large and can be read part by part.
    #[inline(always)]
    fn large<'p>(&self, pools: &'p impl Pools, length: usize) -> Option<&'p Memory> {
        match self.place {
            Place::Pool(pool) if length >= LARGE_INPUT && length as u64 <= self.length => {
                let memory = pools.memory(pool);
                memory.filter(|memory| memory.is_at_hand(self.offset, length))
            }
            _ => None,
        }
    }

    /// Copies an output; says whether it could.
    #[inline(always)]
    fn write(&self, pools: &impl Pools, packet: &mut [u8], bytes: &[u8]) -> bool {
        if bytes.len() as u64 > self.length {
            return false;
        }
        match self.place {
            Place::Packet => packet
                .get_mut(self.in_packet(bytes.len()))
                .map(|to| copy_values(bytes, to))
                .is_some(),
            Place::Pool(pool) => pools
                .memory(pool)
                .is_some_and(|memory| memory.write(self.offset, bytes).is_ok()),
        }
    }
}

/// Has the device fill an input; says whether it could.
#[inline(never)]
fn fill_large(
    execution: &mut dyn Execution,
    (index, input): (usize, &Argument),
    memory: &Memory,
    control: &Control<'_>,
) -> bool {
    let fill = |from, bytes: &mut [u8]| memory.read(input.offset + from, bytes);
    execution.fill_input(index, &input.shape, control, &fill).is_ok()
}

impl Context {
    /// Runs a plain request that has no deadline, and that nobody measures or traces, with the bytes of its
    /// inputs and outputs that are in packets, as far as everything is as it mostly is: inputs have the
    /// shapes of the last run, memories are held. Keeps the slot, which [`Context::run`] goes on with if
    /// nothing was computed.
    ///
    /// # Errors
    /// The device's, and that the work was cancelled.
    pub(crate) fn run_plain(
        &mut self,
        request: &PlainRequest,
        pools: &impl Pools,
        (packet, reply): (&[u8], &mut [u8]),
    ) -> Result<PlainRun, Box<Failure>> {
        self.outputs.clear();
        // What is copied before it is found that an input is not there would be copied again.
        if self.read_in_place {
            return Ok(PlainRun::NotBegun);
        }
        for (index, output) in request.outputs.iter().enumerate() {
            self.execution.expect_output(index, &output.shape);
            if let Place::Pool(pool) = output.place {
                let memory = pools.memory(pool).filter(|memory| memory.is_writable());
                if memory.is_none_or(|memory| memory.expect_write(output.offset, output.length).is_err()) {
                    return Ok(PlainRun::NotBegun);
                }
            }
        }
        self.take_slot(Deadline::NONE)?;
        self.watchdog.work_starts();
        let control = Control::new(&self.ticket, Deadline::NONE, loop_timeout::DEFAULT);
        for (index, input) in request.inputs.iter().enumerate() {
            let is_read = match self.execution.input_again(index, &input.shape) {
                Some(bytes) => match input.large(pools, bytes.len()) {
                    Some(memory) => fill_large(&mut *self.execution, (index, input), memory, &control),
                    None => input.read(pools, packet, bytes),
                },
                None => false,
            };
            if !is_read {
                self.is_slot_fresh = true;
                return Ok(PlainRun::NotBegun);
            }
        }
        self.execution.run(&control)?;
        for (index, output) in request.outputs.iter().enumerate() {
            let found = self.execution.output(index);
            let found = found.filter(|(shape, _)| **shape == output.shape);
            if !found.is_some_and(|(_, bytes)| output.write(pools, reply, bytes)) {
                return Ok(PlainRun::Computed);
            }
        }
        Ok(PlainRun::Done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use nnhal::wire::MemoryDescription;
    use nnhal_device::Fill;
    use nnhal_hal::{ErrorStatus, Priority};
    use nnhal_os::eventfd;
    use nnhal_os::shm::SharedMemory;

    use super::*;
    use crate::scheduler::{Scheduler, Ticket};
    use crate::settings::Limits;
    use crate::worker::estimate::Estimate;
    use crate::worker::memory::Memories;
    use crate::worker::run::{FoundOutput, RETURNS_WHEN_WANTED};
    use crate::worker::watchdog::Watchdog;

    type Pool = Option<Arc<Memory>>;

    /// Adds one to each byte of an input of three.
    #[derive(Debug)]
    struct PlusOne {
        input: [u8; 3],
        output: [u8; 3],
        known: Shape,
        result: Shape,
        is_broken: bool,
        runs: Arc<Mutex<u32>>,
    }

    impl Execution for PlusOne {
        fn input(&mut self, _: usize, _: &Shape) -> Result<&mut [u8], Failure> {
            Ok(&mut self.input)
        }

        fn input_again(&mut self, index: usize, shape: &Shape) -> Option<&mut [u8]> {
            (index == 0 && *shape == self.known).then_some(&mut self.input)
        }

        fn omit_input(&mut self, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
            control.checkpoint()?;
            *self.runs.lock().unwrap() += 1;
            self.output = self.input.map(|byte| byte + 1);
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

    fn shape() -> Shape {
        Shape::new(&[3]).unwrap()
    }

    struct Bench {
        scheduler: Arc<Scheduler>,
        context: Context,
        runs: Arc<Mutex<u32>>,
    }

    /// A context of an execution that is otherwise as `change` says.
    fn bench(change: impl FnOnce(&mut PlusOne)) -> Bench {
        let runs = Arc::new(Mutex::new(0));
        let mut execution = PlusOne {
            input: [0; 3],
            output: [0; 3],
            known: shape(),
            result: shape(),
            is_broken: false,
            runs: Arc::clone(&runs),
        };
        change(&mut execution);
        bench_of(Box::new(execution), runs)
    }

    /// A context of an execution that counts its runs.
    fn bench_of(execution: Box<dyn Execution>, runs: Arc<Mutex<u32>>) -> Bench {
        let scheduler = Scheduler::alone(1);
        let ticket = Ticket::new(&scheduler, Priority::Medium);
        let watchdog = Watchdog::new(None, eventfd::create().unwrap());
        let mut context = Context::new(
            execution,
            ticket,
            &Arc::new(watchdog),
            &Arc::new(Estimate::unsteady()),
        );
        // What an earlier run has told.
        context.outputs.push(FoundOutput {
            shape: shape(),
            is_sufficient: true,
        });
        Bench {
            scheduler,
            context,
            runs,
        }
    }

    impl Bench {
        fn run(
            &mut self,
            request: &PlainRequest,
            pools: &Vec<Pool>,
            packets: (&[u8], &mut [u8]),
        ) -> Result<PlainRun, Box<Failure>> {
            let outcome = self.context.run_plain(request, pools, packets);
            assert!(self.context.outputs().is_empty());
            outcome
        }

        fn runs(&self) -> u32 {
            *self.runs.lock().unwrap()
        }

        /// Starts a thread that takes the slot when it is free and leaves it; returns once that waits.
        fn start_other(&self) -> JoinHandle<()> {
            let ticket = Ticket::new(&self.scheduler, Priority::Medium);
            let other = std::thread::spawn(move || {
                ticket.enter(Deadline::NONE).unwrap();
                ticket.leave();
            });
            while !self.scheduler.has_waiting() {
                std::thread::yield_now();
            }
            other
        }
    }

    /// A memory of eight bytes, which can be read, and written if `protection` says so.
    fn memory(protection: u32) -> Arc<Memory> {
        memory_of(8, protection)
    }

    fn memory_of(size: u64, protection: u32) -> Arc<Memory> {
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

    fn argument(place: Place, offset: u64, length: u64) -> Argument {
        Argument {
            shape: shape(),
            place,
            offset,
            length,
        }
    }

    fn request(input: Argument, output: Argument) -> PlainRequest {
        PlainRequest {
            is_plain: true,
            inputs: vec![input],
            outputs: vec![output],
        }
    }

    #[test]
    fn arguments_are_in_packets_or_in_memory() {
        let pools = vec![None, Some(memory(3))];
        let shared = pools[1].as_ref().unwrap();
        let mut bench = bench(|_| {});
        shared.write(1, &[7, 8, 9]).unwrap();
        let from_memory = request(argument(Place::Pool(1), 1, 3), argument(Place::Packet, 2, 3));
        let mut reply = [0; 5];
        let outcome = bench.run(&from_memory, &pools, (&[], &mut reply)).unwrap();
        assert_eq!(outcome, PlainRun::Done);
        assert_eq!(reply, [0, 0, 8, 9, 10]);
        // Locations may be larger than what is in them.
        let from_packet = request(argument(Place::Packet, 1, 4), argument(Place::Pool(1), 4, 4));
        let packet = [0, 1, 2, 3];
        let outcome = bench.run(&from_packet, &pools, (&packet, &mut [])).unwrap();
        assert_eq!(outcome, PlainRun::Done);
        let mut found = [0; 8];
        shared.read(0, &mut found).unwrap();
        assert_eq!(found, [0, 7, 8, 9, 2, 3, 4, 0]);
        assert_eq!(bench.runs(), 2);
    }

    #[test]
    fn what_is_not_as_mostly_is_left_to_others_before_it_is_computed() {
        let pools = vec![None, Some(memory(3)), Some(memory(1))];
        let packet = || argument(Place::Packet, 0, 3);
        let pool = |pool, offset, length| argument(Place::Pool(pool), offset, length);
        let cases = [
            (pool(0, 0, 3), packet()),
            (pool(3, 0, 3), packet()),
            (pool(1, 6, 3), packet()),
            (pool(1, 0, 2), packet()),
            (argument(Place::Packet, 1, 3), packet()),
            (argument(Place::Packet, u64::MAX, 3), packet()),
            (packet(), pool(0, 0, 3)),
            (packet(), pool(2, 0, 3)),
        ];
        let mut same = bench(|_| {});
        for (input, output) in cases {
            let request = request(input, output);
            let outcome = same.run(&request, &pools, (&[1, 2, 3], &mut [0; 3]));
            assert_eq!(outcome.unwrap(), PlainRun::NotBegun, "{request:?}");
        }
        assert_eq!(same.runs(), 0);
        let mut other_shape = bench(|execution| execution.known = Shape::SCALAR);
        let plain = request(packet(), packet());
        let outcome = other_shape.run(&plain, &pools, (&[1, 2, 3], &mut [0; 3]));
        assert_eq!(outcome.unwrap(), PlainRun::NotBegun);
        assert_eq!(other_shape.runs(), 0);
        let mut in_place = bench(|_| {});
        in_place.context.read_in_place = true;
        let outcome = in_place.run(&plain, &pools, (&[1, 2, 3], &mut [0; 3]));
        assert_eq!((outcome.unwrap(), in_place.runs()), (PlainRun::NotBegun, 0));
    }

    #[test]
    fn results_that_cannot_be_written_are_computed_once_and_left_to_others() {
        let packet = |length| argument(Place::Packet, 0, length);
        let pools = vec![Some(memory(3))];
        let mut reply = [0; 2];
        let mut same = bench(|_| {});
        for output in [packet(2), packet(3), argument(Place::Pool(0), 6, 3)] {
            let request = request(packet(3), output);
            let outcome = same.run(&request, &pools, (&[1, 2, 3], &mut reply));
            assert_eq!(outcome.unwrap(), PlainRun::Computed, "{request:?}");
        }
        let mut other_shape = bench(|execution| execution.result = Shape::SCALAR);
        let request = request(packet(3), packet(3));
        let outcome = other_shape.run(&request, &pools, (&[1, 2, 3], &mut [0; 3]));
        assert_eq!(outcome.unwrap(), PlainRun::Computed);
        assert_eq!((same.runs(), other_shape.runs(), reply), (3, 1, [0; 2]));
    }

    #[test]
    fn a_slot_that_nothing_has_run_in_is_not_given_back_to_those_who_wait() {
        let mut bench = bench(|execution| execution.known = Shape::SCALAR);
        let plain = request(argument(Place::Packet, 0, 3), argument(Place::Packet, 0, 3));
        let outcome = bench.run(&plain, &vec![], (&[1, 2, 3], &mut [0; 3]));
        assert_eq!(outcome.unwrap(), PlainRun::NotBegun);
        let other = bench.start_other();
        bench.context.take_slot(Deadline::NONE).unwrap();
        assert!(bench.scheduler.has_waiting());
        // The next one lets others go first.
        bench.context.take_slot(Deadline::NONE).unwrap();
        other.join().unwrap();
        assert!(!bench.scheduler.has_waiting());
    }

    #[test]
    fn a_slot_is_kept_for_the_next_run_unless_others_have_waited_for_one() {
        let mut bench = bench(|_| {});
        bench.context.take_slot(Deadline::NONE).unwrap();
        bench.context.rest_in_slot();
        assert!(!bench.scheduler.has_free_slot());
        let other = bench.start_other();
        bench.context.leave_slot();
        other.join().unwrap();
        for _ in 0..RETURNS_WHEN_WANTED {
            bench.context.take_slot(Deadline::NONE).unwrap();
            bench.context.rest_in_slot();
            assert!(bench.scheduler.has_free_slot());
        }
        bench.context.take_slot(Deadline::NONE).unwrap();
        bench.context.rest_in_slot();
        assert!(!bench.scheduler.has_free_slot());
        // Nothing has run in it since.
        bench.context.rest_in_slot();
        assert!(bench.scheduler.has_free_slot());
    }

    #[test]
    fn a_slot_that_nothing_has_run_in_is_not_kept() {
        let mut bench = bench(|execution| execution.known = Shape::SCALAR);
        let plain = request(argument(Place::Packet, 0, 3), argument(Place::Packet, 0, 3));
        let outcome = bench.run(&plain, &vec![], (&[1, 2, 3], &mut [0; 3]));
        assert_eq!(outcome.unwrap(), PlainRun::NotBegun);
        assert!(!bench.scheduler.has_free_slot());
        bench.context.rest_in_slot();
        assert!(bench.scheduler.has_free_slot());
    }

    /// Takes a large input, which it has filled in two parts, and gives the three bytes at which they meet.
    #[derive(Debug)]
    struct Large {
        input: Vec<u8>,
        fills: Arc<Mutex<u32>>,
    }

    impl Execution for Large {
        fn input(&mut self, _: usize, _: &Shape) -> Result<&mut [u8], Failure> {
            Ok(&mut self.input)
        }

        fn input_again(&mut self, _: usize, _: &Shape) -> Option<&mut [u8]> {
            Some(&mut self.input)
        }

        fn fill_input(
            &mut self,
            _: usize,
            _: &Shape,
            _: &Control<'_>,
            fill: &Fill<'_>,
        ) -> Result<(), Failure> {
            *self.fills.lock().unwrap() += 1;
            let (first, second) = self.input.split_at_mut(1000);
            fill(1000, second)?;
            fill(0, first)
        }

        fn omit_input(&mut self, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        fn run(&mut self, _: &Control<'_>) -> Result<Option<Duration>, Failure> {
            Ok(None)
        }

        fn output(&self, _: usize) -> Option<(&Shape, &[u8])> {
            static SHAPE: std::sync::LazyLock<Shape> = std::sync::LazyLock::new(shape);
            Some((&SHAPE, &self.input[999..1002]))
        }

        fn release_memory(&mut self) {}
    }

    #[test]
    fn devices_fill_large_inputs_that_are_in_memory() {
        let fills = Arc::new(Mutex::new(0));
        let execution = Large {
            input: vec![0; LARGE_INPUT],
            fills: Arc::clone(&fills),
        };
        let mut bench = bench_of(Box::new(execution), Arc::default());
        let length = LARGE_INPUT as u64;
        let pools = vec![Some(memory_of(length + 8, 3))];
        let in_pool = |offset, length| {
            request(
                argument(Place::Pool(0), offset, length),
                argument(Place::Packet, 0, 3),
            )
        };
        let mut run = |request: &PlainRequest, packet: &[u8]| {
            let mut reply = [0; 3];
            let outcome = bench.run(request, &pools, (packet, &mut reply)).unwrap();
            (outcome, reply, *fills.lock().unwrap())
        };
        // Not mapped yet.
        assert_eq!(run(&in_pool(8, length), &[]), (PlainRun::Done, [0; 3], 0));
        let shared = pools[0].as_ref().unwrap();
        shared.write(8 + 999, &[7, 8, 9]).unwrap();
        assert_eq!(run(&in_pool(8, length), &[]), (PlainRun::Done, [7, 8, 9], 1));
        // The location, or the memory, is too short.
        for short in [in_pool(8, length - 1), in_pool(9, length)] {
            assert_eq!(run(&short, &[]).0, PlainRun::NotBegun);
        }
        let packet: Vec<u8> = (0..LARGE_INPUT).map(|at| at as u8).collect();
        let in_packet = request(argument(Place::Packet, 0, length), argument(Place::Packet, 0, 3));
        let expected = [999, 1000, 1001].map(|at: u32| at as u8);
        assert_eq!(run(&in_packet, &packet), (PlainRun::Done, expected, 1));
    }

    #[test]
    fn failures_are_the_devices_and_the_schedulers() {
        let plain = request(argument(Place::Packet, 0, 3), argument(Place::Packet, 0, 3));
        let mut broken = bench(|execution| execution.is_broken = true);
        let failure = broken
            .run(&plain, &vec![], (&[1, 2, 3], &mut [0; 3]))
            .unwrap_err();
        assert_eq!(
            (failure.status, &*failure.detail),
            (ErrorStatus::GeneralFailure, "broken")
        );
        let mut cancelled = bench(|_| {});
        cancelled.context.ticket().observer().cancel();
        let failure = cancelled
            .run(&plain, &vec![], (&[1, 2, 3], &mut [0; 3]))
            .unwrap_err();
        assert!(failure.detail.contains("cancelled"), "{}", failure.detail);
        assert_eq!(cancelled.runs(), 0);
    }

    #[test]
    fn requests_with_all_arguments_in_place_are_plain() {
        let memory = |pool| ArgumentPlan::Memory {
            shape: shape(),
            pool,
            offset: 4,
            length: 5,
        };
        let token = ArgumentPlan::Token {
            shape: shape(),
            token: 1,
        };
        let mut arguments = Vec::new();
        assert!(fill(&mut arguments, &[memory(2), memory(3)], Some(3)));
        assert!(matches!(
            arguments[..],
            [
                Argument {
                    place: Place::Pool(2),
                    offset: 4,
                    length: 5,
                    ..
                },
                Argument {
                    place: Place::Packet,
                    ..
                },
            ]
        ));
        assert!(!fill(&mut arguments, &[memory(2), ArgumentPlan::Omitted], None));
        assert!(!fill(&mut arguments, &[token, memory(2)], None));
        assert!(fill(&mut arguments, &[], None) && arguments.is_empty());
    }
}
