//! Properties of the encoding over generated messages.

use nnhal_hal::{
    BufferDesc, BufferRole, Capabilities, DataLocation, DeviceInfo, DeviceStatus, DeviceType, ErrorStatus,
    Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation, ExtraParams, Failure, HalVersion,
    MeasureTiming, MemoryPool, Model, NumberOfCacheFiles, Operand, OperandLifeTime, OperandPerformance,
    OperandType, Operation, OperationSupport, OperationType, OutputShape, PerformanceInfo, Place, Request,
    RequestArgument, RequestPool, Subgraph, SymmPerChannelQuantParams, Timing,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::codec::{CodecError, decode, encode};
use super::*;

pub(super) fn welcome() -> Welcome {
    let info = PerformanceInfo {
        exec_time: 1.0,
        power_usage: 0.5,
    };
    Welcome {
        device: DeviceInfo {
            name: "nnhal-test".into(),
            version: "1".into(),
            device_type: DeviceType::Cpu,
            hal_version: HalVersion::V1_3,
            capabilities: Capabilities {
                relaxed_float32_to_float16_performance_scalar: info,
                relaxed_float32_to_float16_performance_tensor: info,
                operand_performance: vec![OperandPerformance {
                    operand_type: OperandType::FLOAT32,
                    info,
                }],
                if_performance: info,
                while_performance: info,
            },
            extensions: vec![Extension {
                name: "com.example.test".into(),
                operand_types: vec![ExtensionOperandTypeInformation {
                    number: 3,
                    is_tensor: true,
                    byte_size: 8,
                }],
            }],
            cache_files: NumberOfCacheFiles { model: 1, data: 2 },
        },
        worker_pid: 1,
        supervisor_pid: 2,
        has_pidfd: true,
    }
}

/// Strategies for every type that a message is made of.
mod any_of {
    use super::*;

    pub(super) fn handle() -> impl Strategy<Value = Handle> {
        (any::<u32>(), any::<u32>()).prop_map(|(index, generation)| Handle { index, generation })
    }

    fn handles<T: From<Handle> + std::fmt::Debug>() -> impl Strategy<Value = Vec<T>> {
        vec(handle().prop_map(T::from), 0..4)
    }

    fn indexes() -> impl Strategy<Value = Vec<u32>> {
        vec(any::<u32>(), 0..5)
    }

    fn location() -> impl Strategy<Value = DataLocation> {
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(pool_index, offset, length)| DataLocation {
            pool_index,
            offset,
            length,
        })
    }

    fn lifetime() -> impl Strategy<Value = OperandLifeTime> {
        prop_oneof![
            Just(OperandLifeTime::TemporaryVariable),
            Just(OperandLifeTime::SubgraphInput),
            Just(OperandLifeTime::ConstantReference),
            Just(OperandLifeTime::Subgraph),
        ]
    }

    fn extra_params() -> impl Strategy<Value = ExtraParams> {
        prop_oneof![
            Just(ExtraParams::None),
            (vec(-1e6_f32..1e6, 0..5), any::<u32>()).prop_map(|(scales, channel_dim)| {
                ExtraParams::ChannelQuant(SymmPerChannelQuantParams { scales, channel_dim })
            }),
            vec(any::<u8>(), 0..20).prop_map(ExtraParams::Extension),
        ]
    }

    fn operand() -> impl Strategy<Value = Operand> {
        (
            any::<u32>(),
            indexes(),
            any::<u32>(),
            -1e6_f32..1e6,
            any::<i32>(),
            lifetime(),
            location(),
            extra_params(),
        )
            .prop_map(
                |(ty, dimensions, consumers, scale, zero_point, lifetime, location, extra_params)| Operand {
                    operand_type: OperandType(ty),
                    dimensions,
                    number_of_consumers: consumers,
                    scale,
                    zero_point,
                    lifetime,
                    location,
                    extra_params,
                },
            )
    }

    fn operation() -> impl Strategy<Value = Operation> {
        (any::<u32>(), indexes(), indexes()).prop_map(|(ty, inputs, outputs)| Operation {
            operation_type: OperationType(ty),
            inputs,
            outputs,
        })
    }

    fn subgraph() -> impl Strategy<Value = Subgraph> {
        (vec(operand(), 0..4), vec(operation(), 0..3), indexes(), indexes()).prop_map(
            |(operands, operations, input_indexes, output_indexes)| Subgraph {
                operands,
                operations,
                input_indexes,
                output_indexes,
            },
        )
    }

    fn model() -> impl Strategy<Value = Model> {
        (
            subgraph(),
            vec(subgraph(), 0..2),
            vec(any::<u8>(), 0..100),
            vec(any::<u64>(), 0..3),
            any::<bool>(),
            vec(("[a-z.]{0,9}", any::<u16>()), 0..3),
        )
            .prop_map(
                |(main, referenced, operand_values, pools, relaxed, extensions)| Model {
                    main,
                    referenced,
                    operand_values,
                    pools: pools.into_iter().map(|size| MemoryPool { size }).collect(),
                    relax_computation_float32_to_float16: relaxed,
                    extension_name_to_prefix: extensions
                        .into_iter()
                        .map(|(name, prefix)| ExtensionNameAndPrefix { name, prefix })
                        .collect(),
                },
            )
    }

    fn argument() -> impl Strategy<Value = RequestArgument> {
        (any::<bool>(), location(), indexes()).prop_map(|(has_no_value, location, dimensions)| {
            RequestArgument {
                has_no_value,
                location,
                dimensions,
            }
        })
    }

    fn pool() -> impl Strategy<Value = RequestPool> {
        prop_oneof![
            any::<u64>().prop_map(|size| RequestPool::Memory { size }),
            any::<u32>().prop_map(RequestPool::Token),
        ]
    }

    fn request() -> impl Strategy<Value = RequestWithMemories> {
        (
            vec(argument(), 0..4),
            vec(argument(), 0..4),
            vec(pool(), 0..4),
            handles(),
        )
            .prop_map(|(inputs, outputs, pools, memories)| RequestWithMemories {
                request: Request {
                    inputs,
                    outputs,
                    pools,
                },
                memories,
            })
    }

    fn measure() -> impl Strategy<Value = MeasureTiming> {
        prop_oneof![Just(MeasureTiming::No), Just(MeasureTiming::Yes)]
    }

    fn cache() -> impl Strategy<Value = CacheFiles> {
        (vec(any::<u8>(), 0..33), vec(any::<u8>(), 0..33))
            .prop_map(|(model, data)| CacheFiles { model, data })
    }

    fn roles() -> impl Strategy<Value = Vec<BufferRole>> {
        let role =
            (any::<u32>(), any::<u32>(), 0.0_f32..1.0).prop_map(|(model_index, io_index, frequency)| {
                BufferRole {
                    model_index,
                    io_index,
                    frequency,
                }
            });
        vec(role, 0..3)
    }

    fn execute() -> impl Strategy<Value = Call> {
        let form = prop_oneof![
            Just(ExecutionForm::Synchronous),
            Just(ExecutionForm::Asynchronous)
        ];
        let time = || option::of(any::<u64>());
        (handle(), request(), form, measure(), time(), time()).prop_map(
            |(model, request, form, measure, deadline_ns, loop_timeout_ns)| {
                Call::Execute(Execute {
                    prepared_model: model.into(),
                    request,
                    form,
                    measure,
                    deadline_ns,
                    loop_timeout_ns,
                })
            },
        )
    }

    fn execute_fenced() -> impl Strategy<Value = Call> {
        let fence = prop_oneof![
            any::<u8>().prop_map(|fds| FenceArgument::Attached { fds }),
            handle().prop_map(|fence| FenceArgument::Registered(fence.into())),
            handle().prop_map(|execution| FenceArgument::Execution(execution.into())),
        ];
        let limits = (
            option::of(any::<u64>()),
            option::of(any::<u64>()),
            option::of(any::<u64>()),
        )
            .prop_map(|(deadline_ns, loop_timeout_ns, duration_ns)| FencedLimits {
                deadline_ns,
                loop_timeout_ns,
                duration_ns,
            });
        (handle(), request(), vec(fence, 0..4), measure(), limits).prop_map(
            |(model, request, wait_for, measure, limits)| {
                Call::ExecuteFenced(ExecuteFenced {
                    prepared_model: model.into(),
                    request,
                    wait_for,
                    measure,
                    limits,
                })
            },
        )
    }

    fn prepare() -> impl Strategy<Value = Call> {
        (
            model(),
            handles(),
            any::<i32>(),
            any::<i32>(),
            option::of(any::<u64>()),
            cache(),
            any::<[u8; 32]>(),
        )
            .prop_map(
                |(model, pools, preference, priority, deadline_ns, cache, token)| {
                    Call::PrepareModel(Box::new(PrepareModel {
                        model,
                        pools,
                        preference,
                        priority,
                        deadline_ns,
                        cache,
                        token,
                    }))
                },
            )
    }

    fn memory() -> impl Strategy<Value = Call> {
        (
            "[a-z_]{0,20}",
            any::<u8>(),
            any::<u64>(),
            any::<u64>(),
            any::<u32>(),
        )
            .prop_map(|(name, fds, size, offset, protection)| {
                Call::RegisterMemory(MemoryDescription {
                    name,
                    fds,
                    size,
                    offset,
                    protection,
                })
            })
    }

    fn object() -> impl Strategy<Value = Object> {
        prop_oneof![
            handle().prop_map(|handle| Object::PreparedModel(handle.into())),
            handle().prop_map(|handle| Object::Memory(handle.into())),
            handle().prop_map(|handle| Object::Burst(handle.into())),
            handle().prop_map(|handle| Object::Buffer(handle.into())),
            handle().prop_map(|handle| Object::Execution(handle.into())),
            handle().prop_map(|handle| Object::Fence(handle.into())),
        ]
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            Just(Call::GetStatus),
            (model(), handles()).prop_map(|(model, pools)| Call::GetSupportedOperations { model, pools }),
            prepare(),
            (option::of(any::<u64>()), cache(), any::<[u8; 32]>()).prop_map(|(deadline_ns, cache, token)| {
                Call::PrepareModelFromCache(PrepareModelFromCache {
                    deadline_ns,
                    cache,
                    token,
                })
            }),
            (indexes(), handles(), roles(), roles()).prop_map(
                |(dimensions, prepared_models, input_roles, output_roles)| Call::Allocate {
                    desc: BufferDesc { dimensions },
                    prepared_models,
                    input_roles,
                    output_roles,
                }
            ),
            (handle(), handle()).prop_map(|(buffer, memory)| Call::CopyTo {
                buffer: buffer.into(),
                memory: memory.into()
            }),
            (handle(), handle(), indexes()).prop_map(|(buffer, memory, dimensions)| Call::CopyFrom {
                buffer: buffer.into(),
                memory: memory.into(),
                dimensions,
            }),
            memory(),
            Just(Call::RegisterFence),
            execute(),
            execute_fenced(),
            handle().prop_map(|execution| Call::GetExecutionInfo {
                execution: execution.into()
            }),
            (handle(), option::of(any::<u64>())).prop_map(|(model, polling_window_ns)| {
                Call::ConfigureBurst {
                    prepared_model: model.into(),
                    polling_window_ns,
                }
            }),
            object().prop_map(|object| Call::Release { object }),
            any::<u64>().prop_map(|id| Call::Cancel { id }),
            any::<u64>().prop_map(|size| Call::StartTrace { size }),
        ]
    }

    pub(super) fn envelope() -> impl Strategy<Value = Envelope> {
        (any::<u64>(), call()).prop_map(|(id, call)| Envelope { id, call })
    }

    fn failure() -> impl Strategy<Value = Failure> {
        let index = || option::of(any::<u32>());
        let place =
            (index(), index(), index(), index()).prop_map(|(subgraph, operation, operand, pool)| Place {
                subgraph,
                operation,
                operand,
                pool,
            });
        let status = proptest::sample::select(&ErrorStatus::ALL[1..]);
        (status, ".{0,40}", place).prop_map(|(status, detail, place)| Failure::new(status, detail).at(place))
    }

    fn timing() -> impl Strategy<Value = Timing> {
        (any::<u64>(), any::<u64>()).prop_map(|(time_on_device_us, time_in_driver_us)| Timing {
            time_on_device_us,
            time_in_driver_us,
        })
    }

    fn execution_result() -> impl Strategy<Value = ExecutionResult> {
        let shape = (indexes(), any::<bool>()).prop_map(|(dimensions, is_sufficient)| OutputShape {
            dimensions,
            is_sufficient,
        });
        (
            proptest::result::maybe_ok(Just(()), failure()),
            vec(shape, 0..3),
            timing(),
        )
            .prop_map(|(outcome, output_shapes, timing)| ExecutionResult {
                outcome,
                output_shapes,
                timing,
            })
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let support = prop_oneof![
            Just(OperationSupport::Supported),
            ".{0,30}".prop_map(|reason| OperationSupport::Unsupported { reason }),
        ];
        prop_oneof![
            Just(Reply::Done),
            Just(Reply::Status(DeviceStatus::Busy)),
            vec(support, 0..5).prop_map(Reply::SupportedOperations),
            Just(Reply::Launched),
            handle().prop_map(|memory| Reply::Memory(memory.into())),
            handle().prop_map(|fence| Reply::Fence(fence.into())),
            (handle(), any::<u32>()).prop_map(|(buffer, token)| Reply::Allocated(Allocated {
                buffer: buffer.into(),
                token
            })),
            execution_result().prop_map(Reply::Executed),
            (handle(), any::<bool>()).prop_map(|(execution, has_fence)| {
                Reply::Fenced(FenceStarted {
                    execution: execution.into(),
                    has_fence,
                })
            }),
            (
                proptest::result::maybe_ok(Just(()), failure()),
                timing(),
                timing()
            )
                .prop_map(|(result, timing_launched, timing_fenced)| {
                    Reply::ExecutionInfo(ExecutionInfo {
                        result,
                        timing_launched,
                        timing_fenced,
                    })
                }),
            handle().prop_map(|burst| Reply::Burst(burst.into())),
            any::<bool>().prop_map(|has_fence| Reply::BurstFence { has_fence }),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            proptest::result::maybe_ok(handle().prop_map(PreparedModelHandle), failure())
                .prop_map(Event::Prepared),
            execution_result().prop_map(Event::Executed),
        ]
    }

    pub(super) fn message() -> impl Strategy<Value = Message> {
        let cause = prop_oneof![
            any::<i32>().prop_map(|code| CauseOfDeath::Exited { code }),
            (any::<i32>(), any::<bool>())
                .prop_map(|(signal, core_dumped)| CauseOfDeath::Killed { signal, core_dumped }),
        ];
        prop_oneof![
            (any::<u64>(), proptest::result::maybe_ok(reply(), failure()))
                .prop_map(|(id, result)| Message::Reply { id, result }),
            (any::<u64>(), event()).prop_map(|(id, event)| Message::Event { id, event }),
            ".{0,30}".prop_map(|reason| Message::Goodbye { reason }),
            (any::<u32>(), cause, ".{0,30}").prop_map(|(worker_pid, cause, last_words)| {
                Message::WorkerExit(WorkerExit {
                    worker_pid,
                    cause,
                    last_words,
                })
            }),
        ]
    }
}

