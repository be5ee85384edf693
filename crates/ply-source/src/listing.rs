//! Which images a source has: a directory is read, a server gives `index.json`, an array of file names in which unknown ones are
//! ignored. Each is read once a process, however many packages it lists.

use crate::SourceError;
use crate::catalog::bad_document;
use crate::place::Place;
use ply_manifest::{ImageName, PackageName, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The images of one folder or one `index.json`, by package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    by_name: BTreeMap<PackageName, BTreeSet<ImageName>>,
}

impl Index {
    /// From file names; those that are not images' are passed over.
    pub(crate) fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self::from_images(names.into_iter().filter_map(|name| name.parse().ok()))
    }

    fn from_images(images: impl IntoIterator<Item = ImageName>) -> Self {
        let mut index = Self::default();
        for image in images {
            index.by_name.entry(image.name.clone()).or_default().insert(image);
        }
        index
    }

    /// Reads a folder. None where there is no such folder.
    pub(crate) fn read_folder(path: &Path) -> Result<Option<Self>, SourceError> {
        let wrong = |error| SourceError::Read { path: path.to_owned(), error };
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(wrong)?.file_name().into_string().ok());
        }
        Ok(Some(Self::from_names(names.iter().map(String::as_str))))
    }

    /// Reads an `index.json`. Errors: not an array.
    pub(crate) fn parse(text: &[u8], place: &Place) -> Result<Self, SourceError> {
        let url = place.to_string();
        let index = ply_manifest::Index::parse(&String::from_utf8_lossy(text), &url)
            .map_err(|found| bad_document(url, "an array of file names", &found))?;
        Ok(Self::from_images(index.images))
    }

    /// The images of a package, lowest version first.
    pub(crate) fn images(&self, name: &PackageName) -> Vec<ImageName> {
        self.by_name.get(name).into_iter().flatten().cloned().collect()
    }

    /// All names.
    pub(crate) fn names(&self) -> BTreeSet<PackageName> {
        self.by_name.keys().cloned().collect()
    }
}

/// The newest of some versions; a pre-release only where there is nothing else.
pub(crate) fn newest<'v>(versions: impl IntoIterator<Item = &'v Version>) -> Option<Version> {
    versions.into_iter().max_by_key(|v| (!v.is_prerelease(), (*v).clone())).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_in_an_index_are_ignored() {
        let place = Place::Url("https://r/index.json".into());
        let index = Index::parse(
            br#"["node-22.6.0-linux-x64.img", "node-22.6.0.toml", "../x", "node-22.5.0-linux-x64.img", "node-22.10.0-linux-arm64.img", "README"]"#,
            &place,
        )
        .unwrap();
        let shown: Vec<String> =
            index.images(&"node".parse().unwrap()).iter().map(ImageName::to_string).collect();
        assert_eq!(
            shown,
            ["node-22.5.0-linux-x64.img", "node-22.6.0-linux-x64.img", "node-22.10.0-linux-arm64.img"]
        );
        for wrong in ["{}", "", "[\"a\"", "null", "<html>"] {
            let error = Index::parse(wrong.as_bytes(), &place).unwrap_err().to_string();
            assert!(error.starts_with("https://r/index.json is not an array of file names: "), "{error}");
        }
    }

    #[test]
    fn a_missing_folder_lists_nothing_and_a_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Index::read_folder(&dir.path().join("none")).unwrap(), None);
        std::fs::write(dir.path().join("a-1.0.0-linux-x64.img"), "").unwrap();
        assert_eq!(Index::read_folder(dir.path()).unwrap().unwrap().names().len(), 1);
        assert!(Index::read_folder(&dir.path().join("a-1.0.0-linux-x64.img")).is_err());
    }
}
