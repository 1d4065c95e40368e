//! Which device gets which operation.
//!
//! Every device is asked once. Among those that can run an operation, the one with the lowest figure gets it:
//! for energy if the application wants to save it, else for time. Source: runtime rules of the NDK.

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ExecutionPreference, HalVersion, Model as HalModel, OperandType, Operation, OperationSupport,
    OperationType, PerformanceInfo, Subgraph,
};

use super::control_flow::{has_unknown_size, referenced};
use super::cpu;
use super::device::RuntimeDevice;
use super::explanation::{Answer, Explanation, OperationExplanation};
use super::options::OperationFilter;
use super::result::{RuntimeError, RuntimeResult};
use crate::model::Model;

/// For each operation of the main graph, why the device does not get it, if so.
pub(super) type DeviceAnswers = Vec<Result<(), String>>;

/// What every device and its figures say, and who gets what.
#[derive(Debug)]
pub(super) struct Assignment {
    /// For each operation the index of its device.
    pub(super) choices: Vec<usize>,
    /// For each operation what each device said.
    pub(super) answers: Vec<Vec<Answer>>,
    /// Whether a worker died of being asked about the model.
    pub(super) has_cost_a_worker: bool,
}

/// Asks each device about each operation. `death` is the error of a device whose worker died of it.
pub(super) fn answers(
    model: &Model,
    valid: &ValidModel,
    devices: &[RuntimeDevice],
    filter: Option<&OperationFilter>,
    death: &mut Option<RuntimeError>,
) -> Vec<DeviceAnswers> {
    let mut ask = |device: &RuntimeDevice| {
        let mut answers = if device.is_cpu() {
            cpu_answers(model.hal())
        } else {
            // A device that does not answer supports nothing.
            driver_answers(model, valid, device).unwrap_or_else(|error| {
                let reason = error.to_string();
                if error.has_cost_a_worker() {
                    death.get_or_insert(error);
                }
                vec![Err(reason); model.hal().main.operations.len()]
            })
        };
        for (index, (answer, operation)) in answers.iter_mut().zip(&model.hal().main.operations).enumerate() {
            if filter.is_some_and(|filter| !filter(&device.info(), index, operation)) {
                *answer = Err("the application keeps the operation away from the device".to_owned());
            }
        }
        answers
    };
    devices.iter().map(&mut ask).collect()
}

fn cpu_answers(model: &HalModel) -> DeviceAnswers {
    let operations = model.main.operations.iter();
    operations
        .map(|operation| cpu::refusal(model, operation).map_or(Ok(()), Err))
        .collect()
}

fn driver_answers(model: &Model, valid: &ValidModel, device: &RuntimeDevice) -> RuntimeResult<DeviceAnswers> {
    let operations = &model.hal().main.operations;
    let mut answers = match part_for(model, valid, device.info().hal_version) {
        Part::All => ask(model, device)?,
        Part::Nothing(reasons) => return Ok(reasons),
        Part::Some {
            part,
            kept,
            mut reasons,
        } => {
            for (index, answer) in kept.into_iter().zip(ask(&part, device)?) {
                reasons[index] = answer;
            }
            reasons
        }
    };
    for (answer, operation) in answers.iter_mut().zip(operations) {
        let is_control_flow = operation.operation_type.is_control_flow();
        if answer.is_ok() && is_control_flow && has_unknown_size(model.hal(), operation) {
            *answer = Err(
                "control flow with operands of unknown size runs on the CPU of this process only".to_owned(),
            );
        }
    }
    Ok(answers)
}

fn ask(model: &Model, device: &RuntimeDevice) -> RuntimeResult<DeviceAnswers> {
    let answers = device.ask_live(|device| device.supported_operations(model))?;
    let answers = answers.into_iter();
    let answers = answers.map(|answer| match answer {
        OperationSupport::Supported => Ok(()),
        OperationSupport::Unsupported { reason } => Err(reason),
    });
    Ok(answers.collect())
}

/// What of a model a device may be asked about.
enum Part {
    /// All of it.
    All,
    /// None of it, for these reasons.
    Nothing(DeviceAnswers),
    /// A part, whose operations are those of the whole with these indexes.
    Some {
        part: Model,
        kept: Vec<usize>,
        /// For all operations, those of the part too.
        reasons: DeviceAnswers,
    },
}

