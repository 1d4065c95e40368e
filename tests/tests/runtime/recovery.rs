//! Devices whose worker dies, where the application wants them back.

use nnhal_client::runtime::{
    Compilation, CompilationOptions, Direction, MemoryRole, Recovery, ResultCode, RunInput, RunOutput,
};
use nnhal_client::{ExecuteOptions, Memory};
use nnhal_tests::wait_until;

use crate::common::{FAST, bytes, chain, floats, in_turn, kill_workers, on, run, start, sum};

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
    use nnhal_client::runtime::Room;
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
                &[Room::bytes(16)],
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
