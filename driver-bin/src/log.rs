//! The log of a driver's processes: lines on standard error, for the service manager to keep.
//!
//! Contract: whoever logs waits for nobody. Lines go by a queue to a thread, which is started with the first
//! one and alone waits for whoever reads them. What the queue has no room for is dropped, and so is what one
//! client has logged too often. How many lines that were is a line of its own.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use nix::poll::PollFlags;
use nnhal::diag::tags;
use nnhal_os::poll;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::filter::{FilterExt, LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;

/// Lines that wait to be written. By default only what is wrong is logged, so that this is minutes of it.
const MOST_LINES: usize = 1024;

/// The longest line, which a pipe that is ready takes at once. Texts that come from clients are shorter.
const MAX_LINE: usize = 4096;

/// The end of one that was cut.
const CUT: &[u8] = b"...\n";

/// Warnings of one client and kind in a second, and lines that are logged only where somebody asks for
/// details.
const MOST_IN_A_SECOND: u32 = 10;
const MOST_DETAILS_IN_A_SECOND: u32 = 1000;

/// How many clients and kinds are told apart.
const MOST_KINDS: usize = 4096;

const SECOND: Duration = Duration::from_secs(1);

/// How long the end of a process waits for its last lines.
const LAST_WAIT: Duration = Duration::from_millis(500);

static LINES: LazyLock<Lines> = LazyLock::new(Lines::default);

/// A filter of NNAPI's tags, levels and modules.
pub(crate) fn filter(text: &str) -> Result<Targets, ParseError> {
    tags::directives(text).parse()
}

/// What [`tags::LOG_VARIABLE`] asks to log; warnings if it is not set or makes no sense.
pub(crate) fn of_environment() -> Targets {
    std::env::var(tags::LOG_VARIABLE)
        .ok()
        .and_then(|filter| self::filter(&filter).ok())
        .unwrap_or_else(|| Targets::new().with_default(Level::WARN))
}

/// Logs what `filter` selects from now on.
pub(crate) fn start(filter: &Targets) {
    let format = tracing_subscriber::fmt::layer()
        .with_writer(|| ToLines)
        .without_time()
        .with_ansi(false);
    // A binary that is more than a driver may log already.
    let _ = tracing_subscriber::registry()
        .with(format.with_filter(filter.clone().and(Limit::default())))
        .try_init();
}

/// Starts no thread from now on, for a process that must have one thread only. Lines wait.
pub(crate) fn hold() {
    LINES.is_held.store(true, Ordering::Relaxed);
}

/// Undoes [`hold`].
pub(crate) fn release() {
    LINES.release();
}

/// Which thread has panicked, and why.
pub(crate) fn describe_panic(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    format!(
        "thread {} panicked: {info}",
        thread.name().unwrap_or("without a name")
    )
}

/// Gives the last lines of a process a moment to be written.
pub(crate) fn flush() {
    LINES.release();
    LINES.flush(Deadline::after(MonotonicClock.now(), LAST_WAIT));
    LINES.write_without_writer();
}

/// Writes a line that is no event, and waits for it as [`flush`] does.
pub(crate) fn say(text: &str) {
    LINES.push(format!("{text}\n").as_bytes());
    flush();
}

/// Lines on their way to standard error.
#[derive(Debug)]
struct Lines {
    waiting: ArrayQueue<Vec<u8>>,
    /// Lines that were put in there, and those that were taken out and written.
    queued: AtomicU64,
    written: AtomicU64,
    /// Lines that were dropped and not told of yet.
    dropped: AtomicU64,
    writer: Mutex<Option<Thread>>,
    /// Whether no thread may be started.
    is_held: AtomicBool,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            waiting: ArrayQueue::new(MOST_LINES),
            queued: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            writer: Mutex::new(None),
            is_held: AtomicBool::new(false),
        }
    }
}

impl Lines {
    fn push(&'static self, line: &[u8]) {
        if self.enqueue(line) {
            self.wake();
        } else {
            self.drop_one();
        }
    }

    fn enqueue(&self, line: &[u8]) -> bool {
        let kept = if line.len() > MAX_LINE {
            [&line[..MAX_LINE - CUT.len()], CUT].concat()
        } else {
            line.to_vec()
        };
        let has_room = self.waiting.push(kept).is_ok();
        if has_room {
            self.queued.fetch_add(1, Ordering::Release);
        }
        has_room
    }

