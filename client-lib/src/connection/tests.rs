//! Against a worker that is a thread of the test.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use nnhal::wire::handshake::{self, Refusal, VERSIONS, Versions};
use nnhal::wire::{
    self, CacheFiles, Call, CauseOfDeath, Envelope, Event, ExecutionResult, Handle, Inbox, MemoryDescription,
    Message, Object, PrepareModelFromCache, Reply, Welcome, WorkerExit,
};
use nnhal_hal::{
    Capabilities, DeviceStatus, DeviceType, Failure, HalVersion, NumberOfCacheFiles, PerformanceInfo, Timing,
};
use nnhal_os::socket::{self, Listener};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::calls::Interest;
use super::pending::PendingCall;
use super::*;
use crate::driver_process::Role;
use crate::error::{Remedy, Result};
use crate::timeouts::Timeouts;
use crate::trust::Trust;

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_secs(20))
}

fn at_once() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_millis(1))
}

fn welcome(has_pidfd: bool) -> Welcome {
    let capabilities = Capabilities::uniform(PerformanceInfo::REFERENCE, []);
    let device = DeviceInfo {
        name: "test-device".into(),
        version: "1".into(),
        device_type: DeviceType::Other,
        hal_version: HalVersion::V1_3,
        capabilities,
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    };
    Welcome {
        device,
        worker_pid: 77,
        supervisor_pid: 76,
        has_pidfd,
    }
}

/// The worker's end.
pub(crate) struct Worker {
    socket: socket::Connection,
    inbox: Inbox,
}

impl Worker {
    fn receive(&mut self) -> Envelope {
        self.receive_with_fds().0
    }

    pub(crate) fn receive_with_fds(&mut self) -> (Envelope, Vec<OwnedFd>) {
        self.inbox.receive(&self.socket, soon()).unwrap()
    }

    fn send(&self, message: &Message) {
        wire::send(&self.socket, 1, message, &[], soon()).unwrap();
    }

    pub(crate) fn reply(&self, id: u64, reply: Reply) {
        self.send(&Message::Reply {
            id,
            result: Ok(reply),
        });
    }

    fn executed(&self, id: u64) {
        let result = ExecutionResult {
            outcome: Ok(()),
            output_shapes: Vec::new(),
            timing: Timing::NONE,
        };
        self.send(&Message::Event {
            id,
            event: Event::Executed(result),
        });
    }
}

/// Connects to a worker that does `work`.
pub(crate) fn connect<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce(Worker) -> T + Send + 'scope,
) -> (Arc<Connection>, ScopedJoinHandle<'scope, T>) {
    connect_with(scope, Timeouts::default(), work)
}

/// Limits of a client that does not wait for long.
pub(crate) fn impatient() -> Timeouts {
    let options = crate::DevicesOptions::new().work_timeout(Duration::from_millis(1));
    Timeouts::of(&options.call_timeout(Duration::from_secs(20)))
}

/// The same, with limits of its own.
pub(crate) fn connect_with<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    timeouts: Timeouts,
    work: impl FnOnce(Worker) -> T + Send + 'scope,
) -> (Arc<Connection>, ScopedJoinHandle<'scope, T>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test-device.sock");
    let listener = Listener::bind(&path).unwrap();
    let worker = scope.spawn(move || {
        let socket = accept(&listener);
        let mut inbox = Inbox::new();
        handshake::read_hello(inbox.receive_bytes(&socket, soon()).unwrap().0).unwrap();
        let answer = handshake::accept(VERSIONS, VERSIONS.oldest, &welcome(false)).unwrap();
        socket.send(&answer, &[], soon()).unwrap();
        work(Worker { socket, inbox })
    });
    (
        Connection::open(&path, soon(), None, &Trust::default(), timeouts).unwrap(),
        worker,
    )
}

fn accept(listener: &Listener) -> socket::Connection {
    nnhal_os::poll::one(listener, nix::poll::PollFlags::POLLIN, soon()).unwrap();
    listener.accept().unwrap().unwrap()
}

