//! Rows of a table: EMBEDDING_LOOKUP by index, HASHTABLE_LOOKUP by key.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::blocks::by_element_size;
use crate::kernel::{Kernel, KernelContext, KernelError, Tensor};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::EMBEDDING_LOOKUP, embedding_lookup),
    (tflite::EMBEDDING_LOOKUP, embedding_lookup),
    (OperationType::HASHTABLE_LOOKUP, hashtable_lookup),
];

fn embedding_lookup(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(1)?.ty();
    by_element_size!(ty, rows_by_index(context))
}

fn rows_by_index<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lookups = context.inputs.data::<i32>(0)?;
    let table = Table::<T>::new(&context.inputs.tensor(1)?)?;
    let target = context.outputs.data::<T>(0)?;
    for (number, &index) in lookups.iter().enumerate() {
        let row = usize::try_from(index)
            .ok()
            .and_then(|index| table.row(index))
            .ok_or_else(|| {
                let message = format!(
                    "(lookups) holds {index}, must be from 0 to below {}, the rows of input 1",
                    table.rows
                );
                OpError::input(0, message)
            })?;
        target[number * row.len()..][..row.len()].copy_from_slice(row);
    }
    Ok(())
}

fn hashtable_lookup(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(2)?.ty();
    by_element_size!(ty, rows_by_key(context))
}

/// A key that is not there gives a row of zeros and no hit.
fn rows_by_key<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (lookups, keys) = (context.inputs.data::<i32>(0)?, context.inputs.data::<i32>(1)?);
    if let Some(at) = (1..keys.len()).find(|at| keys[at - 1] > keys[*at]) {
        let message = format!(
            "(keys) has {} before {} at element {at}, must be in ascending order",
            keys[at - 1],
            keys[at]
        );
        return Err(OpError::input(1, message).into());
    }
    let table = Table::<T>::new(&context.inputs.tensor(2)?)?;
    let [target, hits] = context.outputs.tensors([0, 1])?;
    let (target, hits) = (target.into_data::<T>()?, hits.into_data::<u8>()?);
    for (number, (key, hit)) in lookups.iter().zip(hits).enumerate() {
        let found = keys.binary_search(key).ok().and_then(|at| table.row(at));
        let slot = &mut target[number * table.row_len..][..table.row_len];
        match found {
            Some(row) => slot.copy_from_slice(row),
            None => slot.fill(T::zeroed()),
        }
        *hit = u8::from(found.is_some());
    }
    Ok(())
}

struct Table<'a, T> {
    data: &'a [T],
    rows: usize,
    row_len: usize,
}

impl<'a, T: bytemuck::Pod> Table<'a, T> {
    fn new(values: &Tensor<'a>) -> Result<Table<'a, T>, KernelError> {
        let data = values.data()?;
        Ok(Table {
            data,
            rows: values.shape.dim(0) as usize,
            row_len: values
                .dims()
                .iter()
                .skip(1)
                .fold(1, |product, dim| product.saturating_mul(*dim as usize)),
        })
    }

    fn row(&self, index: usize) -> Option<&'a [T]> {
        if index >= self.rows {
            return None;
        }
        self.data.get(index * self.row_len..(index + 1) * self.row_len)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn embeddings(lookups: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(OperationType::EMBEDDING_LOOKUP)
            .tensor(T::TENSOR_INT32, &[lookups.len() as u32], lookups)
            .tensor(T::TENSOR_FLOAT32, &[3, 2], &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn embeddings_come_in_the_order_of_the_lookups() {
        assert_eq!(
            embeddings(&[2, 0, 2]).unwrap(),
            (vec![3, 2], vec![5.0, 6.0, 1.0, 2.0, 5.0, 6.0])
        );
        assert_eq!(embeddings(&[]).unwrap().0, [0, 2]);
    }

    #[test]
    fn indices_outside_the_table_give_an_error() {
        for index in [3, -1, i32::MIN, i32::MAX] {
            let error = embeddings(&[0, index]).unwrap_err();
            assert!(error.contains(&format!("(lookups) holds {index}")), "{error}");
        }
    }

    fn hashtable(keys: &[i32]) -> Result<(Vec<i32>, Vec<u8>), String> {
        let outputs = OneOperation::new(OperationType::HASHTABLE_LOOKUP)
            .tensor(T::TENSOR_INT32, &[3], &[5, 6, -7])
            .tensor(T::TENSOR_INT32, &[keys.len() as u32], keys)
            .tensor(T::TENSOR_INT32, &[2, 1], &[10, 20])
            .output(T::TENSOR_INT32, &[0, 0])
            .output_operand(Operand::new(T::TENSOR_QUANT8_ASYMM, &[0]).with_quantization(1.0, 0))
            .run()?;
        Ok((outputs[0].data(), outputs[1].data()))
    }

    #[test]
    fn keys_that_are_missing_give_zeros_and_no_hit() {
        assert_eq!(hashtable(&[-7, 5]).unwrap(), (vec![20, 0, 10], vec![1, 0, 1]));
    }

    #[test]
    fn keys_out_of_order_give_an_error() {
        let error = hashtable(&[6, -7]).unwrap_err();
        assert!(error.contains("input 1: (keys) has 6 before -7"), "{error}");
        assert!(error.contains("ascending order"), "{error}");
        assert!(hashtable(&[6, 6]).is_ok());
    }

    #[test]
    fn key_counts_other_than_the_rows_give_an_error() {
        assert!(hashtable(&[5]).unwrap_err().contains("2 rows for 1 keys"));
    }
}
