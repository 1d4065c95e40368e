//! Executions that go on after the call.

use nnhal_client::runtime::{CompilationOptions, ResultCode, Room, RunInput};
use nnhal_client::{Deadline, ExecuteOptions, Fence};

use crate::common::{bytes, chain, floats, in_turn, kill_workers, start, sum};

fn values(event: &nnhal_client::runtime::RunEvent) -> Vec<f32> {
    let mut output = [0; 16];
    event.output(0, &mut output).unwrap();
    floats(&output)
}

#[test]
fn started_execution_ends_with_its_values() {
    let (_daemon, runtime) = start();
    for filter in [1, 10] {
        let options = CompilationOptions::new().filter(in_turn(filter));
        let compilation = runtime.compile(&chain(4, false), &options).unwrap();
        let input = bytes(&[1.0; 4]);
        let event = compilation
            .start(
                &[RunInput::bytes(&input)],
                &[Room::bytes(16)],
                &ExecuteOptions::new(),
            )
            .unwrap();
        for _ in 0..2 {
            event.wait(Deadline::NONE).unwrap();
            assert_eq!(values(&event), [1.0 + sum(4); 4]);
        }
        assert!(event.is_finished() && event.fence().is_none());
    }
}

#[test]
fn fenced_execution_waits_for_its_fences_in_every_split() {
    let (_daemon, runtime) = start();
    let cpu_too = std::sync::Arc::new(|device: &nnhal_client::DeviceInfo, index: usize, _: &_| {
        device.name == ["nnhal-cpu", "nnhal-reference", "nnapi-reference"][index % 3]
    });
    let filters: [nnhal_client::runtime::OperationFilter; 3] = [in_turn(10), in_turn(1), cpu_too];
    for (index, filter) in filters.into_iter().enumerate() {
        let options = CompilationOptions::new().filter(filter);
        let compilation = runtime.compile(&chain(5, false), &options).unwrap();
        let (source, fence) = Fence::create().unwrap();
        let input = bytes(&[1.0; 4]);
        let launch = |fences: &[&Fence]| {
            compilation
                .execute_fenced(
                    &[RunInput::bytes(&input)],
                    &[Room::bytes(16)],
                    fences,
                    &ExecuteOptions::new(),
                )
                .unwrap()
        };
        // A step in this process would wait for the fence before the call returns.
        let event = if index < 2 {
            let event = launch(&[&fence]);
            assert!(!event.is_finished());
            source.signal().unwrap();
            event
        } else {
            source.signal().unwrap();
            launch(&[&fence])
        };
        let finished = event.wait(Deadline::NONE).unwrap();
        assert_eq!(finished.output_shapes[0].dimensions, [4]);
        assert_eq!(values(&event), [1.0 + sum(5); 4]);
    }
}

#[test]
fn fenced_execution_of_a_driver_that_died_ends_on_the_cpu() {
    let (daemon, runtime) = start();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&chain(4, false), &options).unwrap();
    kill_workers(&daemon);
    let input = bytes(&[1.0; 4]);
    let event = compilation
        .execute_fenced(
            &[RunInput::bytes(&input)],
            &[Room::bytes(16)],
            &[],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert!(event.wait(Deadline::NONE).unwrap().fallback.is_some());
    assert_eq!(values(&event), [1.0 + sum(4); 4]);
}

#[test]
fn fenced_execution_needs_room_for_every_output() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(1, false), &CompilationOptions::new())
        .unwrap();
    let input = bytes(&[1.0; 4]);
    let error = compilation
        .execute_fenced(
            &[RunInput::bytes(&input)],
            &[Room::bytes(8)],
            &[],
            &ExecuteOptions::new(),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::BadData);
}
