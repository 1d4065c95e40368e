//! A HAL graph in the making: operands, operations, and the shapes that follow by the operation table.
//!
//! The shapes that a `.tflite` file states for the results of operators are hints, sometimes missing: its
//! runtime computes them anew. So does this builder, by the shape rules of [`nnhal_hal::ops`], and an
//! operation that breaks a rule of its entry is refused when it is added, while it is still known which
//! operator of the file it stands for.

use std::collections::HashMap;

use nnhal_hal::ops::{self, OperandInfo, OperationContext, OperationEntry, ShapeIssue, ShapeRule};
use nnhal_hal::validate::limits::MAX_PARAMETER_BYTES;
use nnhal_hal::{
    DataLocation, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph, tflite,
};

use crate::constants::ConstantStore;

/// An operand of the graph in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) u32);

/// An operand with what shape rules may look at.
#[derive(Debug)]
struct Slot {
    operand: Operand,
    /// The value of a small constant, in words so that rules can read 32-bit elements.
    parameter: Option<(Vec<u64>, usize)>,
    /// Which dimensions are not known before execution, unless a shape rule tells them.
    open: Vec<bool>,
}

/// A graph in the making.
#[derive(Debug, Default)]
pub(crate) struct GraphBuilder {
    slots: Vec<Slot>,
    operations: Vec<Operation>,
    /// For each operation, the operator of the file that it stands for.
    origins: Vec<usize>,
    /// Scalars and omitted operands that are there already, by type and bytes.
    scalars: HashMap<(OperandType, Vec<u8>), Id>,
    /// For operands of 64-bit integers those of the same in 32 bits, where there are any.
    pub(crate) narrowed: HashMap<Id, Id>,
}

impl GraphBuilder {
    /// Adds an operand as it is.
    pub(crate) fn add(&mut self, operand: Operand) -> Result<Id, String> {
        let id = u32::try_from(self.slots.len()).map_err(|_| "the graph has too many operands".to_owned())?;
        self.slots.push(Slot {
            operand,
            parameter: None,
            open: Vec::new(),
        });
        Ok(Id(id))
    }

    /// Adds a constant whose bytes lie at `location`.
    pub(crate) fn add_constant(
        &mut self,
        operand: Operand,
        location: DataLocation,
        bytes: &[u8],
    ) -> Result<Id, String> {
        let size = Shape::new(&operand.dimensions)
            .and_then(|shape| shape.byte_size(operand.operand_type.element_size()))
            .map_err(|error| error.to_string())?;
        if size != bytes.len() {
            return Err(format!(
                "is {} with dimensions {:?} in {} bytes, must be {size}",
                operand.operand_type,
                operand.dimensions,
                bytes.len()
            ));
        }
        let id = self.add(Operand {
            lifetime: OperandLifeTime::ConstantCopy,
            location,
            ..operand
        })?;
        if bytes.len() <= MAX_PARAMETER_BYTES {
            let mut words = vec![0_u64; bytes.len().div_ceil(8)];
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
            self.slot_mut(id).parameter = Some((words, bytes.len()));
        }
        Ok(id)
    }

    /// A scalar constant; the same one for the same value.
    pub(crate) fn scalar(
        &mut self,
        store: &mut ConstantStore,
        ty: OperandType,
        bytes: &[u8],
    ) -> Result<Id, String> {
        let key = (ty, bytes.to_vec());
        if let Some(id) = self.scalars.get(&key) {
            return Ok(*id);
        }
        let location = store.add(bytes)?;
        let id = self.add_constant(Operand::new(ty, &[]), location, bytes)?;
        self.scalars.insert(key, id);
        Ok(id)
    }