/// A call that is launched.
fn launchable() -> Call {
    Call::PrepareModelFromCache(PrepareModelFromCache {
        deadline_ns: None,
        cache: CacheFiles::default(),
        token: [0; 32],
    })
}

fn launch(connection: &Connection) -> Result<PendingCall> {
    connection.link().launch(launchable(), &[], None, soon())
}

fn status(connection: &Connection) -> Result<DeviceStatus> {
    match connection.link().call_by(Call::GetStatus, &[], soon())? {
        (Reply::Status(status), _) => Ok(status),
        (other, _) => Err(connection.link().misplaced("GetStatus", &other)),
    }
}

fn worker_exit() -> Message {
    let cause = CauseOfDeath::Killed {
        signal: 11,
        core_dumped: false,
    };
    Message::WorkerExit(WorkerExit {
        worker_pid: 77,
        cause,
        last_words: "CONV_2D".into(),
    })
}

/// Wakes a test that polls.
struct Signal(mpsc::Sender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn releases_that_the_socket_has_no_room_for_are_made_up_for() {
    const OBJECTS: u64 = 3000;
    let (given_up, all_given_up) = mpsc::channel();
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, move |mut worker| {
            all_given_up.recv().unwrap();
            let mut released = 0_u64;
            loop {
                let envelope = worker.receive();
                match envelope.call {
                    Call::Release { .. } => {
                        released += 1;
                        worker.reply(envelope.id, Reply::Done);
                    }
                    Call::GetStatus => {
                        worker.reply(envelope.id, Reply::Status(DeviceStatus::Available));
                        return released;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        for bits in 0..OBJECTS {
            connection
                .link()
                .release(Object::Memory(Handle::from_bits(bits).into()));
        }
        assert!(!connection.link().unsaid().is_empty());
        given_up.send(()).unwrap();
        connection.link().call_by(Call::GetStatus, &[], soon()).unwrap();
        assert_eq!(worker.join().unwrap(), OBJECTS);
    });
}

#[test]
fn work_without_a_limit_ends_by_the_one_that_the_program_sets() {
    let (give_up, given_up) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (connection, _) = connect_with(scope, impatient(), move |mut worker| {
            let id = worker.receive().id;
            worker.reply(id, Reply::Launched);
            // It answers what it is asked, and works for ever.
            let id = worker.receive().id;
            worker.reply(id, Reply::Status(DeviceStatus::Available));
            let _ = given_up.recv();
        });
        let mut pending = launch(&connection).unwrap();
        assert_eq!(status(&connection).unwrap(), DeviceStatus::Available);
        let errors = [
            pending.wait(Deadline::NONE).unwrap_err(),
            connection
                .link()
                .call_by(launchable(), &[], Deadline::NONE)
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
        }
        drop(give_up);
    });
}

#[test]
fn execution_that_is_not_waited_for_any_more_is_cancelled() {
    let (give_up, given_up) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (connection, worker) = connect_with(scope, impatient(), move |mut worker| {
            let calls = (worker.receive(), worker.receive().call);
            let _ = given_up.recv();
            calls
        });
        let execute = Call::Execute(wire::Execute {
            prepared_model: Handle::from_bits(1).into(),
            request: wire::RequestWithMemories::default(),
            form: wire::ExecutionForm::Synchronous,
            measure: nnhal_hal::MeasureTiming::No,
            deadline_ns: None,
            loop_timeout_ns: None,
        });
        let error = connection
            .link()
            .call_by(execute, &[], Deadline::NONE)
            .unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
        drop(give_up);
        let (executed, next) = worker.join().unwrap();
        assert_eq!(next, Call::Cancel { id: executed.id });
    });
}

#[test]
fn worker_that_says_more_than_it_is_asked_ends_the_connection() {
    let goodbye = || Message::Goodbye {
        reason: "no more room".into(),
    };
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, move |mut worker| {
            worker.receive();
            // Until nobody listens: who reads what is there does not read for ever.
            while wire::send(&worker.socket, 1, &goodbye(), &[], soon()).is_ok() {}
        });
        let error = status(&connection).unwrap_err();
        assert!(error.to_string().contains("goodbye twice"), "{error}");
        worker.join().unwrap();
    });
}

