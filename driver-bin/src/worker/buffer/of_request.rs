//! The device buffers that a request names: held while it runs, or known for as long as the client frees none
//! of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nnhal_hal::Failure;
use nnhal_hal::validate::Direction;

use super::Buffer;

/// The device buffers of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestBuffers(Option<Arc<BufferList>>);

/// Device buffers by the inputs and outputs of a request that they are.
#[derive(Debug, Default)]
pub(super) struct BufferList {
    inputs: Vec<(usize, Arc<Buffer>)>,
    outputs: Vec<(usize, Arc<Buffer>)>,
    registered: Weak<RegisteredLists>,
}

impl BufferList {
    /// Output buffers are written by one execution, in one place.
    pub(super) fn add(
        &mut self,
        index: usize,
        direction: Direction,
        buffer: Arc<Buffer>,
    ) -> Result<(), String> {
        let is_same = |(_, other): &(usize, Arc<Buffer>)| Arc::ptr_eq(other, &buffer);
        let token = buffer.token;
        match direction {
            Direction::Input => self.inputs.push((index, buffer)),
            Direction::Output if self.inputs.iter().any(is_same) => {
                return Err(format!("device buffer {token} is an input of the same request"));
            }
            Direction::Output if self.outputs.iter().any(is_same) => {
                return Err(format!(
                    "device buffer {token} is another output of the same request"
                ));
            }
            Direction::Output => self.outputs.push((index, buffer)),
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }

    fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        let both = self.inputs.iter().chain(&self.outputs);
        both.map(|(_, buffer)| buffer)
    }

    fn are_alive(&self) -> bool {
        self.buffers()
            .all(|buffer| !buffer.is_freed.load(Ordering::Acquire))
    }
}

impl RequestBuffers {
    /// Those of a list, which `registered` is to keep if the request is kept.
    pub(super) fn new(mut list: BufferList, registered: &Arc<RegisteredLists>) -> RequestBuffers {
        if list.is_empty() {
            return RequestBuffers::default();
        }
        list.registered = Arc::downgrade(registered);
        RequestBuffers(Some(Arc::new(list)))
    }

    /// The buffer of input `index`.
    pub(crate) fn input(&self, index: usize) -> Option<&Buffer> {
        named(&self.0.as_ref()?.inputs, index)
    }

    /// The buffer of output `index`.
    pub(crate) fn output(&self, index: usize) -> Option<&Buffer> {
        named(&self.0.as_ref()?.outputs, index)
    }

    /// After a failure: what was to be written holds nothing.
    #[cold]
    pub(crate) fn invalidate_outputs(&self) {
        for (_, buffer) in self.0.iter().flat_map(|list| &list.outputs) {
            buffer.set_content(None);
        }
    }

    /// The same for a request that is kept: it keeps no buffer alive that the client has freed.
    pub(crate) fn downgrade(&self) -> WeakBuffers {
        let Some(list) = &self.0 else {
            return WeakBuffers::default();
        };
        let weak = |buffers: &[(usize, Arc<Buffer>)]| {
            let buffers = buffers.iter().map(|(_, buffer)| WeakBuffer {
                token: buffer.token,
                buffer: Arc::downgrade(buffer),
            });
            buffers.collect()
        };
        let buffers = WeakBuffers {
            list: Arc::downgrade(list),
            inputs: weak(&list.inputs),
            outputs: weak(&list.outputs),
        };
        if let Some(registered) = list.registered.upgrade() {
            registered.keep(list);
        }
        buffers
    }

    /// Lets go of the buffers.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

fn named(buffers: &[(usize, Arc<Buffer>)], index: usize) -> Option<&Buffer> {
    let found = buffers.iter().find(|(at, _)| *at == index);
    found.map(|(_, buffer)| &**buffer)
}

/// The device buffers of those requests that are registered with bursts, as long as the client has freed none
/// of a request's: a burst takes and drops all of a request's as one. One by one that is two locked
/// instructions for each, which wait for each other.
#[derive(Debug, Default)]
pub(super) struct RegisteredLists(Mutex<Vec<Arc<BufferList>>>);

impl RegisteredLists {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BufferList>>> {
        // Only whole values are put in there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a list of which there is a [`WeakBuffers`], and lets go of those of which there is none any
    /// more.
    fn keep(&self, list: &Arc<BufferList>) {
        let mut lists = self.lock();
        lists.retain(|list| Arc::weak_count(list) > 0);
        // Who frees a buffer says so before it looks for lists.
        if list.are_alive() {
            lists.push(Arc::clone(list));
        }
    }

