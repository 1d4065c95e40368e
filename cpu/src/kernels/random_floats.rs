//! RANDOM_UNIFORM and RANDOM_STANDARD_NORMAL: floats made of the words of a generator.
//!
//! Each four come from four words. What remains of the last ones is lost, as in TFLite.

use nnhal_hal::{OperationType, tflite};

use super::philox::Philox;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::RANDOM_UNIFORM, |context| {
        generate(context, |words| words.map(unit))
    }),
    (tflite::RANDOM_STANDARD_NORMAL, |context| {
        generate(context, |[first, second, third, fourth]| {
            let [one, two] = normal(first, second);
            let [three, four] = normal(third, fourth);
            [one, two, three, four]
        })
    }),
];

fn generate(
    context: &mut KernelContext<'_>,
    floats: impl Fn([u32; 4]) -> [f32; 4],
) -> Result<(), KernelError> {
    let mut random = Philox::read(&context.inputs, 1)?;
    let mut pace = context.pace();
    for group in context.outputs.data::<f32>(0)?.chunks_mut(4) {
        pace.work(16)?;
        for (to, value) in group.iter_mut().zip(floats(random.next_block())) {
            *to = value;
        }
    }
    random.write(&mut context.outputs, 1)
}

/// A float from 0 to below 1, whose fraction is the lowest 23 bits.
fn unit(word: u32) -> f32 {
    (word & 0x7f_ffff) as f32 / (1 << 23) as f32
}

/// Two floats of the normal distribution, by the transform of Box and Muller.
fn normal(length: u32, angle: u32) -> [f32; 2] {
    let length = (-2.0 * unit(length).max(1e-7).ln()).sqrt();
    let angle = (std::f64::consts::TAU * f64::from(unit(angle))) as f32;
    [angle.sin() * length, angle.cos() * length]
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use super::{normal, unit};
    use crate::kernels::philox::block;
    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    fn operation(kind: OperationType, shape: &[i32], generator: &[i32]) -> OneOperation {
        OneOperation::new(kind)
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .tensor(T::TENSOR_INT32, &[generator.len() as u32], generator)
            .output(T::TENSOR_FLOAT32, &[])
            .output(T::TENSOR_INT32, &[])
    }

    /// The values and the generator after them.
    fn random(kind: OperationType, shape: &[i32], generator: &[i32]) -> Result<(Vec<f32>, Vec<i32>), String> {
        let outputs = operation(kind, shape, generator).run()?;
        let dims: Vec<i32> = outputs[0].dims.iter().map(|extent| *extent as i32).collect();
        assert_eq!(dims, shape);
        Ok((outputs[0].data(), outputs[1].data()))
    }

    #[test]
    fn floats_are_made_of_words_in_order_and_the_rest_is_lost() {
        let start = [7, -1, -1, 0, 3, 0];
        let [first, second] =
            [3_u128 << 64 | 0xffff_ffff, 3 << 64 | 1 << 32].map(|counter| block([7, u32::MAX], counter));
        let words: Vec<u32> = first.into_iter().chain(second).collect();
        let (values, after) = random(tflite::RANDOM_UNIFORM, &[2, 3], &start).unwrap();
        let expected: Vec<f32> = words.iter().take(6).map(|word| unit(*word)).collect();
        assert_eq!(values, expected);
        assert_eq!(after, [7, -1, 1, 1, 3, 0]);
        let (values, after) = random(tflite::RANDOM_STANDARD_NORMAL, &[5], &start).unwrap();
        let pairs = words.chunks_exact(2);
        let expected: Vec<f32> = pairs.flat_map(|pair| normal(pair[0], pair[1])).take(5).collect();
        assert_eq!(values, expected);
        assert_eq!(after, [7, -1, 1, 1, 3, 0]);
    }

    #[test]
    fn extreme_words_give_finite_floats() {
        assert_eq!([0, 1 << 23, 0x40_0000].map(unit), [0.0, 0.0, 0.5]);
        assert_eq!(unit(u32::MAX), 1.0 - f32::EPSILON);
        // The logarithm of 0 is that of 1e-7.
        let [zero, most] = normal(0, 0);
        assert_eq!(zero, 0.0);
        assert!((most - 5.677_695).abs() < 1e-5, "{most}");
        assert_eq!(normal(u32::MAX, 0)[0], 0.0);
    }

    #[test]
    fn many_floats_have_mean_and_deviation_of_their_distribution() {
        for (kind, mean, variance) in [
            (tflite::RANDOM_UNIFORM, 0.5, 1.0 / 12.0),
            (tflite::RANDOM_STANDARD_NORMAL, 0.0, 1.0),
        ] {
            let (values, _) = random(kind, &[10_000], &[1, 0, 0, 0, 2, 0]).unwrap();
            let average = |of: &dyn Fn(f32) -> f32| values.iter().map(|value| of(*value)).sum::<f32>() / 1e4;
            let found = average(&|value| value);
            assert!((found - mean).abs() < 0.03, "{kind}: mean {found}");
            let found = average(&|value| (value - mean).powi(2));
            assert!((found - variance).abs() < 0.05, "{kind}: variance {found}");
        }
    }

    #[test]
    fn nothing_to_draw_leaves_the_generator_as_it_is() {
        let start = [1, 2, 3, 4, 5, 6];
        let found = random(tflite::RANDOM_UNIFORM, &[i32::MAX, 0], &start).unwrap();
        assert_eq!(found, (Vec::new(), start.to_vec()));
    }

    #[test]
    fn generators_of_zeros_stand_for_any() {
        let [one, other] = [(); 2].map(|()| random(tflite::RANDOM_UNIFORM, &[8], &[0; 6]).unwrap());
        assert_ne!(one.0, other.0);
        assert_ne!(one.1, other.1);
        assert_eq!(one.1[2..], [2, 0, 0, 0]);
    }

    #[test]
    fn shapes_and_generators_that_do_not_fit_give_an_error() {
        let error =
            |shape: &[i32], words: usize| random(tflite::RANDOM_UNIFORM, shape, &vec![0; words]).unwrap_err();
        assert!(error(&[2], 5).contains("(generator)"));
        assert!(error(&[2], 7).contains("(generator)"));
        assert!(error(&[2, -1], 6).contains("(shape)"));
        assert!(!error(&[i32::MAX, i32::MAX], 6).is_empty());
        assert!(!error(&[1 << 30, 1], 6).is_empty());
    }

    #[test]
    fn many_floats_end_by_the_deadline() {
        for kind in [tflite::RANDOM_UNIFORM, tflite::RANDOM_STANDARD_NORMAL] {
            ends_by_the_deadline(operation(kind, &[1 << 17], &[0; 6]));
        }
    }
}
