//! The constants of a model that are kept: all of its pools, or what its compiled form does not replace.

use std::collections::HashSet;
use std::sync::Arc;

use nnhal_hal::{ConstantPools, Model, OperandLifeTime};
use nnhal_os::buffer::AlignedBuffer;

/// Some bytes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) pool: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

nnhal::wire_record! {
    Segment { pool: u32, offset: u64, length: u64 }
}

impl Segment {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// What to keep of the pools: everything, or with some constants `replaced` only what the others refer to. In
/// order, and no byte twice.
pub(super) fn segments(model: &Model, sizes: &[u64], replaced: Option<&[(usize, u32)]>) -> Vec<Segment> {
    let Some(replaced) = replaced else {
        let whole = sizes.iter().enumerate().map(|(pool, &length)| Segment {
            pool: pool as u32,
            offset: 0,
            length,
        });
        return whole.filter(|segment| segment.length > 0).collect();
    };
    let replaced: HashSet<&(usize, u32)> = replaced.iter().collect();
    let mut all = Vec::new();
    for (number, (_, graph)) in model.subgraphs().enumerate() {
        for (at, operand) in graph.operands.iter().enumerate() {
            let is_replaced = replaced.contains(&(number, at as u32));
            if operand.lifetime == OperandLifeTime::ConstantReference
                && operand.location.length > 0
                && !is_replaced
            {
                all.push(Segment {
                    pool: operand.location.pool_index,
                    offset: u64::from(operand.location.offset),
                    length: u64::from(operand.location.length),
                });
            }
        }
    }
    all.sort_unstable();
    let mut merged: Vec<Segment> = Vec::new();
    for segment in all {
        match merged.last_mut() {
            Some(last) if last.pool == segment.pool && last.end() >= segment.offset => {
                last.length = last.end().max(segment.end()) - last.offset;
            }
            _ => merged.push(segment),
        }
    }
    merged
}

/// The pools of a model as far as they were kept, in the bytes of the file.
#[derive(Debug)]
pub(crate) struct KeptPools {
    file: Arc<AlignedBuffer>,
    sizes: Vec<u64>,
    /// With where in the file they begin.
    segments: Vec<(Segment, usize)>,
}

impl KeptPools {
    /// The segments as they lie in `file` one behind the other from `start` on, and where they end. `None` if
    /// they do not fit into pools of these sizes, or are out of order.
    pub(super) fn new(
        file: Arc<AlignedBuffer>,
        start: usize,
        (sizes, segments): (Vec<u64>, Vec<Segment>),
    ) -> Option<(KeptPools, usize)> {
        let mut at = start;
        let mut located: Vec<(Segment, usize)> = Vec::new();
        for segment in segments {
            let end = segment.offset.checked_add(segment.length)?;
            if end > *sizes.get(segment.pool as usize)? {
                return None;
            }
            if let Some((last, _)) = located.last()
                && (last.pool, last.end()) > (segment.pool, segment.offset)
            {
                return None;
            }
            located.push((segment, at));
            at = at.checked_add(usize::try_from(segment.length).ok()?)?;
        }
        (at <= file.bytes().len()).then_some((
            KeptPools {
                file,
                sizes,
                segments: located,
            },
            at,
        ))
    }

    /// How many pools there are.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }
}

impl ConstantPools for KeptPools {
    fn bytes(&self, pool: usize) -> Option<&[u8]> {
        self.range(pool, 0, usize::try_from(*self.sizes.get(pool)?).ok()?)
    }

    fn size(&self, pool: usize) -> Option<u64> {
        self.sizes.get(pool).copied()
    }

