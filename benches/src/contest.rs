//! Contestants, and the rounds in which they are measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::conditions::Conditions;
use crate::machine::{self, Scheduling};
use crate::passing::Passing;
use crate::report::{Report, Row};
use crate::samples::{Samples, median, quantile};
use crate::{Error, Result};

/// One way to another place and back.
pub trait Contestant {
    /// The name of its row.
    fn name(&self) -> &'static str;

    /// How many bytes travel each way.
    fn payload_bytes(&self) -> u64;

    /// How they do, if they are arguments of an execution by a driver.
    fn arguments(&self) -> Option<Passing> {
        None
    }

    /// The processes of the other side.
    fn others(&self) -> Vec<u32>;

    /// Prepares for so many round trips, which follow.
    ///
    /// # Errors
    /// The other side is gone.
    fn begin(&mut self, trips: u32) -> Result<()>;

    /// Goes there and back once, and looks whether the right thing came back.
    ///
    /// # Errors
    /// Whatever went wrong ends the measurement.
    fn trip(&mut self) -> Result<()>;
}

/// A contestant whose loop is compiled for it.
trait Entrant {
    fn name(&self) -> &'static str;
    fn payload_bytes(&self) -> u64;
    fn arguments(&self) -> Option<Passing>;
    fn others(&self) -> Vec<u32>;
    fn round(&mut self, trips: u32, samples: &mut Samples) -> Result<()>;
}

impl<C: Contestant> Entrant for C {
    fn name(&self) -> &'static str {
        Contestant::name(self)
    }

    fn payload_bytes(&self) -> u64 {
        Contestant::payload_bytes(self)
    }

    fn arguments(&self) -> Option<Passing> {
        Contestant::arguments(self)
    }

    fn others(&self) -> Vec<u32> {
        Contestant::others(self)
    }

    fn round(&mut self, trips: u32, samples: &mut Samples) -> Result<()> {
        self.begin(trips)?;
        samples.start(trips);
        for _ in 0..trips {
            self.trip()?;
            samples.lap();
        }
        Ok(())
    }
}

/// The first round trips of a row, which are not counted.
const WARM_UP: u32 = 200;
/// How long a row's round should take.
const ROUND: Duration = Duration::from_millis(60);
const FEWEST_TRIPS: u64 = 1000;
const MOST_TRIPS: u64 = 100_000;

/// Measures contestants in interleaved rounds.
pub struct Contest {
    entries: Vec<Entry>,
    rounds: u32,
    /// The names of the rows that are measured beside the first; all if there are none.
    only: Vec<String>,
    is_real_time: bool,
    /// How many round trips a row's round has; by default as many as take [`ROUND`].
    trips: Option<u32>,
}

struct Entry {
    entrant: Box<dyn Entrant>,
    /// Whether rows of as many bytes are compared with it.
    is_limit: bool,
    trips: u32,
    /// One for each round.
    quantiles: Vec<[u64; 3]>,
    histogram: Histogram<u64>,
}

impl std::fmt::Debug for Contest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.entries.iter().map(|entry| entry.entrant.name()).collect();
        f.debug_struct("Contest").field("rows", &names).finish()
    }
}

impl Contest {
    /// A contest of so many rounds.
    #[must_use]
    pub fn new(rounds: u32) -> Contest {
        Contest {
            entries: Vec::new(),
            rounds: rounds.max(1),
            only: Vec::new(),
            is_real_time: true,
            trips: None,
        }
    }

    /// Has each row's round have so many round trips, and as many to warm up, instead of as many as take some
    /// tens of milliseconds.
    #[must_use]
    pub fn trips(mut self, trips: u32) -> Contest {
        self.trips = Some(trips.max(1));
        self
    }

    /// Leaves all sides scheduled as other processes are, instead of before them where that is permitted.
    #[must_use]
    pub fn without_real_time(mut self) -> Contest {
        self.is_real_time = false;
        self
    }

    /// Leaves out what is added later, but for the first row and limits, unless it has one of these names.
    #[must_use]
    pub fn only(mut self, names: Vec<String>) -> Contest {
        self.only = names;
        self
    }

