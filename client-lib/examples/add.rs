//! Adds two vectors on the fastest device, in the driver's process: `cargo run --example add`.

use nnhal_client::{
    Devices, ExecuteOptions, Input, ModelBuilder, OperationType, Output, PrepareOptions, TensorType,
};

fn main() -> nnhal_client::Result<()> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, 4]));
    let y = model.constant(TensorType::float32(&[4]), &[1.0_f32, 2.0, 3.0, 4.0]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[1, 4]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);

    let device = Devices::open()?.fastest()?;
    let prepared = device.prepare(&model.finish()?, &PrepareOptions::new())?;
    let (input, mut output) = ([0.5_f32; 4], [0.0_f32; 4]);
    let options = ExecuteOptions::new();
    prepared.run(&[Input::from(&input)], &mut [Output::from(&mut output)], &options)?;
    println!(
        "{} computed {output:?} in process {}",
        device.name(),
        device.worker().pid
    );
    Ok(())
}
