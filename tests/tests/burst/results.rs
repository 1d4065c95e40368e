//! What bursts give is what synchronous executions give.

use std::path::Path;
use std::time::Duration;

use nnhal_client::{
    Burst, BurstOptions, Clock, Deadline, Device, ErrorKind, ErrorStatus, ExecuteOptions, Input, Memory,
    MonotonicClock, Output, PrepareOptions, Request, TfliteModel,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{EMPTY, EXE, REFERENCE, add, open, prepare, start};

/// The bytes of a .npy file of the digit classifier, and how many images it is for.
fn images(name: &str) -> (Vec<u8>, usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/digits")
        .join(name);
    let bytes = std::fs::read(path).unwrap();
    let file = npyz::NpyFile::new(&bytes[..]).unwrap();
    let count = file.shape()[0] as usize;
    let npyz::DType::Plain(plain) = file.dtype() else {
        panic!("structured elements");
    };
    let size = file.shape().iter().product::<u64>() as usize * plain.num_bytes().unwrap();
    (bytes[bytes.len() - size..].to_vec(), count)
}

fn digits_agree(device: &Device, model: &str, images_file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/digits")
        .join(model);
    let model = TfliteModel::load(path).unwrap().model;
    let prepared = device.prepare(&model, &PrepareOptions::new()).unwrap();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let (images, count) = images(images_file);
    let output_size = prepared.outputs()[0].byte_size().unwrap();
    let mut different = 0;
    let mut last = Vec::new();
    for image in images.chunks(images.len() / count) {
        let (mut by_sync, mut by_burst) = (vec![0_u8; output_size], vec![1_u8; output_size]);
        let inputs = [Input::from(image)];
        let options = ExecuteOptions::new();
        prepared
            .run(&inputs, &mut [Output::from(&mut by_sync[..])], &options)
            .unwrap();
        burst
            .run(&inputs, &mut [Output::from(&mut by_burst[..])], &options)
            .unwrap();
        assert_eq!(by_sync, by_burst);
        different += usize::from(by_burst != last);
        last = by_burst;
    }
    assert!(
        different > count / 2,
        "the images are different digits: {different} of {count}"
    );
}

#[test]
fn digits_are_classified_as_by_sync() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    digits_agree(&device, "digits_float.tflite", "images_float.npy");
    digits_agree(&device, "digits_int8.tflite", "images_int8.npy");
}

#[test]
fn general_and_registered_requests_use_memories_in_place() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 4);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let options = ExecuteOptions::new().measure_timing();

    memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let completed = burst.execute(&request, &options).unwrap();
    assert_eq!(memory.read::<f32>(16, 4).unwrap(), [2.0, 3.0, 4.0, 5.0]);
    assert!(completed.timing.time_on_device_us <= completed.timing.time_in_driver_us);
    assert_ne!(completed.timing.time_in_driver_us, u64::MAX);

    let registered = burst.register(&request).unwrap();
    for round in 0..100 {
        memory.write(0, &[round as f32; 4]).unwrap();
        let completed = burst.fire(&registered, &ExecuteOptions::new()).unwrap();
        assert_eq!(memory.read::<f32>(16, 4).unwrap(), [round as f32 + 1.0; 4]);
        assert_eq!(completed.timing.time_in_driver_us, u64::MAX);
    }
    burst.unregister(registered).unwrap();
    // Numbers of requests that are dropped are used again: more are made than a burst can know.
    for _ in 0..1100 {
        let registered = burst.register(&request).unwrap();
        burst.fire(&registered, &ExecuteOptions::new()).unwrap();
    }
}

#[test]
fn values_of_changing_sizes_and_shapes_find_their_way() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 0);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    for size in [1_usize, 12, 13, 1000, 1, 5, 6, 7, 12, 100_000] {
        let values: Vec<f32> = (0..size).map(|index| index as f32).collect();
        let mut sums = vec![9.0_f32; size + 2];
        let completed = burst
            .run(
                &[Input::from(&values[..]).with_dimensions(&[size as u32])],
                &mut [Output::from(&mut sums[..])],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert_eq!(completed.output_shapes[0].dimensions, [size as u32]);
        let expected = values.iter().map(|value| value + 1.0).chain([9.0, 9.0]);
        assert!(expected.eq(sums.iter().copied()), "{size} values");
    }
}

#[test]
fn output_that_is_too_small_is_told_with_the_shape_that_it_needs() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 0);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let mut sums = [9.0_f32; 4];
    let mut run = |room: usize| {
        burst.run(
            &[Input::from(&[1.0_f32; 4]).with_dimensions(&[4])],
            &mut [Output::from(&mut sums[..room])],
            &ExecuteOptions::new(),
        )
    };
    let error = run(3).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
    assert_eq!(error.output_shapes()[0].dimensions, [4]);
    assert!(!error.output_shapes()[0].is_sufficient);
    run(4).unwrap();
    assert_eq!(sums, [2.0; 4]);
}

#[test]
fn refused_requests_leave_the_burst_usable() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 4);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let memory = Memory::new(32).unwrap();
    let short = Request::new().input(&memory, 0..12).output(&memory, 16..32);
    for error in [
        burst.execute(&short, &ExecuteOptions::new()).unwrap_err(),
        burst.register(&short).unwrap_err(),
    ] {
        assert_eq!(error.status(), ErrorStatus::InvalidArgument);
        assert!(error.to_string().contains("input 0"), "{error}");
    }
    let past = ExecuteOptions::new().deadline(Deadline::at(MonotonicClock.now()));
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let error = burst.execute(&request, &past).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlinePersistent, "{error}");
    burst.execute(&request, &ExecuteOptions::new()).unwrap();
}

