//! A request spelled out and checked, ready to be run again and again.

use std::cell::RefCell;

use nnhal::burst::{Pool, RequestBody, copy_values};
use nnhal_hal::validate::{ArgumentPlan, ValidModel, ValidRequest};
use nnhal_hal::{Failure, Place, Request, RequestPool, Shape};

use super::memories::{KnownMemories, KnownMemory};
use crate::worker::buffer::WeakBuffers;
use crate::worker::memory::Memories;
use crate::worker::run::{InlineBytes, PlainRequest};

/// Most bytes of inputs, and of outputs, that may travel inside a burst's packets.
const MAX_INLINE_BYTES: u32 = 64 * 1024;

/// A request that has been checked, with its memories.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) request: ValidRequest,
    pub(super) inline: InlineBytes,
    pub(super) memories: Vec<Option<KnownMemory>>,
    /// Those of its arguments that are device buffers.
    pub(super) buffers: WeakBuffers,
    /// Whether the client knows all output shapes beforehand.
    pub(super) has_fixed_shapes: bool,
    /// Whether an argument is in memory that other devices share.
    pub(super) has_dma_buf: bool,
    /// The same request, if it comes again and is a plain one.
    pub(super) plain: PlainRequest,
    /// Whether it was looked at for that.
    is_looked_up: bool,
    /// The form that the request is checked in, kept for its memory.
    unchecked: Request,
}

impl Layout {
    /// Checks a decoded request into this layout, which is of no use after an error.
    pub(super) fn fill(
        &mut self,
        body: &mut RequestBody,
        model: &ValidModel,
        known: &mut KnownMemories,
        memories: &Memories,
    ) -> Result<(), Failure> {
        self.plain.forget();
        self.is_looked_up = false;
        self.has_dma_buf = false;
        self.inline.clear();
        self.memories.clear();
        self.unchecked.pools.clear();
        for (index, pool) in body.pools.iter().enumerate() {
            let pool = self.add_pool(index, *pool, known, memories).map_err(|failure| {
                failure.at(Place {
                    pool: u32::try_from(index).ok(),
                    ..Place::default()
                })
            })?;
            self.unchecked.pools.push(pool);
        }
        std::mem::swap(&mut self.unchecked.inputs, &mut body.inputs);
        std::mem::swap(&mut self.unchecked.outputs, &mut body.outputs);
        let checked = self.request.refill(model, &self.unchecked);
        std::mem::swap(&mut self.unchecked.inputs, &mut body.inputs);
        std::mem::swap(&mut self.unchecked.outputs, &mut body.outputs);
        checked.map_err(|error| Failure::invalid_argument(error.to_string()))?;
        let main = &model.model().main;
        self.has_fixed_shapes =
            self.request
                .outputs()
                .iter()
                .zip(&main.output_indexes)
                .all(|(plan, operand)| {
                    let is_tensor = main
                        .operands
                        .get(*operand as usize)
                        .is_some_and(|operand| !operand.operand_type.is_scalar());
                    is_fixed(plan, is_tensor)
                });
        Ok(())
    }

    /// To be called when the request is known to come again.
    pub(super) fn comes_again(&mut self) {
        if !self.is_looked_up && self.has_fixed_shapes {
            self.plain.look_up(&self.request, &self.inline);
            // That all memories are there still is made sure of argument by argument.
            let is_memory = |(pool, known): (u32, &Option<KnownMemory>)| known.is_some().then_some(pool);
            let mut memories = (0..).zip(&self.memories).filter_map(is_memory);
            if !memories.all(|pool| self.plain.names(pool)) {
                self.plain.forget();
            }
        }
        self.is_looked_up = true;
    }

    fn add_pool(
        &mut self,
        index: usize,
        pool: Pool,
        known: &mut KnownMemories,
        memories: &Memories,
    ) -> Result<RequestPool, Failure> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let bounded = |size: u32| {
            if size <= MAX_INLINE_BYTES {
                return Ok(size);
            }
            Err(Failure::invalid_argument(format!(
                "{size} bytes cannot travel in a burst's packet, at most {MAX_INLINE_BYTES} can"
            )))
        };
        match pool {
            Pool::Memory(handle) => {
                let memory = known.get(handle, memories)?;
                let size = memory.size();
                self.has_dma_buf |= memory.is_dma_buf();
                self.memories.push(Some(KnownMemory::new(handle, &memory)));
                Ok(RequestPool::Memory { size })
            }
            Pool::Buffer(token) => {
                self.memories.push(None);
                Ok(RequestPool::Token(token))
            }
            Pool::InlineInputs(size) => {
                self.memories.push(None);
                self.inline.set_inputs(index, bounded(size)?)?;
                Ok(RequestPool::Memory {
                    size: u64::from(size),
                })
            }
            Pool::InlineOutputs(size) => {
                self.memories.push(None);
                self.inline.set_outputs(index, bounded(size)?)?;
                Ok(RequestPool::Memory {
                    size: u64::from(size),
                })
            }
        }
    }
}

fn is_fixed(plan: &ArgumentPlan, is_tensor: bool) -> bool {
    let known = |shape: &Shape| shape.is_fully_specified() && (!is_tensor || shape.rank() > 0);
    match plan {
        ArgumentPlan::Omitted => true,
        ArgumentPlan::Memory { shape, .. } | ArgumentPlan::Token { shape, .. } => known(shape),
    }
}

impl InlineBytes {
    fn clear(&mut self) {
        self.input_pool = None;
        self.output_pool = None;
        self.inputs.clear();
        self.outputs.get_mut().clear();
    }

    fn set_inputs(&mut self, pool: u32, size: u32) -> Result<(), Failure> {
        if self.input_pool.replace(pool).is_some() {
            return Err(twice("inputs"));
        }
        self.inputs.resize(size as usize, 0);
        Ok(())
    }

    fn set_outputs(&mut self, pool: u32, size: u32) -> Result<(), Failure> {
        if self.output_pool.replace(pool).is_some() {
            return Err(twice("outputs"));
        }
        RefCell::get_mut(&mut self.outputs).resize(size as usize, 0);
        Ok(())
    }

    /// Takes the inputs' bytes out of a packet.
    #[inline]
    pub(super) fn receive(&mut self, packet: &[u8]) -> Result<(), Failure> {
        let size = self.inputs.len();
        if size == 0 {
            return Ok(());
        }
        let bytes = packet.get(..size).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "the request carries {} bytes of inputs, its layout says {size}",
                packet.len()
            ))
        })?;
        copy_values(bytes, &mut self.inputs);
        Ok(())
    }
}

fn twice(what: &str) -> Failure {
    Failure::invalid_argument(format!("the request has two pools for {what} in its packet"))
}
