//! Device buffers: memory that stays in the worker from one execution to the next.
//!
//! The content of a buffer is never changed in place. An execution that writes a buffer computes new content
//! and puts it there when it has succeeded; executions that read the buffer meanwhile keep what they began
//! with. So no lock is held while anything runs, and what one model computed is another's input without a
//! copy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::wire::{Allocated, BufferHandle};
use nnhal_device::DeviceMemory;
use nnhal_hal::validate::{ArgumentPlan, Direction, ValidModel, ValidRequest};
use nnhal_hal::{BufferRole, ErrorStatus, ExtraParams, Failure, Operand, OperandType, Shape};

use super::buffer_bytes::{Account, Charge};
use super::table::{OBJECTS, Table, no_such, too_many};
use crate::settings::Limits;
use crate::usage::Quotas;

/// A device buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    token: u32,
    roles: Vec<Role>,
    element_size: usize,
    is_tensor: bool,
    limit: u64,
    /// What roles and description say of its dimensions; 0 where they leave it open.
    declared: Shape,
    held: Mutex<Held>,
    /// Whether the client gave it up. Whoever still uses it then keeps it a moment longer.
    is_freed: AtomicBool,
}

/// What a buffer has at the moment.
#[derive(Debug)]
struct Held {
    content: Option<Content>,
    /// Its bytes: those of its declaration, or of its content where the declaration leaves its size open.
    charge: Charge,
}

/// What an initialised buffer holds.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) shape: Shape,
    pub(crate) memory: Arc<dyn DeviceMemory>,
}

/// An input or output that the buffer may be used for. Each prepared model has a valid model of its own,
/// which names it.
#[derive(Clone, Debug)]
struct Role {
    model: Arc<ValidModel>,
    index: usize,
    direction: Direction,
}

impl Role {
    fn is(&self, model: &Arc<ValidModel>, index: usize, direction: Direction) -> bool {
        Arc::ptr_eq(&self.model, model) && self.index == index && self.direction == direction
    }
}

impl Buffer {
    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    /// Whether the client has given it up.
    #[inline]
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Only whole values are put in there.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the buffer holds, if it is initialised.
    pub(crate) fn content(&self) -> Option<Content> {
        self.lock().content.clone()
    }

    /// Counts so many bytes for the buffer, if it has not that many, before it is given content of this size.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Failure> {
        let mut held = self.lock();
        if bytes as u64 > held.charge.bytes() {
            held.charge.resize(bytes as u64)?;
        }
        Ok(())
    }

    /// Replaces what the buffer holds, and returns what that was.
    ///
    /// # Errors
    /// The client may not have so many bytes. The buffer is as it was.
    pub(crate) fn set_content(&self, content: Content) -> Result<Option<Content>, Failure> {
        let mut held = self.lock();
        if self.declared_size().is_none() {
            held.charge.resize(content.memory.size() as u64)?;
        }
        Ok(held.content.replace(content))
    }

    /// Makes the buffer uninitialised.
    pub(crate) fn clear(&self) {
        let mut held = self.lock();
        held.content = None;
        if self.declared_size().is_none() {
            // Fewer bytes are never refused.
            let _ = held.charge.resize(0);
        }
    }

    /// What roles and description say of its dimensions; 0 where they leave it open.
    pub(crate) fn declared(&self) -> Shape {
        self.declared
    }

    pub(crate) fn is_tensor(&self) -> bool {
        self.is_tensor
    }

    /// The most bytes that the client's device buffers may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Exact size of content of this shape, if it is fully known and fits.
    pub(crate) fn size_of(&self, shape: &Shape) -> Option<usize> {
        let is_known = shape.is_fully_specified() && (!self.is_tensor || shape.rank() > 0);
        is_known
            .then(|| shape.byte_size(self.element_size).ok())
            .flatten()
    }

    /// Exact size of the buffer, if all its dimensions are known.
    pub(crate) fn declared_size(&self) -> Option<usize> {
        self.size_of(&self.declared)
    }

    fn has_role(&self, model: &Arc<ValidModel>, index: usize, direction: Direction) -> bool {
        self.roles.iter().any(|role| role.is(model, index, direction))
    }

    /// Whether the buffer may be meant for an argument whose dimensions are declared so; 0 stands for any
    /// extent.
    fn agrees_with(&self, declared: &Shape) -> bool {
        self.declared.combine(declared).is_some()
    }

    /// Whether content of exactly this shape is what the buffer was made for.
    pub(crate) fn takes(&self, shape: &Shape) -> bool {
        self.declared.allows(shape)
    }
}

