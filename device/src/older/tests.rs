//! Devices that do not keep to their interface, or cannot do what they are asked for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::versions::{v1_0 as hal_1_0, v1_1 as hal_1_1, v1_2 as hal_1_2};
use nnhal_hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceType, ErrorStatus, ExecutionPreference, Failure,
    HalVersion, MeasureTiming, Model, NoPools, Operand, OperandLifeTime, OperandPerformance, OperandType,
    Operation, OperationSupport, OperationType, OutputShape, PerformanceInfo, Priority, Shape, Subgraph,
    Timing, loop_timeout,
};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::v1_2::Executed;
use super::*;
use crate::{Control, Device, Execution, PrepareOptions, PreparedModel, Undisturbed};

type OldStatus = hal_1_0::ErrorStatus;

const FIGURE: PerformanceInfo = PerformanceInfo {
    exec_time: 1.0,
    power_usage: 1.0,
};

/// What a device does when it is to prepare or to execute.
#[derive(Clone, Debug)]
enum Answer {
    Launch(OldStatus),
    Notify(OldStatus),
    Drop,
    /// Keeps the callback and never notifies it.
    Keep,
    /// In the form of 1.2.
    Shapes(OldStatus, Vec<OutputShape>),
    /// Gives every output the dimensions of the first input, and fills it with ones.
    Compute,
}

/// A device that answers as it is told.
#[derive(Clone, Debug)]
struct Told {
    supported: Result<Vec<bool>, OldStatus>,
    prepare: Answer,
    execute: Vec<Answer>,
    /// The operations of the models that it was asked about.
    asked: Arc<Mutex<Vec<Vec<OperationType>>>>,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            supported: Ok(vec![true]),
            prepare: Answer::Compute,
            execute: vec![Answer::Compute],
            asked: Arc::default(),
        }
    }
}

#[derive(Debug)]
struct ToldModel {
    answers: Mutex<Vec<Answer>>,
    kept: Mutex<Vec<ExecutionCallback>>,
}

impl Told {
    fn ask(&self, operations: &[Operation]) -> Result<Vec<bool>, OldStatus> {
        let types = operations
            .iter()
            .map(|operation| operation.operation_type)
            .collect();
        self.asked.lock().unwrap().push(types);
        self.supported.clone()
    }

    fn prepare(&self, callback: PreparedModelCallback) -> OldStatus {
        match self.prepare.clone() {
            Answer::Launch(status) => return status,
            Answer::Notify(status) => callback.notify(Err(status)),
            Answer::Drop => drop(callback),
            Answer::Keep => std::mem::forget(callback),
            Answer::Shapes(..) | Answer::Compute => callback.notify_1_2(Ok(Arc::new(ToldModel {
                answers: Mutex::new(self.execute.clone()),
                kept: Mutex::default(),
            }))),
        }
        OldStatus::None
    }
}

impl v1_0::Device for Told {
    fn capabilities(&self) -> Result<hal_1_0::Capabilities, OldStatus> {
        Ok(hal_1_0::Capabilities {
            float32_performance: FIGURE,
            quantized8_performance: FIGURE,
        })
    }

    fn supported_operations(
        &self,
        model: &hal_1_0::Model,
        _: &dyn ConstantPools,
    ) -> Result<Vec<bool>, OldStatus> {
        self.ask(&model.operations)
    }

    fn prepare_model(
        &self,
        _: &hal_1_0::Model,
        _: &dyn ConstantPools,
        callback: PreparedModelCallback,
    ) -> OldStatus {
        self.prepare(callback)
    }
}

impl v1_1::Device for Told {
    fn capabilities_1_1(&self) -> Result<hal_1_1::Capabilities, OldStatus> {
        Err(OldStatus::DeviceUnavailable)
    }

    fn supported_operations_1_1(
        &self,
        model: &hal_1_1::Model,
        _: &dyn ConstantPools,
    ) -> Result<Vec<bool>, OldStatus> {
        self.ask(&model.graph.operations)
    }

    fn prepare_model_1_1(
        &self,
        _: &hal_1_1::Model,
        _: &dyn ConstantPools,
        _: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> OldStatus {
        self.prepare(callback)
    }
}

impl v1_2::Device for Told {
    fn version_string(&self) -> Result<String, OldStatus> {
        Ok("1".to_owned())
    }

    fn device_type(&self) -> Result<DeviceType, OldStatus> {
        Ok(DeviceType::Gpu)
    }

