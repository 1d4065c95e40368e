//! Memory for tensors: aligned for every element type and for vector instructions, grown but never shrunk, and
//! refused instead of aborted when there is not enough.

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

/// Bytes aligned to [`ALIGNMENT`].
#[derive(Clone, Default)]
pub struct AlignedBuffer {
    lines: Vec<Line>,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer without memory.
    #[must_use]
    pub const fn new() -> AlignedBuffer {
        AlignedBuffer {
            lines: Vec::new(),
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

    /// Sets the length. New bytes are zero when the buffer grows beyond what it ever held; others keep old values.
    /// Allocates only beyond [`AlignedBuffer::capacity`].
    pub fn resize(&mut self, length: usize) -> Result<(), OutOfMemory> {
        let lines = length.div_ceil(ALIGNMENT);
        if lines > self.lines.len() {
            self.lines
                .try_reserve_exact(lines - self.lines.len())
                .map_err(|_| OutOfMemory { bytes: length })?;
            self.lines.resize(lines, Line([0; ALIGNMENT]));
        }
        self.length = length;
        Ok(())
    }

    /// Bytes that the buffer can hold without allocating.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lines.len() * ALIGNMENT
    }

    /// The contents.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.length]
    }

    /// The contents, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.length]
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Memory for a kernel's intermediate values, kept from one execution to the next. Contents are what was left there.
#[derive(Debug, Default)]
pub struct Scratch {
    buffer: AlignedBuffer,
}

impl Scratch {
    /// `N` slices of elements of type `T`, aligned, of these lengths.
    pub fn carve<T: bytemuck::Pod, const N: usize>(
        &mut self,
        lengths: [usize; N],
    ) -> Result<[&mut [T]; N], OutOfMemory> {
        let size = size_of::<T>();
        let bytes_of = |length: usize| {
            length
                .checked_mul(size)
                .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
                .ok_or(OutOfMemory { bytes: usize::MAX })
        };
        let mut total = 0_usize;
        for length in lengths {
            total = total
                .checked_add(bytes_of(length)?)
                .ok_or(OutOfMemory { bytes: usize::MAX })?;
        }
        self.buffer.resize(total)?;
        let mut rest = self.buffer.bytes_mut();
        let mut parts = lengths.map(|_| Default::default());
        for (part, length) in parts.iter_mut().zip(lengths) {
            let (head, tail) = rest.split_at_mut(bytes_of(length)?);
            *part = bytemuck::cast_slice_mut(&mut head[..length * size]);
            rest = tail;
        }
        Ok(parts)
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.buffer = AlignedBuffer::new();
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, AlignedBuffer, Scratch};

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
    fn absurd_sizes_are_refused() {
        assert!(AlignedBuffer::new().resize(usize::MAX / 2).is_err());
        assert!(Scratch::default().carve::<f32, 1>([usize::MAX / 2]).is_err());
    }

    #[test]
    fn carved_parts_do_not_overlap() {
        let mut scratch = Scratch::default();
        let [first, second] = scratch.carve::<f32, 2>([3, 5]).unwrap();
        first.fill(1.0);
        second.fill(2.0);
        assert_eq!(first, &[1.0; 3]);
        assert_eq!(second.len(), 5);
    }
}
