//! Wide images for the operations that resize them: positions that are a little off drift along them.

use nnhal_hal::OperationType;

use super::arguments::Arguments;

/// One image in so many is wide.
const WIDE: u32 = 3;

/// Columns of the narrowest wide image, and of the widest.
const COLUMNS: [u32; 2] = [100, 800];

fn resizes(operation: OperationType) -> bool {
    matches!(
        operation,
        OperationType::RESIZE_BILINEAR | OperationType::RESIZE_NEAREST_NEIGHBOR
    )
}

/// The dimensions of a wide image, sometimes, for an operation that resizes.
pub(super) fn wide_image(arguments: &mut Arguments<'_>) -> Option<Vec<u32>> {
    if !resizes(arguments.operation) || !arguments.choices.once_in(WIDE) {
        return None;
    }
    let [narrowest, widest] = COLUMNS;
    let rows = 1 + arguments.choices.below(2);
    let columns = narrowest + arguments.choices.below(widest - narrowest + 1);
    Some(if arguments.nchw {
        vec![1, 1, rows, columns]
    } else {
        vec![1, rows, columns, 1]
    })
}

/// How many columns a wide image has when it is resized; `None` if it is no such image.
pub(super) fn columns_of_wide(arguments: &mut Arguments<'_>, before: &[u32]) -> Option<i32> {
    let dims = arguments.dims(0, before)?;
    let columns = *dims.get(if arguments.nchw { 3 } else { 2 })?;
    if !resizes(arguments.operation) || columns < COLUMNS[0] {
        return None;
    }
    // From half as many to one and a half times as many.
    Some((columns / 2 + arguments.choices.below(columns)) as i32)
}
