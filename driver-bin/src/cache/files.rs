//! The handles of a call: what may be written, what may be read.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::SFlag;
use nnhal::wire::CacheFiles;
use nnhal_hal::NumberOfCacheFiles;
use nnhal_os::buffer::AlignedBuffer;
use nnhal_os::{SysError, file_status};

use super::error::{CacheError, Checkpoint, HandleError};
use super::keyed_digest::{KeyedDigest, KeyedHasher};

/// How many bytes are read and hashed at once: some of a second-level cache.
const BLOCK_BYTES: usize = 128 * 1024;

/// One descriptor for each file.
#[derive(Debug)]
pub(crate) struct CacheHandles {
    pub(super) model: CacheFile,
    pub(super) data: CacheFile,
}

/// A file of the client's, which may be anything and change at any time.
#[derive(Debug)]
pub(super) struct CacheFile {
    file: File,
    kind: &'static str,
}

impl CacheHandles {
    /// Takes the descriptors that came with a call.
    ///
    /// # Errors
    ///
    /// Another number of handles than `needed`, or of descriptors than one each.
    pub(crate) fn new(
        counts: &CacheFiles,
        fds: Vec<OwnedFd>,
        needed: NumberOfCacheFiles,
    ) -> Result<CacheHandles, HandleError> {
        check_counts("model", &counts.model, needed.model)?;
        check_counts("data", &counts.data, needed.data)?;
        let mut files = fds.into_iter().map(File::from);
        // One of each, which is what was checked.
        match (files.next(), files.next()) {
            (Some(model), Some(data)) => Ok(CacheHandles {
                model: CacheFile {
                    file: model,
                    kind: "model cache",
                },
                data: CacheFile {
                    file: data,
                    kind: "data cache",
                },
            }),
            _ => Err(HandleError::Count {
                kind: "model and data",
                found: counts.fd_count(),
                needed: needed.model + needed.data,
            }),
        }
    }
}

fn check_counts(kind: &'static str, counts: &[u8], needed: u32) -> Result<(), HandleError> {
    if counts.len() != needed as usize {
        return Err(HandleError::Count {
            kind,
            found: counts.len(),
            needed,
        });
    }
    match counts.iter().enumerate().find(|(_, found)| **found != 1) {
        Some((index, &found)) => Err(HandleError::Descriptors { kind, index, found }),
        None => Ok(()),
    }
}

impl CacheFile {
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    fn failed(&self, action: &'static str, source: impl Into<io::Error>) -> CacheError {
        CacheError::Io {
            action,
            file: self.kind,
            source: source.into(),
        }
    }

    /// Refuses what is no file, or open in a way that does not do.
    fn check(&self, can: impl Fn(OFlag) -> bool, action: &'static str) -> Result<u64, CacheError> {
        let examined = |error: SysError| self.failed("examine", error.errno);
        if file_status::type_of(&self.file).map_err(examined)? != SFlag::S_IFREG {
            return Err(CacheError::Foreign {
                file: self.kind,
                reason: "it is no regular file".to_owned(),
            });
        }
        let flags = fcntl(&self.file, FcntlArg::F_GETFL).map_err(|errno| self.failed("examine", errno))?;
        if !can(OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE) {
            return Err(self.failed(action, Errno::EACCES));
        }
        file_status::size_of(&self.file).map_err(examined)
    }

    /// Whether the file can be written and read back.
    pub(super) fn check_writable(&self) -> Result<(), CacheError> {
        self.check(|mode| mode == OFlag::O_RDWR, "write").map(drop)
    }

    /// Empties the file.
    pub(super) fn clear(&self) -> Result<(), CacheError> {
        self.file.set_len(0).map_err(|error| self.failed("empty", error))
    }

    /// Writes from `offset` on, whatever the descriptor's own offset is.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), CacheError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| self.failed("write", error))
    }

    /// How many bytes to read: at most `limit`.
    fn readable(&self, limit: u64) -> Result<u64, CacheError> {
        let size = self.check(|mode| mode != OFlag::O_WRONLY, "read")?;
        if size <= limit {
            return Ok(size);
        }
        Err(CacheError::TooLarge(format!(
            "the {} file has {size} bytes, at most {limit} are read",
            self.kind
        )))
    }

    /// All bytes of the file, once; at most `limit`.
    pub(super) fn read(&self, limit: u64) -> Result<Vec<u8>, CacheError> {
        let size = self.readable(limit)?;
        let mut bytes = Vec::new();
        usize::try_from(size)
            .ok()
            .and_then(|size| {
                bytes.try_reserve_exact(size).ok()?;
                bytes.resize(size, 0);
                Some(())
            })
            .ok_or_else(|| self.failed("read", Errno::ENOMEM))?;
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|error| self.failed("read", error))?;
        Ok(bytes)
    }

    /// The same, aligned, with their digest. Each block is hashed while it is in the processor's cache;
    /// `checkpoint` is asked before each.
    pub(super) fn read_hashed(
        &self,
        limit: u64,
        mut hasher: KeyedHasher,
        checkpoint: Checkpoint<'_>,
    ) -> Result<(AlignedBuffer, KeyedDigest), CacheError> {
        let size = self.readable(limit)?;
        let exhausted = |_| self.failed("read", Errno::ENOMEM);
        let size = usize::try_from(size).map_err(|_| self.failed("read", Errno::ENOMEM))?;
        let mut bytes = AlignedBuffer::new();
        bytes.reserve(size).map_err(exhausted)?;
        let mut at = 0;
        while at < size {
            checkpoint()?;
            let end = size.min(at + BLOCK_BYTES);
            bytes.resize(end).map_err(exhausted)?;
            let block = bytes.bytes_mut().get_mut(at..end).unwrap_or_default();
            self.file
                .read_exact_at(block, at as u64)
                .map_err(|error| self.failed("read", error))?;
            hasher.update(block);
            at = end;
        }
        Ok((bytes, hasher.finish()))
    }
}
