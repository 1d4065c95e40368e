//! Clients that change what they share while the driver uses it, and that send what nobody wants, many times
//! over (T1, T3, T4, T9, T10 of the threat model). Another client is served beside them all the time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};
use nnhal::wire::{Call, CauseOfDeath, MemoryDescription, MemoryHandle, Message, PreparedModelHandle, Reply};
use nnhal_hal::{DeviceStatus, ErrorStatus, Failure};
use nnhal_os::eventfd;
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, Neighbour, RawClient, SetOnDrop, TIMEOUT, TestDaemon, add_model, anonymous_bytes,
    execution, fds_of, group_of, is_alive, private_bytes, request_in_one_memory, shared_bytes, shared_floats,
    wait_until,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// How often a memory is changed while it is used.
const RACES: u32 = 10_000;

/// The fewest executions beside that.
const EXECUTIONS: u32 = 300;

/// Elements of each argument: two pages.
const ELEMENTS: u32 = 2048;

/// Bytes of a memory that has all three arguments.
const BYTES: u64 = ELEMENTS as u64 * 4 * 3;

fn start(settings: &str) -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::with_settings(settings))
}

fn connect(daemon: &TestDaemon) -> RawClient {
    RawClient::connect(&daemon.runtime_dir(), "nnhal-reference")
}

/// The call that executes a sum of so many bytes in one memory.
fn sum(model: PreparedModelHandle, memory: MemoryHandle, bytes: u32) -> Call {
    execution(model, request_in_one_memory(memory, 2, 1, bytes))
}

/// A memory of this size in a file.
fn description(size: u64) -> MemoryDescription {
    MemoryDescription {
        name: "mmap_fd".into(),
        fds: 1,
        size,
        offset: 0,
        protection: 3,
    }
}

/// What comes of a call.
enum Answer {
    Replied,
    /// By this signal, with what it said last.
    Died(i32, String),
}

/// Executes; every call has an answer, if it is that the worker died.
fn execute(client: &mut RawClient, model: PreparedModelHandle, memory: MemoryHandle) -> Answer {
    let sent = client.send(sum(model, memory, ELEMENTS * 4), &[]);
    let messages = match sent.and_then(|_| client.receive()) {
        Ok((Message::Reply { .. }, _)) => return Answer::Replied,
        Ok((message, _)) => vec![message],
        Err(_) => client.drain(),
    };
    let exits = messages.into_iter().chain(client.drain());
    let mut ends = exits.filter_map(|message| match message {
        Message::WorkerExit(exit) => Some((exit.cause, exit.last_words)),
        _ => None,
    });
    match ends.next() {
        Some((CauseOfDeath::Killed { signal, .. }, last_words)) => Answer::Died(signal, last_words),
        other => panic!("a call has no answer; the worker: {other:?}"),
    }
}

#[test]
fn memories_that_are_cut_short_at_any_moment_harm_their_owner_only() {
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let file = tempfile::tempfile().unwrap();
    let (cuts, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let (mut replies, mut deaths) = (0_u32, 0_u32);
    let deadline = default_deadline();
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        let cutting = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(BYTES).unwrap();
                // As long as it takes to be used now and then.
                for _ in 0..cuts.load(Ordering::Relaxed) % 16 {
                    std::thread::yield_now();
                }
                file.set_len(u64::from(cuts.load(Ordering::Relaxed) % 3) * 4096)
                    .unwrap();
                cuts.fetch_add(1, Ordering::Relaxed);
            }
        });
        while cuts.load(Ordering::Relaxed) < RACES || deaths == 0 || replies == 0 {
            assert!(!cutting.is_finished(), "nobody cuts the memory any more");
            assert!(
                !deadline.is_past(MonotonicClock.now()),
                "T1: only {} cuts, {replies} executions answered and {deaths} dead workers in {TIMEOUT:?}",
                cuts.load(Ordering::Relaxed)
            );
            let mut client = connect(&daemon);
            let model = client.prepare(add_model(ELEMENTS)).unwrap();
            // It may be too short just now.
            let call = Call::RegisterMemory(description(BYTES));
            let registered = client.call(call, &[file.as_fd()]);
            let Ok(Reply::Memory(memory)) = registered else {
                assert!(
                    matches!(registered, Err(ref failure) if failure.status == ErrorStatus::InvalidArgument)
                );
                continue;
            };
            for _ in 0..100 {
                match execute(&mut client, model, memory) {
                    Answer::Replied => replies += 1,
                    Answer::Died(signal, last_words) => {
                        assert_eq!(signal, nix::sys::signal::Signal::SIGBUS as i32, "T1");
                        let handle = memory.0;
                        let named = format!(
                            "memory {} of generation {}, {BYTES} bytes of a file, was cut short",
                            handle.index, handle.generation
                        );
                        assert!(last_words.contains(&named), "T1: {last_words:?}");
                        deaths += 1;
                        break;
                    }
                }
            }
            neighbour.expect_served();
        }
    });
    println!(
        "{} cuts: {replies} executions answered, {deaths} workers died of SIGBUS",
        cuts.load(Ordering::Relaxed)
    );
    assert!(is_alive(daemon.pid()), "T1");
    neighbour.expect_served();
}

