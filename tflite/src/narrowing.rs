//! Operations that take 32-bit integers alone where the file has 64-bit ones: extents, axes and indices.

use nnhal_hal::ops::{self, OperationEntry, Ty};
use nnhal_hal::{Operand, OperandLifeTime, OperandType, OperationType, tflite};

use crate::graph::Id;
use crate::graph_import::GraphImport;

/// An operand of 64-bit integers and the one of 32-bit ones that an operation has in its place.
#[derive(Clone, Copy, Debug)]
struct Pair {
    wide: Id,
    narrow: Id,
}

impl GraphImport<'_, '_, '_> {
    /// Adds an operation for the operator number `origin` of the file. Where neither NNAPI's nor the
    /// extension's takes the operands, 64-bit integers become the 32-bit ones that it demands: constants,
    /// which must fit, here, others by CAST. What does not fit there becomes the closest value, which is
    /// beyond every extent as well.
    pub(crate) fn emit(
        &mut self,
        origin: usize,
        kind: OperationType,
        inputs: &[Id],
        outputs: &[Id],
    ) -> Result<(), String> {
        let Err(reason) = self.builder.emit(origin, kind, inputs, outputs) else {
            return Ok(());
        };
        for kind in [Some(kind), tflite::wider(kind)].into_iter().flatten() {
            if self.emit_narrowed(origin, kind, inputs, outputs)? {
                return Ok(());
            }
        }
        Err(reason)
    }

    /// Adds the operation with 32-bit integers for 64-bit ones. Whether it takes them.
    fn emit_narrowed(
        &mut self,
        origin: usize,
        kind: OperationType,
        inputs: &[Id],
        outputs: &[Id],
    ) -> Result<bool, String> {
        let Some(entry) = ops::entry(kind) else {
            return Ok(false);
        };
        let before = self.builder.mark();
        let taken = self.narrow_inputs(entry, inputs)?;
        let given = self.narrow_outputs(entry, outputs)?;
        let replaced = |ids: &[Id], pairs: &[Pair]| -> Vec<Id> {
            let narrow = |id: &Id| {
                pairs
                    .iter()
                    .find(|pair| pair.wide == *id)
                    .map_or(*id, |pair| pair.narrow)
            };
            ids.iter().map(narrow).collect()
        };
        let (narrow_inputs, narrow_outputs) = (replaced(inputs, &taken), replaced(outputs, &given));
        let is_other = !(taken.is_empty() && given.is_empty());
        if !(is_other && self.builder.takes(kind, &narrow_inputs, &narrow_outputs)) {
            self.builder.forget_since(before);
            return Ok(false);
        }
        for pair in taken {
            if self.builder.narrowed.insert(pair.wide, pair.narrow).is_none() && !self.is_constant(pair.wide)
            {
                let store = &mut self.model.store;
                let saturates = self.builder.scalar(store, OperandType::BOOL, &[1])?;
                let from = [pair.wide, saturates];
                self.builder.emit(origin, tflite::CAST, &from, &[pair.narrow])?;
            }
        }
        self.builder.emit(origin, kind, &narrow_inputs, &narrow_outputs)?;
        for pair in given {
            self.builder
                .emit(origin, tflite::CAST, &[pair.narrow], &[pair.wide])?;
            self.builder.narrowed.insert(pair.wide, pair.narrow);
        }
        Ok(true)
    }

    /// The inputs that the operation takes as 32-bit integers only.
    fn narrow_inputs(&mut self, entry: &OperationEntry, inputs: &[Id]) -> Result<Vec<Pair>, String> {
        let count = inputs.len();
        let fits = |arity: (usize, usize)| (arity.0..=arity.1).contains(&count);
        let Some(form) = entry.forms.iter().find(|form| fits(form.arity())) else {
            return Ok(Vec::new());
        };
        let mut pairs: Vec<Pair> = Vec::new();
        for (number, wide) in inputs.iter().copied().enumerate() {
            let wants_narrow = form.param(number, count).is_some_and(|param| is_narrow(param.ty));
            if !(self.is_wide(wide) && wants_narrow) || pairs.iter().any(|pair| pair.wide == wide) {
                continue;
            }
            let narrow = match self.builder.narrowed.get(&wide) {
                Some(known) => *known,
                None => self
                    .narrow(wide)
                    .map_err(|reason| format!("{}: input {number}: {reason}", entry.operation))?,
            };
            pairs.push(Pair { wide, narrow });
        }
        Ok(pairs)
    }

    /// The outputs that the operation gives as 32-bit integers only.
    fn narrow_outputs(&mut self, entry: &OperationEntry, outputs: &[Id]) -> Result<Vec<Pair>, String> {
        let mut pairs = Vec::new();
        for (number, wide) in outputs.iter().copied().enumerate() {
            let param = entry.outputs.get(number).or(entry.outputs.last());
            if self.is_wide(wide) && param.is_some_and(|param| is_narrow(param.ty)) {
                let narrow = self.builder.add_like(wide, OperandType::TENSOR_INT32)?;
                pairs.push(Pair { wide, narrow });
            }
        }
        Ok(pairs)
    }

    /// A constant with the integers of one that has 64 bits, or an operand for them that has no value yet.
    fn narrow(&mut self, wide: Id) -> Result<Id, String> {
        if !self.is_constant(wide) {
            return self.builder.add_like(wide, OperandType::TENSOR_INT32);
        }
        let operand = self.builder.operand(wide);
        let dimensions = operand.dimensions.clone();
        let mut bytes = Vec::new();
        let (wide, _) = self.model.store.bytes_at(operand.location).as_chunks::<8>();
        for (index, element) in wide.iter().enumerate() {
            let value = i64::from_le_bytes(*element);
            let value = i32::try_from(value).map_err(|_| {
                format!("element {index} is {value}, which does not fit the 32-bit integers that it takes")
            })?;
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        self.constant(Operand::new(OperandType::TENSOR_INT32, &dimensions), &bytes)
    }

    fn is_wide(&self, id: Id) -> bool {
        self.builder.operand(id).operand_type == tflite::TENSOR_INT64
    }

    fn is_constant(&self, id: Id) -> bool {
        self.builder.operand(id).lifetime == OperandLifeTime::ConstantCopy
    }
}

