//! A shared memory before it is mapped: its descriptor, its size and what is known of its seals.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::stat::SFlag;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, TMPFS_MAGIC, fstatfs};

use super::ShmError;
use crate::{SysError, dma_buf, file_status, memfd};

/// The name of this library's own memory in `/proc/PID/maps`.
pub(super) const NAME: &CStr = c"nnhal";

/// With these, nobody can ever change the bytes, the size or the seals.
pub(super) const FINAL: SealFlag = SealFlag::F_SEAL_WRITE
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// A file whose bytes processes share.
///
/// The size is the one that was declared and checked when the value was made; the file may be longer, and,
/// unless [`SharedMemory::cannot_shrink`], may since have become shorter.
#[derive(Debug)]
pub struct SharedMemory {
    pub(super) file: File,
    size: u64,
    seals: SealFlag,
    writable: bool,
    dma_buf: bool,
}

impl SharedMemory {
    /// Creates memory of `size` zero bytes that everyone can write and nobody can resize.
    ///
    /// # Errors
    /// [`ShmError::Empty`] for size 0; system errors.
    pub fn create(size: u64) -> Result<Self, ShmError> {
        if size == 0 {
            return Err(ShmError::Empty);
        }
        let fd = memfd::create(NAME)?;
        memfd::set_size(&fd, size)?;
        // Sealing the seals too keeps a peer from adding F_SEAL_WRITE, which would make the other side's
        // mapping fail.
        Self::finish(
            fd,
            size,
            SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL,
            true,
        )
    }

    /// Creates memory that holds `bytes` and that nobody, not even this process, can ever change.
    ///
    /// # Errors
    /// [`ShmError::Empty`] for no bytes; system errors.
    pub fn create_sealed(bytes: &[u8]) -> Result<Self, ShmError> {
        Self::create_sealed_parts(&[bytes])
    }

    /// As [`SharedMemory::create_sealed`], with the contents given in parts that follow each other.
    pub fn create_sealed_parts(parts: &[&[u8]]) -> Result<Self, ShmError> {
        if parts.iter().all(|part| part.is_empty()) {
            return Err(ShmError::Empty);
        }
        let file = File::from(memfd::create(NAME)?);
        let mut size = 0;
        for part in parts {
            file.write_all_at(part, size)?;
            size += part.len() as u64;
        }
        Self::finish(file.into(), size, FINAL, false)
    }

    pub(super) fn finish(fd: OwnedFd, size: u64, seals: SealFlag, writable: bool) -> Result<Self, ShmError> {
        memfd::seal(&fd, seals)?;
        let seals = memfd::seals(&fd)?;
        Ok(Self {
            file: fd.into(),
            size,
            seals,
            writable,
            dma_buf: false,
        })
    }

