//! `nnhal run --profile`: what each operation of a model takes.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

use nnhal::hal::{Operand, OperandType, Operation, OperationType, Shape, Subgraph, SubgraphIndex};
use nnhal_cpu::Peak;
use nnhal_cpu::executor::{ObservedOperation, Observer};
use nnhal_tflite::ImportedModel;
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::error::Error;
use crate::feed::Value;
use crate::in_process::{InProcess, Kernels};
use crate::session::Session;

/// Calls before the first that counts.
const WARM_UP: u32 = 3;

/// Fewest calls that are looked at.
const LEAST_CALLS: u32 = 20;

/// What is in the names of kernels that multiply by tiles.
const BY_TILES: &str = "by tiles";

#[derive(Debug, Serialize)]
struct Report {
    model: PathBuf,
    device: &'static str,
    threads: u16,
    calls: u32,
    /// What one thread reaches where nothing but products are summed: 32-bit floats, by vectors and by tiles (0 where there are
    /// none), and 8-bit values likewise.
    peak_gflops: f64,
    peak_tiles_gflops: f64,
    peak_gops: f64,
    peak_tiles_gops: f64,
    /// All operations, one after the other.
    total_us: f64,
    operations: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    index: usize,
    operation: String,
    kernel: &'static str,
    /// Median over the calls.
    time_us: f64,
    /// Of the time of all operations.
    share: f64,
    /// Thousands of millions of operations on numbers in a second, a product and its sum being two, of all that are computed
    /// with this one; none for operations that are not made of products, and for those that are computed with one before.
    giga_per_second: Option<f64>,
    /// Of the peak of as many threads: by tiles where the kernel's name says so, by vectors elsewhere, also where layers are
    /// computed together of which some are multiplied by tiles.
    share_of_peak: Option<f64>,
    /// Of inputs, constants included, and outputs; none if the model does not know their dimensions.
    bytes: Option<u64>,
}

/// The times of the main graph's operations, in nanoseconds.
#[derive(Debug)]
struct Times(RefCell<Vec<Vec<u64>>>);

impl Observer for Times {
    fn operation_ended(&self, observed: &ObservedOperation) {
        let nanos = observed.ended.saturating_since(observed.started).as_nanos();
        if observed.graph == SubgraphIndex::Main
            && let Some(times) = self.0.borrow_mut().get_mut(observed.index)
        {
            times.push(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
    }
}

/// Runs the model and tells what each operation took.
pub(super) fn run(
    arguments: &RunArguments,
    model: &ImportedModel,
    inputs: &[Vec<Value>],
) -> Result<(), Error> {
    let name = arguments.device.as_deref().unwrap_or(Kernels::FAST);
    let kernels = Kernels::of_device(Some(name))?;
    let main = &model.model.main;
    let times = Rc::new(Times(RefCell::new(vec![Vec::new(); main.operations.len()])));
    let threads = usize::from(arguments.threads);
    let subject = InProcess::with_threads(model.model.clone(), kernels.set, threads)?
        .observed_by(Rc::clone(&times) as Rc<dyn Observer>);
    let program = std::sync::Arc::clone(subject.program());
    let mut session = Session::new(model, Box::new(subject));
    let calls = arguments.iterations.max(LEAST_CALLS);
    for call in 0..WARM_UP + calls {
        if call == WARM_UP {
            times.0.borrow_mut().iter_mut().for_each(Vec::clear);
        }
        session.reset();
        for values in inputs {
            session.call(values)?;
        }
    }
    let peak = Peak::measure();
    let medians: Vec<f64> = times
        .0
        .borrow_mut()
        .iter_mut()
        .map(|times| median_us(times))
        .collect();
    let total_us: f64 = medians.iter().sum();
    let rows = main.operations.iter().zip(&medians).enumerate();
    let with = |index| program.computed_with(SubgraphIndex::Main, index);
    let operations = rows.map(|(index, (operation, &time_us))| {
        let together = (index..main.operations.len()).take_while(|other| with(*other) == Some(index));
        let giga_per_second = together
            .filter_map(|other| products(main, &main.operations[other]))
            .reduce(u64::saturating_add)
            .map(|products| 2.0 * products as f64 / (time_us * 1000.0).max(1e-3));
        let is_float = first_type(main, operation).is_none_or(|ty| ty == OperandType::TENSOR_FLOAT32);
        let kernel = program.kernel_name(SubgraphIndex::Main, index);
        let most = match (is_float, kernel.contains(BY_TILES)) {
            (true, true) => peak.tiles,
            (true, false) => peak.float,
            (false, true) => peak.byte_tiles,
            (false, false) => peak.byte,
        };
        let most = most * threads as f64;
        Row {
            index,
            operation: operation.operation_type.to_string(),
            kernel,
            time_us,
            share: time_us / total_us.max(f64::MIN_POSITIVE),
            giga_per_second,
            share_of_peak: giga_per_second.map(|speed| speed / most),
            bytes: bytes(main, operation),
        }
    });
    let report = Report {
        model: arguments.model.clone(),
        device: kernels.device,
        threads: arguments.threads,
        calls: calls * inputs.len() as u32,
        peak_gflops: peak.float,
        peak_tiles_gflops: peak.tiles,
        peak_gops: peak.byte,
        peak_tiles_gops: peak.byte_tiles,
        total_us,
        operations: operations.collect(),
    };
    if arguments.json {
        super::super::print_json(&report)
    } else {
        print(&report)
    }
}

/// The median of times in nanoseconds, in microseconds; 0 for an operation that never ran.
fn median_us(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, |nanos| *nanos as f64 / 1000.0)
}

fn operand<'a>(graph: &'a Subgraph, at: Option<&u32>) -> Option<&'a Operand> {
    graph.operands.get(*at? as usize)
}

