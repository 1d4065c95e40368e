//! The client library's cache directory, with the real daemon.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nnhal_client::{
    CompilationCache, Device, Devices, ExecuteOptions, ExecutionPreference, Input, Memory, Model,
    ModelBuilder, OperationType, Output, PrepareOptions, PreparedModel, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const ELEMENTS: u32 = 8192;

struct Bench {
    device: Device,
    _daemon: TestDaemon,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
        Bench {
            device: devices.device("nnhal-reference").unwrap(),
            _daemon: daemon,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("cache")
    }

    fn cache(&self, max_bytes: u64) -> CompilationCache {
        CompilationCache::open(self.path(), max_bytes).unwrap()
    }

    fn prepare(&self, cache: &CompilationCache, value: f32) -> PreparedModel {
        cache
            .prepare(&self.device, &model(value), &PrepareOptions::new())
            .unwrap()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        // Beside the entries there is the file with the key.
        paths.filter(|path| path.is_dir()).collect()
    }
}

/// Adds `value`, as a constant of 32 KiB.
fn model(value: f32) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[ELEMENTS]));
    let y = model.constant(TensorType::float32(&[ELEMENTS]), &vec![value; ELEMENTS as usize]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[ELEMENTS]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap().share_constants().unwrap()
}

/// Adds what a memory holds.
fn model_of(memory: &Memory) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[ELEMENTS]));
    let y = model.constant_in_memory(TensorType::float32(&[ELEMENTS]), memory, 0..memory.size());
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[ELEMENTS]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

/// What a prepared model adds.
fn added(prepared: &PreparedModel) -> f32 {
    let mut sum = vec![0.0_f32; ELEMENTS as usize];
    let zeros = vec![0.0_f32; ELEMENTS as usize];
    prepared
        .run(
            &[Input::from(&zeros[..])],
            &mut [Output::from(&mut sum[..])],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert!(sum.iter().all(|value| *value == sum[0]));
    sum[0]
}

fn files(entry: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(entry).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn models_are_kept_apart_by_everything_they_depend_on() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    for _ in 0..2 {
        assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
        assert_eq!(added(&bench.prepare(&cache, 2.0)), 2.0);
    }
    assert_eq!(bench.entries().len(), 2);
    let sustained = PrepareOptions::new().preference(ExecutionPreference::SustainedSpeed);
    cache.prepare(&bench.device, &model(1.0), &sustained).unwrap();
    assert_eq!(bench.entries().len(), 3);
}

#[test]
fn hits_leave_the_files_as_they_are() {
    let bench = Bench::new();
    bench.prepare(&bench.cache(u64::MAX), 1.0);
    let inode = |bench: &Bench| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(&bench.entries()[0]).unwrap().ino()
    };
    let before = inode(&bench);
    assert_eq!(added(&bench.prepare(&bench.cache(u64::MAX), 1.0)), 1.0);
    assert_eq!(inode(&bench), before, "it was found, not made anew");
}

#[test]
fn spoilt_entries_are_replaced_and_never_used() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    bench.prepare(&cache, 1.0);
    let spoil: [&dyn Fn(&Path); 4] = [
        &|entry| {
            for file in files(entry) {
                let mut bytes = fs::read(&file).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
                fs::write(&file, bytes).unwrap();
            }
        },
        &|entry| fs::write(&files(entry)[0], b"").unwrap(),
        &|entry| fs::remove_file(&files(entry)[0]).unwrap(),
        &|entry| {
            let file = &files(entry)[0];
            let moved = entry.parent().unwrap().parent().unwrap().join("moved");
            fs::rename(file, &moved).unwrap();
            symlink(moved, file).unwrap();
        },
    ];
    for spoil in spoil {
        spoil(&bench.entries()[0]);
        assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
    }
    // T30: another model's files under this model's name.
    bench.prepare(&cache, 2.0);
    let entries = bench.entries();
    for (file, other) in files(&entries[0]).iter().zip(files(&entries[1])) {
        let bytes = fs::read(file).unwrap();
        fs::write(file, fs::read(&other).unwrap()).unwrap();
        fs::write(other, bytes).unwrap();
    }
    assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
    assert_eq!(added(&bench.prepare(&cache, 2.0)), 2.0);
}