/// The part of a model that this version of the HAL can express.
fn part_for(model: &Model, valid: &ValidModel, version: HalVersion) -> Part {
    if version >= valid.version() {
        return Part::All;
    }
    let reasons = valid.compliant_with(version).operations.into_iter();
    let reasons = reasons.map(|reason| {
        let reason = reason.unwrap_or_default();
        Err(format!("the device is of HAL {version}: {reason}"))
    });
    let reasons = reasons.collect();
    match valid.slice(version) {
        None => Part::Nothing(reasons),
        Some(slice) => Part::Some {
            part: Model::from_hal(slice.model, model.pools().to_vec()),
            kept: slice.operations,
            reasons,
        },
    }
}

impl Assignment {
    /// Chooses a device for each operation. The CPU of this process is none if the model has killed a worker,
    /// unless `may_outlive_death`.
    ///
    /// # Errors
    /// No device can run some operation; the text has each device's reason.
    pub(super) fn new(
        model: &Model,
        valid: &ValidModel,
        devices: &[RuntimeDevice],
        preference: ExecutionPreference,
        filter: Option<&OperationFilter>,
        may_outlive_death: bool,
    ) -> RuntimeResult<Assignment> {
        let mut death = None;
        let mut answers = answers(model, valid, devices, filter, &mut death);
        if let Some(death) = death.as_ref().filter(|_| !may_outlive_death) {
            let cpus = devices
                .iter()
                .zip(&mut answers)
                .filter(|(device, _)| device.is_cpu());
            let reason = format!("it computes no model that a worker died of: {death}");
            cpus.for_each(|(_, answers)| answers.fill(Err(reason.clone())));
        }
        let hal = model.hal();
        let mut assignment = Assignment {
            choices: Vec::with_capacity(hal.main.operations.len()),
            answers: Vec::with_capacity(hal.main.operations.len()),
            has_cost_a_worker: death.is_some(),
        };
        for (index, operation) in hal.main.operations.iter().enumerate() {
            let of_devices: Vec<Answer> = devices
                .iter()
                .zip(&answers)
                .map(|(device, answers)| match &answers[index] {
                    Ok(()) => Answer::Cost(cost(device, hal, &hal.main, operation, preference)),
                    Err(reason) => Answer::Unsupported(reason.clone()),
                })
                .collect();
            let choice = best(devices, &of_devices);
            assignment.choices.push(choice.ok_or_else(|| {
                death
                    .take()
                    .unwrap_or_else(|| nobody(index, operation, devices, &of_devices))
            })?);
            assignment.answers.push(of_devices);
        }
        Ok(assignment)
    }

    /// Which operation went where, and why not elsewhere. `devices` are those that it was made with.
    pub(super) fn explain(&self, model: &Model, devices: &[RuntimeDevice]) -> Explanation {
        let operations = model.hal().main.operations.iter();
        let choices = self.choices.iter().zip(&self.answers);
        Explanation {
            devices: devices.iter().map(|device| device.name().to_owned()).collect(),
            operations: operations
                .zip(choices)
                .map(|(operation, (&choice, answers))| OperationExplanation {
                    operation: operation.operation_type,
                    device: devices[choice].name().to_owned(),
                    answers: answers.clone(),
                })
                .collect(),
            ..Explanation::default()
        }
    }
}

/// The device with the lowest figure; among equals the CPU of this process, else the first.
fn best(devices: &[RuntimeDevice], answers: &[Answer]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (index, answer) in answers.iter().enumerate() {
        let Answer::Cost(cost) = *answer else { continue };
        let is_better = best.is_none_or(|(_, lowest)| {
            cost < lowest || (cost == lowest && devices.get(index).is_some_and(RuntimeDevice::is_cpu))
        });
        if is_better {
            best = Some((index, cost));
        }
    }
    best.map(|(index, _)| index)
}

fn nobody(
    index: usize,
    operation: &Operation,
    devices: &[RuntimeDevice],
    answers: &[Answer],
) -> RuntimeError {
    let reasons: Vec<String> = devices
        .iter()
        .zip(answers)
        .map(|(device, answer)| format!("{}: {answer}", device.name()))
        .collect();
    RuntimeError::bad_data(format!(
        "no device can run operation {index} ({}): {}",
        operation.operation_type,
        reasons.join("; ")
    ))
}