fn first_type(graph: &Subgraph, operation: &Operation) -> Option<OperandType> {
    Some(operand(graph, operation.inputs.first())?.operand_type)
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

/// The products that an operation sums, for those that are made of them.
fn products(graph: &Subgraph, operation: &Operation) -> Option<u64> {
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

/// What an operation reads and writes, each operand once.
fn bytes(graph: &Subgraph, operation: &Operation) -> Option<u64> {
    let mut seen: Vec<u32> = operation
        .inputs
        .iter()
        .chain(&operation.outputs)
        .copied()
        .collect();
    seen.sort_unstable();
    seen.dedup();
    let sizes = seen.iter().map(|at| {
        let operand = graph.operands.get(*at as usize)?;
        if operand.lifetime == nnhal::hal::OperandLifeTime::NoValue {
            return Some(0);
        }
        Some(elements(operand)? * operand.operand_type.element_size() as u64)
    });
    sizes.sum()
}

fn print(report: &Report) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let by_tiles = |peak: f64| match peak {
        0.0 => String::new(),
        peak => format!(" ({peak:.1} by tiles)"),
    };
    let (tiles, byte_tiles) = (
        by_tiles(report.peak_tiles_gflops),
        by_tiles(report.peak_tiles_gops),
    );
    writeln!(
        out,
        "{} in this process, {} threads, medians of {} calls; one thread reaches {:.1} GFLOP/s{tiles}, and {:.1} GOP/s{byte_tiles} \
         of 8-bit values",
        report.device, report.threads, report.calls, report.peak_gflops, report.peak_gops
    )?;
    writeln!(
        out,
        "{:>5}  {:>10}  {:>6}  {:>8}  {:>6}  {:>9}  {:<34}  operation",
        "", "us", "share", "G/s", "peak", "KiB", "kernel"
    )?;
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    for row in &report.operations {
        writeln!(
            out,
            "{:>5}  {:>10.1}  {:>6}  {:>8}  {:>6}  {:>9}  {:<34}  {}",
            row.index,
            row.time_us,
            percent(row.share),
            row.giga_per_second
                .map_or_else(|| "-".to_owned(), |speed| format!("{speed:.1}")),
            row.share_of_peak.map_or_else(|| "-".to_owned(), percent),
            row.bytes
                .map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1024.0)),
            row.kernel,
            row.operation
        )?;
    }
    writeln!(out, "{:>5}  {:>10.1}", "all", report.total_us)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(operation: OperationType, dims: [&[u32]; 3]) -> Subgraph {
        let operands = dims.map(|dims| Operand::new(OperandType::TENSOR_FLOAT32, dims));
        Subgraph {
            operands: operands.to_vec(),
            operations: vec![Operation {
                operation_type: operation,
                inputs: vec![0, 1],
                outputs: vec![2],
            }],
            ..Subgraph::default()
        }
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
            let graph = graph(operation, dims);
            assert_eq!(products(&graph, &graph.operations[0]), Some(count), "{operation}");
        }
        let sum = graph(OperationType::ADD, [&[4], &[4], &[4]]);
        assert_eq!(products(&sum, &sum.operations[0]), None);
    }

    #[test]
    fn bytes_count_each_operand_once_and_unknown_ones_never() {
        let mut sum = graph(OperationType::ADD, [&[4], &[4], &[4]]);
        assert_eq!(bytes(&sum, &sum.operations[0]), Some(48));
        sum.operations[0].inputs = vec![0, 0];
        assert_eq!(bytes(&sum, &sum.operations[0]), Some(32));
        sum.operands[2].dimensions = vec![0];
        assert_eq!(bytes(&sum, &sum.operations[0]), None);
    }
}
