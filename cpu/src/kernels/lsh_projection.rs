//! LSH_PROJECTION: a bit vector by locality-sensitive hashing.
//!
//! Each bit is the sign of the weighted sum of the fingerprints of (seed, item) over the items of input 1, as
//! signed 64-bit integers summed in double precision (HAL reference). The seed is hashed as a float32.

use half::f16;
use nnhal_hal::ops::lsh_projection::{Projection, projection};
use nnhal_hal::{OperandType, OperationType};

use super::element::Float;
use super::fingerprint::fingerprint64;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::LSH_PROJECTION, |context| {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_FLOAT16 => project::<f16>(context),
        _ => project::<f32>(context),
    }
})];

const SEED_BYTES: usize = size_of::<f32>();

fn project<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let projection = projection(context.inputs.rules())?;
    let hash = context.inputs.tensor(0)?;
    let input = context.inputs.tensor(1)?;
    let weights = match context.inputs.optional(2) {
        Some(weight) => Some(weight.data::<T>()?),
        None => None,
    };
    let bits = hash.shape.dim(1) as usize;
    let items = input.shape.dim(0) as usize;
    let item_bytes = input.bytes.len().checked_div(items).unwrap_or(0);
    let mut pace = context.pace();
    let [key] = context.scratch.carve::<u8, 1>([SEED_BYTES + item_bytes])?;
    let mut bit = |seed: T| {
        key[..SEED_BYTES].copy_from_slice(&seed.to_f32().to_le_bytes());
        let mut score = 0_f64;
        for item in 0..items {
            pace.work(key.len())?;
            key[SEED_BYTES..].copy_from_slice(&input.bytes[item * item_bytes..][..item_bytes]);
            let value = fingerprint64(key) as i64 as f64;
            let weight = weights.map_or(1.0, |weights| f64::from(weights[item].to_f32()));
            score += weight * value;
        }
        Ok::<_, KernelError>(i32::from(score > 0.0))
    };
    let seeds = hash.data::<T>()?;
    let target = context.outputs.data::<i32>(0)?;
    if projection == Projection::Dense {
        for (slot, seed) in target.iter_mut().zip(seeds) {
            *slot = bit(*seed)?;
        }
        return Ok(());
    }
    for (function, slot) in target.iter_mut().enumerate() {
        let seeds = &seeds[function * bits..(function + 1) * bits];
        let signature = seeds.iter().try_fold(0, |signature: i32, seed| {
            Ok::<_, KernelError>(signature << 1 | bit(*seed)?)
        })?;
        // The shape rule has found that offset and bits fit 32 bits together; without bits there is one
        // function.
        let offset = (function as u64) << bits;
        *slot = match projection {
            Projection::Sparse => signature.wrapping_add(offset as i32),
            _ => signature,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn project(hash: &[u32], items: u32, weights: Option<u32>, kind: i32) -> Result<Vec<i32>, String> {
        let seeds = vec![0.5_f32; hash.iter().product::<u32>() as usize];
        let operation = OneOperation::new(OperationType::LSH_PROJECTION)
            .tensor(T::TENSOR_FLOAT32, hash, &seeds)
            .tensor(T::TENSOR_INT32, &[items], &(0..items as i32).collect::<Vec<_>>());
        match weights {
            Some(count) => operation.tensor(T::TENSOR_FLOAT32, &[count], &vec![1_f32; count as usize]),
            None => operation.omitted(T::TENSOR_FLOAT32),
        }
        .i32(kind)
        .output(T::TENSOR_INT32, &[0])
        .run_one()
        .map(|(_, data)| data)
    }

    #[test]
    fn weights_of_1_give_what_no_weights_give() {
        for kind in 1..=3 {
            let result = project(&[4, 3], 5, None, kind).unwrap();
            assert_eq!(result.len(), if kind == 2 { 12 } else { 4 });
            assert_eq!(project(&[4, 3], 5, Some(5), kind).unwrap(), result);
        }
    }

    #[test]
    fn sparse_signatures_are_told_apart_by_their_offset() {
        let plain = project(&[2, 3], 4, None, 1).unwrap();
        let offset = project(&[2, 3], 4, None, 3).unwrap();
        assert_eq!(offset, [plain[0], plain[1] + 8]);
    }

    #[test]
    fn no_items_give_no_bits() {
        assert_eq!(project(&[1, 3], 0, None, 2).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn codes_weights_and_bit_counts_that_do_not_fit_give_an_error() {
        assert!(project(&[2, 3], 4, None, 0).unwrap_err().contains("(type) is 0"));
        assert!(project(&[2, 3], 4, None, i32::MIN).is_err());
        assert!(project(&[2, 3], 4, Some(3), 2).unwrap_err().contains("(weight)"));
        assert!(project(&[1, 33], 4, None, 1).unwrap_err().contains("at most 32"));
        assert!(project(&[3, 31], 4, None, 3).is_err());
        assert_eq!(project(&[2, 31], 1, None, 3).unwrap().len(), 2);
    }
}
