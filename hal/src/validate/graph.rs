//! Graphs: indexes, order of execution, writers and readers.

use crate::ops::Earliest;
use crate::{HalVersion, OperandLifeTime, Subgraph, SubgraphIndex};

use super::context::{ModelContext, ModelError, declared_shape};
use super::operand::{self, Known, parameter_bytes};
use super::{limits, operation};

/// Which HAL versions can express a graph.
pub(super) struct Versions {
    /// The first that can.
    pub(super) first: HalVersion,
    /// What each operation needs of it.
    pub(super) operations: Vec<Earliest>,
}

/// Checks one graph and returns which HAL versions can express it.
pub(super) fn check(
    context: &ModelContext<'_>,
    at: SubgraphIndex,
    graph: &Subgraph,
) -> Result<Versions, ModelError> {
    if graph.operands.is_empty() || graph.operations.is_empty() {
        let (operands, operations) = (graph.operands.len(), graph.operations.len());
        let message =
            format!("has {operands} operands and {operations} operations, needs at least one of each");
        return Err(ModelError::Graph { graph: at, message });
    }
    let versions = graph
        .operands
        .iter()
        .enumerate()
        .map(|(index, operand)| {
            operand::check(context, operand).map_err(|message| ModelError::Operand {
                graph: at,
                operand: index,
                message,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    check_indexes(at, graph)?;
    check_arguments(at, graph)?;
    check_consumers(at, graph)?;
    check_order(at, graph)?;
    let mut known = graph
        .operands
        .iter()
        .enumerate()
        .map(|(index, operand)| {
            let shape = declared_shape(&operand.dimensions).map_err(|message| ModelError::Operand {
                graph: at,
                operand: index,
                message,
            })?;
            Ok(Known {
                shape,
                rank: !context.layouts.is_tensor(operand.operand_type) || shape.rank() > 0,
                parameter: parameter_bytes(context, operand),
            })
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    // A constant that no operation needs in the version that first has the operation can be left out there.
    let mut first = graph
        .operands
        .iter()
        .zip(&versions)
        .filter(|(operand, _)| !operand.lifetime.is_constant())
        .map(|(_, version)| *version)
        .fold(HalVersion::V1_0, HalVersion::max);
    let mut operations = Vec::with_capacity(graph.operations.len());
    for (index, operation) in graph.operations.iter().enumerate() {
        let failed = |message| ModelError::Operation {
            graph: at,
            index,
            operation: operation.operation_type,
            message,
        };
        let earliest = operation::check(context, graph, operation, &mut known).map_err(failed)?;
        first = first.max(earliest.version);
        for &operand in &operation.inputs[..earliest.inputs] {
            first = first.max(versions[operand as usize]);
        }
        operations.push(earliest);
    }
    Ok(Versions { first, operations })
}

/// `input_indexes` and `output_indexes` must list exactly the operands with those lifetimes, each once.
fn check_indexes(at: SubgraphIndex, graph: &Subgraph) -> Result<(), ModelError> {
    let lists = [
        (
            "input_indexes",
            &graph.input_indexes,
            OperandLifeTime::SubgraphInput,
        ),
        (
            "output_indexes",
            &graph.output_indexes,
            OperandLifeTime::SubgraphOutput,
        ),
    ];
    for (name, indexes, lifetime) in lists {
        let mut listed = vec![false; graph.operands.len()];
        for &index in indexes {
            let wrong = |message: String| Err(ModelError::Graph { graph: at, message });
            let Some(operand) = graph.operands.get(index as usize) else {
                return wrong(format!(
                    "{name} has {index}, the graph has {} operands",
                    graph.operands.len()
                ));
            };
            if operand.lifetime != lifetime {
                return wrong(format!(
                    "{name} has operand {index}, whose lifetime is {:?}, must be {lifetime:?}",
                    operand.lifetime
                ));
            }
            if std::mem::replace(&mut listed[index as usize], true) {
                return wrong(format!("{name} has operand {index} twice"));
            }
        }
        let missing = graph
            .operands
            .iter()
            .zip(&listed)
            .position(|(operand, listed)| operand.lifetime == lifetime && !listed);
        if let Some(operand) = missing {
            let message = format!("has lifetime {lifetime:?} but is not in {name}");
            return Err(ModelError::Operand {
                graph: at,
                operand,
                message,
            });
        }
    }
    Ok(())
}

/// Operations refer to operands that exist.
fn check_arguments(at: SubgraphIndex, graph: &Subgraph) -> Result<(), ModelError> {
    for (index, operation) in graph.operations.iter().enumerate() {
        let wrong = |message: String| {
            Err(ModelError::Operation {
                graph: at,
                index,
                operation: operation.operation_type,
                message,
            })
        };
        for (what, list) in [("input", &operation.inputs), ("output", &operation.outputs)] {
            if list.len() > limits::MAX_OPERATION_ARGUMENTS {
                return wrong(format!(
                    "has {} {what}s, at most {} are accepted",
                    list.len(),
                    limits::MAX_OPERATION_ARGUMENTS
                ));
            }
            let outside = list
                .iter()
                .position(|operand| *operand as usize >= graph.operands.len());
            if let Some(number) = outside {
                return wrong(format!(
                    "{what} {number} is operand {}, the graph has {}",
                    list[number],
                    graph.operands.len()
                ));
            }
        }
    }
    Ok(())
}

fn check_consumers(at: SubgraphIndex, graph: &Subgraph) -> Result<(), ModelError> {
    let mut readers = vec![0_u32; graph.operands.len()];
    for operand in graph.operations.iter().flat_map(|operation| &operation.inputs) {
        readers[*operand as usize] += 1;
    }
    for (index, (operand, readers)) in graph.operands.iter().zip(readers).enumerate() {
        if operand.number_of_consumers != readers {
            let message = format!(
                "says number_of_consumers {}, but is an operation input {readers} times",
                operand.number_of_consumers
            );
            return Err(ModelError::Operand {
                graph: at,
                operand: index,
                message,
            });
        }
    }
    Ok(())
}

/// Every operand is written at most once, by an operation before its readers; what can only be written is.
fn check_order(at: SubgraphIndex, graph: &Subgraph) -> Result<(), ModelError> {
    let mut written: Vec<bool> = graph
        .operands
        .iter()
        .map(|operand| {
            !matches!(
                operand.lifetime,
                OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
            )
        })
        .collect();
    for (index, operation) in graph.operations.iter().enumerate() {
        let wrong = |message: String| {
            Err(ModelError::Operation {
                graph: at,
                index,
                operation: operation.operation_type,
                message,
            })
        };
        for (number, operand) in operation.inputs.iter().enumerate() {
            if !written[*operand as usize] {
                return wrong(format!(
                    "reads operand {operand} as input {number} before an operation has written it; operations must \
                     be listed in order of execution"
                ));
            }
        }
        for (number, operand) in operation.outputs.iter().enumerate() {
            let lifetime = graph.operands[*operand as usize].lifetime;
            if !matches!(
                lifetime,
                OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
            ) {
                return wrong(format!(
                    "writes operand {operand} as output {number}, whose lifetime is {lifetime:?}, must be \
                     TemporaryVariable or SubgraphOutput"
                ));
            }
            if std::mem::replace(&mut written[*operand as usize], true) {
                return wrong(format!(
                    "writes operand {operand} as output {number}, which is written already"
                ));
            }
        }
    }
    match written.iter().position(|written| !written) {
        Some(operand) => Err(ModelError::Operand {
            graph: at,
            operand,
            message: format!(
                "has lifetime {:?} but no operation writes it",
                graph.operands[operand].lifetime
            ),
        }),
        None => Ok(()),
    }
}
