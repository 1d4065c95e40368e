//! RNG_BIT_GENERATOR: random bits by a key and a counter, both of which the state has.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::random::{Algorithm, algorithm};
use nnhal_hal::{OperationType, tflite};

use super::{philox, threefry};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::RNG_BIT_GENERATOR, generate)];

fn generate(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let algorithm = algorithm(context.inputs.rules())?;
    let state = context.inputs.data::<i32>(0)?;
    let &[first, second, low, high, ref more @ ..] = state else {
        let message = format!("(state) has {} words, must have at least 4", state.len());
        return Err(OpError::input(0, message).into());
    };
    let joined = |low: i32, high: i32| u64::from(high as u32) << 32 | u64::from(low as u32);
    let key = [first as u32, second as u32];
    let counter = joined(low, high);
    let upper = match *more {
        [low, high] => joined(low, high),
        _ => joined(first, second),
    };
    let mut pace = context.pace();
    let bits = context.outputs.data::<i32>(1)?;
    let next = match algorithm {
        Algorithm::Threefry => fill(bits, counter, &mut pace, |counter| threefry::block(key, counter)),
        Algorithm::Philox => fill(bits, counter, &mut pace, |counter| {
            philox::block(key, u128::from(upper) << 64 | u128::from(counter))
        }),
    }?;
    let after = [first, second, next as i32, (next >> 32) as i32];
    let words = after.iter().chain(more);
    for (to, word) in context.outputs.data::<i32>(0)?.iter_mut().zip(words) {
        *to = *word;
    }
    Ok(())
}

/// Fills in the words of one counter after the other, and gives the counter behind the last one.
fn fill<const N: usize>(
    bits: &mut [i32],
    mut counter: u64,
    pace: &mut Pace<'_>,
    block: impl Fn(u64) -> [u32; N],
) -> Result<u64, KernelError> {
    for words in bits.chunks_mut(N) {
        pace.work(4 * N)?;
        for (to, word) in words.iter_mut().zip(block(counter)) {
            *to = word as i32;
        }
        counter = counter.wrapping_add(1);
    }
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};
    use crate::kernels::{philox, threefry};

    fn operation(state: &[i32], shape: &[i32], algorithm: i32) -> OneOperation {
        OneOperation::new(tflite::RNG_BIT_GENERATOR)
            .tensor(T::TENSOR_INT32, &[state.len() as u32 / 2, 2], state)
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .i32(algorithm)
            .output(T::TENSOR_INT32, &[])
            .output(T::TENSOR_INT32, &[])
    }

    /// The state after the bits, and the bits.
    fn bits(state: &[i32], shape: &[i32], algorithm: i32) -> Result<[Vec<i32>; 2], String> {
        let outputs = operation(state, shape, algorithm).run()?;
        assert_eq!(outputs[0].dims, [state.len() as u32 / 2, 2]);
        Ok([outputs[0].data(), outputs[1].data()])
    }

    fn signed(words: &[u32]) -> Vec<i32> {
        words.iter().map(|word| *word as i32).collect()
    }

    #[test]
    fn philox_counts_in_the_lower_half_and_keeps_the_upper_one() {
        let all = u128::from(u64::MAX);
        for algorithm in [0, 1] {
            // The last counter of the lower half, then the first one; what remains of its words is lost.
            let [after, found] = bits(&[5, -6, -1, -1, 7, 8], &[2, 3], algorithm).unwrap();
            let upper = 0x8_0000_0007 << 64;
            let last = philox::block([5, -6_i32 as u32], upper | all);
            let first = philox::block([5, -6_i32 as u32], upper);
            assert_eq!(found, signed(&[&last[..], &first[..2]].concat()));
            assert_eq!(after, [5, -6, 1, 0, 7, 8]);
        }
    }

    #[test]
    fn philox_of_a_state_of_two_takes_its_key_for_the_upper_half() {
        let [after, found] = bits(&[3, 4, -1, 9], &[4], 1).unwrap();
        let counter = 0x4_0000_0003 << 64 | 0x9_ffff_ffff;
        assert_eq!(found, signed(&philox::block([3, 4], counter)));
        assert_eq!(after, [3, 4, 0, 10]);
    }

    #[test]
    fn threefry_gives_two_words_for_each_counter() {
        let [after, found] = bits(&[3, 4, -1, 0], &[1, 3], 2).unwrap();
        let [last, next] = [0xffff_ffff, 0x1_0000_0000].map(|counter| threefry::block([3, 4], counter));
        assert_eq!(found, signed(&[last[0], last[1], next[0]]));
        assert_eq!(after, [3, 4, 1, 1]);
    }

    #[test]
    fn no_bits_leave_the_state_as_it_is() {
        let [after, found] = bits(&[1, 2, 3, 4], &[0, i32::MAX], 0).unwrap();
        assert_eq!((&after[..], &found[..]), (&[1, 2, 3, 4][..], &[][..]));
    }

    #[test]
    fn states_shapes_and_algorithms_that_do_not_fit_give_an_error() {
        assert!(bits(&[0; 6], &[1], 2).unwrap_err().contains("(state)"));
        assert!(bits(&[0; 8], &[1], 1).unwrap_err().contains("[2, 2] or [3, 2]"));
        assert!(bits(&[0; 2], &[1], 0).unwrap_err().contains("(state)"));
        assert!(bits(&[0; 4], &[-1], 0).unwrap_err().contains("(shape)"));
        assert!(bits(&[0; 4], &[i32::MAX, i32::MAX], 0).is_err());
        assert!(bits(&[0; 4], &[1], 3).unwrap_err().contains("(algorithm) is 3"));
        assert!(bits(&[0; 4], &[1], -1).unwrap_err().contains("(algorithm) is -1"));
    }

    #[test]
    fn many_bits_end_by_the_deadline() {
        for algorithm in [1, 2] {
            ends_by_the_deadline(operation(&[0; 4], &[1 << 17], algorithm));
        }
    }
}
