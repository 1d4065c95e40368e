//! Cache files that a client has made by itself.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nnhal::wire::CacheFiles;
use nnhal_conformance::fuzzing::{Reached, device, seeds};
use nnhal_device::{CACHE_FILES, Device, DeviceOptions};

use super::*;
use crate::device::cpu;

/// More is not read: fuzzing looks for wrong files, not for large ones.
const LIMIT: u64 = 1 << 20;

const TOKEN: CacheToken = [7; 32];

fn the_device() -> &'static Arc<dyn Device> {
    static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
    DEVICE.get_or_init(|| cpu::create_fast(&DeviceOptions::default()).expect("the device"))
}

fn key() -> Key<'static> {
    let info = the_device().info();
    Key {
        device: (&info.name, &info.version),
        token: TOKEN,
    }
}

/// Loads what the two packets of `bytes` say, and makes a model ready of it that is run. The first one is the
/// model file from behind the digest on, the second one the data file. Digests and the device are made to
/// fit, as a client can do that too. If the first byte of `bytes` is odd, both files are taken as they are.
pub fn cache_files(bytes: &[u8]) -> Reached {
    let Some((kind, rest)) = bytes.split_first() else {
        return Reached::Bytes;
    };
    let mut packets = seeds::packets(rest);
    let (body, data) = (
        packets.next().unwrap_or_default(),
        packets.next().unwrap_or_default(),
    );
    let is_whole = kind % 2 == 1;
    let model = if is_whole {
        body.to_vec()
    } else {
        forged(body, data)
    };
    let handles = handles();
    write(&handles.model, &model);
    write(&handles.data, data);
    let Ok(entry) = load(&handles, &key(), LIMIT, &|| Ok(())) else {
        return Reached::Bytes;
    };
    let Entry {
        model,
        pools,
        compiled,
        ..
    } = entry;
    device::run(&**the_device(), (model, &pools), compiled, data)
}

/// The model file that has this body, with whatever a client can make fit.
fn forged(body: &[u8], data: &[u8]) -> Vec<u8> {
    let fitting = fit(body, data);
    let body = fitting.as_deref().unwrap_or(body);
    let length = (body.len() as u64).to_le_bytes();
    [&MODEL_MAGIC[..], blake3::hash(body).as_bytes(), &length, body].concat()
}

/// The body with the header of this data file; `None` if it has no header.
fn fit(body: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, model) = rest.split_at_checked(length)?;
    let mut header: Header = codec::decode(header).ok()?;
    let info = the_device().info();
    let mut hasher = KeyedHasher::again(&header.data_digest);
    hasher.update(data);
    header.data_digest = hasher.finish();
    (header.device, header.version) = (info.name.clone(), info.version.clone());
    (header.token, header.model_bytes) = (TOKEN, model.len() as u64);
    let header = codec::encode(&header).ok()?;
    Some([&(header.len() as u64).to_le_bytes()[..], &header, model].concat())
}

fn handles() -> CacheHandles {
    let file = || -> OwnedFd { memfd_create(c"cache", MFdFlags::MFD_CLOEXEC).expect("a file") };
    CacheHandles::new(&CacheFiles::new(1, 1), vec![file(), file()], CACHE_FILES).expect("two files")
}

fn write(file: &CacheFile, bytes: &[u8]) {
    file.clear().expect("an empty file");
    file.write_at(0, bytes).expect("a file with the bytes");
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nnhal_conformance::fuzzing::{decode, model_seeds};
    use nnhal_device::{Control, PrepareOptions, Undisturbed};
    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{ExecutionPreference, Priority};
    use nnhal_os::time::Deadline;

    use super::*;

    /// As many models are kept in the tree.
    const KEPT: usize = 16;

    fn read(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// The two files of a model, as they are saved.
    fn saved(model: &Model, pools: &Vec<Vec<u8>>) -> Option<(Vec<u8>, Vec<u8>)> {
        let device = the_device();
        let work = Undisturbed::new();
        let control = Control::new(&work, Deadline::NONE, std::time::Duration::from_secs(1));
        let options = PrepareOptions {
            preference: ExecutionPreference::FastSingleAnswer,
            priority: Priority::Medium,
            control: &control,
        };
        let valid = Arc::new(ValidModel::new(Arc::new(model.clone()), pools, &[]).ok()?);
        let prepared = device.prepare(valid, pools, &options).ok()?;
        let fds: Vec<OwnedFd> = (0..2)
            .map(|_| memfd_create(c"cache", MFdFlags::MFD_CLOEXEC).unwrap())
            .collect();
        let files: Vec<File> = fds.iter().map(|fd| fd.try_clone().unwrap().into()).collect();
        let handles = CacheHandles::new(&CacheFiles::new(1, 1), fds, CACHE_FILES).unwrap();
        let compiled = prepared.compiled();
        let kept = Kept {
            model,
            pools,
            compiled: compiled.as_ref(),
        };
        save(&handles, &key(), kept, (1, 1), LIMIT).ok()?;
        Some((read(&files[0]), read(&files[1])))
    }

    /// The input of these two files, which are taken as they are if it `is_whole`.
    fn input(is_whole: bool, (model, data): &(Vec<u8>, Vec<u8>)) -> Vec<u8> {
        let body = if is_whole {
            &model[..]
        } else {
            &model[START_BYTES..]
        };
        [&[u8::from(is_whole)][..], &seeds::joined(&[body, data])].concat()
    }

    /// Files of models that can be run with the data file as their inputs: some have no such index.
    fn made() -> Vec<Vec<u8>> {
        let inputs = model_seeds(300);
        let inputs = inputs.iter().filter_map(|bytes| decode(bytes));
        let files = inputs.filter_map(|input| saved(&input.model, &input.pools));
        let short = files.filter(|(model, data)| model.len() + data.len() <= 4096);
        let good = short.filter(|files| cache_files(&input(false, files)) == Reached::Result);
        let numbered = good.take(KEPT).enumerate();
        numbered
            .map(|(number, files)| input(number % 8 == 7, &files))
            .collect()
    }

    #[test]
    fn cache_files_in_the_tree_are_refused_or_run() {
        let made = made();
        assert!(made.len() > KEPT / 2, "{} models run", made.len());
        for seed in &made {
            assert_eq!(cache_files(seed), Reached::Result);
        }
        seeds::check("cache_files", &made, cache_files);
    }
}
