//! Round trips to another process, by nnhal and by its peers, measured in one run.
//!
//! Rows, in interleaved rounds, each with a process for the other side, both sides pinned, under SCHED_FIFO
//! where that is permitted:
//! - `ping_pong`: two words in two cache lines: the limit of the hardware;
//! - `copied_ping_pong`: payloads that one process writes and the other copies out, and back: their limit;
//! - `in_process`: the model's execution in this process, without a driver;
//! - `fmq`: a fast message queue, one cell of 56 bytes each way;
//! - `burst_registered`, `burst_general`, `sync`, `async`, `fenced`: ADD through the client library, with
//!   arguments in the cells of the rings, in memory of the application, in shared memory and in device
//!   buffers;
//! - `fenced_chain`: three fenced executions, each waiting for the one before;
//! - `unix_seqpacket`: a Unix socket;
//! - `ipc_channel`: the crate ipc-channel, a struct by serde;
//! - `iceoryx2_request_response`: iceoryx2, both sides polling;
//! - `tonic_uds`: a unary gRPC call over a Unix socket.
//!
//! `cargo bench --bench latency -- [--rounds N] [--json FILE] [--svg FILE] [--only-smallest | --payloads
//! BYTES,...] [--trips N] [--without-real-time] [--rows NAME,...]` prints a table, and writes JSON and a plot
//! of the distributions (by default target/latency.svg).
#![forbid(unsafe_code)]

mod arguments;
mod iceoryx2_row;
mod ipc_channel_row;
mod plot;
mod tonic_row;

use std::io::Write as _;
use std::process::ExitCode;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::Role;
use nnhal_bench::{Error, Result, program, rows};

use arguments::Arguments;

/// The other sides of the peers.
const PEERS: [Role; 3] = [iceoryx2_row::ROLE, ipc_channel_row::ROLE, tonic_row::ROLE];

/// Rounds if nothing else is said.
const ROUNDS: u32 = 7;

fn main() -> ExitCode {
    let roles: Vec<Role> = rows::ROLES.into_iter().chain(PEERS).collect();
    program::run(&roles, measure)
}

fn measure(arguments: Arguments) -> Result<()> {
    let rounds = arguments.common.rounds.unwrap_or(ROUNDS);
    let device = program::own_driver()?.fastest()?;
    let mut conditions = Conditions::of_this_machine(rounds);
    let mut contest = arguments.choice.contest(rounds).only(arguments.rows);
    let invocation = program::other_sides();
    let payloads = arguments.choice.payloads();
    rows::add_all(&mut contest, &invocation, &device, payloads, &mut conditions)?;
    ipc_channel_row::add_all(&mut contest, &invocation, payloads)?;
    iceoryx2_row::add(&mut contest, &invocation)?;
    tonic_row::add_all(&mut contest, &invocation, payloads)?;
    let report = contest.run(conditions, |progress| {
        // Only people look at it.
        let _ = writeln!(std::io::stderr(), "{progress}");
    })?;
    program::print(&report)?;
    program::write_json(&report, arguments.common.json.as_deref())?;
    plot::write(&report, &arguments.svg)?;
    writeln!(std::io::stdout(), "distributions: {}", arguments.svg.display())
        .map_err(Error::io("print the table"))
}
