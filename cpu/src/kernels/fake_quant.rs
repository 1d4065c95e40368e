//! FAKE_QUANT: floats rounded to steps between two of them, one of which is 0.

use half::f16;
use nnhal_hal::ops::tflite::elementwise::bits;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::unary_float;
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::FAKE_QUANT, fake_quant)];

fn fake_quant(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let range = [context.inputs.f32(1)?, context.inputs.f32(2)?];
    let most = (1_u32 << bits(context.inputs.rules())?) - 1;
    let steps = Steps::new(range, most as f32);
    by_element!(context, { [f32, f16] => unary_float(context, |value| steps.nearest(value)) })
}

/// Evenly spaced numbers.
#[derive(Clone, Copy, Debug)]
struct Steps {
    scale: f32,
    least: f32,
    most: f32,
}

impl Steps {
    /// So many steps from the least to the most of a range, which is moved a little so that 0 is one of
    /// them.
    fn new([least, most]: [f32; 2], count: f32) -> Steps {
        let scale = (most - least) / count;
        // What is no number is 0.
        let zero = (-least / scale).round().max(0.0).min(count);
        Steps {
            scale,
            least: -zero * scale,
            most: (count - zero) * scale,
        }
    }

    fn nearest(self, value: f32) -> f32 {
        let value = value.max(self.least).min(self.most);
        ((value - self.least) * (1.0 / self.scale)).round() * self.scale + self.least
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn rounded(values: &[f32], range: [f32; 2], bits: i32) -> Result<Vec<f32>, String> {
        let (_, data) = OneOperation::new(tflite::FAKE_QUANT)
            .tensor(T::TENSOR_FLOAT32, &[values.len() as u32], values)
            .f32(range[0])
            .f32(range[1])
            .i32(bits)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>()?;
        Ok(data)
    }

    #[test]
    fn values_go_to_the_nearest_step_of_the_range() {
        let values = [-9.0, -0.1, 0.0, 0.3, 1.2, 9.0, f32::NAN];
        assert_eq!(
            rounded(&values, [-1.0, 2.0], 2).unwrap(),
            [-1.0, 0.0, 0.0, 0.0, 1.0, 2.0, -1.0]
        );
    }

    #[test]
    fn a_range_is_moved_so_that_it_holds_0() {
        assert_eq!(rounded(&[0.2, 5.0], [-0.4, 2.6], 2).unwrap(), [0.0, 3.0]);
        assert_eq!(rounded(&[-5.0, 5.0], [1.0, 4.0], 2).unwrap(), [0.0, 3.0]);
    }

    #[test]
    fn bits_beyond_those_of_integers_give_an_error_and_odd_ranges_none() {
        for bits in [1, 17, i32::MIN, i32::MAX] {
            assert!(rounded(&[0.0], [-1.0, 1.0], bits).unwrap_err().contains("(bits)"));
        }
        for range in [[0.0; 2], [1.0, -1.0], [f32::NAN, 0.0], [f32::MIN, f32::MAX]] {
            assert_eq!(rounded(&[1.0, -1.0], range, 8).unwrap().len(), 2);
        }
    }
}
