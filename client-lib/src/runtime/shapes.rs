//! Shapes of outputs, as far as they are known before an execution.

use std::sync::Arc;

use nnhal_hal::{OutputShape, Shape};

use crate::model::Model;

/// The shapes of a model's outputs, as far as the model says them.
pub(super) fn declared_shapes(model: &Model) -> Arc<[OutputShape]> {
    let main = &model.hal().main;
    let outputs = main.output_indexes.iter();
    let shapes = outputs.map(|&index| OutputShape {
        dimensions: main.operands[index as usize].dimensions.clone(),
        is_sufficient: true,
    });
    shapes.collect()
}

/// The shape of an output, as far as its declaration and the dimensions given with it say.
pub(super) fn known_shape(declared: &[u32], given: &[u32]) -> OutputShape {
    let [declared, given] = [declared, given].map(|dimensions| Shape::new(dimensions).unwrap_or_default());
    OutputShape {
        // Dimensions that contradict the declaration are refused by whoever executes the request.
        dimensions: declared.combine(&given).unwrap_or(declared).dims().to_vec(),
        is_sufficient: true,
    }
}

/// The first output of which some dimension is not known. Only the HAL's tensors must have any.
pub(super) fn first_open(model: &nnhal_hal::Model, known: &[OutputShape]) -> Option<usize> {
    let main = &model.main;
    let mut outputs = main.output_indexes.iter().zip(known);
    outputs.position(|(&index, shape)| {
        let is_tensor = main.operands[index as usize].operand_type.is_tensor();
        is_tensor && (shape.dimensions.is_empty() || shape.dimensions.contains(&0))
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::OperationType;

    use super::*;
    use crate::model_builder::ModelBuilder;
    use crate::tensor::TensorType;

    #[test]
    fn driver_must_tell_shapes_that_neither_model_nor_request_says() {
        let mut model = ModelBuilder::new();
        let none = model.scalar(0_i32);
        let x = model.input(TensorType::float32(&[2, 0]));
        let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
        let y = model.output(TensorType::float32(&[2, 0]));
        model.operation(OperationType::ADD, &[x, one, none], &[y]);
        let model = model.finish().unwrap();
        for (given, open) in [(&[][..], Some(0)), (&[2, 0], Some(0)), (&[2, 3], None)] {
            let known = [known_shape(&[2, 0], given)];
            assert_eq!(first_open(model.hal(), &known), open, "{given:?}");
        }
        assert_eq!(known_shape(&[], &[2, 3]).dimensions, [2, 3]);
        assert_eq!(known_shape(&[2, 3], &[]).dimensions, [2, 3]);
    }
}
