//! In which precision the weights are stored of which each product of a matrix with a vector reads all: what
//! such products take is reading them, and half as many bytes take half as long where they come from behind
//! the caches.

use bytemuck::Pod;
use half::f16;
use nnhal_os::buffer::AlignedSlice;

use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::Simd;

/// How weights are stored. They are computed with as 32-bit floats, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// As 32-bit floats.
    Single,
    /// As 16-bit floats: for models that may be computed with the range and precision of these, if all
    /// weights are in that range.
    Half,
}

impl Precision {
    /// Bytes of a weight.
    pub(in crate::fast) fn size(self) -> usize {
        match self {
            Precision::Single => size_of::<f32>(),
            Precision::Half => size_of::<u16>(),
        }
    }
}

/// The precision of an operation's weights.
#[derive(Debug)]
pub(in crate::fast) struct Stored {
    pub(in crate::fast) precision: Precision,
    /// What tells it, which is packed before the weights of a relaxed model.
    flag: Option<AlignedSlice>,
}

impl Stored {
    /// That of weights which `all` gives, of a model that may be computed with half precision if `is_relaxed`
    /// says so (its `relaxComputationFloat32toFloat16`).
    pub(in crate::fast) fn choose<I: Iterator<Item = f32>>(
        is_relaxed: bool,
        packing: &mut Packing,
        all: impl FnOnce() -> I,
    ) -> Result<Stored, PackingError> {
        if !is_relaxed {
            return Ok(Stored {
                precision: Precision::Single,
                flag: None,
            });
        }
        let (are_in_range, flag) = packing.flag(|| all().all(is_in_range))?;
        Ok(Stored {
            precision: if are_in_range {
                Precision::Half
            } else {
                Precision::Single
            },
            flag: Some(flag),
        })
    }

    /// All that was packed, `weights` included.
    pub(in crate::fast) fn packed<'a>(&'a self, weights: &'a AlignedSlice) -> Vec<&'a AlignedSlice> {
        self.flag.iter().chain([weights]).collect()
    }
}

fn is_in_range(weight: f32) -> bool {
    weight.abs() <= f16::MAX.to_f32()
}

/// A weight as it is stored.
pub(in crate::fast) trait Weight: Pod {
    /// The nearest to this one.
    fn nearest(weight: f32) -> Self;

    /// So many of them as floats.
    fn load<V: Simd<N>, const N: usize>(simd: V, from: &[Self; N]) -> V::F32;
}

impl Weight for f32 {
    fn nearest(weight: f32) -> f32 {
        weight
    }

    #[inline(always)]
    fn load<V: Simd<N>, const N: usize>(simd: V, from: &[f32; N]) -> V::F32 {
        simd.load(from)
    }
}

/// The bits of a float of half precision.
impl Weight for u16 {
    fn nearest(weight: f32) -> u16 {
        f16::from_f32(weight).to_bits()
    }

    #[inline(always)]
    fn load<V: Simd<N>, const N: usize>(simd: V, from: &[u16; N]) -> V::F32 {
        simd.load_half(from)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};
    use nnhal_os::buffer::AlignedSlice;

    use super::{Packing, Precision, Stored};
    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    fn chosen(is_relaxed: bool, packing: &mut Packing, weights: &[f32]) -> Stored {
        Stored::choose(is_relaxed, packing, || weights.iter().copied()).unwrap()
    }

    #[test]
    fn half_precision_is_for_relaxed_models_whose_weights_are_in_its_range() {
        let precision =
            |is_relaxed, weights: &[f32]| chosen(is_relaxed, &mut Packing::Now, weights).precision;
        assert_eq!(precision(true, &[1.0, -65504.0, 1e-20, 0.0]), Precision::Half);
        assert_eq!(precision(false, &[1.0]), Precision::Single);
        for beyond in [65520.0, -1e9, f32::INFINITY, f32::NAN] {
            assert_eq!(precision(true, &[1.0, beyond]), Precision::Single, "{beyond}");
        }
    }

    #[test]
    fn what_was_chosen_is_known_without_the_weights() {
        for weights in [[1.0, 2.0], [1.0, 1e6]] {
            let first = chosen(true, &mut Packing::Now, &weights);
            let none = AlignedSlice::default();
            let kept = first.packed(&none)[0].clone();
            let again = chosen(true, &mut Packing::Kept(kept), &[]);
            assert_eq!(again.precision, first.precision);
        }
    }

    const VALUES: u32 = 70;
    const UNITS: u32 = 37;

    /// Values that half precision does not hold, but for the last one of weights.
    fn bf16x3(count: u32) -> Vec<f32> {
        (0..count)
            .map(|at| ((at * 29) % 61) as f32 / 183.0 - 0.15)
            .collect()
    }

    fn matrix(operation: OneOperation, dims: &[u32], last: Option<f32>) -> OneOperation {
        let mut values = bf16x3(dims.iter().product());
        if let (Some(value), Some(last)) = (last, values.last_mut()) {
            *last = value;
        }
        operation.tensor(T::TENSOR_FLOAT32, dims, &values)
    }

    fn layer(last: Option<f32>) -> OneOperation {
        let operation = matrix(
            OneOperation::new(OperationType::FULLY_CONNECTED),
            &[1, VALUES],
            None,
        );
        let operation = matrix(operation, &[UNITS, VALUES], last);
        let operation = matrix(operation, &[UNITS], None).i32(0);
        operation.output(T::TENSOR_FLOAT32, &[1, UNITS])
    }

    fn cell(last: Option<f32>) -> OneOperation {
        let operation = matrix(OneOperation::new(OperationType::RNN), &[2, VALUES], None);
        let operation = matrix(operation, &[UNITS, VALUES], last);
        let operation = matrix(operation, &[UNITS, UNITS], None);
        let operation = matrix(matrix(operation, &[UNITS], None), &[2, UNITS], None).i32(1);
        let state = operation.output(T::TENSOR_FLOAT32, &[2, UNITS]);
        state.output(T::TENSOR_FLOAT32, &[2, UNITS])
    }

    /// The largest difference from the reference, relative to the largest result, and what computed it.
    fn error(operation: impl Fn() -> OneOperation) -> (f32, &'static str) {
        let results = |kernels| {
            let outputs = operation()
                .with_constants()
                .run_by(kernels, &RunOptions::default());
            outputs.unwrap()[0].data::<f32>()
        };
        let (found, exact) = (results(KernelSet::Fast), results(KernelSet::Reference));
        let largest = exact.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let differences = found
            .iter()
            .zip(&exact)
            .map(|(found, exact)| (found - exact).abs());
        (
            differences.fold(0.0, f32::max) / largest,
            operation().with_constants().kernel_name(),
        )
    }

    #[test]
    fn weights_of_relaxed_models_only_are_rounded_to_half_precision() {
        for make in [layer, cell] {
            let (strict, name) = error(|| make(None));
            assert!(strict < 1e-6 && !name.contains("f16"), "{name}: {strict}");
            let (relaxed, name) = error(|| make(None).relaxed());
            assert!(
                (1e-6..1e-3).contains(&relaxed) && name.contains("f16"),
                "{name}: {relaxed}"
            );
            let (beyond, name) = error(|| make(Some(70_000.0)).relaxed());
            assert!(beyond < 1e-6 && !name.contains("f16"), "{name}: {beyond}");
        }
    }
}
