//! Graphs in Graphviz's language.

use std::fmt;

use nnhal_hal::{
    ExtraParams, Model, Operand, OperandLifeTime, OperandType, Operation, Subgraph, SubgraphIndex,
};

/// A model as a Graphviz digraph: `format!("{}", Dot(&model))`.
///
/// Each graph is a cluster. Operations are boxes, which list the arguments that are constants or left out;
/// operands that an operation writes or a caller gives are ellipses. Arrows carry the argument's number where
/// an operation has several. Dashed arrows lead from IF and WHILE to the graphs that they run. The model need
/// not be valid: an index that leads nowhere is drawn in red.
#[derive(Clone, Copy, Debug)]
pub struct Dot<'a>(pub &'a Model);

impl fmt::Display for Dot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "digraph model {{")?;
        writeln!(f, "  compound=true; node [fontname=\"sans-serif\", fontsize=10];")?;
        writeln!(f, "  edge [fontname=\"sans-serif\", fontsize=8];")?;
        if self.0.relax_computation_float32_to_float16 {
            writeln!(f, "  label=\"float32 may be computed as float16\";")?;
        }
        for (at, graph) in self.0.subgraphs() {
            let cluster = Cluster {
                id: ClusterId(at),
                graph,
                values: &self.0.operand_values,
            };
            cluster.fmt(f)?;
        }
        writeln!(f, "}}")
    }
}

/// Names a cluster, and with a suffix its nodes.
#[derive(Clone, Copy)]
struct ClusterId(SubgraphIndex);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SubgraphIndex::Main => f.write_str("main"),
            SubgraphIndex::Referenced(index) => write!(f, "graph{index}"),
        }
    }
}

struct Cluster<'a> {
    id: ClusterId,
    graph: &'a Subgraph,
    /// Of the model's small constants.
    values: &'a [u8],
}

