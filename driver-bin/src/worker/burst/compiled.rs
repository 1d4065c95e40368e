//! A request of a burst, checked and with all that running it needs: what the worker keeps of a registered
//! one, and what a general one becomes before it is run.

use nnhal::burst::{Pool, RequestBody};
use nnhal::wire::MemoryHandle;
use nnhal_hal::validate::{ArgumentPlan, ValidModel, ValidRequest};
use nnhal_hal::{Failure, Place, RequestPool, Shape};

use super::named::{Named, Names};
use crate::worker::memory::{Memories, Memory};
use crate::worker::request_pools::PacketPools;

/// Most bytes of inputs, and of outputs, that may travel inside a burst's packets.
const MAX_INLINE_BYTES: u32 = 64 * 1024;

/// A request that has been checked. Its memory is used again for others.
#[derive(Debug, Default)]
pub(super) struct CompiledRequest {
    pub(super) request: ValidRequest,
    pub(super) names: Names,
    /// Whether the client knows all output shapes beforehand.
    pub(super) has_fixed_shapes: bool,
    /// Whether an argument is in memory that other devices share.
    pub(super) has_dma_buf: bool,
    /// Whether it was checked for fenced executions.
    pub(super) may_be_fenced: bool,
    inline_inputs: Option<InlinePool>,
    inline_outputs: Option<InlinePool>,
}

/// A pool that is part of a packet.
#[derive(Clone, Copy, Debug)]
struct InlinePool {
    pool: u32,
    size: usize,
}

impl CompiledRequest {
    /// Checks a decoded request into this one, which is of no use after an error. Its memories are held then;
    /// its device buffers are for the caller to look up.
    pub(super) fn fill(
        &mut self,
        body: &mut RequestBody,
        model: &ValidModel,
        (named, memories): (&mut Named<MemoryHandle, Memory>, &Memories),
    ) -> Result<(), Failure> {
        self.has_dma_buf = false;
        (self.inline_inputs, self.inline_outputs) = (None, None);
        self.names.memories.clear();
        self.names.buffers.clear();
        body.request.pools.clear();
        named.begin();
        for (index, pool) in body.pools.iter().enumerate() {
            let pool = self
                .add_pool(index, *pool, (named, memories))
                .map_err(|failure| {
                    failure.at(Place {
                        pool: u32::try_from(index).ok(),
                        ..Place::default()
                    })
                })?;
            body.request.pools.push(pool);
        }
        self.request
            .refill(model, &body.request)
            .map_err(|error| Failure::invalid_argument(error.to_string()))?;
        let main = &model.model().main;
        let mut outputs = self.request.outputs().iter().zip(&main.output_indexes);
        self.has_fixed_shapes = outputs.all(|(plan, operand)| {
            let operand = main.operands.get(*operand as usize);
            is_fixed(
                plan,
                operand.is_some_and(|operand| !operand.operand_type.is_scalar()),
            )
        });
        Ok(())
    }

    fn add_pool(
        &mut self,
        index: usize,
        pool: Pool,
        (named, memories): (&mut Named<MemoryHandle, Memory>, &Memories),
    ) -> Result<RequestPool, Failure> {
        let mut name = None;
        let pool = match pool {
            Pool::Memory(handle) => {
                let found = named.name(handle, |handle| memories.get(handle))?;
                let memory = named.get(found);
                self.has_dma_buf |= memory.is_some_and(|memory| memory.is_dma_buf());
                name = Some(found);
                RequestPool::Memory {
                    size: memory.map_or(0, |memory| memory.size()),
                }
            }
            Pool::Buffer(token) => RequestPool::Token(token),
            Pool::InlineInputs(size) => inline(&mut self.inline_inputs, "inputs", (index, size))?,
            Pool::InlineOutputs(size) => inline(&mut self.inline_outputs, "outputs", (index, size))?,
        };
        self.names.memories.push(name);
        Ok(pool)
    }

    /// The pools that are packets: `inputs` came with the request, `outputs` is room for those of the result
    /// and is used again.
    #[inline]
    pub(super) fn packet_pools<'a>(
        &self,
        inputs: &'a [u8],
        outputs: &'a mut Vec<u8>,
    ) -> Result<PacketPools<'a>, Box<Failure>> {
        let mut pools = PacketPools::default();
        if let Some(InlinePool { pool, size }) = self.inline_inputs {
            let bytes = inputs.get(..size).ok_or_else(|| too_few(inputs.len(), size))?;
            pools.inputs = Some((pool, bytes));
        }
        if let Some(InlinePool { pool, size }) = self.inline_outputs {
            outputs.resize(size, 0);
            pools.outputs = Some((pool, outputs));
        } else {
            outputs.clear();
        }
        Ok(pools)
    }
}

/// Notes a pool that is a packet.
fn inline(
    place: &mut Option<InlinePool>,
    what: &str,
    (index, size): (usize, u32),
) -> Result<RequestPool, Failure> {
    if size > MAX_INLINE_BYTES {
        return Err(Failure::invalid_argument(format!(
            "{size} bytes cannot travel in a burst's packet, at most {MAX_INLINE_BYTES} can"
        )));
    }
    let pool = InlinePool {
        pool: u32::try_from(index).unwrap_or(u32::MAX),
        size: size as usize,
    };
    if place.replace(pool).is_some() {
        return Err(Failure::invalid_argument(format!(
            "the request has two pools for {what} in its packet"
        )));
    }
    Ok(RequestPool::Memory {
        size: u64::from(size),
    })
}

#[cold]
fn too_few(found: usize, size: usize) -> Box<Failure> {
    Failure::invalid_argument(format!(
        "the request carries {found} bytes of inputs, its layout says {size}"
    ))
    .into()
}

fn is_fixed(plan: &ArgumentPlan, is_tensor: bool) -> bool {
    let known = |shape: &Shape| shape.is_fully_specified() && (!is_tensor || shape.rank() > 0);
    match plan {
        ArgumentPlan::Omitted => true,
        ArgumentPlan::Memory { shape, .. } | ArgumentPlan::Token { shape, .. } => known(shape),
    }
}
