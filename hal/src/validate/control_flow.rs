//! IF and WHILE: the operands of the operation and of the graphs that it refers to must agree.

use crate::{
    HalVersion, Model, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph,
};

/// Checks an IF or WHILE; both came with 1.3.
pub(super) fn check(model: &Model, graph: &Subgraph, operation: &Operation) -> Result<HalVersion, String> {
    Call {
        model,
        graph,
        operation,
        may_be_open: false,
    }
    .check()?;
    Ok(HalVersion::V1_3)
}

/// Checks an IF or WHILE of a model that is being built. All its operands must be there; those of type
/// SUBGRAPH that do not have their graph yet are not looked into.
///
/// # Errors
/// What is wrong: the number or types of its operands, or a graph that does not fit them.
pub fn check_control_flow(model: &Model, graph: &Subgraph, operation: &Operation) -> Result<(), String> {
    Call {
        model,
        graph,
        operation,
        may_be_open: true,
    }
    .check()
}

/// Checks the number of operands.
fn check_counts(operation: &Operation) -> Result<(), String> {
    if operation.inputs.len() < 3 || operation.outputs.is_empty() {
        return Err(format!(
            "has {} inputs and {} outputs, takes at least 3 and gives at least 1",
            operation.inputs.len(),
            operation.outputs.len()
        ));
    }
    Ok(())
}

struct Call<'a> {
    model: &'a Model,
    graph: &'a Subgraph,
    operation: &'a Operation,
    /// Whether graphs may be given later.
    may_be_open: bool,
}

impl<'a> Call<'a> {
    fn check(&self) -> Result<(), String> {
        check_counts(self.operation)?;
        if self.operation.operation_type == OperationType::IF {
            self.check_if()
        } else {
            self.check_while()
        }
    }

    fn input(&self, index: usize) -> &'a Operand {
        &self.graph.operands[self.operation.inputs[index] as usize]
    }

    fn output(&self, index: usize) -> &'a Operand {
        &self.graph.operands[self.operation.outputs[index] as usize]
    }

    /// The graph that an input refers to; none if it may be given later and was not yet.
    fn referenced(&self, index: usize) -> Result<Option<&'a Subgraph>, String> {
        let operand = self.input(index);
        if operand.operand_type != OperandType::SUBGRAPH {
            return Err(format!(
                "input {index} is {}, must be SUBGRAPH",
                operand.operand_type
            ));
        }
        if self.may_be_open && operand.lifetime != OperandLifeTime::Subgraph {
            return Ok(None);
        }
        let graph = self.model.referenced.get(operand.location.offset as usize);
        graph
            .map(Some)
            .ok_or_else(|| format!("input {index} refers to a subgraph that does not exist"))
    }

    fn check_if(&self) -> Result<(), String> {
        let condition = self.input(0);
        if condition.lifetime == OperandLifeTime::NoValue {
            return Err("input 0 (the condition) is omitted but not optional".into());
        }
        check_condition(condition).map_err(|message| format!("input 0 {message}"))?;
        for (index, name) in [(1, "then graph"), (2, "else graph")] {
            let Some(branch) = self.referenced(index)? else {
                continue;
            };
            let arguments = self.operation.inputs.len() - 3;
            expect_count(name, "inputs", branch.input_indexes.len(), arguments)?;
            expect_count(
                name,
                "outputs",
                branch.output_indexes.len(),
                self.operation.outputs.len(),
            )?;
            for number in 0..arguments {
                compatible(self.input(3 + number), inner_input(branch, number))
                    .map_err(|message| format!("input {} and {name} input {number} {message}", 3 + number))?;
            }
            for number in 0..self.operation.outputs.len() {
                compatible(self.output(number), inner_output(branch, number))
                    .map_err(|message| format!("output {number} and {name} output {number} {message}"))?;
            }
        }
        Ok(())
    }

    fn check_while(&self) -> Result<(), String> {
        let (Some(condition), Some(body)) = (self.referenced(0)?, self.referenced(1)?) else {
            return Ok(());
        };
        let arguments = self.operation.inputs.len() - 2;
        let results = self.operation.outputs.len();
        let carried = body.output_indexes.len();
        expect_count(
            "condition graph",
            "inputs",
            condition.input_indexes.len(),
            arguments,
        )?;
        expect_count("condition graph", "outputs", condition.output_indexes.len(), 1)?;
        expect_count("body graph", "inputs", body.input_indexes.len(), arguments)?;
        if carried < results || arguments < carried {
            return Err(format!(
                "has {results} outputs, a body with {carried} outputs and {arguments} inputs; neither may be fewer \
                 than the one before"
            ));
        }
        check_condition(inner_output(condition, 0))
            .map_err(|message| format!("condition graph output 0 {message}"))?;
        for number in 0..arguments {
            for (name, inner) in [("condition graph", condition), ("body graph", body)] {
                compatible(self.input(2 + number), inner_input(inner, number))
                    .map_err(|message| format!("input {} and {name} input {number} {message}", 2 + number))?;
            }
        }
        for number in 0..carried {
            compatible(inner_input(body, number), inner_output(body, number))
                .map_err(|message| format!("body graph input {number} and output {number} {message}"))?;
        }
        for number in 0..results {
            compatible(self.output(number), inner_output(body, number))
                .map_err(|message| format!("output {number} and body graph output {number} {message}"))?;
        }
        Ok(())
    }
}

