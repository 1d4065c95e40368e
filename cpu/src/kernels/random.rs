//! RANDOM_MULTINOMIAL, and MULTINOMIAL of the extension: classes drawn by their log-probabilities.
//!
//! The random numbers are those of [`Philox`], two 32-bit words for each sample. RANDOM_MULTINOMIAL takes the
//! two seeds for the key, as the HAL's reference does: the same seeds give the same samples. Two seeds of 0
//! ask for samples that differ from one execution to the next. MULTINOMIAL goes on from the generator given.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::element::Float;
use super::philox::Philox;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RANDOM_MULTINOMIAL, |context| {
        match context.inputs.tensor(0)?.ty() {
            OperandType::TENSOR_FLOAT16 => by_seeds::<f16>(context),
            _ => by_seeds::<f32>(context),
        }
    }),
    (tflite::MULTINOMIAL, by_generator),
];

fn by_seeds<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let &[first, second] = context.inputs.data::<i32>(2)? else {
        return Err(OpError::input(2, "(seeds) must have two elements").into());
    };
    let mut random = match [first, second] {
        [0, 0] => Philox::any(),
        seeds => Philox::new(seeds.map(|seed| seed as u32)),
    };
    let unit = |[low, high]: [u32; 2]| {
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    };
    sample::<T>(context, &mut random, unit, true)
}

/// As TFLite has it: the generator leaves out more words than are taken.
fn by_generator(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let mut random = Philox::read(&context.inputs, 2)?;
    let drawn = context.outputs.tensor(0)?.shape;
    let mut after = random.clone();
    let samples = u64::from(drawn.dim(1)).next_multiple_of(4);
    after.skip(
        u64::from(drawn.dim(0))
            .wrapping_mul(samples)
            .wrapping_mul(2 * 256),
    );
    after.write(&mut context.outputs, 1)?;
    let unit = |[high, low]: [u32; 2]| {
        let bits = u64::from(high & 0xf_ffff) << 32 | u64::from(low);
        bits as f64 / (1_u64 << 52) as f64
    };
    sample::<f32>(context, &mut random, unit, false)
}

/// Draws all samples. `unit` makes a number from 0 to below 1 of two words. A batch without a finite logit is
/// an error if `is_strict`. Otherwise its classes are the one behind the last.
fn sample<T: Float>(
    context: &mut KernelContext<'_>,
    random: &mut Philox,
    unit: impl Fn([u32; 2]) -> f64,
    is_strict: bool,
) -> Result<(), KernelError> {
    let logits = context.inputs.tensor(0)?;
    let classes = logits.shape.dim(1) as usize;
    let mut pace = context.pace();
    let output = context.outputs.tensor(0)?;
    let samples = output.shape.dim(1) as usize;
    let target = output.into_data::<i32>()?;
    if target.is_empty() {
        return Ok(());
    }
    let [cumulative] = context.scratch.carve::<f64, 1>([classes])?;
    let mut pairs = random.pairs();
    let rows = logits.data::<T>()?.chunks_exact(classes);
    for (batch, (row, slots)) in rows.zip(target.chunks_exact_mut(samples)).enumerate() {
        pace.work(classes)?;
        let total = accumulate(row, cumulative);
        if is_strict && total == 0.0 {
            return Err(OpError::input(0, format!("(logits) has no finite value in batch {batch}")).into());
        }
        for (slot, words) in slots.iter_mut().zip(&mut pairs) {
            pace.work(16)?;
            let drawn = unit(words) * total;
            let class = cumulative.partition_point(|sum| *sum <= drawn);
            // Rounding may bring the product up to the total.
            *slot = if is_strict { class.min(classes - 1) } else { class } as i32;
        }
    }
    Ok(())
}

