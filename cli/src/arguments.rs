//! What the command line says.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use regex::Regex;

/// Runs neural networks on nnhal's drivers.
///
/// If no driver runs, a private one is started and ends with the command.
///
/// NNHAL_RUNTIME_DIR names the directory in which drivers are looked for; NNHAL_LOG sets what is logged to
/// standard error, as `level` or `module=level,...` (default: warn).
#[derive(Debug, Parser)]
#[command(name = "nnhal", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the devices of the drivers that run.
    Devices(DevicesArguments),
    /// Runs a model.
    Run(RunArguments),
    /// Runs the conformance corpus, or random models, against a device.
    Vts(VtsArguments),
    /// Stresses devices with random cases: models, clients, deadlines, full memory, killed workers.
    Stress(StressArguments),
    /// Classifies handwritten digits on an isolated driver.
    Demo(DemoArguments),
    /// Tells which device would run each operation of a model, and why not another.
    Explain(ExplainArguments),
    /// Prints a model's graph in Graphviz's language.
    Dump(DumpArguments),
    /// Measures this machine.
    Bench(BenchArguments),
    /// Is a driver: takes the arguments of nnhald.
    #[command(disable_help_flag = true)]
    Driver(DriverArguments),
}

/// How requests reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// By calls that wait: the first by a message, the others through queues in shared memory.
    Sync,
    /// Through queues in memory that is shared with the driver's process.
    Burst,
    /// By messages, the result coming later.
    Async,
    /// By messages, the end being a fence.
    Fenced,
    /// Without a driver: the reference executor in this process.
    InProcess,
}

impl Path {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Path::Sync => "sync",
            Path::Async => "async",
            Path::Fenced => "fenced",
            Path::Burst => "burst",
            Path::InProcess => "in-process",
        }
    }
}

/// Where the arguments of executions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryKind {
    /// In memory that both processes share.
    Shared,
    /// In the application's own memory.
    Own,
    /// In the device's own buffers, wherever the device can hold them.
    Device,
}

impl MemoryKind {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MemoryKind::Shared => "shared",
            MemoryKind::Own => "own",
            MemoryKind::Device => "device",
        }
    }
}

/// What the conformance procedures go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// One device.
    #[default]
    Device,
    /// The runtime above the devices.
    Runtime,
    /// The C API, for one device, which `--device` names.
    Capi,
}

