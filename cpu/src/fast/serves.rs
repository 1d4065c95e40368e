//! In which executions a step computes its operation itself, rather than to leave it to the reference kernel.

use nnhal_hal::ops::ShapeIssue;

/// The executions that a step computes itself, as far as the model says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    All,
    /// Those in which a layout, an axis or an extent is one that it takes, which is known only then.
    Those,
    Never,
}

impl Serves {
    /// Where it depends on this condition.
    pub(super) fn if_so(condition: Result<bool, ShapeIssue>) -> Serves {
        match condition {
            Ok(true) => Serves::All,
            Ok(false) => Serves::Never,
            Err(_) => Serves::Those,
        }
    }

    /// The name of what computes the operation: `always` if it does in all executions, `sometimes` if in
    /// some.
    pub(super) fn name(self, always: &'static str, sometimes: &'static str) -> &'static str {
        match self {
            Serves::All => always,
            Serves::Those => sometimes,
            Serves::Never => super::REFERENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::fast::REFERENCE;
    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// How an argument is given.
    #[derive(Clone, Copy, Debug)]
    enum Given {
        Constant,
        WithRequest,
    }

    fn operand(ty: T, dims: &[u32]) -> Operand {
        match ty {
            T::TENSOR_FLOAT32 => Operand::new(ty, dims),
            _ => Operand::new(ty, dims).with_quantization(0.5, 3),
        }
    }

    fn image(one: OneOperation, ty: T, dims: &[u32]) -> OneOperation {
        let count = dims.iter().product::<u32>();
        if ty == T::TENSOR_FLOAT32 {
            let values: Vec<f32> = (0..count).map(|at| (at * 37 % 101) as f32 * 0.25 - 9.0).collect();
            return one.operand(operand(ty, dims), &values);
        }
        let values: Vec<u8> = (0..count).map(|at| (at * 151 + 7) as u8).collect();
        one.operand(operand(ty, dims), &values)
    }

    /// Adds the argument that decides: a layout or an axis.
    fn deciding(
        one: OneOperation,
        given: Given,
        add: impl FnOnce(OneOperation) -> OneOperation,
    ) -> OneOperation {
        match given {
            Given::Constant => add(one).with_constants(),
            Given::WithRequest => add(one.with_constants()),
        }
    }

    fn layout(one: OneOperation, (given, nchw): (Given, bool)) -> OneOperation {
        deciding(one, given, |one| one.tensor(T::BOOL, &[], &[u8::from(nchw)]))
    }

    /// The name, after a check that the results are close to those of the reference: what is left to it must
    /// be.
    fn name(make: impl Fn() -> OneOperation) -> &'static str {
        let by = |kernels| make().run_by(kernels, &RunOptions::default()).unwrap().remove(0);
        let (found, exact) = (by(KernelSet::Fast), by(KernelSet::Reference));
        assert_eq!(found.dims, exact.dims);
        let name = make().kernel_name();
        if name == REFERENCE {
            assert!(
                found.bytes == exact.bytes,
                "the reference kernel gives its own bits"
            );
        } else if name.starts_with("f32") {
            let both = found.data::<f32>().into_iter().zip(exact.data::<f32>());
            both.for_each(|(found, exact)| assert!((found - exact).abs() < 1e-3, "{found} {exact}"));
        } else {
            assert!(found.bytes == exact.bytes, "8-bit results are the same bits");
        }
        name
    }

    const BOTH: [(Given, bool); 2] = [(Given::Constant, false), (Given::Constant, true)];
    const WITH_REQUEST: [(Given, bool); 2] = [(Given::WithRequest, false), (Given::WithRequest, true)];

