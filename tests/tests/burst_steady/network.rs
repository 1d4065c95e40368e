//! The same of small networks on `nnhal-cpu`, of floats and of bytes, by one thread and by two, which alone
//! may sleep and be woken.

use nnhal_client::{
    Burst, BurstOptions, Devices, ExecuteOptions, Memory, ModelBuilder, OperandId, OperationType,
    PrepareOptions, RegisteredRequest, Request, TensorType, WaitSettings,
};

use super::*;

/// Executions of a network that are looked at.
const NETWORK_EXECUTIONS: u64 = 500;

/// Height and width of the image.
const EXTENT: u32 = 128;
const CLASSES: u32 = 10;
/// Input channels, those of the first two layers, and of the next.
const CHANNELS: [u32; 3] = [3, 32, 64];

/// The type that a network computes with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Elements {
    Floats,
    Bytes,
}

impl Elements {
    /// A tensor with this scale and zero point, if its elements are bytes.
    fn tensor(self, dims: &[u32], scale: f32, zero_point: i32) -> TensorType {
        match self {
            Elements::Floats => TensorType::float32(dims),
            Elements::Bytes => TensorType::quant8_asymm(dims, scale, zero_point),
        }
    }

    fn size(self) -> u64 {
        match self {
            Elements::Floats => 4,
            Elements::Bytes => 1,
        }
    }
}

/// A network while it is built.
struct Builder {
    model: ModelBuilder,
    elements: Elements,
}

const INPUT_SCALE: f32 = 1.0 / 128.0;
const WEIGHT_SCALE: f32 = 1.0 / 512.0;
const RESULT_SCALE: f32 = 1.0 / 32.0;

impl Builder {
    /// Weights of small magnitude, and biases of zero.
    fn weights(&mut self, dims: &[u32], columns: u32, input_scale: f32) -> [OperandId; 2] {
        let count = dims.iter().product::<u32>();
        let value = |at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8;
        let ty = self.elements.tensor(dims, WEIGHT_SCALE, 128);
        let bias = &[columns];
        match self.elements {
            Elements::Floats => {
                let weights: Vec<f32> = (0..count)
                    .map(|at| (f32::from(value(at)) - 128.0) * WEIGHT_SCALE)
                    .collect();
                let zeros = vec![0.0_f32; columns as usize];
                let filter = self.model.constant(ty, &weights);
                [filter, self.model.constant(TensorType::float32(bias), &zeros)]
            }
            Elements::Bytes => {
                let weights: Vec<u8> = (0..count).map(value).collect();
                let bias = TensorType::int32(bias).with_quantization(input_scale * WEIGHT_SCALE, 0);
                let filter = self.model.constant(ty, &weights);
                [filter, self.model.constant(bias, &vec![0_i32; columns as usize])]
            }
        }
    }

    fn operation(
        &mut self,
        operation: OperationType,
        inputs: &[OperandId],
        scalars: &[i32],
        dims: &[u32],
    ) -> OperandId {
        let output = self.elements.tensor(dims, RESULT_SCALE, 0);
        let output = self.model.temporary(output);
        let scalars = scalars.iter().map(|value| self.model.scalar(*value));
        let inputs: Vec<OperandId> = inputs
            .iter()
            .copied()
            .chain(scalars.collect::<Vec<_>>())
            .collect();
        self.model.operation(operation, &inputs, &[output]);
        output
    }
}

/// A convolution, a depthwise one, one of single pixels, the mean of each channel, a fully connected layer,
/// and SOFTMAX.
fn network(elements: Elements) -> nnhal_client::Model {
    let mut net = Builder {
        model: ModelBuilder::new(),
        elements,
    };
    let [channels, middle, last] = CHANNELS;
    let half = EXTENT / 2;
    let image = elements.tensor(&[1, EXTENT, EXTENT, channels], INPUT_SCALE, 128);
    let image = net.model.input(image);
    let [filter, bias] = net.weights(&[middle, 3, 3, channels], middle, INPUT_SCALE);
    // Padding as needed, strides, RELU.
    let inputs = [image, filter, bias];
    let first = net.operation(
        OperationType::CONV_2D,
        &inputs,
        &[1, 2, 2, 1],
        &[1, half, half, middle],
    );
    let [filter, bias] = net.weights(&[1, 3, 3, middle], middle, RESULT_SCALE);
    let inputs = [first, filter, bias];
    let scalars = [1, 1, 1, 1, 1];
    let second = net.operation(
        OperationType::DEPTHWISE_CONV_2D,
        &inputs,
        &scalars,
        &[1, half, half, middle],
    );
    let [filter, bias] = net.weights(&[last, 1, 1, middle], last, RESULT_SCALE);
    let inputs = [second, filter, bias];
    let third = net.operation(
        OperationType::CONV_2D,
        &inputs,
        &[1, 1, 1, 1],
        &[1, half, half, last],
    );
    let window = half as i32;
    let scalars = [2, 1, 1, window, window, 0];
    let mean = net.operation(
        OperationType::AVERAGE_POOL_2D,
        &[third],
        &scalars,
        &[1, 1, 1, last],
    );
    let [filter, bias] = net.weights(&[CLASSES, last], CLASSES, RESULT_SCALE);
    let inputs = [mean, filter, bias];
    let classes = net.operation(OperationType::FULLY_CONNECTED, &inputs, &[0], &[1, CLASSES]);
    let shares = elements.tensor(&[1, CLASSES], 1.0 / 256.0, 0);
    let shares = net.model.output(shares);
    let beta = net.model.scalar(1.0_f32);
    net.model
        .operation(OperationType::SOFTMAX, &[classes, beta], &[shares]);
    net.model.finish().unwrap()
}

