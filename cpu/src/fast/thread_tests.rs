//! Results do not depend on how many threads compute them, and large operations can be stopped.

use nnhal_hal::{ExtraParams, Operand, OperandType, OperationType, SymmPerChannelQuantParams};
use nnhal_os::cores::{Cores, OwnCores};

use super::simd::multiplies_bytes;
use crate::kernels::testing::OneOperation;
use crate::threads::{Helpers, Threads};
use crate::{Interrupt, Interrupted, KernelSet, RunOptions};

const TYPES: [OperandType; 3] = [
    OperandType::TENSOR_FLOAT32,
    OperandType::TENSOR_QUANT8_ASYMM,
    OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
];

/// Notes whether a helper was ever asked for.
#[derive(Debug)]
struct Noting {
    cores: OwnCores,
    asked: std::sync::atomic::AtomicBool,
}

impl Cores for Noting {
    fn most(&self) -> usize {
        self.cores.most()
    }

    fn enter(&self) {
        self.cores.enter();
    }

    fn leave(&self) {
        self.cores.leave();
    }

    fn take(&self, wanted: usize) -> usize {
        self.asked.store(true, std::sync::atomic::Ordering::Relaxed);
        self.cores.take(wanted)
    }

    fn give_back(&self, count: usize) {
        self.cores.give_back(count);
    }

    fn permit_helper(&self) -> Option<nnhal_os::cores::ThreadPermit> {
        self.cores.permit_helper()
    }
}

/// Has an operation computed by one to eight threads and compares bits.
fn expect_same_bits(name: &str, make: impl Fn() -> OneOperation) {
    let run = |options: &RunOptions<'_>| {
        let outputs = make().run_by(KernelSet::Fast, options).unwrap();
        outputs.into_iter().map(|output| output.bytes).collect::<Vec<_>>()
    };
    let expected = run(&RunOptions::default());
    for most in 2..=8 {
        let (helpers, cores) = (
            Helpers::new(7),
            Noting {
                cores: OwnCores::new(8),
                asked: false.into(),
            },
        );
        let options = RunOptions {
            threads: Threads::new(&helpers, &cores, most),
            ..RunOptions::default()
        };
        assert!(run(&options) == expected, "{name} by {most} threads");
        assert!(cores.asked.into_inner(), "{name} is large enough for helpers");
    }
}

fn operand(ty: OperandType, dims: &[u32]) -> Operand {
    let mut operand = Operand::new(ty, dims);
    if ty != OperandType::TENSOR_FLOAT32 {
        operand.scale = 0.5;
        operand.zero_point = if ty == OperandType::TENSOR_QUANT8_ASYMM {
            131
        } else {
            3
        };
    }
    operand
}

/// One more input of pseudo-random values.
fn values(one: OneOperation, ty: OperandType, dims: &[u32]) -> OneOperation {
    let count = dims.iter().product::<u32>();
    let value = |at: u32| at.wrapping_mul(2_654_435_761) >> 24;
    let operand = operand(ty, dims);
    if ty == OperandType::TENSOR_FLOAT32 {
        let values: Vec<f32> = (0..count).map(|at| value(at) as f32 / 37.0 - 3.1).collect();
        one.operand(operand, &values)
    } else {
        let values: Vec<u8> = (0..count).map(|at| value(at) as u8).collect();
        one.operand(operand, &values)
    }
}

fn bias(one: OneOperation, ty: OperandType, count: u32) -> OneOperation {
    if ty == OperandType::TENSOR_FLOAT32 {
        return values(one, ty, &[count]);
    }
    let mut operand = Operand::new(OperandType::TENSOR_INT32, &[count]);
    operand.scale = 0.25;
    let values: Vec<i32> = (0..count as i32).map(|at| at * 31 - 500).collect();
    one.operand(operand, &values)
}

fn scalars(one: OneOperation, scalars: &[i32]) -> OneOperation {
    scalars.iter().fold(one, |one, value| one.i32(*value))
}

/// An output whose steps are so large that 8-bit results do not all saturate.
fn output(one: OneOperation, ty: OperandType, dims: &[u32]) -> OneOperation {
    let mut operand = operand(ty, dims);
    if ty != OperandType::TENSOR_FLOAT32 {
        operand.scale = 400.0;
    }
    one.output_operand(operand)
}

