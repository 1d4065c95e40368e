//! Progress bars: only for people, who sit at a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for `length` steps of `what`, on standard error; invisible unless both outputs are terminals.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    if !(std::io::stdout().is_terminal() && std::io::stderr().is_terminal()) {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len} {eta}");
    let bar = ProgressBar::new(length).with_message(what);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
