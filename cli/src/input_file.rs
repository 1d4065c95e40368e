//! Reading the files that a user names.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// No file that is read is longer: a model's format allows 2 GiB.
const MAX_BYTES: u64 = 2 << 30;

/// Reads a file in full. What is no regular file has no end that could be waited for, and is refused.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_at_most(path, MAX_BYTES)
}

/// As [`read`], for text.
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    // Opening a pipe would wait for somebody to write to it.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let too_long = || {
        Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes, which is the most that is read"),
        )
    };
    let expected = usize::try_from(metadata.len().min(limit)).map_err(|_| too_long())?;
    let mut bytes = Vec::with_capacity(expected);
    // It may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_long());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_file_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "some text").unwrap();
        assert_eq!(read_at_most(&path, 9).unwrap(), b"some text");
        assert_eq!(read_text(&path).unwrap(), "some text");
        let error = read_at_most(&path, 8).unwrap_err();
        assert!(error.to_string().contains("more than 8 bytes"), "{error}");
    }

    #[test]
    fn device_directory_and_pipe_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [Path::new("/dev/zero"), directory.path(), &pipe] {
            let error = read(path).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
