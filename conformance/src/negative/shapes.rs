//! Dimensions that arguments must not have: one more row than the other arguments ask for, one more axis than
//! the operation takes.

use std::sync::Arc;

use nnhal_hal::{
    DataLocation, MAX_RANK, OperandLifeTime, OperandType as T, OperationType as O, RequestPool, tflite,
};

use super::call::{Call, WrongArgument, for_each_argument};
use super::legal::as_in_nnapi;
use crate::generator::Generated;

/// Emits a model of one operation with each of its arguments in dimensions that it must not have.
pub fn wrong_shapes(generated: &Generated, emit: &mut dyn FnMut(WrongArgument)) {
    for_each_argument(generated, &mut |call, number, name| {
        for dims in call.wrong_shapes(name, number).unwrap_or_default() {
            let mut wrong = generated.clone();
            if set_dims(&mut wrong, call.operand(number), &dims).is_some() {
                emit(WrongArgument {
                    change: format!("input {number} ({name}) gets dimensions {dims:?}"),
                    generated: wrong,
                });
            }
        }
    });
}

/// Gives an operand other dimensions, and zeros behind its elements where it has more; `None` if it has no
/// value before the execution.
fn set_dims(generated: &mut Generated, index: usize, dims: &[u32]) -> Option<()> {
    let model = Arc::make_mut(&mut generated.model.model);
    let operand = model.main.operands.get_mut(index)?;
    let elements: usize = dims.iter().map(|extent| *extent as usize).product();
    let length = elements * operand.operand_type.element_size();
    match operand.lifetime {
        OperandLifeTime::ConstantCopy => {
            operand.location = moved(&mut model.operand_values, operand.location, length)?;
        }
        OperandLifeTime::SubgraphInput => {
            let inputs = &model.main.input_indexes;
            let number = inputs.iter().position(|input| *input as usize == index)?;
            let argument = generated.request.inputs.get_mut(number)?;
            if argument.has_no_value {
                return None;
            }
            argument.dimensions = dims.to_vec();
            argument.location = moved(&mut generated.inputs, argument.location, length)?;
            let size = generated.inputs.len() as u64;
            *generated.request.pools.first_mut()? = RequestPool::Memory { size };
        }
        _ => return None,
    }
    operand.dimensions = dims.to_vec();
    Some(())
}

/// Copies a value to the end of its store, where it has this length.
fn moved(store: &mut Vec<u8>, from: DataLocation, length: usize) -> Option<DataLocation> {
    let begin = from.offset as usize;
    let mut value = store.get(begin..begin + from.length as usize)?.to_vec();
    value.resize(length, 0);
    let offset = store.len().next_multiple_of(4);
    store.resize(offset, 0);
    store.extend(value);
    Some(DataLocation {
        offset: offset as u32,
        length: length as u32,
        ..from
    })
}

/// What other dimensions than these are for an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fixed {
    /// The rank is fixed, and the first extent follows from other arguments.
    Entirely,
    /// The rank is.
    Rank,
    /// There is one element, in any number of axes.
    Single,
    /// They broadcast to those of the first argument.
    Broadcast,
}

impl Call<'_> {
    /// An operand that is another argument too would change that one with it.
    fn wrong_shapes(&self, name: &str, number: usize) -> Option<Vec<Vec<u32>>> {
        if self.is_another_too(number) {
            return None;
        }
        let fixed = self.fixed(name, number)?;
        let dims = self.dims(number)?.to_vec();
        if fixed == Fixed::Broadcast {
            return self.not_broadcasting(dims);
        }
        let mut all = Vec::new();
        if fixed != Fixed::Rank {
            let mut longer = dims.clone();
            longer[0] += 1;
            all.push(longer);
        }
        if fixed != Fixed::Single && dims.len() < MAX_RANK {
            all.push([vec![1], dims].concat());
        }
        Some(all)
    }

    /// Dimensions of which the last is neither 1 nor that of the first argument, which must have more than
    /// one element along its last axis.
    fn not_broadcasting(&self, mut dims: Vec<u32>) -> Option<Vec<Vec<u32>>> {
        let first = *self.dims(0)?.last()?;
        if first == 1 {
            return None;
        }
        *dims.last_mut()? = first + 1;
        Some(vec![dims])
    }

    /// How far the dimensions of an argument are fixed; `None` if they are not, or if another count of rows
    /// is legal too.
    fn fixed(&self, name: &str, number: usize) -> Option<Fixed> {
        let ty = self.ty(number)?;
        Some(match (as_in_nnapi(self.operation), name) {
            // With other channels there would have to be other scales, too.
            _ if !ty.is_tensor() || ty == T::TENSOR_QUANT8_SYMM_PER_CHANNEL => return None,
            (O::SVDF | tflite::UNIDIRECTIONAL_SEQUENCE_LSTM, "input") => Fixed::Rank,
            (O::SVDF | tflite::UNIDIRECTIONAL_SEQUENCE_LSTM, _) => Fixed::Entirely,
            (O::SLICE, "begin" | "size") | (O::STRIDED_SLICE, "begin" | "end" | "strides") => Fixed::Entirely,
            (O::REVERSE, "axis") | (tflite::DYNAMIC_UPDATE_SLICE, "start") => Fixed::Entirely,
            (tflite::CUMSUM, "axis") | (tflite::RANGE, _) | (O::TOPK_V2, "k") => Fixed::Single,
            (tflite::CONV_3D_TRANSPOSE, "outputshape") | (tflite::SCATTER_ND, "updates") => Fixed::Entirely,
            (tflite::MATRIX_SET_DIAG, "diagonal") => Fixed::Entirely,
            (O::PACK, "inputs") if number > 1 => Fixed::Entirely,
            (O::CONCATENATION, "inputs") if number > 0 => Fixed::Rank,
            (O::AVERAGE_POOL_2D | O::MAX_POOL_2D | tflite::UNIQUE, "input") => Fixed::Rank,
            (O::SOFTMAX, "input") if self.dims(number)?.len() == 4 => Fixed::Rank,
            (_, "input1" | "input2") => Fixed::Broadcast,
            (
                _,
                "permutation" | "multiples" | "paddings" | "lengths" | "segmentids" | "bias" | "scores"
                | "boxes",
            ) => Fixed::Entirely,
            (
                _,
                "depth" | "onvalue" | "offvalue" | "default" | "numsegments" | "maxoutputsize"
                | "iouthreshold" | "scorethreshold" | "softnmssigma",
            ) => Fixed::Single,
            (_, "lookups" | "axes" | "shape" | "dims" | "boundaries" | "filter" | "right") => Fixed::Rank,
            (tflite::SPARSE_TO_DENSE, "values") | (tflite::BROADCAST_ARGS, _) => Fixed::Rank,
            (tflite::DILATE, "dilations" | "edges") => Fixed::Entirely,
            (tflite::DILATE, "value") | (tflite::REDUCE_WINDOW, "start") => Fixed::Single,
            (_, "window" | "windowstrides" | "windowdilations") => Fixed::Entirely,
            (_, "regionaxes" | "corneraxes" | "sizes") => Fixed::Entirely,
            (tflite::MULTINOMIAL, "logits") | (tflite::RNG_BIT_GENERATOR, "state") => Fixed::Rank,
            (tflite::MULTINOMIAL, "samplecount") => Fixed::Single,
            (_, "generator") => Fixed::Entirely,
            // They say how deep regions are.
            (tflite::SCATTER_REGIONS, "updates") => Fixed::Rank,
            _ => return None,
        })
    }
}