    /// Adds a contestant. The first one is what the others are compared with.
    ///
    /// # Errors
    /// No histogram can be made.
    pub fn add(&mut self, contestant: impl Contestant + 'static) -> Result<()> {
        let is_wanted = self.only.is_empty() || self.only.iter().any(|name| name == contestant.name());
        if !is_wanted && !self.entries.is_empty() {
            return Ok(());
        }
        self.enter(contestant, false)
    }

    /// Adds a contestant with which those are compared that carry as many bytes.
    ///
    /// # Errors
    /// As [`Contest::add`].
    pub fn add_limit(&mut self, contestant: impl Contestant + 'static) -> Result<()> {
        self.enter(contestant, true)
    }

    fn enter(&mut self, contestant: impl Contestant + 'static, is_limit: bool) -> Result<()> {
        // A minute is longer than any wait here.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Error::row("histogram"))?;
        self.entries.push(Entry {
            entrant: Box::new(contestant),
            is_limit,
            trips: 0,
            quantiles: Vec::new(),
            histogram,
        });
        Ok(())
    }

    /// Measures, and says how it goes to `progress`.
    ///
    /// # Errors
    /// What went wrong in a row, with its name.
    pub fn run(mut self, mut conditions: Conditions, mut progress: impl FnMut(&str)) -> Result<Report> {
        let mut samples = Samples::new();
        for entry in &mut self.entries {
            entry.warm_up(&mut samples, self.trips)?;
        }
        conditions.rounds = self.rounds;
        conditions.clock_ns = u64::try_from(samples.clock_cost().as_nanos()).unwrap_or(u64::MAX);
        conditions.scheduling = self.settle(conditions.cpus_used, &mut conditions.notes);
        for round in 1..=self.rounds {
            progress(&format!("round {round} of {}", self.rounds));
            for entry in &mut self.entries {
                entry.measure(&mut samples)?;
            }
        }
        Ok(Report {
            conditions,
            rows: self.rows(),
            histograms: self.entries.into_iter().map(|entry| entry.histogram).collect(),
        })
    }

    /// Puts all sides where they are measured; says how they are scheduled.
    fn settle(&self, [own, other]: [usize; 2], notes: &mut Vec<String>) -> String {
        let mut pids: Vec<u32> = self
            .entries
            .iter()
            .flat_map(|entry| entry.entrant.others())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        let sides = pids
            .into_iter()
            .map(|pid| (pid, other))
            .chain([(std::process::id(), own)]);
        let settle = if self.is_real_time {
            machine::settle
        } else {
            machine::pin
        };
        let mut worst = Scheduling::Fifo;
        for (pid, cpu) in sides {
            match settle(pid, cpu) {
                Ok(Scheduling::Fifo) => {}
                Ok(normal) => worst = normal,
                Err(error) => notes.push(format!("process {pid} stays where it was: {error}")),
            }
        }
        worst.name().to_owned()
    }

    fn rows(&self) -> Vec<Row> {
        let reference = self
            .entries
            .first()
            .map(|entry| entry.quantiles.clone())
            .unwrap_or_default();
        let of_payload = |bytes: u64| {
            let mut limits = self.entries.iter().filter(|entry| entry.is_limit);
            limits.find(|limit| limit.entrant.payload_bytes() == bytes)
        };
        let row = |entry: &Entry| {
            let copied = of_payload(entry.entrant.payload_bytes());
            Row {
                ratio_copied_p50: copied.map(|limit| entry.ratio_p50(&limit.quantiles)),
                ..entry.row(&reference)
            }
        };
        self.entries.iter().map(row).collect()
    }
}

impl Entry {
    /// Finds out how many round trips a round has, unless it is said.
    fn warm_up(&mut self, samples: &mut Samples, trips: Option<u32>) -> Result<()> {
        let name = self.entrant.name();
        if let Some(trips) = trips {
            self.trips = trips;
            return self.entrant.round(trips, samples).map_err(Error::row(name));
        }
        self.entrant.round(WARM_UP, samples).map_err(Error::row(name))?;
        let start = Instant::now();
        self.entrant.round(WARM_UP, samples).map_err(Error::row(name))?;
        let each = start.elapsed().as_nanos() as u64 / u64::from(WARM_UP);
        let trips = ROUND.as_nanos() as u64 / each.max(1);
        // Between the bounds, which fit.
        self.trips = trips.clamp(FEWEST_TRIPS, MOST_TRIPS) as u32;
        Ok(())
    }