    fn capabilities_1_2(&self) -> Result<hal_1_2::Capabilities, OldStatus> {
        let mut figures = Capabilities::from(v1_0::Device::capabilities(self)?)
            .to_v1_2()
            .value;
        if self.supported.is_err() {
            figures.operand_performance.insert(
                0,
                OperandPerformance {
                    operand_type: OperandType::TENSOR_FLOAT16,
                    info: FIGURE,
                },
            );
        }
        Ok(figures)
    }

    fn supported_operations_1_2(
        &self,
        model: &hal_1_2::Model,
        _: &dyn ConstantPools,
    ) -> Result<Vec<bool>, OldStatus> {
        self.ask(&model.operations)
    }

    fn prepare_model_1_2(
        &self,
        _: &hal_1_2::Model,
        _: &dyn ConstantPools,
        _: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> OldStatus {
        self.prepare(callback)
    }
}

impl ToldModel {
    fn next(&self) -> Answer {
        self.answers.lock().unwrap().remove(0)
    }
}

fn compute(request: &hal_1_0::Request, memories: &RequestMemories) -> Executed {
    let first = &request.inputs[0];
    let needed = first.location.length;
    let mut output_shapes = Vec::new();
    for output in &request.outputs {
        let is_sufficient = output.location.length >= needed;
        if is_sufficient {
            memories.write(output.location, |room| room.fill(1)).unwrap();
        }
        output_shapes.push(OutputShape {
            dimensions: first.dimensions.clone(),
            is_sufficient,
        });
    }
    let has_room = output_shapes.iter().all(|shape| shape.is_sufficient);
    Executed {
        status: if has_room {
            OldStatus::None
        } else {
            OldStatus::OutputInsufficientSize
        },
        output_shapes,
        timing: Timing {
            time_on_device_us: 7,
            time_in_driver_us: 8,
        },
    }
}

impl v1_0::PreparedModel for ToldModel {
    fn execute(&self, _: &hal_1_0::Request, _: &RequestMemories, callback: ExecutionCallback) -> OldStatus {
        callback.notify(OldStatus::GeneralFailure);
        OldStatus::None
    }
}

impl v1_2::PreparedModel for ToldModel {
    fn execute_1_2(
        &self,
        request: &hal_1_0::Request,
        memories: &RequestMemories,
        _: MeasureTiming,
        callback: ExecutionCallback,
    ) -> OldStatus {
        match self.next() {
            Answer::Launch(status) => return status,
            Answer::Notify(status) => callback.notify(status),
            Answer::Drop => drop(callback),
            Answer::Keep => self.kept.lock().unwrap().push(callback),
            Answer::Shapes(status, shapes) => callback.notify_1_2(status, shapes, Timing::NONE),
            Answer::Compute => {
                let Executed {
                    status,
                    output_shapes,
                    timing,
                } = compute(request, memories);
                callback.notify_1_2(status, output_shapes, timing);
            }
        }
        OldStatus::None
    }

    fn execute_synchronously(
        &self,
        request: &hal_1_0::Request,
        memories: &RequestMemories,
        _: MeasureTiming,
    ) -> Executed {
        match self.next() {
            Answer::Shapes(status, output_shapes) => Executed {
                status,
                output_shapes,
                timing: Timing::NONE,
            },
            Answer::Compute => compute(request, memories),
            other => panic!("{other:?} is for launched executions"),
        }
    }
}

fn tensor(dimensions: &[u32], lifetime: OperandLifeTime) -> Operand {
    Operand::new(OperandType::TENSOR_FLOAT32, dimensions).with_lifetime(lifetime)
}

/// RELU, and after it ABS if that is wanted, from 600 floats to an output of these dimensions.
fn model(output: &[u32], with_abs: bool) -> Arc<ValidModel> {
    let mut operands = vec![
        tensor(&[600], OperandLifeTime::SubgraphInput),
        tensor(output, OperandLifeTime::SubgraphOutput),
    ];
    let operation = |operation_type, input, output| Operation {
        operation_type,
        inputs: vec![input],
        outputs: vec![output],
    };
    let mut operations = vec![operation(OperationType::RELU, 0, 1)];
    operands[0].number_of_consumers = 1;
    if with_abs {
        operands[1] = tensor(output, OperandLifeTime::TemporaryVariable);
        operands[1].number_of_consumers = 1;
        operands.push(tensor(output, OperandLifeTime::SubgraphOutput));
        operations.push(operation(OperationType::ABS, 1, 2));
    }
    let last = operands.len() as u32 - 1;
    let model = Model {
        main: Subgraph {
            operands,
            operations,
            input_indexes: vec![0],
            output_indexes: vec![last],
        },
        ..Model::default()
    };
    Arc::new(ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap())
}

fn of_1_0(told: &Told) -> Arc<dyn Device> {
    serve_v1_0("test-old", Arc::new(told.clone())).unwrap()
}

fn of_1_2(told: &Told) -> Arc<dyn Device> {
    serve_v1_2("test-old", Arc::new(told.clone())).unwrap()
}

fn controlled<T>(deadline: Deadline, work: impl FnOnce(&Control<'_>) -> T) -> T {
    work(&Control::new(
        &Undisturbed::new(),
        deadline,
        loop_timeout::DEFAULT,
    ))
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_millis(500))
}

fn late() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_secs(600))
}

