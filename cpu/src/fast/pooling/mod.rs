//! Pooling, and what else looks for extremes.

pub(super) mod arg;
pub(super) mod extremum;
pub(super) mod step;

pub(super) use step::PoolingStep;
