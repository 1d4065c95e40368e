//! Draws arguments that are likely to fit: by the names that the operation table gives its parameters.
//!
//! Nothing here has to be right. What is drawn is held to the table's rules, and drawn again if it breaks
//! one; a parameter that no rule below knows is drawn like any other of its type.

use nnhal_hal::ops::{OperationEntry, Param, Presence, Rank, Ty};
use nnhal_hal::{Operand, OperandType, OperationType, Shape, tflite};

use super::arguments::{Arguments, allows};
use super::graph::{Drawn, Role};
use super::types::{concrete_type, some_quantization};
use super::{extension, resizing, shapes, values};

/// Operations that refuse some data: it is not taken from other operations, which may give anything. Nor is
/// that of operations of whose results the last bit of a float decides the extents or what is chosen.
const WANT_DRAWN_DATA: &[OperationType] = &[
    OperationType::RANDOM_MULTINOMIAL,
    tflite::BITCAST,
    tflite::FAKE_QUANT,
    tflite::MULTINOMIAL,
    tflite::NON_MAX_SUPPRESSION_V4,
    tflite::NON_MAX_SUPPRESSION_V5,
    tflite::UNIQUE,
    tflite::WHERE,
];

/// Operations whose other arguments must point at an element.
const WANT_ELEMENTS: &[OperationType] = &[OperationType::GATHER, OperationType::TOPK_V2, tflite::GATHER_ND];

/// Whether this argument of an operation must not be 0. Floats leave a remainder even then.
fn is_divisor(operation: OperationType, ty: OperandType, name: &str) -> bool {
    let is_float = matches!(ty, OperandType::TENSOR_FLOAT32 | OperandType::TENSOR_FLOAT16);
    let divides = match operation {
        tflite::FLOOR_DIV | tflite::TRUNCATED_DIV => true,
        tflite::FLOOR_MOD => !is_float,
        _ => false,
    };
    divides && name == "input1"
}

/// Operations that prescribe scales of their inputs.
const FIXED_SCALES: &[OperationType] = &[OperationType::QUANTIZED_LSTM, OperationType::QUANTIZED_16BIT_LSTM];

/// The scale and zero point that an operation prescribes for an input, or one that is legal together with the
/// others.
fn fixed_quantization(operation: OperationType, name: &str) -> Option<(f32, i32)> {
    if !FIXED_SCALES.contains(&operation) {
        return None;
    }
    let unsigned = operation == OperationType::QUANTIZED_16BIT_LSTM;
    match name {
        "prevcellstate" => Some((1.0 / 2048.0, 0)),
        "input" | "prevoutput" if unsigned => Some((1.0 / 128.0, 128)),
        _ if unsigned && name.ends_with("weights") => Some((1.0 / 64.0, 128)),
        _ => None,
    }
}

/// The argument whose scale and zero point the one of this name must have, too.
fn same_scale_as(operation: OperationType, ty: OperandType, name: &str) -> Option<usize> {
    match (operation, name) {
        (OperationType::PACK, _) => Some(1),
        // Bytes are brought to the scale of the output.
        (OperationType::CONCATENATION, _) if ty == OperandType::TENSOR_QUANT16_SYMM => Some(0),
        (tflite::MATRIX_SET_DIAG, "diagonal") | (tflite::DYNAMIC_UPDATE_SLICE, "update") => Some(0),
        (tflite::DILATE, "value") | (tflite::REDUCE_WINDOW, "start") => Some(0),
        (tflite::SCATTER_REGIONS, "updates") => Some(0),
        (tflite::ONE_HOT, "offvalue") | (tflite::SPARSE_TO_DENSE, "default") => Some(2),
        _ => None,
    }
}