    /// The operand that stands where an optional one of type `ty` is left out.
    pub(crate) fn no_value(&mut self, ty: OperandType) -> Result<Id, String> {
        let key = (ty, b"no value".to_vec());
        if let Some(id) = self.scalars.get(&key) {
            return Ok(*id);
        }
        let mut operand = Operand::new(ty, &[]).with_lifetime(OperandLifeTime::NoValue);
        if ty.is_quantized_per_tensor() {
            // Validation wants a scale even where there is nothing to scale.
            operand.scale = 1.0;
        }
        let id = self.add(operand)?;
        self.scalars.insert(key, id);
        Ok(id)
    }

    /// The operand.
    pub(crate) fn operand(&self, id: Id) -> &Operand {
        &self.slots[id.0 as usize].operand
    }

    /// The operand, to complete it.
    pub(crate) fn operand_mut(&mut self, id: Id) -> &mut Operand {
        &mut self.slot_mut(id).operand
    }

    /// A temporary like the operand `id`, of another type.
    pub(crate) fn add_like(&mut self, id: Id, ty: OperandType) -> Result<Id, String> {
        let dimensions = self.operand(id).dimensions.clone();
        let open = self.slots[id.0 as usize].open.clone();
        let like = self.add(Operand::new(ty, &dimensions))?;
        self.leave_open(like, open);
        Ok(like)
    }

    /// How many operands there are.
    pub(crate) fn mark(&self) -> usize {
        self.slots.len()
    }

    /// Takes out the operands that came after a mark, which nothing uses.
    pub(crate) fn forget_since(&mut self, mark: usize) {
        self.slots.truncate(mark);
    }

    /// Whether the operation takes these operands.
    pub(crate) fn takes(&self, kind: OperationType, inputs: &[Id], outputs: &[Id]) -> bool {
        self.check(kind, inputs, outputs).is_ok()
    }

    fn slot_mut(&mut self, id: Id) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    /// Leaves these dimensions of an operand open, unless the rule of the operation that writes it tells
    /// them.
    pub(crate) fn leave_open(&mut self, id: Id, open: Vec<bool>) {
        self.slot_mut(id).open = open;
    }

    /// The operand's dimensions, if all of them are known.
    pub(crate) fn dimensions(&self, id: Id) -> Option<&[u32]> {
        let dimensions = self.operand(id).dimensions.as_slice();
        (!dimensions.is_empty() && !dimensions.contains(&0)).then_some(dimensions)
    }

    /// Adds an operation for the operator number `origin` of the file and completes the shapes of its
    /// outputs. Where NNAPI's operation does not take the operands, that of the extension serves, if it does.
    pub(crate) fn emit(
        &mut self,
        origin: usize,
        kind: OperationType,
        inputs: &[Id],
        outputs: &[Id],
    ) -> Result<(), String> {
        let (kind, shapes) = match (self.check(kind, inputs, outputs), tflite::wider(kind)) {
            (Err(error), Some(wider)) => match self.check(wider, inputs, outputs) {
                Ok(shapes) => (wider, shapes),
                Err(_) => return Err(error),
            },
            (checked, _) => (kind, checked?),
        };
        self.complete(outputs, &shapes, ops::entry(kind).is_some());
        self.operations.push(Operation {
            operation_type: kind,
            inputs: inputs.iter().map(|id| id.0).collect(),
            outputs: outputs.iter().map(|id| id.0).collect(),
        });
        self.origins.push(origin);
        Ok(())
    }

    /// Gives the outputs of an operation the shapes that follow. Where its rule cannot tell them, what the
    /// file leaves open is open.
    fn complete(&mut self, outputs: &[Id], shapes: &[Shape], has_rule: bool) {
        for (number, output) in outputs.iter().enumerate() {
            let slot = self.slot_mut(*output);
            let dimensions = &mut slot.operand.dimensions;
            match shapes.get(number) {
                Some(shape) if slot.operand.operand_type.is_tensor() && !shape.dims().contains(&0) => {
                    *dimensions = shape.dims().to_vec();
                }
                None if has_rule => {
                    let open = dimensions.iter_mut().zip(&slot.open).filter(|(_, open)| **open);
                    open.for_each(|(extent, _)| *extent = 0);
                }
                _ => {}
            }
        }
    }