    /// Lets go of the lists with a buffer that was freed.
    pub(super) fn forget(&self, freed: &Arc<Buffer>) {
        let is_of = |list: &Arc<BufferList>| list.buffers().any(|buffer| Arc::ptr_eq(buffer, freed));
        self.lock().retain(|list| !is_of(list));
    }
}

/// The device buffers of a request that is registered with a burst. They stay the client's to free.
#[derive(Debug, Default)]
pub(crate) struct WeakBuffers {
    list: Weak<BufferList>,
    inputs: Vec<WeakBuffer>,
    outputs: Vec<WeakBuffer>,
}

#[derive(Debug)]
struct WeakBuffer {
    token: u32,
    buffer: Weak<Buffer>,
}

impl WeakBuffer {
    fn is_alive(&self) -> bool {
        let buffer = self.buffer.upgrade();
        buffer.is_some_and(|buffer| !buffer.is_freed.load(Ordering::Acquire))
    }
}

impl WeakBuffers {
    #[inline]
    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }

    /// All of them, if the client has freed none.
    #[inline]
    fn upgrade(&self) -> Option<Arc<BufferList>> {
        self.list.upgrade().filter(|list| list.are_alive())
    }

    /// Puts the buffers, which must all be there still, into `buffers`.
    #[inline]
    pub(crate) fn upgrade_into(&self, buffers: &mut RequestBuffers) -> Result<(), Failure> {
        buffers.clear();
        if self.is_empty() {
            return Ok(());
        }
        buffers.0 = self.upgrade();
        if buffers.0.is_some() {
            Ok(())
        } else {
            Err(self.freed())
        }
    }

    #[cold]
    fn freed(&self) -> Failure {
        let mut buffers = self.inputs.iter().chain(&self.outputs);
        let freed = buffers.find(|buffer| !buffer.is_alive());
        Failure::invalid_argument(format!(
            "device buffer {} was freed; register the request anew",
            freed.map_or(0, |buffer| buffer.token)
        ))
    }

    /// After a failure: what was to be written holds nothing.
    #[cold]
    pub(crate) fn invalidate_outputs(&self) {
        for buffer in self.outputs.iter().filter_map(|output| output.buffer.upgrade()) {
            buffer.set_content(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use nnhal_hal::Shape;

    use super::*;

    fn buffer(token: u32) -> Arc<Buffer> {
        Arc::new(Buffer {
            token,
            roles: Vec::new(),
            element_size: 4,
            is_tensor: true,
            limit: 0,
            declared: Shape::SCALAR,
            content: Mutex::default(),
            is_freed: AtomicBool::new(false),
            permit: None,
        })
    }

    /// Those of a request that reads the first and writes the second.
    fn request([read, written]: [&Arc<Buffer>; 2], registered: &Arc<RegisteredLists>) -> RequestBuffers {
        let mut list = BufferList::default();
        list.add(0, Direction::Input, Arc::clone(read)).unwrap();
        list.add(1, Direction::Output, Arc::clone(written)).unwrap();
        RequestBuffers::new(list, registered)
    }

    fn are_alive(known: &WeakBuffers) -> bool {
        known.upgrade_into(&mut RequestBuffers::default()).is_ok()
    }

    fn free(buffer: &Arc<Buffer>, registered: &RegisteredLists) {
        buffer.is_freed.store(true, Ordering::Release);
        registered.forget(buffer);
    }

    #[test]
    fn registered_requests_hold_their_buffers_while_they_run_and_until_one_is_freed() {
        let registered = Arc::default();
        let [first, second] = [buffer(7), buffer(8)];
        let known = request([&first, &second], &registered).downgrade();
        let mut running = RequestBuffers::default();
        known.upgrade_into(&mut running).unwrap();
        assert!(are_alive(&known));
        assert_eq!(running.input(0).map(|buffer| buffer.token), Some(7));
        assert_eq!(running.output(1).map(|buffer| buffer.token), Some(8));
        assert!(running.output(0).is_none());
        free(&second, &registered);
        assert!(!are_alive(&known));
        assert!(Arc::strong_count(&first) > 1, "the request is still running");
        let failure = known.upgrade_into(&mut running).unwrap_err();
        assert!(failure.detail.contains("device buffer 8 was freed"), "{failure}");
        assert_eq!([&first, &second].map(Arc::strong_count), [1, 1]);
    }

    #[test]
    fn lists_of_requests_that_are_registered_no_more_are_let_go_of() {
        let registered = Arc::default();
        let [first, second, third] = [buffer(1), buffer(2), buffer(3)];
        drop(request([&first, &second], &registered).downgrade());
        let known = request([&second, &third], &registered).downgrade();
        assert_eq!(Arc::strong_count(&first), 1);
        assert!(are_alive(&known) && registered.lock().len() == 1);
    }

    #[test]
    fn requests_whose_buffers_were_freed_before_they_were_registered_are_not_kept() {
        let registered = Arc::default();
        let [first, second] = [buffer(1), buffer(2)];
        let checked = request([&first, &second], &registered);
        free(&first, &registered);
        let known = checked.downgrade();
        drop(checked);
        assert!(!are_alive(&known));
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn requests_without_buffers_have_none_and_lack_none() {
        let none = RequestBuffers::new(BufferList::default(), &Arc::default());
        let known = none.downgrade();
        let mut running = RequestBuffers::default();
        assert!(are_alive(&known) && known.upgrade_into(&mut running).is_ok());
        assert!(running.input(0).is_none() && running.output(0).is_none());
    }
}
