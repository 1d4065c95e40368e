//! Requests that come over a ring.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nnhal::fmq::{ChannelEnd, ChannelSize, WaitSettings};
use nnhal::wire::MemoryDescription;
use nnhal_conformance::fuzzing::seeds;
use nnhal_device::{Control, DeviceOptions, PrepareOptions, Undisturbed};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    BufferRole, ExecutionPreference, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation,
    OperationType, Priority, Subgraph,
};
use nnhal_os::eventfd;
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::Deadline;

use super::serve::{Objects, Server, State};
use crate::device::cpu;
use crate::scheduler::Scheduler;
use crate::settings::Limits;
use crate::usage::Quotas;
use crate::worker::buffer::Buffers;
use crate::worker::idle::IdleRelease;
use crate::worker::memory::Memories;
use crate::worker::prepared::Prepared;
use crate::worker::watchdog::Watchdog;

/// The rings: short, so that requests and results meet their ends.
const SIZE: ChannelSize = ChannelSize {
    outgoing: 64,
    incoming: 8,
};

/// Bytes of the memory that requests may name, by index 0 and generation 0.
const MEMORY: u64 = 4096;

/// A model that adds two tensors of these dimensions; 0 leaves them open.
fn add(dimensions: &[u32]) -> Model {
    let tensor = |lifetime| Operand::new(OperandType::TENSOR_FLOAT32, dimensions).with_lifetime(lifetime);
    let mut operands = vec![
        tensor(OperandLifeTime::SubgraphInput),
        tensor(OperandLifeTime::SubgraphInput),
        Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
        tensor(OperandLifeTime::SubgraphOutput),
    ];
    operands[2].location.length = 4;
    operands[..3]
        .iter_mut()
        .for_each(|operand| operand.number_of_consumers = 1);
    Model {
        main: Subgraph {
            operands,
            operations: vec![Operation {
                operation_type: OperationType::ADD,
                inputs: vec![0, 1, 2],
                outputs: vec![3],
            }],
            input_indexes: vec![0, 1],
            output_indexes: vec![3],
        },
        operand_values: vec![0; 4],
        ..Model::default()
    }
}

fn prepared(model: Model) -> Arc<Prepared> {
    let device = cpu::create_fast(&DeviceOptions::default()).expect("the device");
    let model = Arc::new(ValidModel::new(Arc::new(model), &NoPools, &[]).expect("a valid model"));
    let work = Undisturbed::new();
    let (preference, priority) = (ExecutionPreference::FastSingleAnswer, Priority::Medium);
    let options = PrepareOptions {
        preference,
        priority,
        control: &Control::new(&work, Deadline::NONE, Duration::from_secs(1)),
    };
    let made = device.prepare(Arc::clone(&model), &NoPools, &options);
    let watchdog = Arc::new(Watchdog::new(None, eventfd::create().expect("an eventfd")));
    Arc::new(Prepared::new(
        model,
        (made.expect("a prepared model"), None),
        (preference, priority),
        &Scheduler::alone(1),
        &watchdog,
    ))
}

/// A model whose sizes are fixed, and one whose sizes come with each request.
fn models() -> &'static [Arc<Prepared>; 2] {
    static MODELS: OnceLock<[Arc<Prepared>; 2]> = OnceLock::new();
    MODELS.get_or_init(|| [prepared(add(&[4])), prepared(add(&[0, 0]))])
}

/// What requests may name: a memory and, by token 1, a device buffer that is an output and an input.
fn objects(prepared: &Arc<Prepared>) -> Objects {
    let limits = Limits {
        buffer_bytes: 1 << 20,
        ..Limits::default()
    };
    let memories = Memories::new(&limits, Quotas::alone());
    let description = MemoryDescription {
        name: "ashmem".into(),
        fds: 1,
        size: MEMORY,
        offset: 0,
        protection: 3,
    };
    let memory = SharedMemory::create(MEMORY).expect("a memory");
    memories
        .register(&description, vec![memory.into()])
        .expect("a memory that is registered");
    let buffers = Buffers::new(&limits, Quotas::alone());
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let models = [Arc::clone(prepared.model())];
    let _ = buffers.allocate(&[], &models, &[role], &[role]);
    Objects {
        prepared: Arc::clone(prepared),
        memories: Arc::new(memories),
        buffers: Arc::new(buffers),
        idle_release: Arc::new(IdleRelease::new(None)),
    }
}

