//! A value of every message, for the golden bytes. The values are chosen so that no two fields of a message
//! could change places unnoticed.

use super::*;
use nnhal_hal::{
    BufferDesc, BufferRole, Capabilities, DataLocation, DeviceInfo, DeviceStatus, DeviceType, ErrorStatus,
    Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation, ExtraParams, Failure, HalVersion,
    MeasureTiming, MemoryPool, Model, NumberOfCacheFiles, Operand, OperandLifeTime, OperandPerformance,
    OperandType, Operation, OperationSupport, OperationType, OutputShape, PerformanceInfo, Place, Request,
    RequestArgument, RequestPool, Subgraph, SymmPerChannelQuantParams, Timing,
};

/// The calls' id.
pub(super) const ID: u64 = 0x0807_0605_0403_0201;

fn handle<T: From<Handle>>(index: u32) -> T {
    Handle {
        index,
        generation: index + 0x100,
    }
    .into()
}

fn token() -> [u8; 32] {
    std::array::from_fn(|index| index as u8 + 0xA0)
}

fn location(start: u32) -> DataLocation {
    DataLocation {
        pool_index: start,
        offset: start + 1,
        length: start + 2,
    }
}

fn operand(lifetime: OperandLifeTime, extra_params: ExtraParams) -> Operand {
    Operand {
        operand_type: OperandType::TENSOR_QUANT8_ASYMM,
        dimensions: vec![2, 3],
        number_of_consumers: 1,
        scale: 0.5,
        zero_point: -7,
        lifetime,
        location: location(0x10),
        extra_params,
    }
}

fn model() -> Model {
    let channels = SymmPerChannelQuantParams {
        scales: vec![0.25, 4.0],
        channel_dim: 3,
    };
    Model {
        main: Subgraph {
            operands: vec![
                operand(OperandLifeTime::TemporaryVariable, ExtraParams::None),
                operand(
                    OperandLifeTime::SubgraphInput,
                    ExtraParams::ChannelQuant(channels),
                ),
                operand(
                    OperandLifeTime::SubgraphOutput,
                    ExtraParams::Extension(vec![9, 8, 7]),
                ),
                operand(OperandLifeTime::ConstantCopy, ExtraParams::None),
                operand(OperandLifeTime::ConstantReference, ExtraParams::None),
                operand(OperandLifeTime::NoValue, ExtraParams::None),
                operand(OperandLifeTime::Subgraph, ExtraParams::None),
            ],
            operations: vec![Operation {
                operation_type: OperationType::MUL,
                inputs: vec![0, 1, 2],
                outputs: vec![3],
            }],
            input_indexes: vec![4, 5],
            output_indexes: vec![6],
        },
        referenced: vec![Subgraph::default()],
        operand_values: vec![1, 2, 3, 4, 5],
        pools: vec![MemoryPool { size: 0x1000 }],
        relax_computation_float32_to_float16: true,
        extension_name_to_prefix: vec![ExtensionNameAndPrefix {
            name: "com.example".into(),
            prefix: 0x0102,
        }],
    }
}

fn request() -> RequestWithMemories {
    RequestWithMemories {
        request: Request {
            inputs: vec![
                RequestArgument {
                    has_no_value: false,
                    location: location(0x20),
                    dimensions: vec![5, 6],
                },
                RequestArgument {
                    has_no_value: true,
                    ..RequestArgument::default()
                },
            ],
            outputs: vec![RequestArgument {
                has_no_value: false,
                location: location(0x30),
                dimensions: Vec::new(),
            }],
            pools: vec![RequestPool::Memory { size: 0x2000 }, RequestPool::Token(0x77)],
        },
        memories: vec![handle(0x40), handle(0x41)],
    }
}