#[test]
fn holes_that_are_punched_while_executions_run_change_values_only() {
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let worker = client.welcome.worker_pid;
    let model = client.prepare(add_model(ELEMENTS)).unwrap();
    let mut values = vec![1.0; ELEMENTS as usize];
    values.resize(2 * ELEMENTS as usize, 2.0);
    values.resize(3 * ELEMENTS as usize, 0.0);
    let inputs: Vec<u8> = values[..2 * ELEMENTS as usize]
        .iter()
        .flat_map(|value: &f32| value.to_le_bytes())
        .collect();
    let (shared, mapping) = shared_floats(&values);
    let memory = client.register(&shared);
    let holed = shared.as_fd().try_clone_to_owned().unwrap();
    let (holes, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut executions = 0_u32;
    let deadline = default_deadline();
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        let punching = scope.spawn(|| punch(&holed, &holes, &is_over));
        while holes.load(Ordering::Relaxed) < RACES || executions < EXECUTIONS {
            assert!(!punching.is_finished(), "nobody punches holes any more");
            assert!(
                !deadline.is_past(MonotonicClock.now()),
                "T4: only {} holes and {executions} executions in {TIMEOUT:?}",
                holes.load(Ordering::Relaxed)
            );
            mapping.as_slice().write_at(0, &inputs).unwrap();
            assert!(
                matches!(execute(&mut client, model, memory), Answer::Replied),
                "T4"
            );
            let mut bytes = vec![0; ELEMENTS as usize * 4];
            mapping
                .as_slice()
                .read_at(2 * u64::from(ELEMENTS) * 4, &mut bytes)
                .unwrap();
            for value in bytes.as_chunks::<4>().0 {
                let value = f32::from_le_bytes(*value);
                assert!([0.0, 1.0, 2.0, 3.0].contains(&value), "T4: {value}");
            }
            executions += 1;
        }
    });
    println!(
        "{} holes beside {executions} executions",
        holes.load(Ordering::Relaxed)
    );
    assert!(is_alive(worker), "T4");
    neighbour.expect_served();
}

/// Punches holes of a page or more until `is_over`.
fn punch(memory: &OwnedFd, holes: &AtomicU32, is_over: &AtomicBool) {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    while !is_over.load(Ordering::Relaxed) {
        let number = holes.load(Ordering::Relaxed);
        let offset = i64::from(number % 6) * 4096;
        fallocate(memory, flags, offset, 4096 * i64::from(1 + number % 3)).unwrap();
        holes.store(number + 1, Ordering::Relaxed);
    }
}

#[test]
fn memory_costs_the_driver_what_is_used_of_it() {
    /// What all of it may cost beside what is there of the memory: tables of its pages, and the heap.
    const MOST_GROWTH: u64 = 1 << 20;
    let daemon = start("[limits]\nshared_bytes = 8589934592\n");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let worker = client.welcome.worker_pid;
    let model = client.prepare(add_model(1)).unwrap();
    let before = [worker, daemon.pid()].map(private_bytes);
    let growth = || {
        [worker, daemon.pid()]
            .into_iter()
            .zip(before)
            .map(|(pid, before)| private_bytes(pid).saturating_sub(before))
            .sum::<u64>()
    };
    let refused = register(&mut client, 64 << 30).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::ResourceExhaustedPersistent, "T3");
    let refused = growth();
    let memory = register(&mut client, 4 << 30).unwrap();
    for _ in 0..10 {
        let reply = client.call(sum(model, memory, 4), &[]);
        assert!(matches!(reply, Ok(Reply::Executed(ref result)) if result.outcome.is_ok()));
    }
    let used = growth();
    println!("growth by 64 GiB that are refused: {refused} bytes; by 4 GiB that are used a little: {used}");
    assert!(refused < MOST_GROWTH && used < MOST_GROWTH, "T3");
    neighbour.expect_served();
}

