//! What one user keeps is out of another's reach, and what another made is not used (T31).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::unistd::{Gid, Uid, chown, geteuid};
use nnhal_client::{
    CompilationCache, Device, Devices, ModelBuilder, OperationType, PrepareOptions, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{EXE, NOBODY, again_as, expect_success, is_root, part, set_mode};

const TEST: &str = "caches::caches_and_drivers_of_two_users_do_not_mix";

/// Prepares a model by a cache, which has one more entry then.
fn fill(cache: &CompilationCache, device: &Device) {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let y = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::RELU, &[x], &[y]);
    let model = model.finish().unwrap().share_constants().unwrap();
    cache.prepare(device, &model, &PrepareOptions::new()).unwrap();
}

/// What the other user does: everything that it can think of to reach the first one's cache or to have its
/// own used.
fn act_as_other(directory: &Path) {
    assert_eq!(geteuid(), Uid::from_raw(NOBODY));
    let foreign = directory.join("cache");
    for path in [foreign.clone(), foreign.join("inner")] {
        let error = CompilationCache::open(&path, u64::MAX).unwrap_err();
        println!("the other user is told: {error}");
    }
    assert!(fs::read_dir(&foreign).is_err());
    fs::write(foreign.join("planted"), b"entry").unwrap_err();
    fs::rename(&foreign, directory.join("moved")).unwrap_err();
    // In a directory where everybody may write: names that the first user will want.
    let shared = directory.join("shared");
    drop(CompilationCache::open(shared.join("squatted"), u64::MAX).unwrap());
    fs::write(shared.join("squatted").join("planted"), b"entry").unwrap();
    symlink(&foreign, shared.join("link")).unwrap();
    fs::create_dir(shared.join("open")).unwrap();
    set_mode(&shared.join("open"), 0o777);
    // The first user's driver is not there for others either.
    let runtime_dir = fs::read_to_string(directory.join("runtime_dir")).unwrap();
    let reached = Devices::open_in(runtime_dir).and_then(|devices| devices.device("nnhal-reference"));
    println!("the other user is told: {}", reached.unwrap_err());
}

#[test]
fn caches_and_drivers_of_two_users_do_not_mix() {
    if let Some(directory) = part() {
        return act_as_other(Path::new(&directory));
    }
    if !is_root() {
        return;
    }
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let device = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device("nnhal-reference")
        .unwrap();
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap();
    set_mode(&directory, 0o755);
    let shared = directory.join("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    let runtime_dir = daemon.runtime_dir();
    fs::write(directory.join("runtime_dir"), runtime_dir.to_str().unwrap()).unwrap();
    let cache = CompilationCache::open(directory.join("cache"), u64::MAX).unwrap();
    fill(&cache, &device);
    let size = cache.size().unwrap();
    expect_success(&mut again_as(NOBODY, TEST, directory.to_str().unwrap()));
    for squatted in ["squatted", "link", "open"] {
        let path = shared.join(squatted);
        let error = CompilationCache::open(&path, u64::MAX).unwrap_err();
        println!("the first user is told: {error}");
        if squatted == "squatted" {
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }
    }
    assert_eq!(cache.size().unwrap(), size, "T31");
    fill(&cache, &device);
    assert_eq!(cache.size().unwrap(), size, "T31: it was found");
    chown(
        &directory.join("cache"),
        Some(Uid::from_raw(NOBODY)),
        Some(Gid::from_raw(NOBODY)),
    )
    .unwrap();
    let error = CompilationCache::open(directory.join("cache"), u64::MAX).unwrap_err();
    assert!(
        error.to_string().contains("belongs to user 65534"),
        "T31: {error}"
    );
}
