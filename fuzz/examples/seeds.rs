//! Writes the seeds of a target into its corpus: `cargo run --release --example seeds -- corpus/model`. An
//! example and no binary, because cargo-fuzz instruments all binaries and links this one without libFuzzer.

use std::path::PathBuf;

use nnhal_conformance::fuzzing::{extension_seeds, model_seeds};

/// How many random models of NNAPI's operations, and how many of the extension's, too.
const MODELS: u64 = 2000;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    for (kind, seeds) in [
        ("random", model_seeds(MODELS)),
        ("extension", extension_seeds(MODELS)),
    ] {
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("{kind}-{number}")), seed)?;
        }
    }
    Ok(())
}