/// What a device is chosen by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preference {
    /// The least energy.
    LowPower,
    /// The shortest time.
    #[default]
    Fast,
    /// Most executions over time.
    Sustained,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// A .tflite file.
    pub(crate) model: PathBuf,
    /// A device that may be used; all if none is named.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// What the devices are chosen by.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) preference: Preference,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArguments {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// A .tflite file.
    pub(crate) model: PathBuf,
    /// The signature of the file to run; by default its first graph.
    #[arg(long, value_name = "NAME")]
    pub(crate) signature: Option<String>,
    /// A .npy file for the next input of the model. One more leading axis than the input has makes a sequence
    /// of calls. Where the file leaves extents open, the array says them. If none is given, all inputs are
    /// zeros.
    #[arg(long, value_name = "F.npy")]
    pub(crate) input: Vec<PathBuf>,
    /// A .npy file with what the next output must be. The exit code is 1 if any is further off than the
    /// accuracy rules allow.
    #[arg(long, value_name = "F.npy")]
    pub(crate) expect: Vec<PathBuf>,
    /// The device; by default the one that is fastest by its own account.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// How requests reach the model; by default by `sync`, and for a profile `in-process`.
    #[arg(long, value_enum)]
    pub(crate) path: Option<Path>,
    /// Most threads that compute an execution, on a private driver; by default those of the driver that runs,
    /// and one in this process.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
    /// How often to go through all calls; a model with state starts afresh each time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Tell what each operation took: in this process, or by a path to a driver in the process of its worker.
    ///
    /// A row is an operation of the main graph; the first of some that are computed together has what all of
    /// them took, the others have no time. The columns: `us` the median time of a call in microseconds,
    /// `expected` what the plan expects of one thread, `share` of the sum of all times, `G/s` thousands of
    /// millions of operations on numbers in a second (a product and its sum are two; layers, convolutions and
    /// cells have them), `peak` their share of what this processor was just measured to reach with as many
    /// threads, for floats or 8-bit values, by vectors or by tiles as the kernel does, `KiB` what is read
    /// from and written to memory: each operand once, constants in the size that the model has them in; not
    /// what operations that are computed together hand on to each other, nor what was computed when the model
    /// was prepared. `-` stands where there is none, where dimensions are known in executions only, for peaks
    /// of a driver whose threads are not known (`--threads` says how many), and for kernels of other vendors'
    /// devices. Below them stand the sum and what a whole call took by the path while operations were
    /// recorded.
    #[arg(long, conflicts_with_all = ["expect", "labels", "full"])]
    pub(crate) profile: bool,
    /// Let floats be computed with the range and precision of 16 bits, as `relaxComputationFloat32toFloat16`
    /// of a model does.
    #[arg(long)]
    pub(crate) relaxed: bool,
    /// A text file with the names of the classes, one a line, for outputs that are scores of classes.
    #[arg(long, value_name = "F")]
    pub(crate) labels: Option<PathBuf>,
    /// Print every value of every output as it is stored. Else a row of more than ten real numbers is taken
    /// for scores of classes, of which the five largest are printed with their indices, as real numbers; of
    /// others the first ten.
    #[arg(long, conflicts_with = "labels")]
    pub(crate) full: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VtsArguments {
    /// The folder of the corpus.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "random",
        conflicts_with = "random"
    )]
    pub(crate) corpus: Option<PathBuf>,
    /// Instead of the corpus, this many random models of operations of every kind: each must give the same
    /// bytes by every path and each time, on a device those that the same kernels give in this process, and
    /// what the kernels of nnhal-reference give, as close as the HAL's criteria for random models ask.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) random: Option<u64>,
    /// With `--random`: only operations of NNAPI. Otherwise there are those of the extension
    /// org.nnhal.tflite, too, where a device has it.
    #[arg(long, conflicts_with = "corpus")]
    pub(crate) nnapi: bool,
    /// The seed of the first random model; one that failed is run again with `--seed SEED --random 1`.
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "corpus")]
    pub(crate) seed: u64,
    /// The device; by default the one that is fastest by its own account.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// How requests reach the model; by default every way to the driver, one after the other.
    #[arg(long, value_enum)]
    pub(crate) path: Option<Path>,
    /// What is tested.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) via: Via,
    /// With `--via capi`: the library, instead of the libneuralnetworks.so beside this command or that of the
    /// loader.
    #[arg(long, value_name = "FILE", requires = "via")]
    pub(crate) library: Option<PathBuf>,
    /// Have the runtime give the operations of a model to the first two devices in turn, so that it has to
    /// divide every model of more than one operation.
    #[arg(long, requires = "via", conflicts_with = "device")]
    pub(crate) split: bool,
    /// Where inputs and outputs are, if they go through the driver: by default `shared` for a device, which
    /// takes no other but `device`, and `own` for the runtime and the C API, which take no other but
    /// `shared`.
    #[arg(long, value_enum)]
    pub(crate) memory: Option<MemoryKind>,
    /// Only cases whose name matches this regular expression.
    #[arg(long, value_name = "RE", conflicts_with = "random")]
    pub(crate) filter: Option<Regex>,
    /// Cases run side by side, each on its own connection.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Take a case that is skipped, because the device does not support it, for one that failed.
    #[arg(long, conflicts_with = "random")]
    pub(crate) require_all: bool,
    /// Print JSON; the closing line goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StressArguments {
    /// A device; may be repeated. By default all of them.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// How long new cases are begun.
    #[arg(long, value_name = "N", default_value_t = 1.0, conflicts_with = "cases")]
    pub(crate) minutes: f64,
    /// Instead of for a time, this many cases on each device.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cases: Option<u64>,
    /// The seed of the first case; one that did not succeed is run again with `--seed SEED --cases 1`.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Cases that run side by side, each in a process of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// After how many seconds a case is taken for a hang, and ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Where each case that did not succeed is written, as a file of JSON with the command that repeats it.
    #[arg(long, value_name = "DIR")]
    pub(crate) failures: Option<PathBuf>,
    /// Print JSON; cases that did not succeed are told on standard error, too.
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the process of the one case of this seed.
    #[arg(long, hide = true, conflicts_with_all = ["cases", "failures", "json"])]
    pub(crate) one: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How many times each latency is measured.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) calls: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    /// A .tflite file.
    pub(crate) model: PathBuf,
    /// What to print.
    #[arg(long, value_enum, default_value_t = GraphFormat::Dot)]
    pub(crate) format: GraphFormat,
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// In Graphviz's language.
    Dot,
    /// As a picture, drawn by Graphviz, which must be installed.
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Round trips to another process, by every path, beside the least that the hardware allows.
    ///
    /// Both sides are pinned, and run under SCHED_FIFO where that is permitted: as root, or with a real-time
    /// limit.
    Latency(LatencyArguments),
    /// How long models take, from the call to the answer, with zeros as inputs.
    Compute(ComputeArguments),
    /// What nnhal-cpu says of itself: execution times relative to nnhal-reference, by the reference workload.
    ///
    /// Prints the table that the driver is built with.
    Capabilities(CapabilitiesArguments),
    /// Is the other process of a measurement.
    #[command(hide = true)]
    OtherSide {
        /// What it answers.
        role: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    /// The device; by default the fastest.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Interleaved rounds; figures are medians over them.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) choice: nnhal_bench::rows::Choice,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ComputeArguments {
    /// .tflite files. Their inputs are those of the first call that `input_0.npy` and so on beside them hold,
    /// or zeros.
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    /// The device; by default the one that is fastest by its own account.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// How requests reach the model.
    #[arg(long, value_enum, default_value_t = Path::Burst)]
    pub(crate) path: Path,
    /// Most threads that compute an execution; each number has a private driver, and rounds take turns.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) threads: Vec<u32>,
    /// Rounds; the figure is the median of their medians.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// How long a round of calls lasts, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub(crate) round_ms: u32,
    /// Let floats be computed with the range and precision of 16 bits, as `relaxComputationFloat32toFloat16`
    /// of a model does.
    #[arg(long)]
    pub(crate) relaxed: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CapabilitiesArguments {
    /// Interleaved rounds, the fastest of which counts.
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DriverArguments {
    /// As of nnhald.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
