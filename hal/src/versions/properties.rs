//! Properties of the conversions over generated values: up and down again is the identity, and down and up
//! again is wherever nothing was lost.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{model, v1_0, v1_1, v1_2};
use crate::{
    Capabilities, DataLocation, ErrorStatus, ExtensionNameAndPrefix, ExtraParams, HalVersion, MemoryPool,
    Model, OperandPerformance, OperandType, Operation, OperationType, PerformanceInfo, Request,
    RequestArgument, RequestPool,
};

/// Few figures, so that some are equal.
fn info() -> impl Strategy<Value = PerformanceInfo> {
    (0..3_u8, 0..2_u8).prop_map(|(time, power)| {
        let figure = |code: u8| {
            if code == 2 {
                f32::MAX
            } else {
                0.5 + f32::from(code)
            }
        };
        PerformanceInfo {
            exec_time: figure(time),
            power_usage: figure(power),
        }
    })
}

fn v1_0_capabilities() -> impl Strategy<Value = v1_0::Capabilities> {
    (info(), info()).prop_map(
        |(float32_performance, quantized8_performance)| v1_0::Capabilities {
            float32_performance,
            quantized8_performance,
        },
    )
}

fn v1_2_capabilities(types: &'static [OperandType]) -> impl Strategy<Value = v1_2::Capabilities> {
    let list = proptest::sample::subsequence(types, 0..=types.len());
    let list = list.prop_flat_map(|types| {
        let count = types.len();
        vec(info(), count).prop_map(move |infos| {
            let pairs = types.iter().zip(infos);
            pairs
                .map(|(&operand_type, info)| OperandPerformance { operand_type, info })
                .collect::<Vec<_>>()
        })
    });
    (info(), info(), list).prop_map(|(scalar, tensor, operand_performance)| v1_2::Capabilities {
        relaxed_float32_to_float16_performance_scalar: scalar,
        relaxed_float32_to_float16_performance_tensor: tensor,
        operand_performance,
    })
}

/// The types of 1.2, by rising code.
static TYPES_OF_1_2: std::sync::LazyLock<Vec<OperandType>> = std::sync::LazyLock::new(|| {
    let all = OperandType::ALL.iter().copied();
    all.filter(|ty| ty.since().is_some_and(|since| since <= HalVersion::V1_2))
        .collect()
});

fn latest_capabilities() -> impl Strategy<Value = Capabilities> {
    // From old ones, so that families often agree, with some figures changed.
    let changes = vec((proptest::sample::select(OperandType::ALL), info()), 0..3);
    (v1_0_capabilities(), info(), any::<bool>(), changes).prop_map(
        |(oldest, control_flow, is_new, changes)| {
            let mut latest = Capabilities::from(oldest);
            if is_new {
                latest.if_performance = control_flow;
            }
            for (operand_type, info) in changes {
                let known = latest
                    .operand_performance
                    .binary_search_by_key(&operand_type, |entry| entry.operand_type);
                match known {
                    Ok(at) => latest.operand_performance[at].info = info,
                    Err(at) => latest
                        .operand_performance
                        .insert(at, OperandPerformance { operand_type, info }),
                }
            }
            latest
        },
    )
}

/// Whether two devices are described alike: a type that is not listed has no figures.
fn say_the_same(left: &Capabilities, right: &Capabilities) -> bool {
    let of = |capabilities: &Capabilities| {
        let types = OperandType::ALL.iter();
        types.map(|ty| capabilities.lookup(*ty)).collect::<Vec<_>>()
    };
    let rest = |capabilities: &Capabilities| {
        [
            capabilities.relaxed_float32_to_float16_performance_scalar,
            capabilities.relaxed_float32_to_float16_performance_tensor,
            capabilities.if_performance,
            capabilities.while_performance,
        ]
    };
    of(left) == of(right) && rest(left) == rest(right)
}

fn location() -> impl Strategy<Value = DataLocation> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(pool_index, offset, length)| DataLocation {
        pool_index,
        offset,
        length,
    })
}

