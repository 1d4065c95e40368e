//! How many processors there are.

use std::sync::OnceLock;

/// On how many processors this process may compute, as it was when this was first asked for. That reads
/// files, which a worker in its jail cannot.
pub(crate) fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
