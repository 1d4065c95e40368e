//! Against a worker that is a thread of the test.

use nnhal::burst::{
    RequestBody, RequestPacket, ResultHeader, decode_request, encode_failure, encode_success,
};
use nnhal::fmq::Packet;
use nnhal::wire::{Handle, MemoryHandle};
use nnhal_hal::{DeviceStatus, ErrorStatus, ExecutionPreference, OutputShape, Timing};
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::Deadline;

use super::*;
use crate::connection::tests::{Worker, connect, connect_with, impatient};
use crate::error::ErrorKind;
use crate::memory::Memory;
use crate::model::ArgumentTypes;
use crate::tensor::TensorType;
use crate::values::{Input, Output};

/// The worker's side of a burst.
struct Server {
    worker: Worker,
    end: ChannelEnd,
    packet: Packet,
    body: RequestBody,
    reply: Vec<u8>,
}

impl Server {
    fn open(mut worker: Worker) -> Server {
        let (envelope, mut fds) = worker.receive_with_fds();
        assert!(matches!(envelope.call, Call::ConfigureBurst { .. }));
        let fd = fds.pop().unwrap();
        let size = std::fs::File::from(fd.try_clone().unwrap())
            .metadata()
            .unwrap()
            .len();
        let memory = SharedMemory::from_fd(fd, size, size).unwrap();
        let end = ChannelEnd::open(&memory, WaitSettings::Sleep).unwrap();
        worker.reply(envelope.id, Reply::Burst(Handle::from_bits(3).into()));
        Server {
            worker,
            packet: end.consumer.new_packet(),
            end,
            body: RequestBody::default(),
            reply: Vec::new(),
        }
    }

    /// Answers the call that makes a memory known.
    fn answer_memory(&mut self) {
        let envelope = self.worker.receive_with_fds().0;
        assert!(matches!(envelope.call, Call::RegisterMemory(_)));
        let memory: MemoryHandle = Handle::from_bits(9).into();
        self.worker.reply(envelope.id, Reply::Memory(memory));
    }

    /// The next request, with the bytes that came with it.
    fn receive(&mut self) -> (RequestPacket<'_>, &RequestBody) {
        self.end
            .consumer
            .receive(&mut self.packet, Deadline::NONE)
            .unwrap();
        (
            decode_request(self.packet.bytes(), &mut self.body).unwrap(),
            &self.body,
        )
    }

    fn expect_fire(&mut self) -> (u32, f32) {
        match self.receive().0 {
            RequestPacket::Fire {
                header,
                layout: 0,
                inline,
            } => (
                header.sequence,
                f32::from_le_bytes(inline[..4].try_into().unwrap()),
            ),
            other => panic!("{other:?}"),
        }
    }

    /// Takes the registration of the arguments of [`run`].
    fn expect_registration(&mut self) {
        self.answer_memory();
        let sequence = match self.receive() {
            (RequestPacket::Register { header, layout: 0 }, body) => {
                assert_eq!(body.pools[..], [Pool::InlineInputs(4), Pool::InlineOutputs(4)]);
                header.sequence
            }
            other => panic!("{other:?}"),
        };
        self.succeed(sequence, &[]);
    }

    fn succeed(&mut self, sequence: u32, outputs: &[u8]) {
        encode_success(&mut self.reply, sequence, Timing::NONE, None, outputs);
        self.end.producer.send(&self.reply).unwrap();
    }
}

fn prepared(connection: &Arc<crate::connection::Connection>) -> PreparedModel {
    let types = ArgumentTypes {
        inputs: [TensorType::float32(&[1])].into(),
        outputs: [TensorType::float32(&[1])].into(),
        layouts: nnhal_hal::TypeLayouts::default(),
    };
    let preference = ExecutionPreference::FastSingleAnswer;
    PreparedModel::new(connection, Handle::from_bits(1).into(), Some(types), preference)
}

/// A burst against a worker that does `serve`.
fn with_burst<T: Send>(serve: impl FnOnce(Server) -> T + Send, test: impl FnOnce(Burst)) -> T {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |worker| serve(Server::open(worker)));
        test(prepared(&connection).burst(&BurstOptions::new()).unwrap());
        worker.join().unwrap()
    })
}

