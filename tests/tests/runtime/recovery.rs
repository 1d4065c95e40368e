//! Devices whose worker dies, where the application wants them back, and bursts that end alone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nnhal_client::runtime::{
    Compilation, CompilationOptions, Direction, Finished, MemoryRole, Recovery, ResultCode, RunInput,
    RunOutput, Runtime,
};
use nnhal_client::{ExecuteOptions, Memory};
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

use crate::common::{EXE, FAST, bytes, chain, floats, in_turn, kill_workers, on, run, start, sum};

const ONCE: Recovery = Recovery::Reopen { attempts: 1 };

#[test]
fn execution_is_repeated_on_the_device_opened_again() {
    let (daemon, runtime) = start();
    let split = CompilationOptions::new().filter(in_turn(1));
    for options in [on(&runtime, &[FAST]), CompilationOptions::new(), split] {
        let compilation = runtime
            .compile(&chain(4, false), &options.recovery(ONCE))
            .unwrap();
        for _ in 0..3 {
            assert_eq!(run(&compilation).unwrap(), (vec![1.0 + sum(4); 4], None));
            kill_workers(&daemon);
        }
        assert_eq!(run(&compilation).unwrap(), (vec![1.0 + sum(4); 4], None));
    }
}

#[test]
fn burst_goes_on_with_the_device_opened_again() {
    let (daemon, runtime) = start();
    for options in [
        on(&runtime, &[FAST]),
        CompilationOptions::new().filter(in_turn(1)),
    ] {
        let compilation = runtime
            .compile(&chain(4, false), &options.recovery(ONCE))
            .unwrap();
        let mut burst = compilation.burst().unwrap();
        for round in 0..4 {
            let mut output = [0; 16];
            let input = bytes(&[round as f32; 4]);
            let finished = burst
                .execute(
                    &[RunInput::bytes(&input)],
                    &mut [RunOutput::bytes(&mut output)],
                    &ExecuteOptions::new(),
                )
                .unwrap();
            assert_eq!(
                (floats(&output), finished.fallback),
                (vec![round as f32 + sum(4); 4], None)
            );
            kill_workers(&daemon);
        }
    }
}

/// Executes a chain from a device memory.
fn run_from(
    compilation: &Compilation,
    memory: &nnhal_client::runtime::DeviceMemory,
) -> Result<Vec<f32>, ResultCode> {
    let mut output = [0; 16];
    compilation
        .execute(
            &[RunInput::Device {
                memory,
                dimensions: &[],
            }],
            &mut [RunOutput::bytes(&mut output)],
            &ExecuteOptions::new(),
        )
        .map_err(|error| error.code())?;
    Ok(floats(&output))
}

