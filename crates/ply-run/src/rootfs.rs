//! What the plan asks of an image: a few looks at its files as the app will see them. A trait, so that plans
//! are tested against a handful of paths; the real one looks through the layers without mounting anything.

/// What stands at a path, links followed beneath the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootMeta {
    /// Whether it is a folder.
    pub is_dir: bool,
    /// The permission bits.
    pub mode: u32,
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
        let stat = Self::stat(self, path).ok().flatten()?;
        Some(RootMeta { is_dir: stat.is_dir(), mode: u32::from(stat.mode) })
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        Self::read(self, path, limit as u64).ok().flatten()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = self.read_dir(path).ok().flatten().unwrap_or_default();
        entries.into_iter().filter_map(|e| e.name.into_string().ok()).collect()
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