    fn drop_one(&'static self) {
        if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            self.wake();
        }
    }

    /// Wakes the thread that writes, or starts it.
    fn wake(&'static self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = &*writer {
            return writer.unpark();
        }
        if self.is_held.load(Ordering::Relaxed) {
            return;
        }
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .stack_size(128 * 1024)
            .spawn(|| self.write_all());
        // Without one the lines wait for the next attempt.
        *writer = thread.ok().map(|thread| thread.thread().clone());
    }

    fn release(&'static self) {
        if self.is_held.swap(false, Ordering::Relaxed) && !self.waiting.is_empty() {
            self.wake();
        }
    }

    /// Writes what waits, as far as standard error takes it at once: of a process that ends, where the thread
    /// that writes could not be started, or is the one that the process ends for.
    fn write_without_writer(&self) {
        let stderr = std::io::stderr();
        let has_room = || poll::ready_now(stderr.as_fd(), PollFlags::POLLOUT);
        while has_room().is_ok_and(|ready| ready.contains(PollFlags::POLLOUT)) {
            let Some(line) = self.waiting.pop() else { return };
            self.write_line(&mut StandardError, &line);
        }
    }

    fn write_all(&self) {
        let mut told = None;
        loop {
            self.write_waiting(&mut StandardError, &mut told);
            if self.dropped.load(Ordering::Relaxed) == 0 {
                std::thread::park();
            } else {
                std::thread::park_timeout(SECOND);
            }
        }
    }

    /// Writes the lines that there are, and once a second how many there are not.
    fn write_waiting(&self, out: &mut impl Write, told: &mut Option<TimePoint>) {
        while let Some(line) = self.waiting.pop() {
            self.write_line(out, &line);
        }
        let now = MonotonicClock.now();
        if told.is_some_and(|told| now.saturating_since(told) < SECOND) {
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let _ = writeln!(out, " WARN driver: {dropped} lines of the log were dropped");
            *told = Some(now);
        }
    }

    fn write_line(&self, out: &mut impl Write, line: &[u8]) {
        // Without a reader there is nobody to tell.
        let _ = out.write_all(line);
        self.written.fetch_add(1, Ordering::Release);
    }

    fn flush(&self, deadline: Deadline) {
        let queued = self.queued.load(Ordering::Acquire);
        while self.written.load(Ordering::Acquire) < queued && !deadline.is_past(MonotonicClock.now()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Writes the lines of the formatter, each at once, as it writes them.
#[derive(Debug)]
struct ToLines;

impl Write for ToLines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        LINES.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Standard error without the lock of the standard library's, which whoever writes would hold while it waits.
#[derive(Debug)]
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let stderr = std::io::stderr();
        loop {
            match nix::unistd::write(stderr.as_fd(), bytes).map_err(std::io::Error::from) {
                // Others may have set it so.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let ready = poll::one(stderr.as_fd(), PollFlags::POLLOUT, Deadline::NONE);
                    ready.map_err(|error| std::io::Error::from(error.errno))?;
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets so many lines of one client and kind through in a second.
#[derive(Debug, Default)]
struct Limit(Mutex<HashMap<(Identifier, Option<u64>), Second>>);

/// What was let through since when.
#[derive(Clone, Copy, Debug)]
struct Second {
    since: TimePoint,
    lines: u32,
}

impl Limit {
    fn lets_through(&self, kind: Identifier, client: Option<u64>, most: u32) -> bool {
        let now = MonotonicClock.now();
        let is_over = |second: &Second| now.saturating_since(second.since) >= SECOND;
        let fresh = Second { since: now, lines: 0 };
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= MOST_KINDS {
            kinds.retain(|_, second| !is_over(second));
        }
        // Those for whom there is no room are one client together.
        let client = client.filter(|_| kinds.len() < MOST_KINDS);
        let second = kinds.entry((kind, client)).or_insert(fresh);
        if is_over(second) {
            *second = fresh;
        }
        second.lines += 1;
        second.lines <= most
    }
}

impl<S> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut client = Client(None);
        event.record(&mut client);
        let most = if *event.metadata().level() <= Level::WARN {
            MOST_IN_A_SECOND
        } else {
            MOST_DETAILS_IN_A_SECOND
        };
        let is_let_through = self.lets_through(event.metadata().callsite(), client.0, most);
        if !is_let_through {
            LINES.drop_one();
        }
        is_let_through
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

/// Whose client an event is about, where the process has several users' clients.
struct Client(Option<u64>);

impl Visit for Client {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "uid" {
            self.0 = Some(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_queue_has_no_room_for_is_counted() {
        let lines: &'static Lines = Box::leak(Box::default());
        // Nobody writes yet.
        *lines.writer.lock().unwrap() = Some(std::thread::current());
        for number in 0..MOST_LINES + 7 {
            lines.push(format!("{number}\n").as_bytes());
        }
        let mut out = Vec::new();
        lines.write_waiting(&mut out, &mut None);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), MOST_LINES + 1);
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last, [" WARN driver: 7 lines of the log were dropped", "1023"]);
        lines.flush(Deadline::NONE);
    }

    #[test]
    fn long_line_is_cut() {
        let lines: &'static Lines = Box::leak(Box::default());
        *lines.writer.lock().unwrap() = Some(std::thread::current());
        lines.push(&[b'x'; 2 * MAX_LINE]);
        let mut out = Vec::new();
        lines.write_waiting(&mut out, &mut None);
        assert_eq!(out.len(), MAX_LINE);
        assert!(out.ends_with(b"x...\n"));
    }

    #[test]
    fn no_client_fills_the_log_and_none_takes_another_ones_place() {
        static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        struct Kept;
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                WRITTEN.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let layer = tracing_subscriber::fmt::layer().with_writer(|| Kept);
        let filter = Targets::new().with_default(Level::INFO).and(Limit::default());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..5 * MOST_IN_A_SECOND {
                for uid in [1_u32, 2] {
                    tracing::warn!(uid, "loud");
                }
                tracing::warn!("of no client");
                tracing::info!("a detail");
                tracing::debug!("not asked for");
            }
            tracing::warn!(uid = 3_u32, "another kind");
        });
        let text = String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap();
        let count = |part: &str| text.matches(part).count();
        // A slow machine may take more than a second for it.
        let most = 5 * MOST_IN_A_SECOND as usize;
        for part in ["uid=1", "uid=2", "of no client"] {
            assert!((MOST_IN_A_SECOND as usize..most).contains(&count(part)), "{text}");
        }
        assert_eq!(count("a detail"), most);
        assert_eq!((count("another kind"), count("not asked for")), (1, 0));
    }
}
