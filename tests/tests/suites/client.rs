//! A client in a process of its own, which makes every call of the protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nnhal_tests::TIMEOUT;

use crate::common::{DEVICE, Place};

const CLIENT: &str = env!("CARGO_BIN_EXE_nnhal-test-client");

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    At(String),
    Done(String, Duration),
    Failed(String, Duration, String),
    Worker(u32),
    /// The 99th percentile of what an execution took, in microseconds.
    Latency(f64),
    /// Descriptors and mappings beyond those of its beginning.
    Kept(usize, usize),
}

impl Said {
    fn read(line: &str) -> Said {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line:?}"));
        // A step's name may have spaces; what follows it begins with a number.
        let step = |rest: &str| {
            let at = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(at);
            let (micros, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let took = Duration::from_micros(number(micros) as u64);
            (name.trim_end().to_owned(), took, text.to_owned())
        };
        match kind {
            "at" => Said::At(rest.to_owned()),
            "done" => {
                let (name, took, _) = step(rest);
                Said::Done(name, took)
            }
            "failed" => {
                let (name, took, text) = step(rest);
                Said::Failed(name, took, text)
            }
            "worker" => Said::Worker(number(rest) as u32),
            "latency" => Said::Latency(rest.parse().unwrap_or_else(|_| panic!("{line:?}"))),
            "kept" => {
                let (fds, mappings) = rest.split_once(' ').unwrap_or((rest, ""));
                Said::Kept(number(fds), number(mappings))
            }
            _ => panic!("{line:?}"),
        }
    }
}

/// A client, until dropped.
pub(crate) struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    said: Receiver<Said>,
    readers: Vec<JoinHandle<String>>,
}

/// How a client ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// On standard error.
    pub(crate) text: String,
}

impl Client {
    /// One that waits before each step until it is told to go on.
    pub(crate) fn start_told(place: &Place) -> Client {
        Client::start(Command::new(CLIENT), place, &["--told"])
    }

    /// One that makes all steps one after the other.
    pub(crate) fn start_free(place: &Place) -> Client {
        Client::start(Command::new(CLIENT), place, &[])
    }

    /// As [`Client::start_free`], with each way to execute taken once, by another program, which is given the
    /// client and its arguments.
    pub(crate) fn start_under(mut program: Command, place: &Place) -> Client {
        program.arg(CLIENT);
        Client::start(program, place, &["--brief"])
    }

    /// As [`Client::start_free`], with each way to execute taken once.
    pub(crate) fn start_brief(place: &Place) -> Client {
        Client::start(Command::new(CLIENT), place, &["--brief"])
    }

    /// One that executes for a `period` whenever it is told to go on, until its end.
    pub(crate) fn start_to_stay(place: &Place, period: Duration) -> Client {
        let period = period.as_millis().to_string();
        Client::start(Command::new(CLIENT), place, &["--stays", &period])
    }

    fn start(mut command: Command, place: &Place, arguments: &[&str]) -> Client {
        let mut child = command
            .arg(place.runtime_dir())
            .arg(DEVICE)
            .arg(place.cache())
            .args(arguments)
            .env("TMPDIR", place.temporary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, said) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let readers = vec![
            std::thread::spawn(move || {
                for line in stdout.lines().map_while(Result::ok) {
                    let _ = tell.send(Said::read(&line));
                }
                String::new()
            }),
            std::thread::spawn(move || {
                let lines: Vec<_> = stderr.lines().map_while(Result::ok).collect();
                lines.join("\n")
            }),
        ];
        Client {
            orders: child.stdin.take(),
            child,
            said,
            readers,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it take its next step, if it is there still.
    pub(crate) fn go_on(&mut self) {
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(b"\n");
        }
    }

    /// What it says next; `None` if it has ended.
    ///
    /// # Panics
    ///
    /// If it says nothing for so long that it hangs.
    pub(crate) fn next(&mut self) -> Option<Said> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.said.recv_timeout(TIMEOUT) {
            Ok(said) => Some(said),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the client hangs"),
        }
    }

    /// Waits for its end, which is near: it has closed its output.
    pub(crate) fn end(mut self) -> End {
        self.orders = None;
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        let texts = self.readers.drain(..).map(|reader| reader.join().unwrap());
        End {
            text: texts.collect(),
            status,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
