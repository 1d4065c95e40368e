//! Operations: signatures, further rules and shapes, by the operation table.

use crate::ops::{self, Earliest, OperandInfo, OperationContext, OperationEntry, ShapeIssue, ShapeRule};
use crate::{HalVersion, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph};

use super::context::ModelContext;
use super::control_flow;
use super::operand::Known;

/// Checks one operation, adds what it implies of its outputs' shapes to `known`, and returns what the first
/// HAL version that can express it needs.
pub(super) fn check(
    context: &ModelContext<'_>,
    graph: &Subgraph,
    operation: &Operation,
    known: &mut [Known],
) -> Result<Earliest, String> {
    let kind = operation.operation_type;
    let with_all_inputs = |version| Earliest {
        version,
        inputs: operation.inputs.len(),
        full: version,
    };
    if kind.is_extension() {
        let version = check_extension(context, kind)?;
        // What is not in the table is its vendor's to know, or that of a later version.
        if ops::entry(kind).is_none() {
            return Ok(with_all_inputs(version));
        }
    }
    let since = kind
        .since()
        .ok_or_else(|| "the HAL knows operations 0 to 105 and 10000".to_owned())?;
    if kind.is_control_flow() {
        return control_flow::check(context.model, graph, operation).map(with_all_inputs);
    }
    let Some(entry) = ops::entry(kind) else {
        return Ok(with_all_inputs(since));
    };
    let view = View {
        graph,
        operation,
        known,
    };
    let found = entry.match_signature(&view).map_err(|error| error.to_string())?;
    (entry.check)(&view).map_err(|error| error.to_string())?;
    let earliest = entry.earliest(&view, &found);
    if let Some(shapes) = inferred_shapes(entry, &view)? {
        for (number, (operand, shape)) in operation.outputs.iter().zip(shapes).enumerate() {
            let known = &mut known[*operand as usize];
            // An output of unknown rank takes the inferred one, also rank 0 for a scalar.
            known.shape = known.shape.combine(&shape).ok_or_else(|| {
                format!(
                    "output {number} has dimensions {:?}, the model declares {:?}",
                    shape, known.shape
                )
            })?;
            known.rank = true;
        }
    }
    Ok(earliest)
}

fn inferred_shapes(entry: &OperationEntry, view: &View<'_>) -> Result<Option<Vec<Shape>>, String> {
    let ShapeRule::Infer(rule) = entry.shape else {
        return Ok(None);
    };
    let mut shapes = vec![Shape::SCALAR; view.operation.outputs.len()];
    match rule(view, &mut shapes) {
        Ok(()) => Ok(Some(shapes)),
        Err(ShapeIssue::Unknown) => Ok(None),
        Err(ShapeIssue::Invalid(error)) => Err(error.to_string()),
    }
}

fn check_extension(context: &ModelContext<'_>, kind: OperationType) -> Result<HalVersion, String> {
    let mapped = context
        .model
        .extension_name_to_prefix
        .iter()
        .any(|mapping| mapping.prefix == kind.extension_prefix());
    if mapped {
        Ok(HalVersion::V1_2)
    } else {
        Err("its prefix is not mapped to an extension in the model".into())
    }
}

/// An operation during validation.
struct View<'a> {
    graph: &'a Subgraph,
    operation: &'a Operation,
    known: &'a [Known],
}

impl View<'_> {
    fn info(&self, operand: u32) -> Option<OperandInfo<'_>> {
        let operand_at = operand as usize;
        let (operand, known) = (self.graph.operands.get(operand_at)?, self.known.get(operand_at)?);
        // A model input with an extent of 0 may be given later, or be left out.
        Some(OperandInfo {
            operand,
            shape: known.shape,
            rank_known: known.rank,
            shape_known: known.rank && known.shape.is_fully_specified() && !may_be_omitted(operand.lifetime),
            bytes: known.parameter.as_ref().map(|parameter| parameter.bytes()),
        })
    }
}

/// Whether a request may still leave the operand out. Operands with declared dimensions count as given: rules
/// that depend on an omission check it at execution.
fn may_be_omitted(lifetime: OperandLifeTime) -> bool {
    lifetime == OperandLifeTime::NoValue
}

impl OperationContext for View<'_> {
    fn operation(&self) -> OperationType {
        self.operation.operation_type
    }

    fn input_count(&self) -> usize {
        self.operation.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.operation.outputs.len()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        let info = self.info(*self.operation.inputs.get(index)?)?;
        let omitted = ops::signature::is_omitted(info.operand.lifetime);
        // SUBGRAPH operands have no value of their own.
        (!omitted && info.ty() != OperandType::SUBGRAPH).then_some(info)
    }

    fn declared_type(&self, index: usize) -> Option<OperandType> {
        let operand = self
            .graph
            .operands
            .get(*self.operation.inputs.get(index)? as usize)?;
        Some(operand.operand_type)
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        self.info(*self.operation.outputs.get(index)?)
    }

    fn executing(&self) -> bool {
        false
    }
}