#[test]
fn objects_in_answers_to_releases_are_not_released() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            let id = worker.receive().id;
            worker.reply(id, Reply::Memory(Handle::from_bits(2).into()));
            let envelope = worker.receive();
            worker.reply(envelope.id, Reply::Status(DeviceStatus::Available));
            envelope.call
        });
        connection
            .link()
            .release(Object::Memory(Handle::from_bits(1).into()));
        status(&connection).unwrap();
        assert!(matches!(worker.join().unwrap(), Call::GetStatus));
    });
}

#[test]
fn threads_get_their_own_answers_in_whatever_order_they_come() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 20;
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            for _ in 0..ROUNDS {
                let mut ids: Vec<u64> = (0..THREADS).map(|_| worker.receive().id).collect();
                ids.sort_unstable();
                for id in ids.into_iter().rev() {
                    let handle = Handle {
                        index: id as u32,
                        generation: 0,
                    };
                    worker.reply(id, Reply::Memory(handle.into()));
                }
            }
        });
        let barrier = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|callers| {
            for _ in 0..THREADS {
                callers.spawn(|| {
                    for _ in 0..ROUNDS {
                        barrier.wait();
                        let link = connection.link();
                        let id = link.begin(Call::GetStatus, &[], Interest::Reply, soon()).unwrap();
                        link.wait(id, "GetStatus", Interest::Reply, soon()).unwrap();
                        let entry = link.lock().remove(id).unwrap();
                        match entry.into_reply().unwrap().unwrap().0 {
                            Reply::Memory(memory) => assert_eq!(u64::from(memory.0.index), id),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        worker.join().unwrap();
    });
}

#[test]
fn launched_call_is_waited_for_polled_or_told_to_a_callback() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            for _ in 0..3 {
                let id = worker.receive().id;
                worker.reply(id, Reply::Launched);
                worker.executed(id);
            }
            // The call that the callback makes.
            let id = worker.receive().id;
            worker.reply(id, Reply::Status(DeviceStatus::Busy));
        });
        assert!(matches!(
            launch(&connection).unwrap().wait(soon()).unwrap(),
            Event::Executed(_)
        ));

        let (sender, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Signal(sender)));
        let mut pending = launch(&connection).unwrap();
        let mut context = std::task::Context::from_waker(&waker);
        let event = loop {
            match pending.poll(&mut context) {
                std::task::Poll::Ready(event) => break event,
                std::task::Poll::Pending => woken.recv().unwrap(),
            }
        };
        assert!(matches!(event.unwrap(), Event::Executed(_)));
        assert!(
            pending
                .wait(soon())
                .unwrap_err()
                .to_string()
                .contains("taken before")
        );

        let (sender, called) = mpsc::channel();
        let inner = Arc::clone(&connection);
        let callback = move |event| sender.send((event, status(&inner))).unwrap();
        launch(&connection).unwrap().on_end(Box::new(callback)).unwrap();
        let (event, inner_status) = called.recv().unwrap();
        assert!(matches!(event, Ok(Event::Executed(_))));
        assert_eq!(inner_status.unwrap(), DeviceStatus::Busy);
        worker.join().unwrap();
    });
}

#[test]
fn dead_worker_ends_every_call_with_how_it_ended() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            for _ in 0..3 {
                let id = worker.receive().id;
                worker.reply(id, Reply::Launched);
            }
            // The synchronous one.
            worker.receive();
            worker.send(&worker_exit());
        });
        let mut waited = launch(&connection).unwrap();
        let mut polled = launch(&connection).unwrap();
        let (sender, called) = mpsc::channel();
        let told = launch(&connection).unwrap();
        told.on_end(Box::new(move |event| sender.send(event).unwrap()))
            .unwrap();
        let (sender, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Signal(sender)));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(polled.poll(&mut context).is_pending());

        let mut errors = vec![status(&connection).unwrap_err()];
        errors.push(waited.wait(soon()).unwrap_err());
        errors.push(called.recv().unwrap().unwrap_err());
        woken.recv().unwrap();
        match polled.poll(&mut context) {
            std::task::Poll::Ready(event) => errors.push(event.unwrap_err()),
            std::task::Poll::Pending => panic!("the connection has ended"),
        }
        worker.join().unwrap();
        errors.push(status(&connection).unwrap_err());
        errors.push(connection.link().ended_with().unwrap());
        for error in errors {
            assert!(error.is_dead_object(), "{error}");
            let text = error.to_string();
            assert!(
                text.ends_with("the driver's worker, process 77, was killed by SIGSEGV: CONV_2D"),
                "{text}"
            );
        }
    });
}

