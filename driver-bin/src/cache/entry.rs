//! What is in the files.
//!
//! Each file starts with 8 bytes that name the kind and the version of the format. In the model file the
//! digest and the length of the rest follow, then the rest: an encoded [`Header`] and behind it the encoded
//! model. In the data file follow the digest of the encoded model, which makes it the partner of no other
//! model's file, then what is kept of the pools, one segment behind the other, and from the next multiple of
//! [`ALIGNMENT`] on the parts of the compiled form, each from such a multiple on. The model file is written
//! last.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::sync::Arc;

use nnhal::wire::codec;
use nnhal_device::Compiled;
use nnhal_hal::{CacheToken, ConstantPools, Model};
use nnhal_os::buffer::{ALIGNMENT, AlignedSlice};

use super::files::CacheFile;
use super::kept_pools::{KeptPools, Segment, segments};
use super::keyed_digest::{KeyedDigest, KeyedHasher};
use super::{CacheError, CacheHandles, Checkpoint};

/// Names the kind and version of a model file. A change of anything that is saved changes the last byte.
const MODEL_MAGIC: [u8; 8] = *b"NNHALM\0\x02";
/// The same for a data file.
const DATA_MAGIC: [u8; 8] = *b"NNHALD\0\x02";

const DIGEST_BYTES: usize = 32;
const LENGTH_BYTES: usize = 8;
const START_BYTES: usize = MODEL_MAGIC.len() + DIGEST_BYTES + LENGTH_BYTES;

const DATA_START_BYTES: usize = DATA_MAGIC.len() + DIGEST_BYTES;

/// Longest header. Names and versions of devices are short; each constant may be a segment.
const MAX_HEADER: usize = 16 * 1024 * 1024;

/// What must be the same when an entry is asked for as it was when it was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// Name and version of the device.
    pub(crate) device: (&'a str, &'a str),
    pub(crate) token: CacheToken,
}

/// What is kept of a prepared model.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) model: &'a Model,
    pub(crate) pools: &'a dyn ConstantPools,
    pub(crate) compiled: Option<&'a Compiled<'a>>,
}

/// A model that was prepared, and how.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Model,
    pub(crate) pools: KeptPools,
    /// The device's compiled form, if it made one. It lacks nothing that `pools` has not.
    pub(crate) compiled: Option<AlignedSlice>,
    /// Codes of the HAL.
    pub(crate) preference: i32,
    pub(crate) priority: i32,
}

struct Header {
    device: String,
    version: String,
    token: CacheToken,
    preference: i32,
    priority: i32,
    data_digest: KeyedDigest,
    pool_sizes: Vec<u64>,
    segments: Vec<Segment>,
    /// How many, padding between and behind the parts included.
    compiled_bytes: Option<u64>,
    model_bytes: u64,
}

nnhal::wire_record! {
    Header {
        device: String,
        version: String,
        token: CacheToken,
        preference: i32,
        priority: i32,
        data_digest: KeyedDigest,
        pool_sizes: Vec<u64>,
        segments: Vec<Segment>,
        compiled_bytes: Option<u64>,
        model_bytes: u64,
    }
}

