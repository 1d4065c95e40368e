//! Memory for tensors: aligned for every element type and for vector instructions, grown but never shrunk,
//! and refused instead of aborted when there is not enough.
//!
//! Large buffers have pages of their own and ask for huge ones. Weights that are read from the third-level
//! cache once in each execution, as those of recurrent cells are, otherwise wait for the addresses of their
//! pages: there are more of them than the processor remembers.

use std::ops::Range;
use std::sync::Arc;

use crate::shm::SealedBytes;
use memmap2::{Advice, MmapMut};

/// Alignment of every buffer, in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// The memory that an execution needs cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of memory cannot be had")]
pub struct OutOfMemory {
    /// What was asked for.
    pub bytes: usize,
}

/// Size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// From so many bytes of a huge page on it is used as a whole: what is beyond the end is at most half a
/// megabyte of each buffer.
const MOST_OF_HUGE: usize = HUGE / 4 * 3;

/// Zeros in pages of their own, huge ones if the system has them.
struct Pages {
    map: MmapMut,
    /// Where the first huge page starts.
    start: usize,
    length: usize,
}

impl Pages {
    /// So many bytes, rounded up to pages.
    fn new(length: usize) -> Result<Pages, OutOfMemory> {
        let failed = OutOfMemory { bytes: length };
        let rounded = |unit| length.checked_next_multiple_of(unit).ok_or(failed);
        let length = match rounded(HUGE)? {
            whole if whole - length <= HUGE - MOST_OF_HUGE => whole,
            _ => rounded(ALIGNMENT)?,
        };
        // What is beyond the last page that is used is never there.
        let total = length.checked_add(HUGE).ok_or(failed)?;
        let map = MmapMut::map_anon(total).map_err(|_| failed)?;
        let address = map.as_ptr() as usize;
        let start = address.next_multiple_of(HUGE) - address;
        // Without huge pages there are only small ones.
        let _ = map.advise_range(Advice::HugePage, start, length);
        Ok(Pages { map, start, length })
    }
}

/// Memory that is all initialised.
enum Memory {
    Lines(Vec<Line>),
    Pages(Pages),
}

impl Memory {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            Memory::Pages(pages) => &pages.map[pages.start..][..pages.length],
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Memory::Pages(pages) => &mut pages.map[pages.start..][..pages.length],
        }
    }

    #[inline]
    fn capacity(&self) -> usize {
        match self {
            Memory::Lines(lines) => lines.len() * ALIGNMENT,
            Memory::Pages(pages) => pages.length,
        }
    }
}

/// Bytes aligned to [`ALIGNMENT`].
pub struct AlignedBuffer {
    memory: Memory,
    length: usize,
}

impl Default for AlignedBuffer {
    fn default() -> Self {
        AlignedBuffer::new()
    }
}

impl Clone for AlignedBuffer {
    /// In the allocator's memory, whatever the size: there is nobody to tell that pages cannot be had.
    fn clone(&self) -> Self {
        let line = |bytes: &[u8]| {
            let mut line = Line([0; ALIGNMENT]);
            line.0[..bytes.len()].copy_from_slice(bytes);
            line
        };
        AlignedBuffer {
            memory: Memory::Lines(self.bytes().chunks(ALIGNMENT).map(line).collect()),
            length: self.length,
        }
    }
}

