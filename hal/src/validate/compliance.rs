//! Which part of a model an older HAL version can express, and why not the rest.

use crate::ops::Earliest;
use crate::versions::model as forms;
use crate::versions::{Downcast, Inexpressible, Loss, v1_0, v1_1, v1_2};
use crate::{HalVersion, Model, Operand, OperandLifeTime, Operation, Subgraph};

use super::ValidModel;

/// What an older HAL version can express of a model's main graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compliance {
    /// The version.
    pub version: HalVersion,
    /// For each operation of the main graph why the version cannot express it; `None` if it can.
    pub operations: Vec<Option<String>>,
    /// Operands that no operation of the version's needs and that stand in the way all the same: arguments of
    /// the model that the version has no type for. Index and reason.
    pub operands: Vec<(usize, String)>,
}

impl Compliance {
    /// Whether the version can express the whole model.
    #[must_use]
    pub fn is_compliant(&self) -> bool {
        self.operands.is_empty() && self.operations.iter().all(Option::is_none)
    }

    /// Why the model has no form in the version; `None` if it has.
    #[must_use]
    pub fn obstacles(&self, model: &Model) -> Option<Inexpressible> {
        let operations = self.operations.iter().zip(&model.main.operations).enumerate();
        let operations = operations.filter_map(|(index, (reason, operation))| {
            let part = format!("operation {index} ({})", operation.operation_type);
            Some(Loss::new(part, reason.as_ref()?))
        });
        let operands = self.operands.iter();
        let operands = operands.map(|(index, reason)| Loss::new(format!("operand {index}"), reason));
        let obstacles: Vec<Loss> = operations.chain(operands).collect();
        (!obstacles.is_empty()).then_some(Inexpressible {
            version: self.version,
            obstacles,
        })
    }
}

/// The part of a model that an older HAL version can express, as a model of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The model. What operations outside of it wrote and those inside read is an input; what those inside
    /// wrote and those outside read is an output.
    pub model: Model,
    /// For each of its operations the index in the main graph that it was made from.
    pub operations: Vec<usize>,
    /// What the operations say no more, and operands that nobody reads and that the version does not have.
    pub losses: Vec<Loss>,
}

impl ValidModel {
    /// What HAL `version` can express of the model, operation by operation: its type, its operands' types and
    /// ranks, and its argument list. Last arguments of a later version do not count if they only say what
    /// leaving them off says. The relaxed flag stands in nobody's way: computing strictly is always allowed.
    #[must_use]
    pub fn compliant_with(&self, version: HalVersion) -> Compliance {
        let main = &self.model().main;
        let operations = main.operations.iter().zip(self.earliest());
        let operations: Vec<_> = operations
            .map(|(operation, earliest)| self.refusal(operation, *earliest, version))
            .collect();
        let mut is_read_or_written = vec![false; main.operands.len()];
        for operation in &main.operations {
            for &operand in operation.inputs.iter().chain(&operation.outputs) {
                is_read_or_written[operand as usize] = true;
            }
        }
        let operands = main.operands.iter().enumerate().zip(is_read_or_written);
        let operands = operands.filter(|((_, operand), used)| !used && !operand.lifetime.is_constant());
        Compliance {
            version,
            operations,
            operands: operands
                .filter_map(|((index, operand), _)| Some((index, operand.obstacle(version)?)))
                .collect(),
        }
    }

    /// The operations that HAL `version` can express, as a model of their own; `None` if it can express none.
    /// A model that it can express in full comes back with the same arguments.
    #[must_use]
    pub fn slice(&self, version: HalVersion) -> Option<Slice> {
        let compliance = self.compliant_with(version);
        let kept: Vec<usize> = (0..compliance.operations.len())
            .filter(|&index| compliance.operations[index].is_none())
            .collect();
        if kept.is_empty() {
            return None;
        }
        Some(Slicing::new(self, version, kept).finish())
    }