    /// The shapes of the outputs of an operation, as far as they are known, if it keeps the rules of its
    /// entry.
    fn check(&self, kind: OperationType, inputs: &[Id], outputs: &[Id]) -> Result<Vec<Shape>, String> {
        let Some(entry) = ops::entry(kind) else {
            return Ok(Vec::new());
        };
        let view = View {
            graph: self,
            kind,
            inputs,
            outputs,
        };
        let shapes = || {
            entry.match_signature(&view)?;
            (entry.check)(&view)?;
            inferred(entry, &view)
        };
        shapes().map_err(|error: ops::OpError| rule_broken(kind, &error))
    }

    /// The finished graph, and for each of its operations the operator of the file that it stands for.
    pub(crate) fn finish(mut self, inputs: &[Id], outputs: &[Id]) -> (Subgraph, Vec<usize>) {
        for output in outputs {
            self.operand_mut(*output).lifetime = OperandLifeTime::SubgraphOutput;
        }
        for operation in &self.operations {
            for input in &operation.inputs {
                self.slots[*input as usize].operand.number_of_consumers += 1;
            }
        }
        let graph = Subgraph {
            operands: self.slots.into_iter().map(|slot| slot.operand).collect(),
            operations: self.operations,
            input_indexes: inputs.iter().map(|id| id.0).collect(),
            output_indexes: outputs.iter().map(|id| id.0).collect(),
        };
        (graph, self.origins)
    }
}

/// What is said of an operation that breaks a rule.
pub(crate) fn rule_broken(kind: OperationType, error: &dyn std::fmt::Display) -> String {
    let whose = if kind.is_extension() { "" } else { "NNAPI's " };
    format!("{whose}{kind}: {error}")
}

/// The shapes of the outputs as far as the entry's rule can tell before execution.
fn inferred(entry: &OperationEntry, view: &View<'_>) -> Result<Vec<Shape>, ops::OpError> {
    let ShapeRule::Infer(rule) = entry.shape else {
        return Ok(Vec::new());
    };
    let mut shapes = vec![Shape::SCALAR; view.outputs.len()];
    match rule(view, &mut shapes) {
        Ok(()) => Ok(shapes),
        Err(ShapeIssue::Unknown) => Ok(Vec::new()),
        Err(ShapeIssue::Invalid(error)) => Err(error),
    }
}

/// An operation that is about to be added.
struct View<'g> {
    graph: &'g GraphBuilder,
    kind: OperationType,
    inputs: &'g [Id],
    outputs: &'g [Id],
}

impl View<'_> {
    fn info(&self, id: Id) -> OperandInfo<'_> {
        let slot = &self.graph.slots[id.0 as usize];
        let rank_known = !slot.operand.operand_type.is_tensor() || !slot.operand.dimensions.is_empty();
        // Tensors have at most MAX_RANK dimensions by the time they are operands.
        let shape = Shape::new(&slot.operand.dimensions).unwrap_or(Shape::SCALAR);
        OperandInfo {
            operand: &slot.operand,
            shape,
            rank_known,
            shape_known: rank_known && !slot.operand.dimensions.contains(&0),
            bytes: slot
                .parameter
                .as_ref()
                .map(|(words, length)| &bytemuck::cast_slice(words)[..*length]),
        }
    }
}

impl OperationContext for View<'_> {
    fn operation(&self) -> OperationType {
        self.kind
    }

    fn input_count(&self) -> usize {
        self.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.outputs.len()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        let info = self.info(*self.inputs.get(index)?);
        (info.operand.lifetime != OperandLifeTime::NoValue && info.ty() != OperandType::SUBGRAPH)
            .then_some(info)
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        self.outputs.get(index).map(|id| self.info(*id))
    }

    fn executing(&self) -> bool {
        false
    }
}
