//! Synchronous executions by rings: which of them go that way, and what happens at the limits.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    BurstOptions, Device, Devices, ErrorStatus, ExecuteOptions, Input, Memory, ModelBuilder, OperationType,
    Output, PrepareOptions, PreparedModel, Request, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, burst_thread_ids, burst_threads, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const DEVICE: &str = "nnhal-reference";

/// How many bursts the models of one device have for their synchronous executions, and one model of them.
const MOST: usize = 16;
const MOST_OF_MODEL: usize = 4;

fn start(settings: &str) -> (TestDaemon, Device) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(settings));
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device(DEVICE).unwrap();
    (daemon, device)
}

/// `output = input + 1` for so many floats.
fn add_one(device: &Device, elements: u32) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[elements]));
    let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[elements]));
    model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
    device
        .prepare(&model.finish().unwrap(), &PrepareOptions::new())
        .unwrap()
}

fn run(prepared: &PreparedModel, values: &[f32], options: &ExecuteOptions) -> nnhal_client::Result<()> {
    let mut sums = vec![0.0_f32; values.len()];
    prepared.run(&[Input::from(values)], &mut [Output::from(&mut sums)], options)?;
    let expected: Vec<f32> = values.iter().map(|value| value + 1.0).collect();
    assert_eq!(sums, expected);
    Ok(())
}

#[test]
fn second_execution_goes_by_rings_which_go_with_the_model() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 4);
    run(&prepared, &[1.0; 4], &ExecuteOptions::new()).unwrap();
    assert_eq!(
        burst_threads(device.worker().pid),
        0,
        "a program that executes once needs no rings"
    );
    for round in 0..20 {
        run(&prepared, &[round as f32; 4], &ExecuteOptions::new()).unwrap();
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
    drop(prepared);
    wait_until("the thread has ended", || burst_threads(device.worker().pid) == 0);
}

#[test]
fn what_rings_cannot_say_goes_by_messages() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 1);
    let minute = std::time::Duration::from_secs(60);
    for options in [
        ExecuteOptions::new().loop_timeout(minute),
        ExecuteOptions::new().wait_at_most(minute),
    ] {
        (0..3).for_each(|_| run(&prepared, &[2.0], &options).unwrap());
    }
    assert_eq!(burst_threads(device.worker().pid), 0);
    // Values of every size: in the cells of the rings, and in memory.
    for elements in [1, 12, 13, 5000, 100_000] {
        let prepared = add_one(&device, elements);
        let values: Vec<f32> = (0..elements).map(|value| value as f32).collect();
        (0..3).for_each(|_| run(&prepared, &values, &ExecuteOptions::new().measure_timing()).unwrap());
        assert_eq!(burst_threads(device.worker().pid), 1);
        drop(prepared);
        wait_until("the thread has ended", || burst_threads(device.worker().pid) == 0);
    }
}

#[test]
fn threads_that_execute_at_once_share_few_bursts() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 8);
    std::thread::scope(|scope| {
        for thread in 0..3 * MOST_OF_MODEL {
            let prepared = &prepared;
            scope.spawn(move || {
                for round in 0..200 {
                    run(
                        prepared,
                        &[(thread * 1000 + round) as f32; 8],
                        &ExecuteOptions::new(),
                    )
                    .unwrap();
                }
            });
        }
    });
    assert!(
        (1..=MOST_OF_MODEL).contains(&burst_threads(device.worker().pid)),
        "{}",
        burst_threads(device.worker().pid)
    );
}

#[test]
fn many_models_leave_bursts_for_the_program() {
    let (_daemon, device) = start("[limits]\nbursts = 20\n");
    let models: Vec<PreparedModel> = (0..MOST + 8).map(|_| add_one(&device, 1)).collect();
    for _ in 0..3 {
        models
            .iter()
            .for_each(|model| run(model, &[3.0], &ExecuteOptions::new()).unwrap());
    }
    assert_eq!(burst_threads(device.worker().pid), MOST);
    let own: Vec<_> = models[..4]
        .iter()
        .map(|model| model.burst(&BurstOptions::new()).unwrap())
        .collect();
    // Its own idle one gives way; the last model has none.
    let another = models[4].burst(&BurstOptions::new()).unwrap();
    let refused = models[MOST + 7].burst(&BurstOptions::new());
    assert!(refused.is_err(), "the limit is of all");
    run(&models[4], &[3.0], &ExecuteOptions::new()).unwrap();
    drop((own, another));
}

#[test]
fn models_that_are_not_executed_any_more_leave_their_bursts_to_others() {
    let (_daemon, device) = start("");
    let models: Vec<PreparedModel> = (0..MOST).map(|_| add_one(&device, 1)).collect();
    let run_some =
        |model: &PreparedModel| (0..3).for_each(|_| run(model, &[3.0], &ExecuteOptions::new()).unwrap());
    models.iter().for_each(run_some);
    assert_eq!(burst_threads(device.worker().pid), MOST);
    let late = add_one(&device, 1);
    wait_until("the models that rest have no bursts", || {
        run_some(&late);
        burst_threads(device.worker().pid) == 1
    });
    models.iter().for_each(run_some);
    assert_eq!(burst_threads(device.worker().pid), MOST);
}

#[test]
fn models_that_are_not_executed_any_more_give_way_where_the_driver_has_no_room() {
    let (_daemon, device) = start("[limits]\nbursts = 2\n");
    let models: Vec<PreparedModel> = (0..3).map(|_| add_one(&device, 1)).collect();
    let run_some =
        |model: &PreparedModel| (0..3).for_each(|_| run(model, &[3.0], &ExecuteOptions::new()).unwrap());
    models.iter().for_each(run_some);
    wait_until("two models have bursts", || {
        burst_threads(device.worker().pid) == 2
    });
    let of_first = burst_thread_ids(device.worker().pid);
    wait_until("the last model alone has a burst", || {
        run_some(&models[2]);
        let ids = burst_thread_ids(device.worker().pid);
        ids.len() == 1 && ids.is_disjoint(&of_first)
    });
}

