//! Recurrent layers whose weights are constant.

pub(super) mod cell;
pub(super) mod lstm_step;
pub(super) mod rnn_step;
pub(super) mod step;

pub(super) use step::{RecurrentStep, has_cells};
