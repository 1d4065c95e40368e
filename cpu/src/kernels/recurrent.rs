//! What recurrent kernels share: float inputs widened to float32, products of matrices and vectors, and the
//! order in which a sequence is walked.

use half::f16;
use nnhal_hal::OperandType;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::recurrent::SequenceShape;
use nnhal_hal::ops::rnn::Linking;

use super::cell_activation::Functions;
use super::element::Float;
use crate::kernel::{Inputs, KernelError, Outputs, TensorMut};

/// The float tensors among an operation's inputs, as float32. Those of float16 are widened into memory that
/// the caller has carved, once for each execution.
#[derive(Clone, Copy)]
pub(super) struct FloatInputs<'a> {
    inputs: Inputs<'a>,
    widened: &'a [f32],
}

impl<'a> FloatInputs<'a> {
    /// How many elements of memory [`FloatInputs::new`] needs.
    pub(super) fn memory(inputs: &Inputs<'_>) -> usize {
        (0..inputs.len()).map(|index| widened_length(inputs, index)).sum()
    }

    /// Widens what is not float32 into `memory`.
    pub(super) fn new(inputs: Inputs<'a>, memory: &'a mut [f32]) -> Result<FloatInputs<'a>, KernelError> {
        let mut rest = &mut memory[..];
        for index in 0..inputs.len() {
            let length = widened_length(&inputs, index);
            if length == 0 {
                continue;
            }
            let (target, after) = rest
                .split_at_mut_checked(length)
                .ok_or_else(|| OpError::input(index, "does not fit the memory for wide values"))?;
            for (to, from) in target.iter_mut().zip(inputs.data::<f16>(index)?) {
                *to = Float::to_f32(*from);
            }
            rest = after;
        }
        Ok(FloatInputs {
            inputs,
            widened: memory,
        })
    }

    /// The elements of the input, or `None` if it is omitted.
    pub(super) fn optional(&self, index: usize) -> Result<Option<&'a [f32]>, KernelError> {
        let Some(tensor) = self.inputs.optional(index) else {
            return Ok(None);
        };
        if tensor.ty() != OperandType::TENSOR_FLOAT16 {
            return tensor.data().map(Some);
        }
        let start: usize = (0..index)
            .map(|before| widened_length(&self.inputs, before))
            .sum();
        let length = widened_length(&self.inputs, index);
        Ok(self.widened.get(start..start + length))
    }

    /// The elements of the input, which must be there.
    pub(super) fn required(&self, index: usize) -> Result<&'a [f32], KernelError> {
        self.optional(index)?
            .ok_or_else(|| OpError::input(index, "is omitted but this operation needs its value").into())
    }
}

fn widened_length(inputs: &Inputs<'_>, index: usize) -> usize {
    inputs
        .optional(index)
        .filter(|tensor| tensor.ty() == OperandType::TENSOR_FLOAT16)
        .map_or(0, |tensor| tensor.bytes.len() / size_of::<f16>())
}

/// Writes float32 values to an output of float32 or float16.
pub(super) fn store(output: TensorMut<'_>, values: &[f32]) -> Result<(), KernelError> {
    if output.ty() == OperandType::TENSOR_FLOAT16 {
        for (to, from) in output.into_data::<f16>()?.iter_mut().zip(values) {
            *to = f16::from_f32(*from);
        }
    } else {
        for (to, from) in output.into_data::<f32>()?.iter_mut().zip(values) {
            *to = *from;
        }
    }
    Ok(())
}

/// Adds the product of a matrix, with a row for each sum, and a vector.
pub(super) fn add_product(sums: &mut [f32], matrix: &[f32], vector: &[f32]) {
    if vector.is_empty() {
        return;
    }
    for (sum, row) in sums.iter_mut().zip(matrix.chunks_exact(vector.len())) {
        *sum += dot(row, vector);
    }
}

/// The sum of products, in eight partial sums that the compiler can keep in one vector register.
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0_f32; LANES];
    let (left, right) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest: f32 = left
        .remainder()
        .iter()
        .zip(right.remainder())
        .map(|(left, right)| left * right)
        .sum();
    for (left, right) in left.zip(right) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// What computes with the weights of a cell in place of their operands.
pub(crate) trait PreparedCell {
    /// Adds what the gates see of an input, of an auxiliary one and of the last output to the sums of the
    /// gates, which follow each other; a gate that the cell has not is left out.
    fn add_to_gates(&self, input: &[f32], aux: Option<&[f32]>, output: &[f32], sums: &mut [f32]);

    /// Adds the projection of gated values to what it starts from, and clamps it to values of magnitudes up
    /// to `bound`.
    fn add_projection(&self, gated: &[f32], sums: &mut [f32], bound: f32);

    /// The functions to compute the cell with.
    fn functions(&self) -> &'static Functions;
}

/// The cells of an operation that are prepared, of which it has at most two.
pub(crate) type PreparedCells<'a> = [Option<&'a dyn PreparedCell>; 2];