/// Whether only 32-bit integers may stand there.
fn is_narrow(ty: Ty) -> bool {
    let is_narrow = |ty: OperandType| matches!(ty, OperandType::TENSOR_INT32 | OperandType::INT32);
    match ty {
        Ty::Is(only) => is_narrow(only),
        Ty::AnyOf(types) => types.iter().all(|(ty, _)| is_narrow(*ty)),
        Ty::Var(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, Operation, OperationType as O, Subgraph, tflite};

    const MODEL: &[u8] = include_bytes!("../tests/operators/moved_int64/model.tflite");

    /// The types of an input of the only operation of this kind.
    fn type_of(graph: &Subgraph, kind: O, input: usize) -> OperandType {
        let mut found = graph
            .operations
            .iter()
            .filter(|operation| operation.operation_type == kind);
        let (operation, None) = (found.next().unwrap(), found.next()) else {
            panic!("several {kind}");
        };
        graph.operands[operation.inputs[input] as usize].operand_type
    }

    #[test]
    fn lists_become_narrow_and_indices_stay_as_they_are() {
        let graph = crate::import(MODEL).unwrap().model.main;
        for (kind, input) in [
            (tflite::GATHER, 2),
            (tflite::GATHER_ND, 1),
            (tflite::ONE_HOT, 0),
            (tflite::PAD_V2, 2),
        ] {
            assert_eq!(type_of(&graph, kind, input), tflite::TENSOR_INT64, "{kind}");
        }
        // Five of these are not constant.
        for (kind, input) in [
            (tflite::SLICE, 1),
            (tflite::SLICE, 2),
            (tflite::PAD, 1),
            (tflite::PAD_V2, 1),
            (tflite::TILE, 1),
            (tflite::BROADCAST_TO, 1),
            (tflite::DYNAMIC_UPDATE_SLICE, 2),
        ] {
            assert_eq!(type_of(&graph, kind, input), OperandType::TENSOR_INT32, "{kind}");
        }
        let saturates =
            |operation: &&Operation| operation.operation_type == tflite::CAST && operation.inputs.len() == 2;
        assert_eq!(graph.operations.iter().filter(saturates).count(), 5);
    }

    #[test]
    fn constants_that_do_not_fit_are_refused() {
        let bytes = |list: [i64; 4]| list.map(i64::to_le_bytes).concat();
        let paddings = bytes([0, 1, 1, 0]);
        let at = MODEL.windows(paddings.len()).position(|part| part == paddings);
        let mut model = MODEL.to_vec();
        model[at.unwrap()..][..paddings.len()].copy_from_slice(&bytes([0, 1, 1 << 31, 0]));
        let error = crate::import(&model).unwrap_err().to_string();
        assert!(
            error.contains("PADV2") && error.contains("element 2 is 2147483648, which does not fit"),
            "{error}"
        );
    }
}
