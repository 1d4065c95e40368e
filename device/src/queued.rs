//! Executions that a device computes by itself, while the driver waits for a fence.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nnhal_hal::Failure;

use super::Control;

/// An execution that is put into a queue, for a device that computes on no thread of the driver's.
///
/// The driver gives the inputs, calls [`QueuedExecution::submit`], waits for the fence, and calls
/// [`QueuedExecution::collect`]. In between it calls nothing but [`QueuedExecution::cancel`]. It asks for a
/// checkpoint before, and waits with the request's deadline, so the device need do neither. Work of high
/// priority does not overtake what is in the device's queue.
pub trait QueuedExecution {
    /// Queues the work on the inputs that were given, and does not wait for it.
    ///
    /// Returns a fence: an eventfd, a `sync_file`, or any descriptor that becomes readable when the outputs
    /// are there or the work has failed. The driver closes it. A fence that does not come within the
    /// watchdog's limit is taken for work that hangs, and the worker is ended. The time in the queue counts.
    ///
    /// A descriptor that cannot be waited for is a failure of the device: the work is cancelled, and the
    /// execution is never used again. It may be dropped while the device still computes.
    ///
    /// Inputs that are read in place may be read until the fence comes.
    ///
    /// # Errors
    ///
    /// Nothing is queued then, and the driver has the execution let go of its inputs.
    fn submit(&mut self, control: &Control<'_>) -> Result<OwnedFd, Failure>;

    /// Hears that nobody wants the result any more, perhaps more than once. The fence must come all the same,
    /// as soon as the device has let go of the memory of this execution: the driver answers its client only
    /// then.
    fn cancel(&mut self);

    /// Takes what has come of the work, once for each fence that has come. Returns how long the hardware was
    /// busy, if it can tell; the driver takes the time until the fence otherwise.
    ///
    /// # Errors
    ///
    /// The outputs are undefined then.
    fn collect(&mut self) -> Result<Option<Duration>, Failure>;
}
