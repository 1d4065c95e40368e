//! What is in the files.
//!
//! Each file starts with 8 bytes that name the kind and the version of the format. In the model file the digest and the
//! length of the rest follow, then the rest: an encoded [`Header`] and behind it the encoded model. In the data file
//! follow the digest of the encoded model, which makes it the partner of no other model's file, and the bytes of the
//! pools, one behind the other. The model file is written last.

use nnhal::hal::{CacheToken, ConstantPools, Model};
use nnhal::wire::codec;
use serde::{Deserialize, Serialize};

use super::{CacheError, CacheHandles};

/// Names the kind and version of a model file. A change of anything that is saved changes the last byte.
const MODEL_MAGIC: [u8; 8] = *b"NNHALM\0\x01";
/// The same for a data file.
const DATA_MAGIC: [u8; 8] = *b"NNHALD\0\x01";

const DIGEST_BYTES: usize = 32;
const LENGTH_BYTES: usize = 8;
const START_BYTES: usize = MODEL_MAGIC.len() + DIGEST_BYTES + LENGTH_BYTES;

const DATA_START_BYTES: usize = DATA_MAGIC.len() + DIGEST_BYTES;

/// Longest header. Names and versions of devices are short.
const MAX_HEADER: usize = 64 * 1024;

/// What must be the same when an entry is asked for as it was when it was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// Name and version of the device.
    pub(crate) device: (&'a str, &'a str),
    pub(crate) token: CacheToken,
}

/// A model that was prepared, and how.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Model,
    pub(crate) pools: Vec<Vec<u8>>,
    /// Codes of the HAL.
    pub(crate) preference: i32,
    pub(crate) priority: i32,
}

#[derive(Serialize, Deserialize)]
struct Header {
    device: String,
    version: String,
    token: CacheToken,
    preference: i32,
    priority: i32,
    data_digest: [u8; DIGEST_BYTES],
    pool_sizes: Vec<u64>,
    model_bytes: u64,
}

/// Saves a model that `codes` (preference and priority) prepared.
///
/// # Errors
///
/// The files then hold nothing that [`load`] takes for an entry.
pub(crate) fn save(
    handles: &CacheHandles,
    key: &Key<'_>,
    (model, pools): (&Model, &dyn ConstantPools),
    (preference, priority): (i32, i32),
) -> Result<(), CacheError> {
    let CacheHandles { model: file, data } = handles;
    file.check_writable()?;
    data.check_writable()?;
    file.clear()?;
    data.clear()?;
    let model_bytes = codec::encode(model).map_err(|error| too_large(&error))?;
    let start = [&DATA_MAGIC[..], blake3::hash(&model_bytes).as_bytes()].concat();
    let mut digest = blake3::Hasher::new();
    digest.update(&start);
    data.write_at(0, &start)?;
    let mut offset = start.len() as u64;
    let mut pool_sizes = Vec::with_capacity(model.pools.len());
    for index in 0..model.pools.len() {
        let bytes = pools.bytes(index).unwrap_or_default();
        digest.update(bytes);
        data.write_at(offset, bytes)?;
        offset += bytes.len() as u64;
        pool_sizes.push(bytes.len() as u64);
    }
    let header = Header {
        device: key.device.0.to_owned(),
        version: key.device.1.to_owned(),
        token: key.token,
        preference,
        priority,
        data_digest: *digest.finalize().as_bytes(),
        pool_sizes,
        model_bytes: model_bytes.len() as u64,
    };
    let header = codec::encode(&header).map_err(|error| too_large(&error))?;
    if header.len() > MAX_HEADER {
        return Err(CacheError::TooLarge(format!(
            "the header has {} bytes, at most {MAX_HEADER} are saved",
            header.len()
        )));
    }
    let body = [&(header.len() as u64).to_le_bytes()[..], &header, &model_bytes].concat();
    let mut start = Vec::with_capacity(START_BYTES);
    start.extend_from_slice(&MODEL_MAGIC);
    start.extend_from_slice(blake3::hash(&body).as_bytes());
    start.extend_from_slice(&(body.len() as u64).to_le_bytes());
    file.write_at(START_BYTES as u64, &body)?;
    // An entry is one from here on.
    file.write_at(0, &start)
}

