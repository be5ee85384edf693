//! What the plan asks of an image: a few looks at its files as the app will see them. A trait, so that plans
//! are tested against a handful of paths; the real one looks through the layers without mounting anything.

use crate::files::{read_json, write_json};
use crate::target::stack;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What stands at a path, links followed beneath the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootMeta {
    /// Whether it is a folder.
    pub is_dir: bool,
    /// The permission bits.
    pub mode: u32,
}

impl RootMeta {
    fn of(stat: ply_image::Stat) -> Self {
        Self { is_dir: stat.is_dir(), mode: u32::from(stat.mode) }
    }
}

/// The files of an image under all its layers.
pub trait Rootfs {
    /// What stands at the absolute `path`.
    fn stat(&self, path: &str) -> Option<RootMeta>;
    /// The bytes of a file, at most `limit` of them; `None` where there is none or it is longer.
    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>>;
    /// The names in a folder, sorted; names that are not UTF-8 are left out.
    fn list(&self, path: &str) -> Vec<String>;
}

/// A damaged image shows as a missing file here; mounting it, and its digest, tell the whole.
impl Rootfs for ply_image::LayerStack {
    fn stat(&self, path: &str) -> Option<RootMeta> {
        Self::stat(self, path).ok().flatten().map(RootMeta::of)
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        Self::read(self, path, limit as u64).ok().flatten()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = self.read_dir(path).ok().flatten().unwrap_or_default();
        entries.into_iter().filter_map(|e| e.name.into_string().ok()).collect()
    }
}

/// The most looks that are kept beside an image.
const LOOKS_MAX: usize = 200;

/// An image's files, with what was looked at before kept beside it: each start asks the same, the lock fixes the layers
/// for good, and an answer takes opening and unpacking parts of each of them.
pub(crate) struct Looks {
    images: Vec<PathBuf>,
    root: OnceCell<Option<ply_image::LayerStack>>,
    file: PathBuf,
    kept: RefCell<Answers>,
    learned: Cell<bool>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Answers {
    stat: BTreeMap<String, Option<RootMeta>>,
    /// Text alone is kept.
    read: BTreeMap<String, Option<String>>,
}

impl Looks {
    /// The images, the app's own first.
    pub(crate) fn new(images: Vec<PathBuf>) -> Self {
        let folder = images.first().and_then(|image| image.parent()).unwrap_or(Path::new("/"));
        let file = folder.join("looks.json");
        let kept = RefCell::new(read_json(&file).ok().flatten().unwrap_or_default());
        Self { images, root: OnceCell::new(), file, kept, learned: Cell::new(false) }
    }

    /// The layers, once they are needed. A damaged image shows as missing files.
    fn root(&self) -> Option<&ply_image::LayerStack> {
        self.root.get_or_init(|| stack(&self.images).ok()).as_ref()
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        let kept = self.kept.borrow();
        if self.learned.get() && kept.stat.len() + kept.read.len() <= LOOKS_MAX {
            // Where it can't be kept it is looked at the next time too.
            let _ = write_json(&self.file, &*kept, false);
        }
    }
}

impl Rootfs for Looks {
    fn stat(&self, path: &str) -> Option<RootMeta> {
        if let Some(kept) = self.kept.borrow().stat.get(path) {
            return *kept;
        }
        // What can't be told is no answer to be kept.
        let found = self.root()?.stat(path).ok()?.map(RootMeta::of);
        self.kept.borrow_mut().stat.insert(path.to_owned(), found);
        self.learned.set(true);
        found
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        if let Some(kept) = self.kept.borrow().read.get(path) {
            return kept.clone().map(String::into_bytes).filter(|text| text.len() <= limit);
        }
        let found = self.root()?.read(path, limit as u64).ok()?;
        let text = found.clone().map(String::from_utf8).transpose();
        if let Ok(text) = text {
            self.kept.borrow_mut().read.insert(path.to_owned(), text);
            self.learned.set(true);
        }
        found
    }

    fn list(&self, path: &str) -> Vec<String> {
        self.root().map(|root| Rootfs::list(root, path)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_is_kept_and_what_cannot_be_told_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image.img");
        // No image at all: nothing can be told.
        let looks = Looks::new(vec![image.clone()]);
        assert_eq!((looks.stat("/bin"), looks.read("/etc/passwd", 100)), (None, None));
        drop(looks);
        assert!(!dir.path().join("looks.json").exists());
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("etc")).unwrap();
        std::fs::write(tree.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
        let packed = std::process::Command::new("mksquashfs")
            .args([&tree, &image])
            .args(["-quiet", "-no-progress", "-all-root", "-comp", "zstd"])
            .output()
            .expect("mksquashfs is installed");
        assert!(packed.status.success(), "{packed:?}");
        let ask = || {
            let looks = Looks::new(vec![image.clone()]);
            let is_dir = |path: &str| looks.stat(path).map(|meta| meta.is_dir);
            let text = looks.read("/etc/passwd", 100).map(|t| String::from_utf8(t).unwrap());
            (is_dir("/etc"), is_dir("/none"), text, looks.read("/etc/passwd", 3))
        };
        let first = ask();
        assert_eq!(first, (Some(true), None, Some("root:x:0:0::/root:/bin/sh\n".to_owned()), None));
        std::fs::remove_file(&image).unwrap();
        assert_eq!(ask(), first, "the image is not asked again");
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use std::collections::BTreeMap;

    /// A root of a few files: path → (mode, contents); folders are implied.
    #[derive(Default)]
    pub(crate) struct FakeRoot(pub(crate) BTreeMap<String, (u32, String)>);

    impl FakeRoot {
        pub(crate) fn with(files: &[(&str, u32, &str)]) -> Self {
            Self(files.iter().map(|(p, m, c)| (p.to_string(), (*m, c.to_string()))).collect())
        }
    }

    impl Rootfs for FakeRoot {
        fn stat(&self, path: &str) -> Option<RootMeta> {
            if let Some((mode, _)) = self.0.get(path) {
                return Some(RootMeta { is_dir: false, mode: *mode });
            }
            let prefix = format!("{}/", path.trim_end_matches('/'));
            let dir = self.0.keys().any(|k| k.starts_with(&prefix));
            dir.then_some(RootMeta { is_dir: true, mode: 0o755 })
        }

        fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
            self.0.get(path).map(|(_, c)| c.clone().into_bytes()).filter(|c| c.len() <= limit)
        }

        fn list(&self, path: &str) -> Vec<String> {
            let prefix = format!("{}/", path.trim_end_matches('/'));
            let mut names: Vec<String> = self
                .0
                .keys()
                .filter_map(|k| k.strip_prefix(&prefix))
                .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
                .collect();
            names.dedup();
            names
        }
    }
}