fn prepare(
    device: &Arc<dyn Device>,
    model: Arc<ValidModel>,
    deadline: Deadline,
) -> Result<Arc<dyn PreparedModel>, Failure> {
    controlled(deadline, |control| {
        let options = PrepareOptions {
            preference: ExecutionPreference::FastSingleAnswer,
            priority: Priority::Medium,
            control,
        };
        device.prepare(model, &NoPools, &options)
    })
}

fn set_zeros(execution: &mut dyn Execution, index: usize, shape: &Shape) -> Result<(), Failure> {
    let source: &[u8] = &[0; 2400];
    controlled(Deadline::NONE, |control| {
        execution.set_input(index, shape, &source, control)
    })
}

/// Executes RELU with an output of these dimensions: those that were found, and the time on the device.
fn execute(
    told: &Told,
    output: &[u32],
    deadline: Deadline,
) -> Result<(Shape, usize, Option<Duration>), Failure> {
    let prepared = prepare(&of_1_2(told), model(output, false), Deadline::NONE)?;
    let mut execution = prepared.new_execution()?;
    set_zeros(&mut *execution, 0, &Shape::new(&[600]).unwrap())?;
    execution.expect_output(0, &Shape::new(output).unwrap());
    let on_device = controlled(deadline, |control| execution.run(control))?;
    let (shape, bytes) = execution.output(0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
    Ok((*shape, bytes.len(), on_device))
}

fn failing(answers: &[Answer], output: &[u32], deadline: Deadline) -> (ErrorStatus, String) {
    let told = Told {
        execute: answers.to_vec(),
        ..Told::default()
    };
    let failure = execute(&told, output, deadline).unwrap_err();
    (failure.status, failure.detail)
}

#[test]
fn what_a_device_says_of_itself_is_taken_up_and_checked() {
    let info: DeviceInfo = of_1_0(&Told::default()).info().clone();
    assert_eq!(
        (info.hal_version, info.device_type),
        (HalVersion::V1_0, DeviceType::Other)
    );
    assert_eq!(info.version, "UNKNOWN");
    assert!(!info.cache_files.is_caching_supported());
    assert_eq!(info.capabilities.lookup(OperandType::TENSOR_FLOAT32), FIGURE);
    assert_eq!(info.capabilities.if_performance.exec_time, f32::MAX);

    let info = of_1_2(&Told::default()).info().clone();
    assert_eq!(
        (info.hal_version, info.device_type),
        (HalVersion::V1_2, DeviceType::Gpu)
    );
    assert_eq!(info.version, "1");

    let failure = serve_v1_1("test-old", Arc::new(Told::default())).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::DeviceUnavailable);
    assert!(
        failure.detail.contains("getCapabilities_1_1"),
        "{}",
        failure.detail
    );
    let unsorted = Told {
        supported: Err(OldStatus::GeneralFailure),
        ..Told::default()
    };
    let failure = serve_v1_2("test-old", Arc::new(unsorted)).unwrap_err();
    assert!(failure.detail.contains("not sorted"), "{}", failure.detail);
}

#[test]
fn device_is_asked_about_what_its_version_has_and_the_rest_is_unsupported() {
    let told = Told::default();
    let answers = of_1_0(&told).supported_operations(&model(&[600], true), &NoPools);
    assert!(answers[0].is_supported());
    let OperationSupport::Unsupported { reason } = &answers[1] else {
        panic!("{answers:?}");
    };
    assert!(
        reason.contains("of HAL 1.0") && reason.contains("ABS came with HAL 1.2"),
        "{reason}"
    );
    assert_eq!(*told.asked.lock().unwrap(), [[OperationType::RELU]]);

    let both = Told {
        supported: Ok(vec![true, false]),
        ..Told::default()
    };
    let answers = of_1_2(&both).supported_operations(&model(&[600], true), &NoPools);
    assert!(answers[0].is_supported() && !answers[1].is_supported());
    assert_eq!(
        *both.asked.lock().unwrap(),
        [[OperationType::RELU, OperationType::ABS]]
    );
}

