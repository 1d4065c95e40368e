//! Compiled models of `nnhal-cpu` in compilation caches, with the real daemon (T30): what was packed when the
//! model was prepared is used again, and never for another model.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nnhal_client::{
    CacheFiles, CompilationCache, Device, Devices, ErrorStatus, ExecuteOptions, Input, Model, ModelBuilder,
    OperationType, Output, PrepareOptions, PreparedModel, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const INPUTS: u32 = 80;
const OUTPUTS: u32 = 17;

/// The weights of a fully connected layer: large enough to be left out beside their packed form.
fn weights(seed: u32) -> Vec<f32> {
    (0..INPUTS * OUTPUTS)
        .map(|at| ((at + seed).wrapping_mul(0x9E37_79B9) >> 24) as f32)
        .collect()
}

fn model(seed: u32) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, INPUTS]));
    let filter = model.constant(TensorType::float32(&[OUTPUTS, INPUTS]), &weights(seed));
    let bias = model.constant(TensorType::float32(&[OUTPUTS]), &[0.5_f32; OUTPUTS as usize]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[1, OUTPUTS]));
    model.operation(
        OperationType::FULLY_CONNECTED,
        &[x, filter, bias, no_activation],
        &[y],
    );
    let model = model.finish().unwrap();
    // Constants in a pool, however small they are together.
    let mut hal = model.hal().clone();
    let bytes = std::mem::take(&mut hal.operand_values);
    hal.pools = vec![nnhal_hal::MemoryPool {
        size: bytes.len() as u64,
    }];
    for operand in &mut hal.main.operands {
        if operand.lifetime == nnhal_hal::OperandLifeTime::ConstantCopy {
            operand.lifetime = nnhal_hal::OperandLifeTime::ConstantReference;
        }
    }
    Model::with_pool_bytes(hal, [bytes]).unwrap()
}

/// What the layer gives for ones: all whole numbers and a half, so the same in any order of adding.
fn expected(seed: u32) -> Vec<f32> {
    weights(seed)
        .chunks(INPUTS as usize)
        .map(|row| row.iter().sum::<f32>() + 0.5)
        .collect()
}

fn result(prepared: &PreparedModel) -> Vec<f32> {
    let mut output = vec![0.0_f32; OUTPUTS as usize];
    prepared
        .run(
            &[Input::from(&[1.0_f32; INPUTS as usize][..])],
            &mut [Output::from(&mut output[..])],
            &ExecuteOptions::new(),
        )
        .unwrap();
    output
}

struct Bench {
    daemon: TestDaemon,
    device: Device,
    directory: tempfile::TempDir,
}

/// The two files of an entry, the model's first.
struct Entry {
    files: [File; 2],
}

impl Entry {
    fn options(&self) -> PrepareOptions {
        let clone = |file: &File| vec![file.try_clone().unwrap().into()];
        PrepareOptions::new().cache(Arc::new(CacheFiles {
            model: clone(&self.files[0]),
            data: clone(&self.files[1]),
            token: [5; 32],
        }))
    }

    fn bytes(&self, index: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.files[index].metadata().unwrap().len() as usize];
        self.files[index].read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn write(&self, index: usize, bytes: &[u8]) {
        self.files[index].set_len(bytes.len() as u64).unwrap();
        self.files[index].write_all_at(bytes, 0).unwrap();
    }
}

impl Bench {
    fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        Bench {
            device: device(&daemon.runtime_dir(), "nnhal-cpu"),
            daemon,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn entry(&self, name: &str) -> Entry {
        let open = |kind: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options
                .open(self.directory.path().join(format!("{name}-{kind}")))
                .unwrap()
        };
        Entry {
            files: [open("model"), open("data")],
        }
    }

    fn saved(&self, name: &str, seed: u32) -> Entry {
        let entry = self.entry(name);
        let prepared = self.device.prepare(&model(seed), &entry.options()).unwrap();
        assert_eq!(result(&prepared), expected(seed));
        entry
    }

    /// What the entry computes with the model that it is said to hold, if it is taken for one.
    fn load(&self, entry: &Entry, seed: u32) -> Option<Vec<f32>> {
        match self
            .device
            .prepare_from_cache(Some(&model(seed)), &entry.options())
        {
            Ok(prepared) => Some(result(&prepared)),
            Err(error) => {
                assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
                None
            }
        }
    }
}

fn device(runtime_dir: &Path, name: &str) -> Device {
    Devices::open_in(runtime_dir).unwrap().device(name).unwrap()
}

#[test]
fn compiled_models_compute_the_same_and_are_kept_without_the_weights_that_they_replace() {
    let bench = Bench::new();
    let entry = bench.saved("entry", 1);
    assert_eq!(bench.load(&entry, 1), Some(expected(1)));
    let raw: Vec<u8> = weights(1)
        .iter()
        .flat_map(|weight| weight.to_le_bytes())
        .collect();
    let data = entry.bytes(1);
    assert!(!data.windows(64).any(|window| window == &raw[..64]));
    assert!(data.len() < 2 * raw.len(), "{} bytes", data.len());
}

