//! Inputs in memory that nobody can change any more, which the driver reads where they are.

use nnhal_client::{
    BurstOptions, ExecuteOptions, Memory, ModelBuilder, OperationType, PrepareOptions, PreparedModel,
    Request, TensorType,
};

use crate::common::{REFERENCE, open, start};

const FAST: &str = "nnhal-cpu";

const VALUES: u32 = 4096;
const BYTES: u64 = 4 * VALUES as u64;

fn values(seed: u32) -> Vec<f32> {
    (0..VALUES)
        .map(|at| ((at * 13 + seed * 7) % 101) as f32)
        .collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// `output = input + 1`.
fn plus_one(device: &nnhal_client::Device) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[VALUES]));
    let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[VALUES]));
    model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
    let model = model.finish().unwrap();
    device.prepare(&model, &PrepareOptions::new()).unwrap()
}

#[test]
fn results_are_those_of_memory_that_can_be_changed() {
    // On a line, on none, and with more room than the input takes.
    let places = [0..BYTES, 64..64 + BYTES, 4..4 + BYTES, 128..128 + BYTES + 64];
    for device in [FAST, REFERENCE] {
        let daemon = start();
        let prepared = plus_one(&open(&daemon, device));
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        let options = ExecuteOptions::new();
        let results = Memory::new(BYTES).unwrap();
        let writable = Memory::new(BYTES).unwrap();
        let other = values(9);
        writable.write(0, &other).unwrap();
        let from_writable = Request::new()
            .input(&writable, 0..BYTES)
            .output(&results, 0..BYTES);
        for place in places.clone() {
            let expected: Vec<f32> = values(1).iter().map(|value| value + 1.0).collect();
            let before = vec![0xff; place.start as usize];
            let sealed = Memory::sealed(&[&before, &bytes(&values(1)), &[0xff; 256]]).unwrap();
            let request = Request::new().input(&sealed, place).output(&results, 0..BYTES);
            let registered = burst.register(&request).unwrap();
            let check = |expected: &[f32]| {
                let found: Vec<f32> = results.read(0, VALUES as usize).unwrap();
                assert_eq!(found, expected, "on {device}: {request:?}");
                results.clear().unwrap();
            };
            for _ in 0..3 {
                burst.fire(&registered, &options).unwrap();
                check(&expected);
                burst.execute(&from_writable, &options).unwrap();
                check(&other.iter().map(|value| value + 1.0).collect::<Vec<_>>());
                prepared.execute(&request, &options).unwrap();
                check(&expected);
            }
        }
    }
}