#[test]
fn requests_that_no_ring_carries_go_by_the_connection() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 1);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let memory = Memory::new(8).unwrap();
    memory.write(0, &[1.0_f32]).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
    let registered = burst.register(&request).unwrap();
    let options = ExecuteOptions::new().loop_timeout(Duration::from_secs(1));
    burst.execute(&request, &options).unwrap();
    burst.fire(&registered, &options).unwrap();
    assert_eq!(memory.read::<f32>(4, 1).unwrap(), [2.0]);
    let mut sum = [0.0_f32];
    burst
        .run(
            &[Input::from(&[2.0_f32])],
            &mut [Output::from(&mut sum)],
            &options,
        )
        .unwrap();
    assert_eq!(sum, [3.0]);
}

/// A burst of a device whose executions end only if they are cancelled or too late.
fn start_endless() -> (TestDaemon, Burst, Request) {
    let options = DaemonOptions {
        devices: vec![EMPTY.to_owned()],
        ..DaemonOptions::with_settings(&format!("[device.{EMPTY}]\nfault = \"loop\"\n"))
    };
    let daemon = TestDaemon::start(EXE, &options);
    let prepared = prepare(&open(&daemon, EMPTY), 1);
    let burst = prepared.burst(&BurstOptions::new()).unwrap();
    let memory = Memory::new(8).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
    (daemon, burst, request)
}

#[test]
fn wait_ends_at_its_time_and_deadline_ends_the_execution() {
    let (_daemon, mut burst, request) = start_endless();
    let registered = burst.register(&request).unwrap();
    let options = ExecuteOptions::new()
        .timeout(Duration::from_millis(200))
        .wait_at_most(Duration::from_millis(1));
    let error = burst.fire(&registered, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    // The first one's result comes at its deadline and is nobody's.
    let error = burst
        .fire(
            &registered,
            &ExecuteOptions::new().timeout(Duration::from_millis(250)),
        )
        .unwrap_err();
    let missed = [
        ErrorStatus::MissedDeadlineTransient,
        ErrorStatus::MissedDeadlinePersistent,
    ];
    assert!(missed.contains(&error.status()), "{error}");
    assert!(error.failure().is_some(), "{error}");
}

#[test]
fn executions_that_are_given_up_are_ended_and_never_pile_up() {
    let (_daemon, mut burst, request) = start_endless();
    let registered = burst.register(&request).unwrap();
    // More than either ring has cells. None of them has a deadline of its own.
    for round in 0..600 {
        let short = ExecuteOptions::new().wait_at_most(Duration::from_micros(200));
        let mut sum = [0.0_f32];
        let error = match round % 3 {
            0 => burst.fire(&registered, &short).unwrap_err(),
            1 => burst.execute(&request, &short).unwrap_err(),
            _ => {
                let inputs = &[Input::from(&[1.0_f32])];
                burst
                    .run(inputs, &mut [Output::from(&mut sum)], &short)
                    .unwrap_err()
            }
        };
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    }
    let timeout = Duration::from_millis(50);
    let error = burst.fire(&registered, &ExecuteOptions::new().timeout(timeout));
    let error = error.unwrap_err();
    assert!(error.failure().is_some(), "{error}");
}

#[test]
fn memory_that_is_dropped_is_gone_in_the_worker() {
    const SIZE: u64 = 32 << 20;
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, 1);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let mapped = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", device.worker().pid)).unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        maps.lines()
            .filter_map(|line| line.split_once(' '))
            // The allocator reserves address space of such sizes, too, which nobody shares.
            .filter(|(_, flags)| flags.as_bytes()[3] == b's')
            .filter_map(|(range, _)| range.split_once('-'))
            .filter(|(from, to)| address(to) - address(from) == SIZE)
            .count()
    };
    let memory = Memory::new(SIZE).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 64..68);
    let registered = burst.register(&request).unwrap();
    burst.fire(&registered, &ExecuteOptions::new()).unwrap();
    burst.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(mapped(), 1);
    drop((memory, request, registered));
    nnhal_tests::wait_until("the worker has unmapped it", || mapped() == 0);
    assert_eq!(add(&mut burst, 1.0).unwrap(), 2.0);
}

#[test]
fn bursts_of_one_session_run_side_by_side() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, 1);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let prepared = &prepared;
            scope.spawn(move || {
                // Each opens and ends some, while others run.
                for part in 0..5 {
                    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
                    for round in 0..100 {
                        let value = (thread * 10_000 + part * 1000 + round) as f32;
                        assert_eq!(add(&mut burst, value).unwrap(), value + 1.0);
                    }
                }
            });
        }
    });
    assert!(device.ended().is_none());
}

#[test]
fn burst_moves_between_threads_and_outlives_its_handles() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let mut burst = prepare(&device, 1).burst(&BurstOptions::new()).unwrap();
    drop(device);
    assert_eq!(add(&mut burst, 1.0).unwrap(), 2.0);
    let burst = std::thread::spawn(move || {
        assert_eq!(add(&mut burst, 2.0).unwrap(), 3.0);
        burst
    });
    drop(burst.join().unwrap());
}
