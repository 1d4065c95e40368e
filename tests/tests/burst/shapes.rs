//! Inputs whose extents the model leaves open, by burst: shapes that change, take turns, or cannot be.

use nnhal_client::{
    Burst, BurstOptions, Completed, ErrorStatus, ExecuteOptions, Input, Memory, Model, ModelBuilder,
    OperationType, Output, PrepareOptions, PreparedModel, Request, Result, TensorType,
};
use nnhal_tests::{fds_of, memory_numbers};

use crate::common::{REFERENCE, open, start};

const FAST: &str = "nnhal-cpu";
const IN: usize = 4;
const OUT: usize = 8;

/// Fully connected layers from rows of four values to rows of eight, and back and forth, of any number of
/// rows; behind them something that is added.
fn rows_model() -> Model {
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let layer = |model: &mut ModelBuilder, x, [from, to]: [usize; 2], result| {
        let weights: Vec<f32> = (0..from * to).map(|at| (at * 7 % 5) as f32 - 2.0).collect();
        let weights = model.constant(TensorType::float32(&[to as u32, from as u32]), &weights);
        let bias = model.constant(TensorType::float32(&[to as u32]), &vec![1.0_f32; to]);
        model.operation(
            OperationType::FULLY_CONNECTED,
            &[x, weights, bias, none],
            &[result],
        );
    };
    let x = model.input(TensorType::float32(&[0, IN as u32]));
    let wide = model.temporary(TensorType::float32(&[0, OUT as u32]));
    layer(&mut model, x, [IN, OUT], wide);
    let clamped = model.temporary(TensorType::float32(&[0, OUT as u32]));
    model.operation(OperationType::RELU, &[wide], &[clamped]);
    let narrow = model.temporary(TensorType::float32(&[0, IN as u32]));
    layer(&mut model, clamped, [OUT, IN], narrow);
    let again = model.output(TensorType::float32(&[0, OUT as u32]));
    layer(&mut model, narrow, [IN, OUT], again);
    model.finish().unwrap()
}

fn values(rows: usize) -> Vec<f32> {
    (0..rows * IN).map(|at| (at % 11) as f32 - 5.0).collect()
}

/// What the model computes of these values, all of which are small integers, so that sums are exact.
fn expected(rows: usize) -> Vec<f32> {
    let layer = |x: &[f32], to: usize| -> Vec<f32> {
        let weight = |at: usize| (at * 7 % 5) as f32 - 2.0;
        let product = |row: usize| {
            let products = x.iter().enumerate();
            products
                .map(|(at, value)| value * weight(row * x.len() + at))
                .sum::<f32>()
        };
        (0..to).map(|row| product(row) + 1.0).collect()
    };
    let of_row = |row: &[f32]| {
        let clamped: Vec<f32> = layer(row, OUT).iter().map(|value| value.max(0.0)).collect();
        layer(&layer(&clamped, IN), OUT)
    };
    values(rows).chunks_exact(IN).flat_map(of_row).collect()
}

fn run(burst: &mut Burst, rows: usize, room: usize) -> Result<(Completed, Vec<f32>)> {
    let values = values(rows);
    let mut result = vec![f32::NAN; room * OUT];
    let completed = burst.run(
        &[Input::from(&values).with_dimensions(&[rows as u32, IN as u32])],
        &mut [Output::from(&mut result)],
        &ExecuteOptions::new(),
    )?;
    Ok((completed, result))
}

#[track_caller]
fn expect_rows(burst: &mut Burst, rows: usize) {
    let (completed, result) = run(burst, rows, rows).unwrap();
    assert_eq!(result, expected(rows), "{rows} rows");
    let shape = &completed.output_shapes[0];
    assert_eq!(shape.dimensions, [rows as u32, OUT as u32]);
}

fn prepare(device: &nnhal_client::Device) -> PreparedModel {
    device.prepare(&rows_model(), &PrepareOptions::new()).unwrap()
}

#[test]
fn shapes_grow_shrink_repeat_and_take_turns() {
    let daemon = start();
    for name in [REFERENCE, FAST] {
        let prepared = prepare(&open(&daemon, name));
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        for rows in [1, 2, 9, 300, 17, 3, 2000, 1] {
            expect_rows(&mut burst, rows);
        }
        for _ in 0..8 {
            expect_rows(&mut burst, 5);
        }
        for _ in 0..8 {
            for rows in [5, 64, 1] {
                expect_rows(&mut burst, rows);
            }
        }
    }
}

#[test]
fn however_many_shapes_come_neither_side_holds_more_for_them() {
    let daemon = start();
    let device = open(&daemon, FAST);
    let mut burst = prepare(&device).burst(&BurstOptions::new()).unwrap();
    // Memories of this test's own process are counted by the worker's, which maps each.
    let held = || fds_of(device.worker().pid);
    for rows in 1..=30 {
        expect_rows(&mut burst, rows * 16);
    }
    let before = held();
    for rows in 31..=120 {
        expect_rows(&mut burst, rows * 16);
    }
    let after = held();
    assert!(after <= before + 2, "{before} descriptors became {after}");
}

