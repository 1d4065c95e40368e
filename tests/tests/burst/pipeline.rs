//! Several executions of one burst under way at once.

use std::time::Duration;

use nnhal_client::{
    Burst, BurstOptions, ErrorKind, ExecuteOptions, MAX_IN_FLIGHT, Memory, RegisteredRequest, Request,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{EXE, REFERENCE, open, prepare, start};

const VALUES: usize = 4;
const BYTES: u64 = 4 * VALUES as u64;

/// Requests that each have their own part of a memory: inputs in the first half, outputs in the second.
struct Lanes {
    memory: Memory,
    requests: Vec<RegisteredRequest>,
}

impl Lanes {
    fn new(burst: &mut Burst, count: u64) -> Lanes {
        let memory = Memory::new(2 * count * BYTES).unwrap();
        let requests = (0..count).map(|lane| {
            let (input, output) = (lane * BYTES, (count + lane) * BYTES);
            let request = Request::new()
                .input(&memory, input..input + BYTES)
                .output(&memory, output..output + BYTES);
            burst.register(&request).unwrap()
        });
        Lanes {
            requests: requests.collect(),
            memory: memory.clone(),
        }
    }

    fn write(&self, lane: usize, value: f32) {
        self.memory.write(lane as u64 * BYTES, &[value; VALUES]).unwrap();
    }

    fn read(&self, lane: usize) -> Vec<f32> {
        let at = (self.requests.len() + lane) as u64 * BYTES;
        self.memory.read(at, VALUES).unwrap()
    }
}

#[test]
fn executions_in_flight_end_in_order_each_with_its_own_values() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), VALUES as u32);
    let mut burst = prepared.burst(&BurstOptions::new().in_flight(16)).unwrap();
    let lanes = Lanes::new(&mut burst, 16);
    let options = ExecuteOptions::new();
    let mut sums = Vec::new();
    let mut taken = 0;
    for execution in 0..500_usize {
        if burst.in_flight() == 16 {
            let finished = burst.next_finished(&options).unwrap().unwrap();
            finished.result.unwrap();
            taken += 1;
            assert_eq!(finished.submission.number(), taken);
            sums.push(lanes.read((taken as usize - 1) % 16)[0]);
        }
        lanes.write(execution % 16, execution as f32);
        let submission = burst.submit(&lanes.requests[execution % 16], &options).unwrap();
        assert_eq!(submission.number(), execution as u64 + 1);
    }
    while let Some(finished) = burst.next_finished(&options).unwrap() {
        finished.result.unwrap();
        taken += 1;
        sums.push(lanes.read((taken as usize - 1) % 16)[0]);
    }
    // The model adds its constant to each value.
    let first = sums[0];
    let expected: Vec<f32> = (0..500).map(|execution| execution as f32 + first).collect();
    assert_eq!(sums, expected);
    assert_eq!(burst.in_flight(), 0);
    // The burst goes on as any other.
    burst.fire(&lanes.requests[0], &options).unwrap();
}

