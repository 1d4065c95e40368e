//! In place of [`super::amx`] on architectures that do not have it: types without a value.

use super::amx_tiles::{Bf16x3, ByteSums, TileSums};
use super::instructions::Work;
use super::strided::Rows;

#[derive(Clone, Copy, Debug)]
enum Never {}

/// Tiles, which there are none of.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Amx(Never);

impl Amx {
    pub(super) fn find() -> Option<Amx> {
        None
    }

    pub(in crate::fast) fn run<W: Work>(self, _: W) -> W::Output {
        match self.0 {}
    }

    pub(in crate::fast) fn shape(self, _: usize) -> Shaped {
        match self.0 {}
    }

    pub(in crate::fast) fn part_rows(self, _: Rows<'_, f32>, _: usize, _: &mut [Bf16x3]) {
        match self.0 {}
    }

    pub(in crate::fast) fn copy_rows(self, _: Rows<'_, u8>, _: u8, _: &mut [u8]) {
        match self.0 {}
    }
}

/// Tiles whose shapes are set.
pub(in crate::fast) struct Shaped(Never);

impl Shaped {
    pub(in crate::fast) fn sum_bf16x3<const M: usize, const P: usize, const AHEAD: bool>(
        &self,
        _: [&[Bf16x3]; M],
        _: [&[Bf16x3]; P],
        _: &[Bf16x3],
        _: &mut TileSums,
    ) {
        match self.0 {}
    }

    pub(in crate::fast) fn sum_bytes<const M: usize, const P: usize>(
        &self,
        _: [Rows<'_, u8>; M],
        _: [&[u8]; P],
        _: &mut ByteSums,
    ) {
        match self.0 {}
    }
}
