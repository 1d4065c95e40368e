//! Draws one operation: a form and a variant from the operation table, arguments that may fit, and then the
//! table's own rules to tell whether they do.

use nnhal_hal::ops::{Form, OperationContext, OperationEntry, Param, Presence, ShapeRule, Variant};
use nnhal_hal::{Operand, OperandType, Operation, OperationType, Shape, tflite};

use super::arguments::Arguments;
use super::choices::Choices;
use super::extension;
use super::graph::{Draft, Drawn, Graph, Role};
use super::types::{concrete_type, some_quantization};

/// Tensors with more elements than this are not drawn.
const MOST_ELEMENTS: usize = 4096;

/// One in so many results without elements is kept.
const EMPTY_RESULTS: u32 = 2;

/// Tries to add one operation with this entry. The graph is as before if the arguments that were drawn do not
/// fit.
pub(super) fn try_operation(
    graph: &mut Graph,
    choices: &mut Choices,
    entry: &'static OperationEntry,
) -> bool {
    let (operands, operations) = (graph.operands.len(), graph.operations.len());
    let added = add_operation(graph, choices, entry).is_some();
    if !added {
        graph.operands.truncate(operands);
        graph.operations.truncate(operations);
    }
    added
}

fn add_operation(graph: &mut Graph, choices: &mut Choices, entry: &'static OperationEntry) -> Option<()> {
    let form = choices.pick(entry.forms)?;
    let variant = variant(graph, choices, entry);
    let params = parameter_list(form, choices);
    let mut arguments = Arguments::new(graph, choices, entry.operation, variant, &params);
    arguments.spelled_out = extension::spelled_out(&mut arguments);
    let mut inputs = Vec::new();
    for (index, param) in params.iter().enumerate() {
        inputs.push(arguments.draw(index, param, &inputs)?);
    }
    let output_count = arguments.output_count(entry, &inputs);
    let mut outputs = Vec::new();
    for index in 0..output_count {
        let param = entry.outputs.get(index).or_else(|| entry.outputs.last())?;
        outputs.push(Operand::new(concrete_type(param.ty, variant, choices)?, &[]));
    }
    quantize_outputs(graph, entry, &inputs, &mut outputs, choices)?;
    let adding = Adding {
        entry,
        most_elements: MOST_ELEMENTS,
    };
    complete(graph, choices, adding, (inputs, outputs))
}

/// An operation that is added.
#[derive(Clone, Copy)]
pub(super) struct Adding {
    pub(super) entry: &'static OperationEntry,
    /// Elements that an output has at most.
    pub(super) most_elements: usize,
}

/// Adds an operation with these inputs and with outputs of these types and scales, if they fit.
pub(super) fn complete(
    graph: &mut Graph,
    choices: &mut Choices,
    adding: Adding,
    (inputs, outputs): (Vec<u32>, Vec<Operand>),
) -> Option<()> {
    let shapes = output_shapes(graph, adding, (&inputs, &outputs), choices)?;
    let mut indexes = Vec::new();
    for (mut operand, shape) in outputs.into_iter().zip(shapes) {
        operand.dimensions = shape.map(|shape| shape.dims().to_vec()).unwrap_or_default();
        indexes.push(graph.add(Drawn {
            operand,
            shape,
            value: None,
            role: Role::Computed,
        }));
    }
    graph.operations.push(Operation {
        operation_type: adding.entry.operation,
        inputs,
        outputs: indexes,
    });
    Some(())
}