    /// Takes a descriptor from a peer as memory of `declared_size` bytes.
    ///
    /// Refused are, by threats T1-T3: anything but a regular file, memfd or dma-buf, files of FUSE file
    /// systems, descriptors not open for reading, sizes of 0 or above `limit`, and files shorter than
    /// declared. The descriptor is closed on refusal.
    ///
    /// Nothing is allocated or touched here, so a sparse file costs nothing until its bytes are read.
    ///
    /// # Errors
    /// One variant of [`ShmError`] for each refusal.
    pub fn from_fd(fd: OwnedFd, declared_size: u64, limit: u64) -> Result<Self, ShmError> {
        let file = File::from(fd);
        let file_type = file_status::type_of(&file)?;
        let is_regular = file_type == SFlag::S_IFREG;
        // A dma-buf is no regular file.
        let dma_buf = !is_regular && dma_buf::is_dma_buf(&file)?;
        if !is_regular && !dma_buf {
            return Err(ShmError::NotAFile {
                kind: kind_of(file_type),
            });
        }
        let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(SysError::of("fcntl(F_GETFL)"))?;
        let flags = OFlag::from_bits_retain(flags);
        let mode = flags & OFlag::O_ACCMODE;
        if flags.contains(OFlag::O_PATH) || mode == OFlag::O_WRONLY {
            return Err(ShmError::NotReadable);
        }
        if is_user_file_system(&file)? {
            return Err(ShmError::UserFileSystem);
        }
        if declared_size == 0 {
            return Err(ShmError::Empty);
        }
        if declared_size > limit {
            return Err(ShmError::TooLarge {
                declared: declared_size,
                limit,
            });
        }
        // The seals are read before the size: once the file cannot shrink, the size read is a lower bound for
        // ever.
        let seals = memfd::seals(&file)?;
        let actual = if dma_buf {
            // Where the end is: what it says of itself has no size in all kernels.
            let end = nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekEnd);
            u64::try_from(end.map_err(SysError::of("lseek"))?).unwrap_or(0)
        } else {
            file_status::size_of(&file)?
        };
        if declared_size > actual {
            return Err(ShmError::ShorterThanDeclared {
                declared: declared_size,
                actual,
            });
        }
        let write_seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_FUTURE_WRITE;
        let writable = mode == OFlag::O_RDWR && !seals.intersects(write_seals);
        Ok(Self {
            file,
            size: declared_size,
            seals,
            writable,
            dma_buf,
        })
    }

    /// Takes a descriptor from a peer as memory of exactly `size` bytes that nobody can change any more, and
    /// whose pages can be had as long as there is memory at all: a memfd with ordinary pages and all four
    /// seals.
    ///
    /// # Errors
    /// As [`SharedMemory::from_fd`]; [`ShmError::NotSealed`], [`ShmError::LongerThanDeclared`].
    pub fn from_sealed_fd(fd: OwnedFd, size: u64) -> Result<Self, ShmError> {
        let memory = Self::from_fd(fd, size, size)?;
        if !memory.seals.contains(FINAL) || !memory.has_ordinary_pages()? {
            return Err(ShmError::NotSealed);
        }
        match file_status::size_of(&memory.file)? {
            actual if actual == size => Ok(memory),
            actual => Err(ShmError::LongerThanDeclared {
                declared: size,
                actual,
            }),
        }
    }

    /// Whether its pages are those of every process. Huge pages of their own file system run out by
    /// themselves, and touching what is not there is fatal then; and the kernel maps whole ones, more than
    /// was asked for.
    pub(super) fn has_ordinary_pages(&self) -> Result<bool, ShmError> {
        let file_system = fstatfs(&self.file).map_err(SysError::of("fstatfs"))?;
        Ok(!self.dma_buf && file_system.filesystem_type() == TMPFS_MAGIC)
    }

    /// Size in bytes, never 0.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether this descriptor allows writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether no process can make the file smaller, so that touching its mapping cannot fault.
    pub fn cannot_shrink(&self) -> bool {
        // The size of a dma-buf is fixed when it is made.
        self.dma_buf || self.seals.contains(SealFlag::F_SEAL_SHRINK)
    }

    /// Whether devices share it by way of the kernel. It is mapped and not read as a file, and accesses are
    /// told to the kernel: see [`super::Mapping::begin`].
    pub fn is_dma_buf(&self) -> bool {
        self.dma_buf
    }

    /// Whether no process can ever change the bytes again.
    pub fn is_immutable(&self) -> bool {
        self.seals
            .contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK)
    }

    /// Another handle on the same memory.
    pub fn try_clone(&self) -> Result<Self, ShmError> {
        Ok(Self {
            file: self.file.try_clone()?,
            size: self.size,
            seals: self.seals,
            writable: self.writable,
            dma_buf: self.dma_buf,
        })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<SharedMemory> for OwnedFd {
    fn from(memory: SharedMemory) -> OwnedFd {
        memory.file.into()
    }
}

fn is_user_file_system(file: &File) -> Result<bool, ShmError> {
    let stat = fstatfs(file).map_err(SysError::of("fstatfs"))?;
    Ok(stat.filesystem_type() == FUSE_SUPER_MAGIC)
}

fn kind_of(file_type: SFlag) -> &'static str {
    match file_type {
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFIFO => "a pipe",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        _ => "a kernel object without bytes of its own",
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    const LIMIT: u64 = 1 << 30;

    fn from(fd: impl Into<OwnedFd>, size: u64) -> Result<SharedMemory, ShmError> {
        SharedMemory::from_fd(fd.into(), size, LIMIT)
    }

    #[test]
    fn descriptor_that_is_no_file_is_refused_by_kind() {
        let (read, _write) = nix::unistd::pipe().unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let refused: [(OwnedFd, &str); 5] = [
            (read, "pipe"),
            (socket.into(), "socket"),
            (File::open("/").unwrap().into(), "directory"),
            (File::open("/dev/zero").unwrap().into(), "device"),
            (crate::eventfd::create().unwrap(), "kernel object"),
        ];
        for (fd, expected) in refused {
            let error = from(fd, 1).unwrap_err();
            assert!(matches!(error, ShmError::NotAFile { .. }), "{error}");
            assert!(
                error.to_string().contains(expected),
                "{error} does not say {expected}"
            );
        }
    }

    #[test]
    fn descriptor_not_open_for_reading_is_refused() {
        let path = tempfile::NamedTempFile::new().unwrap();
        path.as_file().set_len(10).unwrap();
        let write_only = File::options().write(true).open(path.path()).unwrap();
        assert!(matches!(from(write_only, 1), Err(ShmError::NotReadable)));
        let mere_path = nix::fcntl::open(path.path(), OFlag::O_PATH, nix::sys::stat::Mode::empty()).unwrap();
        assert!(matches!(from(mere_path, 1), Err(ShmError::NotReadable)));
    }

    #[test]
    fn size_beyond_the_file_or_the_limit_is_refused() {
        let file = || {
            let file = tempfile::tempfile().unwrap();
            file.set_len(100).unwrap();
            file
        };
        assert!(matches!(from(file(), 0), Err(ShmError::Empty)));
        assert!(matches!(
            from(file(), 101),
            Err(ShmError::ShorterThanDeclared {
                declared: 101,
                actual: 100
            })
        ));
        assert!(matches!(from(file(), u64::MAX), Err(ShmError::TooLarge { .. })));
        let memory = from(file(), 100).unwrap();
        assert!(memory.is_writable() && !memory.cannot_shrink() && !memory.is_immutable());
    }

    #[test]
    fn sparse_memory_beyond_the_limit_is_refused_untouched() {
        let sparse = memfd::create(NAME).unwrap();
        memfd::set_size(&sparse, 64 << 30).unwrap();
        assert!(matches!(from(sparse, 64 << 30), Err(ShmError::TooLarge { .. })));
    }

    #[test]
    fn sealed_memory_holds_its_parts_and_refuses_every_change() {
        let memory = SharedMemory::create_sealed_parts(&[b"ab", b"", b"cde"]).unwrap();
        assert_eq!(memory.read_to_vec(0, 5).unwrap(), b"abcde");
        assert!(memory.is_immutable() && !memory.is_writable());
        assert!(memory.file.write_at(b"x", 0).is_err());
        assert!(memory.file.set_len(4).is_err());
        let received = from(OwnedFd::from(memory), 5).unwrap();
        assert!(received.is_immutable() && received.cannot_shrink() && !received.is_writable());
        assert!(matches!(SharedMemory::create_sealed(b""), Err(ShmError::Empty)));
    }

    #[test]
    fn memory_that_is_not_final_or_of_another_size_is_not_taken_for_sealed() {
        let sealed =
            |size| SharedMemory::from_sealed_fd(SharedMemory::create_sealed(b"12345").unwrap().into(), size);
        assert_eq!(sealed(5).unwrap().read_to_vec(0, 5).unwrap(), b"12345");
        assert!(matches!(sealed(6), Err(ShmError::ShorterThanDeclared { .. })));
        assert!(matches!(
            sealed(4),
            Err(ShmError::LongerThanDeclared {
                declared: 4,
                actual: 5
            })
        ));
        assert!(matches!(sealed(0), Err(ShmError::Empty)));
        let all = [
            SealFlag::F_SEAL_WRITE,
            SealFlag::F_SEAL_SHRINK,
            SealFlag::F_SEAL_GROW,
            SealFlag::F_SEAL_SEAL,
        ];
        for missing in all {
            let memfd = memfd::create(NAME).unwrap();
            memfd::set_size(&memfd, 5).unwrap();
            memfd::seal(&memfd, FINAL - missing).unwrap();
            let error = SharedMemory::from_sealed_fd(memfd, 5).unwrap_err();
            assert!(matches!(error, ShmError::NotSealed), "{missing:?}: {error}");
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(5).unwrap();
        let error = SharedMemory::from_sealed_fd(file.into(), 5).unwrap_err();
        assert!(matches!(error, ShmError::NotSealed), "{error}");
    }

    /// Such pages are set aside by the administrator; a file can be made without there being any.
    #[test]
    fn memory_of_huge_pages_that_may_run_out_is_not_taken_for_sealed() {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
        let Ok(huge) = memfd_create(NAME, flags) else {
            println!("SKIPPED: this kernel has no such memory");
            return;
        };
        memfd::set_size(&huge, 2 << 20).unwrap();
        memfd::seal(&huge, FINAL).unwrap();
        // Declared shorter than one of its pages: all of that would be mapped.
        let memory = SharedMemory::from_fd(huge.try_clone().unwrap(), 8192, u64::MAX).unwrap();
        assert!(memory.is_immutable());
        for map in [crate::shm::SealedBytes::map, crate::shm::SealedBytes::map_parts] {
            let error = map(&memory).unwrap_err();
            assert!(matches!(error, ShmError::NotSealed), "{error}");
        }
        let error = SharedMemory::from_sealed_fd(huge, 2 << 20).unwrap_err();
        assert!(matches!(error, ShmError::NotSealed), "{error}");
    }

    #[test]
    fn memory_that_this_process_has_no_room_for_is_an_error() {
        // Sparse, and more than any process can address.
        const SIZE: u64 = 1 << 56;
        let memfd = memfd::create(NAME).unwrap();
        memfd::set_size(&memfd, SIZE).unwrap();
        let memory = SharedMemory::from_fd(memfd, SIZE, SIZE).unwrap();
        assert!(memory.read_to_vec(0, SIZE).unwrap_err().is_exhaustion());
    }

    #[test]
    fn created_memory_refuses_resizing_and_further_seals() {
        let memory = SharedMemory::create(4096).unwrap();
        assert!(memory.file.set_len(1).is_err() && memory.file.set_len(9000).is_err());
        assert!(memfd::seal(&memory, SealFlag::F_SEAL_WRITE).is_err());
        assert!(memory.is_writable() && memory.cannot_shrink() && !memory.is_immutable());
    }

    #[test]
    fn reading_a_file_that_shrank_gives_where_it_ended() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let memory = from(file.try_clone().unwrap(), 100).unwrap();
        file.set_len(60).unwrap();
        assert!(matches!(
            memory.read_to_vec(0, 100),
            Err(ShmError::Shrunk { at: 60 })
        ));
        assert!(matches!(
            memory.read_to_vec(u64::MAX, 2),
            Err(ShmError::OutOfBounds { .. })
        ));
        assert!(matches!(
            memory.read_to_vec(1, u64::MAX),
            Err(ShmError::OutOfBounds { .. })
        ));
    }
}
