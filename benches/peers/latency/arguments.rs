//! What the command line says.

use std::ffi::OsString;
use std::path::PathBuf;

use nnhal_bench::{Error, Result};

/// Rounds if nothing else is said.
const ROUNDS: u32 = 7;

/// What to measure, and where to write it.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) rounds: u32,
    pub(crate) json: Option<PathBuf>,
    pub(crate) svg: PathBuf,
    /// No payloads but the smallest.
    pub(crate) only_smallest: bool,
    /// The rows to measure beside the ping-pong; all if there are none.
    pub(crate) rows: Vec<String>,
}

impl Arguments {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Arguments> {
        let mut parsed = Arguments {
            rounds: ROUNDS,
            json: None,
            // Cargo runs benchmarks in their package's folder.
            svg: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/latency.svg")),
            only_smallest: false,
            rows: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let name = argument.to_string_lossy().into_owned();
            let mut value = || {
                arguments.next().ok_or_else(|| Error::Row {
                    what: name.clone(),
                    reason: "a value must follow".to_owned(),
                })
            };
            match name.as_str() {
                "--rounds" => {
                    let text = value()?.to_string_lossy().into_owned();
                    parsed.rounds = text.parse().map_err(Error::row("--rounds"))?;
                }
                "--json" => parsed.json = Some(value()?.into()),
                "--svg" => parsed.svg = value()?.into(),
                "--only-smallest" => parsed.only_smallest = true,
                "--rows" => {
                    let text = value()?.to_string_lossy().into_owned();
                    parsed.rows = text.split(',').map(str::to_owned).collect();
                }
                // Cargo adds it.
                "--bench" => {}
                _ => {
                    return Err(Error::Row {
                        what: name,
                        reason:
                            "unknown; known are --rounds N, --rows NAME,..., --json FILE, --svg FILE and \
                                 --only-smallest"
                                .to_owned(),
                    });
                }
            }
        }
        Ok(parsed)
    }
}
