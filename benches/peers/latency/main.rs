//! Round trips to another process, by nnhal and by its peers, measured in one run.
//!
//! Rows, in interleaved rounds, each with a process for the other side, both sides pinned, under SCHED_FIFO where that is
//! permitted:
//! - `ping_pong`: two words in two cache lines: the limit of the hardware;
//! - `in_process`: the model's execution in this process, without a driver;
//! - `fmq`: a fast message queue, one cell of 56 bytes each way;
//! - `burst_registered`, `burst_general`, `sync`, `async`, `fenced`: ADD through the client library;
//! - `unix_seqpacket`: a Unix socket;
//! - `ipc_channel`: the crate ipc-channel, a struct by serde;
//! - `iceoryx2_request_response`: iceoryx2, both sides polling;
//! - `tonic_uds`: a unary gRPC call over a Unix socket.
//!
//! `cargo bench --bench latency -- [--rounds N] [--json FILE] [--svg FILE] [--only-smallest]` prints a table, and writes
//! JSON and a plot of the distributions (by default target/latency.svg).
#![forbid(unsafe_code)]

mod arguments;
mod iceoryx2_row;
mod ipc_channel_row;
mod plot;
mod tonic_row;

use std::io::Write as _;
use std::process::ExitCode;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{self, Invocation, Role};
use nnhal_bench::{Contest, Error, Result, rows};
use nnhal_client::DevicesOptions;
use nnhal_driver::{Daemon, DeviceRegistry};

use arguments::Arguments;

/// Leads to [`other_side::answer`].
const OTHER_SIDE: &str = "--other-side";
/// Leads to the driver.
const DRIVER: &str = "--driver";

/// The other sides of the peers.
const PEERS: [Role; 3] = [iceoryx2_row::ROLE, ipc_channel_row::ROLE, tonic_row::ROLE];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == DRIVER).is_some() {
        return Daemon::new(DeviceRegistry::of_nnhal())
            .reached_by([DRIVER])
            .run(arguments);
    }
    let result = match arguments.next_if(|first| first == OTHER_SIDE) {
        Some(_) => {
            let role = arguments.next().unwrap_or_default();
            let roles: Vec<Role> = rows::ROLES.into_iter().chain(PEERS).collect();
            other_side::answer(&role.to_string_lossy(), &roles)
        }
        None => measure(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error the exit code says enough.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<()> {
    let arguments = Arguments::parse(arguments)?;
    let executable = std::env::current_exe().map_err(Error::io("find this program's file"))?;
    let device = DevicesOptions::new()
        .private()
        .own_driver(executable, [DRIVER])
        .open()?
        .fastest()?;
    let mut conditions = Conditions::of_this_machine(arguments.rounds);
    let mut contest = Contest::new(arguments.rounds);
    let invocation = Invocation::new([OTHER_SIDE]);
    let payloads: &[u32] = if arguments.only_smallest {
        &[]
    } else {
        &rows::PAYLOADS
    };
    rows::add_all(&mut contest, &invocation, &device, payloads, &mut conditions)?;
    ipc_channel_row::add_all(&mut contest, &invocation, payloads)?;
    iceoryx2_row::add(&mut contest, &invocation)?;
    tonic_row::add_all(&mut contest, &invocation, payloads)?;
    let report = contest.run(conditions, |progress| {
        // Only people look at it.
        let _ = writeln!(std::io::stderr(), "{progress}");
    })?;
    let mut out = std::io::stdout().lock();
    write!(out, "{report}").map_err(Error::io("print the table"))?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(Error::row("JSON"))?;
        std::fs::write(path, text + "\n").map_err(Error::io(format!("write {}", path.display())))?;
    }
    plot::write(&report, &arguments.svg)?;
    writeln!(out, "distributions: {}", arguments.svg.display()).map_err(Error::io("print the table"))
}