#[test]
fn models_that_are_executed_in_turns_keep_their_bursts_where_the_driver_has_no_room() {
    // More than it takes until bursts that nobody uses are given up.
    const TURNS: usize = 800;
    let (_daemon, device) = start("[limits]\nbursts = 2\n");
    let models: Vec<PreparedModel> = (0..3).map(|_| add_one(&device, 1)).collect();
    let run_each = || {
        models
            .iter()
            .for_each(|model| run(model, &[3.0], &ExecuteOptions::new()).unwrap());
    };
    (0..2).for_each(|_| run_each());
    wait_until("two models have bursts", || {
        burst_threads(device.worker().pid) == 2
    });
    let of_first = burst_thread_ids(device.worker().pid);
    (0..TURNS).for_each(|_| run_each());
    wait_until("the first models have their bursts", || {
        burst_thread_ids(device.worker().pid) == of_first
    });
}

#[test]
fn driver_without_room_for_bursts_executes_by_messages() {
    let (_daemon, device) = start("[limits]\nbursts = 0\n");
    let prepared = add_one(&device, 1);
    (0..5).for_each(|_| run(&prepared, &[1.0], &ExecuteOptions::new()).unwrap());
    // That of a burst for which there was no place ends by itself.
    wait_until("no burst has a thread", || {
        burst_threads(device.worker().pid) == 0
    });
}

#[test]
fn values_of_sizes_that_change_each_time_are_passed_as_others() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 0);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let options = ExecuteOptions::new();
    // The library keeps requests for 8 sizes; then each comes once, again at once, and in turn.
    let in_turn = (0..60).map(|round| 1 + 7 * round % 20);
    let sizes = (1..40)
        .chain([5000, 60, 60, 60, 50_000, 3, 70, 70])
        .chain(in_turn);
    for size in sizes {
        let values: Vec<f32> = (0..size).map(|value| value as f32).collect();
        let expected: Vec<f32> = values.iter().map(|value| value + 1.0).collect();
        let input = || Input::from(&values).with_dimensions(&[size]);
        let mut sums = vec![0.0_f32; values.len() + 1];
        prepared
            .run(&[input()], &mut [Output::from(&mut sums)], &options)
            .unwrap();
        assert_eq!((&sums[..values.len()], sums[values.len()]), (&expected[..], 0.0));
        let outputs = &mut [Output::from(&mut sums[1..])];
        burst.run(&[input()], outputs, &options).unwrap();
        assert_eq!(sums[1..], expected);
        let outputs = &mut [Output::from(&mut sums[1..])];
        let too_few = Input::from(&values).with_dimensions(&[size + 1]);
        let error = burst.run(&[too_few], outputs, &options).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
    }
}

#[test]
fn requests_in_memory_come_again_whatever_their_number() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 1);
    let options = ExecuteOptions::new();
    let memory = Memory::new(1024).unwrap();
    for count in [1, 3, 8, 9, 20] {
        let values = |index: u64| 16 * index..16 * index + 4;
        let sums = |index: u64| 512 + 16 * index..512 + 16 * index + 4;
        let request = |index| {
            Request::new()
                .input(&memory, values(index))
                .output(&memory, sums(index))
        };
        let requests: Vec<Request> = (0..count).map(request).collect();
        for round in 0..4 {
            for (index, request) in (0..count).zip(&requests) {
                let value = (100 * round + index) as f32;
                memory.write(values(index).start, &[value]).unwrap();
                prepared.execute(request, &options).unwrap();
                assert_eq!(memory.read::<f32>(sums(index).start, 1).unwrap(), [value + 1.0]);
                // One that is wrong each time changes nothing.
                let wrong = Request::new().input(&memory, 0..4).output(&memory, 1022..1026);
                let error = prepared.execute(&wrong, &options).unwrap_err();
                assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
            }
        }
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn what_is_wrong_is_said_and_the_next_execution_works() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 2);
    for _ in 0..3 {
        run(&prepared, &[1.0; 2], &ExecuteOptions::new()).unwrap();
        let of_other_dimensions = Input::from(&[1.0_f32; 3]).with_dimensions(&[3]);
        let mut sum = [0.0_f32; 2];
        let outputs = &mut [Output::from(&mut sum)];
        let error = prepared.run(&[of_other_dimensions], outputs, &ExecuteOptions::new());
        let error = error.unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        let late = ExecuteOptions::new().timeout(std::time::Duration::ZERO);
        let error = run(&prepared, &[1.0; 2], &late).unwrap_err();
        let status = error.status();
        assert!(
            matches!(
                status,
                ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent
            ),
            "{error}"
        );
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn death_of_the_worker_is_told_to_who_waits_and_who_comes_later() {
    let (_daemon, device) = start("");
    let prepared = add_one(&device, 1);
    (0..3).for_each(|_| run(&prepared, &[1.0], &ExecuteOptions::new()).unwrap());
    let worker = Pid::from_raw(device.worker().pid.cast_signed());
    let error = std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            loop {
                if let Err(error) = run(&prepared, &[1.0], &ExecuteOptions::new()) {
                    return error;
                }
            }
        });
        kill(worker, Signal::SIGKILL).unwrap();
        runs.join().unwrap()
    });
    let later = run(&prepared, &[1.0], &ExecuteOptions::new()).unwrap_err();
    for error in [error, later] {
        assert!(error.is_dead_object(), "{error}");
    }
}