pub(super) fn calls() -> Vec<(&'static str, Call)> {
    let roles = |start: u32| {
        vec![BufferRole {
            model_index: start,
            io_index: start + 1,
            frequency: 0.75,
        }]
    };
    let cache = || CacheFiles {
        model: vec![1, 2],
        data: vec![3],
    };
    let execute = |form, measure, deadline_ns| Execute {
        prepared_model: handle(0x50),
        request: request(),
        form,
        measure,
        deadline_ns,
        loop_timeout_ns: Some(0x52),
    };
    let released = [
        ("a prepared model", Object::PreparedModel(handle(0x70))),
        ("a memory", Object::Memory(handle(0x71))),
        ("a burst", Object::Burst(handle(0x72))),
        ("a buffer", Object::Buffer(handle(0x73))),
        ("an execution", Object::Execution(handle(0x74))),
        ("a fence", Object::Fence(handle(0x75))),
    ];
    let mut calls = vec![
        ("", Call::GetStatus),
        (
            "",
            Call::GetSupportedOperations {
                model: model(),
                pools: vec![handle(1), handle(2)],
            },
        ),
        (
            "",
            Call::PrepareModel(Box::new(PrepareModel {
                model: model(),
                pools: vec![handle(3)],
                preference: 2,
                priority: -1,
                deadline_ns: Some(0x1122_3344_5566_7788),
                cache: cache(),
                token: token(),
            })),
        ),
        (
            "",
            Call::PrepareModelFromCache(PrepareModelFromCache {
                deadline_ns: Some(0x99),
                cache: cache(),
                token: token(),
            }),
        ),
        (
            "",
            Call::Allocate {
                desc: BufferDesc {
                    dimensions: vec![7, 8],
                },
                prepared_models: vec![handle(4)],
                input_roles: roles(0x60),
                output_roles: roles(0x62),
            },
        ),
        (
            "",
            Call::CopyTo {
                buffer: handle(5),
                memory: handle(6),
            },
        ),
        (
            "",
            Call::CopyFrom {
                buffer: handle(7),
                memory: handle(8),
                dimensions: vec![1, 9],
            },
        ),
        (
            "",
            Call::RegisterMemory(MemoryDescription {
                name: "mmap_fd".into(),
                fds: 1,
                size: 0x3000,
                offset: 0x4000,
                protection: 3,
            }),
        ),
        ("", Call::RegisterFence),
        (
            "synchronous",
            Call::Execute(execute(ExecutionForm::Synchronous, MeasureTiming::No, Some(0x51))),
        ),
        (
            "asynchronous",
            Call::Execute(execute(ExecutionForm::Asynchronous, MeasureTiming::Yes, None)),
        ),
        (
            "",
            Call::ExecuteFenced(ExecuteFenced {
                prepared_model: handle(0x53),
                request: request(),
                wait_for: vec![
                    FenceArgument::Attached { fds: 1 },
                    FenceArgument::Registered(handle(0x54)),
                    FenceArgument::Execution(handle(0x55)),
                ],
                measure: MeasureTiming::Yes,
                limits: FencedLimits {
                    deadline_ns: Some(0x56),
                    loop_timeout_ns: Some(0x57),
                    duration_ns: Some(0x58),
                },
            }),
        ),
        ("", Call::GetExecutionInfo { execution: handle(9) }),
        (
            "",
            Call::ConfigureBurst {
                prepared_model: handle(10),
                polling_window_ns: Some(0x59),
            },
        ),
        ("", Call::Cancel { id: ID + 1 }),
        ("", Call::StartTrace { size: 0x5000 }),
        (
            "",
            Call::CancelBurst {
                burst: handle(0x5100),
                sequence: 0x5200,
            },
        ),
        (
            "",
            Call::GetBurstFence {
                burst: handle(0x5300),
                sequence: 0x5400,
            },
        ),
    ];
    calls.extend(
        released
            .into_iter()
            .map(|(name, object)| (name, Call::Release { object })),
    );
    calls
}

fn failure() -> Failure {
    Failure::new(ErrorStatus::MissedDeadlineTransient, "zu spät").at(Place {
        subgraph: Some(1),
        operation: None,
        operand: Some(2),
        pool: Some(3),
    })
}

fn timing(start: u64) -> Timing {
    Timing {
        time_on_device_us: start,
        time_in_driver_us: start + 1,
    }
}

