//! `nnhal explain`: which device runs which operation of a model, and why not another; and which kernel of
//! `nnhal-cpu`, with about how long it takes one thread.

use std::io::Write;

use nnhal_client::ExecutionPreference;
use nnhal_client::runtime::{CompilationOptions, Runtime, RuntimeDevice, RuntimeOptions};
use nnhal_cpu::{KernelSet, Program};
use nnhal_hal::{Operation, OperationType, SubgraphIndex};

use crate::arguments::{ExplainArguments, Preference};
use crate::driver;
use crate::error::Error;
use crate::in_process::{InProcess, Kernels};

/// Compiles the model and prints what the runtime did with it.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<(), Error> {
    let model = super::load(&arguments.model)?.model;
    let runtime = Runtime::with(RuntimeOptions::new().devices(driver::devices_options()))?;
    let mut options = CompilationOptions::new().preference(preference(arguments.preference));
    if !arguments.device.is_empty() {
        let devices = arguments.device.iter().map(|name| device(&runtime, name));
        options = options.devices(&devices.collect::<Result<Vec<_>, _>>()?);
    }
    let compilation = runtime.compile(&model, &options)?;
    let explanation = compilation.explain();
    let mut out = std::io::stdout().lock();
    write!(out, "{explanation}")?;
    let is_fast = |at: &usize| {
        let operation = explanation.operations.get(*at);
        operation.is_some_and(|operation| operation.device == Kernels::FAST)
    };
    let operations: Vec<usize> = (0..explanation.operations.len()).filter(is_fast).collect();
    if operations.is_empty() {
        return Ok(());
    }
    // The same program as the device makes of it.
    let program = InProcess::new(&model, KernelSet::Fast)?;
    writeln!(out, "kernels of {}:", Kernels::FAST)?;
    for at in operations {
        write_kernel(&mut out, program.program(), (SubgraphIndex::Main, at), 1)?;
    }
    Ok(())
}

/// Writes what computes an operation, so deep in control flow, and for IF and WHILE what computes those of
/// their graphs.
fn write_kernel(
    out: &mut impl Write,
    program: &Program,
    (graph, at): (SubgraphIndex, usize),
    depth: usize,
) -> std::io::Result<()> {
    let model = program.model().model();
    let subgraph = match graph {
        SubgraphIndex::Main => Some(&model.main),
        SubgraphIndex::Referenced(index) => model.referenced.get(index),
    };
    let Some((subgraph, operation)) = subgraph.and_then(|graph| Some((graph, graph.operations.get(at)?)))
    else {
        return Ok(());
    };
    let [name, by_two] = [1, 2].map(|threads| program.kernel_name(graph, at, threads));
    let indent = 2 * depth;
    write!(
        out,
        "{:indent$}operation {at} {}: {name}",
        "", operation.operation_type
    )?;
    if by_two != name {
        write!(out, "; by two threads: {by_two}")?;
    }
    if let Some(time) = program.expected_time(graph, at, 1) {
        write!(out, "; about {:.1} us", time.as_secs_f64() * 1e6)?;
    }
    writeln!(out)?;
    for (role, operand) in graphs(operation) {
        let Some(operand) = subgraph.operands.get(operand as usize) else {
            continue;
        };
        let index = operand.location.offset as usize;
        let inner = SubgraphIndex::Referenced(index);
        let indent = indent + 2;
        writeln!(out, "{:indent$}{role}, {inner}:", "")?;
        let operations = model
            .referenced
            .get(index)
            .map_or(0, |graph| graph.operations.len());
        for at in 0..operations {
            write_kernel(out, program, (inner, at), depth + 2)?;
        }
    }
    Ok(())
}

/// The operands that name the graphs of an operation, and what each is to it.
fn graphs(operation: &Operation) -> impl Iterator<Item = (&'static str, u32)> {
    let (roles, first) = match operation.operation_type {
        OperationType::IF => (&["then", "else"][..], 1),
        OperationType::WHILE => (&["condition", "body"][..], 0),
        _ => (&[][..], 0),
    };
    let operands = operation.inputs.iter().skip(first).copied();
    roles.iter().copied().zip(operands)
}

fn device(runtime: &Runtime, name: &str) -> Result<RuntimeDevice, Error> {
    let found = runtime.device(name).cloned();
    found.ok_or_else(|| {
        let names: Vec<&str> = runtime.devices().iter().map(RuntimeDevice::name).collect();
        Error::Result(format!(
            "there is no device {name}; there are {}",
            names.join(", ")
        ))
    })
}

fn preference(preference: Preference) -> ExecutionPreference {
    match preference {
        Preference::LowPower => ExecutionPreference::LowPower,
        Preference::Fast => ExecutionPreference::FastSingleAnswer,
        Preference::Sustained => ExecutionPreference::SustainedSpeed,
    }
}