/// Saves a model that `codes` (preference and priority) prepared, if what is kept has at most `limit` bytes.
///
/// # Errors
///
/// The files then hold nothing that [`load`] takes for an entry.
pub(crate) fn save(
    handles: &CacheHandles,
    key: &Key<'_>,
    kept: Kept<'_>,
    (preference, priority): (i32, i32),
    limit: u64,
) -> Result<(), CacheError> {
    let CacheHandles { model: file, data } = handles;
    file.check_writable()?;
    data.check_writable()?;
    file.clear()?;
    data.clear()?;
    let model_bytes = codec::encode(kept.model).map_err(|error| too_large(&error))?;
    let pool_sizes: Vec<u64> = (0..kept.model.pools.len())
        .map(|pool| kept.pools.size(pool).unwrap_or(0))
        .collect();
    check_pools(&pool_sizes, limit)?;
    let replaced = kept.compiled.map(|compiled| &compiled.replaced[..]);
    let segments = segments(kept.model, &pool_sizes, replaced);
    let mut written = DataWriter::new(data, limit);
    written.append(&[&DATA_MAGIC[..], blake3::hash(&model_bytes).as_bytes()].concat())?;
    for segment in &segments {
        let bytes = kept.pools.range(
            segment.pool as usize,
            segment.offset as usize,
            segment.length as usize,
        );
        written.append(bytes.unwrap_or_default())?;
    }
    let mut compiled_bytes = None;
    if let Some(compiled) = kept.compiled {
        written.pad()?;
        let start = written.offset;
        for part in &compiled.parts {
            written.append(part)?;
            written.pad()?;
        }
        compiled_bytes = Some(written.offset - start);
    }
    let header = Header {
        device: key.device.0.to_owned(),
        version: key.device.1.to_owned(),
        token: key.token,
        preference,
        priority,
        data_digest: written.digest.finish(),
        pool_sizes,
        segments,
        compiled_bytes,
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

/// Writes a data file and computes its digest.
struct DataWriter<'a> {
    file: &'a CacheFile,
    digest: KeyedHasher,
    offset: u64,
    limit: u64,
}

impl<'a> DataWriter<'a> {
    fn new(file: &'a CacheFile, limit: u64) -> DataWriter<'a> {
        DataWriter {
            file,
            digest: KeyedHasher::with_new_key(),
            offset: 0,
            limit: most_data(limit),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), CacheError> {
        let end = self.offset.saturating_add(bytes.len() as u64);
        if end > self.limit {
            return Err(CacheError::TooLarge(format!(
                "what is to be kept has more than {} bytes",
                self.limit
            )));
        }
        self.digest.update(bytes);
        self.file.write_at(self.offset, bytes)?;
        self.offset = end;
        Ok(())
    }

    /// Up to the next multiple of [`ALIGNMENT`].
    fn pad(&mut self) -> Result<(), CacheError> {
        let padding = self.offset.next_multiple_of(ALIGNMENT as u64) - self.offset;
        self.append(&[0; ALIGNMENT][..padding as usize])
    }
}

/// The longest data file.
fn most_data(limit: u64) -> u64 {
    limit.saturating_add(DATA_START_BYTES as u64)
}

fn check_pools(sizes: &[u64], limit: u64) -> Result<(), CacheError> {
    let bytes = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
    if bytes <= limit {
        return Ok(());
    }
    Err(CacheError::TooLarge(format!(
        "the model's constants have {bytes} bytes, of models with at most {limit} something is kept"
    )))
}

fn too_large(error: &codec::CodecError) -> CacheError {
    CacheError::TooLarge(error.to_string())
}

/// The entry in the files, if it is the one that was saved under this key. Constants have at most `limit`
/// bytes.
///
/// # Errors
///
/// Why there is none, or what `checkpoint` says.
pub(crate) fn load(
    handles: &CacheHandles,
    key: &Key<'_>,
    limit: u64,
    checkpoint: Checkpoint<'_>,
) -> Result<Entry, CacheError> {
    let file = handles.model.kind();
    let bytes = handles
        .model
        .read((START_BYTES + LENGTH_BYTES + MAX_HEADER + codec::MAX_MESSAGE) as u64)?;
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
    let (preference, priority) = (header.preference, header.priority);
    let (pools, compiled) = load_data(handles, header, limit, checkpoint)?;
    let model: Model = codec::decode(model).map_err(foreign)?;
    if model.pools.len() != pools.len() {
        return Err(changed());
    }
    Ok(Entry {
        model,
        pools,
        compiled,
        preference,
        priority,
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

fn load_data(
    handles: &CacheHandles,
    header: Header,
    limit: u64,
    checkpoint: Checkpoint<'_>,
) -> Result<(KeptPools, Option<AlignedSlice>), CacheError> {
    check_pools(&header.pool_sizes, limit)?;
    let file = handles.data.kind();
    let hasher = KeyedHasher::again(&header.data_digest);
    let (bytes, digest) = handles.data.read_hashed(most_data(limit), hasher, checkpoint)?;
    if digest != header.data_digest {
        return Err(CacheError::Changed { file });
    }
    let bytes = Arc::new(bytes);
    let parts = || {
        let places = (header.pool_sizes, header.segments);
        let (pools, end) = KeptPools::new(Arc::clone(&bytes), DATA_START_BYTES, places)?;
        let length = bytes.bytes().len();
        let Some(compiled_bytes) = header.compiled_bytes else {
            return (end == length).then_some((pools, None));
        };
        let start = end.next_multiple_of(ALIGNMENT);
        if start.checked_add(usize::try_from(compiled_bytes).ok()?)? != length {
            return None;
        }
        Some((pools, Some(AlignedSlice::new(bytes, start..length)?)))
    };
    parts().ok_or(CacheError::Changed { file })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nnhal::wire::CacheFiles;
    use nnhal_device::{CACHE_FILES, Interruption};
    use nnhal_hal::{DataLocation, MemoryPool, Operand, OperandLifeTime, OperandType, Subgraph};

    use super::*;

    /// Constants of 8 bytes, of which the compiled form replaces 5.
    const LIMIT: u64 = 4096;

    const KEY: Key<'static> = Key {
        device: ("vendor-device", "1.0"),
        token: [7; 32],
    };

    fn load_all(handles: &CacheHandles, key: &Key<'_>, limit: u64) -> Result<Entry, CacheError> {
        load(handles, key, limit, &|| Ok(()))
    }

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
            main: Subgraph {
                operands: vec![constant(0, 5), constant(1, 2)],
                ..Subgraph::default()
            },
            operand_values: vec![1, 2, 3],
            pools: vec![MemoryPool { size: 5 }, MemoryPool { size: 2 }],
            ..Model::default()
        }
    }

    fn constant(pool_index: u32, length: u32) -> Operand {
        let operand = Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[length]);
        let mut operand = operand.with_lifetime(OperandLifeTime::ConstantReference);
        operand.location = DataLocation {
            pool_index,
            offset: 0,
            length,
        };
        operand
    }

    fn pools() -> Vec<Vec<u8>> {
        vec![b"abcde".to_vec(), b"fg".to_vec()]
    }

    /// Saves without or with a compiled form, which replaces the first constant.
    fn save_into(bench: &Bench, pools: &Vec<Vec<u8>>, is_compiled: bool) -> Result<(), CacheError> {
        let compiled = Compiled {
            parts: vec![b"packed", &[7; 100]],
            replaced: vec![(0, 0)],
        };
        let kept = Kept {
            model: &model(),
            pools,
            compiled: is_compiled.then_some(&compiled),
        };
        save(&bench.handles, &KEY, kept, (1, 2), LIMIT)
    }

    fn saved(is_compiled: bool) -> Bench {
        let bench = bench();
        save_into(&bench, &pools(), is_compiled).unwrap();
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
        save_into(&bench, &pools(), false).unwrap();
        let entry = load_all(&bench.handles, &KEY, 7).unwrap();
        assert_eq!(entry.model, model());
        assert_eq!(entry.pools.bytes(0), Some(&b"abcde"[..]));
        assert_eq!(entry.pools.bytes(1), Some(&b"fg"[..]));
        assert!(entry.compiled.is_none());
        assert_eq!((entry.preference, entry.priority), (1, 2));
        assert!(matches!(
            load_all(&bench.handles, &KEY, 6),
            Err(CacheError::TooLarge(_))
        ));
    }

    #[test]
    fn compiled_forms_are_found_in_place_of_what_they_replace() {
        let bench = saved(true);
        let entry = load_all(&bench.handles, &KEY, LIMIT).unwrap();
        assert_eq!((entry.pools.bytes(0), entry.pools.size(0)), (None, Some(5)));
        assert_eq!(entry.pools.bytes(1), Some(&b"fg"[..]));
        let (first, rest) = entry.compiled.unwrap().split(6).unwrap();
        let (second, rest) = rest.split(100).unwrap();
        assert_eq!((first.bytes(), second.bytes()), (&b"packed"[..], &[7; 100][..]));
        assert!(rest.bytes().is_empty());
        assert_eq!(second.bytes().as_ptr() as usize % ALIGNMENT, 0);
        assert!(!bytes(&bench.files[1]).windows(5).any(|window| window == b"abcde"));
    }

    #[test]
    fn what_could_not_be_loaded_is_not_saved() {
        let bench = bench();
        let kept = Kept {
            model: &model(),
            pools: &pools(),
            compiled: None,
        };
        let refused = save(&bench.handles, &KEY, kept, (1, 2), 6);
        assert!(matches!(refused, Err(CacheError::TooLarge(_))));
        let compiled = Compiled {
            parts: vec![&[7; 100]],
            replaced: Vec::new(),
        };
        let kept = Kept {
            compiled: Some(&compiled),
            ..kept
        };
        let refused = save(&bench.handles, &KEY, kept, (1, 2), 90);
        assert!(matches!(refused, Err(CacheError::TooLarge(_))));
        assert!(load_all(&bench.handles, &KEY, LIMIT).is_err());
    }

    #[test]
    fn every_flipped_byte_of_either_file_is_noticed() {
        for bench in [false, true].map(saved) {
            every_flipped_byte_is_noticed(&bench);
        }
    }

    fn every_flipped_byte_is_noticed(bench: &Bench) {
        for file in &bench.files {
            for (at, byte) in bytes(file).into_iter().enumerate() {
                for flip in [1, 0x80, 0xFF] {
                    file.write_all_at(&[byte ^ flip], at as u64).unwrap();
                    assert!(
                        load_all(&bench.handles, &KEY, LIMIT).is_err(),
                        "byte {at} by {flip}"
                    );
                }
                file.write_all_at(&[byte], at as u64).unwrap();
            }
        }
        load_all(&bench.handles, &KEY, LIMIT).unwrap();
    }

    #[test]
    fn every_other_length_of_either_file_is_noticed() {
        for bench in [false, true].map(saved) {
            every_other_length_is_noticed(&bench);
        }
    }

    fn every_other_length_is_noticed(bench: &Bench) {
        for file in &bench.files {
            let whole = bytes(file);
            for length in 0..whole.len() {
                file.set_len(length as u64).unwrap();
                assert!(load_all(&bench.handles, &KEY, LIMIT).is_err(), "{length} bytes");
                file.write_all_at(&whole, 0).unwrap();
            }
            for more in 1..=256 {
                file.set_len((whole.len() + more) as u64).unwrap();
                assert!(
                    load_all(&bench.handles, &KEY, LIMIT).is_err(),
                    "{more} bytes more"
                );
            }
            file.set_len(whole.len() as u64).unwrap();
        }
        load_all(&bench.handles, &KEY, LIMIT).unwrap();
    }

    #[test]
    fn another_device_version_token_or_partner_file_is_a_miss() {
        let bench = saved(true);
        for key in [
            Key {
                device: ("vendor-other", "1.0"),
                ..KEY
            },
            Key {
                device: ("vendor-device", "1.1"),
                ..KEY
            },
            // Other instructions, which the version of a device with a compiled form names.
            Key {
                device: ("vendor-device", "1.0 avx2"),
                ..KEY
            },
            Key {
                token: [8; 32],
                ..KEY
            },
        ] {
            assert!(matches!(
                load_all(&bench.handles, &key, LIMIT),
                Err(CacheError::Stale { .. })
            ));
        }
        let other = saved(true);
        let changed = [b"abcdX".to_vec(), b"fX".to_vec()].to_vec();
        save_into(&other, &changed, true).unwrap();
        let mixed = CacheHandles {
            model: bench.handles.model,
            data: other.handles.data,
        };
        assert!(matches!(
            load_all(&mixed, &KEY, LIMIT),
            Err(CacheError::Changed { .. })
        ));
    }

    #[test]
    fn files_of_other_programs_are_a_miss() {
        let bench = bench();
        for content in [
            &b""[..],
            b"\x7fELF",
            &[0; 4096],
            b"NNHALM\0\x01 of the last format",
            b"NNHALM\0\x03 of the next format",
        ] {
            bench.files[0].set_len(0).unwrap();
            bench.files[0].write_all_at(content, 0).unwrap();
            assert!(matches!(
                load_all(&bench.handles, &KEY, LIMIT),
                Err(CacheError::Foreign { .. })
            ));
        }
    }

    #[test]
    fn loading_stops_at_a_checkpoint_within_the_data() {
        let bench = saved(true);
        let outcome = load(&bench.handles, &KEY, LIMIT, &|| Err(Interruption::DeadlineMissed));
        assert!(
            matches!(
                outcome,
                Err(CacheError::Interrupted(Interruption::DeadlineMissed))
            ),
            "{outcome:?}"
        );
        load_all(&bench.handles, &KEY, LIMIT).unwrap();
    }
}