impl Cluster<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        writeln!(f, "  subgraph cluster_{id} {{")?;
        writeln!(f, "    label=\"{}\"; color=gray;", id.0)?;
        // A node that arrows can lead to, also where the graph is empty.
        writeln!(f, "    {id} [shape=point, style=invis];")?;
        for (index, operand) in self.graph.operands.iter().enumerate() {
            self.operand(f, index, operand)?;
        }
        for (index, operation) in self.graph.operations.iter().enumerate() {
            write!(
                f,
                "    {id}_op{index} [shape=box, style=filled, fillcolor=lightyellow, label=\"{index}: {}",
                operation.operation_type
            )?;
            self.fixed_arguments(f, operation)?;
            writeln!(f, "\"];")?;
        }
        writeln!(f, "  }}")?;
        for (index, operation) in self.graph.operations.iter().enumerate() {
            self.arrows(f, index, operation)?;
        }
        Ok(())
    }

    fn operand(&self, f: &mut fmt::Formatter<'_>, index: usize, operand: &Operand) -> fmt::Result {
        let (shape, role) = match operand.lifetime {
            OperandLifeTime::TemporaryVariable => ("ellipse", ""),
            OperandLifeTime::SubgraphInput => ("ellipse, style=filled, fillcolor=lightblue", "input "),
            OperandLifeTime::SubgraphOutput => ("ellipse, style=filled, fillcolor=lightgreen", "output "),
            OperandLifeTime::ConstantCopy
            | OperandLifeTime::ConstantReference
            | OperandLifeTime::NoValue
            | OperandLifeTime::Subgraph => return Ok(()),
        };
        writeln!(
            f,
            "    {}_{index} [shape={shape}, label=\"{role}{index}\\n{}\"];",
            self.id,
            OperandLabel(operand)
        )
    }

    /// The arguments that are the same in every execution, one to a line.
    fn fixed_arguments(&self, f: &mut fmt::Formatter<'_>, operation: &Operation) -> fmt::Result {
        for (number, &index) in operation.inputs.iter().enumerate() {
            let Some(operand) = self.graph.operands.get(index as usize) else {
                continue;
            };
            match operand.lifetime {
                OperandLifeTime::NoValue => write!(f, "\\n{number}: none")?,
                OperandLifeTime::ConstantCopy | OperandLifeTime::ConstantReference => {
                    write!(f, "\\n{number}: {}", OperandLabel(operand))?;
                    if let Some(value) = Scalar::of(operand, self.values) {
                        write!(f, " {value}")?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn arrows(&self, f: &mut fmt::Formatter<'_>, index: usize, operation: &Operation) -> fmt::Result {
        let id = self.id;
        for (number, &input) in operation.inputs.iter().enumerate() {
            let label = ArgumentLabel(number, operation.inputs.len());
            match self.graph.operands.get(input as usize) {
                Some(operand) if operand.operand_type == OperandType::SUBGRAPH => {
                    let target = ClusterId(SubgraphIndex::Referenced(operand.location.offset as usize));
                    writeln!(
                        f,
                        "  {id}_op{index} -> {target} [style=dashed, lhead=cluster_{target}{label}];"
                    )?;
                }
                Some(operand) if has_node(operand) => {
                    writeln!(f, "  {id}_{input} -> {id}_op{index} [color=black{label}];")?;
                }
                Some(_) => {}
                None => self.dangling(f, index, input)?,
            }
        }
        for (number, &output) in operation.outputs.iter().enumerate() {
            let label = ArgumentLabel(number, operation.outputs.len());
            if (output as usize) < self.graph.operands.len() {
                writeln!(f, "  {id}_op{index} -> {id}_{output} [color=black{label}];")?;
            } else {
                self.dangling(f, index, output)?;
            }
        }
        Ok(())
    }

    fn dangling(&self, f: &mut fmt::Formatter<'_>, index: usize, operand: u32) -> fmt::Result {
        let id = self.id;
        writeln!(
            f,
            "  {id}_none{operand} [color=red, label=\"no operand {operand}\"];"
        )?;
        writeln!(f, "  {id}_op{index} -> {id}_none{operand} [color=red, dir=none];")
    }
}

/// Whether an operand is drawn by itself.
fn has_node(operand: &Operand) -> bool {
    matches!(
        operand.lifetime,
        OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphInput | OperandLifeTime::SubgraphOutput
    )
}

/// The value of a constant scalar.
enum Scalar {
    Integer(i64),
    Float(f32),
    Bool(bool),
}

impl Scalar {
    /// `None` for what is no scalar of a type that people read, or has no value where it says.
    fn of(operand: &Operand, values: &[u8]) -> Option<Scalar> {
        if operand.lifetime != OperandLifeTime::ConstantCopy {
            return None;
        }
        let start = usize::try_from(operand.location.offset).ok()?;
        let bytes = values.get(start..)?;
        match operand.operand_type {
            OperandType::INT32 => Some(Scalar::Integer(i32::from_le_bytes(*bytes.first_chunk()?).into())),
            OperandType::UINT32 => Some(Scalar::Integer(u32::from_le_bytes(*bytes.first_chunk()?).into())),
            OperandType::FLOAT32 => Some(Scalar::Float(f32::from_le_bytes(*bytes.first_chunk()?))),
            OperandType::BOOL => Some(Scalar::Bool(*bytes.first()? != 0)),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Integer(value) => value.fmt(f),
            Scalar::Float(value) => value.fmt(f),
            Scalar::Bool(value) => value.fmt(f),
        }
    }
}

/// `, label="1"`, or nothing for the only argument.
struct ArgumentLabel(usize, usize);

impl fmt::Display for ArgumentLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 > 1 {
            write!(f, ", label=\"{}\"", self.0)
        } else {
            Ok(())
        }
    }
}

struct OperandLabel<'a>(&'a Operand);

impl fmt::Display for OperandLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = self.0;
        write!(f, "{}", operand.operand_type)?;
        if operand.operand_type.is_tensor() {
            write!(f, " {}", Dimensions(&operand.dimensions))?;
        }
        if operand.scale != 0.0 {
            write!(f, "\\nscale {}, zero point {}", operand.scale, operand.zero_point)?;
        }
        if let ExtraParams::ChannelQuant(channel_quant) = &operand.extra_params {
            write!(
                f,
                "\\n{} scales along dimension {}",
                channel_quant.scales.len(),
                channel_quant.channel_dim
            )?;
        }
        Ok(())
    }
}

