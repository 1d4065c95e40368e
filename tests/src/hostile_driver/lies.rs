//! What a lie is made of.

use std::fs::File;
use std::os::fd::OwnedFd;

use nnhal_conformance::generator::choices::Random;
use nnhal_hal::OutputShape;
use nnhal_os::{eventfd, memfd};

/// True once in so many times.
pub(super) fn once_in(random: &mut Random, times: u32) -> bool {
    random.below(times) == 0
}

/// A number that programs trip over, or any other.
pub(super) fn odd_number(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 63,
        3 => u64::from(u32::MAX),
        4 => 1 << 32,
        5 => u64::from(random.below(70_000)),
        6..8 => u64::from(random.below(4)),
        _ => random.bits(),
    }
}

/// A descriptor of some kind that is not expected.
pub(super) fn odd_fd(random: &mut Random) -> OwnedFd {
    let fd = match random.below(9) {
        0 => std::io::pipe().map(|(read, _)| read.into()),
        1 => std::io::pipe().map(|(_, write)| write.into()),
        2 => File::open("/dev/null").map(Into::into),
        3 => File::open("/").map(Into::into),
        4 => tempfile::tempfile().map(Into::into),
        5 => std::os::unix::net::UnixStream::pair().map(|(left, _)| left.into()),
        6 => {
            let fd = memfd::create(c"nnhal-hostile").expect("a memfd");
            let _ = memfd::set_size(&fd, u64::from(random.below(9000)));
            Ok(fd)
        }
        7 => {
            let fd = eventfd::create().expect("an eventfd");
            let _ = eventfd::add(&fd, 2);
            Ok(fd)
        }
        _ => Ok(memfd::create(c"nnhal-hostile").expect("a memfd")),
    };
    fd.expect("a descriptor")
}

/// Shapes of outputs: how many, of what rank and how large is a lie now and then.
pub(super) fn shapes(random: &mut Random, outputs: usize) -> Vec<OutputShape> {
    let count = match random.below(8) {
        0 => random.below(9) as usize,
        _ => outputs,
    };
    let shape = |random: &mut Random| OutputShape {
        dimensions: match random.below(4) {
            0 => (0..random.below(9)).map(|_| odd_number(random) as u32).collect(),
            _ => vec![4],
        },
        is_sufficient: !once_in(random, 6),
    };
    (0..count).map(|_| shape(random)).collect()
}

/// Changes bytes.
pub(super) fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    let length = bytes.len() as u32;
    if length == 0 {
        return;
    }
    match random.below(5) {
        0 => bytes.truncate(random.below(length) as usize),
        1 => bytes.extend((0..=random.below(40)).map(|_| random.bits() as u8)),
        2 | 3 => {
            for _ in 0..=random.below(4) {
                bytes[random.below(length) as usize] ^= 1 << random.below(8);
            }
        }
        _ => {
            let number = odd_number(random).to_le_bytes();
            let size = [4, 8][random.below(2) as usize].min(bytes.len());
            let at = random.below(length - size as u32 + 1) as usize;
            bytes[at..at + size].copy_from_slice(&number[..size]);
        }
    }
}
