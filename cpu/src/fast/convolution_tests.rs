use nnhal::hal::{Operand, OperandType, OperationType};

use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

/// A convolution of windows.
#[derive(Clone, Copy, Debug)]
struct Windows {
    image: [u32; 4],
    /// Rows and columns of a filter.
    filter: [u32; 2],
    columns: u32,
    /// Padding before and behind, in a row and in a column.
    padding: i32,
    stride: i32,
    dilation: i32,
    /// The weights' zero point, less that which nothing is subtracted for.
    weight_zero: i32,
}

impl Windows {
    const PLAIN: Windows = Windows {
        image: [1, 9, 11, 3],
        filter: [3, 3],
        columns: 17,
        padding: 1,
        stride: 1,
        dilation: 1,
        weight_zero: 0,
    };

    fn run(&self, ty: OperandType, kernels: KernelSet) -> Vec<u8> {
        let is_signed = ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let middle = if is_signed { 0 } else { 128 };
        let operand = |dims: &[u32], scale: f32, zero_point: i32| {
            let mut operand = Operand::new(ty, dims);
            (operand.scale, operand.zero_point) = (scale, zero_point);
            operand
        };
        let bytes = |dims: &[u32], by: u32| -> Vec<u8> {
            (0..dims.iter().product())
                .map(|at: u32| (at.wrapping_add(7).wrapping_mul(by) >> 24) as u8)
                .collect()
        };
        let [batch, height, width, channels] = self.image;
        let [down, across] = self.filter;
        let filter = [self.columns, down, across, channels];
        let extent = |extent: u32, filter: u32| {
            let seen = (filter - 1) * self.dilation as u32 + 1;
            (extent + 2 * self.padding as u32 - seen) / self.stride as u32 + 1
        };
        let output = [batch, extent(height, down), extent(width, across), self.columns];
        let mut bias = Operand::new(OperandType::TENSOR_INT32, &[self.columns]);
        bias.scale = 0.25;
        let biases: Vec<i32> = (0..self.columns as i32).map(|at| at * 31 - 500).collect();
        let depth = (down * across * channels) as f32;
        let one = OneOperation::new(OperationType::CONV_2D)
            .operand(
                operand(&self.image, 0.5, middle + 3),
                &bytes(&self.image, 2_654_435_761),
            )
            .operand(
                operand(&filter, 0.5, middle + self.weight_zero),
                &bytes(&filter, 2_246_822_519),
            )
            .operand(bias, &biases);
        let (padding, stride) = (self.padding, self.stride);
        let one = [padding, padding, padding, padding, stride, stride, 0]
            .into_iter()
            .fold(one, OneOperation::i32)
            .tensor(OperandType::BOOL, &[], &[0_u8])
            .i32(self.dilation)
            .i32(self.dilation)
            .with_constants()
            .output_operand(operand(&output, 30.0 * depth.sqrt(), middle - 1));
        one.run_by(kernels, &RunOptions::default())
            .unwrap()
            .remove(0)
            .bytes
    }
}

#[test]
fn windows_of_bytes_are_those_of_the_reference() {
    let plain = Windows::PLAIN;
    let cases = [
        plain,
        Windows {
            stride: 2,
            columns: 32,
            ..plain
        },
        // Rows of several tiles and panels, batches, and parts that are filled up by one and by two.
        Windows {
            image: [2, 20, 33, 5],
            filter: [5, 3],
            columns: 40,
            padding: 2,
            stride: 2,
            ..plain
        },
        Windows {
            image: [1, 30, 19, 2],
            filter: [2, 5],
            columns: 8,
            padding: 0,
            ..plain
        },
        // In the image itself, where values are unsigned and parts whole; in one row and in one column.
        Windows {
            image: [2, 7, 9, 4],
            padding: 0,
            ..plain
        },
        Windows {
            image: [1, 7, 9, 16],
            filter: [1, 3],
            columns: 33,
            padding: 0,
            ..plain
        },
        Windows {
            image: [1, 7, 9, 1],
            filter: [3, 1],
            padding: 0,
            ..plain
        },
        // Windows with gaps: gathered where channels do not make fours.
        Windows {
            dilation: 2,
            padding: 2,
            ..plain
        },
        Windows {
            image: [1, 9, 11, 8],
            dilation: 2,
            padding: 2,
            ..plain
        },
        // Far apart, so gathered as well.
        Windows {
            image: [1, 19, 21, 3],
            stride: 4,
            ..plain
        },
        // Something is subtracted for values: by pairs.
        Windows {
            weight_zero: 9,
            ..plain
        },
        Windows {
            weight_zero: -60,
            stride: 2,
            ..plain
        },
    ];
    for case in cases {
        for ty in [
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ] {
            let exact = case.run(ty, KernelSet::Reference);
            let ends = exact.iter().filter(|byte| [0, 127, 128, 255].contains(*byte));
            assert!(
                ends.count() * 3 < exact.len(),
                "most results of {case:?} are not cut"
            );
            assert!(case.run(ty, KernelSet::Fast) == exact, "{ty} {case:?}");
        }
    }
}
