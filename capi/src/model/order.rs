//! The order in which a model's operations run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nnhal_hal::Operation;

/// The order in which operations run, by their indexes: each comes after those whose results it reads, and
/// otherwise as they were added.
///
/// # Errors
/// Operations that read each other's results in a circle; an operand that is written twice.
pub(super) fn run_order(operations: &[Operation], operands: usize) -> Result<Vec<usize>, String> {
    let writers = writers(operations, operands)?;
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    let mut missing = vec![0_usize; operations.len()];
    for (reader, operation) in operations.iter().enumerate() {
        for writer in operation
            .inputs
            .iter()
            .filter_map(|input| writers[*input as usize])
        {
            readers[writer].push(reader);
            missing[reader] += 1;
        }
    }
    let ready = missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.map(|(index, _)| Reverse(index)).collect();
    let mut order = Vec::with_capacity(operations.len());
    while let Some(Reverse(next)) = ready.pop() {
        order.push(next);
        for &reader in &readers[next] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if let Some(stuck) = missing.iter().position(|missing| *missing > 0) {
        return Err(format!(
            "operation {stuck} ({}) needs its own result, directly or by others",
            operations[stuck].operation_type
        ));
    }
    Ok(order)
}

/// The operation that writes each operand.
fn writers(operations: &[Operation], operands: usize) -> Result<Vec<Option<usize>>, String> {
    let mut writers: Vec<Option<usize>> = vec![None; operands];
    for (index, operation) in operations.iter().enumerate() {
        for &output in &operation.outputs {
            if let Some(first) = writers[output as usize].replace(index) {
                return Err(format!(
                    "operand {output} is written by operation {first} and by operation {index}"
                ));
            }
        }
    }
    Ok(writers)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::OperationType;

    use super::*;

    fn relu(input: u32, output: u32) -> Operation {
        Operation {
            operation_type: OperationType::RELU,
            inputs: vec![input],
            outputs: vec![output],
        }
    }

    #[test]
    fn operations_follow_those_they_read_from_and_else_keep_their_order() {
        let order = run_order(&[relu(2, 3), relu(0, 4), relu(1, 2), relu(0, 1)], 5);
        assert_eq!(order, Ok(vec![1, 3, 2, 0]));
    }

    #[test]
    fn circles_and_second_writers_are_refused() {
        assert!(run_order(&[relu(0, 1), relu(1, 0)], 2).is_err());
        assert!(run_order(&[relu(0, 0)], 1).is_err());
        assert!(run_order(&[relu(0, 1), relu(0, 1)], 2).is_err());
    }
}