/// All device buffers of a client.
#[derive(Debug)]
pub(crate) struct Buffers {
    state: Mutex<State>,
    account: Arc<Account>,
}

#[derive(Debug)]
struct State {
    table: Table<Arc<Buffer>>,
    by_token: HashMap<u32, Arc<Buffer>>,
    next_token: u32,
}

impl Buffers {
    pub(crate) fn new(limits: &Limits, quotas: Quotas) -> Buffers {
        let state = State {
            table: Table::new(limits.objects),
            by_token: HashMap::new(),
            next_token: 1,
        };
        Buffers {
            state: Mutex::new(state),
            account: Arc::new(Account::new(limits.buffer_bytes, quotas)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// HAL `IDevice::allocate`.
    pub(crate) fn allocate(
        &self,
        dimensions: &[u32],
        models: &[Arc<ValidModel>],
        input_roles: &[BufferRole],
        output_roles: &[BufferRole],
    ) -> Result<Allocated, Failure> {
        let roles = check_roles(models, input_roles, output_roles)?;
        let (operand, declared) = common_operand(&roles, dimensions)?;
        let is_known = operand.operand_type.element_size() > 0;
        if !is_known || operand.operand_type.is_oem() {
            return Err(Failure::general(format!(
                "device buffers of type {} are not supported; only the vendor knows its size",
                operand.operand_type
            )));
        }
        let held = Held {
            content: None,
            charge: Charge::none(Arc::clone(&self.account)),
        };
        let buffer = Buffer {
            token: 0,
            element_size: operand.operand_type.element_size(),
            is_tensor: operand.operand_type.is_tensor(),
            limit: self.account.most(),
            roles,
            declared,
            held: Mutex::new(held),
            is_freed: AtomicBool::new(false),
        };
        self.insert(buffer)
    }

    fn insert(&self, mut buffer: Buffer) -> Result<Allocated, Failure> {
        buffer.make_room(buffer.declared_size().unwrap_or(0))?;
        let mut state = self.lock();
        let token = state.next_token;
        // None is used twice: requests that are kept name buffers by their tokens.
        let next = token.checked_add(1).ok_or_else(|| {
            let detail = "no token is left for a device buffer; connect anew";
            Failure::new(ErrorStatus::ResourceExhaustedPersistent, detail)
        })?;
        buffer.token = token;
        let buffer = Arc::new(buffer);
        let handle = state
            .table
            .insert(Arc::clone(&buffer))
            .map_err(|full| too_many("device buffers", full, OBJECTS))?;
        state.by_token.insert(token, buffer);
        state.next_token = next;
        Ok(Allocated {
            buffer: handle.into(),
            token,
        })
    }

    pub(crate) fn remove(&self, handle: BufferHandle) -> Result<(), Failure> {
        let mut state = self.lock();
        let buffer = state
            .table
            .remove(handle.0)
            .ok_or_else(|| no_such("device buffer", handle.0))?;
        buffer.is_freed.store(true, Ordering::Release);
        state.by_token.remove(&buffer.token);
        Ok(())
    }

    pub(crate) fn get(&self, handle: BufferHandle) -> Result<Arc<Buffer>, Failure> {
        self.lock()
            .table
            .get(handle.0)
            .cloned()
            .ok_or_else(|| no_such("device buffer", handle.0))
    }

    /// The buffer of this token.
    pub(crate) fn of_token(&self, token: u32) -> Option<Arc<Buffer>> {
        self.lock().by_token.get(&token).cloned()
    }
}

/// The tokens of a request, each with the argument that is in the buffer.
pub(crate) fn tokens(request: &ValidRequest) -> impl Iterator<Item = (Direction, usize, Shape, u32)> {
    let inputs = request.inputs().iter().enumerate();
    let inputs = inputs.map(|argument| (Direction::Input, argument));
    let outputs = request.outputs().iter().enumerate();
    let outputs = outputs.map(|argument| (Direction::Output, argument));
    inputs
        .chain(outputs)
        .filter_map(|(direction, (index, plan))| match *plan {
            ArgumentPlan::Token { shape, token } => Some((direction, index, shape, token)),
            ArgumentPlan::Omitted | ArgumentPlan::Memory { .. } => None,
        })
}

/// Checks the parts that device buffers have in a request; `find` has those of its tokens. Buffers of outputs
/// are written by one execution, in one place.
pub(crate) fn check_parts<'b>(
    model: &Arc<ValidModel>,
    request: &ValidRequest,
    find: impl Fn(u32) -> Option<&'b Buffer>,
) -> Result<(), Failure> {
    for (direction, index, shape, token) in tokens(request) {
        let invalid = |message: String| {
            Err(Failure::invalid_argument(format!(
                "{direction} {index}: {message}"
            )))
        };
        let Some(buffer) = find(token) else {
            return invalid(format!("there is no device buffer with token {token}"));
        };
        if !buffer.has_role(model, index, direction) {
            return invalid(format!("device buffer {token} was not allocated for this use"));
        }
        if !buffer.agrees_with(&shape) {
            return invalid(format!(
                "has dimensions {shape:?}, device buffer {token} has {:?}",
                buffer.declared
            ));
        }
        if direction == Direction::Input {
            continue;
        }
        let is_same =
            |plan: &ArgumentPlan| matches!(plan, ArgumentPlan::Token { token: other, .. } if *other == token);
        if request.inputs().iter().any(is_same) {
            return invalid(format!("device buffer {token} is an input of the same request"));
        }
        if request.outputs().iter().take(index).any(is_same) {
            return invalid(format!(
                "device buffer {token} is another output of the same request"
            ));
        }
    }
    Ok(())
}

fn check_roles(
    models: &[Arc<ValidModel>],
    input_roles: &[BufferRole],
    output_roles: &[BufferRole],
) -> Result<Vec<Role>, Failure> {
    if models.is_empty() {
        return Err(Failure::invalid_argument(
            "a device buffer needs a prepared model",
        ));
    }
    if input_roles.is_empty() && output_roles.is_empty() {
        return Err(Failure::invalid_argument("a device buffer needs a role"));
    }
    let inputs = input_roles.iter().map(|role| (Direction::Input, role));
    let outputs = output_roles.iter().map(|role| (Direction::Output, role));
    let mut roles: Vec<Role> = Vec::new();
    for (direction, role) in inputs.chain(outputs) {
        let model = models.get(role.model_index as usize).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "a role names model {}, {} were given",
                role.model_index,
                models.len()
            ))
        })?;
        let index = role.io_index as usize;
        if operand_of(model, index, direction).is_none() {
            return Err(Failure::invalid_argument(format!(
                "model {} has no {direction} {index}",
                role.model_index
            )));
        }
        // Written so that a frequency that is no number is refused too.
        let is_frequency = role.frequency > 0.0 && role.frequency <= 1.0;
        if !is_frequency {
            return Err(Failure::invalid_argument(format!(
                "frequency {} of a role must be above 0 and at most 1",
                role.frequency
            )));
        }
        if roles.iter().any(|other| other.is(model, index, direction)) {
            return Err(Failure::invalid_argument(format!(
                "{direction} {index} is named twice"
            )));
        }
        roles.push(Role {
            model: Arc::clone(model),
            index,
            direction,
        });
    }
    Ok(roles)
}

