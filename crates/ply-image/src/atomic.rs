//! How a file of ply's own is replaced: a temporary file in the same folder, fsync, rename. Whoever reads finds
//! the old text or the new one, never half of either, also after a power cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the file at `path`, or makes it, with `bytes`; one that is there keeps its permission bits.
///
/// # Errors
/// What the system says; the file is then as it was.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}.{}-{unique}.tmp", name.to_string_lossy(), std::process::id()));
    let placed = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
        if let Ok(old) = path.metadata() {
            file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    placed().inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })?;
    File::open(folder)?.sync_all()
}