#[test]
fn failed_answer_or_one_of_wrong_length_supports_nothing() {
    for supported in [Err(OldStatus::GeneralFailure), Ok(vec![]), Ok(vec![true; 2])] {
        let told = Told {
            supported,
            ..Told::default()
        };
        let answers = of_1_0(&told).supported_operations(&model(&[600], false), &NoPools);
        let [OperationSupport::Unsupported { reason }] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert!(reason.contains("getSupportedOperations"), "{reason}");
    }
}

#[test]
fn input_that_the_version_has_no_type_for_stands_in_the_way_of_all() {
    let mut with_half = model(&[600], false).model().clone();
    let half = Operand::new(OperandType::TENSOR_FLOAT16, &[1]).with_lifetime(OperandLifeTime::SubgraphInput);
    with_half.main.operands.push(half);
    with_half.main.input_indexes.push(2);
    let with_half = Arc::new(ValidModel::new(Arc::new(with_half), &NoPools, &[]).unwrap());
    let told = Told::default();
    let answers = of_1_0(&told).supported_operations(&with_half, &NoPools);
    assert!(
        matches!(&answers[..], [OperationSupport::Unsupported { reason }] if reason.contains("operand 2"))
    );
    assert!(told.asked.lock().unwrap().is_empty());
    let failure = prepare(&of_1_0(&told), with_half, Deadline::NONE).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::GeneralFailure);
    assert!(
        failure.detail.contains("TENSOR_FLOAT16, which came with HAL 1.2"),
        "{}",
        failure.detail
    );
}

#[test]
fn preparing_that_fails_or_is_not_told_of_fails() {
    let prepare_with = |prepare: Answer, deadline| {
        let told = Told {
            prepare,
            ..Told::default()
        };
        let failure = self::prepare(&of_1_0(&told), model(&[600], false), deadline).unwrap_err();
        (failure.status, failure.detail)
    };
    let (status, text) = prepare_with(Answer::Launch(OldStatus::DeviceUnavailable), Deadline::NONE);
    assert_eq!(status, ErrorStatus::DeviceUnavailable);
    assert!(
        text.contains("answered prepareModel with DEVICE_UNAVAILABLE"),
        "{text}"
    );
    let (status, _) = prepare_with(Answer::Notify(OldStatus::InvalidArgument), Deadline::NONE);
    assert_eq!(status, ErrorStatus::InvalidArgument);
    let (status, text) = prepare_with(Answer::Notify(OldStatus::None), Deadline::NONE);
    assert_eq!(status, ErrorStatus::GeneralFailure);
    assert!(text.contains("which is no failure"), "{text}");
    let (status, text) = prepare_with(Answer::Drop, Deadline::NONE);
    assert_eq!(status, ErrorStatus::GeneralFailure);
    assert!(text.contains("dropped the callback"), "{text}");
    let (status, text) = prepare_with(Answer::Keep, soon());
    assert_eq!(status, ErrorStatus::MissedDeadlineTransient);
    assert!(text.contains("nothing can interrupt"), "{text}");
}

#[test]
fn outputs_of_unknown_dimensions_get_the_room_that_a_device_of_1_2_asks_for() {
    let all = Shape::new(&[600]).unwrap();
    for dimensions in [&[600][..], &[0], &[]] {
        for deadline in [Deadline::NONE, late()] {
            let told = Told {
                execute: vec![Answer::Compute; 2],
                ..Told::default()
            };
            let (shape, length, on_device) = execute(&told, dimensions, deadline).unwrap();
            assert_eq!((shape, length), (all, 2400), "{dimensions:?}");
            assert_eq!(on_device, Some(Duration::from_micros(7)));
        }
    }
    // A device that cannot tell how much it needs is given more until it has enough.
    let unknown = Answer::Shapes(
        OldStatus::OutputInsufficientSize,
        vec![OutputShape {
            dimensions: vec![0],
            is_sufficient: false,
        }],
    );
    let told = Told {
        execute: vec![unknown.clone(), unknown.clone(), Answer::Compute],
        ..Told::default()
    };
    let (shape, length, _) = execute(&told, &[0], Deadline::NONE).unwrap();
    assert_eq!((shape, length), (all, 2400));
    let (status, text) = failing(&vec![unknown; 9], &[0], Deadline::NONE);
    assert_eq!(status, ErrorStatus::GeneralFailure);
    assert!(text.contains("too little room"), "{text}");
}