fn too_large(error: &codec::CodecError) -> CacheError {
    CacheError::TooLarge(error.to_string())
}

/// The entry in the files, if it is the one that was saved under this key. Constants have at most `limit` bytes.
///
/// # Errors
///
/// Why there is none.
pub(crate) fn load(handles: &CacheHandles, key: &Key<'_>, limit: u64) -> Result<Entry, CacheError> {
    let file = handles.model.kind();
    let bytes = handles
        .model
        .read((START_BYTES + MAX_HEADER + codec::MAX_MESSAGE) as u64)?;
    let body = checked_body(&bytes, file)?;
    let changed = || CacheError::Changed { file };
    let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>().ok_or_else(changed)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| changed())?;
    if length > MAX_HEADER {
        return Err(changed());
    }
    let (header, model) = rest.split_at_checked(length).ok_or_else(changed)?;
    let foreign = |error: codec::CodecError| CacheError::Foreign {
        file,
        reason: error.to_string(),
    };
    let header: Header = codec::decode(header).map_err(foreign)?;
    check_key(&header, key)?;
    if header.model_bytes != model.len() as u64 {
        return Err(changed());
    }
    let pools = load_pools(handles, &header, limit)?;
    let model: Model = codec::decode(model).map_err(foreign)?;
    if model.pools.len() != pools.len() {
        return Err(changed());
    }
    Ok(Entry {
        model,
        pools,
        preference: header.preference,
        priority: header.priority,
    })
}

/// The rest of the model file, if it is what the start says.
fn checked_body<'b>(bytes: &'b [u8], file: &'static str) -> Result<&'b [u8], CacheError> {
    let foreign = |reason: &str| CacheError::Foreign {
        file,
        reason: reason.to_owned(),
    };
    let (magic, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or_else(|| foreign("it is empty, or too short"))?;
    if *magic != MODEL_MAGIC {
        return Err(foreign(
            "it starts otherwise; another version of nnhal may have saved it",
        ));
    }
    let (digest, rest) = rest
        .split_first_chunk::<DIGEST_BYTES>()
        .ok_or_else(|| foreign("it is too short"))?;
    let (length, body) = rest
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| foreign("it is too short"))?;
    if u64::from_le_bytes(*length) != body.len() as u64 || blake3::hash(body).as_bytes() != digest {
        return Err(CacheError::Changed { file });
    }
    Ok(body)
}

fn check_key(header: &Header, key: &Key<'_>) -> Result<(), CacheError> {
    let stale = |what: String| Err(CacheError::Stale { what });
    if (header.device.as_str(), header.version.as_str()) != key.device {
        return stale(format!(
            "by device {} of version {:?}, this is {} of version {:?}",
            header.device, header.version, key.device.0, key.device.1
        ));
    }
    if header.token != key.token {
        return stale("under another token".to_owned());
    }
    Ok(())
}