    /// The model as HAL 1.2 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.2 does not have.
    pub fn to_v1_2(&self) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_2)
    }

    /// The model as HAL 1.1 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.1 does not have.
    pub fn to_v1_1(&self) -> Result<Downcast<v1_1::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_1).map(forms::to_v1_1)
    }

    /// The model as HAL 1.0 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.0 does not have.
    pub fn to_v1_0(&self) -> Result<Downcast<v1_0::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_0)
            .map(forms::to_v1_1)
            .map(forms::to_v1_0)
    }

    fn downcast(&self, version: HalVersion) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        if let Some(obstacles) = self.compliant_with(version).obstacles(self.model()) {
            return Err(obstacles);
        }
        let kept = (0..self.model().main.operations.len()).collect();
        Slicing::new(self, version, kept).finish().into_v1_2(version)
    }

    /// Why a version cannot express an operation; `None` if it can.
    fn refusal(&self, operation: &Operation, earliest: Earliest, version: HalVersion) -> Option<String> {
        let kind = operation.operation_type;
        if let Some(since) = kind.since().filter(|since| *since > version) {
            return Some(format!("{kind} came with HAL {since}"));
        }
        let inputs = inputs_in(operation, earliest, version);
        let operands = &self.model().main.operands;
        let sides = [("input", inputs), ("output", operation.outputs.as_slice())];
        for (side, list) in sides {
            for (number, &operand) in list.iter().enumerate() {
                if let Some(obstacle) = operands[operand as usize].obstacle(version) {
                    return Some(format!("{side} {number} (operand {operand}) {obstacle}"));
                }
            }
        }
        if kind.is_control_flow() && earliest.version > version {
            return Some(format!("{kind} runs a graph that needs HAL {}", earliest.version));
        }
        (earliest.version > version).then(|| {
            let types = inputs
                .iter()
                .map(|&input| operands[input as usize].operand_type.to_string());
            format!(
                "{kind} takes the {} arguments {} since HAL {}",
                inputs.len(),
                types.collect::<Vec<_>>().join(", "),
                earliest.version
            )
        })
    }
}

/// The inputs of an operation in a version: all of them, or those that are left without the last ones that
/// only say what leaving them off says.
fn inputs_in(operation: &Operation, earliest: Earliest, version: HalVersion) -> &[u32] {
    let count = if earliest.full > version {
        earliest.inputs
    } else {
        operation.inputs.len()
    };
    &operation.inputs[..count.min(operation.inputs.len())]
}

impl Slice {
    /// The part in the form of 1.2, with operands and operations of `version`.
    fn into_v1_2(self, version: HalVersion) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        let mut older = forms::to_v1_2(self.model, version)?;
        older.losses.splice(0..0, self.losses);
        Ok(older)
    }

    /// The part in the form of 1.2.
    ///
    /// # Errors
    /// None for a part that was made for 1.2 or an earlier version.
    pub fn into_model_1_2(self) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        self.into_v1_2(HalVersion::V1_2)
    }

    /// The part in the form of 1.1.
    ///
    /// # Errors
    /// None for a part that was made for 1.1 or 1.0.
    pub fn into_model_1_1(self) -> Result<Downcast<v1_1::Model>, Inexpressible> {
        self.into_v1_2(HalVersion::V1_1).map(forms::to_v1_1)
    }

    /// The part in the form of 1.0.
    ///
    /// # Errors
    /// None for a part that was made for 1.0.
    pub fn into_model_1_0(self) -> Result<Downcast<v1_0::Model>, Inexpressible> {
        let older = self.into_v1_2(HalVersion::V1_0)?;
        Ok(forms::to_v1_0(forms::to_v1_1(older)))
    }
}

/// A part of a main graph in the making.
struct Slicing<'a> {
    model: &'a Model,
    version: HalVersion,
    kept: Vec<usize>,
    /// The kept operations, with the inputs that they have in the version, still by old indexes.
    operations: Vec<Operation>,
    losses: Vec<Loss>,
    /// By old index: how often a kept operation reads the operand.
    consumers: Vec<u32>,
    /// By old index: whether a kept operation writes it.
    written: Vec<bool>,
    /// By old index: whether an operation that is not kept reads it.
    read_outside: Vec<bool>,
}

