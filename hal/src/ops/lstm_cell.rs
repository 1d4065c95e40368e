//! The LSTM cell that LSTM, the sequence LSTMs and QUANTIZED_LSTM share: where its operands stand in an input
//! list, which of them go together, and the dimensions they must have.

use super::context::{OpError, OperationContext, ShapeIssue};
use super::recurrent::{all_or_none, expect_dims, expect_omitted, expect_optional_dims, presence};

/// The gates in the order in which operands list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// How much of the new value the cell takes. Absent when coupled to the forget gate (CIFG).
    Input,
    /// How much of its old value the cell keeps.
    Forget,
    /// The new value.
    Cell,
    /// How much of the cell's value is given out.
    Output,
}

impl Gate {
    /// All, in order.
    pub const ALL: [Gate; 4] = [Gate::Input, Gate::Forget, Gate::Cell, Gate::Output];
}

/// Where the operands of a cell stand in an operation's input list.
#[derive(Clone, Copy, Debug)]
pub struct CellInputs {
    /// The first of 17 operands: input weights and recurrent weights of the four gates, peephole weights of
    /// the input, forget and output gate, biases of the four gates, projection weights, projection bias.
    pub weights: usize,
    /// The output of the step before.
    pub output_state: usize,
    /// The cell's value after the step before.
    pub cell_state: usize,
    /// The first of the four gates' layer normalisation weights.
    pub norm: usize,
    /// The first of the four gates' weights of an auxiliary input, if the operation has them.
    pub aux_weights: Option<usize>,
}

impl CellInputs {
    /// The gate's weights of the input.
    #[must_use]
    pub fn input_weights(&self, gate: Gate) -> usize {
        self.weights + gate as usize
    }

    /// The gate's weights of the last output.
    #[must_use]
    pub fn recurrent_weights(&self, gate: Gate) -> usize {
        self.weights + 4 + gate as usize
    }

    /// The gate's weights of the cell's value; the cell gate has none.
    #[must_use]
    pub fn peephole(&self, gate: Gate) -> Option<usize> {
        match gate {
            Gate::Input => Some(self.weights + 8),
            Gate::Forget => Some(self.weights + 9),
            Gate::Cell => None,
            Gate::Output => Some(self.weights + 10),
        }
    }

    /// The gate's bias.
    #[must_use]
    pub fn bias(&self, gate: Gate) -> usize {
        self.weights + 11 + gate as usize
    }

    /// The weights that make the output of the gated cell values.
    #[must_use]
    pub fn projection(&self) -> usize {
        self.weights + 15
    }

    /// The bias beside them.
    #[must_use]
    pub fn projection_bias(&self) -> usize {
        self.weights + 16
    }

    /// The gate's layer normalisation weights.
    #[must_use]
    pub fn norm(&self, gate: Gate) -> usize {
        self.norm + gate as usize
    }

    /// The gate's weights of the auxiliary input.
    #[must_use]
    pub fn aux(&self, gate: Gate) -> Option<usize> {
        self.aux_weights.map(|first| first + gate as usize)
    }

    /// Whether the input gate is coupled to the forget gate; `None` if only the request tells.
    ///
    /// # Errors
    /// Operands that must be given or omitted together are not.
    pub fn coupled(&self, context: &dyn OperationContext) -> Result<Option<bool>, OpError> {
        let own_input_gate = [
            self.input_weights(Gate::Input),
            self.recurrent_weights(Gate::Input),
            self.bias(Gate::Input),
        ];
        let own = all_or_none(context, &own_input_gate, "the input gate's weights and bias")?;
        Ok(own.map(|own| !own))
    }

    /// Checks which operands are given together.
    pub(super) fn check_presence(&self, context: &dyn OperationContext) -> Result<(), OpError> {
        let coupled = self.coupled(context)?;
        let peephole =
            [Gate::Input, Gate::Forget, Gate::Output].map(|gate| self.peephole(gate).unwrap_or_default());
        check_group(context, &peephole, coupled, "the peephole weights")?;
        let norm = Gate::ALL.map(|gate| self.norm(gate));
        check_group(context, &norm, coupled, "the layer normalisation weights")?;
        if let Some(first) = self.aux_weights {
            let aux = Gate::ALL.map(|gate| first + gate as usize);
            check_group(context, &aux, coupled, "the auxiliary weights")?;
        }
        if presence(context, self.projection()) == Some(false) {
            expect_omitted(context, self.projection_bias(), "without projection weights")?;
        }
        Ok(())
    }

    /// Checks everything that the cell's operands must keep among themselves, for items of `values` (and
    /// auxiliary ones of `aux`) in `batches`, and gives the cell's dimensions.
    pub(super) fn shape(
        &self,
        context: &dyn OperationContext,
        batches: u32,
        values: u32,
        aux: Option<u32>,
    ) -> Result<CellShape, ShapeIssue> {
        self.check_presence(context)?;
        let units = context.shape_of_rank(self.input_weights(Gate::Forget), 2)?.dim(0);
        let outputs = context
            .shape_of_rank(self.recurrent_weights(Gate::Forget), 2)?
            .dim(1);
        for gate in Gate::ALL {
            let expect = match gate {
                Gate::Input => expect_optional_dims,
                _ => expect_dims,
            };
            expect(context, self.input_weights(gate), &[units, values])?;
            expect(context, self.recurrent_weights(gate), &[units, outputs])?;
            expect(context, self.bias(gate), &[units])?;
            expect_optional_dims(context, self.norm(gate), &[units])?;
            if let Some(peephole) = self.peephole(gate) {
                expect_optional_dims(context, peephole, &[units])?;
            }
            if let (Some(weights), Some(aux)) = (self.aux(gate), aux) {
                expect_optional_dims(context, weights, &[units, aux])?;
            }
        }
        expect_optional_dims(context, self.projection(), &[outputs, units])?;
        expect_optional_dims(context, self.projection_bias(), &[outputs])?;
        if presence(context, self.projection()) == Some(false) && outputs != units {
            let message =
                format!("has {outputs} columns, must have {units} as there are units and no projection");
            return Err(OpError::input(self.recurrent_weights(Gate::Forget), message).into());
        }
        expect_dims(context, self.output_state, &[batches, outputs])?;
        expect_dims(context, self.cell_state, &[batches, units])?;
        Ok(CellShape {
            batches,
            units,
            outputs,
        })
    }
}

/// A group of weights of several gates, the input gate's first: all or none, and with a coupled input gate
/// never the first one.
fn check_group(
    context: &dyn OperationContext,
    inputs: &[usize],
    coupled: Option<bool>,
    what: &str,
) -> Result<(), OpError> {
    all_or_none(context, &inputs[1..], what)?;
    match coupled {
        Some(true) => expect_omitted(context, inputs[0], "as there is no input gate of its own"),
        Some(false) => all_or_none(context, inputs, what).map(|_| ()),
        None => Ok(()),
    }
}

/// The dimensions of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellShape {
    /// Batches.
    pub batches: u32,
    /// Values of the cell.
    pub units: u32,
    /// Values of the output.
    pub outputs: u32,
}