#[test]
fn value_that_this_process_gave_comes_back_and_one_that_was_computed_is_an_error() {
    let (daemon, runtime) = start();
    let options = on(&runtime, &[FAST]).recovery(ONCE);
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
    let role = |direction| MemoryRole {
        compilation: &compilation,
        index: 0,
        direction,
        frequency: 1.0,
    };
    let memory = runtime
        .allocate(&[role(Direction::Input), role(Direction::Output)], &[])
        .unwrap();
    assert!(memory.is_in_device());
    let given = Memory::new(16).unwrap();
    given.write(0, &[10.0_f32; 4]).unwrap();
    memory.copy_from(&given, &[]).unwrap();
    assert_eq!(run_from(&compilation, &memory), Ok(vec![13.0; 4]));
    kill_workers(&daemon);
    assert_eq!(run_from(&compilation, &memory), Ok(vec![13.0; 4]));

    // A computed value: the memory is the output, and then the input.
    let input = bytes(&[1.0; 4]);
    compilation
        .execute(
            &[RunInput::bytes(&input)],
            &mut [RunOutput::Device {
                memory: &memory,
                dimensions: &[],
            }],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert_eq!(run_from(&compilation, &memory), Ok(vec![7.0; 4]));
    kill_workers(&daemon);
    assert_eq!(run_from(&compilation, &memory), Err(ResultCode::DeadObject));
    // It has no value any more, and can be given one.
    assert_eq!(run_from(&compilation, &memory), Err(ResultCode::OpFailed));
}

#[test]
fn attempts_are_bounded_when_no_driver_comes_back() {
    let (mut daemon, runtime) = start();
    let options = on(&runtime, &[FAST]).recovery(Recovery::Reopen { attempts: 3 });
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
    let workers = daemon.workers();
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    for worker in workers {
        let pid = nix::unistd::Pid::from_raw(worker.cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        wait_until("the worker is gone", || !nnhal_tests::is_alive(worker));
    }
    daemon.wait();
    assert!(run(&compilation).is_err());
}

#[test]
fn fenced_execution_is_repeated_whether_its_worker_died_before_or_after_it_was_launched() {
    use nnhal_client::runtime::OutputBuffer;
    use nnhal_client::{Deadline, Fence};
    let (daemon, runtime) = start();
    for options in [
        on(&runtime, &[FAST]),
        CompilationOptions::new().filter(in_turn(1)),
    ] {
        let compilation = runtime
            .compile(&chain(4, false), &options.recovery(ONCE))
            .unwrap();
        kill_workers(&daemon);
        let input = bytes(&[1.0; 4]);
        let (source, fence) = Fence::create().unwrap();
        let event = compilation
            .execute_fenced(
                &[RunInput::bytes(&input)],
                &[OutputBuffer::bytes(16)],
                &[&fence],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert!(!event.is_finished());
        kill_workers(&daemon);
        source.signal().unwrap();
        for _ in 0..2 {
            assert_eq!(event.wait(Deadline::NONE).unwrap().fallback, None);
            let mut output = [0; 16];
            event.output(0, &mut output).unwrap();
            assert_eq!(floats(&output), [1.0 + sum(4); 4]);
        }
    }
}

/// Lines of `/proc/self/maps` about memory that these workers map too, by its inode.
fn shared_with(workers: &[u32]) -> Vec<(String, String)> {
    let maps = |process: &str| fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let of_memory = |line: &str| {
        let inode = line.split_whitespace().nth(4).filter(|_| line.contains("memfd:"));
        inode.map(|inode| (inode.to_owned(), line.to_owned()))
    };
    let theirs = workers.iter().map(|worker| maps(&worker.to_string()));
    let theirs = theirs.collect::<String>();
    let theirs: BTreeSet<String> = theirs
        .lines()
        .filter_map(of_memory)
        .map(|(inode, _)| inode)
        .collect();
    let own = maps("self");
    let own = own.lines().filter_map(of_memory);
    own.filter(|(inode, _)| theirs.contains(inode)).collect()
}

/// Overwrites the words beside the rings that this process shares with workers, which ends their bursts.
fn spoil_rings(workers: &[u32]) {
    let memory = fs::File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .unwrap();
    let mut spoilt = 0;
    for (_, line) in shared_with(workers) {
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let mut page = [0; 4096];
        if memory.read_exact_at(&mut page, start).is_ok() && page.starts_with(b"nnhalfmq") {
            memory.write_all_at(&[1; 4096 - 128], start + 128).unwrap();
            spoilt += 1;
        }
    }
    assert_ne!(spoilt, 0, "no rings are found");
}

/// A daemon with one device, and a runtime.
fn start_one() -> (TestDaemon, Runtime) {
    let options = DaemonOptions {
        devices: vec![FAST.to_owned()],
        ..DaemonOptions::default()
    };
    let daemon = TestDaemon::start(EXE, &options);
    let runtime = crate::common::runtime(&daemon);
    (daemon, runtime)
}

#[test]
fn burst_that_ends_alone_is_replaced() {
    let (daemon, runtime) = start_one();
    let explicit = || on(&runtime, &[FAST]);
    let input = bytes(&[1.0; 4]);
    let shared = Memory::new(16).unwrap();
    shared.write_at(0, &input).unwrap();
    let inputs = [
        RunInput::bytes(&input),
        RunInput::Memory {
            memory: &shared,
            offset: 0,
            length: 16,
            dimensions: &[],
        },
    ];
    for (options, is_repeated) in [(explicit(), false), (explicit().recovery(ONCE), true)] {
        let compilation = runtime.compile(&chain(2, false), &options).unwrap();
        wait_until("the next worker is in reserve", || daemon.workers().len() == 2);
        let workers = daemon.workers();
        for input in inputs {
            let mut burst = compilation.burst().unwrap();
            let mut execute = || {
                let mut output = [0; 16];
                let outputs = &mut [RunOutput::bytes(&mut output)];
                burst
                    .execute(&[input], outputs, &ExecuteOptions::new())
                    .map(|_| floats(&output))
                    .map_err(|error| error.to_string())
            };
            for _ in 0..2 {
                assert_eq!(execute(), Ok(vec![4.0; 4]));
                spoil_rings(&workers);
                let next = execute();
                assert_eq!(next.is_ok(), is_repeated, "{next:?}");
            }
            assert_eq!(execute(), Ok(vec![4.0; 4]));
        }
        assert_eq!(daemon.workers(), workers);
    }
}

#[test]
fn memory_of_an_attempt_without_an_answer_is_used_for_nothing_else() {
    let (daemon, runtime) = start_one();
    let options = on(&runtime, &[FAST]).recovery(ONCE);
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
    let workers = daemon.workers();
    let inodes = || -> BTreeSet<String> {
        let shared = shared_with(&workers).into_iter();
        shared.map(|(inode, _)| inode).collect()
    };
    let mut burst = compilation.burst().unwrap();
    let mut execute = |value: f32| {
        // In another memory, for the execution's own is in question.
        let input = Memory::new(16).unwrap();
        input.write(0, &[value; 4]).unwrap();
        let input = RunInput::Memory {
            memory: &input,
            offset: 0,
            length: 16,
            dimensions: &[],
        };
        let mut output = [0; 16];
        let outputs = &mut [RunOutput::bytes(&mut output)];
        burst.execute(&[input], outputs, &ExecuteOptions::new()).unwrap();
        assert_eq!(floats(&output), [value + sum(2); 4]);
        inodes()
    };
    let before = inodes();
    let first = execute(1.0);
    let kept: BTreeSet<_> = first.difference(&before).cloned().collect();
    // What has ended is used again.
    let second = execute(2.0);
    assert!(!kept.is_disjoint(&second), "{kept:?}, {second:?}");
    spoil_rings(&workers);
    let third = execute(3.0);
    assert!(kept.is_disjoint(&third), "{kept:?}, {third:?}");
}

#[test]
fn compilation_after_a_death_that_nobody_has_noticed_succeeds() {
    let (daemon, runtime) = start();
    let daemon = Arc::new(daemon);
    let executioner = Arc::clone(&daemon);
    // Between what the device says and what it prepares.
    let within = on(&runtime, &[FAST]).filter(Arc::new(move |_, _, _| {
        kill_workers(&executioner);
        true
    }));
    for options in [on(&runtime, &[FAST]), within] {
        for _ in 0..5 {
            let compilation = runtime.compile(&chain(2, false), &options).unwrap();
            assert_eq!(run(&compilation).unwrap(), (vec![4.0; 4], None));
            kill_workers(&daemon);
        }
    }
}

#[test]
fn device_memory_is_made_copied_and_read_on_a_device_opened_again() {
    let (daemon, runtime) = start();
    for recovery in [ONCE, Recovery::None] {
        let options = on(&runtime, &[FAST]).recovery(recovery);
        let compilation = runtime.compile(&chain(2, false), &options).unwrap();
        let allocate = || {
            let role = MemoryRole {
                compilation: &compilation,
                index: 0,
                direction: Direction::Input,
                frequency: 1.0,
            };
            runtime.allocate(&[role], &[])
        };
        let given = Memory::new(16).unwrap();
        given.write(0, &[10.0_f32; 4]).unwrap();
        let copy = Memory::new(16).unwrap();
        let (first, second) = (allocate().unwrap(), allocate().unwrap());
        first.copy_from(&given, &[]).unwrap();
        second.copy_from(&given, &[]).unwrap();
        kill_workers(&daemon);
        if recovery == Recovery::None {
            let gone = |result: Result<(), nnhal_client::runtime::RuntimeError>| {
                assert_eq!(result.unwrap_err().code(), ResultCode::DeadObject);
            };
            gone(allocate().map(drop));
            gone(first.copy_to(&copy));
            gone(second.copy_from_device(&first));
            // What was there before is not taken for what was to be copied.
            assert!(first.is_initialised() && !second.is_initialised());
            gone(first.copy_from(&given, &[]));
            assert!(!first.is_initialised());
            continue;
        }
        first.copy_to(&copy).unwrap();
        assert_eq!(copy.read::<f32>(0, 4).unwrap(), [10.0; 4]);
        kill_workers(&daemon);
        second.copy_from(&given, &[]).unwrap();
        assert_eq!(run_from(&compilation, &second), Ok(vec![13.0; 4]));
        kill_workers(&daemon);
        let third = allocate().unwrap();
        third.copy_from_device(&second).unwrap();
        assert_eq!(run_from(&compilation, &third), Ok(vec![13.0; 4]));
    }
}

/// One memory is got back by itself, when a value is given to it; the execution gets the other one back.
#[test]
fn memories_of_an_execution_come_back_one_by_one() {
    let (daemon, runtime) = start();
    let options = on(&runtime, &[FAST]).recovery(ONCE);
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
    let memory = |direction| {
        let role = MemoryRole {
            compilation: &compilation,
            index: 0,
            direction,
            frequency: 1.0,
        };
        runtime.allocate(&[role], &[]).unwrap()
    };
    let (from, to) = (memory(Direction::Input), memory(Direction::Output));
    let given = Memory::new(16).unwrap();
    let found = Memory::new(16).unwrap();
    for round in 0..3 {
        let value = round as f32;
        given.write(0, &[value; 4]).unwrap();
        from.copy_from(&given, &[]).unwrap();
        let input = RunInput::Device {
            memory: &from,
            dimensions: &[],
        };
        let output = RunOutput::Device {
            memory: &to,
            dimensions: &[],
        };
        compilation
            .execute(&[input], &mut [output], &ExecuteOptions::new())
            .unwrap();
        to.copy_to(&found).unwrap();
        assert_eq!(found.read::<f32>(0, 4).unwrap(), [value + sum(2); 4]);
        kill_workers(&daemon);
    }
}

#[test]
fn burst_with_registered_executions_notices_others_and_deaths() {
    let (daemon, runtime) = start();
    let options = on(&runtime, &[FAST]).recovery(ONCE);
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
    let memories = [Memory::new(128).unwrap(), Memory::new(256).unwrap()];
    let mut burst = compilation.burst().unwrap();
    let mut value = 0.0;
    let (mut last, mut finished) = (None, Finished::default());
    let mut execute = |memory: &Memory, offset: u64| {
        value += 1.0;
        memory.write(offset, &[value; 4]).unwrap();
        let (length, dimensions) = (16, &[][..]);
        let input = RunInput::Memory {
            memory,
            offset,
            length,
            dimensions,
        };
        let output = || RunOutput::Memory {
            memory,
            offset: 64,
            length,
            dimensions,
        };
        let options = ExecuteOptions::new();
        // As programs do that compute the same execution again and again.
        let again = match &last {
            Some((registered, at, of)) if (*at, *of) == (offset, memory.size()) => {
                burst.fire(registered, &mut (), &options, &mut finished)
            }
            _ => None,
        };
        match again {
            Some(result) => result.unwrap(),
            None => {
                burst.execute(&[input], &mut [output()], &options).unwrap();
                let registered = burst.register(&[input], &mut [output()]).unwrap();
                last = Some((registered.unwrap(), offset, memory.size()));
            }
        }
        assert_eq!(memory.read::<f32>(64, 4).unwrap(), [value + sum(2); 4]);
    };
    for _ in 0..2 {
        for memory in &memories {
            for offset in [0, 32] {
                (0..5).for_each(|_| execute(memory, offset));
            }
        }
        kill_workers(&daemon);
    }
    // It is registered when the worker dies, and registered again soon.
    for _ in 0..3 {
        (0..4).for_each(|_| execute(&memories[0], 0));
        kill_workers(&daemon);
    }
    execute(&memories[0], 0);
}
