//! A directory of compiled models.
//!
//! An entry is a directory named by its token, with the files that the device asked for. It is made under a
//! temporary name and renamed when it is whole, so that another process sees all of it or nothing, and the
//! first of several writers wins. A temporary directory is locked by its maker; one that nobody locks was
//! left behind and is removed. What is in the files is the driver's to check: whatever was done to them, it
//! answers with the right model or none.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::geteuid;
use nnhal::diag::tags;
use nnhal::wire::codec;
use nnhal_hal::{CacheToken, ErrorStatus, NumberOfCacheFiles};

use crate::device::{CacheFiles, Device, PrepareOptions};
use crate::error::{Error, Result};
use crate::memory::{DigestKey, Memory};
use crate::model::Model;
use crate::prepared_model::PreparedModel;

/// The file with the key of a directory.
const KEY_FILE: &str = "key";

/// What names of entries that are being made begin with.
const TEMPORARY: &str = ".making-";

/// Distinguishes the entries that one process makes at the same time.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory in which prepared models are kept from one start of an application to the next.
///
/// Any number of threads and processes of one user may share it. It grows up to a bound; beyond that the
/// entries that were not used for longest go. Clones are handles on the same directory.
///
/// ```no_run
/// # use nnhal_client::{CompilationCache, Device, Model, PrepareOptions, Result};
/// # fn example(device: &Device, model: &Model) -> Result<()> {
/// let cache = CompilationCache::open("/home/me/.cache/nnhal", 256 << 20)?;
/// let prepared = cache.prepare(device, model, &PrepareOptions::new())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CompilationCache {
    directory: Arc<File>,
    max_bytes: u64,
}