impl<'a> Slicing<'a> {
    fn new(valid: &'a ValidModel, version: HalVersion, kept: Vec<usize>) -> Slicing<'a> {
        let model = valid.model();
        let count = model.main.operands.len();
        let mut slicing = Slicing {
            model,
            version,
            operations: Vec::with_capacity(kept.len()),
            losses: Vec::new(),
            consumers: vec![0; count],
            written: vec![false; count],
            read_outside: vec![false; count],
            kept,
        };
        let mut next = slicing.kept.iter().copied().peekable();
        for (index, operation) in model.main.operations.iter().enumerate() {
            if next.next_if_eq(&index).is_none() {
                for &input in &operation.inputs {
                    slicing.read_outside[input as usize] = true;
                }
                continue;
            }
            let inputs = inputs_in(operation, valid.earliest()[index], version);
            for number in inputs.len()..operation.inputs.len() {
                let reason = format!("is left off in HAL {version}: it says what leaving it off says");
                let part = format!(
                    "input {number} of operation {index} ({})",
                    operation.operation_type
                );
                slicing.losses.push(Loss::new(part, reason));
            }
            for &input in inputs {
                slicing.consumers[input as usize] += 1;
            }
            for &output in &operation.outputs {
                slicing.written[output as usize] = true;
            }
            slicing.operations.push(Operation {
                inputs: inputs.to_vec(),
                ..operation.clone()
            });
        }
        slicing
    }

    fn is_whole(&self) -> bool {
        self.kept.len() == self.model.main.operations.len()
    }

    /// Whether the part has the operand at all.
    fn keeps(&self, index: usize, operand: &Operand) -> bool {
        let is_used = self.consumers[index] > 0 || self.written[index];
        is_used || (self.is_whole() && operand.obstacle(self.version).is_none())
    }

    fn lifetime(&self, index: usize, operand: &Operand) -> OperandLifeTime {
        let is_result = matches!(
            operand.lifetime,
            OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
        );
        if !is_result || self.is_whole() {
            return operand.lifetime;
        }
        if !self.written[index] {
            return OperandLifeTime::SubgraphInput;
        }
        let is_output = operand.lifetime == OperandLifeTime::SubgraphOutput
            || self.read_outside[index]
            || self.consumers[index] == 0;
        if is_output {
            OperandLifeTime::SubgraphOutput
        } else {
            OperandLifeTime::TemporaryVariable
        }
    }

    fn finish(mut self) -> Slice {
        let main = &self.model.main;
        let mut new_index = vec![None; main.operands.len()];
        let mut operands: Vec<Operand> = Vec::with_capacity(main.operands.len());
        for (index, operand) in main.operands.iter().enumerate() {
            if !self.keeps(index, operand) {
                if self.is_whole() {
                    let reason = format!("is left out: no operation needs it in HAL {}", self.version);
                    self.losses.push(Loss::new(format!("operand {index}"), reason));
                }
                continue;
            }
            new_index[index] = u32::try_from(operands.len()).ok();
            operands.push(Operand {
                number_of_consumers: self.consumers[index],
                lifetime: self.lifetime(index, operand),
                ..operand.clone()
            });
        }
        let renumbered =
            |list: &[u32]| -> Vec<u32> { list.iter().filter_map(|&old| new_index[old as usize]).collect() };
        // A form without graphs says of those that nothing runs that they are left out.
        let referenced = if self.version < HalVersion::V1_3 && self.is_whole() {
            self.model.referenced.clone()
        } else {
            run_by(&mut operands, &self.model.referenced)
        };
        let operations = self.operations.iter().map(|operation| Operation {
            operation_type: operation.operation_type,
            inputs: renumbered(&operation.inputs),
            outputs: renumbered(&operation.outputs),
        });
        let operations = operations.collect();
        let arguments = |old: &[u32], lifetime| {
            let mut indexes = renumbered(old);
            // An output that an operation outside writes is an input here.
            indexes.retain(|&index| operands[index as usize].lifetime == lifetime);
            let mut is_listed = vec![false; operands.len()];
            for &index in &indexes {
                is_listed[index as usize] = true;
            }
            // What was an argument keeps its place; what becomes one follows.
            let new = operands.iter().zip(is_listed).enumerate();
            let new = new.filter(|(_, (operand, listed))| !listed && operand.lifetime == lifetime);
            indexes.extend(new.filter_map(|(index, _)| u32::try_from(index).ok()));
            indexes
        };
        let input_indexes = arguments(&main.input_indexes, OperandLifeTime::SubgraphInput);
        let output_indexes = arguments(&main.output_indexes, OperandLifeTime::SubgraphOutput);
        Slice {
            model: Model {
                main: Subgraph {
                    operands,
                    operations,
                    input_indexes,
                    output_indexes,
                },
                referenced,
                operand_values: self.model.operand_values.clone(),
                pools: self.model.pools.clone(),
                relax_computation_float32_to_float16: self.model.relax_computation_float32_to_float16,
                extension_name_to_prefix: self.model.extension_name_to_prefix.clone(),
            },
            operations: self.kept,
            losses: self.losses,
        }
    }
}

/// The graphs that the operands of a main graph refer to, and those that these do, in their order. The
/// operands name them by their new places. The references form no cycle.
fn run_by(main: &mut [Operand], all: &[Subgraph]) -> Vec<Subgraph> {
    let mut is_run = vec![false; all.len()];
    let mut pending = references(main);
    while let Some(graph) = pending.pop() {
        if !std::mem::replace(&mut is_run[graph], true) {
            pending.extend(references(&all[graph].operands));
        }
    }
    let mut places = vec![0; all.len()];
    let run = places.iter_mut().zip(&is_run).filter(|(_, is_run)| **is_run);
    for (number, (place, _)) in (0..).zip(run) {
        *place = number;
    }
    let rename = |operands: &mut [Operand]| {
        for operand in operands
            .iter_mut()
            .filter(|operand| operand.lifetime == OperandLifeTime::Subgraph)
        {
            operand.location.offset = places[operand.location.offset as usize];
        }
    };
    rename(main);
    let kept = all.iter().zip(&is_run).filter(|(_, is_run)| **is_run);
    let mut kept: Vec<Subgraph> = kept.map(|(graph, _)| graph.clone()).collect();
    for graph in &mut kept {
        rename(&mut graph.operands);
    }
    kept
}

/// The graphs that operands refer to.
fn references(operands: &[Operand]) -> Vec<usize> {
    let referring = operands
        .iter()
        .filter(|operand| operand.lifetime == OperandLifeTime::Subgraph);
    referring
        .map(|operand| operand.location.offset as usize)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DataLocation, NoPools, OperandType, OperationType};

