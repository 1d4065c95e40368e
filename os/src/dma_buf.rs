//! Buffers of devices that processes share (dma-buf): which descriptors are one, keeping the processor's view
//! of them and the devices' the same, and making some without a device's driver.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::SealFlag;
use nix::sys::statfs::{FsType, fstatfs};

use super::{SysError, memfd};

/// The kernel's `DMA_BUF_MAGIC`: the type of the file system that dma-bufs are in.
const MAGIC: FsType = FsType(0x444d_4142);

/// `struct dma_buf_sync` of the kernel's `linux/dma-buf.h`.
#[repr(C)]
struct Sync {
    flags: u64,
}

/// `_IOW('b', 0, struct dma_buf_sync)`.
const IOCTL_SYNC: u32 = (1 << 30) | ((size_of::<Sync>() as u32) << 16) | ((b'b' as u32) << 8);

const SYNC_READ: u64 = 1;
const SYNC_WRITE: u64 = 2;
const SYNC_END: u64 = 4;

/// Whether a descriptor is a dma-buf.
///
/// # Errors
///
/// The descriptor's file system cannot be asked for.
pub fn is_dma_buf(fd: impl AsFd) -> Result<bool, SysError> {
    let status = fstatfs(fd).map_err(SysError::of("fstatfs"))?;
    Ok(status.filesystem_type() == MAGIC)
}

/// Says that the processor begins to read a dma-buf, and to write it if `writes`: what devices have written
/// is there for it to see when this returns. May wait for devices that are at work on it.
///
/// # Errors
///
/// The descriptor is no dma-buf, or its exporter refuses.
pub fn begin_access(fd: impl AsFd, writes: bool) -> Result<(), SysError> {
    sync(fd, access_flags(writes))
}

/// Says that the processor is through: devices see what it has written.
///
/// # Errors
///
/// As [`begin_access`].
pub fn end_access(fd: impl AsFd, writes: bool) -> Result<(), SysError> {
    sync(fd, access_flags(writes) | SYNC_END)
}

fn access_flags(writes: bool) -> u64 {
    if writes { SYNC_READ | SYNC_WRITE } else { SYNC_READ }
}

fn sync(fd: impl AsFd, flags: u64) -> Result<(), SysError> {
    let sync = Sync { flags };
    loop {
        // SAFETY: `sync` has the layout this request number names (its size is part of the number) and lives
        // for the call, which only reads it; drivers of other descriptors refuse the number.
        let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), IOCTL_SYNC as libc::Ioctl, &sync) };
        if done >= 0 {
            return Ok(());
        }
        match Errno::last() {
            Errno::EINTR | Errno::EAGAIN => {}
            errno => {
                return Err(SysError {
                    call: "ioctl(DMA_BUF_IOCTL_SYNC)",
                    errno,
                });
            }
        }
    }
}

/// `struct udmabuf_create` of the kernel's `linux/udmabuf.h`.
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `_IOW('u', 0x42, struct udmabuf_create)`.
const IOCTL_UDMABUF_CREATE: u32 =
    (1 << 30) | ((size_of::<UdmabufCreate>() as u32) << 16) | ((b'u' as u32) << 8) | 0x42;

/// Close-on-exec, in `udmabuf_create.flags`.
const UDMABUF_FLAGS_CLOEXEC: u32 = 1;

/// Makes a dma-buf out of ordinary memory, by `device`, which is `/dev/udmabuf`. Its size is a multiple of
/// the page size.
///
/// # Errors
///
/// The device is another, or refuses.
pub fn of_memfd(device: impl AsFd, size: u64) -> Result<OwnedFd, SysError> {
    let memory = memfd::create(c"nnhal")?;
    memfd::set_size(&memory, size)?;
    // Without this seal the device refuses; with one against writing, too.
    memfd::seal(&memory, SealFlag::F_SEAL_SHRINK)?;
    let create = UdmabufCreate {
        memfd: u32::try_from(memory.as_raw_fd()).unwrap_or(u32::MAX),
        flags: UDMABUF_FLAGS_CLOEXEC,
        offset: 0,
        size,
    };
    // SAFETY: `create` has the layout this request number names (its size is part of the number) and lives
    // for the call, which only reads it; drivers of other descriptors refuse the number.
    let made = unsafe {
        libc::ioctl(
            device.as_fd().as_raw_fd(),
            IOCTL_UDMABUF_CREATE as libc::Ioctl,
            &create,
        )
    };
    if made < 0 {
        return Err(SysError::last("ioctl(UDMABUF_CREATE)"));
    }
    // SAFETY: the call succeeded, so it is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// `struct dma_heap_allocation_data` of the kernel's `linux/dma-heap.h`.
#[repr(C)]
struct HeapAllocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// `_IOWR('H', 0, struct dma_heap_allocation_data)`.
const IOCTL_HEAP_ALLOC: u32 = (3 << 30) | ((size_of::<HeapAllocation>() as u32) << 16) | ((b'H' as u32) << 8);

/// Makes a dma-buf out of a heap, which is a file of `/dev/dma_heap`.
///
/// # Errors
///
/// The file is no heap, or has not so much.
pub fn of_heap(heap: impl AsFd, size: u64) -> Result<OwnedFd, SysError> {
    let mut allocation = HeapAllocation {
        len: size,
        fd: 0,
        fd_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
        heap_flags: 0,
    };
    // SAFETY: `allocation` has the layout this request number names (its size is part of the number) and
    // lives for the call; drivers of other descriptors refuse the number.
    let done = unsafe {
        libc::ioctl(
            heap.as_fd().as_raw_fd(),
            IOCTL_HEAP_ALLOC as libc::Ioctl,
            &mut allocation,
        )
    };
    if done < 0 {
        return Err(SysError::last("ioctl(DMA_HEAP_IOCTL_ALLOC)"));
    }
    // SAFETY: the call succeeded, so it is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(allocation.fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_numbers_of_the_kernels_headers() {
        assert_eq!(IOCTL_SYNC, 0x4008_6200);
        assert_eq!(IOCTL_UDMABUF_CREATE, 0x4018_7542);
        assert_eq!(IOCTL_HEAP_ALLOC, 0xC018_4800);
    }

    #[test]
    fn files_and_memfds_are_no_dma_bufs() {
        let file = tempfile::tempfile().unwrap();
        let memory = crate::memfd::create(c"nnhal-test").unwrap();
        assert!(!is_dma_buf(&file).unwrap());
        assert!(!is_dma_buf(&memory).unwrap());
        assert_eq!(begin_access(&memory, true).unwrap_err().errno, Errno::ENOTTY);
        assert_eq!(end_access(&file, false).unwrap_err().errno, Errno::ENOTTY);
        assert_eq!(of_memfd(&file, 4096).unwrap_err().errno, Errno::ENOTTY);
        assert_eq!(of_heap(&file, 4096).unwrap_err().errno, Errno::ENOTTY);
    }
}
