//! A long stream of cells from one process to another, each of which is checked: packets of one to eight
//! cells whose every word says where in the stream it belongs, through the largest ring, both sides falling
//! asleep and waking as it comes. A word in the wrong place, twice or never ends it with an error.
//!
//! `cargo bench --bench cells -- [--cells N] [--json FILE]`; 1,000,000,000 cells without a number.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use nnhal::fmq::{ChannelEnd, ChannelSize, MAX_CELLS, PAYLOAD_BYTES, SendError, WaitSettings};
use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{Caller, OtherSide, Role, TIMEOUT};
use nnhal_bench::{Error, Result, program};
use nnhal_os::cpu;
use nnhal_os::shm::SharedMemory;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use serde::Serialize;

const NAME: &str = "cells";
const ROLES: [Role; 1] = [(NAME, check)];
const SIZE: ChannelSize = ChannelSize {
    outgoing: MAX_CELLS,
    incoming: 4,
};
const WORDS: usize = PAYLOAD_BYTES / 8;
/// The longest packet, in cells.
const LONGEST: u64 = 8;
/// Polls of a full ring between two looks at the clock.
const POLLS: u32 = 1 << 14;

/// What it is told.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many cells.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    cells: u64,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    cells: u64,
    packets: u64,
    seconds: f64,
    cells_per_second: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}, kernel {}, load before {}",
            self.conditions.cpu, self.conditions.kernel, self.conditions.load_before
        )?;
        writeln!(
            f,
            "{} cells in {} packets, all of them right: {:.1} s, {:.1} million cells per second",
            self.cells,
            self.packets,
            self.seconds,
            self.cells_per_second / 1e6
        )
    }
}

fn main() -> ExitCode {
    program::run(&ROLES, measure)
}

fn measure(options: Options) -> Result<()> {
    let (mut end, memory) = ChannelEnd::create(SIZE, WaitSettings::default())?;
    let other = program::other_sides().start(NAME, &options.cells.to_ne_bytes(), &[memory.as_fd()])?;
    let mut conditions = Conditions::of_this_machine(1);
    "normal, not pinned".clone_into(&mut conditions.scheduling);
    let start = Instant::now();
    let packets = send_all(&mut end, options.cells)?;
    let counted = counted(&other)?;
    let seconds = start.elapsed().as_secs_f64();
    if counted != options.cells {
        return Err(Error::Row {
            what: NAME.to_owned(),
            reason: format!("{counted} cells arrived of {}", options.cells),
        });
    }
    let report = Report {
        conditions,
        cells: options.cells,
        packets,
        seconds,
        cells_per_second: options.cells as f64 / seconds,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

/// Sends the stream; returns how many packets it took.
fn send_all(end: &mut ChannelEnd, cells: u64) -> Result<u64> {
    let mut words = [0_u64; WORDS * LONGEST as usize];
    let (mut position, mut packets) = (0, 0);
    while position < cells {
        let length = length_at(packets).min(cells - position);
        let used = &mut words[..length as usize * WORDS];
        for (word, index) in used.iter_mut().zip(position * WORDS as u64..) {
            *word = word_at(index);
        }
        send(end, bytes_of(used).as_slice())?;
        position += length;
        packets += 1;
    }
    Ok(packets)
}

/// Sends a packet as soon as there is room, which the other side's falling silent ends.
fn send(end: &mut ChannelEnd, bytes: &[u8]) -> Result<()> {
    let mut since = None;
    loop {
        for _ in 0..POLLS {
            match end.producer.send(bytes) {
                Err(SendError::Full) => cpu::relax(),
                other => return Ok(other?),
            }
        }
        let since = since.get_or_insert_with(Instant::now);
        if since.elapsed() > TIMEOUT {
            return Err(SendError::Full.into());
        }
        std::thread::yield_now();
    }
}

/// How many cells the other side found right.
fn counted(other: &OtherSide) -> Result<u64> {
    let bytes = other.receive()?;
    let bytes = bytes.try_into().map_err(|_| Error::wrong_answer(NAME))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The other side: receives the stream and looks at every word.
fn check() -> Result<()> {
    let (caller, mut setup) = Caller::setup()?;
    let bytes = setup.bytes.as_slice().try_into();
    let cells = u64::from_ne_bytes(bytes.map_err(|_| Error::wrong_answer(NAME))?);
    let size = ChannelEnd::memory_size(SIZE)?;
    let memory = SharedMemory::from_fd(setup.only_fd()?, size, size)?;
    let mut end = ChannelEnd::open(&memory, WaitSettings::default())?;
    let mut packet = end.consumer.new_packet();
    caller.say_ready()?;
    let (mut position, mut packets) = (0, 0);
    while position < cells {
        let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(30));
        for _ in 0..POLLS {
            end.consumer.receive(&mut packet, deadline)?;
            let length = length_at(packets).min(cells - position);
            check_packet(packet.bytes(), position, length)?;
            position += length;
            packets += 1;
            if position == cells {
                break;
            }
        }
    }
    caller.send(&position.to_ne_bytes())
}

fn check_packet(bytes: &[u8], position: u64, length: u64) -> Result<()> {
    let wrong = |reason: String| Error::Row {
        what: format!("the packet at cell {position}"),
        reason,
    };
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() as u64 != length * WORDS as u64 || !rest.is_empty() {
        return Err(wrong(format!("{} bytes instead of {length} cells", bytes.len())));
    }
    for (word, index) in words.iter().zip(position * WORDS as u64..) {
        let (found, expected) = (u64::from_ne_bytes(*word), word_at(index));
        if found != expected {
            return Err(wrong(format!(
                "word {index} of the stream is {found:#x}, not {expected:#x}"
            )));
        }
    }
    Ok(())
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// What a word of the stream holds: its index, mixed so that no two words near each other are alike (the
/// finisher of SplitMix64).
fn word_at(index: u64) -> u64 {
    let mixed = (index ^ (index >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// How many cells the packet with this number has; half of them have one.
fn length_at(packet: u64) -> u64 {
    let mixed = word_at(packet);
    if mixed & 1 == 0 {
        1
    } else {
        (mixed >> 1) % LONGEST + 1
    }
}
