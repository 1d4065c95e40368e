//! Values that operations must not be given: an axis that a tensor does not have, an index outside of it, a
//! divisor of 0. Only the first element of an argument changes.

use std::sync::Arc;

use nnhal_hal::{DataLocation, OperandLifeTime, OperandType as T, OperationType as O, tflite};

use super::call::{Call, WrongArgument, for_each_argument};
use super::legal::as_in_nnapi;
use crate::element;
use crate::generator::Generated;

/// Emits a model of one operation with each value that an argument of it must not have.
pub fn wrong_values(generated: &Generated, emit: &mut dyn FnMut(WrongArgument)) {
    for_each_argument(generated, &mut |call, number, name| {
        for value in call.wrong_values(name, number).unwrap_or_default() {
            let mut wrong = generated.clone();
            if set_first(&mut wrong, call.operand(number), value).is_some() {
                emit(WrongArgument {
                    change: format!("input {number} ({name}) gets {value}"),
                    generated: wrong,
                });
            }
        }
    });
}

/// Writes one element over the first of an operand; `None` if the operand has none before the execution.
fn set_first(generated: &mut Generated, index: usize, value: f64) -> Option<()> {
    let operand = generated.model.model.main.operands.get(index)?;
    let mut bytes = Vec::new();
    element::encode(operand.operand_type, value, &mut bytes);
    let (place, lifetime) = (operand.location, operand.lifetime);
    let store = match lifetime {
        OperandLifeTime::ConstantCopy => &mut Arc::make_mut(&mut generated.model.model).operand_values,
        OperandLifeTime::ConstantReference => {
            Arc::make_mut(&mut generated.model.pools).get_mut(place.pool_index as usize)?
        }
        OperandLifeTime::SubgraphInput => {
            let inputs = &generated.model.model.main.input_indexes;
            let number = inputs.iter().position(|input| *input as usize == index)?;
            let argument = &generated.request.inputs[number];
            let place = (!argument.has_no_value).then_some(argument.location)?;
            return overwrite(&mut generated.inputs, place, &bytes);
        }
        _ => return None,
    };
    overwrite(store, place, &bytes)
}

fn overwrite(store: &mut [u8], place: DataLocation, bytes: &[u8]) -> Option<()> {
    let place = place.offset as usize..(place.offset + place.length) as usize;
    store
        .get_mut(place)?
        .get_mut(..bytes.len())?
        .copy_from_slice(bytes);
    Some(())
}

impl Call<'_> {
    /// What the first element of argument `number`, which has this name, must not be. `None` if nothing is
    /// known to be wrong.
    fn wrong_values(&self, name: &str, number: usize) -> Option<Vec<f64>> {
        let rank = |input| Some(self.dims(input)?.len() as f64);
        Some(match (as_in_nnapi(self.operation), name) {
            (O::CONCATENATION | O::REVERSE, "axis") => vec![-1.0, rank(0)?],
            (O::PACK, "axis") => vec![-1.0, rank(1)? + 1.0],
            (O::EXPAND_DIMS, "axis") => vec![-rank(0)? - 2.0, rank(0)? + 1.0],
            (tflite::ONE_HOT, "axis") => vec![-2.0, rank(0)? + 1.0],
            (_, "axis" | "axes" | "sequenceaxis" | "batchaxis") => vec![-rank(0)? - 1.0, rank(0)?],
            (_, "permutation") => vec![-1.0, rank(0)?],
            (O::GATHER, "batchdims") => vec![-9.0, 9.0],
            (O::EMBEDDING_LOOKUP, "lookups") => vec![-1.0, f64::from(self.dims(1)?[0])],
            // Corners are moved to where there is room, and what lies outside is left out.
            (tflite::ONE_HOT | tflite::GATHER_REGIONS | tflite::SCATTER_REGIONS, "indices") => return None,
            (_, "regionaxes") => vec![9.0],
            (_, "corneraxes") => vec![-1.0, rank(0)?],
            (_, "indexaxis") => vec![-2.0, rank(1)? + 1.0],
            (_, "sizes") => vec![-1.0, 1000.0],
            (_, "combination") => vec![-1.0, 9.0],
            (tflite::MULTINOMIAL, "samplecount") => vec![-1.0],
            (tflite::RNG_BIT_GENERATOR, "algorithm") => vec![-1.0, 3.0],
            (tflite::FAKE_QUANT, "bits") => vec![1.0, 17.0],
            (tflite::DILATE, "dilations") | (_, "window" | "windowstrides" | "windowdilations") => {
                vec![-1.0, 0.0]
            }
            (_, "indices") => vec![-1.0, 1000.0],
            (tflite::SEGMENT_SUM, "segmentids") if self.dims(0)?[0] == 1 => vec![-1.0],
            (tflite::SEGMENT_SUM, "segmentids") => vec![-1.0, 1000.0],
            (_, "segmentids" | "lengths") => vec![1000.0],
            (O::SLICE, "begin") => vec![-1.0, f64::from(self.dims(0)?[0]) + 1.0],
            (O::SLICE, "size") => vec![-2.0, f64::from(self.dims(0)?[0]) + 1.0],
            (O::MIRROR_PAD, "paddings") => vec![-1.0, f64::from(self.dims(0)?[0]) + 1.0],
            (O::RESHAPE, "shape") => vec![-2.0, 5000.0],
            (O::TOPK_V2, "k") => vec![-1.0, 0.0, f64::from(*self.dims(0)?.last()?) + 1.0],
            (O::SVDF, "activation") => vec![0.0, 4.0],
            (O::SVDF, "rank") => vec![-1.0, 0.0],
            (O::PAD_V2, "padvalue") if self.ty(0)?.is_quantized_per_tensor() => vec![-40_000.0, 70_000.0],
            (O::PAD_V2, "padvalue") => return None,
            (tflite::FLOOR_DIV | tflite::TRUNCATED_DIV, "input1") => vec![0.0],
            (tflite::FLOOR_MOD, "input1") => match self.ty(number)? {
                T::TENSOR_FLOAT32 | T::TENSOR_FLOAT16 => return None,
                _ => vec![0.0],
            },
            (tflite::RANGE, "step") | (_, "strides") => vec![0.0],
            (_, "activation") => vec![-1.0, 4.0],
            (_, "mode") => vec![-1.0, 2.0],
            (_, "numsplits" | "beta") => vec![-1.0, 0.0],
            (_, "multiples" | "paddings" | "dims" | "shape" | "depth" | "numsegments" | "maxoutputsize") => {
                vec![-1.0]
            }
            (_, "iouthreshold") => vec![-0.5, 1.5],
            (_, "softnmssigma" | "cellclip" | "projectionclip") => vec![-1.0],
            (tflite::CONV_3D_TRANSPOSE, "outputshape") => vec![-1.0, 0.0],
            (_, "paddingscheme") => vec![-1.0, 3.0],
            _ if name.starts_with("stride") || name.starts_with("dilation") || name.starts_with("filter") => {
                // A filter may be a tensor, too.
                (!self.ty(number)?.is_tensor()).then(|| vec![-1.0, 0.0])?
            }
            // Nothing reads it where the input gate is coupled to the forget gate.
            (_, "inputintermediatescale") => return None,
            _ if name.ends_with("scale") => vec![-1.0, 0.0],
            _ => return None,
        })
    }
}