impl Arguments<'_> {
    /// Draws argument `index`, which follows `before`; `None` if there is nothing that could fit.
    pub(super) fn draw(&mut self, index: usize, param: &'static Param, before: &[u32]) -> Option<u32> {
        let ty = concrete_type(param.ty, self.variant, self.choices)?;
        let name = self.names.get(index).cloned().unwrap_or_default();
        if param.presence == Presence::Omissible {
            let given = match self.parts.has(&name) {
                Some(has) => has,
                None => !self.choices.once_in(2),
            };
            if !given {
                return Some(self.omitted(ty));
            }
        }
        if !ty.is_tensor() {
            return self.scalar(ty, &name, before);
        }
        let boxes = shapes::BOXES.contains(&name.as_str());
        let is_first = before.iter().all(|drawn| self.is_scalar(*drawn));
        if let Some((dims, value)) = extension::value(self, ty, &name) {
            return Some(self.value_tensor(ty, &dims, value));
        }
        let is_data = match param.ty {
            Ty::Var(_) => !boxes,
            Ty::AnyOf(_) => self.is_of_extension && name != "indices",
            Ty::Is(_) => false,
        };
        if is_first && is_data {
            return self.primary(ty, param.rank);
        }
        if matches!(ty, OperandType::TENSOR_INT32 | tflite::TENSOR_INT64)
            && let Some(integers) =
                extension::integers(self, &name, before).or_else(|| shapes::integers(self, &name, before))
        {
            let dims = integers.dims;
            if dims.contains(&0) {
                return None;
            }
            let drawn = self.value_tensor(
                ty,
                &dims,
                values::encode(ty, integers.values.into_iter().map(f64::from)),
            );
            return Some(drawn);
        }
        let dims = match extension::of(self, &name, before) {
            Some(dims) => dims,
            None => shapes::of(self, &name, param.rank, before)?,
        };
        if dims.contains(&0) {
            // Only operations give tensors without elements: neither constants nor requests can have any.
            return self.reusable(ty, &dims);
        }
        let special = boxes
            || name == "imageinfo"
            || FIXED_SCALES.contains(&self.operation)
            || WANT_DRAWN_DATA.contains(&self.operation)
            || is_divisor(self.operation, ty, &name);
        if special {
            return Some(self.tensor(ty, &dims, &name, before));
        }
        let same_shape = self.reusable(ty, &dims);
        if let Some(index) = same_shape.filter(|_| self.choices.once_in(2)) {
            return Some(index);
        }
        Some(self.tensor(ty, &dims, &name, before))
    }

    /// How many outputs the operation has.
    pub(super) fn output_count(&mut self, entry: &OperationEntry, inputs: &[u32]) -> usize {
        let optional = entry
            .outputs
            .iter()
            .filter(|param| param.presence == Presence::Trailing)
            .count();
        if !entry.outputs_repeat {
            return entry.outputs.len() - self.choices.below(optional as u32 + 1) as usize;
        }
        let count = self
            .argument("numsplits", inputs)
            .and_then(|drawn| drawn.value.as_ref())
            .map_or(1, |value| value.bytes().first().copied().unwrap_or(1));
        usize::from(count)
    }

    fn omitted(&mut self, ty: OperandType) -> u32 {
        let role = if self.choices.once_in(2) {
            Role::OmittedInput
        } else {
            Role::NoValue
        };
        let dims: &[u32] = if ty.is_tensor() { &[0] } else { &[] };
        let mut operand = Operand::new(ty, dims);
        some_quantization(self.choices, &mut operand);
        self.graph.add(Drawn {
            operand,
            shape: None,
            value: None,
            role,
        })
    }

    fn scalar(&mut self, ty: OperandType, name: &str, before: &[u32]) -> Option<u32> {
        let value = match ty {
            OperandType::BOOL if name == "layout" || name == "nchw" => f64::from(u8::from(self.nchw)),
            OperandType::BOOL if name == "transposeleft" => f64::from(u8::from(self.transposes()[0])),
            OperandType::BOOL if name == "transposeright" => f64::from(u8::from(self.transposes()[1])),
            _ if name == "timemajor" => f64::from(u8::from(self.time_major)),
            OperandType::BOOL => f64::from(self.choices.below(2)),
            // A range around 0.
            OperandType::FLOAT32 if name == "least" => -*self.choices.pick(&[1.0, 0.5, 2.0])?,
            OperandType::FLOAT32 | OperandType::FLOAT16 => *self.choices.pick(&[1.0, 0.5, 2.0, 0.25])?,
            _ => f64::from(match extension::scalar(self, name, before) {
                Some(value) => value,
                None => shapes::scalar(self, name, before),
            }),
        };
        let value = values::encode(ty, std::iter::once(value));
        Some(self.add(Operand::new(ty, &[]), Shape::SCALAR, value))
    }

    fn is_scalar(&self, index: u32) -> bool {
        let drawn = self.graph.operands.get(index as usize);
        drawn.is_some_and(|drawn| drawn.operand.operand_type.is_scalar())
    }

    /// A tensor to compute with: one that is there already, or a new one.
    fn primary(&mut self, ty: OperandType, rank: Rank) -> Option<u32> {
        let wants_elements = WANT_ELEMENTS.contains(&self.operation);
        let fitting: Vec<u32> = (0_u32..)
            .zip(&self.graph.operands)
            .filter(|(_, drawn)| drawn.operand.operand_type == ty && drawn.role != Role::OmittedInput)
            .filter(|(_, drawn)| {
                drawn.shape.is_some_and(|shape| {
                    let fits = shape.rank() > 0 && allows(rank, shape.rank());
                    fits && !(wants_elements && shape.dims().contains(&0))
                })
            })
            .map(|(index, _)| index)
            .collect();
        let taken = !fitting.is_empty() && !WANT_DRAWN_DATA.contains(&self.operation);
        if taken && !self.choices.once_in(3) {
            let follows = self.graph.is_network && !self.choices.once_in(3);
            return match fitting.last() {
                Some(last) if follows => Some(*last),
                _ => self.choices.pick(&fitting).copied(),
            };
        }
        let dims = resizing::wide_image(self).unwrap_or_else(|| shapes::any(self, rank));
        Some(self.tensor(ty, &dims, "", &[]))
    }

    /// A tensor of this type and shape that is there already.
    fn reusable(&self, ty: OperandType, dims: &[u32]) -> Option<u32> {
        (0_u32..)
            .zip(&self.graph.operands)
            .filter(|(_, drawn)| {
                drawn.operand.operand_type == ty && drawn.shape.is_some_and(|shape| shape.dims() == dims)
            })
            .map(|(index, _)| index)
            .last()
    }

    /// A new tensor with any values.
    fn tensor(&mut self, ty: OperandType, dims: &[u32], name: &str, before: &[u32]) -> u32 {
        let count = dims.iter().product::<u32>() as usize;
        let value = if shapes::BOXES.contains(&name) {
            values::boxes(self.choices, ty, count)
        } else if name == "imageinfo" {
            values::encode(ty, std::iter::repeat_n(values::raw(ty, 32.0), count))
        } else if is_divisor(self.operation, ty, name) {
            values::without_zeros(self.choices, ty, count)
        } else if self.operation == tflite::WHERE {
            values::mostly_zeros(self.choices, ty, count)
        } else if self.graph.is_network && name.contains("recurrent") {
            values::small(self.choices, ty, count)
        } else {
            values::some(self.choices, ty, count)
        };
        let mut operand = Operand::new(ty, dims);
        some_quantization(self.choices, &mut operand);
        if let Some((scale, zero_point)) = fixed_quantization(self.operation, name) {
            (operand.scale, operand.zero_point) = (scale, zero_point);
        }
        let same = same_scale_as(self.operation, ty, name);
        let same = same.and_then(|index| before.get(index));
        if let Some(first) = same.and_then(|at| self.graph.operands.get(*at as usize)) {
            (operand.scale, operand.zero_point) = (first.operand.scale, first.operand.zero_point);
        }
        if ty == OperandType::TENSOR_INT32 && name.contains("bias") {
            operand.scale = self.bias_scale(before);
        }
        let shape = Shape::new(dims).unwrap_or_default();
        self.add(operand, shape, value)
    }

    /// A new tensor with these values.
    fn value_tensor(&mut self, ty: OperandType, dims: &[u32], value: nnhal_os::buffer::AlignedBuffer) -> u32 {
        let shape = Shape::new(dims).unwrap_or_default();
        self.add(Operand::new(ty, dims), shape, value)
    }

    /// The product of the scales of input and filter, which the scale of a quantised bias must be; 0 if the
    /// filter has one for each channel.
    fn bias_scale(&self, before: &[u32]) -> f32 {
        let scale = |index: usize| {
            before
                .get(index)
                .and_then(|operand| self.graph.operands.get(*operand as usize))
                .map_or(0.0, |drawn| drawn.operand.scale)
        };
        scale(0) * scale(1)
    }

    fn add(&mut self, operand: Operand, shape: Shape, value: nnhal_os::buffer::AlignedBuffer) -> u32 {
        let constant_only = operand.operand_type == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL;
        let roles = [Role::ConstantCopy, Role::Input, Role::ConstantReference];
        // Parameters are mostly constants, as in real models; data is mostly given with the request.
        let first_data = self.graph.operands.is_empty();
        // A convolution has many scalars, one of which is enough to leave it to the execution.
        let times = if operand.operand_type.is_scalar() { 64 } else { 8 };
        let is_weight = self.graph.is_network && !first_data && !self.choices.once_in(times);
        let role = if constant_only || is_weight {
            Role::ConstantCopy
        } else if first_data {
            Role::Input
        } else {
            self.choices.pick(&roles).copied().unwrap_or(Role::ConstantCopy)
        };
        // What has no element cannot be a constant.
        let role = if shape.dims().contains(&0) {
            Role::Input
        } else {
            role
        };
        self.graph.add(Drawn {
            operand,
            shape: Some(shape),
            value: Some(value),
            role,
        })
    }
}