#[test]
fn size_is_bounded_by_removing_what_was_not_used_for_longest() {
    let bench = Bench::new();
    let first = bench.cache(u64::MAX);
    bench.prepare(&first, 0.0);
    let one = first.size().unwrap();
    let cache = bench.cache(3 * one);
    for value in [1.0, 2.0] {
        bench.prepare(&cache, value);
    }
    assert_eq!(bench.entries().len(), 3);
    let oldest = bench.entries();
    bench.prepare(&cache, 0.0);
    bench.prepare(&cache, 3.0);
    assert_eq!(bench.entries().len(), 3);
    assert!(cache.size().unwrap() <= 3 * one);
    let kept = bench.entries();
    assert_eq!(oldest.iter().filter(|entry| kept.contains(entry)).count(), 2);
    let inodes = |bench: &Bench| bench.entries().len();
    let before = inodes(&bench);
    bench.prepare(&cache, 0.0);
    assert_eq!(inodes(&bench), before, "what was used is still there");
}

#[test]
fn what_a_killed_writer_left_behind_is_removed() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    let left = bench.path().join(".making-1-0");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("m0"), b"half").unwrap();
    bench.prepare(&cache, 1.0);
    assert!(!left.exists());
    assert_eq!(bench.entries().len(), 1);
}

#[test]
fn concurrent_writers_leave_one_whole_entry() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cache = bench.cache(u64::MAX);
                for _ in 0..4 {
                    assert_eq!(added(&bench.prepare(&cache, 5.0)), 5.0);
                }
            });
        }
    });
    assert_eq!(bench.entries().len(), 1);
    assert_eq!(added(&bench.prepare(&bench.cache(u64::MAX), 5.0)), 5.0);
}

/// Constants that anyone who has their memory can change.
#[test]
fn constants_that_change_while_they_are_prepared_are_kept_under_no_wrong_name() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    let memory = Memory::new(u64::from(ELEMENTS) * 4).unwrap();
    let write = |value: f32| memory.write(0, &vec![value; ELEMENTS as usize]).unwrap();
    let model = model_of(&memory);
    let prepare = || {
        cache
            .prepare(&bench.device, &model, &PrepareOptions::new())
            .unwrap()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                write(1.0);
                write(2.0);
            }
        });
        for _ in 0..50 {
            prepare();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for value in [1.0, 2.0] {
        write(value);
        assert_eq!(added(&prepare()), value);
    }
}

#[test]
fn directories_that_others_could_reach_are_refused() {
    let bench = Bench::new();
    drop(bench.cache(1));
    let path = bench.path();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let error = CompilationCache::open(&path, 1).unwrap_err();
    assert!(error.to_string().contains("mode 750"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let link = path.parent().unwrap().join("link");
    symlink(&path, &link).unwrap();
    for through_link in [link.clone(), link.join("inner")] {
        let error = CompilationCache::open(&through_link, 1).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    if nix::unistd::geteuid().is_root() {
        nix::unistd::chown(&path, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
        let error = CompilationCache::open(&path, 1).unwrap_err();
        assert!(
            error.to_string().contains("belongs to user 65534"),
            "T31: {error}"
        );
    }
}

#[test]
fn keys_that_are_spoilt_are_drawn_anew_and_nothing_is_found_under_them() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    bench.prepare(&cache, 1.0);
    let key = bench.path().join("key");
    let first = fs::read(&key).unwrap();
    assert_eq!(first.len(), 32);
    for spoilt in [&first[..31], &[first.clone(), vec![0]].concat(), b""] {
        fs::write(&key, spoilt).unwrap();
        assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
        let drawn = fs::read(&key).unwrap();
        assert!(drawn.len() == 32 && drawn != first);
    }
    assert_eq!(bench.entries().len(), 4, "one for each key");
    fs::write(&key, &first).unwrap();
    assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
    assert_eq!(bench.entries().len(), 4, "the first is found again");
    // What is no file is left alone, and nothing is kept.
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    assert_eq!(added(&bench.prepare(&cache, 2.0)), 2.0);
}

#[test]
fn directory_that_cannot_be_written_costs_nothing_but_time() {
    let bench = Bench::new();
    let cache = bench.cache(u64::MAX);
    fs::remove_dir_all(bench.path()).unwrap();
    assert_eq!(added(&bench.prepare(&cache, 1.0)), 1.0);
}
