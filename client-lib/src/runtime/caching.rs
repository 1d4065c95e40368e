//! Prepared steps in an application's directory: tokens, file names, and using what is there.
//!
//! Source: runtime rules of the NDK. Whatever is wrong with the files costs time and nothing else.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nnhal::diag::tags;
use nnhal_hal::{CacheToken, DeviceInfo, ExecutionPreference, Priority};
use sha2::{Digest as _, Sha256};

use super::device::RuntimeDevice;
use super::result::{RuntimeError, RuntimeResult};
use crate::compilation_cache::is_miss;
use crate::device::{CacheFiles, PrepareOptions};
use crate::error::Remedy;
use crate::model::Model;
use crate::prepared_model::PreparedModel;

/// Where a step is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepCache {
    directory: PathBuf,
    token: CacheToken,
}

impl StepCache {
    /// The place of a step: `operations` are its operations by their index in the main graph, empty for a
    /// whole model.
    pub(super) fn new(
        directory: &Path,
        token: &CacheToken,
        operations: &[usize],
        device: &DeviceInfo,
        (preference, priority): (ExecutionPreference, Priority),
    ) -> StepCache {
        let mut hasher = Sha256::new();
        hasher.update(token);
        for &operation in operations {
            // The main graph is the first of the application's models.
            hasher.update(0_i32.to_ne_bytes());
            hasher.update((operation as i32).to_ne_bytes());
        }
        hasher.update(device.name.as_bytes());
        hasher.update(device.version.as_bytes());
        hasher.update((preference as i32).to_ne_bytes());
        hasher.update(ndk_code(priority).to_ne_bytes());
        StepCache {
            directory: directory.to_owned(),
            token: hasher.finalize().into(),
        }
    }

    fn file(&self, kind: char, index: u32) -> PathBuf {
        let mut name = String::with_capacity(2 * self.token.len() + 2);
        for byte in self.token {
            name.push(char::from(b'A' + (byte & 0x0F)));
            name.push(char::from(b'A' + (byte >> 4)));
        }
        self.directory.join(format!("{name}{kind}{index}"))
    }

    /// The files that the device needs, all of them.
    fn open(&self, device: &DeviceInfo, may_create: bool) -> std::io::Result<CacheFiles> {
        let open = |kind: char, count: u32| -> std::io::Result<Vec<OwnedFd>> {
            (0..count)
                .map(|index| open_file(&self.file(kind, index), may_create).map(OwnedFd::from))
                .collect()
        };
        Ok(CacheFiles {
            model: open('1', device.cache_files.model)?,
            data: open('2', device.cache_files.data)?,
            token: self.token,
        })
    }
}

fn open_file(path: &Path, may_create: bool) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(may_create)
        .truncate(may_create)
        .mode(0o600)
        .open(path)
}

/// The NDK's number for a priority.
fn ndk_code(priority: Priority) -> i32 {
    match priority {
        Priority::Low => 90,
        Priority::Medium => 100,
        Priority::High => 110,
    }
}

/// Prepares a step on a device, from the cache if it is there; into the cache otherwise. A worker that dies
/// of what the cache has, or of writing to it, is no reason to fail: the step is prepared on another without
/// it.
pub(super) fn prepare(
    device: &RuntimeDevice,
    model: &Model,
    options: &PrepareOptions,
    cache: Option<&StepCache>,
) -> RuntimeResult<PreparedModel> {
    let afresh = || device.ask_live(|device| device.prepare(model, options));
    let open = device.open()?;
    let cache = cache.filter(|_| open.info().cache_files.is_caching_supported());
    let Some(cache) = cache else {
        return afresh();
    };
    if let Ok(files) = cache.open(open.info(), false) {
        match open.prepare_from_cache(Some(model), &options.clone().cache(Arc::new(files))) {
            Ok(prepared) => return Ok(prepared),
            Err(error) if is_miss(&error) => {
                tracing::info!(target: tags::COMPILATION, %error, "what the cache has for a step is of no use");
            }
            // Nothing is wrong with the entry: it is not to be written anew.
            Err(error) if error.remedy() == Remedy::Reconnect => {
                tracing::info!(target: tags::COMPILATION, %error, "a step is prepared without its cache");
                return afresh().map_err(RuntimeError::after_death);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let open = device.open()?;
    match cache.open(open.info(), true) {
        Ok(files) => match open.prepare(model, &options.clone().cache(Arc::new(files))) {
            Err(error) if error.remedy() == Remedy::Reconnect => {
                tracing::info!(target: tags::COMPILATION, %error, "a step is prepared without its cache");
                afresh().map_err(RuntimeError::after_death)
            }
            prepared => Ok(prepared?),
        },
        Err(error) => {
            tracing::info!(target: tags::COMPILATION, %error, directory = %cache.directory.display(), "a prepared step is not kept");
            afresh()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(token: u8, operations: &[usize], priority: Priority) -> StepCache {
        let device = RuntimeDevice::cpu();
        let codes = (ExecutionPreference::default(), priority);
        StepCache::new(
            Path::new("/cache"),
            &[token; 32],
            operations,
            &device.info(),
            codes,
        )
    }

    #[test]
    fn file_names_are_the_nibbles_of_the_token_low_one_first() {
        let mut cache = cache(0, &[], Priority::Medium);
        cache.token = [0; 32];
        cache.token[0] = 0x1F;
        let name = cache.file('2', 11);
        let name = name.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("PBAA") && name.ends_with("AA211"), "{name}");
        assert_eq!(name.len(), 64 + 3);
    }

    #[test]
    fn everything_that_the_result_depends_on_is_in_the_token() {
        let base = cache(1, &[0, 1], Priority::Medium);
        assert_eq!(base, cache(1, &[0, 1], Priority::Medium));
        for other in [
            cache(2, &[0, 1], Priority::Medium),
            cache(1, &[0, 2], Priority::Medium),
            cache(1, &[], Priority::Medium),
            cache(1, &[0, 1], Priority::High),
        ] {
            assert_ne!(base.token, other.token);
        }
    }
}