fn run(burst: &mut Burst, value: f32, options: &ExecuteOptions) -> Result<f32> {
    let mut output = [0.0_f32];
    burst.run(
        &[Input::from(&[value])],
        &mut [Output::from(&mut output)],
        options,
    )?;
    Ok(output[0])
}

#[test]
fn small_values_travel_inside_the_cells_and_are_registered_once() {
    with_burst(
        |mut server| {
            server.expect_registration();
            for _ in 0..3 {
                let (sequence, value) = server.expect_fire();
                server.succeed(sequence, &(value + 1.0).to_le_bytes());
            }
        },
        |mut burst| {
            for value in [1.0, 2.0, 3.0] {
                assert_eq!(
                    run(&mut burst, value, &ExecuteOptions::new()).unwrap(),
                    value + 1.0
                );
            }
        },
    );
}

#[test]
fn execution_that_is_given_up_is_waited_for_by_the_next() {
    let (release, released) = std::sync::mpsc::channel();
    with_burst(
        move |mut server| {
            server.expect_registration();
            let (given_up, _) = server.expect_fire();
            released.recv().unwrap();
            server.succeed(given_up, &7.0_f32.to_le_bytes());
            let (sequence, value) = server.expect_fire();
            server.succeed(sequence, &(value + 1.0).to_le_bytes());
        },
        |mut burst| {
            let short = ExecuteOptions::new().wait_at_most(Duration::from_millis(1));
            // The worker may be slow to see the registration, which waits for longer.
            let error = run(&mut burst, 1.0, &short).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
            // Nothing is sent behind it.
            let error = run(&mut burst, 3.0, &short).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
            release.send(()).unwrap();
            assert_eq!(run(&mut burst, 2.0, &ExecuteOptions::new()).unwrap(), 3.0);
        },
    );
}

#[test]
fn execution_without_a_limit_ends_by_the_one_that_the_program_sets() {
    let (give_up, given_up) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (connection, _) = connect_with(scope, impatient(), move |worker| {
            let mut server = Server::open(worker);
            server.expect_registration();
            let _ = given_up.recv();
        });
        let mut burst = prepared(&connection).burst(&BurstOptions::new()).unwrap();
        let error = run(&mut burst, 1.0, &ExecuteOptions::new()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
        drop(give_up);
    });
}

#[test]
fn nonsense_from_the_worker_ends_the_burst() {
    type Answer = fn(&mut Server, u32);
    let answers: [(Answer, &str); 5] = [
        (
            // Of an execution that was answered.
            |server, sequence| server.succeed(sequence - 1, &[0; 4]),
            "the result of execution 1",
        ),
        (
            |server, sequence| server.succeed(sequence + 1, &[0; 4]),
            "the result of execution 3",
        ),
        (
            |server, _| server.succeed(0, &[0; 4]),
            "the result of execution 0",
        ),
        (
            |server, _| server.end.producer.send(&[0xff; 56]).unwrap(),
            "which means nothing",
        ),
        (
            |server, sequence| {
                let shape = OutputShape {
                    dimensions: vec![1],
                    is_sufficient: false,
                };
                let shapes = [shape];
                let mut pairs = shapes
                    .iter()
                    .map(|shape| (&shape.dimensions[..], shape.is_sufficient));
                encode_success(
                    &mut server.reply,
                    sequence,
                    Timing::NONE,
                    Some(&mut pairs),
                    &[0; 4],
                );
                server.end.producer.send(&server.reply).unwrap();
            },
            "success with an output that was too small",
        ),
    ];
    for (answer, expected) in answers {
        with_burst(
            |mut server| {
                server.expect_registration();
                let (sequence, _) = server.expect_fire();
                answer(&mut server, sequence);
            },
            |mut burst| {
                let error = run(&mut burst, 1.0, &ExecuteOptions::new()).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
                assert!(error.to_string().contains(expected), "{error}");
            },
        );
    }
}

