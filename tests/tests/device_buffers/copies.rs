//! Copying device buffers from and to memories (cases K of the VTS inventory).

use nnhal_hal::{ErrorStatus, Operand, OperandType};
use nnhal_tests::add_model;

use crate::bench::{Bench, add_of, role};

/// N074 is about the same.
#[test]
fn copies_check_sizes_dimensions_and_state() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_model(4));
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    assert_eq!(bench.copy_to(buffer, 4), Err(ErrorStatus::GeneralFailure), "K05");
    for (values, dimensions, expected) in [
        (&[1.0; 2][..], &[][..], ErrorStatus::InvalidArgument),
        (&[1.0; 8], &[], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[4, 1], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[3], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[0], ErrorStatus::InvalidArgument),
        (&[1.0; 4], &[4], ErrorStatus::None),
        (&[1.0, 2.0, 3.0, 4.0], &[], ErrorStatus::None),
    ] {
        assert_eq!(
            bench.copy_from(buffer, values, dimensions),
            expected,
            "K01, K03: {dimensions:?}"
        );
    }
    assert_eq!(bench.copy_to(buffer, 2), Err(ErrorStatus::InvalidArgument), "K06");
    assert_eq!(bench.copy_to(buffer, 8), Err(ErrorStatus::InvalidArgument), "K06");
    assert_eq!(bench.copy_to(buffer, 4), Ok(vec![1.0, 2.0, 3.0, 4.0]), "K06");
    assert_eq!(bench.copy_from(buffer, &[1.0], &[]), ErrorStatus::InvalidArgument);
    assert_eq!(
        bench.copy_to(buffer, 4),
        Err(ErrorStatus::GeneralFailure),
        "a failed copy leaves nothing"
    );
}

#[test]
fn buffer_of_unknown_dimensions_takes_those_of_the_copy() {
    let mut bench = Bench::new();
    let model = bench.prepare(add_of(&Operand::new(OperandType::TENSOR_FLOAT32, &[0, 2])));
    let buffer = bench.allocate(&[model], &[role(0, 0)], &[], &[]).unwrap();
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[]),
        ErrorStatus::InvalidArgument,
        "K04"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 2], &[2, 2]),
        ErrorStatus::InvalidArgument,
        "K02"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 8], &[2, 2]),
        ErrorStatus::InvalidArgument,
        "K02"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[2, 3]),
        ErrorStatus::InvalidArgument,
        "K04"
    );
    assert_eq!(
        bench.copy_from(buffer, &[1.0; 4], &[2, 2]),
        ErrorStatus::None,
        "K02"
    );
    assert_eq!(bench.copy_to(buffer, 8), Err(ErrorStatus::InvalidArgument), "K07");
    assert_eq!(bench.copy_to(buffer, 4), Ok(vec![1.0; 4]), "K07");
}