#[test]
fn shapes_that_change_pass_through_the_memories_of_those_before() {
    let daemon = start();
    let device = open(&daemon, FAST);
    let mut burst = prepare(&device).burst(&BurstOptions::new()).unwrap();
    let mut turns = |times: u32| {
        for rows in (0..times).flat_map(|_| 60..72) {
            expect_rows(&mut burst, rows);
        }
        memory_numbers(device.worker().pid)
    };
    let before = turns(2);
    assert_eq!(turns(3), before);
}

#[test]
fn output_that_has_become_larger_is_told_with_its_shape() {
    let daemon = start();
    for name in [REFERENCE, FAST] {
        let prepared = prepare(&open(&daemon, name));
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        for _ in 0..6 {
            expect_rows(&mut burst, 2);
        }
        for _ in 0..6 {
            let error = run(&mut burst, 7, 2).unwrap_err();
            assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
            let shape = &error.output_shapes()[0];
            assert_eq!(shape.dimensions, [7, OUT as u32]);
            assert!(!shape.is_sufficient);
        }
        expect_rows(&mut burst, 7);
        // More room than is needed is left alone behind the result.
        let (completed, result) = run(&mut burst, 3, 5).unwrap();
        assert_eq!(completed.output_shapes[0].dimensions, [3, OUT as u32]);
        assert_eq!(result[..3 * OUT], expected(3));
        assert!(result[3 * OUT..].iter().all(|value| value.is_nan()));
    }
}

/// Memory for so many rows, filled, and a request for them.
fn placed(rows: usize) -> (Memory, Request) {
    let (from, to) = ((rows * IN * 4) as u64, (rows * OUT * 4) as u64);
    let memory = Memory::new(from + to).unwrap();
    memory.write(0, &values(rows)).unwrap();
    let request = Request::new()
        .input_with_dimensions(&memory, 0..from, &[rows as u32, IN as u32])
        .output(&memory, from..from + to);
    (memory, request)
}

#[test]
fn registered_requests_of_several_shapes_take_turns() {
    let daemon = start();
    for name in [REFERENCE, FAST] {
        let prepared = prepare(&open(&daemon, name));
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        let rows = [1, 40, 6, 513];
        let placed = rows.map(placed);
        let registered = placed
            .each_ref()
            .map(|(_, request)| burst.register(request).unwrap());
        for round in 0..8 {
            for ((rows, (memory, _)), registered) in rows.iter().zip(&placed).zip(&registered) {
                let from = (rows * IN * 4) as u64;
                memory.write(from, &vec![f32::NAN; rows * OUT]).unwrap();
                let completed = burst.fire(registered, &ExecuteOptions::new()).unwrap();
                let found: Vec<f32> = memory.read(from, rows * OUT).unwrap();
                assert_eq!(found, expected(*rows), "{rows} rows, round {round}");
                let shape = &completed.output_shapes[0];
                assert_eq!(shape.dimensions, [*rows as u32, OUT as u32]);
            }
        }
    }
}

#[test]
fn bursts_of_one_model_compute_different_shapes_at_a_time() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, FAST));
    std::thread::scope(|scope| {
        for first in [1, 20, 111] {
            let prepared = &prepared;
            scope.spawn(move || {
                let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
                for round in 0..60 {
                    expect_rows(&mut burst, first + round / 10);
                }
            });
        }
    });
}

#[test]
fn shape_that_cannot_be_is_refused_and_spoils_nothing() {
    let daemon = start();
    for name in [REFERENCE, FAST] {
        let prepared = prepare(&open(&daemon, name));
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        for _ in 0..5 {
            expect_rows(&mut burst, 2);
        }
        let (memory, _) = placed(2);
        let wrong: [&[u32]; 8] = [
            &[],
            &[2],
            &[0, 4],
            &[3, 4],
            &[2, 5],
            &[1, 2, 4],
            &[u32::MAX, u32::MAX],
            &[1 << 30, 4],
        ];
        for dimensions in wrong {
            let request = Request::new()
                .input_with_dimensions(&memory, 0..32, dimensions)
                .output(&memory, 32..96);
            let refused = burst.execute(&request, &ExecuteOptions::new()).unwrap_err();
            assert_eq!(
                refused.status(),
                ErrorStatus::InvalidArgument,
                "{dimensions:?}: {refused}"
            );
            let refused = burst.register(&request).unwrap_err();
            assert_eq!(
                refused.status(),
                ErrorStatus::InvalidArgument,
                "{dimensions:?}: {refused}"
            );
            expect_rows(&mut burst, 2);
        }
    }
}