fn inner_input(graph: &Subgraph, number: usize) -> Option<&Operand> {
    graph.operands.get(*graph.input_indexes.get(number)? as usize)
}

fn inner_output(graph: &Subgraph, number: usize) -> Option<&Operand> {
    graph.operands.get(*graph.output_indexes.get(number)? as usize)
}

fn expect_count(graph: &str, what: &str, count: usize, expected: usize) -> Result<(), String> {
    if count == expected {
        return Ok(());
    }
    Err(format!("the {graph} has {count} {what}, must have {expected}"))
}

/// A condition is one TENSOR_BOOL8 element.
fn check_condition<'a>(operand: impl Into<Option<&'a Operand>>) -> Result<(), String> {
    let Some(operand) = operand.into() else {
        return Err("is missing".into());
    };
    let one_element = Shape::new(&operand.dimensions)
        .is_ok_and(|shape| shape.combine(&Shape::new(&[1]).unwrap_or_default()).is_some());
    if operand.operand_type == OperandType::TENSOR_BOOL8 && one_element {
        return Ok(());
    }
    Err(format!(
        "(the condition) is {} with dimensions {:?}, must be TENSOR_BOOL8 with dimensions [1]",
        operand.operand_type, operand.dimensions
    ))
}

/// Same type and quantisation; rank and dimensions equal where both are known.
fn compatible<'a>(outer: impl Into<Option<&'a Operand>>, inner: Option<&Operand>) -> Result<(), String> {
    let (Some(outer), Some(inner)) = (outer.into(), inner) else {
        return Err("are not both there".into());
    };
    if outer.operand_type != inner.operand_type {
        return Err(format!(
            "differ in type: {} and {}",
            outer.operand_type, inner.operand_type
        ));
    }
    if outer.scale != inner.scale || outer.zero_point != inner.zero_point {
        return Err(format!(
            "differ in quantisation: scale {}, zero point {} and scale {}, zero point {}",
            outer.scale, outer.zero_point, inner.scale, inner.zero_point
        ));
    }
    if outer.extra_params != inner.extra_params {
        return Err("differ in extra parameters".into());
    }
    let shapes = (Shape::new(&outer.dimensions), Shape::new(&inner.dimensions));
    match shapes {
        (Ok(left), Ok(right)) if left.combine(&right).is_none() => {
            Err(format!("differ in dimensions: {left:?} and {right:?}"))
        }
        _ => Ok(()),
    }
}