#[test]
fn connection_that_closes_without_a_word_is_a_death_of_unknown_cause() {
    std::thread::scope(|scope| {
        let (connection, _) = connect(scope, |mut worker| {
            worker.receive();
            worker.send(&Message::Goodbye {
                reason: "no more room".into(),
            });
        });
        let error = status(&connection).unwrap_err();
        assert!(
            error.to_string().ends_with("closed the connection: no more room"),
            "{error}"
        );
        assert_eq!(error.death().unwrap().cause, None);
    });
}

#[test]
fn dead_process_is_noticed_while_others_hold_its_socket_and_its_status_read() {
    use std::process::{Command, Stdio};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test-device.sock");
    let listener = Listener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        let opened = scope
            .spawn(|| Connection::open(&path, soon(), None, &Trust::default(), Timeouts::default()).unwrap());
        let socket = accept(&listener);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = nnhal_os::pidfd::open(child.id() as i32).unwrap();
        Inbox::new().receive_bytes(&socket, soon()).unwrap();
        let answer = handshake::accept(VERSIONS, VERSIONS.oldest, &welcome(true)).unwrap();
        socket.send(&answer, &[pidfd.as_fd()], soon()).unwrap();
        let connection = opened.join().unwrap();
        let waiting = scope.spawn(move || status(&connection).unwrap_err());
        Inbox::new().receive::<Envelope>(&socket, soon()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let error = waiting.join().unwrap();
        assert!(error.is_dead_object(), "{error}");
        // Kernels before 6.15 cannot tell the status.
        if let Some(cause) = error.death().unwrap().cause {
            assert_eq!(
                cause,
                CauseOfDeath::Killed {
                    signal: 9,
                    core_dumped: false
                }
            );
        }
        drop(socket);
    });
}

#[test]
fn answer_that_nobody_asked_for_ends_the_connection() {
    let strange: [fn(u64) -> Message; 4] = [
        |_| Message::Reply {
            id: 999,
            result: Ok(Reply::Done),
        },
        |id| Message::Event {
            id,
            event: Event::Prepared(Ok(Handle {
                index: 0,
                generation: 0,
            }
            .into())),
        },
        |id| Message::Reply {
            id,
            result: Ok(Reply::Fenced(wire::FenceStarted {
                execution: Handle {
                    index: 0,
                    generation: 0,
                }
                .into(),
                has_fence: true,
            })),
        },
        |_| Message::Event {
            id: 999,
            event: Event::Executed(ExecutionResult::failed(Failure::general("x"))),
        },
    ];
    for message in strange {
        std::thread::scope(|scope| {
            let (connection, worker) = connect(scope, move |mut worker| {
                let id = worker.receive().id;
                worker.send(&message(id));
                // The client closes the connection.
                worker
                    .inbox
                    .receive::<Envelope>(&worker.socket, soon())
                    .unwrap_err()
            });
            let error = status(&connection).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
            assert!(worker.join().unwrap().is_closed());
        });
    }
}

#[test]
fn answer_after_the_deadline_is_dropped_and_what_it_named_released() {
    std::thread::scope(|scope| {
        let (go, wait_for_go) = mpsc::channel::<()>();
        let (connection, worker) = connect(scope, move |mut worker| {
            let id = worker.receive().id;
            wait_for_go.recv().unwrap();
            let memory = Handle {
                index: 5,
                generation: 1,
            };
            worker.reply(id, Reply::Memory(memory.into()));
            let release = worker.receive();
            worker.reply(release.id, Reply::Done);
            (memory, release.call)
        });
        let description = MemoryDescription {
            name: "ashmem".into(),
            fds: 1,
            size: 1,
            offset: 0,
            protection: 3,
        };
        let call = Call::RegisterMemory(description);
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let error = connection
            .link()
            .call_by(call, &[file.as_fd()], at_once())
            .unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
        go.send(()).unwrap();
        let (memory, call) = worker.join().unwrap();
        assert_eq!(
            call,
            Call::Release {
                object: Object::Memory(memory.into())
            }
        );
    });
}