    fn range(&self, pool: usize, offset: usize, length: usize) -> Option<&[u8]> {
        let end = (offset as u64).checked_add(length as u64)?;
        if end > *self.sizes.get(pool)? {
            return None;
        }
        if length == 0 {
            return Some(&[]);
        }
        let (wanted, offset) = ((pool as u64, offset as u64), offset as u64);
        let after = self
            .segments
            .partition_point(|(segment, _)| (u64::from(segment.pool), segment.offset) <= wanted);
        let (segment, at) = self.segments.get(after.checked_sub(1)?)?;
        if segment.pool as usize != pool || end > segment.end() {
            return None;
        }
        let begin = at.checked_add(usize::try_from(offset - segment.offset).ok()?)?;
        self.file.bytes().get(begin..begin.checked_add(length)?)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{DataLocation, Operand, OperandType};

    use super::*;

    fn segment(pool: u32, offset: u64, length: u64) -> Segment {
        Segment { pool, offset, length }
    }

    fn model(locations: &[(u32, u32, u32)]) -> Model {
        let mut model = Model::default();
        for &(pool_index, offset, length) in locations {
            let mut operand = Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[length])
                .with_lifetime(OperandLifeTime::ConstantReference);
            operand.location = DataLocation {
                pool_index,
                offset,
                length,
            };
            model.main.operands.push(operand);
        }
        model
    }

    #[test]
    fn what_constants_share_is_kept_once_and_what_is_replaced_is_not() {
        let model = model(&[
            (1, 0, 4),
            (0, 10, 5),
            (0, 12, 8),
            (0, 20, 2),
            (0, 30, 3),
            (0, 0, 0),
        ]);
        let all = [segment(0, 10, 12), segment(0, 30, 3), segment(1, 0, 4)];
        assert_eq!(segments(&model, &[40, 4], Some(&[])), all);
        let some = [segment(0, 10, 12), segment(1, 0, 4)];
        assert_eq!(segments(&model, &[40, 4], Some(&[(0, 4), (1, 0)])), some);
        let whole = [segment(0, 0, 40), segment(2, 0, 4)];
        assert_eq!(segments(&model, &[40, 0, 4], None), whole);
    }

    fn kept(sizes: &[u64], segments: &[Segment]) -> Option<(KeptPools, usize)> {
        let bytes: Vec<u8> = (0..100).collect();
        let file = Arc::new(AlignedBuffer::copy_of(&bytes).unwrap());
        KeptPools::new(file, 8, (sizes.to_vec(), segments.to_vec()))
    }

    #[test]
    fn only_what_was_kept_is_there() {
        let (pools, end) = kept(
            &[40, 4],
            &[segment(0, 10, 12), segment(0, 30, 3), segment(1, 0, 4)],
        )
        .unwrap();
        assert_eq!((end, pools.len()), (27, 2));
        assert_eq!(pools.range(0, 10, 3), Some(&[8, 9, 10][..]));
        assert_eq!(pools.range(0, 21, 1), Some(&[19][..]));
        assert_eq!(pools.range(0, 31, 2), Some(&[21, 22][..]));
        assert_eq!(pools.bytes(1), Some(&[23, 24, 25, 26][..]));
        assert_eq!(pools.range(0, 40, 0), Some(&[][..]));
        for (pool, offset, length) in [
            (0, 9, 2),
            (0, 21, 2),
            (0, 32, 2),
            (0, 41, 0),
            (1, 3, 2),
            (2, 0, 1),
        ] {
            assert_eq!(
                pools.range(pool, offset, length),
                None,
                "{pool} {offset} {length}"
            );
        }
        assert_eq!(pools.range(0, usize::MAX, 2), None);
        assert_eq!(
            (pools.bytes(0), pools.size(0), pools.size(2)),
            (None, Some(40), None)
        );
    }

    #[test]
    fn segments_that_do_not_fit_are_refused() {
        for segments in [
            &[segment(0, 38, 3)][..],
            &[segment(0, u64::MAX, 3)],
            &[segment(2, 0, 1)],
            &[segment(0, 10, 2), segment(0, 11, 2)],
            &[segment(1, 0, 2), segment(0, 0, 2)],
        ] {
            assert!(kept(&[40, 4], segments).is_none(), "{segments:?}");
        }
        assert!(
            kept(&[1000], &[segment(0, 0, 93)]).is_none(),
            "more than the file has"
        );
        assert!(kept(&[1000], &[segment(0, 0, 92)]).is_some());
    }
}
