//! Writes the seeds of a target into its corpus: `cargo run --release --example seeds -- corpus/model`. An
//! example and no binary, because cargo-fuzz instruments all binaries and links this one without libFuzzer.

use std::path::PathBuf;

/// How many random models.
const MODELS: u64 = 2000;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    for (number, seed) in nnhal_conformance::fuzzing::model_seeds(MODELS).iter().enumerate() {
        std::fs::write(folder.join(format!("random-{number}")), seed)?;
    }
    Ok(())
}
