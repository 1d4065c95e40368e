//! RANDOM_MULTINOMIAL: classes drawn by their log-probabilities.
//!
//! The random numbers are those of the counter-based generator Philox4x32-10 with the two seeds as its key,
//! two 32-bit words for each sample, as in the HAL's reference: the same seeds give the same samples. Two
//! seeds of 0 ask for samples that differ from one execution to the next.

use std::hash::{BuildHasher, Hasher};

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType};

use super::element::Float;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::RANDOM_MULTINOMIAL, |context| {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_FLOAT16 => sample::<f16>(context),
        _ => sample::<f32>(context),
    }
})];

fn sample<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let logits = context.inputs.tensor(0)?;
    let classes = logits.shape.dim(1) as usize;
    let &[first, second] = context.inputs.data::<i32>(2)? else {
        return Err(OpError::input(2, "(seeds) must have two elements").into());
    };
    let mut random = Philox::new(if (first, second) == (0, 0) {
        fresh_key()
    } else {
        [first as u32, second as u32]
    });
    let output = context.outputs.tensor(0)?;
    let samples = output.shape.dim(1) as usize;
    let target = output.into_data::<i32>()?;
    if target.is_empty() {
        return Ok(());
    }
    let [cumulative] = context.scratch.carve::<f64, 1>([classes])?;
    let rows = logits.data::<T>()?.chunks_exact(classes);
    for (batch, (row, slots)) in rows.zip(target.chunks_exact_mut(samples)).enumerate() {
        let total = accumulate(row, cumulative)
            .ok_or_else(|| OpError::input(0, format!("(logits) has no finite value in batch {batch}")))?;
        for slot in slots {
            let drawn = random.next_unit() * total;
            let class = cumulative.partition_point(|sum| *sum <= drawn);
            // Rounding may bring the product up to the total.
            *slot = class.min(classes - 1) as i32;
        }
    }
    Ok(())
}

/// Fills in the running sums of the probabilities, up to a factor, and gives their total. Classes whose logit
/// is not finite have probability 0.
fn accumulate<T: Float>(logits: &[T], cumulative: &mut [f64]) -> Option<f64> {
    let finite = |logit: &T| Some(f64::from(logit.to_f32())).filter(|logit| logit.is_finite());
    let largest = logits.iter().filter_map(finite).reduce(f64::max)?;
    let mut total = 0.0;
    for (sum, logit) in cumulative.iter_mut().zip(logits) {
        total += finite(logit).map_or(0.0, |logit| (logit - largest).exp());
        *sum = total;
    }
    Some(total)
}

/// A key from the operating system's randomness, by way of the standard library's hash keys.
fn fresh_key() -> [u32; 2] {
    let random = std::hash::RandomState::new().build_hasher().finish();
    [random as u32, (random >> 32) as u32]
}

/// The generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
struct Philox {
    key: [u32; 2],
    counter: u128,
    words: [u32; 4],
    /// Words given out already.
    used: usize,
}

impl Philox {
    fn new(key: [u32; 2]) -> Philox {
        Philox {
            key,
            counter: 0,
            words: [0; 4],
            used: 4,
        }
    }

    /// A number from 0 to below 1, made of 53 bits of two words.
    fn next_unit(&mut self) -> f64 {
        let (low, high) = (self.next_word(), self.next_word());
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }

    fn next_word(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = block(self.key, self.counter);
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

/// The four words for one counter value.
fn block(mut key: [u32; 2], counter: u128) -> [u32; 4] {
    const ROUNDS: u32 = 10;
    let mut words = [0, 32, 64, 96].map(|shift| (counter >> shift) as u32);
    for _ in 0..ROUNDS {
        let [first, second, third, fourth] = words;
        let even = u64::from(first) * 0xd251_1f53;
        let odd = u64::from(third) * 0xcd9e_8d57;
        words = [
            (odd >> 32) as u32 ^ second ^ key[0],
            odd as u32,
            (even >> 32) as u32 ^ fourth ^ key[1],
            even as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    words
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use super::block;
    use crate::kernels::testing::OneOperation;

    fn sample(logits: &[f32], samples: i32, seeds: &[i32]) -> Result<Vec<i32>, String> {
        OneOperation::new(OperationType::RANDOM_MULTINOMIAL)
            .tensor(T::TENSOR_FLOAT32, &[1, logits.len() as u32], logits)
            .i32(samples)
            .tensor(T::TENSOR_INT32, &[seeds.len() as u32], seeds)
            .output(T::TENSOR_INT32, &[0, 0])
            .run_one()
            .map(|(_, data)| data)
    }

    #[test]
    fn generator_gives_the_published_words() {
        assert_eq!(
            block([0, 0], 0),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            block([u32::MAX; 2], u128::MAX),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
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
