//! Reading a file that should be small. Records, states and manifests are a few kilobytes; whatever stands in their
//! place takes no more memory than the limit, and a pipe there holds nobody.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most bytes of a file of ply's own.
pub const OWN_FILE_MAX: u64 = 16 << 20;

/// The bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// The system's; [`io::ErrorKind::FileTooLarge`] for a longer file, [`io::ErrorKind::InvalidInput`] for what is no
/// regular file.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // The size is only a claim: the file may grow while it is read.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(limit).min(1 << 20)).unwrap_or(0) + 32);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("it is longer than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// As [`read_at_most`], and [`io::ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_text_at_most(path: &Path, limit: u64) -> io::Result<String> {
    let text = String::from_utf8(read_at_most(path, limit)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read_and_only_of_files() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_text_at_most(&path, 4).unwrap(), "1234");
        let error = read_at_most(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is longer than 3 bytes");
        // A sparse file of a terabyte, and a pipe that nobody writes to.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_at_most(&path, OWN_FILE_MAX).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let pipe = temp.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        assert_eq!(read_at_most(&pipe, 10).unwrap_err().to_string(), "it is not a regular file");
        assert_eq!(read_at_most(temp.path(), 10).unwrap_err().to_string(), "it is not a regular file");
    }
}
