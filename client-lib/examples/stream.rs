//! A stream of frames through a model: several are on their way at once, each in shared memory of its own, so
//! that this process fills the next frame while the driver computes the last ones.
//!
//!     cargo run --release -p nnhal-client --example stream [DEVICE]

use std::time::Instant;

use nnhal_client::{
    Burst, BurstOptions, Devices, ExecuteOptions, Memory, Model, ModelBuilder, OperationType, PrepareOptions,
    RegisteredRequest, Request, Result, TensorType,
};

/// Frames are squares.
const SIDE: u32 = 64;
const PIXELS: usize = (SIDE * SIDE) as usize;
/// The model halves them.
const HALVED: usize = PIXELS / 4;
const FRAME_BYTES: u64 = (PIXELS * size_of::<f32>()) as u64;
const HALVED_BYTES: u64 = (HALVED * size_of::<f32>()) as u64;

const FRAMES: usize = 10_000;
const IN_FLIGHT: u32 = 4;

/// Each pixel of the result is the mean of four.
fn halving() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let frame = model.input(TensorType::float32(&[1, SIDE, SIDE, 1]));
    let (no_padding, two, no_activation) = (model.scalar(2_i32), model.scalar(2_i32), model.scalar(0_i32));
    let halved = model.output(TensorType::float32(&[1, SIDE / 2, SIDE / 2, 1]));
    model.operation(
        OperationType::AVERAGE_POOL_2D,
        &[frame, no_padding, two, two, two, two, no_activation],
        &[halved],
    );
    model.finish()
}

/// Memory for one frame and its result, and the request that names it.
struct Slot {
    memory: Memory,
    request: RegisteredRequest,
}

impl Slot {
    fn new(burst: &mut Burst) -> Result<Slot> {
        let memory = Memory::new(FRAME_BYTES + HALVED_BYTES)?;
        let request = Request::new()
            .input(&memory, 0..FRAME_BYTES)
            .output(&memory, FRAME_BYTES..FRAME_BYTES + HALVED_BYTES);
        let request = burst.register(&request)?;
        Ok(Slot { memory, request })
    }
}

/// What a camera would give: frames that get brighter.
fn capture(number: usize, pixels: &mut [f32]) {
    pixels.fill(number as f32);
}

fn main() -> Result<()> {
    let devices = Devices::open()?;
    let device = match std::env::args().nth(1) {
        Some(name) => devices.device(&name)?,
        None => devices.fastest()?,
    };
    let prepared = device.prepare(&halving()?, &PrepareOptions::new())?;
    let mut burst = prepared.burst(&BurstOptions::new().in_flight(IN_FLIGHT))?;
    let slots = (0..IN_FLIGHT)
        .map(|_| Slot::new(&mut burst))
        .collect::<Result<Vec<_>>>()?;

    let options = ExecuteOptions::new();
    let mut pixels = vec![0.0_f32; PIXELS];
    let (mut sent, mut received, mut wrong) = (0, 0, 0);
    let start = Instant::now();
    while received < FRAMES {
        // Frames come back in the order in which they were sent, so each slot takes its turn.
        while sent < FRAMES && sent - received < slots.len() {
            let slot = &slots[sent % slots.len()];
            capture(sent, &mut pixels);
            slot.memory.write(0, &pixels)?;
            burst.submit(&slot.request, &options)?;
            sent += 1;
        }
        if let Some(finished) = burst.next_finished(&options)? {
            finished.result?;
            let halved = slots[received % slots.len()]
                .memory
                .read::<f32>(FRAME_BYTES, HALVED)?;
            wrong += usize::from(halved.iter().any(|pixel| *pixel != received as f32));
            received += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{FRAMES} frames on {}, {IN_FLIGHT} on their way at once: {:.1} us each, {wrong} wrong",
        device.name(),
        seconds * 1e6 / FRAMES as f64
    );
    std::process::exit(i32::from(wrong > 0))
}
