//! Golden bytes: what peers exchange, written down, so that no change of a Rust type changes it unnoticed.
//!
//! A file has one entry for each message: a line with its name and a colon, then lines of hexadecimal digits.

use std::fmt::Write;
use std::path::Path;

/// Bytes on a line of a file.
const BYTES_PER_LINE: usize = 32;

/// Set to `add`, it has the tests write entries that the files lack. What is there is never rewritten: bytes that have
/// been released stay as they are.
const VARIABLE: &str = "NNHAL_GOLDEN";

/// Whether the tests are to write what is missing.
pub(crate) fn is_adding() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == "add")
}

/// Compares what is encoded now with the file at `path` in this crate, both ways.
///
/// # Panics
/// If any entry differs, or is there on one side only.
pub(crate) fn check(path: &str, encoded: &[(String, Vec<u8>)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut text = std::fs::read_to_string(&path).unwrap_or_default();
    let written = read(&text);
    let is_adding = is_adding();
    let mut report = String::new();
    for (at, (name, bytes)) in encoded.iter().enumerate() {
        assert!(
            encoded[..at].iter().all(|(other, _)| other != name),
            "{name} is there twice"
        );
        match written.iter().find(|(other, _)| other == name) {
            Some((_, before)) if before == bytes => {}
            Some((_, before)) => {
                let same = before.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                let _ = writeln!(
                    report,
                    "{name} differs from byte {same} on; was:\n{}is:\n{}",
                    hex(before),
                    hex(bytes)
                );
            }
            None if is_adding => text += &format!("{name}:\n{}", hex(bytes)),
            None => {
                let _ = writeln!(
                    report,
                    "{name} has no entry; {VARIABLE}=add adds:\n{}",
                    hex(bytes)
                );
            }
        }
    }
    for (name, _) in &written {
        if !encoded.iter().any(|(other, _)| other == name) {
            let _ = writeln!(report, "{name} has an entry and is not encoded");
        }
    }
    if is_adding {
        std::fs::write(&path, text).unwrap();
    }
    assert!(report.is_empty(), "{}:\n{report}", path.display());
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(BYTES_PER_LINE) {
        text += "  ";
        for byte in line {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text
}

fn read(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_suffix(':') {
            entries.push((name.to_owned(), Vec::new()));
            continue;
        }
        let (_, bytes) = entries.last_mut().expect("a name before its bytes");
        let digits = line.trim();
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits"));
        }
    }
    entries
}
