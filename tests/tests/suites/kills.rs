//! `kill -9` of each process at each step of the protocol: threats T22 and T23.
//!
//! In each round one process is killed while a client is at one of its steps: the client, its worker, the
//! workers that wait for clients or are being started, or the supervisor, whose threads start workers.
//! Another client computes on. Afterwards all calls are answered, a new client is served, and processes,
//! descriptors, shared mappings and files are those of before.

use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal_conformance::generator::choices::Random;
use nnhal_os::time::{Clock, MonotonicClock};
use nnhal_tests::{group_of, is_alive, wait_until};

use crate::client::{Client, Said};
use crate::common::{Place, Stage, is_sent, seed, send, sized};

/// Rounds of the short form.
const ROUNDS: u64 = 12;

/// A kill comes so much later than its step begins, at most.
const LATEST: Duration = Duration::from_millis(3);

/// The longest that a call may take whose other side is killed, on a machine under load.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

const STEPS: [&str; 17] = [
    "connect",
    "hello",
    "open",
    "prepare",
    "cache",
    "allocate",
    "open burst",
    "execute",
    "start",
    "fenced",
    "wait for fence",
    "copy",
    "run by burst",
    "register",
    "fire",
    "reload",
    "drain",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Worker,
    Spare,
    Supervisor,
}

const VICTIMS: [Victim; 4] = [Victim::Client, Victim::Worker, Victim::Spare, Victim::Supervisor];

/// A kill.
#[derive(Clone, Copy, Debug)]
struct Plan {
    step: &'static str,
    victim: Victim,
    /// After the beginning of the step; `None`: before it.
    delay: Option<Duration>,
}

impl Plan {
    /// All pairs of a step and a victim come in turn, from a place on that the seed gives.
    fn draw(round: u64, random: &mut Random) -> Plan {
        let pairs = (STEPS.len() * VICTIMS.len()) as u64;
        // 29 and the number of pairs have no common divisor, so neighbours are far from each other.
        let pair = (round.wrapping_mul(29).wrapping_add(seed()) % pairs) as usize;
        let micros = u64::from(random.below(LATEST.as_micros() as u32));
        Plan {
            step: STEPS[pair / VICTIMS.len()],
            victim: VICTIMS[pair % VICTIMS.len()],
            delay: (random.below(4) > 0).then(|| Duration::from_micros(micros)),
        }
    }

    /// Whether the client may see that somebody is dead or the driver ends: its own worker, or before it has
    /// one whoever was to give it one.
    fn may_fail(&self, step: &str) -> bool {
        let is_served = |step| !matches!(step, "connect" | "hello" | "open");
        match self.victim {
            _ if matches!(step, "drain" | "after drain") => true,
            Victim::Client | Victim::Worker => true,
            // A worker that waits may have become its own meanwhile.
            Victim::Spare => !is_served(self.step),
            Victim::Supervisor => !is_served(step),
        }
    }
}

/// What is told of all rounds.
#[derive(Debug, Default)]
struct Tally {
    /// Signals that the kernel took.
    kills: u64,
    calls: u64,
    failed: u64,
    slowest: Duration,
}

/// Lets time pass without giving up the processor: a kill is to hit the middle of something.
fn pass(time: Duration) {
    let until = MonotonicClock.now().saturating_add(time);
    while MonotonicClock.now() < until {
        std::hint::spin_loop();
    }
}

/// The processes that the plan names at this moment.
fn victims(plan: Plan, stage: &Stage, client: &Client, worker: Option<u32>) -> Vec<u32> {
    match plan.victim {
        Victim::Client => vec![client.pid()],
        Victim::Supervisor => vec![stage.daemon.pid()],
        // Before it has told its worker, any may be its own.
        Victim::Worker => worker.map_or_else(|| stage.others(), |worker| vec![worker]),
        Victim::Spare => {
            let others = stage.others().into_iter();
            others.filter(|&pid| Some(pid) != worker).collect()
        }
    }
}

