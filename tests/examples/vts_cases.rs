//! Prints docs/vts-cases.md.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().expect("the workspace");
    print!("{}", nnhal_tests::vts_cases::page(&root));
}
