//! The importer over files with a few bytes changed: refused or imported, never a panic. The continuous form
//! is the target `tflite` in `fuzz/`.

use std::path::Path;

/// How many changed files are tried.
const STEPS: u64 = 4000;

/// Larger files take too long to copy so often.
const MOST_BYTES: usize = 1 << 17;

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// The project's own models, and the small ones of the shared collection where it is there.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shared = std::env::var_os("NNHAL_SHARED").map_or_else(|| root.join("../shared"), Into::into);
    let mut folders = vec![root.join("models")];
    match std::fs::read_dir(shared.join("models")) {
        Ok(entries) => folders.extend(entries.flatten().map(|entry| entry.path())),
        Err(_) => eprintln!(
            "SKIPPED the shared models, own ones only: there is no {}",
            shared.display()
        ),
    }
    folders.push(root.join("models/digits"));
    folders.sort();
    let files = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let models = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "tflite"));
    let bytes = models.map(|path| std::fs::read(path).unwrap());
    bytes.filter(|bytes| bytes.len() <= MOST_BYTES).collect()
}

/// Most of a file is weights; its structure is at both ends.
fn place(random: u64, length: usize) -> usize {
    let length = length as u64;
    let near = random >> 3;
    let at = match random & 7 {
        0..=2 => near % length.min(4096),
        3..=5 => length - 1 - near % length.min(8192),
        _ => near % length,
    };
    at as usize
}

#[test]
fn files_with_changed_bytes_are_refused_or_imported() {
    let seeds = seeds();
    assert!(!seeds.is_empty());
    let mut state = 1;
    let mut imported = 0;
    for step in 0..STEPS {
        let mut bytes = seeds[step as usize % seeds.len()].clone();
        for _ in 0..=next(&mut state) % 4 {
            let at = place(next(&mut state), bytes.len());
            let change = next(&mut state);
            bytes[at] = match change & 3 {
                0 => (change >> 8) as u8,
                1 => bytes[at] ^ 1 << (change >> 8 & 7),
                2 => bytes[at].wrapping_add(1),
                _ => [0, 0xFF, 0x7F, 0x80][(change >> 8 & 3) as usize],
            };
        }
        let result = std::panic::catch_unwind(|| nnhal_tflite::import(&bytes).is_ok());
        imported += usize::from(result.unwrap_or_else(|_| panic!("step {step} panics")));
    }
    println!("{imported} of {STEPS} changed files still import");
}
