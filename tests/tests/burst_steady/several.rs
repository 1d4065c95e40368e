//! The same of several bursts that one thread drives, which share a thread of the worker, and of inputs that
//! are read where they are.

use nnhal_client::{
    Burst, BurstOptions, Devices, ExecuteOptions, Memory, PrepareOptions, RegisteredRequest, Request,
    WaitSettings,
};

use super::*;

const BURSTS: usize = 5;

/// Rounds in which each burst executes, that are looked at.
const ROUNDS: u64 = EXECUTIONS / BURSTS as u64;

/// Bursts of one client, each with a request.
struct Bursts {
    worker: u32,
    bursts: Vec<(Burst, RegisteredRequest)>,
    output: Memory,
}

impl Bursts {
    /// Each adds one to `count` values, all of them `value`, in sealed memory or in such as can be written.
    fn open(daemon: &TestDaemon, device: &str, count: u32, is_sealed: bool) -> Bursts {
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(device)
            .unwrap();
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::float32(&[count]));
        let sum = model.output(TensorType::float32(&[count]));
        let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
        let no_activation = model.scalar(0_i32);
        model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
        let model = model.finish().unwrap();
        let prepared = device.prepare(&model, &PrepareOptions::new()).unwrap();
        let bytes = u64::from(count) * 4;
        let values: Vec<u8> = (0..count).flat_map(|_| 1.5_f32.to_le_bytes()).collect();
        let input = if is_sealed {
            Memory::sealed(&[&values]).unwrap()
        } else {
            let memory = Memory::new(bytes).unwrap();
            memory.write(0, &values).unwrap();
            memory
        };
        let output = Memory::new(BURSTS as u64 * bytes).unwrap();
        let wait = WaitSettings::Fixed {
            window: Duration::from_secs(10),
        };
        let burst = |number: u64| {
            let mut burst = prepared.burst(&BurstOptions::new().wait(wait)).unwrap();
            let request = Request::new()
                .input(&input, 0..bytes)
                .output(&output, number * bytes..(number + 1) * bytes);
            let registered = burst.register(&request).unwrap();
            (burst, registered)
        };
        Bursts {
            worker: device.worker().pid,
            bursts: (0..BURSTS as u64).map(burst).collect(),
            output: output.clone(),
        }
    }

    /// Has all bursts execute at once, and then takes their results.
    fn execute(&mut self, rounds: u64) {
        let options = ExecuteOptions::new();
        for _ in 0..rounds {
            for (burst, request) in &mut self.bursts {
                burst.submit(request, &options).unwrap();
            }
            for (burst, _) in &mut self.bursts {
                burst.next_finished(&options).unwrap().unwrap().result.unwrap();
            }
        }
    }

    fn expect_sums(&self) {
        let count = (self.output.size() / 4) as usize;
        assert_eq!(self.output.read::<f32>(0, count).unwrap(), vec![2.5; count]);
    }
}

/// Values of an execution, and whether they are in sealed memory: few of them, and just enough to be read
/// where they are, which the reference kernels take less for than what bursts may share a thread for.
const CASES: [(u32, bool); 2] = [(4, false), (1024, true)];

fn for_each(mut work: impl FnMut(&Counter, &mut Bursts, &str)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for device in ["nnhal-reference", "nnhal-cpu"] {
        for (count, is_sealed) in CASES {
            let counter = Counter::new();
            let daemon = start_with(device, counter.environment(), "shared_pollers = 1\n");
            let mut bursts = Bursts::open(&daemon, device, count, is_sealed);
            bursts.execute(200);
            bursts.expect_sums();
            work(&counter, &mut bursts, &format!("{count} values on {device}"));
        }
    }
}

#[test]
fn executions_on_several_bursts_allocate_on_neither_side() {
    for_each(|counter, bursts, what| {
        expect_none_allocated(counter, what, || bursts.execute(ROUNDS));
    });
}

#[test]
fn executions_on_several_bursts_make_no_system_call_on_either_side() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: two processes cannot poll at once on one processor");
        return;
    }
    for_each(|_, bursts, what| {
        expect_none_called(bursts.worker, what, SLEEPS, || bursts.execute(ROUNDS));
    });
}