/// The types of one call: in a network mostly those of what was computed last, so that operations follow each
/// other.
fn variant(graph: &Graph, choices: &mut Choices, entry: &'static OperationEntry) -> Option<&'static Variant> {
    let mut computed = graph.operands.iter().rev();
    let last = computed.find(|drawn| drawn.role == Role::Computed);
    if let Some(last) = last.filter(|_| graph.is_network)
        && !choices.once_in(6)
    {
        let variants = entry.variants.iter();
        let takes_last = |variant: &&Variant| variant.types.first() == Some(&last.operand.operand_type);
        let fitting: Vec<&'static Variant> = variants.filter(takes_last).collect();
        if let Some(variant) = choices.pick(&fitting) {
            return Some(*variant);
        }
    }
    choices.pick(entry.variants)
}

/// The parameters of one call: how many trailing ones and how many copies of a repeated one is chosen.
fn parameter_list(form: &'static Form, choices: &mut Choices) -> Vec<&'static Param> {
    let trailing = form
        .inputs
        .iter()
        .filter(|param| param.presence == Presence::Trailing)
        .count();
    let left_off = trailing - choices.below(trailing as u32 + 1) as usize;
    let listed = &form.inputs[..form.inputs.len() - left_off];
    let mut params = Vec::new();
    for param in listed {
        let copies = if param.presence == Presence::Repeated {
            1 + choices.below(3)
        } else {
            1
        };
        params.extend(std::iter::repeat_n(param, copies as usize));
    }
    params
}

/// Gives the outputs scales and zero points that the operation's check accepts: any, that of an input, or one
/// that the HAL fixes.
fn quantize_outputs(
    graph: &Graph,
    entry: &'static OperationEntry,
    inputs: &[u32],
    outputs: &mut [Operand],
    choices: &mut Choices,
) -> Option<()> {
    for output in outputs.iter_mut() {
        some_quantization(choices, output);
        // Where they count steps of a scale, integers have one.
        if entry.operation == tflite::QUANTIZE && output.operand_type == OperandType::TENSOR_INT32 {
            output.scale = 0.5;
        }
    }
    let of_inputs = inputs.iter().filter_map(|input| {
        let operand = &graph.operands.get(*input as usize)?.operand;
        (operand.scale > 0.0).then_some((operand.scale, operand.zero_point))
    });
    let fixed = [
        (1.0 / 256.0, 0),
        (1.0 / 256.0, -128),
        (1.0 / 128.0, 128),
        (1.0 / 128.0, 0),
        (1.0 / 32768.0, 0),
        (1.0 / 65536.0, 0),
        (1.0 / 2048.0, 0),
        (1000.0, 0),
    ];
    let mut candidates: Vec<Option<(f32, i32)>> = vec![None];
    candidates.extend(of_inputs.chain(fixed).map(Some));
    // Two outputs may need different ones; further outputs go with one of them.
    let seconds = if outputs.len() > 1 {
        &candidates[..]
    } else {
        &[None][..]
    };
    let drawn = outputs.to_vec();
    for first in &candidates {
        for second in seconds {
            outputs.clone_from_slice(&drawn);
            for (at, output) in outputs.iter_mut().enumerate() {
                set_quantization(output, if at % 2 == 0 { *first } else { *second });
            }
            let draft = Draft {
                graph,
                operation: entry.operation,
                inputs,
                outputs,
            };
            if accepts(entry, &draft) {
                return Some(());
            }
        }
    }
    None
}

/// Gives a quantised tensor this scale and zero point, if its type can have them.
fn set_quantization(operand: &mut Operand, quantization: Option<(f32, i32)>) {
    let Some((scale, zero_point)) = quantization else {
        return;
    };
    let zero_points = match operand.operand_type {
        OperandType::TENSOR_QUANT8_ASYMM => 0..=255,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => -128..=127,
        OperandType::TENSOR_QUANT16_ASYMM => 0..=65535,
        _ => 0..=0,
    };
    if operand.operand_type.is_quantized_per_tensor() && zero_points.contains(&zero_point) {
        (operand.scale, operand.zero_point) = (scale, zero_point);
    }
}

/// Whether an operation's values say which item of another operand a box is in: no value is right if there is
/// none.
fn takes_items_by_number(operation: OperationType) -> bool {
    matches!(
        operation,
        OperationType::ROI_ALIGN | OperationType::ROI_POOLING | OperationType::AXIS_ALIGNED_BBOX_TRANSFORM
    )
}

fn accepts(entry: &'static OperationEntry, draft: &dyn OperationContext) -> bool {
    entry.match_signature(draft).is_ok() && (entry.check)(draft).is_ok()
}

/// The shapes of the outputs, `None` for those that depend on data; nothing if the arguments do not fit.
fn output_shapes(
    graph: &Graph,
    Adding { entry, most_elements }: Adding,
    (inputs, outputs): (&[u32], &[Operand]),
    choices: &mut Choices,
) -> Option<Vec<Option<Shape>>> {
    let draft = Draft {
        graph,
        operation: entry.operation,
        inputs,
        outputs,
    };
    if !accepts(entry, &draft) {
        return None;
    }
    let ShapeRule::Infer(rule) = entry.shape else {
        return Some(vec![None; outputs.len()]);
    };
    let mut shapes = vec![Shape::SCALAR; outputs.len()];
    rule(&draft, &mut shapes).ok()?;
    let is_empty = |shape: &Shape| shape.dims().contains(&0);
    let reads_empty = inputs
        .iter()
        .filter_map(|input| graph.operands.get(*input as usize)?.shape)
        .any(|shape| is_empty(&shape));
    if reads_empty && takes_items_by_number(entry.operation) {
        return None;
    }
    // What has no elements stays so; it should not be most of what there is. An extent of zero cannot be
    // declared: the model leaves it open.
    if !reads_empty && shapes.iter().any(is_empty) && !choices.once_in(EMPTY_RESULTS) {
        return None;
    }
    shapes
        .into_iter()
        .map(|shape| {
            let elements = shape.elements().ok()?;
            (elements <= most_elements).then_some(Some(shape))
        })
        .collect()
}