fn operand_of(model: &ValidModel, index: usize, direction: Direction) -> Option<&Operand> {
    let main = &model.model().main;
    let indexes = match direction {
        Direction::Input => &main.input_indexes,
        Direction::Output => &main.output_indexes,
    };
    main.operands.get(*indexes.get(index)? as usize)
}

/// What two operands must have in common to share a buffer, besides their dimensions.
fn kind(operand: &Operand) -> (OperandType, u32, i32, &ExtraParams) {
    (
        operand.operand_type,
        operand.scale.to_bits(),
        operand.zero_point,
        &operand.extra_params,
    )
}

/// The operand that all roles agree on, and the dimensions they have together.
fn common_operand<'a>(roles: &'a [Role], dimensions: &[u32]) -> Result<(&'a Operand, Shape), Failure> {
    let invalid = |error: nnhal_hal::ShapeError| Failure::invalid_argument(error.to_string());
    let mut common: Option<&Operand> = None;
    let mut shape = Shape::new(dimensions).map_err(invalid)?;
    for role in roles {
        let Some(operand) = operand_of(&role.model, role.index, role.direction) else {
            continue;
        };
        if common.is_some_and(|common| kind(common) != kind(operand)) {
            return Err(Failure::invalid_argument(
                "the roles of a device buffer differ in type, scale, zero point or extra parameters",
            ));
        }
        let is_scalar = operand.operand_type.is_scalar();
        if is_scalar && !dimensions.is_empty() {
            return Err(Failure::invalid_argument(
                "a device buffer for a scalar has no dimensions",
            ));
        }
        let own = Shape::new(&operand.dimensions).map_err(invalid)?;
        shape = shape.combine(&own).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "dimensions {own:?} of {} {} contradict {shape:?}",
                role.direction, role.index
            ))
        })?;
        common = Some(operand);
    }
    let operand = common.ok_or_else(|| Failure::invalid_argument("a device buffer needs a role"))?;
    Ok((operand, shape))
}
