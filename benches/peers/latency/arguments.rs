//! What the command line says.

use std::path::PathBuf;

use clap::Parser;
use nnhal_bench::program::Options;
use nnhal_bench::rows::Choice;

/// What to measure, and where to write it.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Options,
    /// Where to write the plot of the distributions.
    // Cargo runs benchmarks in their package's folder.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/latency.svg"))]
    pub(crate) svg: PathBuf,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// The rows to measure beside the ping-pong; without it all.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) rows: Vec<String>,
}