#[test]
fn one_thread_looks_after_several_bursts() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), VALUES as u32);
    let options = ExecuteOptions::new();
    let mut bursts: Vec<(Burst, Lanes)> = (0..3)
        .map(|_| {
            let mut burst = prepared.burst(&BurstOptions::new().in_flight(4)).unwrap();
            let lanes = Lanes::new(&mut burst, 4);
            (burst, lanes)
        })
        .collect();
    for (burst, lanes) in &mut bursts {
        assert!(burst.try_next_finished().unwrap().is_none());
        for request in &lanes.requests {
            burst.submit(request, &options).unwrap();
        }
    }
    let mut left = 12;
    while left > 0 {
        for (burst, _) in &mut bursts {
            while let Some(finished) = burst.try_next_finished().unwrap() {
                finished.result.unwrap();
                left -= 1;
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn bursts_with_queued_requests_let_each_other_have_the_only_slot() {
    const EXECUTIONS: u64 = 5_000;
    let options = DaemonOptions::with_settings("[execution]\nslots = 1\n");
    let daemon = TestDaemon::start(EXE, &options);
    let prepared = prepare(&open(&daemon, REFERENCE), VALUES as u32);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut burst = prepared.burst(&BurstOptions::new().in_flight(16)).unwrap();
            let lanes = Lanes::new(&mut burst, 16);
            scope.spawn(move || {
                let options = options_within_a_minute();
                let mut taken = 0;
                for request in lanes.requests.iter().cycle().take(EXECUTIONS as usize) {
                    if burst.in_flight() == 16 {
                        let finished = burst.next_finished(&options).unwrap().unwrap();
                        finished.result.unwrap();
                        taken += 1;
                    }
                    burst.submit(request, &options).unwrap();
                }
                while let Some(finished) = burst.next_finished(&options).unwrap() {
                    finished.result.unwrap();
                    taken += 1;
                }
                assert_eq!(taken, EXECUTIONS);
            });
        }
        // Executions of other forms get their turn, too.
        let memory = Memory::new(2 * BYTES).unwrap();
        let request = Request::new()
            .input(&memory, 0..BYTES)
            .output(&memory, BYTES..2 * BYTES);
        for _ in 0..20 {
            prepared.execute(&request, &options_within_a_minute()).unwrap();
        }
    });
}

fn options_within_a_minute() -> ExecuteOptions {
    ExecuteOptions::new().wait_at_most(Duration::from_secs(60))
}

#[test]
fn what_is_in_flight_is_bounded_and_not_passed_over() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), VALUES as u32);
    for depth in [0, MAX_IN_FLIGHT + 1] {
        let error = prepared.burst(&BurstOptions::new().in_flight(depth)).unwrap_err();
        assert!(error.to_string().contains("from 1 to 64"), "{error}");
    }
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let lanes = Lanes::new(&mut burst, 2);
    let options = ExecuteOptions::new();
    burst.submit(&lanes.requests[0], &options).unwrap();
    let error = burst.submit(&lanes.requests[1], &options).unwrap_err();
    assert!(error.to_string().contains("in_flight"), "{error}");
    for error in [
        burst.fire(&lanes.requests[1], &options).unwrap_err(),
        burst.execute(lanes.requests[1].request(), &options).unwrap_err(),
        burst.register(lanes.requests[1].request()).unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        assert!(error.to_string().contains("next_finished"), "{error}");
    }
    burst.next_finished(&options).unwrap().unwrap().result.unwrap();
    assert!(burst.next_finished(&options).unwrap().is_none());
    burst.fire(&lanes.requests[1], &options).unwrap();
    // The most that can be in flight, given up with the burst.
    let mut burst = prepared
        .burst(&BurstOptions::new().in_flight(MAX_IN_FLIGHT))
        .unwrap();
    let lanes = Lanes::new(&mut burst, 1);
    for _ in 0..MAX_IN_FLIGHT {
        burst.submit(&lanes.requests[0], &options).unwrap();
    }
}

#[test]
fn death_of_the_worker_ends_what_is_in_flight() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, VALUES as u32);
    let mut burst = prepared.burst(&BurstOptions::new().in_flight(8)).unwrap();
    let lanes = Lanes::new(&mut burst, 8);
    let options = ExecuteOptions::new();
    for request in &lanes.requests {
        burst.submit(request, &options).unwrap();
    }
    let pid = i32::try_from(device.worker().pid).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    // Results that were sent before the end still count.
    let error = loop {
        match burst.next_finished(&options) {
            Ok(Some(finished)) => drop(finished.result.unwrap()),
            Ok(None) => match burst.submit(&lanes.requests[0], &options) {
                Ok(_) => {}
                Err(error) => break error,
            },
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::DeadObject { .. }), "{error}");
}