#[test]
fn convolutions_are_the_same_by_any_number_of_threads() {
    // Many rows, few rows of many columns, and few of both.
    for (image, filter, channels) in [
        ([1, 67, 29, 17], 3, 33),
        ([2, 97, 47, 23], 1, 43),
        ([1, 17, 17, 129], 1, 251),
        ([1, 17, 9, 500], 3, 17),
        // Products of bytes: less blocks than threads, and many rows.
        ([1, 8, 8, 960], 1, 160),
        ([1, 16, 16, 384], 1, 96),
        ([1, 56, 56, 24], 1, 96),
        // By tiles where there are any: windows of several rows, and deep and narrow.
        ([1, 33, 35, 24], 3, 65),
        ([2, 19, 21, 131], 1, 80),
    ] {
        for ty in TYPES {
            expect_same_bits(&format!("{ty} {image:?}"), || {
                let one = values(OneOperation::new(OperationType::CONV_2D), ty, &image);
                let one = values(one, ty, &[channels, filter, filter, image[3]]);
                let one = scalars(bias(one, ty, channels), &[1, 1, 1, 1]).with_constants();
                output(one, ty, &[image[0], image[1], image[2], channels])
            });
        }
    }
}

#[test]
fn pixels_of_few_values_are_the_same_by_any_number_of_threads() {
    // Which columns are the last of a block, and so alone, depends on the number of threads.
    let (image, channels, ty) = ([1, 4, 5, 16], 9640, OperandType::TENSOR_FLOAT32);
    expect_same_bits("pixels of sixteen floats", || {
        let one = values(OneOperation::new(OperationType::CONV_2D), ty, &image);
        let one = values(one, ty, &[channels, 1, 1, 16]);
        let one = scalars(bias(one, ty, channels), &[1, 1, 1, 0]).with_constants();
        output(one, ty, &[1, 4, 5, channels])
    });
}

#[test]
fn windows_of_bytes_are_the_same_by_any_number_of_threads() {
    let expected = if multiplies_bytes() {
        "8-bit matrix product"
    } else {
        "8-bit matrix product by pairs"
    };
    // In strips with padding, and where values are unsigned in the image itself.
    for (image, [padding, stride], channels, extents) in [
        ([2, 97, 95, 3], [1, 2], 65, [49, 48]),
        ([1, 90, 91, 4], [2, 1], 33, [88, 89]),
    ] {
        for (ty, is_by_channel) in TYPES[1..].iter().flat_map(|ty| [(*ty, false), (*ty, true)]) {
            let mut filter = operand(ty, &[channels, 3, 3, image[3]]);
            // Nothing is subtracted for values.
            filter.zero_point -= 3;
            if is_by_channel {
                filter = Operand::new(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, &filter.dimensions);
                filter.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
                    scales: (1..=channels).map(|channel| channel as f32 * 0.02).collect(),
                    channel_dim: 0,
                });
            }
            let count = filter.dimensions.iter().product::<u32>();
            let weights: Vec<u8> = (0..count)
                .map(|at| (at.wrapping_mul(2_246_822_519) >> 24) as u8)
                .collect();
            let make = || {
                let one = values(OneOperation::new(OperationType::CONV_2D), ty, &image);
                let one = one.operand(filter.clone(), &weights);
                let one = if is_by_channel {
                    let biases: Vec<i32> = (0..channels as i32).map(|at| at * 31 - 500).collect();
                    one.tensor(OperandType::TENSOR_INT32, &[channels], &biases)
                } else {
                    bias(one, ty, channels)
                };
                let one = scalars(one, &[padding, stride, stride, 0]).with_constants();
                output(one, ty, &[image[0], extents[0], extents[1], channels])
            };
            let name = format!("{ty} {image:?}, by channel: {is_by_channel}");
            assert_eq!(make().kernel_name(), expected, "{name}");
            let by = |kernels| {
                let outputs = make().run_by(kernels, &RunOptions::default());
                outputs.unwrap().remove(0).bytes
            };
            assert!(by(KernelSet::Fast) == by(KernelSet::Reference), "{name}");
            expect_same_bits(&name, make);
        }
    }
}

#[test]
fn fully_connected_layers_are_the_same_by_any_number_of_threads() {
    for (rows, depth, columns) in [(1, 1027, 1019), (61, 301, 401), (100, 1024, 96), (1, 1024, 1000)] {
        for ty in TYPES {
            expect_same_bits(&format!("{ty} {rows}x{depth}x{columns}"), || {
                let one = values(
                    OneOperation::new(OperationType::FULLY_CONNECTED),
                    ty,
                    &[rows, depth],
                );
                let one = values(one, ty, &[columns, depth]);
                let one = bias(one, ty, columns).i32(0).with_constants();
                output(one, ty, &[rows, columns])
            });
        }
    }
}

