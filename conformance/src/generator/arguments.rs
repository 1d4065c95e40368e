//! What is known of an operation's arguments while they are drawn.

use nnhal_hal::OperationType;
use nnhal_hal::ops::{Param, Rank, Variant};

use super::choices::Choices;
use super::counterpart::counterpart;
use super::graph::{Drawn, Graph};

/// Channels of networks: fewer than vectors have lanes, as many, and some more.
pub(super) const CHANNELS: &[u32] = &[3, 8, 16, 1, 20, 35];

/// Arguments of one operation while they are drawn.
pub(super) struct Arguments<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) choices: &'a mut Choices,
    /// The operation; of one of the extension that does what NNAPI's does, that one.
    pub(super) operation: OperationType,
    /// Whether it is the extension's.
    pub(super) is_of_extension: bool,
    pub(super) variant: Option<&'static Variant>,
    /// The names of all parameters of this call, as [`key`] writes them.
    pub(super) names: Vec<String>,
    /// Whether images have their channels before height and width.
    pub(super) nchw: bool,
    /// Whether sequences have their time before the batch.
    pub(super) time_major: bool,
    /// Which parts a recurrent layer has.
    pub(super) parts: Parts,
    /// Numbers that several shapes of one operation share.
    pub(super) extents: [u32; 4],
    /// The dimensions of the output, where an argument holds them and others must fit.
    pub(super) spelled_out: Vec<u32>,
}

/// A parameter's name without capitals and separators.
pub(crate) fn key(name: &str) -> String {
    name.chars()
        .filter(|letter| *letter != '_')
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

impl<'a> Arguments<'a> {
    pub(super) fn new(
        graph: &'a mut Graph,
        choices: &'a mut Choices,
        operation: OperationType,
        variant: Option<&'static Variant>,
        params: &[&'static Param],
    ) -> Arguments<'a> {
        let is_of_extension = operation.is_extension();
        let operation = counterpart(operation);
        let names: Vec<String> = params.iter().map(|param| key(param.name)).collect();
        let has_layout = names.iter().any(|name| name == "layout" || name == "nchw");
        let nchw = has_layout && choices.once_in(if graph.is_network { 8 } else { 2 });
        let extents = extents(choices, operation, graph.is_network);
        let recurrent = names.iter().any(|name| name.contains("recurrent"));
        let time_major = recurrent && choices.once_in(2);
        let parts = if recurrent {
            let projects = names.iter().any(|name| name.contains("projectionweights"));
            let parts = Parts::choose(choices);
            Parts {
                projection: parts.projection && projects,
                ..parts
            }
        } else {
            Parts::default()
        };
        Arguments {
            graph,
            choices,
            operation,
            is_of_extension,
            variant,
            names,
            nchw,
            time_major,
            parts,
            extents,
            spelled_out: Vec::new(),
        }
    }

    /// Whether the matrices of a BATCH_MATMUL are stored transposed.
    pub(super) fn transposes(&self) -> [bool; 2] {
        [self.extents[1] == 2, self.extents[2] == 2]
    }

    /// The argument with this name, if it is drawn already.
    pub(super) fn argument(&self, name: &str, before: &[u32]) -> Option<&Drawn> {
        let at = self.names.iter().position(|other| other == name)?;
        self.graph.operands.get(*before.get(at)? as usize)
    }

    /// The value of argument `index`, if it is one integer and drawn already.
    pub(super) fn integer(&self, index: usize, before: &[u32]) -> Option<i32> {
        let drawn = self.graph.operands.get(*before.get(index)? as usize)?;
        let bytes = drawn.value.as_ref()?.bytes();
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The dimensions of argument `index`, if it is drawn already and has known ones.
    pub(super) fn dims(&self, index: usize, before: &[u32]) -> Option<Vec<u32>> {
        let drawn = self.graph.operands.get(*before.get(index)? as usize)?;
        drawn.shape.map(|shape| shape.dims().to_vec())
    }
}

/// Which optional parts a recurrent layer has. Their parameters are given or left out together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// An input gate of its own, not one coupled to the forget gate.
    input_gate: bool,
    peephole: bool,
    pub(super) projection: bool,
    normalisation: bool,
    auxiliary: bool,
}

impl Parts {
    fn choose(choices: &mut Choices) -> Parts {
        Parts {
            input_gate: choices.once_in(2),
            peephole: choices.once_in(2),
            projection: choices.once_in(2),
            normalisation: choices.once_in(2),
            auxiliary: choices.once_in(2),
        }
    }

    /// Whether a parameter of this name is given; `None` if it belongs to no part.
    pub(super) fn has(self, name: &str) -> Option<bool> {
        let of_input_gate = ["toinputweights", "inputgatebias", "inputlayernormweights"]
            .iter()
            .any(|part| name.ends_with(part));
        let gate = !of_input_gate || self.input_gate;
        let part = if name.contains("aux") {
            self.auxiliary
        } else if name.contains("layernorm") {
            self.normalisation
        } else if name.contains("cellto") {
            self.peephole
        } else if name.contains("projection") {
            self.projection
        } else if of_input_gate {
            true
        } else {
            return None;
        };
        Some(part && gate)
    }
}

/// Numbers that the shapes of one operation share: channels or units, then extents of a window or what else
/// there is.
fn extents(choices: &mut Choices, operation: OperationType, is_network: bool) -> [u32; 4] {
    let mut extents = [(); 4].map(|()| 1 + choices.below(3));
    if is_network && operation != OperationType::DEPTHWISE_CONV_2D {
        extents[0] = choices.pick(CHANNELS).copied().unwrap_or(1);
    } else if is_network {
        // Mostly one filter for each channel.
        extents[0] = 1 + u32::from(choices.once_in(4));
    }
    extents
}

/// Whether a rank is among these.
pub(super) fn allows(ranks: Rank, rank: usize) -> bool {
    match ranks {
        Rank::Any => true,
        Rank::Is(only) => rank == only,
        Rank::Between(low, high) => (low..=high).contains(&rank),
        Rank::OneOf(some) => some.contains(&rank),
    }
}
