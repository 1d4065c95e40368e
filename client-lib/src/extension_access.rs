//! Which applications may use vendor extensions.
//!
//! A system's administrator may name them in a file. This library heeds it; a driver gets no identity that it
//! could check. So the file keeps applications from depending on a vendor by accident, and is no barrier to
//! those that mean to get around it. nnhal's own extension is no vendor's, and free to all.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nnhal_hal::tflite;

use crate::error::{Error, Result};

/// The environment variable that names another file than [`SYSTEM_ALLOWLIST`].
pub const ALLOWLIST_VARIABLE: &str = "NNHAL_EXTENSION_ALLOWLIST";

/// The file with the applications that may use vendor extensions. Without it all may.
pub const SYSTEM_ALLOWLIST: &str = "/etc/nnhal/extension_applications";

/// The longest such file.
const MAX_BYTES: u64 = 1 << 20;

/// What is asked about an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Application {
    /// The name that it gave itself.
    pub(crate) name: Option<String>,
    /// The file that it wants to be judged by.
    pub(crate) allowlist: Option<PathBuf>,
}

impl Application {
    /// Refuses a model with extensions to an application that may not use them.
    pub(crate) fn check(&self, model: &nnhal_hal::Model) -> Result<()> {
        let Some(extension) = extension_of(model) else {
            return Ok(());
        };
        let (path, is_named) = self.file(nnhal_os::environment::var_os(ALLOWLIST_VARIABLE));
        let text = match read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => return Ok(()),
            Err(error) => {
                return Err(Error::argument(format!(
                    "the model uses {extension}, and the list of the applications that may, {}, cannot be read: {error}",
                    path.display()
                )));
            }
            Ok(text) => text,
        };
        let executable = std::env::current_exe().unwrap_or_default();
        if allows(&text, &executable, self.name.as_deref()) {
            return Ok(());
        }
        Err(Error::argument(format!(
            "the model uses {extension}, which this application ({}{}) may not; those that may are in {}",
            executable.display(),
            self.name
                .as_ref()
                .map(|name| format!(", {name}"))
                .unwrap_or_default(),
            path.display()
        )))
    }

    /// The list's file, and whether somebody named it.
    fn file(&self, variable: Option<OsString>) -> (PathBuf, bool) {
        let named = variable.filter(|name| !name.is_empty()).map(PathBuf::from);
        match self.allowlist.clone().or(named) {
            Some(path) => (path, true),
            None => (PathBuf::from(SYSTEM_ALLOWLIST), false),
        }
    }
}

/// What a model uses beyond the standard and nnhal's own extension, if it does.
fn extension_of(model: &nnhal_hal::Model) -> Option<String> {
    let mappings = &model.extension_name_to_prefix;
    if let Some(mapping) = mappings.iter().find(|mapping| mapping.name != tflite::NAME) {
        return Some(format!("the vendor extension {}", mapping.name));
    }
    // 0 stands for what is standard.
    let own = mappings.first().map_or(0, |mapping| mapping.prefix);
    let is_vendors = |prefix: u16| prefix != 0 && prefix != own;
    let mut graphs = std::iter::once(&model.main).chain(&model.referenced);
    let is_used = graphs.any(|graph| {
        let mut operands = graph.operands.iter();
        let mut operations = graph.operations.iter();
        operands.any(|operand| is_vendors(operand.operand_type.extension_prefix()))
            || operations.any(|operation| is_vendors(operation.operation_type.extension_prefix()))
    });
    is_used.then(|| "a vendor extension".to_owned())
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!(
            "it is longer than {MAX_BYTES} bytes"
        )));
    }
    Ok(text)
}

/// Whether a list has an application: a line each with the absolute path of its executable, or with the name
/// that it gives itself. Empty lines and those that begin with `#` do not count.
fn allows(text: &str, executable: &Path, name: Option<&str>) -> bool {
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.any(|line| {
        if line.starts_with('/') {
            // The system tells an executable's path without symbolic links.
            Path::new(line) == executable
                || Path::new(line)
                    .canonicalize()
                    .is_ok_and(|path| path == executable)
        } else {
            Some(line) == name
        }
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType};

    use super::*;

    #[test]
    fn list_has_applications_by_path_and_by_name() {
        let text = "# those of Acme\n\n  /opt/acme/camera  \ncom.acme.gallery\n";
        let allowed = |path: &str, name| allows(text, Path::new(path), name);
        assert!(allowed("/opt/acme/camera", None));
        assert!(allowed("/usr/bin/gallery", Some("com.acme.gallery")));
        assert!(!allowed("/opt/acme/camera2", None));
        assert!(!allowed("/usr/bin/gallery", Some("com.acme")));
        assert!(!allowed("/usr/bin/gallery", Some("# those of Acme")));
        assert!(!allowed("/usr/bin/gallery", Some("/opt/acme/camera")));
        assert!(!allowed("", None));
    }

    #[test]
    fn symbolic_link_in_the_list_stands_for_its_executable() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        let link = directory.path().join("link");
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(allows(link.to_str().unwrap(), &real, None));
    }

    #[test]
    fn file_is_the_applications_own_then_the_environments_then_the_systems() {
        let own = Application {
            allowlist: Some("/own".into()),
            ..Application::default()
        };
        let none = Application::default();
        assert_eq!(own.file(Some("/environment".into())), ("/own".into(), true));
        assert_eq!(
            none.file(Some("/environment".into())),
            ("/environment".into(), true)
        );
        assert_eq!(none.file(Some("".into())), (SYSTEM_ALLOWLIST.into(), false));
        assert_eq!(none.file(None), (SYSTEM_ALLOWLIST.into(), false));
    }

    #[test]
    fn models_without_extensions_are_nobodys_business() {
        let missing = Application {
            allowlist: Some("/nowhere/at/all".into()),
            ..Application::default()
        };
        let mut model = nnhal_hal::Model::default();
        assert!(missing.check(&model).is_ok());
        // Also one that does not name what it uses.
        model
            .main
            .operands
            .push(Operand::new(OperandType::extension(1, 0), &[]));
        let error = missing.check(&model).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all, cannot be read"), "{error}");
    }

    #[test]
    fn own_extension_is_for_everybody_and_no_others_beside_it() {
        let missing = Application {
            allowlist: Some("/nowhere/at/all".into()),
            ..Application::default()
        };
        let mut model = nnhal_hal::Model::default();
        model.extension_name_to_prefix.push(tflite::mapping());
        let operand = |prefix| Operand::new(OperandType::extension(prefix, 0), &[]);
        model.main.operands.push(operand(tflite::PREFIX));
        assert!(missing.check(&model).is_ok());
        model.main.operands.push(operand(1));
        assert!(missing.check(&model).is_err());
    }

    #[test]
    fn list_beyond_all_bounds_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("longer than"));
    }
}
