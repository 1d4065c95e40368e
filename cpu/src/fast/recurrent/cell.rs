//! A recurrent cell with packed weights, and what is constant of its operands.

use nnhal_hal::{OperandLifeTime, OperandType};
use nnhal_os::buffer::AlignedSlice;

use crate::fast::exponential::SIDE_BY_SIDE;
use crate::fast::matmul::matrix_vector::{EVERYTHING, PackedMatrix, ROWS_OF_GROUP};
use crate::fast::partition;
use crate::kernels::cell_activation::Functions;
use crate::kernels::recurrent::PreparedCell;
use crate::plan::Declared;
use crate::threads::{Cost, Parts, Team};

/// The weights of a recurrent cell, packed.
#[derive(Debug)]
pub(crate) struct PackedCell {
    pub(in crate::fast) weights: AlignedSlice,
    pub(in crate::fast) input: Product,
    pub(in crate::fast) recurrent: Product,
    pub(in crate::fast) aux: Option<Product>,
    pub(in crate::fast) projection: Option<Product>,
}

/// A matrix among the packed weights.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Product {
    pub(in crate::fast) matrix: PackedMatrix,
    /// Where it begins, in bytes.
    pub(in crate::fast) start: usize,
}

/// A cell whose weights are packed, and the threads that multiply with them.
#[derive(Clone, Copy)]
pub(crate) struct TeamedCell<'a> {
    cell: &'a PackedCell,
    team: &'a Team<'a>,
}

impl PackedCell {
    /// The cell with what threads multiply with its weights.
    pub(crate) fn with<'a>(&'a self, team: &'a Team<'a>) -> TeamedCell<'a> {
        TeamedCell { cell: self, team }
    }

    fn weights(&self, product: &Product) -> &[u8] {
        &self.weights.bytes()[product.start..][..product.matrix.size()]
    }
}

impl TeamedCell<'_> {
    /// Adds what the gates see of an input, of an auxiliary one and of the last output to the sums of the
    /// gates, and clamps these to a range.
    // Inlined, as slices that are handed over on the stack are read back while they are being stored, which
    // takes longer than from anywhere else near.
    #[inline(always)]
    pub(in crate::fast) fn add_and_clamp(
        &self,
        (input, aux, output): (&[f32], Option<&[f32]>, &[f32]),
        sums: &mut [f32],
        range: (f32, f32),
    ) {
        let cell = self.cell;
        let products = [
            Some((&cell.input, input)),
            cell.aux.as_ref().zip(aux),
            Some((&cell.recurrent, output)),
        ];
        self.add(products, sums, range);
    }

    /// Adds the products of some matrices, all of as many rows, with a vector each, and clamps what comes of
    /// all of them to `range`. The last one is there.
    fn add<const N: usize>(
        &self,
        products: [Option<(&Product, &[f32])>; N],
        sums: &mut [f32],
        range: (f32, f32),
    ) {
        let add_rows = |first: usize, sums: &mut [f32]| {
            for (number, product) in products.iter().enumerate() {
                let Some((product, vector)) = product else {
                    continue;
                };
                let weights = self.cell.weights(product);
                let sums = (first, &mut *sums);
                let range = if number + 1 < N { EVERYTHING } else { range };
                product.matrix.add_products(weights, vector, sums, range);
            }
        };
        let sizes = products
            .iter()
            .flatten()
            .map(|(product, _)| product.matrix.size());
        let parts = self.team.parts_for(Cost {
            multiply_adds: 0,
            bytes: sizes.sum::<usize>() as u64,
        });
        if parts == Parts::ONE {
            return add_rows(0, sums);
        }
        let grid = partition::elements(parts, sums.len(), ROWS_OF_GROUP);
        let none: &mut [u8] = &mut [];
        self.team
            .for_each_block(parts.threads, &grid, (sums, none), |mut block, _| {
                add_rows(block.columns().start, block.all());
            });
    }
}

impl PreparedCell for TeamedCell<'_> {
    fn add_to_gates(&self, input: &[f32], aux: Option<&[f32]>, output: &[f32], sums: &mut [f32]) {
        self.add_and_clamp((input, aux, output), sums, EVERYTHING);
    }

    fn add_projection(&self, gated: &[f32], sums: &mut [f32], bound: f32) {
        self.add(
            [self.cell.projection.as_ref().map(|product| (product, gated))],
            sums,
            (-bound, bound),
        );
    }

    fn functions(&self) -> &'static Functions {
        &SIDE_BY_SIDE
    }
}

/// Whether an input is left out.
pub(in crate::fast) fn is_omitted(declared: &Declared<'_>, input: usize) -> bool {
    let at = declared.operation.inputs.get(input);
    at.and_then(|at| declared.operands.get(*at as usize))
        .is_none_or(|operand| operand.lifetime == OperandLifeTime::NoValue)
}

/// The values of an input that is a constant of floats.
pub(in crate::fast) fn constant<'a>(declared: &Declared<'a>, input: usize) -> Option<&'a [f32]> {
    let at = *declared.operation.inputs.get(input)? as usize;
    let is_float = declared.operands.get(at)?.operand_type == OperandType::TENSOR_FLOAT32;
    let constant = declared.constants.get(at)?.as_ref().filter(|_| is_float)?;
    bytemuck::try_cast_slice(constant.bytes.bytes()).ok()
}

/// Rows and columns of an input that is a constant matrix.
pub(in crate::fast) fn extents(declared: &Declared<'_>, input: usize) -> Option<[usize; 2]> {
    let at = *declared.operation.inputs.get(input)? as usize;
    let shape = declared.constants.get(at)?.as_ref()?.shape;
    (shape.rank() == 2).then(|| [shape.dim(0) as usize, shape.dim(1) as usize])
}