/// The sequence of an operation that is one step, with input 0 as its only item.
pub(super) fn one_step(inputs: &Inputs<'_>) -> Result<SequenceShape, KernelError> {
    let shape = inputs.tensor(0)?.shape;
    Ok(SequenceShape {
        steps: 1,
        batches: shape.dim(0),
        values: shape.dim(1),
        time_major: true,
    })
}

/// Items of a sequence as one cell reads or writes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    pub(super) shape: SequenceShape,
    /// Values that an item holds in memory.
    pub(super) stride: usize,
    /// The first of the cell's values in each item.
    pub(super) offset: usize,
    /// The number of the cell's values.
    pub(super) values: usize,
}

impl Items {
    /// Whole items of `values`.
    pub(super) fn whole(shape: SequenceShape, values: usize) -> Items {
        Items {
            shape,
            stride: values,
            offset: 0,
            values,
        }
    }

    /// What one of two cells writes, which have so many values each: items of its own, or if they are merged,
    /// of both, the first cell's before the other's.
    pub(super) fn of_cell(shape: SequenceShape, values: [usize; 2], merged: bool, cell: usize) -> Items {
        let own = Items::whole(shape, values[cell]);
        if !merged {
            return own;
        }
        Items {
            stride: values[0] + values[1],
            offset: if cell == 1 { values[0] } else { 0 },
            ..own
        }
    }

    /// The cell's values at a step of a batch.
    pub(super) fn range(&self, step: usize, batch: usize) -> std::ops::Range<usize> {
        let (start, apart) = self.shape.rows(step, self.stride);
        let first = start + batch * apart + self.offset;
        first..first + self.values
    }
}

/// A sequence, and all of its values.
pub(super) type Sequence<'a> = (&'a [f32], Items);

/// The sequences that two cells have for input: the first cell's, the other's, and the one that both read
/// beside it. `aux` is the number of the one that `linking` says what becomes of.
pub(super) fn linked_inputs<'a>(
    inputs: &FloatInputs<'a>,
    sequence: SequenceShape,
    (aux, linking): (usize, Linking),
) -> Result<([Sequence<'a>; 2], Option<Sequence<'a>>), KernelError> {
    let whole = |number: usize, shape: SequenceShape| {
        Ok::<_, KernelError>((
            inputs.required(number)?,
            Items::whole(shape, shape.values as usize),
        ))
    };
    let input = whole(0, sequence)?;
    let aux = match linking {
        Linking::None => None,
        Linking::Cross | Linking::Parallel => {
            let shape = SequenceShape::of(inputs.inputs.rules(), aux, sequence.time_major)?;
            Some(whole(aux, shape)?)
        }
    };
    let backward = aux.filter(|_| linking == Linking::Parallel).unwrap_or(input);
    Ok(([input, backward], aux))
}

/// Writes results to the outputs with these numbers, where they are given.
pub(super) fn store_numbered<const N: usize>(
    outputs: &mut Outputs<'_>,
    numbers: [Option<usize>; N],
    results: [&[f32]; N],
) -> Result<(), KernelError> {
    for (number, values) in numbers.into_iter().zip(results) {
        if let Some(number) = number {
            store(outputs.tensor(number)?, values)?;
        }
    }
    Ok(())
}

/// Writes results to the outputs, as many as there are. If they are merged, the first holds what the second
/// would.
pub(super) fn store_given(
    outputs: &mut Outputs<'_>,
    results: &[&[f32]],
    merged: bool,
) -> Result<(), KernelError> {
    let given = results.iter().enumerate().filter(|(at, _)| !(merged && *at == 1));
    for (number, (_, values)) in given.take(outputs.len()).enumerate() {
        store(outputs.tensor(number)?, values)?;
    }
    Ok(())
}

/// The steps of a sequence in the order in which a cell takes them.
pub(super) fn steps(count: u32, backward: bool) -> impl Iterator<Item = usize> {
    let count = count as usize;
    (0..count).map(move |step| if backward { count - 1 - step } else { step })
}

#[cfg(test)]
mod tests {
    use super::{add_product, dot, steps};

    #[test]
    fn products_take_every_element_whatever_the_length() {
        for length in [0, 1, 7, 8, 9, 31] {
            let ones = vec![1_f32; length];
            let count: Vec<f32> = (0..length).map(|index| index as f32).collect();
            assert_eq!(dot(&ones, &count), (0..length).sum::<usize>() as f32);
        }
        let mut sums = [1.0, 2.0];
        add_product(&mut sums, &[1.0, 2.0, 3.0, 4.0], &[1.0, 10.0]);
        assert_eq!(sums, [22.0, 45.0]);
        add_product(&mut sums, &[], &[]);
        assert_eq!(sums, [22.0, 45.0]);
    }

    #[test]
    fn backward_steps_start_at_the_end() {
        assert_eq!(steps(3, true).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(steps(0, true).count(), 0);
    }
}
