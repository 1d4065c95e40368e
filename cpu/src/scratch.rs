//! Memory for the intermediate values of kernels.

use nnhal_os::buffer::{ALIGNMENT, AlignedBuffer, OutOfMemory};

/// Memory for a kernel's intermediate values, kept from one execution to the next. Contents are what was left
/// there.
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

    /// For each of `count` threads at least `length` elements of type `T`, aligned, one thread's behind the
    /// other's.
    ///
    /// All memory is divided that there is, so that it is mostly the same that a thread has for one operation
    /// after the other: what another one wrote to lies in the other one's cache.
    pub fn shares<T: bytemuck::Pod>(&mut self, count: usize, length: usize) -> Result<&mut [T], OutOfMemory> {
        let none = OutOfMemory { bytes: usize::MAX };
        let least = length.checked_mul(size_of::<T>());
        let least = least.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
        let total = least.and_then(|bytes| bytes.checked_mul(count)).ok_or(none)?;
        self.buffer.resize(total.max(self.buffer.capacity()))?;
        let each = self.buffer.bytes().len() / count.max(1) / ALIGNMENT * ALIGNMENT;
        Ok(bytemuck::cast_slice_mut(
            &mut self.buffer.bytes_mut()[..each * count],
        ))
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.buffer = AlignedBuffer::new();
    }
}

#[cfg(test)]
mod tests {
    use nnhal_os::buffer::ALIGNMENT;

    use super::Scratch;

    #[test]
    fn shares_of_scratch_memory_stay_where_they_are() {
        let mut scratch = Scratch::default();
        assert_eq!(scratch.shares::<f32>(2, 100).unwrap().len(), 2 * 112);
        for (count, length) in [(2, 3), (2, 0), (2, 112)] {
            assert_eq!(scratch.shares::<f32>(count, length).unwrap().len(), 2 * 112);
        }
        assert_eq!(scratch.shares::<u8>(3, 1).unwrap().len() % (3 * ALIGNMENT), 0);
        assert!(scratch.shares::<u16>(2, usize::MAX / 3).is_err());
        assert!(scratch.shares::<u16>(0, 1).unwrap().is_empty());
    }

    #[test]
    fn absurd_sizes_are_refused() {
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