/// Counts of descriptors are sums of untrusted numbers: they must not overflow.
fn check_envelope(envelope: &Envelope) {
    assert!(envelope.call.fd_count() <= usize::from(u8::MAX) * codec::MAX_MESSAGE);
}

proptest! {
    #[test]
    fn calls_survive_the_wire(envelope in any_of::envelope()) {
        check_envelope(&envelope);
        prop_assert_eq!(decode::<Envelope>(&encode(&envelope).unwrap()).unwrap(), envelope);
    }

    #[test]
    fn messages_survive_the_wire(message in any_of::message()) {
        prop_assert_eq!(decode::<Message>(&encode(&message).unwrap()).unwrap(), message);
    }

    #[test]
    fn truncated_calls_are_refused(envelope in any_of::envelope(), cut in any::<proptest::sample::Index>()) {
        let bytes = encode(&envelope).unwrap();
        prop_assert!(decode::<Envelope>(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn extended_calls_are_refused(envelope in any_of::envelope(), extra in vec(any::<u8>(), 1..9)) {
        let mut bytes = encode(&envelope).unwrap();
        bytes.extend_from_slice(&extra);
        let is_refused = matches!(decode::<Envelope>(&bytes), Err(CodecError::TrailingBytes { .. }));
        prop_assert!(is_refused);
    }

    #[test]
    fn flipped_bytes_never_panic(
        envelope in any_of::envelope(),
        flips in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..9),
    ) {
        let mut bytes = encode(&envelope).unwrap();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        if let Ok(envelope) = decode::<Envelope>(&bytes) {
            check_envelope(&envelope);
            prop_assert_eq!(encode(&envelope).unwrap(), bytes);
        }
    }

    #[test]
    fn calls_of_any_other_number_can_be_answered(
        id in any::<u64>(),
        number in 0x1_0000_u32..,
        rest in vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = encode(&id).unwrap();
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&rest);
        match decode::<Envelope>(&bytes) {
            Err(CodecError::UnknownCall { id: named, number: unknown, .. }) => {
                prop_assert_eq!((named, unknown), (id, number));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        for version in handshake::VERSIONS.oldest..=handshake::VERSIONS.newest {
            let _ = codec::decode_in::<Envelope>(version, &bytes);
            let _ = codec::decode_in::<Message>(version, &bytes);
        }
        let _ = handshake::read_hello(&bytes);
        let _ = handshake::read_answer(&bytes, handshake::VERSIONS);
    }
}