/// Fills in the running sums of the probabilities, up to a factor, and gives their total. Classes whose logit
/// is not finite have probability 0. If no logit is, so is the total.
fn accumulate<T: Float>(logits: &[T], cumulative: &mut [f64]) -> f64 {
    let finite = |logit: &T| Some(f64::from(logit.to_f32())).filter(|logit| logit.is_finite());
    let largest = logits.iter().filter_map(finite).fold(f64::MIN, f64::max);
    let mut total = 0.0;
    for (sum, logit) in cumulative.iter_mut().zip(logits) {
        total += finite(logit).map_or(0.0, |logit| (logit - largest).exp());
        *sum = total;
    }
    total
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    fn sample(logits: &[f32], samples: i32, seeds: &[i32]) -> Result<Vec<i32>, String> {
        OneOperation::new(OperationType::RANDOM_MULTINOMIAL)
            .tensor(T::TENSOR_FLOAT32, &[1, logits.len() as u32], logits)
            .i32(samples)
            .tensor(T::TENSOR_INT32, &[seeds.len() as u32], seeds)
            .output(T::TENSOR_INT32, &[0, 0])
            .run_one()
            .map(|(_, data)| data)
    }

    fn multinomial(dims: [u32; 2], logits: &[f32], samples: i32, generator: &[i32]) -> OneOperation {
        OneOperation::new(tflite::MULTINOMIAL)
            .tensor(T::TENSOR_FLOAT32, &dims, logits)
            .tensor(T::TENSOR_INT32, &[1], &[samples])
            .tensor(T::TENSOR_INT32, &[generator.len() as u32], generator)
            .output(T::TENSOR_INT32, &[0, 0])
            .output(T::TENSOR_INT32, &[0])
    }

    /// The classes and the generator after them.
    fn drawn(
        dims: [u32; 2],
        logits: &[f32],
        samples: i32,
        generator: &[i32],
    ) -> Result<[Vec<i32>; 2], String> {
        let outputs = multinomial(dims, logits, samples, generator).run()?;
        assert_eq!(outputs[0].dims, [dims[0], samples as u32]);
        Ok([outputs[0].data(), outputs[1].data()])
    }

    #[test]
    fn batches_go_on_from_the_generator_and_it_goes_further() {
        let logits = [0.1_f32, 0.6, 0.3].map(f32::ln);
        let start = [7, 0, 0, 0, 1, 0];
        let [one, after] = drawn([1, 3], &logits, 5000, &start).unwrap();
        for (class, expected) in [0.1, 0.6, 0.3].into_iter().enumerate() {
            let share = one.iter().filter(|drawn| **drawn == class as i32).count() as f64 / 5000.0;
            assert!((share - expected).abs() < 0.03, "class {class}: {share}");
        }
        assert_eq!(after, [7, 0, 5000 * 512, 0, 1, 0]);
        assert_ne!(drawn([1, 3], &logits, 5000, &after).unwrap()[0], one);
        // Of two batches the second begins in the middle of four words.
        let [two, after] = drawn([2, 3], &[logits, logits].concat(), 5, &start).unwrap();
        assert_eq!(two, one[..10]);
        assert_eq!(after, [7, 0, 2 * 8 * 512, 0, 1, 0]);
    }

    #[test]
    fn batches_without_a_finite_logit_have_the_class_behind_the_last() {
        let [found, _] = drawn([2, 2], &[f32::NAN, f32::INFINITY, f32::NAN, 1.0], 3, &[0; 6]).unwrap();
        assert_eq!(found, [2, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn no_batches_and_no_samples_are_drawn_at_once() {
        let [found, after] = drawn([0, u32::MAX >> 1], &[], i32::MAX, &[0, 0, -1, 0, 0, 0]).unwrap();
        assert_eq!((found, after), (vec![], vec![0, 0, -1, 0, 0, 0]));
        let [found, after] = drawn([2, 1], &[0.0; 2], 0, &[3, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!((found, after), (vec![], vec![3, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn counts_and_generators_that_do_not_fit_give_an_error() {
        let error = |samples, words: usize| drawn([1, 1], &[0.0], samples, &vec![0; words]).unwrap_err();
        assert!(error(-1, 6).contains("(sample_count) is -1"));
        assert!(!error(i32::MAX, 6).is_empty());
        assert!(error(1, 2).contains("(generator)"));
        assert!(drawn([1, 0], &[], 1, &[0; 6]).unwrap_err().contains("no classes"));
    }

    #[test]
    fn many_samples_end_by_the_deadline() {
        ends_by_the_deadline(multinomial([1, 1], &[0.0], 1 << 14, &[0; 6]));
    }

    #[test]
    fn frequencies_follow_the_probabilities_and_seeds_repeat_them() {
        let logits = [0.1_f32, 0.6, 0.3].map(f32::ln);
        let drawn = sample(&logits, 10_000, &[7, 1]).unwrap();
        for (class, expected) in [0.1, 0.6, 0.3].into_iter().enumerate() {
            let share = drawn.iter().filter(|drawn| **drawn == class as i32).count() as f64 / 10_000.0;
            assert!((share - expected).abs() < 0.02, "class {class}: {share}");
        }
        assert_eq!(sample(&logits, 10_000, &[7, 1]).unwrap(), drawn);
        assert_ne!(sample(&logits, 10_000, &[8, 1]).unwrap(), drawn);
    }

    #[test]
    fn seeds_of_0_differ_from_run_to_run() {
        let logits = [0_f32; 1000];
        assert_ne!(sample(&logits, 100, &[0, 0]), sample(&logits, 100, &[0, 0]));
        let [one, other] = [(); 2].map(|()| drawn([1, 1000], &logits, 100, &[0; 6]).unwrap());
        assert_ne!(one[0], other[0]);
        assert_eq!(one[1][2..], [100 * 512, 0, 0, 0]);
    }

    #[test]
    fn classes_without_a_finite_logit_are_never_drawn() {
        let drawn = sample(&[f32::NEG_INFINITY, f32::NAN, 3.0, f32::INFINITY], 100, &[1, 2]).unwrap();
        assert_eq!(drawn, [2; 100]);
        assert!(sample(&[f32::NAN], 1, &[1, 2]).unwrap_err().contains("(logits)"));
    }

    #[test]
    fn counts_and_seeds_that_do_not_fit_give_an_error() {
        assert!(
            sample(&[0.0], -1, &[1, 2])
                .unwrap_err()
                .contains("(sample_count) is -1")
        );
        assert!(sample(&[0.0], i32::MAX, &[1, 2]).is_err());
        assert!(sample(&[0.0], 1, &[1]).unwrap_err().contains("(seeds)"));
        assert!(sample(&[], 1, &[1, 2]).unwrap_err().contains("no classes"));
    }
}