    #[test]
    fn poolings_and_resizings_are_named_by_their_layout() {
        let pooling = |ty, how| {
            let one = image(OneOperation::new(OperationType::MAX_POOL_2D), ty, &[1, 6, 6, 6]);
            let one = [0, 0, 0, 0, 2, 2, 2, 2, 0]
                .into_iter()
                .fold(one, OneOperation::i32);
            layout(one, how).output_operand(operand(ty, &[0, 0, 0, 0]))
        };
        let resizing = |ty, how| {
            let one = image(
                OneOperation::new(OperationType::RESIZE_BILINEAR),
                ty,
                &[1, 6, 6, 6],
            );
            layout(one.i32(12).i32(9), how).output_operand(operand(ty, &[0, 0, 0, 0]))
        };
        for (ty, names, sometimes) in [
            (
                T::TENSOR_FLOAT32,
                ["f32 pooling", "f32 resizing"],
                [
                    "f32 pooling, reference if NCHW",
                    "f32 resizing, reference if NCHW or much smaller",
                ],
            ),
            (
                T::TENSOR_QUANT8_ASYMM,
                ["8-bit pooling", "8-bit resizing"],
                [
                    "8-bit pooling, reference if NCHW",
                    "8-bit resizing, reference if NCHW or much smaller",
                ],
            ),
        ] {
            assert_eq!(BOTH.map(|how| name(|| pooling(ty, how))), [names[0], REFERENCE]);
            assert_eq!(BOTH.map(|how| name(|| resizing(ty, how))), [names[1], REFERENCE]);
            assert_eq!(
                WITH_REQUEST.map(|how| name(|| pooling(ty, how))),
                [sometimes[0]; 2]
            );
            assert_eq!(
                WITH_REQUEST.map(|how| name(|| resizing(ty, how))),
                [sometimes[1]; 2]
            );
        }
        let signed = T::TENSOR_QUANT8_ASYMM_SIGNED;
        assert_eq!(
            BOTH.map(|how| name(|| resizing(signed, how))),
            ["8-bit resizing", REFERENCE]
        );
        let much_smaller = || {
            let one = OneOperation::new(OperationType::RESIZE_BILINEAR);
            let one = image(one, T::TENSOR_FLOAT32, &[1, 2, 90, 1]).i32(2).i32(2);
            one.with_constants().output(T::TENSOR_FLOAT32, &[0, 0, 0, 0])
        };
        assert_eq!(name(much_smaller), REFERENCE);
    }

    #[test]
    fn operations_along_an_axis_are_named_by_it() {
        let softmax = |ty, given, axis| {
            let one = image(OneOperation::new(OperationType::SOFTMAX), ty, &[4, 5, 6]);
            let one = deciding(one.f32(0.5), given, |one| one.i32(axis));
            one.output_operand(match ty {
                T::TENSOR_FLOAT32 => Operand::new(ty, &[4, 5, 6]),
                _ => Operand::new(ty, &[4, 5, 6]).with_quantization(1.0 / 256.0, 0),
            })
        };
        let places = |extents: [u32; 2], given, axis| {
            let one = image(
                OneOperation::new(OperationType::ARGMAX),
                T::TENSOR_QUANT8_ASYMM,
                &extents,
            );
            deciding(one, given, |one| one.i32(axis)).output(T::TENSOR_INT32, &[])
        };
        for (ty, always, sometimes) in [
            (
                T::TENSOR_FLOAT32,
                "f32 softmax",
                "f32 softmax, reference on other axes",
            ),
            (
                T::TENSOR_QUANT8_ASYMM,
                "8-bit softmax",
                "8-bit softmax, reference on other axes",
            ),
        ] {
            let shares = |axis| name(|| softmax(ty, Given::Constant, axis));
            assert_eq!([-1, 2, 1, -2].map(shares), [always, always, REFERENCE, REFERENCE]);
            let shares = |axis| name(|| softmax(ty, Given::WithRequest, axis));
            assert_eq!([2, 0].map(shares), [sometimes; 2]);
        }

        let found = |axis| name(|| places([4, 9], Given::Constant, axis));
        assert_eq!(
            [-1, 1, 0].map(found),
            ["8-bit places of extremes", "8-bit places of extremes", REFERENCE]
        );
        assert_eq!(name(|| places([2, 300], Given::Constant, 1)), REFERENCE);
        let sometimes = "8-bit places of extremes, reference on other axes";
        assert_eq!(
            [1, 0].map(|axis| name(|| places([4, 9], Given::WithRequest, axis))),
            [sometimes; 2]
        );
    }