#[test]
fn depthwise_convolutions_are_the_same_by_any_number_of_threads() {
    for (stride, extent) in [(1, 97), (2, 49)] {
        for ty in TYPES {
            expect_same_bits(&format!("{ty} stride {stride}"), || {
                let one = values(
                    OneOperation::new(OperationType::DEPTHWISE_CONV_2D),
                    ty,
                    &[1, 97, 97, 53],
                );
                let one = values(one, ty, &[1, 3, 3, 53]);
                let one = scalars(bias(one, ty, 53), &[1, stride, stride, 1, 0]).with_constants();
                output(one, ty, &[1, extent, extent, 53])
            });
        }
    }
}

#[test]
fn poolings_are_the_same_by_any_number_of_threads() {
    for operation in [OperationType::AVERAGE_POOL_2D, OperationType::MAX_POOL_2D] {
        for ty in TYPES {
            expect_same_bits(&format!("{operation} {ty}"), || {
                let one = values(OneOperation::new(operation), ty, &[1, 41, 39, 21]);
                let one = scalars(one, &[1, 1, 1, 3, 3, 0]).with_constants();
                one.output_operand(operand(ty, &[1, 41, 39, 21]))
            });
        }
    }
}

#[test]
fn sums_are_the_same_by_any_number_of_threads() {
    // A row for all, one element for all or for each row, planes for all others, and of short rows all of
    // these.
    let shapes: [([u32; 3], &[u32]); 8] = [
        ([38, 73, 131], &[38, 73, 131]),
        ([38, 73, 131], &[131]),
        ([38, 73, 131], &[1]),
        ([38, 73, 131], &[73, 1]),
        ([38, 73, 131], &[38, 1, 1]),
        ([211, 401, 3], &[3]),
        ([211, 401, 3], &[401, 1]),
        ([211, 401, 3], &[211, 1, 3]),
    ];
    for (ty, (left, right)) in TYPES.into_iter().flat_map(|ty| shapes.map(|both| (ty, both))) {
        expect_same_bits(&format!("{ty} {left:?} {right:?}"), || {
            let one = values(OneOperation::new(OperationType::ADD), ty, &left);
            let one = values(one, ty, right).i32(0).with_constants();
            one.output_operand(operand(ty, &left))
        });
    }
    expect_same_bits("RELU", || {
        let ty = OperandType::TENSOR_FLOAT32;
        values(OneOperation::new(OperationType::RELU), ty, &[19, 73, 101]).output(ty, &[19, 73, 101])
    });
}

#[test]
fn shares_and_what_a_table_has_are_the_same_by_any_number_of_threads() {
    for ty in TYPES {
        let shares = Operand::new(ty, &[4917, 91]).with_quantization(1.0 / 256.0, 0);
        let shares = match ty {
            OperandType::TENSOR_FLOAT32 => operand(ty, &[4917, 91]),
            OperandType::TENSOR_QUANT8_ASYMM => shares,
            _ => shares.with_quantization(1.0 / 256.0, -128),
        };
        expect_same_bits(&format!("SOFTMAX {ty}"), || {
            let one = values(OneOperation::new(OperationType::SOFTMAX), ty, &[4917, 91]);
            one.f32(0.1).output_operand(shares.clone()).with_constants()
        });
        expect_same_bits(&format!("HARD_SWISH {ty}"), || {
            let one = values(OneOperation::new(OperationType::HARD_SWISH), ty, &[67, 73, 101]);
            one.output_operand(operand(ty, &[67, 73, 101]))
        });
    }
}

#[test]
fn resizings_are_the_same_by_any_number_of_threads() {
    for ty in TYPES {
        // The second time in sixteenths of a pixel.
        for [height, width] in [[77, 90], [80, 124]] {
            expect_same_bits(&format!("RESIZE_BILINEAR {ty} to {height} x {width}"), || {
                let one = values(
                    OneOperation::new(OperationType::RESIZE_BILINEAR),
                    ty,
                    &[3, 20, 31, 9],
                );
                let one = scalars(one, &[width, height]).with_constants();
                one.output_operand(operand(ty, &[3, height as u32, width as u32, 9]))
            });
        }
    }
}

#[test]
fn places_of_extremes_are_the_same_by_any_number_of_threads() {
    for ty in [
        OperandType::TENSOR_QUANT8_ASYMM,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
    ] {
        expect_same_bits(&format!("ARGMAX {ty}"), || {
            let one = values(OneOperation::new(OperationType::ARGMAX), ty, &[300, 301, 21]);
            let one = scalars(one, &[-1]).with_constants();
            one.output(OperandType::TENSOR_INT32, &[300, 301])
        });
    }
}

#[test]
fn recurrent_cells_are_the_same_by_any_number_of_threads() {
    let ty = OperandType::TENSOR_FLOAT32;
    expect_same_bits("RNN", || {
        let dims: [&[u32]; 5] = [&[1, 301], &[650, 301], &[650, 650], &[650], &[1, 650]];
        let one = OneOperation::new(OperationType::RNN);
        let one = dims.iter().fold(one, |one, dims| values(one, ty, dims));
        one.i32(1)
            .output(ty, &[1, 650])
            .output(ty, &[1, 650])
            .with_constants()
    });
}

