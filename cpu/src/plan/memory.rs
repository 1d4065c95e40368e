//! The memory of a graph's values: when each is needed last, and how much all take.
//!
//! Values of declared sizes are gone through in the order of the nodes as a run goes through them: each takes
//! memory that values before it have left, and leaves it after its last reader. What that comes to can be
//! taken at once, in pages that are there, so that the first run finds what the later ones find.
//!
//! Each value has a buffer of its own and no place in an arena. A reshaped tensor, the result of a branch and
//! what a loop carries change hands by exchanging buffers, and values of unknown size need a pool of buffers
//! in any case. An arena would be a second way beside that, and would have to lend an operation its inputs
//! and outputs out of one allocation.

use nnhal_hal::{OperandLifeTime, Subgraph};

use super::fixed_outputs::FixedOutputs;
use super::node::{Node, Work};

/// More is not taken before a run shows that it is needed.
pub(crate) const MOST_RESERVED_BYTES: usize = 256 << 20;

/// Graphs with more results are left to their runs, which can be interrupted.
const MOST_RESERVED_RESULTS: usize = 4096;

/// Values of fewer bytes keep their memory from one run to the next: giving it back and finding it again
/// takes longer than some of the operations that compute them. With blocks that one thread need not count it
/// takes a wake-word model of 27 operations to 0.87 of the time.
const LEAST_RELEASED_BYTES: usize = 1024;

/// So many bytes are kept so at most, which are still near the processor when the next run comes.
const MOST_KEPT_BYTES: usize = 64 << 10;

/// How often the values are gone through: memory that was too small for a later value has been exchanged for
/// larger, so that the next time an earlier one may find other memory.
const ROUNDS: usize = 2;

/// Notes with each node the temporaries that nothing reads after it, but for small ones.
pub(super) fn release_after_last_reader(graph: &Subgraph, nodes: &mut [Node]) {
    let mut is_kept = vec![false; graph.operands.len()];
    keep_small(nodes, &mut is_kept, &mut { MOST_KEPT_BYTES });
    let is_released = |operand: &u32| {
        let at = *operand as usize;
        let operand = graph.operands.get(at).filter(|_| !is_kept[at]);
        operand.is_some_and(|operand| operand.lifetime == OperandLifeTime::TemporaryVariable)
    };
    release(nodes, &is_released, &mut vec![false; graph.operands.len()]);
}

/// Notes which results are small in every run, as long as there is room.
fn keep_small(nodes: &[Node], is_kept: &mut [bool], room: &mut usize) {
    for node in nodes {
        let sizes = node.fixed.iter().flat_map(FixedOutputs::sizes);
        for (&operand, bytes) in node.operation.outputs.iter().zip(sizes) {
            let is_kept = &mut is_kept[operand as usize];
            if bytes < LEAST_RELEASED_BYTES && bytes <= *room && !*is_kept {
                *is_kept = true;
                *room -= bytes;
            }
        }
        keep_small(&node.parts, is_kept, room);
    }
}

/// Notes what is released, given which operands are `seen` behind the nodes. The parts of a node release as
/// if they were there in its place.
fn release(nodes: &mut [Node], is_released: &dyn Fn(&u32) -> bool, seen: &mut [bool]) {
    for node in nodes.iter_mut().rev() {
        let operands = node.operation.inputs.iter().chain(&node.operation.outputs);
        for &operand in operands.filter(|operand| is_released(operand)) {
            if !seen[operand as usize] && !node.releases.contains(&operand) {
                node.releases.push(operand);
            }
        }
        release(&mut node.parts, is_released, seen);
        for &operand in &node.releases {
            seen[operand as usize] = true;
        }
    }
}

/// Which of these capacities is the smallest that holds `bytes`, else the largest there is.
pub(crate) fn smallest_that_holds(bytes: usize, capacities: impl Iterator<Item = usize>) -> Option<usize> {
    let key = |(_, capacity): &(usize, usize)| {
        if *capacity >= bytes {
            (0, *capacity)
        } else {
            (1, usize::MAX - capacity)
        }
    };
    capacities.enumerate().min_by_key(key).map(|(at, _)| at)
}

/// How much memory a run by one thread takes for its results.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// By operand: the bytes of its value.
    pub(crate) values: Vec<usize>,
    /// The bytes of each buffer in the pool.
    pub(crate) free: Vec<usize>,
}

impl Sizes {
    /// That of the nodes of a graph with so many operands, as far as the model declares how much it is.
    /// `None` if that is more than runs should take before it is needed.
    pub(crate) fn of(nodes: &[Node], operands: usize) -> Option<Sizes> {
        let results: usize = nodes.iter().map(|node| node.operation.outputs.len()).sum();
        if results > MOST_RESERVED_RESULTS {
            return None;
        }
        let mut sizes = Sizes {
            values: vec![0; operands],
            free: Vec::new(),
        };
        for _ in 0..ROUNDS {
            nodes.iter().for_each(|node| sizes.go_through(node));
        }
        let mut all = sizes.values.iter().chain(&sizes.free);
        let sum = all.try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes));
        sum.is_some_and(|sum| sum <= MOST_RESERVED_BYTES).then_some(sizes)
    }

    /// What a node takes and leaves.
    fn go_through(&mut self, node: &Node) {
        match node.by(1) {
            [one] if std::ptr::eq(one, node) => {}
            parts => return parts.iter().for_each(|part| self.go_through(part)),
        }
        if let (Work::InPlace, [input, ..], [output]) = (
            &node.work,
            &node.operation.inputs[..],
            &node.operation.outputs[..],
        ) {
            self.values.swap(*input as usize, *output as usize);
        } else if let Some(fixed) = &node.fixed {
            for (&at, bytes) in node.operation.outputs.iter().zip(fixed.sizes()) {
                self.give(at as usize, bytes);
            }
        }
        for &operand in &node.releases {
            let left = std::mem::take(&mut self.values[operand as usize]);
            self.give_back(left);
        }
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.free.push(bytes);
        }
    }

    fn give(&mut self, value: usize, bytes: usize) {
        if self.values[value] >= bytes {
            return;
        }
        if let Some(at) = smallest_that_holds(bytes, self.free.iter().copied()) {
            let taken = self.free.swap_remove(at);
            let given_up = std::mem::replace(&mut self.values[value], taken);
            self.give_back(given_up);
        }
        self.values[value] = self.values[value].max(bytes);
    }
}
