//! How many products operations sum.

use nnhal_hal::{Operand, OperandLifeTime, Operation, OperationType, Shape, Subgraph};

/// The products that an operation sums, for those that are made of them; none if the model does not know the
/// dimensions.
pub(super) fn products(graph: &Subgraph, operation: &Operation) -> Option<u64> {
    if let Some(weights) = cell_weights(operation.operation_type) {
        return products_of_cells(graph, operation, weights);
    }
    let output = elements(operand(graph, operation.outputs.first())?)?;
    let filter = operand(graph, operation.inputs.get(1))?;
    let for_each = |axis: usize| {
        let others = filter.dimensions.iter().enumerate();
        let product = others
            .filter(|(at, _)| *at != axis)
            .map(|(_, extent)| u64::from(*extent))
            .product::<u64>();
        Some(output * product)
    };
    match operation.operation_type {
        OperationType::CONV_2D | OperationType::GROUPED_CONV_2D | OperationType::FULLY_CONNECTED => {
            for_each(0)
        }
        OperationType::DEPTHWISE_CONV_2D => for_each(3),
        // Each element of the input is multiplied with the whole filter of each output channel.
        OperationType::TRANSPOSE_CONV_2D => {
            let input = elements(operand(graph, operation.inputs.first())?)?;
            let channels = u64::from(*filter.dimensions.get(3)?).max(1);
            Some(input * (elements(filter)? / channels))
        }
        _ => None,
    }
}

/// The inputs of an operation with cells, such as an LSTM, each of whose elements is multiplied once for
/// every row of the input: matrices, those of a projection, and the vectors that look at the cell. From the
/// first on, to before the second.
fn cell_weights(operation: OperationType) -> Option<&'static [[usize; 2]]> {
    Some(match operation {
        OperationType::LSTM | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM | OperationType::QUANTIZED_LSTM => {
            &[[1, 12], [16, 17]]
        }
        OperationType::BIDIRECTIONAL_SEQUENCE_LSTM => &[[1, 12], [16, 17], [18, 29], [33, 34], [40, 48]],
        OperationType::QUANTIZED_16BIT_LSTM => &[[1, 9]],
        OperationType::RNN | OperationType::UNIDIRECTIONAL_SEQUENCE_RNN | OperationType::SVDF => &[[1, 3]],
        OperationType::BIDIRECTIONAL_SEQUENCE_RNN => &[[1, 3], [5, 7], [10, 12]],
        _ => return None,
    })
}

/// The products of cells that take a row of the input, one of a batch and of a sequence, at a time.
fn products_of_cells(graph: &Subgraph, operation: &Operation, weights: &[[usize; 2]]) -> Option<u64> {
    let input = operand(graph, operation.inputs.first())?;
    let rows = elements(input)?.checked_div(u64::from(*input.dimensions.last()?))?;
    let weights = weights
        .iter()
        .filter_map(|[first, end]| operation.inputs.get(*first..*end));
    let counts = weights.flatten().map(|at| {
        let weights = operand(graph, Some(at))?;
        match weights.lifetime {
            OperandLifeTime::NoValue => Some(0),
            _ => elements(weights),
        }
    });
    Some(rows.saturating_mul(counts.sum::<Option<u64>>()?))
}

fn operand<'a>(graph: &'a Subgraph, at: Option<&u32>) -> Option<&'a Operand> {
    graph.operands.get(*at? as usize)
}

