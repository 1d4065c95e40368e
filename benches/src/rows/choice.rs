//! What people can choose of the contest.

use clap::Args;

use super::PAYLOADS;
use crate::Contest;

/// Which payloads are measured, and how threads are scheduled meanwhile.
#[derive(Clone, Debug, Args)]
pub struct Choice {
    /// Only the smallest payload of each path.
    #[arg(long, conflicts_with = "payloads")]
    only_smallest: bool,
    /// The payloads to measure beside the smallest, in bytes.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_values_t = PAYLOADS,
          value_parser = clap::value_parser!(u32).range(SMALLEST..=LARGEST))]
    payloads: Vec<u32>,
    /// Do not use SCHED_FIFO, even if it is permitted: for machines that have other things to do meanwhile.
    #[arg(long)]
    without_real_time: bool,
    /// Round trips of a row in each round; by default as many as take some 60 ms.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    trips: Option<u32>,
}

/// What every row can carry.
const SMALLEST: i64 = 64;
/// Round trips of more take so long that a row is not measured in sensible time.
const LARGEST: i64 = 1 << 26;

impl Choice {
    /// An empty contest of so many rounds.
    #[must_use]
    pub fn contest(&self, rounds: u32) -> Contest {
        let mut contest = Contest::new(rounds);
        if self.without_real_time {
            contest = contest.without_real_time();
        }
        match self.trips {
            Some(trips) => contest.trips(trips),
            None => contest,
        }
    }

    /// The payloads beside the smallest.
    #[must_use]
    pub fn payloads(&self) -> &[u32] {
        if self.only_smallest { &[] } else { &self.payloads }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        choice: Choice,
    }

    fn payloads(arguments: &[&str]) -> Result<Vec<u32>, clap::Error> {
        let program = Program::try_parse_from(["latency"].iter().chain(arguments))?;
        Ok(program.choice.payloads().to_vec())
    }

    #[test]
    fn payloads_are_those_of_the_published_figures_unless_others_are_named() {
        assert_eq!(payloads(&[]).unwrap(), PAYLOADS);
        assert!(payloads(&["--only-smallest"]).unwrap().is_empty());
        assert_eq!(payloads(&["--payloads", "64,256"]).unwrap(), [64, 256]);
        assert!(payloads(&["--payloads", "64", "--only-smallest"]).is_err());
        assert!(payloads(&["--payloads", "8"]).is_err());
    }
}