#[test]
fn failures_come_with_their_text_and_shapes() {
    with_burst(
        |mut server| {
            server.answer_memory();
            for (status, count) in [
                (ErrorStatus::OutputInsufficientSize, 1),
                (ErrorStatus::GeneralFailure, 0),
            ] {
                let sequence = match server.receive().0 {
                    RequestPacket::General { header, .. } => header.sequence,
                    other => panic!("{other:?}"),
                };
                let shapes = vec![
                    OutputShape {
                        dimensions: vec![5],
                        is_sufficient: false
                    };
                    count
                ];
                encode_failure(&mut server.reply, sequence, status, &shapes, "output 0 is short");
                server.end.producer.send(&server.reply).unwrap();
            }
        },
        |mut burst| {
            let memory = Memory::new(8).unwrap();
            let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
            let error = burst.execute(&request, &ExecuteOptions::new()).unwrap_err();
            assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize);
            assert_eq!(error.output_shapes()[0].dimensions, [5]);
            assert!(error.to_string().contains("output 0 is short"), "{error}");
            let error = burst.execute(&request, &ExecuteOptions::new()).unwrap_err();
            assert_eq!(error.status(), ErrorStatus::GeneralFailure);
        },
    );
}

#[test]
fn end_of_the_burst_alone_is_told_from_the_end_of_the_worker() {
    with_burst(
        |mut server| {
            server.end.closer.close();
            let id = server.worker.receive_with_fds().0.id;
            server
                .worker
                .reply(id, Reply::Memory(Handle::from_bits(9).into()));
            let id = server.worker.receive_with_fds().0.id;
            server.worker.reply(id, Reply::Status(DeviceStatus::Available));
            // The connection lives on: the memory is given up through it, once the error is there.
            server.worker.receive_with_fds();
        },
        |mut burst| {
            let error = run(&mut burst, 1.0, &ExecuteOptions::new()).unwrap_err();
            assert!(error.to_string().contains("the end of the burst"), "{error}");
        },
    );
    with_burst(
        |mut server| {
            server.expect_registration();
            // The worker ends, and with it the connection; nobody closes the rings.
            std::mem::forget(server.end);
        },
        |mut burst| {
            let error = run(&mut burst, 1.0, &ExecuteOptions::new()).unwrap_err();
            assert!(error.is_dead_object(), "{error}");
        },
    );
}

#[test]
fn requests_of_another_burst_are_refused() {
    std::thread::scope(|scope| {
        let (connection, worker) = connect(scope, |worker| {
            let mut first = Server::open(worker);
            first.answer_memory();
            let sequence = match first.receive().0 {
                RequestPacket::Register { header, .. } => header.sequence,
                other => panic!("{other:?}"),
            };
            first.succeed(sequence, &[]);
            let end = first.end;
            (Server::open(first.worker), end)
        });
        let model = prepared(&connection);
        let mut first = model.burst(&BurstOptions::new()).unwrap();
        let memory = Memory::new(8).unwrap();
        let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
        let registered = first.register(&request).unwrap();
        let mut second = model.burst(&BurstOptions::new()).unwrap();
        // Both have the same name at their worker, which shall not matter.
        let error = second.fire(&registered, &ExecuteOptions::new()).unwrap_err();
        assert!(error.to_string().contains("another burst"), "{error}");
        drop(worker.join().unwrap());
    });
}

#[test]
fn results_keep_their_header() {
    // What `Burst::run` relies on: a result without shapes is one cell.
    let mut reply = Vec::new();
    encode_success(&mut reply, 1, Timing::NONE, None, &[1; 48]);
    assert_eq!(reply.len(), nnhal::fmq::PAYLOAD_BYTES);
    let mut body = nnhal::burst::ResultBody::default();
    let (header, rest) = nnhal::burst::decode_result(&reply, &mut body).unwrap();
    let expected = ResultHeader {
        sequence: 1,
        status: ErrorStatus::None,
        timing: Timing::NONE,
        has_shapes: false,
    };
    assert_eq!((header, rest), (expected, &[1; 48][..]));
}