fn load_pools(handles: &CacheHandles, header: &Header, limit: u64) -> Result<Vec<Vec<u8>>, CacheError> {
    let file = handles.data.kind();
    let bytes = handles.data.read(limit.saturating_add(DATA_START_BYTES as u64))?;
    if *blake3::hash(&bytes).as_bytes() != header.data_digest {
        return Err(CacheError::Changed { file });
    }
    let mut rest = bytes.get(DATA_START_BYTES..).unwrap_or_default();
    let mut pools = Vec::new();
    for &size in &header.pool_sizes {
        let pool = usize::try_from(size)
            .ok()
            .and_then(|size| rest.split_at_checked(size));
        let (pool, after) = pool.ok_or(CacheError::Changed { file })?;
        pools.push(pool.to_vec());
        rest = after;
    }
    if rest.is_empty() {
        Ok(pools)
    } else {
        Err(CacheError::Changed { file })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nnhal::hal::MemoryPool;
    use nnhal::wire::CacheFiles;

    use super::*;
    use crate::cache::CACHE_FILES;

    const KEY: Key<'static> = Key {
        device: ("vendor-device", "1.0"),
        token: [7; 32],
    };

    struct Bench {
        files: [File; 2],
        handles: CacheHandles,
    }

    fn bench() -> Bench {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let fds = files
            .iter()
            .map(|file| file.try_clone().unwrap().into())
            .collect();
        let handles = CacheHandles::new(&CacheFiles::new(1, 1), fds, CACHE_FILES).unwrap();
        Bench { files, handles }
    }

    fn model() -> Model {
        Model {
            operand_values: vec![1, 2, 3],
            pools: vec![MemoryPool { size: 5 }, MemoryPool { size: 2 }],
            ..Model::default()
        }
    }

    fn pools() -> Vec<Vec<u8>> {
        vec![b"abcde".to_vec(), b"fg".to_vec()]
    }

    fn saved() -> Bench {
        let bench = bench();
        save(&bench.handles, &KEY, (&model(), &pools()), (1, 2)).unwrap();
        bench
    }

    fn bytes(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn what_was_saved_is_found() {
        let bench = bench();
        bench.files[0].write_all_at(&[9; 5000], 0).unwrap();
        bench.files[1].write_all_at(&[9; 5000], 0).unwrap();
        save(&bench.handles, &KEY, (&model(), &pools()), (1, 2)).unwrap();
        let entry = load(&bench.handles, &KEY, 7).unwrap();
        assert_eq!(entry.model, model());
        assert_eq!(entry.pools, pools());
        assert_eq!((entry.preference, entry.priority), (1, 2));
        assert!(matches!(
            load(&bench.handles, &KEY, 6),
            Err(CacheError::TooLarge(_))
        ));
    }

    #[test]
    fn every_flipped_byte_of_either_file_is_noticed() {
        let bench = saved();
        for file in &bench.files {
            for (at, byte) in bytes(file).into_iter().enumerate() {
                for flip in [1, 0x80, 0xFF] {
                    file.write_all_at(&[byte ^ flip], at as u64).unwrap();
                    assert!(load(&bench.handles, &KEY, 7).is_err(), "byte {at} by {flip}");
                }
                file.write_all_at(&[byte], at as u64).unwrap();
            }
        }
        load(&bench.handles, &KEY, 7).unwrap();
    }

    #[test]
    fn every_other_length_of_either_file_is_noticed() {
        let bench = saved();
        for file in &bench.files {
            let whole = bytes(file);
            for length in 0..whole.len() {
                file.set_len(length as u64).unwrap();
                assert!(load(&bench.handles, &KEY, 7).is_err(), "{length} bytes");
                file.write_all_at(&whole, 0).unwrap();
            }
            for more in 1..=256 {
                file.set_len((whole.len() + more) as u64).unwrap();
                assert!(load(&bench.handles, &KEY, 1000).is_err(), "{more} bytes more");
            }
            file.set_len(whole.len() as u64).unwrap();
        }
        load(&bench.handles, &KEY, 7).unwrap();
    }

    #[test]
    fn another_device_version_token_or_partner_file_is_a_miss() {
        let bench = saved();
        for key in [
            Key {
                device: ("vendor-other", "1.0"),
                ..KEY
            },
            Key {
                device: ("vendor-device", "1.1"),
                ..KEY
            },
            Key {
                token: [8; 32],
                ..KEY
            },
        ] {
            assert!(matches!(
                load(&bench.handles, &key, 7),
                Err(CacheError::Stale { .. })
            ));
        }
        let other = saved();
        let changed = [b"abcdX".to_vec(), b"fg".to_vec()].to_vec();
        save(&other.handles, &KEY, (&model(), &changed), (1, 2)).unwrap();
        let mixed = CacheHandles {
            model: bench.handles.model,
            data: other.handles.data,
        };
        assert!(matches!(load(&mixed, &KEY, 7), Err(CacheError::Changed { .. })));
    }

    #[test]
    fn files_of_other_programs_are_a_miss() {
        let bench = bench();
        for content in [
            &b""[..],
            b"\x7fELF",
            &[0; 4096],
            b"NNHALM\0\x02 of the next format",
        ] {
            bench.files[0].set_len(0).unwrap();
            bench.files[0].write_all_at(content, 0).unwrap();
            assert!(matches!(
                load(&bench.handles, &KEY, 7),
                Err(CacheError::Foreign { .. })
            ));
        }
    }
}
