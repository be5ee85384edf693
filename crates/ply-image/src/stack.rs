//! Several images seen as the one root that they are mounted as: for plans that must know what a path will be
//! before anything is mounted.

use crate::error::{ImageError, Result};
use crate::extract::{ExtractOptions, Extracted};
use crate::image::{Body, DirEntry, Found, Image, Inode, Stat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most symlinks on the way to one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Images on top of each other, the first one on top. Symlinks are resolved beneath the common root, `..` stops
/// there, and directories are merged as overlayfs merges them.
#[derive(Debug)]
pub struct LayerStack {
    images: Vec<Image>,
}

/// A path with every symlink resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The absolute path without symlinks.
    pub path: PathBuf,
    /// What is there.
    pub stat: Stat,
    /// The layer that it comes from, 0 on top.
    pub layer: usize,
}

impl LayerStack {
    /// A stack of these images, top first.
    pub fn new(images: Vec<Image>) -> Self {
        Self { images }
    }

    /// The images, top first.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// What a path leads to, all symlinks followed; none where nothing is there.
    ///
    /// # Errors
    /// [`ImageError::LinkLoop`], and those of [`Image::stat`].
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Option<Stat>> {
        Ok(self.resolve(path)?.map(|found| found.stat))
    }

    /// What stands at a path: symlinks on the way are followed, one at its end is not.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn lstat(&self, path: impl AsRef<Path>) -> Result<Option<Stat>> {
        let found = self.find(path.as_ref(), false)?;
        Ok(found.and_then(|(_, found)| found.first().map(|(_, inode)| inode.stat)))
    }

    /// The path without symlinks, and what is there.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Option<Resolved>> {
        let found = self.find(path.as_ref(), true)?;
        Ok(found.and_then(|(path, found)| {
            found.first().map(|(layer, inode)| Resolved { path, stat: inode.stat, layer: *layer })
        }))
    }

    /// The bytes of a file of at most `limit` bytes, symlinks followed; none where there is no file.
    ///
    /// # Errors
    /// As [`LayerStack::stat`] and [`Image::read`].
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>> {
        match self.resolve(path)? {
            Some(found) if found.stat.is_file() => {
                self.images[found.layer].read(&found.path, limit).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The target of a symlink, byte for byte; none where there is no symlink.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Option<PathBuf>> {
        let found = self.find(path.as_ref(), false)?;
        Ok(found.and_then(|(_, found)| match found.into_iter().next() {
            Some((_, Inode { body: Body::Symlink(target), .. })) => Some(target),
            _ => None,
        }))
    }

    /// What all layers have in a directory, sorted by name, symlinks followed; none where there is no directory.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Option<Vec<DirEntry>>> {
        let Some((_, found)) = self.find(path.as_ref(), true)? else { return Ok(None) };
        let mut entries: BTreeMap<OsString, DirEntry> = BTreeMap::new();
        for (layer, inode) in &found {
            let Body::Dir(listing) = &inode.body else { return Ok(None) };
            for entry in self.images[*layer].list(listing)? {
                entries.entry(entry.name.clone()).or_insert(entry);
            }
        }
        Ok(Some(entries.into_values().collect()))
    }

    /// Extracts what all layers have in a directory, symlinks on the way to it followed, into `target`, a folder that
    /// exists and has none of the names in it; the target gets the directory's attributes. Says what was made; none
    /// where there is no directory, and then nothing is touched. [`ExtractOptions::subtree`] doesn't matter here.
    ///
    /// # Errors
    /// As [`LayerStack::stat`] and [`Image::extract`].
    pub fn extract(
        &self,
        path: impl AsRef<Path>,
        target: impl AsRef<Path>,
        options: &ExtractOptions,
    ) -> Result<Option<Extracted>> {
        let Some((_, found)) = self.find(path.as_ref(), true)? else { return Ok(None) };
        if !found.first().is_some_and(|(_, inode)| inode.stat.is_dir()) {
            return Ok(None);
        }
        let images: Vec<&Image> = self.images.iter().collect();
        crate::extract::extract(&images, found, target.as_ref(), options).map(Some)
    }

    /// The first executable file with this name in these directories, as a `PATH` search finds it. A name with a
    /// `/` is that path.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn find_program(&self, name: &str, dirs: &[impl AsRef<Path>]) -> Result<Option<PathBuf>> {
        let is_program = |path: &Path| -> Result<bool> {
            Ok(self.stat(path)?.is_some_and(|stat| stat.is_file() && stat.mode & 0o111 != 0))
        };
        if name.contains('/') {
            return Ok(is_program(Path::new(name))?.then(|| PathBuf::from(name)));
        }
        for dir in dirs {
            let path = dir.as_ref().join(name);
            if is_program(&path)? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// The names of all files and symlinks in these directories, sorted, each once: what a `PATH` search could find.
    ///
    /// # Errors
    /// As [`LayerStack::stat`].
    pub fn programs(&self, dirs: &[impl AsRef<Path>]) -> Result<Vec<OsString>> {
        let mut names = std::collections::BTreeSet::new();
        for dir in dirs {
            let entries = self.read_dir(dir)?.into_iter().flatten();
            names.extend(entries.filter(|e| e.kind != crate::EntryKind::Dir).map(|e| e.name));
        }
        Ok(names.into_iter().collect())
    }

    /// Walks a path from the common root. The result's directories are those of all layers that merge there.
    fn find(&self, path: &Path, follow_last: bool) -> Result<Option<(PathBuf, Found)>> {
        let root: Found = self
            .images
            .iter()
            .enumerate()
            .map(|(layer, image)| Ok((layer, image.root()?)))
            .collect::<Result<_>>()?;
        let mut links = 0;
        let mut todo = names_of(path);
        let mut at: Vec<(OsString, Found)> = Vec::new();
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let here = at.last().map_or(&root, |(_, found)| found);
            let found = self.step(here, &name)?;
            let Some((_, first)) = found.first() else { return Ok(None) };
            match &first.body {
                Body::Symlink(target) if follow_last || !todo.is_empty() => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ImageError::LinkLoop(path.to_owned()));
                    }
                    if target.is_absolute() {
                        at.clear();
                    }
                    todo.extend(names_of(target));
                }
                Body::Dir(_) => at.push((name, found)),
                _ if todo.is_empty() => at.push((name, found)),
                _ => return Ok(None),
            }
        }
        let mut real = PathBuf::from("/");
        real.extend(at.iter().map(|(name, _)| name));
        let found = at.pop().map_or(root, |(_, found)| found);
        Ok(Some((real, found)))
    }

    /// One name in a merged directory: the upper layer hides what is below, unless both are directories.
    fn step(&self, here: &Found, name: &OsStr) -> Result<Found> {
        let mut found = Found::new();
        for (layer, inode) in here {
            let Body::Dir(listing) = &inode.body else { continue };
            let image = &self.images[*layer];
            let Some(place) = image.find_in(listing, name.as_bytes())? else { continue };
            let inode = image.inode(place)?;
            let is_dir = matches!(inode.body, Body::Dir(_));
            if is_dir || found.is_empty() {
                found.push((*layer, inode));
            }
            if !is_dir {
                break;
            }
        }
        Ok(found)
    }
}

/// The names of a path, the first one last, without `.` and empty ones.
fn names_of(path: &Path) -> Vec<OsString> {
    let names = path.as_os_str().as_bytes().split(|b| *b == b'/');
    let mut names: Vec<OsString> =
        names.filter(|n| !n.is_empty() && *n != b".").map(|n| OsStr::from_bytes(n).to_owned()).collect();
    names.reverse();
    names
}