    fn tensor(lifetime: OperandLifeTime, consumers: u32) -> Operand {
        let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &[1, 2, 2, 1]).with_lifetime(lifetime);
        operand.number_of_consumers = consumers;
        operand
    }

    fn operation(operation_type: OperationType, inputs: &[u32], output: u32) -> Operation {
        Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        }
    }

    fn valid(model: Model) -> ValidModel {
        ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap()
    }

    fn graph(operands: Vec<Operand>, operations: Vec<Operation>, outputs: &[u32]) -> Model {
        Model {
            main: Subgraph {
                operands,
                operations,
                input_indexes: vec![0],
                output_indexes: outputs.to_vec(),
            },
            ..Model::default()
        }
    }

    /// RELU (1.0), ABS (1.2), FLOOR (1.0), one behind the other; the result of RELU is an output too.
    fn sandwich() -> Model {
        let operands = vec![
            tensor(OperandLifeTime::SubgraphInput, 1),
            tensor(OperandLifeTime::SubgraphOutput, 1),
            tensor(OperandLifeTime::TemporaryVariable, 1),
            tensor(OperandLifeTime::SubgraphOutput, 0),
        ];
        let operations = vec![
            operation(OperationType::RELU, &[0], 1),
            operation(OperationType::ABS, &[1], 2),
            operation(OperationType::FLOOR, &[2], 3),
        ];
        graph(operands, operations, &[1, 3])
    }

    /// DEPTH_TO_SPACE, which has had a layout since 1.2, with this one.
    fn with_layout(is_nchw: u8) -> Model {
        let mut operands = vec![
            tensor(OperandLifeTime::SubgraphInput, 1),
            Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
            Operand::new(OperandType::BOOL, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
            tensor(OperandLifeTime::SubgraphOutput, 0),
        ];
        for (operand, (offset, length)) in operands[1..3].iter_mut().zip([(0, 4), (4, 1)]) {
            operand.number_of_consumers = 1;
            operand.location = DataLocation {
                pool_index: 0,
                offset,
                length,
            };
        }
        let operations = vec![operation(OperationType::DEPTH_TO_SPACE, &[0, 1, 2], 3)];
        Model {
            operand_values: [1_i32.to_ne_bytes().as_slice(), &[is_nchw]].concat(),
            ..graph(operands, operations, &[3])
        }
    }

    #[test]
    fn operation_of_a_later_version_stands_in_the_way_alone() {
        let model = valid(sandwich());
        let compliance = model.compliant_with(HalVersion::V1_1);
        assert_eq!(
            compliance.operations,
            [None, Some("ABS came with HAL 1.2".to_owned()), None]
        );
        assert!(compliance.operands.is_empty() && !compliance.is_compliant());
        let text = model.to_v1_1().unwrap_err().to_string();
        assert_eq!(
            text,
            "HAL 1.1 cannot express it: operation 1 (ABS): ABS came with HAL 1.2"
        );
        assert!(model.compliant_with(HalVersion::V1_2).is_compliant());
    }

    #[test]
    fn part_of_a_model_has_what_crosses_its_border_as_arguments() {
        let part = valid(sandwich()).slice(HalVersion::V1_0).unwrap();
        assert_eq!(part.operations, [0, 2]);
        let main = &part.model.main;
        assert_eq!(main.operations[1].operation_type, OperationType::FLOOR);
        assert_eq!(
            (&main.input_indexes[..], &main.output_indexes[..]),
            (&[0, 2][..], &[1, 3][..])
        );
        assert_eq!(main.operands[1].number_of_consumers, 0);
        assert_eq!(valid(part.model).version(), HalVersion::V1_0);

        let mut newest = sandwich();
        for operation in &mut newest.main.operations {
            operation.operation_type = OperationType::ABS;
        }
        assert_eq!(valid(newest).slice(HalVersion::V1_1), None);
    }

    #[test]
    fn argument_that_says_what_leaving_it_off_says_is_left_off() {
        let nhwc = valid(with_layout(0)).to_v1_0().unwrap();
        assert_eq!(nhwc.value.operations[0].inputs, [0, 1]);
        assert_eq!(nhwc.value.operands.len(), 3);
        let losses: Vec<String> = nhwc.losses.iter().map(ToString::to_string).collect();
        assert_eq!(
            losses,
            [
                "input 2 of operation 0 (DEPTH_TO_SPACE): is left off in HAL 1.0: it says what leaving it off says",
                "operand 2: is left out: no operation needs it in HAL 1.0",
            ]
        );
        let text = valid(with_layout(1)).to_v1_0().unwrap_err().to_string();
        assert!(
            text.contains("input 2 (operand 2) is of BOOL, which came with HAL 1.2"),
            "{text}"
        );
        // Where the version has the argument, it stays.
        let same = valid(with_layout(0)).to_v1_2().unwrap();
        assert_eq!((Model::from(same.value), same.losses), (with_layout(0), vec![]));
    }

    #[test]
    fn relaxed_flag_is_dropped_and_stands_in_nobodys_way() {
        let mut relaxed = sandwich();
        relaxed.main.operations[1].operation_type = OperationType::TANH;
        relaxed.relax_computation_float32_to_float16 = true;
        let model = valid(relaxed);
        assert!(model.compliant_with(HalVersion::V1_0).is_compliant());
        let losses = model.to_v1_0().unwrap().losses;
        assert_eq!(losses.len(), 1);
        assert!(
            losses[0]
                .to_string()
                .contains("computing strictly is always allowed"),
            "{losses:?}"
        );
        assert_eq!(model.to_v1_1().unwrap().losses, []);
    }

    #[test]
    fn signature_of_a_later_version_is_told_with_its_types() {
        // Quantised bytes have been taken by SUB since 1.2, though both are of earlier versions.
        let mut model = sandwich();
        for operand in &mut model.main.operands {
            operand.operand_type = OperandType::TENSOR_QUANT8_ASYMM;
            operand.scale = 1.0;
        }
        let mut activation =
            Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
        activation.number_of_consumers = 1;
        activation.location.length = 4;
        model.operand_values = vec![0; 4];
        model.main.operands.push(activation);
        model.main.operands[1].number_of_consumers = 2;
        model.main.operations = vec![
            operation(OperationType::RELU, &[0], 1),
            operation(OperationType::SUB, &[1, 1, 4], 2),
            operation(OperationType::RELU, &[2], 3),
        ];
        let refusals = valid(model).compliant_with(HalVersion::V1_1).operations;
        let expected =
            "SUB takes the 3 arguments TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM, INT32 since HAL 1.2";
        assert_eq!(refusals, [None, Some(expected.to_owned()), None]);
    }

    /// RELU, then an IF that runs the first of two graphs of one operation either way, or the second.
    fn with_graphs(of_first: OperationType, of_second: OperationType, run: u32) -> Model {
        let branch = |operation_type| Subgraph {
            operands: vec![
                tensor(OperandLifeTime::SubgraphInput, 1),
                tensor(OperandLifeTime::SubgraphOutput, 0),
            ],
            operations: vec![operation(operation_type, &[0], 1)],
            input_indexes: vec![0],
            output_indexes: vec![1],
        };
        let mut graph_operand =
            Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph);
        graph_operand.location.offset = run;
        graph_operand.number_of_consumers = 2;
        let mut condition =
            Operand::new(OperandType::TENSOR_BOOL8, &[1]).with_lifetime(OperandLifeTime::SubgraphInput);
        condition.number_of_consumers = 1;
        let operands = vec![
            tensor(OperandLifeTime::SubgraphInput, 1),
            tensor(OperandLifeTime::SubgraphOutput, 1),
            condition,
            graph_operand,
            tensor(OperandLifeTime::SubgraphOutput, 0),
        ];
        let operations = vec![
            operation(OperationType::RELU, &[0], 1),
            operation(OperationType::IF, &[2, 3, 3, 1], 4),
        ];
        let mut model = graph(operands, operations, &[1, 4]);
        model.main.input_indexes = vec![0, 2];
        model.referenced = vec![branch(of_first), branch(of_second)];
        model
    }

    #[test]
    fn control_flow_needs_what_the_graphs_need_that_it_runs() {
        let newer = with_graphs(OperationType::RSQRT, OperationType::RELU, 0);
        // 8-bit values came to RSQRT with feature level 7.
        let quantized = |mut model: Model| {
            let graphs = model.referenced.iter_mut().chain([&mut model.main]);
            for operand in graphs.flat_map(|graph| &mut graph.operands) {
                if operand.operand_type == OperandType::TENSOR_FLOAT32 {
                    operand.operand_type = OperandType::TENSOR_QUANT8_ASYMM;
                    operand.scale = 1.0;
                }
            }
            model
        };
        assert!(
            valid(newer.clone())
                .compliant_with(HalVersion::V1_3)
                .is_compliant()
        );
        let model = valid(quantized(newer));
        assert_eq!(model.version(), HalVersion::Level7);
        assert_eq!(
            model.compliant_with(HalVersion::V1_3).operations,
            [
                None,
                Some("IF runs a graph that needs HAL feature level 7".to_owned())
            ]
        );
        // The part of the older version keeps none of its graphs.
        let part = model.slice(HalVersion::V1_3).unwrap();
        assert_eq!((part.operations, part.model.referenced.len()), (vec![0], 0));
    }

    #[test]
    fn part_keeps_the_graphs_that_it_runs_under_new_places() {
        let mut model = with_graphs(OperationType::RSQRT, OperationType::ABS, 1);
        model.referenced.swap(0, 1);
        model.referenced.push(model.referenced[1].clone());
        model.main.operands[3].location.offset = 2;
        // Reversed after the IF, which only level 7 can.
        let mut axis =
            Operand::new(OperandType::TENSOR_INT32, &[1]).with_lifetime(OperandLifeTime::ConstantCopy);
        axis.number_of_consumers = 1;
        axis.location.length = 4;
        model.operand_values = vec![0; 4];
        model.main.operands[4].number_of_consumers = 1;
        model
            .main
            .operands
            .extend([axis, tensor(OperandLifeTime::SubgraphOutput, 0)]);
        model
            .main
            .operations
            .push(operation(OperationType::REVERSE, &[4, 5], 6));
        model.main.output_indexes.push(6);
        let graph = model.referenced[2].clone();
        let whole = valid(model);
        assert_eq!(whole.version(), HalVersion::Level7);
        let part = whole.slice(HalVersion::V1_3).unwrap();
        assert_eq!(part.operations, [0, 1]);
        assert_eq!(part.model.referenced, [graph]);
        assert_eq!(valid(part.model).version(), HalVersion::V1_3);
        let refusals = whole.compliant_with(HalVersion::Level6).operations;
        let expected = "REVERSE came with HAL feature level 7";
        assert_eq!(refusals, [None, None, Some(expected.to_owned())]);
    }
}
