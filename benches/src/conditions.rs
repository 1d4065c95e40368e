//! Under which conditions figures were measured.

use nnhal_os::sched;
use serde::Serialize;

use crate::machine;

/// What must be known to compare figures.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The version of nnhal.
    pub version: &'static str,
    /// The name of the processor.
    pub cpu: String,
    /// How many processors are online.
    pub cpus_online: usize,
    /// The processors of this side and of the other.
    pub cpus_used: [usize; 2],
    /// The kernel's version.
    pub kernel: String,
    /// How threads were scheduled.
    pub scheduling: String,
    /// How many threads wanted to run over the minute before the start.
    pub load_before: String,
    /// Whether the program was optimised.
    pub optimised: bool,
    /// How many interleaved rounds there were.
    pub rounds: u32,
    /// What reading the clock costs, in nanoseconds; it is taken off each sample.
    pub clock_ns: u64,
    /// How the ping-pong polls: `bare` or `paused`, whichever is faster.
    pub ping_pong_polls: &'static str,
    /// The device that the driver's rows ran on.
    pub device: String,
    /// What else a reader should know.
    pub notes: Vec<String>,
}

/// A line about a measurement whose processes run where the system puts them.
impl std::fmt::Display for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_optimised = if self.optimised { "" } else { "; NOT OPTIMISED" };
        write!(
            f,
            "{} processors, {}, kernel {}, load before {}, device {}; {} rounds{is_optimised}",
            self.cpus_online, self.cpu, self.kernel, self.load_before, self.device, self.rounds
        )
    }
}

impl Conditions {
    /// What can be known before measuring.
    #[must_use]
    pub fn of_this_machine(rounds: u32) -> Conditions {
        Conditions {
            version: env!("CARGO_PKG_VERSION"),
            cpu: machine::cpu_model(),
            cpus_online: sched::online_cpus(),
            cpus_used: machine::processors().unwrap_or_default(),
            kernel: machine::kernel(),
            scheduling: String::new(),
            load_before: machine::load(),
            optimised: !cfg!(debug_assertions),
            rounds,
            clock_ns: 0,
            ping_pong_polls: "",
            device: String::new(),
            notes: Vec::new(),
        }
    }
}