impl CompilationCache {
    /// Opens the directory, which is made if there is none, to hold at most `max_bytes`.
    ///
    /// # Errors
    /// The directory cannot be made or opened, belongs to somebody else or is open to others, or a part of
    /// its path is a symbolic link: another user could then put models there, or learn what is run.
    pub fn open(path: impl AsRef<Path>, max_bytes: u64) -> Result<CompilationCache> {
        let path = path.as_ref();
        let refused = |reason: &dyn std::fmt::Display| {
            Error::argument(format!(
                "the cache directory {} cannot be used: {reason}",
                path.display()
            ))
        };
        let path = std::path::absolute(path).map_err(|error| refused(&error))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| refused(&error))?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let directory = openat2(nix::fcntl::AT_FDCWD, &path, how).map_err(|errno| match errno {
            nix::errno::Errno::ELOOP => refused(&"a part of the path is a symbolic link; name the real path"),
            errno => refused(&errno),
        })?;
        let directory = File::from(directory);
        let found = directory.metadata().map_err(|error| refused(&error))?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(refused(&format!(
                "it belongs to user {} with mode {:o}; it must be this user's with mode 700",
                found.uid(),
                found.mode() & 0o777
            )));
        }
        Ok(CompilationCache {
            directory: Arc::new(directory),
            max_bytes,
        })
    }

    /// Prepares a model, from what is kept of an earlier time if there is anything; keeps the result
    /// otherwise. The options' own cache files are not used.
    ///
    /// What is kept was prepared from the same model with the same constants, by the same version of the same
    /// device, with the same options. A cache that cannot be read or written costs time and nothing else.
    ///
    /// # Errors
    /// As [`Device::prepare`].
    pub fn prepare(&self, device: &Device, model: &Model, options: &PrepareOptions) -> Result<PreparedModel> {
        let needed = device.info().cache_files;
        if !needed.is_caching_supported() {
            return device.prepare(model, options);
        }
        let key = match self.key() {
            Ok(key) => key,
            Err(error) => {
                tracing::info!(target: tags::COMPILATION, %error, "a prepared model is not kept");
                return device.prepare(model, options);
            }
        };
        let token = token_of(device, model, options, key)?;
        let name = name_of(&token);
        if let Some(files) = self.find(&name, needed, token) {
            match device.prepare_from_cache(Some(model), &options.clone().cache(Arc::new(files))) {
                Ok(prepared) => return Ok(prepared),
                Err(error) if is_miss(&error) => {
                    tracing::info!(target: tags::COMPILATION, %error, "an entry of the compilation cache is of no use");
                    self.discard(&name);
                }
                Err(error) => return Err(error),
            }
        }
        // Constants that others can write could be changed between here and the driver: then they would be
        // kept under the name of what they were before.
        let model = &with_sealed_constants(model)?;
        let token = token_of(device, model, options, key)?;
        let name = name_of(&token);
        let making = Making::new(&self.directory, needed, token);
        let making = match making {
            Ok(making) => making,
            Err(error) => {
                tracing::info!(target: tags::COMPILATION, %error, "a prepared model is not kept");
                // What was left behind may be in the way.
                self.evict();
                return device.prepare(model, options);
            }
        };
        let prepared = device.prepare(model, &options.clone().cache(Arc::clone(&making.files)))?;
        // A model that the driver did not save leaves empty files.
        if making.is_saved() {
            making.publish(&name);
            self.evict();
        }
        Ok(prepared)
    }

    /// Bytes of all entries.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn size(&self) -> Result<u64> {
        let entries = self.entries();
        let entries = entries
            .map_err(|error| Error::argument(format!("the cache directory cannot be read: {error}")))?;
        Ok(entries.iter().map(|entry| entry.bytes).sum())
    }

    /// The path by which the directory is reached, whatever its name leads to by now.
    fn path(&self) -> PathBuf {
        path_of(&self.directory)
    }

    /// What the tokens of this directory are keyed by, for as long as it exists: so that nobody else can make
    /// a model that would be taken for one of these.
    fn key(&self) -> io::Result<DigestKey> {
        if let Some(key) = self.read_key()? {
            return Ok(key);
        }
        let making = Temporary::new(&self.directory)?;
        let file = making.create(KEY_FILE)?;
        // The standard library's hashers are keyed by the system's random numbers.
        let random = RandomState::new();
        let key: DigestKey = std::array::from_fn(|word| random.hash_one(word));
        File::from(file).write_all(bytemuck::cast_slice(&key.map(u64::to_le)))?;
        // The first of several writers wins.
        match fs::hard_link(making.path.join(KEY_FILE), self.path().join(KEY_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.read_key()?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The key, if there is one. One that is not whole is removed.
    fn read_key(&self) -> io::Result<Option<DigestKey>> {
        let file = match open_beneath(&self.directory, KEY_FILE, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Ok(file) => File::from(file),
            Err(nix::errno::Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut bytes = Vec::new();
        let mut key = DigestKey::default();
        file.take(size_of::<DigestKey>() as u64 + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() != size_of::<DigestKey>() {
            fs::remove_file(self.path().join(KEY_FILE))?;
            return Ok(None);
        }
        bytemuck::cast_slice_mut(&mut key).copy_from_slice(&bytes);
        Ok(Some(key.map(u64::from_le)))
    }

    fn find(&self, name: &str, needed: NumberOfCacheFiles, token: CacheToken) -> Option<CacheFiles> {
        let entry = open_beneath(&self.directory, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).ok()?;
        let open = |kind: char, count: u32| -> Option<Vec<OwnedFd>> {
            (0..count)
                .map(|index| open_beneath(&entry, &file_name(kind, index), OFlag::O_RDWR).ok())
                .collect()
        };
        let files = CacheFiles {
            model: open('m', needed.model)?,
            data: open('d', needed.data)?,
            token,
        };
        // Used now; if that cannot be noted it goes earlier than it should.
        let _ = futimens(&entry, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
        Some(files)
    }

    /// Removes an entry, at once for everyone who looks for it.
    fn discard(&self, name: &str) {
        let path = self.path();
        let doomed = path.join(temporary_name());
        let removed = fs::rename(path.join(name), &doomed).and_then(|()| fs::remove_dir_all(&doomed));
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::info!(target: tags::COMPILATION, %error, "an entry of the compilation cache cannot be removed");
        }
    }

    fn entries(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if !metadata.is_dir() {
                continue;
            }
            found.push(Found {
                name: entry.file_name(),
                used: (metadata.mtime(), metadata.mtime_nsec()),
                bytes: bytes_of(&entry.path()),
            });
        }
        Ok(found)
    }

    /// Removes what was left behind, and what is too much: that which was not used for longest.
    fn evict(&self) {
        let Ok(mut entries) = self.entries() else { return };
        entries.sort_by_key(|entry| entry.used);
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            let name = entry.name.to_string_lossy();
            if name.starts_with(TEMPORARY) {
                remove_if_abandoned(&self.path().join(&entry.name));
            } else if bytes > self.max_bytes {
                self.discard(&name);
                bytes = bytes.saturating_sub(entry.bytes);
            }
        }
    }
}

/// An entry, and when it was last used.
struct Found {
    name: OsString,
    used: (i64, i64),
    bytes: u64,
}

/// A directory of what is being made, which goes with it unless it was given another name.
struct Temporary {
    path: PathBuf,
    /// Locks it.
    directory: File,
}

impl Temporary {
    fn new(parent: &File) -> io::Result<Temporary> {
        let name = temporary_name();
        let path = path_of(parent).join(&name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let directory = File::from(open_beneath(parent, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?);
        directory.try_lock().map_err(io::Error::from)?;
        Ok(Temporary { path, directory })
    }

    fn create(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        Ok(open_beneath(&self.directory, name, flags)?)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nothing is there once it was published.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An entry that is being made.
struct Making {
    parent: Arc<File>,
    directory: Temporary,
    files: Arc<CacheFiles>,
}

impl Making {
    fn new(parent: &Arc<File>, needed: NumberOfCacheFiles, token: CacheToken) -> io::Result<Making> {
        let directory = Temporary::new(parent)?;
        let create = |kind: char, count: u32| -> io::Result<Vec<OwnedFd>> {
            (0..count)
                .map(|index| directory.create(&file_name(kind, index)))
                .collect()
        };
        let files = CacheFiles {
            model: create('m', needed.model)?,
            data: create('d', needed.data)?,
            token,
        };
        Ok(Making {
            parent: Arc::clone(parent),
            files: Arc::new(files),
            directory,
        })
    }

    /// Whether the driver wrote anything.
    fn is_saved(&self) -> bool {
        self.files
            .model
            .iter()
            .any(|file| nix::sys::stat::fstat(file).is_ok_and(|status| status.st_size > 0))
    }

    /// Gives the entry its name, unless another process was first.
    fn publish(&self, name: &str) {
        let published = fs::rename(&self.directory.path, path_of(&self.parent).join(name));
        if let Err(error) = published {
            tracing::debug!(target: tags::COMPILATION, %error, "the entry is there already");
        }
    }
}

/// Removes a temporary directory whose maker is gone.
fn remove_if_abandoned(path: &Path) {
    let is_abandoned = File::open(path).is_ok_and(|directory| directory.try_lock().is_ok());
    if is_abandoned {
        let _ = fs::remove_dir_all(path);
    }
}

fn path_of(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn open_beneath(directory: impl AsFd, name: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .mode(if flags.contains(OFlag::O_CREAT) {
            Mode::S_IRUSR | Mode::S_IWUSR
        } else {
            Mode::empty()
        })
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH);
    openat2(directory, name, how)
}

fn file_name(kind: char, index: u32) -> String {
    format!("{kind}{index}")
}

fn temporary_name() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{TEMPORARY}{}-{number}", std::process::id())
}

fn bytes_of(directory: &Path) -> u64 {
    let Ok(files) = fs::read_dir(directory) else {
        return 0;
    };
    let sizes = files.filter_map(|file| Some(fs::symlink_metadata(file.ok()?.path()).ok()?.len()));
    sizes.sum()
}

/// Whether the driver did not find what it was to find in an entry. A deadline that passes says nothing
/// against it.
pub(crate) fn is_miss(error: &Error) -> bool {
    error.failure().is_some()
        && matches!(
            error.status(),
            ErrorStatus::GeneralFailure | ErrorStatus::InvalidArgument
        )
}

fn name_of(token: &CacheToken) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The model with constants that nobody can change: those that are not sealed are copied.
fn with_sealed_constants(model: &Model) -> Result<Model> {
    let mut are_sealed = true;
    let mut pools = Vec::new();
    for memory in model.pools() {
        pools.push(match memory.constant_bytes()? {
            Cow::Borrowed(_) => memory.clone(),
            Cow::Owned(bytes) => {
                are_sealed = false;
                Memory::sealed(&[&bytes])?
            }
        });
    }
    if are_sealed {
        return Ok(model.clone());
    }
    Ok(Model::from_hal(model.hal().clone(), pools))
}

/// Names everything that the prepared model depends on.
fn token_of(device: &Device, model: &Model, options: &PrepareOptions, key: DigestKey) -> Result<CacheToken> {
    let info = device.info();
    let mut hasher = blake3::Hasher::new();
    // Each part is preceded by its length, so that no two lists of parts are one and the same sequence.
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(info.name.as_bytes());
    part(info.version.as_bytes());
    part(&options.codes());
    let encoded = codec::encode(model.hal())
        .map_err(|error| Error::argument(format!("the model cannot be cached: {error}")))?;
    part(&encoded);
    for memory in model.pools() {
        part(bytemuck::cast_slice(&memory.digest(key)?.map(u64::to_le)));
    }
    Ok(*hasher.finalize().as_bytes())
}
