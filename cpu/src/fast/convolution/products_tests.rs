use nnhal_hal::{Operand, OperandType, OperationType};

use crate::fast::simd::{instruction_set, multiplies_bytes};
use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

/// A convolution of windows.
#[derive(Clone, Copy, Debug)]
struct Windows {
    image: [u32; 4],
    /// Rows and columns of a filter.
    filter: [u32; 2],
    columns: u32,
    /// Padding before and behind, in a row and in a column, if filters reach that far.
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

    fn operation(&self, ty: OperandType) -> OneOperation {
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
        // No window sees nothing but padding.
        let padding = |filter: u32| self.padding.min((filter as i32 - 1) * self.dilation);
        let extent = |extent: u32, filter: u32| {
            let seen = (filter - 1) * self.dilation as u32 + 1;
            (extent + 2 * padding(filter) as u32 - seen) / self.stride as u32 + 1
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
        let ([beside, above], stride) = ([across, down].map(padding), self.stride);
        [beside, beside, above, above, stride, stride, 0]
            .into_iter()
            .fold(one, OneOperation::i32)
            .tensor(OperandType::BOOL, &[], &[0_u8])
            .i32(self.dilation)
            .i32(self.dilation)
            .with_constants()
            .output_operand(operand(&output, 30.0 * depth.sqrt(), middle - 1))
    }

    fn run(&self, ty: OperandType, kernels: KernelSet) -> Vec<u8> {
        let outputs = self.operation(ty).run_by(kernels, &RunOptions::default());
        outputs.unwrap().remove(0).bytes
    }

    /// What is to compute it.
    fn kernel_name(&self) -> &'static str {
        let is_deep = self.filter[0] == 1 && self.filter[1] * self.image[3] > 124;
        if !multiplies_bytes() || self.weight_zero != 0 {
            "8-bit matrix product by pairs"
        } else if is_deep && instruction_set() == "amx" {
            "8-bit matrix product by tiles"
        } else {
            "8-bit matrix product"
        }
    }
}

const WINDOWS: &[Windows] = &[
    Windows::PLAIN,
    Windows {
        stride: 2,
        columns: 32,
        ..Windows::PLAIN
    },
    // Rows of several tiles and panels, batches, and parts that are filled up by one and by two.
    Windows {
        image: [2, 20, 33, 5],
        filter: [5, 3],
        columns: 40,
        padding: 2,
        stride: 2,
        ..Windows::PLAIN
    },
    Windows {
        image: [1, 30, 19, 2],
        filter: [2, 5],
        columns: 8,
        padding: 0,
        ..Windows::PLAIN
    },
    // In the image itself, where values are unsigned and parts whole; in one row and in one column.
    Windows {
        image: [2, 7, 9, 4],
        padding: 0,
        ..Windows::PLAIN
    },
    Windows {
        image: [1, 7, 9, 16],
        filter: [1, 3],
        columns: 33,
        padding: 0,
        ..Windows::PLAIN
    },
    Windows {
        image: [1, 7, 9, 1],
        filter: [3, 1],
        padding: 0,
        ..Windows::PLAIN
    },
    // In one row of many values that do not make fours: by tiles where there are any.
    Windows {
        image: [1, 7, 9, 43],
        filter: [1, 3],
        columns: 64,
        padding: 0,
        ..Windows::PLAIN
    },
    Windows {
        image: [2, 7, 9, 43],
        filter: [1, 3],
        columns: 64,
        ..Windows::PLAIN
    },
    // Windows with gaps: gathered where channels do not make fours.
    Windows {
        dilation: 2,
        padding: 2,
        ..Windows::PLAIN
    },
    Windows {
        image: [1, 9, 11, 8],
        dilation: 2,
        padding: 2,
        ..Windows::PLAIN
    },
    // Far apart, so gathered as well.
    Windows {
        image: [1, 19, 21, 3],
        stride: 4,
        ..Windows::PLAIN
    },
    // Something is subtracted for values: by pairs.
    Windows {
        weight_zero: 9,
        ..Windows::PLAIN
    },
    Windows {
        weight_zero: -60,
        stride: 2,
        ..Windows::PLAIN
    },
];

#[test]
fn windows_of_bytes_are_those_of_the_reference() {
    for case in WINDOWS {
        for ty in [
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ] {
            let exact = case.run(ty, KernelSet::Reference);
            let ends = exact.iter().filter(|byte| [0, 127, 128, 255].contains(*byte));
            assert!(
                ends.count() * 3 < exact.len(),
                "most results of {case:?} are not clamped"
            );
            assert!(case.run(ty, KernelSet::Fast) == exact, "{ty} {case:?}");
            let name = case.operation(ty).kernel_name();
            assert_eq!(name, case.kernel_name(), "{ty} {case:?}");
        }
    }
}
