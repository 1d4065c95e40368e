//! Orders for system calls, and what becomes of them.

use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use nnhal_client::{
    Device, Devices, ExecuteOptions, Input, ModelBuilder, OperationType, Output, PrepareOptions,
    PreparedModel, TensorType,
};
use nnhal_tests::escape::{DEVICE, NEEDY, NUMBERS, RAW, THREADS, TRIED, TRY, Way, escaped};
use nnhal_tests::{DaemonOptions, TestDaemon};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-escape-driver");

/// What came of a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It succeeded.
    Done(i64),
    /// The kernel gave an error.
    Refused(i32),
    /// The worker was ended for it.
    Killed,
    /// The worker ended otherwise.
    Died(String),
}

impl Outcome {
    /// Of what the kernel gave.
    fn of(result: i64) -> Outcome {
        if (-4095..0).contains(&result) {
            Outcome::Refused(i32::try_from(-result).unwrap())
        } else {
            Outcome::Done(result)
        }
    }
}

/// What comes of a way out of a process that has no jail, but namespaces where it spoils nothing; `other` is
/// another process.
pub(crate) fn without_jail(way: Way, other: u32) -> Outcome {
    let at = Way::ALL.iter().position(|known| *known == way).unwrap();
    let (program, arguments) = UNSHARE.split_first().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .args([EXE, TRY, &at.to_string(), &other.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let _ = std::fs::remove_file(escaped(other));
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix(TRIED)) {
        Some(result) => Outcome::of(result.parse().unwrap()),
        // It has become another program.
        None if output.status.success() => Outcome::Done(0),
        None => Outcome::Died(format!("{:?}", output.status)),
    }
}

/// Whether [`without_jail`] can be asked here; says so if not.
pub(crate) fn can_try_without_jail() -> bool {
    let (program, arguments) = UNSHARE.split_first().unwrap();
    let possible = Command::new(program).args(arguments).arg("true").status();
    let possible = geteuid().is_root() && possible.is_ok_and(|status| status.success());
    if !possible {
        println!("SKIPPED: without root there is no control run without a jail");
    }
    possible
}

/// Whether this command can be used here; says so if not.
pub(crate) fn is_possible(command: &str) -> bool {
    let possible = Command::new("sh")
        .args(["-c", &format!("exec {command} true")])
        .output();
    let possible = geteuid().is_root() && possible.is_ok_and(|output| output.status.success());
    if !possible {
        println!("SKIPPED: {command} is not possible here");
    }
    possible
}

/// Namespaces that take mounts, interfaces and memory by key with them when they end.
const UNSHARE: &[&str] = &["unshare", "--mount", "--net", "--ipc", "--propagation", "private"];

/// A driver, and a worker of it as long as that lives.
pub(crate) struct Jailed {
    pub(crate) daemon: TestDaemon,
    name: &'static str,
    worker: Option<(Device, PreparedModel)>,
}

impl Jailed {
    pub(crate) fn start(settings: &str) -> Jailed {
        Jailed::start_device(DEVICE, settings)
    }

    pub(crate) fn start_device(name: &'static str, settings: &str) -> Jailed {
        let options = DaemonOptions {
            devices: vec![DEVICE.to_owned(), NEEDY.to_owned()],
            log: Some("warn,driver=info".to_owned()),
            ..DaemonOptions::with_settings(&format!("{settings}\n[workers]\nspare = 4\n"))
        };
        Jailed {
            daemon: TestDaemon::start(EXE, &options),
            name,
            worker: None,
        }
    }

    pub(crate) fn worker(&mut self) -> &(Device, PreparedModel) {
        let (daemon, name) = (&self.daemon, self.name);
        self.worker.get_or_insert_with(|| {
            let device = Devices::open_in(daemon.runtime_dir())
                .unwrap()
                .device(name)
                .unwrap();
            let mut model = ModelBuilder::new();
            let numbers = TensorType::int32(&[NUMBERS as u32]);
            let order = model.input(numbers.clone());
            let result = model.output(numbers);
            model.operation(OperationType::NEG, &[order], &[result]);
            let model = model.finish().unwrap();
            let prepared = device.prepare(&model, &PrepareOptions::new()).unwrap();
            (device, prepared)
        })
    }

    pub(crate) fn way(&mut self, way: Way) -> Outcome {
        let at = Way::ALL.iter().position(|known| *known == way).unwrap();
        let supervisor = self.daemon.pid().cast_signed();
        self.order(&[i32::try_from(at).unwrap(), supervisor])
    }

    /// Has the device start so many threads, as a vendor's may.
    pub(crate) fn start_threads(&mut self, count: i32) -> Outcome {
        self.order_once(&[THREADS, count])
    }

    /// A system call by its number, with arguments that no call takes for anything.
    pub(crate) fn number(&mut self, number: i32) -> Outcome {
        let mut order = [-1; NUMBERS];
        (order[0], order[1]) = (RAW, number);
        self.order(&order)
    }

    /// A system call with these arguments, and zeros for the rest.
    pub(crate) fn call(&mut self, number: i64, arguments: &[i32]) -> Outcome {
        let mut order = [0; NUMBERS];
        (order[0], order[1]) = (RAW, i32::try_from(number).unwrap());
        for (at, &argument) in arguments.iter().enumerate() {
            order[2 + 2 * at] = argument;
        }
        self.order(&order)
    }

    /// Under much load a client may learn only that its worker is gone, and not how; then it is tried again.
    fn order(&mut self, order: &[i32]) -> Outcome {
        let mut outcome = self.order_once(order);
        for _ in 0..20 {
            match &outcome {
                Outcome::Died(how) if how.ends_with("closed the connection") => {
                    outcome = self.order_once(order);
                }
                _ => break,
            }
        }
        outcome
    }

    fn order_once(&mut self, order: &[i32]) -> Outcome {
        let mut numbers = [0_i32; NUMBERS];
        numbers[..order.len()].copy_from_slice(order);
        let mut result = [0_i32; NUMBERS];
        let (_, prepared) = self.worker();
        let run = prepared.run(
            &[Input::from(&numbers)],
            &mut [Output::from(&mut result)],
            &ExecuteOptions::new(),
        );
        if let Err(error) = run {
            self.worker = None;
            let text = error.to_string();
            return if text.contains("was killed by SIGSYS, for a system call that its jail does not allow") {
                Outcome::Killed
            } else {
                Outcome::Died(text)
            };
        }
        let [low, high] = [result[0], result[1]].map(i32::cast_unsigned);
        let result = (u64::from(high) << 32 | u64::from(low)).cast_signed();
        Outcome::of(result)
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        // There is none, unless the jail leaks.
        let _ = std::fs::remove_file(escaped(self.daemon.pid()));
    }
}