impl AlignedBuffer {
    /// A buffer without memory.
    #[must_use]
    pub const fn new() -> AlignedBuffer {
        AlignedBuffer {
            memory: Memory::Lines(Vec::new()),
            length: 0,
        }
    }

    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Result<AlignedBuffer, OutOfMemory> {
        let mut buffer = AlignedBuffer::new();
        buffer.resize(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Makes room for `length` bytes at once, for a buffer that grows to them step by step.
    pub fn reserve(&mut self, length: usize) -> Result<(), OutOfMemory> {
        if length <= self.capacity() {
            return Ok(());
        }
        if length >= MOST_OF_HUGE {
            let mut pages = Pages::new(length)?;
            let old = self.memory.bytes();
            pages.map[pages.start..][..old.len()].copy_from_slice(old);
            self.memory = Memory::Pages(pages);
            return Ok(());
        }
        if let Memory::Lines(lines) = &mut self.memory {
            let more = length.div_ceil(ALIGNMENT) - lines.len();
            lines
                .try_reserve_exact(more)
                .map_err(|_| OutOfMemory { bytes: length })?;
        }
        Ok(())
    }

    /// Sets the length. New bytes are zero when the buffer grows beyond what it ever held; others keep old
    /// values. Allocates only beyond [`AlignedBuffer::capacity`].
    #[inline]
    pub fn resize(&mut self, length: usize) -> Result<(), OutOfMemory> {
        if length > self.capacity() {
            self.grow(length)?;
        }
        self.length = length;
        Ok(())
    }

    /// Sets the length if that needs no more memory; says whether it did.
    #[inline]
    pub fn resize_within(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity();
        if fits {
            self.length = length;
        }
        fits
    }

    #[inline(never)]
    fn grow(&mut self, length: usize) -> Result<(), OutOfMemory> {
        self.reserve(length)?;
        if let Memory::Lines(lines) = &mut self.memory {
            lines.resize(length.div_ceil(ALIGNMENT), Line([0; ALIGNMENT]));
        }
        Ok(())
    }

    /// Has the system give all pages now that it otherwise gives when they are used first.
    pub fn touch(&mut self) {
        if let Memory::Pages(pages) = &self.memory {
            // A system that cannot gives them when they are used.
            let _ = pages
                .map
                .advise_range(Advice::PopulateWrite, pages.start, pages.length);
        }
    }

    /// Bytes that the buffer can hold without allocating.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// The contents.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.length]
    }

    /// The contents, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[..self.length]
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Memory that nobody changes any more: this process's own, or memory that processes share.
#[derive(Clone, Debug)]
enum Unchanging {
    Buffer(Arc<AlignedBuffer>),
    Sealed(Arc<SealedBytes>),
}

impl Unchanging {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Unchanging::Buffer(buffer) => buffer.bytes(),
            Unchanging::Sealed(sealed) => sealed.bytes(),
        }
    }
}

impl Default for Unchanging {
    fn default() -> Self {
        Unchanging::Buffer(Arc::default())
    }
}

/// A part of memory that is shared, by threads or by processes, and that nobody changes any more. It begins
/// at a multiple of [`ALIGNMENT`].
#[derive(Clone, Debug, Default)]
pub struct AlignedSlice {
    memory: Unchanging,
    start: usize,
    length: usize,
}

impl AlignedSlice {
    /// The bytes `range` of a buffer; `None` if they are not all there, or do not begin at a multiple of
    /// [`ALIGNMENT`].
    #[must_use]
    pub fn new(buffer: Arc<AlignedBuffer>, range: Range<usize>) -> Option<AlignedSlice> {
        AlignedSlice::part(Unchanging::Buffer(buffer), range)
    }

    /// The bytes `range` of memory that processes share, by the same rules.
    #[must_use]
    pub fn sealed(bytes: Arc<SealedBytes>, range: Range<usize>) -> Option<AlignedSlice> {
        AlignedSlice::part(Unchanging::Sealed(bytes), range)
    }

    fn part(memory: Unchanging, range: Range<usize>) -> Option<AlignedSlice> {
        let length = memory.bytes().get(range.clone())?.len();
        range.start.is_multiple_of(ALIGNMENT).then_some(AlignedSlice {
            memory,
            start: range.start,
            length,
        })
    }

    /// The first `length` bytes, and what follows from the next multiple of [`ALIGNMENT`] on; `None` if there
    /// are not so many.
    #[must_use]
    pub fn split(self, length: usize) -> Option<(AlignedSlice, AlignedSlice)> {
        if length > self.length {
            return None;
        }
        let rest = length.next_multiple_of(ALIGNMENT).min(self.length);
        let after = AlignedSlice {
            memory: self.memory.clone(),
            start: (self.start + rest).next_multiple_of(ALIGNMENT),
            length: self.length - rest,
        };
        Some((AlignedSlice { length, ..self }, after))
    }

    /// The contents.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.memory
            .bytes()
            .get(self.start..self.start + self.length)
            .unwrap_or_default()
    }
}