#[test]
fn dropped_pending_call_is_cancelled_and_its_result_released() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            let id = worker.receive().id;
            worker.reply(id, Reply::Launched);
            let cancel = worker.receive();
            assert_eq!(cancel.call, Call::Cancel { id });
            worker.reply(cancel.id, Reply::Done);
            let model = Handle {
                index: 3,
                generation: 0,
            };
            worker.send(&Message::Event {
                id,
                event: Event::Prepared(Ok(model.into())),
            });
            assert_eq!(
                worker.receive().call,
                Call::Release {
                    object: Object::PreparedModel(model.into())
                }
            );
        });
        drop(launch(&connection).unwrap());
        worker.join().unwrap();
    });
}

#[test]
fn refused_launch_is_the_error_of_the_call() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |mut worker| {
            let id = worker.receive().id;
            worker.send(&Message::Reply {
                id,
                result: Err(Failure::invalid_argument("no")),
            });
            let id = worker.receive().id;
            worker.reply(id, Reply::Done);
        });
        let error = launch(&connection).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PrepareModelFromCache failed on test-device: INVALID_ARGUMENT: no"
        );
        let error = launch(&connection).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
        worker.join().unwrap();
    });
}

#[test]
fn worker_that_dies_before_it_answers_is_told_by_its_supervisor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test-device.sock");
    let listener = Listener::bind(&path).unwrap();
    let error = std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            Connection::open(&path, soon(), None, &Trust::default(), Timeouts::default()).unwrap_err()
        });
        let socket = accept(&listener);
        Inbox::new().receive_bytes(&socket, soon()).unwrap();
        let worker_exit = Message::WorkerExit(WorkerExit {
            worker_pid: 12,
            cause: CauseOfDeath::Killed {
                signal: 9,
                core_dumped: false,
            },
            last_words: String::new(),
        });
        nnhal::wire::send(&socket, VERSIONS.oldest, &worker_exit, &[], soon()).unwrap();
        drop(socket);
        opened.join().unwrap()
    });
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.remedy(), Remedy::Reconnect);
    assert_eq!(error.process().unwrap().pid, 12);
}

#[test]
fn handshake_that_comes_to_nothing_says_why() {
    let open = |answer: Option<Vec<u8>>| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test-device.sock");
        let listener = Listener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| {
                Connection::open(&path, soon(), None, &Trust::default(), Timeouts::default()).unwrap_err()
            });
            let socket = accept(&listener);
            Inbox::new().receive_bytes(&socket, soon()).unwrap();
            if let Some(answer) = answer {
                socket.send(&answer, &[], soon()).unwrap();
            }
            drop(socket);
            opened.join().unwrap()
        })
    };
    let newer = Versions { newest: 9, oldest: 8 };
    let error = open(Some(handshake::refuse(newer, Refusal::Version, "")));
    assert!(
        error.to_string().contains("use a newer client library"),
        "{error}"
    );
    assert_eq!(error.remedy(), Remedy::GiveUp);
    let error = open(Some(handshake::refuse(VERSIONS, Refusal::Busy, "too many")));
    assert!(error.to_string().contains("too many"), "{error}");
    assert_eq!(error.remedy(), Remedy::Retry);
    let error = open(Some(b"HTTP/1.1 400 Bad Request".to_vec()));
    assert!(error.to_string().contains("does not speak"), "{error}");
    // A pidfd that is announced and does not come.
    let error = open(Some(
        handshake::accept(VERSIONS, VERSIONS.oldest, &welcome(true)).unwrap(),
    ));
    assert!(matches!(error.kind(), ErrorKind::Handshake { .. }), "{error}");
    let error = open(None);
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.process().unwrap().role, Role::Supervisor);
}