/// What an operation costs on a device, relative to the CPU.
fn cost(
    device: &RuntimeDevice,
    model: &HalModel,
    graph: &Subgraph,
    operation: &Operation,
    preference: ExecutionPreference,
) -> f32 {
    let capabilities = &device.info().capabilities;
    let figure = |info: PerformanceInfo| {
        usable(match preference {
            ExecutionPreference::LowPower => info.power_usage,
            _ => info.exec_time,
        })
    };
    let graphs = || {
        let graphs = referenced(graph, operation).into_iter();
        graphs
            .filter_map(|index| model.referenced.get(index))
            .map(|inner| {
                let operations = inner.operations.iter();
                let costs = operations.map(|operation| cost(device, model, inner, operation, preference));
                costs.sum::<f32>()
            })
            .sum::<f32>()
    };
    let cost = match operation.operation_type {
        OperationType::IF => figure(capabilities.if_performance) + graphs() / 2.0,
        OperationType::WHILE => figure(capabilities.while_performance) + graphs(),
        _ => {
            let first = operation.inputs.first();
            let ty = first.and_then(|&index| graph.operands.get(index as usize));
            let ty = ty.map_or(OperandType::TENSOR_FLOAT32, |operand| operand.operand_type);
            let is_relaxed = model.relax_computation_float32_to_float16;
            figure(match ty {
                OperandType::FLOAT32 if is_relaxed => {
                    capabilities.relaxed_float32_to_float16_performance_scalar
                }
                OperandType::TENSOR_FLOAT32 if is_relaxed => {
                    capabilities.relaxed_float32_to_float16_performance_tensor
                }
                ty => capabilities.lookup(ty),
            })
        }
    };
    cost.min(f32::MAX)
}

/// A driver's figure, which may be any number: one that says nothing counts as infinitely slow, as a missing
/// one does.
fn usable(figure: f32) -> f32 {
    if figure.is_finite() && figure > 0.0 {
        figure
    } else {
        f32::MAX
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::NoPools;

    use super::*;
    use crate::model_builder::ModelBuilder;
    use crate::tensor::TensorType;

    #[test]
    fn older_device_is_asked_about_what_its_version_can_express() {
        let ty = || TensorType::float32(&[1, 4]);
        let mut model = ModelBuilder::new();
        let none = model.scalar(0_i32);
        let x = model.input(ty());
        let (a, b) = (model.temporary(ty()), model.temporary(ty()));
        let y = model.output(ty());
        model.operation(OperationType::ADD, &[x, x, none], &[a]);
        model.operation(OperationType::SIN, &[a], &[b]);
        model.operation(OperationType::MUL, &[b, x, none], &[y]);
        let model = model.finish().unwrap();
        let valid = ValidModel::new(Arc::new(model.hal().clone()), &NoPools, &[]).unwrap();
        match part_for(&model, &valid, HalVersion::V1_0) {
            Part::Some { part, kept, reasons } => {
                assert_eq!(kept, [0, 2]);
                assert_eq!(part.hal().main.operations.len(), 2);
                assert!(
                    reasons[1]
                        .as_ref()
                        .unwrap_err()
                        .contains("the device is of HAL 1.0"),
                    "{reasons:?}"
                );
            }
            _ => panic!("a part can be expressed"),
        }
        assert!(matches!(part_for(&model, &valid, HalVersion::V1_2), Part::All));
    }

    #[test]
    fn figure_that_says_nothing_is_infinitely_slow() {
        for figure in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -1.0] {
            assert_eq!(usable(figure), f32::MAX, "{figure}");
        }
        for figure in [f32::MIN_POSITIVE, 0.5, 1.0, f32::MAX] {
            assert_eq!(usable(figure), figure);
        }
    }

    #[test]
    fn cost_follows_preference_relaxation_and_the_graphs_of_control_flow() {
        let device = RuntimeDevice::cpu();
        let mut then = ModelBuilder::new();
        let ty = || TensorType::float32(&[1]);
        let (input, output) = (then.input(ty()), then.output(ty()));
        then.operation(OperationType::RELU, &[input], &[output]);
        let mut otherwise = ModelBuilder::new();
        let (input, between) = (otherwise.input(ty()), otherwise.temporary(ty()));
        let output = otherwise.output(ty());
        otherwise.operation(OperationType::RELU, &[input], &[between]);
        otherwise.operation(OperationType::ABS, &[between], &[output]);
        let mut model = ModelBuilder::new();
        let condition = model.input(TensorType::bool8(&[1]));
        let x = model.input(ty());
        let (then, otherwise) = (model.graph(then), model.graph(otherwise));
        let y = model.output(ty());
        model.operation(OperationType::IF, &[condition, then, otherwise, x], &[y]);
        let model = model.finish().unwrap();
        let main = &model.hal().main;
        let found = cost(
            &device,
            model.hal(),
            main,
            &main.operations[0],
            ExecutionPreference::LowPower,
        );
        // Its own cost, and the mean of one operation and two.
        assert_eq!(found, 1.0 + 3.0 / 2.0);
    }
}