/// Runs a client and kills once. Returns whether the driver goes on.
fn round(plan: Plan, place: &Place, stage: &mut Stage, tally: &mut Tally) -> bool {
    let mut client = Client::start_told(place);
    let mut worker = None;
    let mut kept = None;
    let mut is_drained = false;
    let mut kills = None;
    while let Some(said) = client.next() {
        match said {
            Said::At(step) => {
                let is_now = step == plan.step;
                let strike = |worker, client: &Client, stage: &Stage| {
                    let victims = victims(plan, stage, client, worker).into_iter();
                    victims.filter(|&pid| is_sent(pid, Signal::SIGKILL)).count() as u64
                };
                if is_now && plan.delay.is_none() {
                    kills = Some(strike(worker, &client, stage));
                }
                match step.as_str() {
                    "reload" => send(stage.daemon.pid(), Signal::SIGHUP),
                    "drain" if plan.step == "drain" => {
                        is_drained = true;
                        send(stage.daemon.pid(), Signal::SIGTERM);
                    }
                    _ => {}
                }
                client.go_on();
                if let Some(delay) = plan.delay
                    && is_now
                {
                    pass(delay);
                    kills = Some(strike(worker, &client, stage));
                }
            }
            Said::Worker(pid) => worker = Some(pid),
            Said::Done(step, took) | Said::Failed(step, took, _) if took > ANSWERED_WITHIN => {
                panic!("{plan:?}: the step {step} took {took:?}");
            }
            Said::Done(_, took) => {
                tally.calls += 1;
                tally.slowest = tally.slowest.max(took);
            }
            Said::Failed(step, took, text) => {
                assert!(plan.may_fail(&step), "{plan:?}: the step {step} failed: {text}");
                assert!(
                    !text.is_empty(),
                    "{plan:?}: the step {step} failed without a word"
                );
                tally.calls += 1;
                tally.failed += 1;
                tally.slowest = tally.slowest.max(took);
            }
            Said::Kept(fds, mappings) => kept = Some((fds, mappings)),
            Said::Latency(_) => {}
        }
    }
    let end = client.end();
    assert!(!end.text.contains("panicked"), "{plan:?}: {}", end.text);
    // Nothing has happened to the client before, so it has come to every step.
    let kills = kills.unwrap_or_else(|| panic!("{plan:?}: the client has not come to this step"));
    // Workers may be gone by themselves. Whose parent this process is has not been waited for.
    if matches!(plan.victim, Victim::Client | Victim::Supervisor) {
        assert_eq!(kills, 1, "{plan:?}");
    }
    tally.kills += kills;
    if plan.victim == Victim::Client {
        return !is_drained;
    }
    assert!(end.status.success(), "{plan:?}: the client ended with {end:?}");
    assert_eq!(kept, Some((0, 0)), "{plan:?}: the client has kept something");
    plan.victim != Victim::Supervisor && !is_drained
}

/// The supervisor is dead or has been told to end: everything of its driver goes, and nothing of it stays.
fn expect_end(plan: Plan, mut stage: Stage) {
    let group = stage.daemon.pid();
    wait_until("the supervisor is gone", || !is_alive(group));
    if plan.step != "drain" {
        // The death of the supervisor is nothing to whom it has given a worker.
        stage.bystander.computes();
    }
    drop(stage.bystander);
    wait_until("all processes of the driver are gone", || {
        group_of(group).is_empty()
    });
    let status = stage.daemon.wait();
    let is_killed = plan.victim == Victim::Supervisor;
    assert!(
        status.success() || is_killed,
        "{plan:?}: {status:?}: {}",
        stage.daemon.log()
    );
}

/// A client to which nothing happens.
fn expect_success(place: &Place) {
    let mut client = Client::start_free(place);
    while let Some(said) = client.next() {
        assert!(!matches!(said, Said::Failed(..)), "{said:?}");
    }
    let end = client.end();
    assert!(end.status.success(), "{end:?}");
}

#[test]
fn kill_of_any_process_at_any_step_leaves_nothing_behind_and_all_calls_answered() {
    let rounds = sized("NNHAL_TEST_KILLS", ROUNDS);
    let mut random = Random::new(seed());
    let place = Place::new();
    let mut stage = None;
    let mut tally = Tally::default();
    let mut drivers = 0;
    for number in 0..rounds {
        if number % 100 == 99 {
            println!("{number} rounds, {} kills, {} calls", tally.kills, tally.calls);
        }
        let plan = Plan::draw(number, &mut random);
        let mut on = stage.take().unwrap_or_else(|| {
            drivers += 1;
            Stage::new(&place)
        });
        if round(plan, &place, &mut on, &mut tally) {
            on.expect_as_before(&format!("{plan:?}"));
            stage = Some(on);
        } else {
            expect_end(plan, on);
        }
    }
    // A last driver and a last client find what all of them have left, and take it away.
    let mut last = stage.unwrap_or_else(|| Stage::new(&place));
    expect_success(&place);
    last.expect_as_before("a client that nothing happened to");
    last.daemon.close_owner();
    assert!(last.daemon.wait().success());
    drop(last);
    place.expect_no_files();
    println!(
        "{rounds} rounds (seed {}), {} kills, {drivers} drivers: {} calls, {} of them with an error, the slowest after \
         {:?}; 0 processes, descriptors, mappings and files left",
        seed(),
        tally.kills,
        tally.calls,
        tally.failed,
        tally.slowest
    );
}
