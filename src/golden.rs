//! Golden bytes: what peers exchange, written down, so that no change of a Rust type changes it unnoticed.
//!
//! A file has one entry for each message: a line with its name and a colon, then lines of hexadecimal digits.

use std::fmt::Write;
use std::path::Path;

/// Bytes on a line of a file.
const BYTES_PER_LINE: usize = 32;

/// Set to `add`, it has the tests write entries that the files lack. What is there is never rewritten: bytes
/// that have been released stay as they are.
const VARIABLE: &str = "NNHAL_GOLDEN";

/// Whether the tests are to write what is missing.
pub(crate) fn is_adding() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == "add")
}

/// The newest version whose messages are final: in a later one an existing message may still get another
/// form.
const FINAL: u32 = 2;

/// What a message is in a version of the protocol.
pub(crate) struct Encoded {
    /// Its name in the file.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: u32,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// What has been the same since the first version.
pub(crate) fn as_ever((name, bytes): (String, Vec<u8>)) -> Encoded {
    Encoded {
        name,
        version: 1,
        bytes,
    }
}

/// Compares what is encoded now with the file at `path` in this crate. A message has the bytes of its newest
/// entry that is no newer than the version. Its versions follow each other in the list.
///
/// # Panics
/// If any entry differs, or is there on one side only.
pub(crate) fn check(path: &str, encoded: &[Encoded]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut written = read(&text);
    let mut report = String::new();
    let mut last = "";
    for Encoded { name, version, bytes } in encoded {
        let entries = written
            .iter()
            .filter(|entry| entry.name == *name && entry.version <= *version);
        let before = entries.max_by_key(|entry| entry.version);
        let is_first = last != name;
        last = name;
        let title = match before {
            Some(before) if before.bytes == *bytes => continue,
            Some(before) if is_first || before.version == *version || *version <= FINAL => {
                let (before, bytes) = (hex(&before.bytes), hex(bytes));
                let _ = writeln!(report, "{name} differs; was:\n{before}is:\n{bytes}");
                continue;
            }
            // The version before has other bytes, and they are as they were.
            Some(_) => format!("{name} since {version}:\n"),
            None => format!("{name}:\n"),
        };
        text += &(title + &hex(bytes));
        written.push(Encoded {
            name: name.clone(),
            version: *version,
            bytes: bytes.clone(),
        });
        if !is_adding() {
            let _ = writeln!(
                report,
                "{name} has no entry; {VARIABLE}=add adds:\n{}",
                hex(bytes)
            );
        }
    }
    for Encoded { name, .. } in &written {
        if !encoded.iter().any(|encoded| encoded.name == *name) {
            let _ = writeln!(report, "{name} has an entry and is not encoded");
        }
    }
    assert!(report.is_empty(), "{}:\n{report}", path.display());
    if is_adding() {
        std::fs::write(&path, text).unwrap();
    }
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

fn read(text: &str) -> Vec<Encoded> {
    let mut entries: Vec<Encoded> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(title) = line.strip_suffix(':') {
            let (name, version) = title.split_once(" since ").unwrap_or((title, "1"));
            entries.push(Encoded {
                name: name.to_owned(),
                version: version.parse().expect("a version"),
                bytes: Vec::new(),
            });
            continue;
        }
        let entry = entries.last_mut().expect("a name before its bytes");
        let digits = line.trim();
        for at in (0..digits.len()).step_by(2) {
            let byte = u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
            entry.bytes.push(byte);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether these versions of a message agree with a file.
    fn agree(file: &str, versions: &[(u32, u8)]) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("golden.hex");
        std::fs::write(&path, file).unwrap();
        let encoded: Vec<_> = versions
            .iter()
            .map(|&(version, byte)| Encoded {
                name: "call".into(),
                version,
                bytes: vec![byte],
            })
            .collect();
        std::panic::catch_unwind(|| check(path.to_str().unwrap(), &encoded)).is_ok()
    }

    #[test]
    fn every_version_has_its_bytes() {
        if is_adding() {
            return;
        }
        let file = "# How it is.\ncall:\n  01\ncall since 3:\n  02\n";
        assert!(agree(file, &[(2, 1), (3, 2)]));
        assert!(agree(file, &[(3, 2), (4, 2)]));
        for wrong in [
            &[(2, 1), (3, 1)][..],
            &[(1, 1), (2, 2), (3, 2)],
            &[(2, 1), (3, 2), (4, 3)],
            &[],
        ] {
            assert!(!agree(file, wrong), "{wrong:?}");
        }
    }
}
