//! What the procedures run against.

use std::sync::Arc;
use std::time::Duration;

use nnhal::wire::ExecutionResult;
use nnhal_hal::{Failure, HalVersion, MeasureTiming, Model, OperationSupport, Request};

/// A way to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The call returns with the result.
    Synchronous,
    /// The result comes later, by a callback.
    Asynchronous,
    /// Through the queues of a burst.
    Burst,
    /// The call returns with a fence.
    Fenced,
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Form::Synchronous => "synchronous",
            Form::Asynchronous => "asynchronous",
            Form::Burst => "burst",
            Form::Fenced => "fenced",
        })
    }
}

/// Something broke that is no answer of the HAL's: a dead process, a protocol error. Fails a case whatever it
/// expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Breakdown(pub String);

/// The answer to a call: what it gives, or the implementation's refusal.
pub type Answer<T> = Result<Result<T, Failure>, Breakdown>;

/// A model with the bytes of its pools.
#[derive(Clone, Debug)]
pub struct ModelWithPools {
    /// The model.
    pub model: Arc<Model>,
    /// The bytes of its pools.
    pub pools: Arc<Vec<Vec<u8>>>,
}

/// An implementation of the HAL.
pub trait Implementation {
    /// A model made ready to execute.
    type Prepared: PreparedModel;

    /// The forms of execution it has, at least one.
    fn forms(&self) -> &[Form];

    /// The HAL version whose rules it keeps. One before 1.2 finds no dimensions of outputs, and one before
    /// 1.3 has no signed bytes.
    fn hal_version(&self) -> HalVersion {
        HalVersion::LATEST
    }

    /// HAL `getSupportedOperations`: one answer for each operation of the main graph.
    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>>;

    /// HAL `prepareModel`.
    fn prepare(&mut self, model: &ModelWithPools) -> Answer<Self::Prepared>;
}

/// A prepared model.
pub trait PreparedModel {
    /// Executes once.
    ///
    /// # Errors
    /// Only what is no answer of the HAL's; a failed execution is a result.
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown>;
}

/// Arguments of one execution. The request has two pools: the first holds the inputs, the second takes the
/// outputs.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionCall<'a> {
    /// How to execute.
    pub form: Form,
    /// Where each argument is.
    pub request: &'a Request,
    /// The bytes of the first pool.
    pub inputs: &'a [u8],
    /// Size of the second pool.
    pub outputs: usize,
    /// Whether to measure.
    pub measure: MeasureTiming,
    /// The longest that a WHILE may take; the HAL's default if absent.
    pub loop_timeout: Option<Duration>,
}

/// What one execution gave.
#[derive(Clone, Debug)]
pub struct ExecutionAnswer {
    /// Status, shapes and timing.
    pub result: ExecutionResult,
    /// The bytes of the second pool afterwards.
    pub outputs: Vec<u8>,
}