/// How many elements an operand has, if the model says so.
fn elements(operand: &Operand) -> Option<u64> {
    let shape = Shape::new(&operand.dimensions).ok()?;
    let is_known = operand.operand_type.is_scalar() || (shape.rank() > 0 && shape.is_fully_specified());
    is_known
        .then(|| shape.elements().ok())
        .flatten()
        .map(|count| count as u64)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::OperandType;

    use super::*;

    fn graph(operation: OperationType, inputs: &[&[u32]], output: &[u32]) -> Subgraph {
        let operand = |dims: &[u32]| match dims {
            [] => Operand::new(OperandType::TENSOR_FLOAT32, &[0]).with_lifetime(OperandLifeTime::NoValue),
            dims => Operand::new(OperandType::TENSOR_FLOAT32, dims),
        };
        let count = inputs.len() as u32;
        Subgraph {
            operands: inputs.iter().chain([&output]).map(|dims| operand(dims)).collect(),
            operations: vec![Operation {
                operation_type: operation,
                inputs: (0..count).collect(),
                outputs: vec![count],
            }],
            ..Subgraph::default()
        }
    }

    fn of(operation: OperationType, inputs: &[&[u32]], output: &[u32]) -> Option<u64> {
        let graph = graph(operation, inputs, output);
        products(&graph, &graph.operations[0])
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for (operation, dims, count) in [
            (
                OperationType::CONV_2D,
                [&[1, 5, 5, 3][..], &[8, 3, 3, 3], &[1, 5, 5, 8]],
                5 * 5 * 8 * 27,
            ),
            (
                OperationType::DEPTHWISE_CONV_2D,
                [&[1, 5, 5, 8], &[1, 3, 3, 8], &[1, 5, 5, 8]],
                5 * 5 * 8 * 9,
            ),
            (
                OperationType::FULLY_CONNECTED,
                [&[2, 16], &[10, 16], &[2, 10]],
                2 * 10 * 16,
            ),
            (
                OperationType::TRANSPOSE_CONV_2D,
                [&[1, 2, 2, 3], &[4, 5, 5, 3], &[1, 8, 8, 4]],
                2 * 2 * 3 * 4 * 25,
            ),
        ] {
            let [input, filter, output] = dims;
            assert_eq!(
                of(operation, &[input, filter], output),
                Some(count),
                "{operation}"
            );
        }
        assert_eq!(of(OperationType::ADD, &[&[4], &[4]], &[4]), None);
    }

    /// The inputs of a cell of 5 values and 6 units whose output has 4, but for those that are left out.
    fn cell(left_out: &[usize]) -> Vec<&'static [u32]> {
        let mut cell: Vec<&[u32]> = [[&[6, 5][..]; 4], [&[6, 4][..]; 4]].concat();
        cell.extend([&[6][..]; 7]);
        cell.extend([&[4, 6][..], &[4]]);
        left_out.iter().for_each(|at| cell[*at] = &[]);
        cell
    }

    #[test]
    fn cells_multiply_their_weights_with_each_row() {
        let states: [&[u32]; 2] = [&[2, 4], &[2, 6]];
        let whole = 4 * 6 * 5 + 4 * 6 * 4 + 3 * 6 + 4 * 6;
        let step = [&[&[2, 5][..]][..], &cell(&[]), &states].concat();
        assert_eq!(of(OperationType::LSTM, &step, &[2, 24]), Some(2 * whole));
        // No input gate, nothing that looks at the cell, no projection.
        let plain = cell(&[0, 4, 8, 9, 10, 15, 16]);
        let sequence = [&[&[7, 2, 5][..]][..], &plain, &states].concat();
        let products = of(OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM, &sequence, &[7, 2, 4]);
        assert_eq!(products, Some(14 * (3 * 6 * 5 + 3 * 6 * 4)));

        let aux: Vec<&[u32]> = [&[&[7, 2, 3][..]][..], &[&[6, 3][..]; 8]].concat();
        let both = [&[&[7, 2, 5][..]][..], &cell(&[]), &plain, &states, &states, &aux].concat();
        let products = of(OperationType::BIDIRECTIONAL_SEQUENCE_LSTM, &both, &[7, 2, 4]);
        assert_eq!(products, Some(14 * (whole + 3 * 6 * 5 + 3 * 6 * 4 + 8 * 6 * 3)));
    }

    #[test]
    fn small_cells_multiply_theirs_likewise() {
        let rnn: [&[u32]; 5] = [&[2, 5], &[6, 5], &[6, 6], &[6], &[2, 6]];
        assert_eq!(of(OperationType::RNN, &rnn, &[2, 6]), Some(2 * (30 + 36)));
        let svdf: [&[u32]; 5] = [&[3, 5], &[8, 5], &[8, 10], &[4], &[3, 80]];
        assert_eq!(of(OperationType::SVDF, &svdf, &[3, 4]), Some(3 * (40 + 80)));
        let open: [&[u32]; 5] = [&[0, 5], &[8, 5], &[8, 10], &[4], &[3, 80]];
        assert_eq!(of(OperationType::SVDF, &open, &[3, 4]), None);
    }
}
