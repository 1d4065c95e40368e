//! Which operations become steps.

use std::sync::Arc;

use nnhal_hal::OperationType;

use super::PlannedStep;
use super::batch_matmul::BatchMatMulStep;
use super::constant_layer::ConstantLayer;
use super::elementwise::BinaryStep;
use super::elementwise::binary::Binary;
use super::elementwise::quantization::QuantizationStep;
use super::elementwise::unary::{Unary, UnaryStep};
use super::layer::Kind;
use super::moving::MovingStep;
use super::packing::{Packing, PackingError};
use super::pooling::PoolingStep;
use super::pooling::arg::ArgStep;
use super::pooling::extremum::ExtremumStep;
use super::recurrent::RecurrentStep;
use super::resize::ResizeStep;
use super::softmax::SoftmaxStep;
use super::tables::byte_table::TableStep;
use crate::kernel::Kernel;
use crate::kernels::kernel;
use crate::plan::Declared;

/// The step for an operation, or `None` if it has none: another operation, weights that are not constant, or
/// types that only the reference kernels take. `filter` has the bytes of its second input, if that is a
/// constant; they are not looked at if `packing` has what they become. Results may be as coarse as floats of
/// half precision if `is_relaxed` says so.
pub(crate) fn plan(
    declared: &Declared<'_>,
    filter: &[u8],
    (packing, is_relaxed): (&mut Packing, bool),
) -> Result<Option<Arc<dyn PlannedStep>>, PackingError> {
    let operation = declared.operation;
    let Some(fallback) = kernel(operation.operation_type) else {
        return Ok(None);
    };
    if let Some(step) = PLAIN.iter().find_map(|make| make(declared, fallback)) {
        return Ok(Some(step));
    }
    if let Some(step) = RecurrentStep::new(declared, (packing, is_relaxed))? {
        return Ok(Some(Arc::new(step)));
    }
    ConstantLayer::step((declared, fallback), filter, (packing, is_relaxed))
}

/// Whether an operation is one whose second input is a filter that [`plan`] packs if it is constant.
pub(crate) fn has_filter(operation: OperationType) -> bool {
    Kind::of(operation).is_some()
}

/// Whether [`plan`] packs weights of operations of this type.
pub(crate) fn packs(operation: OperationType) -> bool {
    has_filter(operation) || super::recurrent::has_cells(operation)
}

/// Makes a step of an operation, beside the reference kernel for what it does not take.
type Make = fn(&Declared<'_>, Kernel) -> Option<Arc<dyn PlannedStep>>;

/// The steps that need no constants. An operation has the first that takes it.
const PLAIN: [Make; 11] = [
    |declared, fallback| {
        let binary = Binary::of(declared.operation.operation_type)?;
        Some(Arc::new(BinaryStep::new(binary, fallback, declared)))
    },
    |declared, fallback| Some(Arc::new(TableStep::of(declared, fallback)?)),
    |declared, fallback| {
        let unary = Unary::of(declared)?;
        Some(Arc::new(UnaryStep { unary, fallback }))
    },
    |declared, fallback| Some(Arc::new(QuantizationStep::of(declared, fallback)?)),
    |declared, fallback| Some(Arc::new(ArgStep::of(declared, fallback)?)),
    |declared, fallback| {
        Some(Arc::new(ExtremumStep::of(
            declared.operation.operation_type,
            fallback,
        )?))
    },
    |declared, fallback| Some(Arc::new(ResizeStep::of(declared, fallback)?)),
    |declared, fallback| Some(Arc::new(SoftmaxStep::of(declared, fallback)?)),
    |declared, fallback| Some(Arc::new(PoolingStep::of(declared, fallback)?)),
    BatchMatMulStep::of,
    MovingStep::of,
];