/// Operands of the types that 1.0 has. Nothing of a model needs to be valid for its form to be kept.
fn v1_0_operand() -> impl Strategy<Value = v1_0::Operand> {
    let types: Vec<OperandType> = OperandType::ALL
        .iter()
        .copied()
        .filter(|ty| ty.since() == Some(HalVersion::V1_0))
        .collect();
    let lifetime = proptest::sample::select(
        &[
            v1_0::OperandLifeTime::TemporaryVariable,
            v1_0::OperandLifeTime::ModelInput,
            v1_0::OperandLifeTime::ModelOutput,
            v1_0::OperandLifeTime::ConstantCopy,
            v1_0::OperandLifeTime::ConstantReference,
            v1_0::OperandLifeTime::NoValue,
        ][..],
    );
    let shape = (proptest::sample::select(types), vec(any::<u32>(), 1..4));
    (
        shape,
        any::<u32>(),
        -9.0..9.0_f32,
        any::<i32>(),
        lifetime,
        location(),
    )
        .prop_map(
            |((operand_type, dimensions), number_of_consumers, scale, zero_point, lifetime, location)| {
                v1_0::Operand {
                    operand_type,
                    dimensions: if operand_type.is_tensor() {
                        dimensions
                    } else {
                        Vec::new()
                    },
                    number_of_consumers,
                    scale,
                    zero_point,
                    lifetime,
                    location,
                }
            },
        )
}

fn operation(before: HalVersion) -> impl Strategy<Value = Operation> {
    let types: Vec<OperationType> = OperationType::ALL
        .iter()
        .copied()
        .filter(|kind| kind.since().is_some_and(|since| since <= before))
        .collect();
    let indexes = || vec(any::<u32>(), 0..4);
    (proptest::sample::select(types), indexes(), indexes()).prop_map(|(operation_type, inputs, outputs)| {
        Operation {
            operation_type,
            inputs,
            outputs,
        }
    })
}

fn v1_0_model() -> impl Strategy<Value = v1_0::Model> {
    let indexes = || vec(any::<u32>(), 0..4);
    let pools = vec(any::<u64>().prop_map(|size| MemoryPool { size }), 0..3);
    let graph = (vec(v1_0_operand(), 0..5), vec(operation(HalVersion::V1_0), 0..4));
    (graph, indexes(), indexes(), vec(any::<u8>(), 0..9), pools).prop_map(
        |((operands, operations), input_indexes, output_indexes, operand_values, pools)| v1_0::Model {
            operands,
            operations,
            input_indexes,
            output_indexes,
            operand_values,
            pools,
        },
    )
}

fn v1_2_model() -> impl Strategy<Value = v1_2::Model> {
    let operand = (v1_0_operand(), any::<bool>()).prop_map(|(mut base, is_extension)| {
        if is_extension {
            base.operand_type = OperandType::extension(1, 7);
            base.dimensions.clear();
        }
        v1_2::Operand {
            base,
            extra_params: if is_extension {
                ExtraParams::Extension(vec![1, 2])
            } else {
                ExtraParams::None
            },
        }
    });
    let parts = (vec(operand, 0..5), vec(operation(HalVersion::V1_2), 0..4));
    (parts, v1_0_model(), any::<bool>()).prop_map(|((operands, operations), rest, relaxed)| v1_2::Model {
        operands,
        operations,
        input_indexes: rest.input_indexes,
        output_indexes: rest.output_indexes,
        operand_values: rest.operand_values,
        pools: rest.pools,
        relax_computation_float32_to_float16: relaxed,
        extension_name_to_prefix: vec![ExtensionNameAndPrefix {
            name: "com.example.test".into(),
            prefix: 1,
        }],
    })
}

fn request() -> impl Strategy<Value = Request> {
    let argument = || {
        (any::<bool>(), location(), vec(any::<u32>(), 0..4)).prop_map(
            |(has_no_value, location, dimensions)| RequestArgument {
                has_no_value,
                location,
                dimensions,
            },
        )
    };
    let pool = prop_oneof![
        4 => any::<u64>().prop_map(|size| RequestPool::Memory { size }),
        1 => any::<u32>().prop_map(RequestPool::Token),
    ];
    (vec(argument(), 0..4), vec(argument(), 0..4), vec(pool, 0..4)).prop_map(|(inputs, outputs, pools)| {
        Request {
            inputs,
            outputs,
            pools,
        }
    })
}