impl From<AlignedBuffer> for AlignedSlice {
    fn from(buffer: AlignedBuffer) -> AlignedSlice {
        Arc::new(buffer).into()
    }
}

impl From<Arc<AlignedBuffer>> for AlignedSlice {
    fn from(buffer: Arc<AlignedBuffer>) -> AlignedSlice {
        AlignedSlice {
            start: 0,
            length: buffer.bytes().len(),
            memory: Unchanging::Buffer(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::shm::{SealedBytes, SharedMemory};

    use super::{ALIGNMENT, AlignedBuffer, AlignedSlice, HUGE, MOST_OF_HUGE};

    #[test]
    fn slices_begin_on_lines_and_end_with_their_buffer() {
        let bytes: Vec<u8> = (0..200).collect();
        let buffer = Arc::new(AlignedBuffer::copy_of(&bytes).unwrap());
        let slice = |range| AlignedSlice::new(Arc::clone(&buffer), range);
        assert!(slice(1..2).is_none() && slice(64..201).is_none());
        assert_eq!(slice(200..200).map(|empty| empty.bytes().len()), None);
        let (first, rest) = slice(64..200).unwrap().split(3).unwrap();
        assert_eq!(first.bytes(), [64, 65, 66]);
        assert_eq!(rest.bytes(), &bytes[128..]);
        let (all, none) = rest.clone().split(72).unwrap();
        assert_eq!((all.bytes(), none.bytes().len()), (&bytes[128..], 0));
        assert!(rest.split(73).is_none());
        assert!(none.split(0).is_some());
    }

    #[test]
    fn slices_of_sealed_memory_are_like_those_of_buffers() {
        let parts: [&[u8]; 2] = [&[5; 100], &[6; 30]];
        let memory = SharedMemory::create_sealed_aligned(&parts, ALIGNMENT as u64).unwrap();
        let bytes = Arc::new(SealedBytes::map(&memory).unwrap());
        let slice = |range| AlignedSlice::sealed(Arc::clone(&bytes), range);
        assert!(slice(0..193).is_none() && slice(1..2).is_none());
        let (first, rest) = slice(0..192).unwrap().split(100).unwrap();
        assert_eq!((first.bytes(), rest.bytes().len()), (parts[0], 64));
        assert_eq!(rest.split(30).unwrap().0.bytes(), parts[1]);
        assert_eq!(first.bytes().as_ptr() as usize % ALIGNMENT, 0);
    }

    #[test]
    fn buffers_are_aligned_and_keep_their_capacity() {
        let mut buffer = AlignedBuffer::copy_of(&[1, 2, 3]).unwrap();
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        buffer.resize(100).unwrap();
        assert_eq!(&buffer.bytes()[..4], &[1, 2, 3, 0]);
        buffer.resize(1).unwrap();
        assert_eq!(buffer.capacity(), 128);
    }

    #[test]
    fn large_buffers_are_like_small_ones() {
        let mut buffer = AlignedBuffer::copy_of(&[7; 1000]).unwrap();
        for length in [MOST_OF_HUGE - 1, MOST_OF_HUGE, 2 * HUGE + 1, 4 * HUGE - 5] {
            let old = buffer.bytes().len();
            buffer.resize(length).unwrap();
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.bytes().len(), length);
            assert!(buffer.capacity() >= length && buffer.capacity() - length <= HUGE / 4);
            assert!(buffer.bytes()[..old].iter().all(|byte| *byte == 7));
            assert!(buffer.bytes()[old..].iter().all(|byte| *byte == 0));
            buffer.bytes_mut()[old..].fill(7);
        }
        let capacity = buffer.capacity();
        buffer.resize(3).unwrap();
        buffer.resize(HUGE).unwrap();
        assert_eq!((buffer.capacity(), buffer.bytes()[HUGE - 1]), (capacity, 7));
        assert_eq!(buffer.clone().bytes(), buffer.bytes());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(AlignedBuffer::new().resize(usize::MAX / 2).is_err());
        assert!(AlignedBuffer::new().resize(usize::MAX).is_err());
    }
}
