//! Preparing the model of a file with and without a compilation cache.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nnhal_bench::{Error, Result};
use nnhal_client::{CacheFiles, CompilationCache, Device, Model, PrepareOptions, PreparedModel, TfliteModel};

use super::cost::{Cost, cost, model_name};

/// How often each is done.
const ROUNDS: u32 = 31;

/// Prepares a model in one way.
type Way<'a> = &'a dyn Fn(&Model) -> nnhal_client::Result<PreparedModel>;

/// The ways to a prepared model, in rounds in which they take turns.
pub(super) fn costs(device: &Device, path: &Path) -> Result<Vec<Cost>> {
    // Constants in memory of its own, as an application that has just read its model.
    let model = || -> Result<Model> { Ok(TfliteModel::load(path)?.model) };
    let folder = tempfile::tempdir().map_err(Error::io("make a directory for the cache"))?;
    let folder = folder
        .path()
        .canonicalize()
        .map_err(Error::io("find the cache's directory"))?;
    let directory = CompilationCache::open(folder.join("cache"), u64::MAX)?;
    let files = Arc::new(cache_files(&folder)?);
    let (plain, with_files) = (
        PrepareOptions::new(),
        PrepareOptions::new().cache(Arc::clone(&files)),
    );
    let kept = model()?;
    device.prepare(&kept, &with_files)?;
    directory.prepare(device, &kept, &plain)?;
    let ways: [(&str, Way<'_>); 4] = [
        ("prepare", &|model| device.prepare(model, &plain)),
        ("prepare and save", &|model| device.prepare(model, &with_files)),
        ("prepare from cache files", &|model| {
            device.prepare_from_cache(Some(model), &with_files)
        }),
        ("prepare through a cache directory", &|model| {
            directory.prepare(device, model, &plain)
        }),
    ];
    let mut nanos = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ((_, way), nanos) in ways.iter().zip(&mut nanos) {
            let model = model()?;
            let start = Instant::now();
            let prepared = way(&model)?;
            nanos.push(start.elapsed().as_nanos() as f64);
            drop(prepared);
        }
    }
    let name = model_name(path);
    let costs = ways.iter().zip(&nanos);
    Ok(costs
        .map(|((way, _), nanos)| cost(format!("{name}: {way}"), nanos))
        .collect())
}

fn cache_files(folder: &Path) -> Result<CacheFiles> {
    let open = |name: &str| {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(name))
            .map_err(Error::io("make a cache file"))
    };
    Ok(CacheFiles {
        model: vec![open("model")?.into()],
        data: vec![open("data")?.into()],
        token: [1; 32],
    })
}
