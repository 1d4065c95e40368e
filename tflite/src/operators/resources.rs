//! Resource variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE and CALL_ONCE.

use nnhal_hal::OperandType;

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{CallOnceOptions, VarHandleOptions};
use crate::file::tables::Operator;
use crate::file::{File, decode_options};
use crate::tensor::Tensor;
use crate::values;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::VAR_HANDLE,
        &[],
        "the variable is an input and an output of the model; in the main graph only",
        |node| {
            require_main(node)?;
            let name = name(&node.options::<VarHandleOptions<'_>>()?);
            let handle = node.output_index(0)?;
            node.graph.resources.bind(handle, name);
            Ok(())
        },
    ),
    Mapping::new(
        Builtin::READ_VARIABLE,
        &[],
        "the value that was assigned last",
        read,
    ),
    Mapping::new(
        Builtin::ASSIGN_VARIABLE,
        &[],
        "its value goes to the model's output behind the last one",
        |node| {
            let handle = node.input_index(0)?;
            let value = node.input(1)?;
            let assigned = node.graph.resources.assign(handle, value);
            assigned.map_err(|reason| node.input_error(0, reason))
        },
    ),
    Mapping::new(
        Builtin::CALL_ONCE,
        &[],
        "the constants that its graph assigns are what variables begin with",
        call_once,
    ),
];

fn require_main(node: &Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    if node.graph.is_main() {
        return Ok(());
    }
    Err("it is in a graph of control flow, from where NNAPI cannot carry a variable on".into())
}

/// A variable's name: variables of different containers differ.
fn name(options: &VarHandleOptions<'_>) -> String {
    let (container, shared) = (options.container.to_text(), options.shared_name.to_text());
    if container.is_empty() {
        shared
    } else {
        format!("{container}/{shared}")
    }
}

fn read(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let handle = node.input_index(0)?;
    let mut operand = node.output_operand(0)?;
    if operand.dimensions.is_empty() {
        operand.dimensions = vec![1];
    }
    let graph = &mut *node.graph;
    let value = graph.resources.read(handle, &operand, &mut graph.builder);
    let value = value.map_err(|reason| node.input_error(0, reason))?;
    let index = node.output_index(0)?;
    if node.graph.is_written(index) {
        return Err(node.output_error(0, "has a value already"));
    }
    node.graph.set_value(index, value);
    Ok(())
}

fn call_once(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    require_main(node)?;
    let number = node.options::<CallOnceOptions>()?.init_subgraph_index;
    let file = node.graph.model.file;
    let found = usize::try_from(number).ok();
    let found = found.and_then(|at| Some((at, file.graphs().get(at)?)));
    let (at, graph) = found.ok_or_else(|| format!("it refers to graph {number}, which the file has not"))?;
    if !node.graph.resources.is_first_call(at) {
        return Ok(());
    }
    let mut names = std::collections::HashMap::new();
    for operator in &graph.operators {
        match Builtin::of(file, operator) {
            Some(Builtin::VAR_HANDLE) => {
                let options = decode_options::<VarHandleOptions<'_>>(operator)?;
                names.insert(argument(operator.outputs.get(0))?, name(&options));
            }
            Some(Builtin::ASSIGN_VARIABLE) => {
                let handle = argument(operator.inputs.get(0))?;
                let name = names
                    .get(&handle)
                    .ok_or("its graph assigns to what is no variable")?;
                let (ty, value) = initial(file, operator, &graph.tensors)?;
                node.graph.model.store.charge(value.len())?;
                node.graph.resources.initialise(name.clone(), ty, value);
            }
            other => {
                let other = other.map_or_else(|| "an operator".to_owned(), |other| other.to_string());
                return Err(Refusal::Reason(format!(
                    "its graph computes values by {other}; variables can begin with constants only"
                )));
            }
        }
    }
    Ok(())
}

/// The constant that an ASSIGN_VARIABLE of the graph that is called once assigns.
fn initial(
    file: &File<'_>,
    operator: &Operator<'_>,
    tensors: &[crate::file::tables::Tensor<'_>],
) -> Result<(OperandType, Vec<u8>), Refusal> {
    let index = argument(operator.inputs.get(1))?;
    let table = tensors
        .get(index)
        .ok_or("its graph assigns a tensor that is missing")?;
    let tensor = Tensor::new(table, file.data(table));
    let wrong = |reason| format!("its graph assigns {}, which {reason}", tensor.label(index));
    let ty = tensor.operand().map_err(wrong)?.operand_type;
    let bytes = values::operand_bytes(&tensor).map_err(wrong)?;
    Ok((ty, bytes.into_owned()))
}

/// The tensor index of an argument.
fn argument(index: Option<i32>) -> Result<usize, Refusal> {
    let index = index.and_then(|index| usize::try_from(index).ok());
    index.ok_or_else(|| "an operator of its graph lacks an argument".into())
}