/// What a memory of arguments costs its worker: a copy of the inputs, outputs, and the pages of the memory,
/// which are the client's own and are there once.
#[test]
fn arguments_cost_the_driver_one_copy_of_them() {
    const ELEMENTS: u32 = 4 << 20;
    const MEMORY: u64 = 3 * 4 * ELEMENTS as u64;
    /// For the heap, and for what a helper thread needs.
    const BESIDE: u64 = 16 << 20;
    let daemon = start("[execution]\nidle_release_ms = 0\n");
    for name in ["nnhal-reference", "nnhal-cpu"] {
        let mut client = RawClient::connect(&daemon.runtime_dir(), name);
        let worker = client.welcome.worker_pid;
        let model = client.prepare(add_model(ELEMENTS)).unwrap();
        let memory = register(&mut client, MEMORY).unwrap();
        let before = [anonymous_bytes(worker), shared_bytes(worker)];
        for _ in 0..3 {
            let reply = client.call(sum(model, memory, ELEMENTS * 4), &[]);
            assert!(matches!(reply, Ok(Reply::Executed(ref result)) if result.outcome.is_ok()));
        }
        let copied = anonymous_bytes(worker).saturating_sub(before[0]);
        let mapped = shared_bytes(worker).saturating_sub(before[1]);
        println!(
            "{name}: {MEMORY} bytes of arguments: {copied} bytes of its own, {mapped} of the client's pages"
        );
        assert!(copied <= MEMORY + BESIDE, "T3: {name}: {copied}");
        assert!(mapped <= MEMORY + BESIDE, "T3: {name}: {mapped}");
    }
}

/// Registers a memory of which no page is there.
fn register(client: &mut RawClient, size: u64) -> Result<MemoryHandle, Failure> {
    let memory = SharedMemory::create(size).unwrap();
    match client.call(Call::RegisterMemory(description(size)), &[memory.as_fd()])? {
        Reply::Memory(memory) => Ok(memory),
        other => panic!("{other:?}"),
    }
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// So often in turn a daemon that is at rest is seen to be unchanged.
const UNCHANGED: u32 = 50;

/// The descriptors of these processes when nothing is being started or ended any more: the daemon is the
/// supervisor, a worker for each of so many clients, and a spare one.
fn fds_at_rest(daemon: &TestDaemon, clients: usize, pids: [u32; 2]) -> [usize; 2] {
    let mut fds = pids.map(fds_of);
    let mut unchanged = 0;
    wait_until("the daemon is at rest", || {
        let before = std::mem::replace(&mut fds, pids.map(fds_of));
        let is_whole = group_of(daemon.pid()).len() == clients + 2;
        unchanged = if is_whole && fds == before {
            unchanged + 1
        } else {
            0
        };
        unchanged >= UNCHANGED
    });
    fds
}

#[test]
fn flood_of_descriptors_leaves_none_open() {
    const MESSAGES: u32 = 100_000;
    const DESCRIPTORS: usize = 8;
    let daemon = start("");
    let mut neighbour = Neighbour::new(connect(&daemon));
    let mut client = connect(&daemon);
    let worker = client.welcome.worker_pid;
    let open = eventfd::create().unwrap();
    let fds = [open.as_fd(); DESCRIPTORS];
    // A call that there is not, whose descriptors nobody asked for.
    let unknown = [&[0][..], &7_u64.to_le_bytes(), &999_u32.to_le_bytes()].concat();
    let flood = |client: &mut RawClient, messages: u32| {
        for _ in 0..messages {
            client
                .connection
                .send(&unknown, &fds, default_deadline())
                .unwrap();
            let (answer, _) = client.receive().unwrap();
            assert!(
                matches!(
                    answer,
                    Message::Reply {
                        id: 7,
                        result: Err(_)
                    }
                ),
                "T10: {answer:?}"
            );
        }
    };
    flood(&mut client, 10);
    // The neighbour and the client.
    let at_rest = || fds_at_rest(&daemon, 2, [worker, daemon.pid()]);
    let before = at_rest();
    flood(&mut client, MESSAGES);
    assert_eq!(at_rest(), before, "T10");
    // Calls that say another number of descriptors than came are the last of their connection.
    let status = [&[0][..], &7_u64.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    for _ in 0..100 {
        let mut hostile = connect(&daemon);
        hostile
            .connection
            .send(&status, &fds, default_deadline())
            .unwrap();
        let messages = hostile.drain();
        assert!(
            messages
                .iter()
                .any(|message| matches!(message, Message::Goodbye { .. })),
            "T10: {messages:?}"
        );
    }
    assert_eq!(at_rest(), before, "T10");
    let status = client.call(Call::GetStatus, &[]);
    assert_eq!(status, Ok(Reply::Status(DeviceStatus::Available)));
    neighbour.expect_served();
}