fn executed(outcome: Result<(), Failure>) -> ExecutionResult {
    ExecutionResult {
        outcome,
        output_shapes: vec![OutputShape {
            dimensions: vec![3, 4],
            is_sufficient: true,
        }],
        timing: timing(0x80),
    }
}

fn replies() -> Vec<(&'static str, Reply)> {
    let support = vec![
        OperationSupport::Supported,
        OperationSupport::Unsupported { reason: "no".into() },
    ];
    vec![
        ("Done", Reply::Done),
        ("Status", Reply::Status(DeviceStatus::Busy)),
        ("SupportedOperations", Reply::SupportedOperations(support)),
        ("Launched", Reply::Launched),
        ("Memory", Reply::Memory(handle(11))),
        ("Fence", Reply::Fence(handle(12))),
        (
            "Allocated",
            Reply::Allocated(Allocated {
                buffer: handle(13),
                token: 0x14,
            }),
        ),
        ("Executed", Reply::Executed(executed(Ok(())))),
        (
            "Fenced",
            Reply::Fenced(FenceStarted {
                execution: handle(15),
                has_fence: true,
            }),
        ),
        (
            "ExecutionInfo",
            Reply::ExecutionInfo(ExecutionInfo {
                result: Ok(()),
                timing_launched: timing(0x82),
                timing_fenced: timing(0x84),
            }),
        ),
        ("Burst", Reply::Burst(handle(16))),
        ("BurstFence", Reply::BurstFence { has_fence: true }),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("Prepared", Event::Prepared(Ok(handle(17)))),
        ("Prepared with a failure", Event::Prepared(Err(failure()))),
        ("Executed", Event::Executed(executed(Ok(())))),
        (
            "Executed with a failure",
            Event::Executed(executed(Err(failure()))),
        ),
    ]
}

pub(super) fn messages() -> Vec<(String, Message)> {
    let mut messages: Vec<(String, Message)> = Vec::new();
    for (name, reply) in replies() {
        let result = Ok(reply);
        messages.push((format!("reply {name}"), Message::Reply { id: ID, result }));
    }
    let result = Err(failure());
    messages.push(("reply of a failure".into(), Message::Reply { id: ID, result }));
    for (name, event) in events() {
        messages.push((format!("event {name}"), Message::Event { id: ID, event }));
    }
    let reason = "the driver is ending".into();
    messages.push(("goodbye".into(), Message::Goodbye { reason }));
    let causes = [
        ("exited", CauseOfDeath::Exited { code: 70 }),
        (
            "killed",
            CauseOfDeath::Killed {
                signal: 11,
                core_dumped: true,
            },
        ),
    ];
    for (name, cause) in causes {
        let worker_exit = WorkerExit {
            worker_pid: 0x85,
            cause,
            last_words: "CONV_2D hung".into(),
        };
        messages.push((format!("worker exit {name}"), Message::WorkerExit(worker_exit)));
    }
    messages
}

pub(super) fn welcome() -> Welcome {
    let info = |ratio| PerformanceInfo {
        exec_time: ratio,
        power_usage: ratio + 1.0,
    };
    Welcome {
        device: DeviceInfo {
            name: "nnhal-test".into(),
            version: "1.2".into(),
            device_type: DeviceType::Accelerator,
            hal_version: HalVersion::V1_3,
            capabilities: Capabilities {
                relaxed_float32_to_float16_performance_scalar: info(1.0),
                relaxed_float32_to_float16_performance_tensor: info(2.0),
                operand_performance: vec![OperandPerformance {
                    operand_type: OperandType::TENSOR_FLOAT32,
                    info: info(3.0),
                }],
                if_performance: info(4.0),
                while_performance: info(5.0),
            },
            extensions: vec![Extension {
                name: "com.example".into(),
                operand_types: vec![ExtensionOperandTypeInformation {
                    number: 3,
                    is_tensor: true,
                    byte_size: 8,
                }],
            }],
            cache_files: NumberOfCacheFiles { model: 1, data: 2 },
        },
        worker_pid: 0x86,
        supervisor_pid: 0x87,
        has_pidfd: true,
    }
}
