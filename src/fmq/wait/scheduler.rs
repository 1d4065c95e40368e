//! How the simulated system shares its processors among threads: as Linux does by its EEVDF scheduler.
//!
//! Each thread has a virtual run time, which grows while it runs. A thread is eligible if it has run no more
//! than the runnable ones have on average. Of those, the one with the earliest deadline runs next on a
//! processor that becomes idle. Who wakes takes the processor of who has run for long. Who sleeps keeps what
//! it had run too little. Who yields and is eligible is charged the rest of its turn, as by Linux 6.18.

/// How long a thread runs while others wait for its processor, and how long before it gives way to one that
/// was just woken.
const TURN: u64 = 3_000_000;
const LEAST_TURN: u64 = 700_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    On { since: u64 },
    Ready,
    Off,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    place: Place,
    /// Its virtual run time in nanoseconds, and at which its turn is over.
    used: u64,
    deadline: u64,
    /// By how much less than the average it had used when it fell asleep.
    lag: u64,
}

pub(super) struct Scheduler {
    processors: usize,
    threads: Vec<Thread>,
    /// The highest average that there was of the virtual run times of runnable threads.
    average: u64,
}

impl Scheduler {
    pub(super) fn new(processors: usize) -> Scheduler {
        Scheduler {
            processors,
            threads: Vec::new(),
            average: 0,
        }
    }

    /// Adds a thread that sleeps.
    pub(super) fn add(&mut self) {
        self.threads.push(Thread {
            place: Place::Off,
            used: self.average,
            deadline: 0,
            lag: 0,
        });
    }

    pub(super) fn is_on(&self, at: usize) -> bool {
        matches!(self.threads[at].place, Place::On { .. })
    }

    pub(super) fn is_off(&self, at: usize) -> bool {
        self.threads[at].place == Place::Off
    }

    /// Whether a thread waits for a processor.
    fn is_awaited(&self) -> bool {
        self.threads.iter().any(|thread| thread.place == Place::Ready)
    }

    pub(super) fn has_idle_processor(&self) -> bool {
        self.running() < self.processors
    }

    /// When a thread that runs must give way, if it must.
    pub(super) fn turn_ends(&self, at: usize) -> u64 {
        match self.threads[at].place {
            Place::On { since } if self.is_awaited() => since + TURN,
            _ => u64::MAX,
        }
    }

    /// The threads that run have run for so long.
    pub(super) fn pass(&mut self, nanos: u64) {
        for thread in &mut self.threads {
            if let Place::On { .. } = thread.place {
                thread.used += nanos;
                if thread.used >= thread.deadline {
                    thread.deadline = thread.used + TURN;
                }
            }
        }
        self.average();
    }

    /// A thread that slept is to run. It takes the processor of one that has run for long, if there is one.
    pub(super) fn wake(&mut self, at: usize, now: u64) {
        let average = self.average();
        let thread = &mut self.threads[at];
        thread.used = thread.used.max(average.saturating_sub(thread.lag));
        thread.deadline = thread.used + TURN;
        thread.place = Place::Ready;
        let since = |thread: &Thread| match thread.place {
            Place::On { since } => Some(since),
            _ => None,
        };
        let oldest = (0..self.threads.len())
            .filter_map(|at| Some((since(&self.threads[at])?, at)))
            .min();
        if let Some((since, oldest)) = oldest
            && !self.has_idle_processor()
            && since + LEAST_TURN <= now
        {
            self.threads[oldest].place = Place::Ready;
            self.threads[at].place = Place::On { since: now };
        }
    }

    /// A thread sleeps.
    pub(super) fn sleep(&mut self, at: usize) {
        let average = self.average();
        let thread = &mut self.threads[at];
        thread.lag = average.saturating_sub(thread.used).min(2 * TURN);
        thread.place = Place::Off;
    }

    /// A thread that runs gives way to others.
    pub(super) fn give_way(&mut self, at: usize) {
        self.threads[at].place = Place::Ready;
    }

    /// A thread offers its processor; whether others wait for it.
    pub(super) fn give_turn_up(&mut self, at: usize) -> bool {
        if !self.is_awaited() {
            return false;
        }
        let average = self.average();
        let thread = &mut self.threads[at];
        if thread.used <= average {
            thread.used = thread.deadline;
            thread.deadline += TURN;
        }
        thread.place = Place::Ready;
        true
    }

    /// Has threads run on the processors that are idle.
    pub(super) fn fill_processors(&mut self, now: u64) {
        while self.has_idle_processor() {
            let average = self.average();
            let next = (0..self.threads.len())
                .filter(|at| self.threads[*at].place == Place::Ready)
                .min_by_key(|at| {
                    let thread = &self.threads[*at];
                    let is_early = thread.used > average;
                    (is_early, if is_early { thread.used } else { thread.deadline })
                });
            let Some(next) = next else { return };
            self.threads[next].place = Place::On { since: now };
        }
    }

    fn running(&self) -> usize {
        (0..self.threads.len()).filter(|at| self.is_on(*at)).count()
    }

    fn average(&mut self) -> u64 {
        let runnable = self.threads.iter().filter(|thread| thread.place != Place::Off);
        let (sum, count) = runnable.fold((0, 0), |(sum, count), thread| (sum + thread.used, count + 1));
        self.average = self.average.max(sum.checked_div(count).unwrap_or_default());
        self.average
    }
}
