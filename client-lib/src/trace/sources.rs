//! Where spans come from.

use std::sync::Arc;

use nnhal::diag::trace::TraceReader;

use super::file::TraceFile;

/// A process that records spans.
#[derive(Debug)]
pub(super) struct Source {
    pid: u32,
    name: String,
    reader: TraceReader,
    key: Arc<()>,
}

impl Source {
    pub(super) fn new(pid: u32, name: String, reader: TraceReader) -> Source {
        Source {
            pid,
            name,
            reader,
            key: Arc::default(),
        }
    }
}

/// All of them, and where their spans go.
#[derive(Debug)]
pub(super) struct Sources {
    file: TraceFile,
    sources: Vec<Source>,
}

impl Sources {
    pub(super) fn new(file: TraceFile) -> Sources {
        Sources {
            file,
            sources: Vec::new(),
        }
    }

    /// Adds one; returns what it is removed by.
    pub(super) fn add(&mut self, source: Source) -> Arc<()> {
        let key = Arc::clone(&source.key);
        self.file.name_process(source.pid, &source.name);
        self.sources.push(source);
        key
    }

    pub(super) fn remove(&mut self, key: &Arc<()>) {
        self.sources.retain(|source| !Arc::ptr_eq(&source.key, key));
    }

    /// Writes what has been recorded since the last time.
    pub(super) fn write(&mut self) {
        for source in &mut self.sources {
            let (file, pid) = (&mut self.file, source.pid);
            let lost = source.reader.drain(&mut |span| file.write(pid, &span));
            if lost > 0 {
                file.write_lost(pid, lost);
            }
        }
        self.file.flush();
    }
}