/// Says at the third check that the execution is to stop: the first is before the operation.
#[derive(Default)]
struct StopsInside(std::cell::Cell<u32>);

impl Interrupt for StopsInside {
    fn check(&self) -> Result<(), Interrupted> {
        self.0.set(self.0.get() + 1);
        if self.0.get() < 3 {
            Ok(())
        } else {
            Err(Interrupted::Cancelled)
        }
    }
}

/// An operation can be stopped before it ends.
fn expect_stop(name: &str, make: impl Fn() -> OneOperation) {
    let interrupt = StopsInside::default();
    let options = RunOptions {
        interrupt: &interrupt,
        ..RunOptions::default()
    };
    let error = make().run_by(KernelSet::Fast, &options).err();
    assert_eq!(error, Some(Interrupted::Cancelled.to_string()), "{name}");
}

/// So can one that several threads compute, which gives the same bits by any number of them.
fn expect_stop_and_same_bits(name: &str, make: impl Fn() -> OneOperation) {
    expect_stop(name, &make);
    expect_same_bits(name, make);
}

#[test]
fn large_operations_can_be_stopped_before_they_end() {
    for ty in TYPES {
        let constants = |operation, dims: &[&[u32]]| {
            let one = OneOperation::new(operation);
            dims.iter().fold(one, |one, dims| values(one, ty, dims))
        };
        expect_stop_and_same_bits(&format!("CONV_2D {ty}"), || {
            let one = constants(OperationType::CONV_2D, &[&[1, 40, 40, 128], &[256, 3, 3, 128]]);
            let one = scalars(bias(one, ty, 256), &[1, 1, 1, 0]).with_constants();
            output(one, ty, &[1, 40, 40, 256])
        });
        let several = || {
            let one = constants(OperationType::CONV_2D, &[&[6, 20, 20, 128], &[128, 3, 3, 128]]);
            let one = scalars(bias(one, ty, 128), &[1, 1, 1, 0]).with_constants();
            output(one, ty, &[6, 20, 20, 128])
        };
        expect_stop_and_same_bits(&format!("CONV_2D of several images {ty}"), several);
        if ty != OperandType::TENSOR_FLOAT32 {
            // In blocks as by an algorithm without any.
            let by = |kernels| {
                several()
                    .run_by(kernels, &RunOptions::default())
                    .unwrap()
                    .remove(0)
                    .bytes
            };
            assert!(by(KernelSet::Fast) == by(KernelSet::Reference), "{ty}");
        }
        expect_stop_and_same_bits(&format!("FULLY_CONNECTED {ty}"), || {
            let one = constants(OperationType::FULLY_CONNECTED, &[&[40, 1024], &[2048, 1024]]);
            let one = bias(one, ty, 2048).i32(0).with_constants();
            output(one, ty, &[40, 2048])
        });
        expect_stop_and_same_bits(&format!("DEPTHWISE_CONV_2D {ty}"), || {
            let one = constants(
                OperationType::DEPTHWISE_CONV_2D,
                &[&[1, 160, 160, 96], &[1, 3, 3, 96]],
            );
            let one = scalars(bias(one, ty, 96), &[1, 1, 1, 1, 0]).with_constants();
            output(one, ty, &[1, 160, 160, 96])
        });
        expect_stop_and_same_bits(&format!("ADD {ty}"), || {
            let one = constants(OperationType::ADD, &[&[1300, 2000], &[1300, 2000]]);
            one.i32(0)
                .with_constants()
                .output_operand(operand(ty, &[1300, 2000]))
        });
        expect_stop_and_same_bits(&format!("RESIZE_BILINEAR {ty}"), || {
            let one = values(
                OneOperation::new(OperationType::RESIZE_BILINEAR),
                ty,
                &[1, 65, 65, 64],
            );
            let one = scalars(one, &[260, 260]).with_constants();
            one.output_operand(operand(ty, &[1, 260, 260, 64]))
        });
    }
    let ty = OperandType::TENSOR_FLOAT32;
    expect_stop("a sequence of recurrent cells", || {
        let one = OneOperation::new(OperationType::UNIDIRECTIONAL_SEQUENCE_RNN);
        let dims: [&[u32]; 5] = [&[1, 40, 128], &[256, 128], &[256, 256], &[256], &[1, 256]];
        let one = dims.iter().fold(one, |one, dims| values(one, ty, dims));
        scalars(one, &[1, 0]).output(ty, &[1, 40, 256]).with_constants()
    });
}