proptest! {
    #[test]
    fn capabilities_taken_up_come_down_as_they_were(
        oldest in v1_0_capabilities(),
        relaxed in info(),
        older in v1_2_capabilities(&TYPES_OF_1_2),
    ) {
        let down = Capabilities::from(oldest).to_v1_0();
        prop_assert_eq!((down.value, down.losses), (oldest, vec![]));
        let v1_1 = v1_1::Capabilities {
            relaxed_float32_to_float16_performance: relaxed,
            ..v1_1::Capabilities::from(oldest)
        };
        let down = Capabilities::from(v1_1).to_v1_1();
        prop_assert_eq!((down.value, down.losses), (v1_1, vec![]));
        let down = Capabilities::from(older.clone()).to_v1_2();
        prop_assert_eq!((down.value, down.losses), (older, vec![]));
    }

    #[test]
    fn capabilities_taken_down_without_loss_come_up_as_they_were(latest in latest_capabilities()) {
        let (v1_0, v1_1, v1_2) = (latest.to_v1_0(), latest.to_v1_1(), latest.to_v1_2());
        let ways = [
            (v1_0.losses, Capabilities::from(v1_0.value)),
            (v1_1.losses, Capabilities::from(v1_1.value)),
            (v1_2.losses, Capabilities::from(v1_2.value)),
        ];
        for (losses, up) in ways {
            prop_assert_eq!(losses.is_empty(), say_the_same(&latest, &up), "{:?} {:?}", losses, up);
        }
    }

    #[test]
    fn models_taken_up_come_down_as_they_were(oldest in v1_0_model(), relaxed: bool, older in v1_2_model()) {
        let down = |latest: Model, version| model::to_v1_2(latest, version).unwrap();
        let v1_0 = model::to_v1_0(model::to_v1_1(down(oldest.clone().into(), HalVersion::V1_0)));
        prop_assert_eq!((&v1_0.value, v1_0.losses), (&oldest, vec![]));
        let v1_1 = v1_1::Model {
            graph: oldest,
            relax_computation_float32_to_float16: relaxed,
        };
        let again = model::to_v1_1(down(v1_1.clone().into(), HalVersion::V1_1));
        prop_assert_eq!((&again.value, again.losses), (&v1_1, vec![]));
        let again = down(older.clone().into(), HalVersion::V1_2);
        prop_assert_eq!((again.value, again.losses), (older, vec![]));
    }

    #[test]
    fn models_taken_down_without_loss_come_up_as_they_were(older in v1_2_model()) {
        let latest = Model::from(older);
        let Ok(v1_2) = model::to_v1_2(latest.clone(), HalVersion::V1_0) else {
            prop_assert!(latest.main.operands.iter().any(|operand| operand.obstacle(HalVersion::V1_0).is_some())
                || latest.main.operations.iter().any(|operation| operation.operation_type.since() > Some(HalVersion::V1_0)));
            return Ok(());
        };
        let v1_0 = model::to_v1_0(model::to_v1_1(v1_2));
        // The mapping of an extension that nothing uses is lost, and maybe the flag.
        prop_assert!(!v1_0.losses.is_empty());
        let mut without = latest;
        without.extension_name_to_prefix.clear();
        let is_relaxed = std::mem::take(&mut without.relax_computation_float32_to_float16);
        prop_assert_eq!(v1_0.losses.len(), 1 + usize::from(is_relaxed));
        prop_assert_eq!(Model::from(v1_0.value), without);
    }

    #[test]
    fn requests_of_memories_go_down_and_up_and_device_buffers_do_not(request in request()) {
        let has_token = request.pools.iter().any(|pool| matches!(pool, RequestPool::Token(_)));
        match request.to_v1_0() {
            Ok(older) => {
                prop_assert!(!has_token);
                prop_assert_eq!(Request::from(older.clone()), request);
                prop_assert_eq!(Request::from(older.clone()).to_v1_0(), Ok(older));
            }
            Err(error) => {
                prop_assert!(has_token && error.to_string().contains("device buffer"), "{}", error);
                prop_assert_eq!(request.compliant_with(HalVersion::V1_3), vec![]);
            }
        }
    }

    #[test]
    fn statuses_go_down_and_up(code in 0_u32..9) {
        let status = ErrorStatus::from_code(code).unwrap();
        let down = status.to_v1_0();
        prop_assert_eq!(down.losses.is_empty(), ErrorStatus::from(down.value) == status);
        prop_assert_eq!(ErrorStatus::from(down.value).to_v1_0().value, down.value);
    }
}
