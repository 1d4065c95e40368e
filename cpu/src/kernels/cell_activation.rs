//! Activations of recurrent layers: the fused ones of other operations, tanh and logistic.

use nnhal_hal::ops::OpError;

use super::activation_range::Activation;

/// What a recurrent layer makes of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellActivation {
    Clamp(Activation),
    Tanh,
    Logistic,
}

/// What puts functions of values in their places.
pub(crate) struct Functions {
    pub(crate) logistic: fn(&mut [f32]),
    pub(crate) tanh: fn(&mut [f32]),
}

/// Value by value, as the C library has them.
pub(crate) static EXACT: Functions = Functions {
    logistic: |values| {
        values
            .iter_mut()
            .for_each(|value| *value = 1.0 / (1.0 + (-*value).exp()));
    },
    tanh: |values| values.iter_mut().for_each(|value| *value = value.tanh()),
};

impl CellActivation {
    /// The activation with this operand value, given as input `index`.
    pub(crate) fn from_code(index: usize, code: i32) -> Result<CellActivation, OpError> {
        match code {
            4 => Ok(CellActivation::Tanh),
            6 => Ok(CellActivation::Logistic),
            _ => Activation::from_code(index, code)
                .map(CellActivation::Clamp)
                .map_err(|_| OpError::input(index, format!("(activation) is {code}, must be 0 to 4 or 6"))),
        }
    }

    /// What values are clamped to, where that is all there is to do.
    pub(crate) fn range(self) -> (f32, f32) {
        match self {
            CellActivation::Clamp(activation) => activation.range(),
            CellActivation::Tanh | CellActivation::Logistic => Activation::None.range(),
        }
    }

    /// What is to be done beside clamping, if anything.
    pub(crate) fn function(self, functions: &Functions) -> Option<fn(&mut [f32])> {
        match self {
            CellActivation::Clamp(_) => None,
            CellActivation::Tanh => Some(functions.tanh),
            CellActivation::Logistic => Some(functions.logistic),
        }
    }

    /// Puts the activation of each value in its place.
    pub(crate) fn apply(self, functions: &Functions, values: &mut [f32]) {
        match self {
            CellActivation::Clamp(Activation::None) => {}
            CellActivation::Clamp(activation) => {
                for value in values {
                    *value = activation.apply(*value);
                }
            }
            CellActivation::Tanh => (functions.tanh)(values),
            CellActivation::Logistic => (functions.logistic)(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CellActivation, EXACT};

    #[test]
    fn every_code_has_its_function_and_others_give_an_error() {
        let of_two = |code| {
            let mut values = [2.0_f32, -2.0];
            let activation = CellActivation::from_code(5, code).unwrap();
            activation.apply(&EXACT, &mut values);
            values
        };
        assert_eq!(of_two(0), [2.0, -2.0]);
        assert_eq!(of_two(1), [2.0, 0.0]);
        assert_eq!(of_two(2), [1.0, -1.0]);
        assert_eq!(of_two(3), [2.0, 0.0]);
        assert_eq!(of_two(4), [2_f32.tanh(), -(2_f32.tanh())]);
        let logistic = 1.0 / (1.0 + (-2_f32).exp());
        assert!((of_two(6)[0] - logistic).abs() < 1e-7 && (of_two(6)[1] - (1.0 - logistic)).abs() < 1e-7);
        for code in [-1, 5, 7, i32::MAX] {
            let error = CellActivation::from_code(5, code).unwrap_err().to_string();
            assert!(error.contains(&format!("(activation) is {code}")), "{error}");
        }
    }
}