#[test]
fn output_of_unknown_dimensions_is_refused_for_a_device_of_1_0() {
    let prepared = prepare(&of_1_0(&Told::default()), model(&[0], false), Deadline::NONE).unwrap();
    let mut execution = prepared.new_execution().unwrap();
    set_zeros(&mut *execution, 0, &Shape::new(&[600]).unwrap()).unwrap();
    let failure = controlled(Deadline::NONE, |control| execution.run(control)).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::InvalidArgument);
    assert!(
        failure.detail.contains("must give every dimension"),
        "{}",
        failure.detail
    );
}

#[test]
fn executions_that_fail_or_are_not_told_of_fail() {
    let (status, text) = failing(&[Answer::Launch(OldStatus::InvalidArgument)], &[600], late());
    assert_eq!(status, ErrorStatus::InvalidArgument);
    assert!(text.contains("answered execute_1_2"), "{text}");
    let (status, _) = failing(&[Answer::Notify(OldStatus::DeviceUnavailable)], &[600], late());
    assert_eq!(status, ErrorStatus::DeviceUnavailable);
    let (status, text) = failing(&[Answer::Drop], &[600], late());
    assert_eq!(status, ErrorStatus::GeneralFailure);
    assert!(text.contains("dropped the callback"), "{text}");
    let (status, text) = failing(&[Answer::Keep], &[600], soon());
    assert_eq!(status, ErrorStatus::MissedDeadlineTransient);
    assert!(text.contains("nothing can interrupt"), "{text}");
}

#[test]
fn answers_that_contradict_the_model_are_failures() {
    let shape = |dimensions: &[u32], is_sufficient| OutputShape {
        dimensions: dimensions.to_vec(),
        is_sufficient,
    };
    let ok = |shapes: &[OutputShape]| Answer::Shapes(OldStatus::None, shapes.to_vec());
    let short = |shapes: &[OutputShape]| Answer::Shapes(OldStatus::OutputInsufficientSize, shapes.to_vec());
    let cases = [
        (ok(&[]), &[0][..], "did not say which dimensions"),
        (
            ok(&[shape(&[600], true), shape(&[1], true)]),
            &[600],
            "2 shapes for 1 outputs",
        ),
        (ok(&[shape(&[601], true)]), &[600], "should have dimensions [600]"),
        (ok(&[shape(&[600], false)]), &[600], "sufficient false"),
        (ok(&[shape(&[1 << 20], true)]), &[0], "bytes of room"),
        (ok(&[shape(&[1 << 20, 1 << 20], true)]), &[], "bytes of room"),
        (short(&[]), &[0], "gave 0 shapes"),
        (short(&[shape(&[600], true)]), &[0], "but not which"),
        (short(&[shape(&[600], false)]), &[600], "but it has 2400 bytes"),
        (short(&[shape(&[1], false)]), &[0], "but it has 1024 bytes"),
        (short(&[shape(&[1 << 29], false)]), &[0], "but it has 1024 bytes"),
    ];
    for (answer, output, expected) in cases {
        let (status, text) = failing(std::slice::from_ref(&answer), output, Deadline::NONE);
        assert_eq!(status, ErrorStatus::GeneralFailure);
        assert!(text.contains(expected), "{answer:?}: {text}");
    }
}

#[test]
fn execution_goes_on_after_one_that_was_left_to_the_device() {
    let told = Told {
        execute: vec![Answer::Keep, Answer::Compute],
        ..Told::default()
    };
    let prepared = prepare(&of_1_2(&told), model(&[600], false), Deadline::NONE).unwrap();
    let mut execution = prepared.new_execution().unwrap();
    for (deadline, expected) in [(soon(), None), (late(), Some(2400))] {
        set_zeros(&mut *execution, 0, &Shape::new(&[600]).unwrap()).unwrap();
        let outcome = controlled(deadline, |control| execution.run(control));
        assert_eq!(outcome.is_ok(), expected.is_some());
        let output = execution.output(0).map(|(_, bytes)| bytes.len());
        assert_eq!(output.filter(|_| outcome.is_ok()), expected);
    }
    execution.release_memory();
    assert!(set_zeros(&mut *execution, 7, &Shape::SCALAR).is_err() && execution.omit_input(7).is_err());
}
