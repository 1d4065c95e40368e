//! The inputs that are kept in the tree, in `fuzz/seeds`: a folder for each target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::generator::choices::Random;

/// When this is `write`, the seeds that a test makes are written into the tree.
const VARIABLE: &str = "NNHAL_SEEDS";

/// How often each input is changed and tried again.
const MUTATIONS: usize = 100;

/// Has `entry` read each input of a target that is kept in the tree, and mutations of it.
///
/// `made` are the seeds of the target. With `NNHAL_SEEDS=write` they are written first, in the place of those
/// that were made before. What was found stays.
///
/// # Panics
/// If there are no inputs, or if the entry fails for one of them.
pub fn check<T>(target: &str, made: &[Vec<u8>], mut entry: impl FnMut(&[u8]) -> T) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "write") {
        write(&folder, made);
    }
    let paths = inputs(&folder);
    assert!(!paths.is_empty(), "{} has no inputs", folder.display());
    let mut random = Random::new(1);
    let mut expect = |bytes: &[u8], what: &dyn std::fmt::Display| {
        let outcome = catch_unwind(AssertUnwindSafe(|| entry(bytes)));
        assert!(outcome.is_ok(), "{what} fails: {bytes:?}");
    };
    for path in paths {
        let bytes = fs::read(&path).expect("an input that can be read");
        expect(&bytes, &path.display());
        for number in 0..MUTATIONS {
            let what = format!("mutation {number} of {}", path.display());
            expect(&mutate(&bytes, &mut random), &what);
        }
    }
}

fn inputs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn write(folder: &Path, made: &[Vec<u8>]) {
    fs::create_dir_all(folder).expect("a folder for the seeds");
    let is_made = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("seed-"))
    };
    for path in inputs(folder).iter().filter(|path| is_made(path)) {
        fs::remove_file(path).expect("a seed that can be removed");
    }
    for (number, seed) in made.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:02}")), seed).expect("a seed that can be written");
    }
}

/// The packets of an input: each is two bytes, its length, and so many bytes, or what is there of them.
pub fn packets(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (packet, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        Some(packet)
    })
}

/// The input that has these packets. None is longer than 64 KiB.
#[must_use]
pub fn joined<P: AsRef<[u8]>>(packets: &[P]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets.iter().map(AsRef::as_ref) {
        bytes.extend((packet.len() as u16).to_le_bytes());
        bytes.extend(packet);
    }
    bytes
}

/// Changes a few bytes at random places, as a fuzzer does that knows nothing.
#[must_use]
pub fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u32) as usize;
        let value = random.bits().to_le_bytes()[0];
        match (random.below(24), bytes.get_mut(at)) {
            (0..6, Some(byte)) => *byte = value,
            (6..12, Some(byte)) => *byte ^= 1 << (value % 8),
            (12..18, Some(byte)) => *byte = byte.wrapping_add(1),
            (18..22, Some(byte)) => *byte = [0, 0xFF, 0x7F, 0x80][usize::from(value % 4)],
            (22, Some(_)) => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, value),
        }
    }
    bytes
}
