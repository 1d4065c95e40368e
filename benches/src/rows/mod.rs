//! The contestants that need nothing but nnhal and the system.

mod choice;
mod copied_ping_pong;
pub mod driver;
mod fmq;
mod in_process;
mod ping_pong;
mod unix_seqpacket;

pub use choice::Choice;
pub use copied_ping_pong::CopiedPingPong;
pub use fmq::Fmq;
pub use in_process::InProcess;
pub use ping_pong::{PingPong, Polls};
pub use unix_seqpacket::UnixSeqpacket;

use nnhal_client::Device;

use crate::conditions::Conditions;
use crate::models::VALUE_BYTES;
use crate::other_side::{Invocation, Role};
use crate::{Contest, Result};

/// The other sides of these contestants.
pub const ROLES: [Role; 4] = [
    ping_pong::ROLE,
    copied_ping_pong::ROLE,
    fmq::ROLE,
    unix_seqpacket::ROLE,
];

/// Payloads beside the smallest, in bytes.
pub const PAYLOADS: [u32; 4] = [64, 4096, 65_536, 1 << 20];

/// Adds all of them to a contest, the ping-pong first; `payloads` are measured beside the smallest.
///
/// # Errors
/// A process cannot be started, the driver cannot be connected to, a model cannot be prepared.
pub fn add_all(
    contest: &mut Contest,
    invocation: &Invocation,
    device: &Device,
    payloads: &[u32],
    conditions: &mut Conditions,
) -> Result<()> {
    let ping_pong = PingPong::start(invocation)?;
    let polls = ping_pong.polls();
    conditions.ping_pong_polls = polls.name();
    conditions.device = device.name().to_owned();
    contest.add(ping_pong)?;
    contest.add(InProcess::new(1)?)?;
    contest.add(Fmq::start(invocation)?)?;
    for payload in payloads {
        // Rows of a driver carry whole values.
        let values = payload / VALUE_BYTES;
        contest.add_limit(CopiedPingPong::start(invocation, values * VALUE_BYTES, polls)?)?;
        contest.add(InProcess::new(values)?)?;
    }
    conditions
        .notes
        .extend(driver::add_all(contest, device, payloads)?);
    contest.add(UnixSeqpacket::start(invocation, 64)?)?;
    for &payload in payloads
        .iter()
        .filter(|payload| **payload > 64 && **payload <= UnixSeqpacket::LARGEST)
    {
        contest.add(UnixSeqpacket::start(invocation, payload)?)?;
    }
    Ok(())
}