/// Sends the packets of `bytes`, but for the first byte, which says to which model, and has the worker serve
/// them.
pub fn burst_requests(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let wait = WaitSettings::Sleep;
    let (mut client, memory) = ChannelEnd::create(SIZE, wait).expect("the rings");
    let end = ChannelEnd::open(&memory, wait).expect("the worker's end");
    let objects = objects(&models()[usize::from(kind % 2)]);
    let mut server = Box::new(Server::new(objects, end, wait, &Quotas::alone()).expect("a burst"));
    let mut result = client.consumer.new_packet();
    for packet in seeds::packets(rest) {
        if client.producer.send(packet).is_err() {
            continue;
        }
        server.serve_ready();
        assert!(server.state != State::Ended, "a packet ended the burst");
        let is_answered = client.consumer.try_receive(&mut result);
        assert_eq!(is_answered, Ok(true), "a request has no answer");
    }
}

#[cfg(test)]
mod tests {
    use nnhal::burst::{
        Fencing, Pool, RequestHeader, encode_fire, encode_general, encode_register, encode_register_fenced,
        encode_unregister,
    };
    use nnhal::wire::Handle;
    use nnhal_hal::{DataLocation, MeasureTiming, Request, RequestArgument};

    use super::*;

    const HEADER: RequestHeader = RequestHeader {
        sequence: 1,
        measure: MeasureTiming::Yes,
        fencing: Fencing::No,
        deadline_ns: None,
    };

    fn argument(pool_index: u32, offset: u32, dimensions: &[u32]) -> RequestArgument {
        RequestArgument {
            has_no_value: false,
            location: DataLocation {
                pool_index,
                offset,
                length: 16,
            },
            dimensions: dimensions.to_vec(),
        }
    }

    /// A request whose arguments are in these pools.
    fn request(input: u32, output: u32, dimensions: &[u32]) -> Request {
        Request {
            inputs: vec![argument(input, 0, dimensions), argument(0, 16, dimensions)],
            outputs: vec![argument(output, 32, &[])],
            pools: Vec::new(),
        }
    }

    fn made() -> Vec<Vec<u8>> {
        let memory = Pool::Memory(Handle::from_bits(0).into());
        let places = [
            vec![memory],
            vec![memory, Pool::InlineInputs(16), Pool::InlineOutputs(64)],
            vec![memory, Pool::Buffer(1)],
        ];
        let mut made = Vec::new();
        let mut packet = Vec::new();
        for kind in [0, 1] {
            let dimensions: &[u32] = if kind == 0 { &[] } else { &[2, 2] };
            for pools in &places {
                let last = pools.len() as u32 - 1;
                for (input, output) in [(0, last), (last.min(1), 0), (last.min(1), last)] {
                    let request = request(input, output, dimensions);
                    encode_general(&mut packet, &HEADER, &request, pools, &[1; 16]);
                    let mut packets = vec![packet.clone()];
                    encode_register(&mut packet, 2, 3, &request, pools);
                    packets.push(packet.clone());
                    encode_fire(&mut packet, &HEADER, 3, &[2; 16]);
                    packets.extend([packet.clone(), packet.clone()]);
                    encode_unregister(&mut packet, 4, 3);
                    packets.extend([packet.clone(), packet.clone()]);
                    made.push([&[kind][..], &seeds::joined(&packets)].concat());
                }
            }
        }
        made.extend([0, 1].map(|kind| fenced(kind, &places[0])));
        made
    }

    /// Fenced executions, which wait for each other.
    fn fenced(kind: u8, pools: &[Pool]) -> Vec<u8> {
        let mut packets = vec![Vec::new(); 5];
        let fire = |packet: &mut Vec<u8>, sequence, fencing, number| {
            let header = RequestHeader {
                sequence,
                fencing,
                ..HEADER
            };
            encode_fire(packet, &header, number, &[]);
        };
        encode_register_fenced(&mut packets[0], 1, 3, &request(0, 0, &[]), pools);
        fire(&mut packets[1], 2, Fencing::Fenced, 3);
        fire(&mut packets[2], 3, Fencing::Behind, 3);
        fire(&mut packets[3], 4, Fencing::Fenced, 9);
        fire(&mut packets[4], 5, Fencing::Behind, 3);
        [&[kind][..], &seeds::joined(&packets)].concat()
    }

    #[test]
    fn burst_requests_in_the_tree_are_answered() {
        seeds::check("burst_requests", &made(), burst_requests);
    }
}
