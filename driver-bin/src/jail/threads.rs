//! The threads of a process that enters its jail.
//!
//! Landlock, capabilities and namespaces are each thread's own. A thread that is there before the process
//! enters its jail keeps what it has, and no kernel lets another thread take all of it away. So there must be
//! none.

use std::path::Path;
use std::time::Duration;

use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// How long a thread that has been joined may take to go. The kernel lists it for a moment longer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Where the kernel lists the threads of this process.
const TASKS: &str = "/proc/self/task";

/// The threads of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Threads(Vec<String>);

impl Threads {
    /// Those that there are now.
    pub(crate) fn now() -> std::io::Result<Threads> {
        let entries = std::fs::read_dir(TASKS)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect::<std::io::Result<_>>().map(Threads)
    }

    /// The names of threads that have been started since then, once those that end have had the time for it.
    pub(crate) fn started_since(&self) -> std::io::Result<Vec<String>> {
        let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
        loop {
            let Threads(now) = Threads::now()?;
            let further: Vec<_> = now
                .into_iter()
                .filter(|thread| !self.0.contains(thread))
                .collect();
            if further.is_empty() || deadline.is_past(MonotonicClock.now()) {
                return Ok(further.iter().filter_map(|thread| name_of(thread)).collect());
            }
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// What a thread calls itself; `None` if it has ended meanwhile.
fn name_of(thread: &str) -> Option<String> {
    let name = std::fs::read_to_string(Path::new(TASKS).join(thread).join("comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_that_stay_are_named_and_those_that_end_are_not() {
        let threads = Threads::now().unwrap();
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        named("ends").spawn(|| ()).unwrap().join().unwrap();
        let (end, held) = mpsc::channel::<()>();
        let stays = named("stays").spawn(move || held.recv()).unwrap();
        // Other tests of this process have threads of their own.
        let started = threads.started_since().unwrap();
        assert!(started.contains(&"stays".to_owned()), "{started:?}");
        assert!(!started.contains(&"ends".to_owned()), "{started:?}");
        drop(end);
        let _ = stays.join();
    }
}
