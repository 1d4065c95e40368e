//! What a device needs of the system while it serves a client.

/// What a device needs beside what every worker may do, as data. It gets that and nothing else, and its
/// reasons are for whoever reviews a driver.
///
/// Before there is a client, when a device is made, it may open what its user may. What it has open then it
/// keeps, so most devices need but ioctls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, mostly device nodes, that it opens again while it serves a client: absolute paths. They can be
    /// read and written, as far as the worker's user may. Where the kernel cannot restrict files to these,
    /// none can be opened.
    pub files: &'static [Need<&'static str>],
    /// Ioctls that it makes, by number.
    pub ioctls: &'static [Need<u32>],
    /// Other system calls, by the number that they have on the architecture that the driver is built for.
    pub calls: &'static [Need<i64>],
}

/// One thing that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<T> {
    /// The thing.
    pub what: T,
    /// What for.
    pub reason: &'static str,
}

impl Needs {
    /// None: for devices that compute in the process's memory.
    pub const NONE: Needs = Needs {
        files: &[],
        ioctls: &[],
        calls: &[],
    };

    /// Whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.files.is_empty() && self.ioctls.is_empty() && self.calls.is_empty()
    }
}