/// A network on a worker.
struct Network {
    worker: u32,
    elements: Elements,
    burst: Burst,
    registered: RegisteredRequest,
    memory: Memory,
}

impl Network {
    fn open(daemon: &TestDaemon, elements: Elements) -> Network {
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device("nnhal-cpu")
            .unwrap();
        let prepared = device
            .prepare(&network(elements), &PrepareOptions::new())
            .unwrap();
        let wait = WaitSettings::Fixed {
            window: Duration::from_secs(10),
        };
        let mut burst = prepared.burst(&BurstOptions::new().wait(wait)).unwrap();
        let image = u64::from(EXTENT * EXTENT * CHANNELS[0]) * elements.size();
        let end = image + u64::from(CLASSES) * elements.size();
        let memory = Memory::new(end).unwrap();
        let values =
            (0..EXTENT * EXTENT * CHANNELS[0]).map(|at| (at.wrapping_mul(2_246_822_519) >> 24) as u8);
        match elements {
            Elements::Floats => {
                let values: Vec<f32> = values.map(|value| f32::from(value) * INPUT_SCALE - 1.0).collect();
                memory.write(0, &values).unwrap();
            }
            Elements::Bytes => memory.write(0, &values.collect::<Vec<u8>>()).unwrap(),
        }
        let request = Request::new()
            .input(&memory, 0..image)
            .output(&memory, image..end);
        Network {
            worker: device.worker().pid,
            elements,
            registered: burst.register(&request).unwrap(),
            burst,
            memory,
        }
    }

    fn execute(&mut self, executions: u64) {
        for _ in 0..executions {
            self.burst.fire(&self.registered, &ExecuteOptions::new()).unwrap();
        }
    }

    /// The sum of the shares of all classes.
    fn sum(&self) -> f32 {
        let mut bytes = [0; CLASSES as usize * 4];
        let size = self.elements.size();
        let bytes = &mut bytes[..CLASSES as usize * size as usize];
        let start = u64::from(EXTENT * EXTENT * CHANNELS[0]) * size;
        self.memory.read_at(start, bytes).unwrap();
        match self.elements {
            Elements::Floats => {
                let shares = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                shares.sum()
            }
            Elements::Bytes => bytes.iter().map(|byte| f32::from(*byte) / 256.0).sum(),
        }
    }
}

/// Does something with both networks, by one thread and by two.
fn for_each(mut work: impl FnMut(&Counter, &mut Network, usize)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in 1..=processors.min(2) {
        let counter = Counter::new();
        let settings = format!("threads = {threads}\n");
        let daemon = start_with("nnhal-cpu", counter.environment(), &settings);
        for elements in [Elements::Floats, Elements::Bytes] {
            let mut network = Network::open(&daemon, elements);
            network.execute(100);
            assert!(
                (network.sum() - 1.0).abs() < 0.03,
                "shares of {elements:?} are {}",
                network.sum()
            );
            if threads == 1 {
                assert!(!has_helper(network.worker));
            } else {
                wait_until("there is a helper", || {
                    network.execute(10);
                    has_helper(network.worker)
                });
            }
            work(&counter, &mut network, threads);
        }
    }
}

#[test]
fn networks_allocate_on_neither_side() {
    for_each(|counter, network, threads| {
        let what = format!("{:?} by {threads} threads", network.elements);
        expect_none_allocated(counter, &what, || network.execute(NETWORK_EXECUTIONS));
    });
}

#[test]
fn networks_make_no_system_call_but_to_sleep_and_to_wake() {
    for_each(|_, network, threads| {
        // A helper sleeps between executions, and is woken.
        let most_sleeps = if threads == 1 { SLEEPS } else { u64::MAX };
        let what = format!("{:?} by {threads} threads", network.elements);
        expect_none_called(network.worker, &what, most_sleeps, || {
            network.execute(NETWORK_EXECUTIONS);
        });
    });
}
