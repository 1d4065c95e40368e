//! What devices need, for one worker.

use std::path::Path;

use nnhal_device::Needs;

use crate::device::registry::DeviceRegistry;

/// What these devices need, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNeeds(Vec<(String, Needs)>);

impl DeviceNeeds {
    /// Of those that have these names.
    pub(crate) fn of<'a>(
        names: impl IntoIterator<Item = &'a String>,
        registry: &DeviceRegistry,
    ) -> DeviceNeeds {
        let needs = |name: &String| registry.get(name).map(|entry| (name.clone(), entry.needs));
        DeviceNeeds(names.into_iter().filter_map(needs).collect())
    }

    /// Name by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Needs)> {
        self.0.iter().map(|(name, needs)| (name.as_str(), needs))
    }

    /// The files of all of them.
    pub(super) fn files(&self) -> Vec<&'static Path> {
        let files = self.0.iter().flat_map(|(_, needs)| needs.files);
        files.map(|file| Path::new(file.what)).collect()
    }
}