    #[test]
    fn halves_are_dequantized_by_the_reference() {
        let of = |ty| {
            let one = image(
                OneOperation::new(OperationType::DEQUANTIZE),
                T::TENSOR_QUANT8_ASYMM,
                &[4],
            );
            one.output(ty, &[4]).kernel_name()
        };
        assert_eq!(of(T::TENSOR_FLOAT32), "quantization");
        assert_eq!(of(T::TENSOR_FLOAT16), REFERENCE);
    }

    /// A depthwise or plain convolution of 3 by 3 taps over an image of 4 channels.
    fn convolution(ty: T, multiplier: Option<u32>, how: (Given, bool)) -> OneOperation {
        let operation = match multiplier {
            Some(_) => OperationType::DEPTHWISE_CONV_2D,
            None => OperationType::CONV_2D,
        };
        // As many rows and columns as channels, so that either layout has them.
        let one = image(OneOperation::new(operation), ty, &[1, 4, 4, 4]);
        let columns = 4 * multiplier.unwrap_or(1);
        let one = match multiplier {
            Some(_) => image(one, ty, &[1, 3, 3, columns]),
            None => image(one, ty, &[columns, 3, 3, 4]),
        };
        let one = if ty == T::TENSOR_FLOAT32 {
            one.tensor(ty, &[columns], &vec![0.5_f32; columns as usize])
        } else {
            let bias = Operand::new(T::TENSOR_INT32, &[columns]).with_quantization(0.25, 0);
            one.operand(bias, &vec![7_i32; columns as usize])
        };
        let one = [1, 1, 1, 1, 1, 1].into_iter().fold(one, OneOperation::i32);
        let one = multiplier
            .into_iter()
            .fold(one, |one, multiplier| one.i32(multiplier as i32));
        let output = match ty {
            T::TENSOR_FLOAT32 => Operand::new(ty, &[0, 0, 0, 0]),
            _ => Operand::new(ty, &[0, 0, 0, 0]).with_quantization(80.0, 100),
        };
        layout(one.i32(0), how).output_operand(output)
    }

    #[test]
    fn convolutions_are_named_by_layout_and_multiplier() {
        for (ty, depthwise, sometimes) in [
            (T::TENSOR_FLOAT32, "f32 depthwise", "f32 depthwise, or reference"),
            (
                T::TENSOR_QUANT8_ASYMM,
                "8-bit depthwise",
                "8-bit depthwise, or reference",
            ),
        ] {
            let name = |multiplier, how| name(|| convolution(ty, multiplier, how));
            assert_eq!(BOTH.map(|how| name(Some(1), how)), [depthwise, REFERENCE]);
            assert_eq!(BOTH.map(|how| name(Some(2), how)), [REFERENCE; 2]);
            assert_eq!(WITH_REQUEST.map(|how| name(Some(1), how)), [sometimes; 2]);
            let [plain, of_nchw] = BOTH.map(|how| name(None, how));
            assert!(plain.contains("matrix product"), "{plain}");
            assert_eq!(of_nchw, REFERENCE);
            for name in WITH_REQUEST.map(|how| name(None, how)) {
                assert!(
                    name.contains("matrix product") && name.ends_with(", reference if NCHW"),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn layers_that_are_left_to_the_reference_pack_nothing() {
        for ty in [T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM] {
            let packed = |multiplier, how| convolution(ty, multiplier, how).is_packed();
            assert_eq!(BOTH.map(|how| packed(Some(1), how)), [true, false]);
            assert_eq!(BOTH.map(|how| packed(None, how)), [true, false]);
            assert_eq!(BOTH.map(|how| packed(Some(2), how)), [false, false]);
            assert_eq!(WITH_REQUEST.map(|how| packed(Some(1), how)), [true, true]);
        }
    }
}
