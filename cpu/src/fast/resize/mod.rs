//! RESIZE_BILINEAR.

pub(super) mod rows;
pub(super) mod sixteenths;
pub(super) mod step;

pub(super) use step::ResizeStep;