#[test]
fn compiled_models_with_any_byte_changed_are_not_taken() {
    let bench = Bench::new();
    let entry = bench.saved("entry", 1);
    for index in 0..2 {
        let whole = entry.bytes(index);
        for at in (0..whole.len()).step_by(29).chain(whole.len() - 8..whole.len()) {
            entry.files[index]
                .write_all_at(&[whole[at] ^ 0x40], at as u64)
                .unwrap();
            assert_eq!(bench.load(&entry, 1), None, "T30: file {index}, byte {at}");
            entry.files[index].write_all_at(&[whole[at]], at as u64).unwrap();
        }
        for length in (0..whole.len())
            .step_by(101)
            .chain([whole.len() - 1, whole.len() + 64])
        {
            entry.files[index].set_len(length as u64).unwrap();
            assert_eq!(bench.load(&entry, 1), None, "T30: file {index}, {length} bytes");
            entry.write(index, &whole);
        }
    }
    assert_eq!(bench.load(&entry, 1), Some(expected(1)));
}

#[test]
fn compiled_weights_of_another_model_are_not_taken() {
    let bench = Bench::new();
    let (one, other) = (bench.saved("one", 1), bench.saved("other", 2));
    let (data, foreign) = (one.bytes(1), other.bytes(1));
    assert_eq!(
        data.len(),
        foreign.len(),
        "the models differ in their weights alone"
    );
    one.write(1, &foreign);
    assert_eq!(bench.load(&one, 1), None, "T30: another's data file");
    one.write(1, &data);
    one.write(0, &other.bytes(0));
    assert_eq!(bench.load(&one, 1), None, "T30: another's model file");
}

#[test]
fn compiled_models_of_another_device_are_not_taken() {
    let bench = Bench::new();
    let reference = device(&bench.daemon.runtime_dir(), "nnhal-reference");
    let version = &bench.device.info().version;
    assert!(
        version.contains("layout ") && version.contains(std::env::consts::ARCH),
        "{version}"
    );
    assert_ne!(*version, reference.info().version);
    let entry = bench.saved("fast", 1);
    let refused = reference.prepare_from_cache(None, &entry.options()).unwrap_err();
    assert_eq!(refused.status(), ErrorStatus::GeneralFailure, "{refused}");
    assert!(refused.to_string().contains("nnhal-cpu"), "{refused}");
    reference.prepare(&model(1), &entry.options()).unwrap();
    assert_eq!(bench.load(&entry, 1), None);
}

/// Names the cache directory and the driver's to the processes that write at the same time.
const WRITER: &str = "NNHAL_TEST_CACHE_WRITER";
const RUNTIME_DIR: &str = "NNHAL_TEST_CACHE_DRIVER";

const MODELS: u32 = 3;

/// What each writer does once it is told to begin: prepares every model, again and again.
fn write_caches(directory: &Path) {
    let runtime_dir = std::env::var_os(RUNTIME_DIR).unwrap();
    let device = device(Path::new(&runtime_dir), "nnhal-cpu");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    for round in 0..12 {
        let cache = CompilationCache::open(directory, u64::MAX).unwrap();
        let seed = round % MODELS;
        let prepared = cache
            .prepare(&device, &model(seed), &PrepareOptions::new())
            .unwrap();
        assert_eq!(result(&prepared), expected(seed), "T30");
    }
}

#[test]
fn writers_in_several_processes_leave_one_whole_entry_for_each_model() {
    if let Some(directory) = std::env::var_os(WRITER) {
        return write_caches(Path::new(&directory));
    }
    let bench = Bench::new();
    let directory = bench.directory.path().canonicalize().unwrap().join("cache");
    let start = |_| {
        Command::new("/proc/self/exe")
            .args([
                "--exact",
                "writers_in_several_processes_leave_one_whole_entry_for_each_model",
                "--nocapture",
            ])
            .env(WRITER, &directory)
            .env(RUNTIME_DIR, bench.daemon.runtime_dir())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut writers: Vec<_> = (0..5).map(start).collect();
    for writer in &mut writers {
        writer.stdin.take().unwrap().write_all(b"begin\n").unwrap();
    }
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let entries = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.filter(|name| name != "key").collect();
        names.sort();
        names
    };
    let left = entries();
    assert_eq!(left.len(), MODELS as usize, "{left:?}");
    let cache = CompilationCache::open(&directory, u64::MAX).unwrap();
    let size = cache.size().unwrap();
    for seed in 0..MODELS {
        let prepared = cache
            .prepare(&bench.device, &model(seed), &PrepareOptions::new())
            .unwrap();
        assert_eq!(result(&prepared), expected(seed));
    }
    assert_eq!(
        (entries(), cache.size().unwrap()),
        (left, size),
        "what they left was found"
    );
}