/// `1x224x224x3`, with `?` for what the model leaves open.
struct Dimensions<'a>(&'a [u32]);

impl fmt::Display for Dimensions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("of any rank");
        }
        for (axis, dimension) in self.0.iter().enumerate() {
            if axis > 0 {
                f.write_str("x")?;
            }
            match dimension {
                0 => f.write_str("?")?,
                known => write!(f, "{known}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Dot;
    use nnhal_hal::{Model, Operand, OperandLifeTime, OperandType, Operation, OperationType, Subgraph};

    fn operand(ty: OperandType, dimensions: &[u32], lifetime: OperandLifeTime) -> Operand {
        Operand::new(ty, dimensions).with_lifetime(lifetime)
    }

    fn branching() -> Model {
        let tensor = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[2, 0], lifetime);
        let branch = Subgraph {
            operands: vec![tensor(OperandLifeTime::SubgraphInput)],
            input_indexes: vec![0],
            output_indexes: vec![0],
            ..Subgraph::default()
        };
        Model {
            main: Subgraph {
                operands: vec![
                    operand(OperandType::TENSOR_BOOL8, &[1], OperandLifeTime::SubgraphInput),
                    operand(OperandType::SUBGRAPH, &[], OperandLifeTime::Subgraph),
                    tensor(OperandLifeTime::SubgraphInput),
                    tensor(OperandLifeTime::SubgraphOutput),
                ],
                operations: vec![Operation {
                    operation_type: OperationType::IF,
                    inputs: vec![0, 1, 1, 2],
                    outputs: vec![3],
                }],
                input_indexes: vec![0, 2],
                output_indexes: vec![3],
            },
            referenced: vec![branch],
            ..Model::default()
        }
    }

    #[test]
    fn operations_operands_and_subgraphs_are_drawn() {
        let text = Dot(&branching()).to_string();
        for line in [
            "main_op0 [shape=box, style=filled, fillcolor=lightyellow, label=\"0: IF\"];",
            "main_2 -> main_op0 [color=black, label=\"3\"];",
            "main_op0 -> graph0 [style=dashed, lhead=cluster_graph0, label=\"1\"];",
            "main_op0 -> main_3 [color=black];",
            "subgraph cluster_graph0 {",
            "TENSOR_FLOAT32 2x?",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn constants_are_listed_in_their_operation() {
        let mut activation = operand(OperandType::INT32, &[], OperandLifeTime::ConstantCopy);
        activation.location.offset = 4;
        let weights = operand(
            OperandType::TENSOR_FLOAT32,
            &[3],
            OperandLifeTime::ConstantReference,
        );
        let nothing = operand(OperandType::TENSOR_FLOAT32, &[3], OperandLifeTime::NoValue);
        let mut beyond = activation.clone();
        beyond.location.offset = 5;
        let model = Model {
            main: Subgraph {
                operands: vec![weights, activation, nothing, beyond],
                operations: vec![Operation {
                    operation_type: OperationType::ADD,
                    inputs: vec![0, 1, 2, 3],
                    outputs: vec![],
                }],
                ..Subgraph::default()
            },
            operand_values: [0_i32, -2].map(i32::to_le_bytes).concat(),
            ..Model::default()
        };
        let text = Dot(&model).to_string();
        let label = r#"label="0: ADD\n0: TENSOR_FLOAT32 3\n1: INT32 -2\n2: none\n3: INT32"];"#;
        assert!(text.contains(label), "{label} is missing in\n{text}");
        assert!(!text.contains("->"), "{text}");
    }

    #[test]
    fn index_that_leads_nowhere_is_drawn_in_red() {
        let mut model = branching();
        model.main.operations[0].inputs[3] = 77;
        let text = Dot(&model).to_string();
        assert!(text.contains("[color=red, label=\"no operand 77\"]"), "{text}");
    }
}
