//! What is said on standard output, and heard on standard input.

use std::io::{BufRead as _, Write as _};

/// Nobody listens any more if this fails: then there is nothing to go on for.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// Whether the next step may begin.
pub(crate) fn is_allowed() -> bool {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .is_ok_and(|bytes| bytes > 0)
}
