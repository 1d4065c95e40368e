//! `nnhal run --profile`: what each operation of a model takes.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

use nnhal::hal::{OperandType, Operation, Subgraph, SubgraphIndex};
use nnhal_client::TfliteModel;
use nnhal_cpu::executor::{ObservedOperation, Observer};
use nnhal_cpu::{Peak, Program};
use serde::Serialize;

use super::products::products;
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

/// What is in the names of kernels that multiply floats which are integers as bytes.
const AS_BYTES: &str = "as bytes";

#[derive(Debug, Serialize)]
struct Report {
    model: PathBuf,
    device: &'static str,
    threads: u16,
    /// Those that times are medians of.
    calls: usize,
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
    /// Thousands of millions of operations on numbers in a second, a product and its sum being two, of all that are
    /// computed with this one; none for operations that are not made of products, and for those that are computed
    /// with one before. Of operations that were computed beforehand there is none either: they are in no execution.
    giga_per_second: Option<f64>,
    /// Of the peak of as many threads, or of one if executions were faster without helpers: by tiles where the kernel's name says
    /// so, by vectors elsewhere, also where layers are computed together of which some are multiplied by tiles.
    share_of_peak: Option<f64>,
    /// Read and written by all that are computed with this one: [`nnhal_cpu::Program::bytes_moved`].
    bytes: Option<u64>,
}

/// The main graph's operations, call by call: which, and how many nanoseconds it took.
#[derive(Debug, Default)]
struct Calls(RefCell<Vec<Vec<(usize, u64)>>>);

impl Observer for Calls {
    fn operation_ended(&self, observed: &ObservedOperation) {
        let nanos = observed.ended.saturating_since(observed.started).as_nanos();
        if observed.graph == SubgraphIndex::Main
            && let Some(call) = self.0.borrow_mut().last_mut()
        {
            call.push((observed.index, u64::try_from(nanos).unwrap_or(u64::MAX)));
        }
    }
}

/// What calls in which the same operations were computed together have shown.
struct Medians {
    /// By operation, in microseconds.
    times: Vec<f64>,
    /// How many calls these are.
    calls: usize,
    /// What is computed together where so many threads compute was so.
    threads: usize,
}

impl Calls {
    /// The median time of each of so many operations. An execution may find that it is faster without helpers, and compute other
    /// operations together then: the calls that count are those of which there were more, or all if none was as the program has it,
    /// which is where dimensions are known in executions only.
    fn medians(&self, operations: usize, program: &Program, threads: usize) -> Medians {
        let all = self.0.borrow();
        let of = |threads: usize| {
            let expected: Vec<bool> = (0..operations)
                .map(|index| {
                    let first = program.computed_with(SubgraphIndex::Main, index, threads);
                    first.is_some_and(|first| first < index)
                })
                .collect();
            // What was computed with one before takes no time.
            let is_so = move |call: &&Vec<(usize, u64)>| {
                call.iter().all(|&(index, nanos)| (nanos == 0) == expected[index])
            };
            all.iter().filter(is_so).collect::<Vec<_>>()
        };
        let (several, alone) = (of(threads), of(1));
        let (calls, threads) = match several.len().cmp(&alone.len()) {
            Ordering::Less => (alone, 1),
            _ if several.is_empty() => (all.iter().collect(), threads),
            _ => (several, threads),
        };
        let mut times = vec![Vec::new(); operations];
        for &(index, nanos) in calls.iter().copied().flatten() {
            times[index].push(nanos);
        }
        Medians {
            times: times.iter_mut().map(|times| median_us(times)).collect(),
            calls: calls.len(),
            threads,
        }
    }
}

/// Runs the model and tells what each operation took.
pub(super) fn run(arguments: &RunArguments, model: &TfliteModel, inputs: &[Vec<Value>]) -> Result<(), Error> {
    let name = arguments.device.as_deref().unwrap_or(Kernels::FAST);
    let kernels = Kernels::of_device(Some(name))?;
    let main = &model.model.hal().main;
    let observed = Rc::new(Calls::default());
    let threads = usize::from(arguments.threads);
    let subject = InProcess::with_threads(&model.model, kernels.set, threads)?
        .observed_by(Rc::clone(&observed) as Rc<dyn Observer>);
    let program = std::sync::Arc::clone(subject.program());
    let mut session = Session::new(model, Box::new(subject));
    let calls = arguments.iterations.max(LEAST_CALLS);
    for call in 0..WARM_UP + calls {
        if call == WARM_UP {
            observed.0.borrow_mut().clear();
        }
        session.reset();
        for values in inputs {
            observed.0.borrow_mut().push(Vec::new());
            session.call(values)?;
        }
    }
    let peak = Peak::measure();
    let medians = observed.medians(main.operations.len(), &program, threads);
    let by = medians.threads;
    let total_us: f64 = medians.times.iter().sum();
    let rows = main.operations.iter().zip(&medians.times).enumerate();
    let with = |index| program.computed_with(SubgraphIndex::Main, index, by);
    let operations = rows.map(|(index, (operation, &time_us))| {
        let together = (index..main.operations.len()).take_while(|other| with(*other) == Some(index));
        let giga_per_second = together
            .filter_map(|other| products(main, &main.operations[other]))
            .reduce(u64::saturating_add)
            .map(|products| 2.0 * products as f64 / (time_us * 1000.0).max(1e-3));
        let kernel = program.kernel_name(SubgraphIndex::Main, index, by);
        let takes_floats = first_type(main, operation).is_none_or(|ty| ty == OperandType::TENSOR_FLOAT32);
        let is_float = takes_floats && !kernel.contains(AS_BYTES);
        let most = match (is_float, kernel.contains(BY_TILES)) {
            (true, true) => peak.tiles,
            (true, false) => peak.float,
            (false, true) => peak.byte_tiles,
            (false, false) => peak.byte,
        };
        let most = most * by as f64;
        Row {
            index,
            operation: operation.operation_type.to_string(),
            kernel,
            time_us,
            share: time_us / total_us.max(f64::MIN_POSITIVE),
            giga_per_second,
            share_of_peak: giga_per_second.map(|speed| speed / most),
            bytes: program.bytes_moved(SubgraphIndex::Main, index, by),
        }
    });
    let report = Report {
        model: arguments.model.clone(),
        device: kernels.device,
        threads: arguments.threads,
        calls: medians.calls,
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

fn first_type(graph: &Subgraph, operation: &Operation) -> Option<OperandType> {
    let first = *operation.inputs.first()?;
    Some(graph.operands.get(first as usize)?.operand_type)
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
