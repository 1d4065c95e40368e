//! `vendor-driver`: a second vendor's driver daemon.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    vendor_driver::daemon().run(std::env::args_os().skip(1))
}
