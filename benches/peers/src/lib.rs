//! nnhal's latency beside its peers', in one run: `cargo bench --bench latency -- [--json FILE]`.
//!
//! A package of its own, so that nothing but this benchmark builds the peers. It holds nothing else.
#![forbid(unsafe_code)]