    fn measure(&mut self, samples: &mut Samples) -> Result<()> {
        let name = self.entrant.name();
        self.entrant
            .round(self.trips, samples)
            .map_err(Error::row(name))?;
        for sample in samples.taken().iter() {
            self.histogram.saturating_record((*sample).max(1));
        }
        let quantiles = [0.5, 0.99, 0.999].map(|part| quantile(samples.taken(), part));
        self.quantiles.push(quantiles);
        Ok(())
    }

    fn row(&self, reference: &[[u64; 3]]) -> Row {
        let over_rounds = |at: usize| {
            let values: Vec<f64> = self.quantiles.iter().map(|round| round[at] as f64).collect();
            median(&values)
        };
        Row {
            name: self.entrant.name().to_owned(),
            payload_bytes: self.entrant.payload_bytes(),
            arguments: self.entrant.arguments(),
            p50_ns: over_rounds(0),
            p99_ns: over_rounds(1),
            p999_ns: over_rounds(2),
            max_ns: self.histogram.max() as f64,
            ratio_p50: self.ratio_p50(reference),
            ratio_copied_p50: None,
        }
    }

    /// The median over the rounds of how this row's median is to another's.
    fn ratio_p50(&self, other: &[[u64; 3]]) -> f64 {
        let rounds = self.quantiles.iter().zip(other);
        let ratios: Vec<f64> = rounds
            .map(|(own, other)| own[0] as f64 / (other[0] as f64).max(1.0))
            .collect();
        median(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes nowhere; takes longer the larger it is.
    struct Loop(u64);

    impl Contestant for Loop {
        fn name(&self) -> &'static str {
            if self.0 > 1000 { "long" } else { "short" }
        }
        fn payload_bytes(&self) -> u64 {
            0
        }
        fn others(&self) -> Vec<u32> {
            Vec::new()
        }
        fn begin(&mut self, _: u32) -> Result<()> {
            Ok(())
        }
        fn trip(&mut self) -> Result<()> {
            let sum = (0..self.0).fold(0, |sum: u64, n| std::hint::black_box(sum + n));
            if sum == 1 {
                Err(Error::wrong_answer("loop"))
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn ratios_are_to_the_first_row() {
        // Entries alone: a contest would pin the test's process.
        let mut samples = Samples::new();
        let mut contest = Contest::new(3);
        contest.add(Loop(100)).unwrap();
        contest.add(Loop(10_000)).unwrap();
        for _ in 0..3 {
            for entry in &mut contest.entries {
                entry.trips = 100;
                entry.measure(&mut samples).unwrap();
            }
        }
        let rows = contest.rows();
        assert_eq!(rows[0].ratio_p50, 1.0);
        assert!(rows[1].ratio_p50 > 2.0, "{rows:?}");
        assert!(rows[1].max_ns >= rows[1].p50_ns * 0.99);
    }

    #[test]
    fn rows_of_as_many_bytes_are_compared_with_a_limit_that_is_left_in() {
        let mut contest = Contest::new(1).only(vec!["long".to_owned()]);
        contest.add(Loop(100)).unwrap();
        contest.add_limit(Loop(200)).unwrap();
        contest.add(Loop(10_000)).unwrap();
        let quantiles = [[10, 10, 10], [40, 40, 40], [60, 60, 60]];
        for (entry, quantiles) in contest.entries.iter_mut().zip(quantiles) {
            entry.quantiles.push(quantiles);
        }
        let ratios = |contest: &Contest| -> Vec<_> {
            let rows = contest.rows().into_iter();
            rows.map(|row| (row.ratio_p50, row.ratio_copied_p50)).collect()
        };
        let with = [(1.0, Some(0.25)), (4.0, Some(1.0)), (6.0, Some(1.5))];
        assert_eq!(ratios(&contest), with);
        contest.entries[1].is_limit = false;
        assert_eq!(ratios(&contest), with.map(|(ratio, _)| (ratio, None)));
    }

    #[test]
    fn row_that_fails_names_itself() {
        let mut contest = Contest::new(1);
        contest.add(Loop(2)).unwrap();
        let error = contest.entries[0].measure_error();
        assert!(error.to_string().starts_with("short: "), "{error}");
    }

    impl Entry {
        fn measure_error(&mut self) -> Error {
            self.trips = 1;
            self.measure(&mut Samples::new()).unwrap_err()
        }
    }
}
