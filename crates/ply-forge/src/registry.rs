//! A folder that is a working registry: `<name>/<image>`, `<name>/index.json`, `<name>/<name>-<version>.toml`, and
//! `state.json` at the top. Used as `file:///DIR/{package}`, or behind any web server.
//!
//! What a reader finds is always whole: an image is there before the index names it, the index before the catalog
//! does, and each is renamed into place. Index and catalog are made from what stands in the folders, so that a
//! forge that was killed leaves nothing to repair.

use crate::error::{ForgeError, Result};
use crate::mint::{Minted, sync_dir, write_atomically};
use ply_manifest::{Digest, ImageName, Kind, Manifest, PackageName, Range};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where minted images' digests are kept with what they were made of, one file an image: `.ply/<image>.json`.
const OWN: &str = ".ply";

/// What is kept beside an image so that a second run need not make or hash it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The format of this file.
    format: u32,
    /// The image's file name.
    pub(crate) image: ImageName,
    /// Its digest.
    pub(crate) sha256: Digest,
    /// Its size.
    pub(crate) bytes: u64,
    /// What it was made of, as one digest.
    pub(crate) key: String,
}

const RECORD_FORMAT: u32 = 1;

/// A folder registry.
#[derive(Debug, Clone)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// The registry in `dir`, made if it is not there; leftovers of a killed forge are taken away.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(ForgeError::file("cannot create", dir))?;
        let registry = Self { dir: dir.to_path_buf() };
        for package in registry.packages()? {
            for folder in [registry.folder(&package), registry.folder(&package).join(OWN)] {
                sweep(&folder);
            }
        }
        sweep(dir);
        Ok(registry)
    }

    /// The source that reads this registry.
    pub fn source(&self) -> String {
        let dir = fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone());
        format!("file://{}/{{package}}", dir.display())
    }

    /// The folder of a package.
    pub(crate) fn folder(&self, package: &PackageName) -> PathBuf {
        self.dir.join(package.as_str())
    }

    /// The packages that have a folder, sorted.
    fn packages(&self) -> Result<Vec<PackageName>> {
        let listed = fs::read_dir(&self.dir).map_err(ForgeError::file("cannot read", &self.dir))?;
        let mut names: Vec<PackageName> = listed
            .filter_map(std::result::Result::ok)
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The images of a package, lowest version first.
    pub(crate) fn images(&self, package: &PackageName) -> Vec<ImageName> {
        let Ok(listed) = fs::read_dir(self.folder(package)) else { return Vec::new() };
        let names = listed.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<ImageName>().ok());
        let mut names: Vec<ImageName> = names.filter(|i| i.name == *package).collect();
        names.sort();
        names
    }

    /// What is known of an image, if the record fits the file that is there.
    pub(crate) fn record(&self, image: &ImageName) -> Option<Record> {
        let folder = self.folder(&image.name);
        let text = fs::read(folder.join(OWN).join(format!("{image}.json"))).ok()?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        let bytes = fs::metadata(folder.join(image.to_string())).ok()?.len();
        (record.format == RECORD_FORMAT && record.image == *image && record.bytes == bytes).then_some(record)
    }

    /// The image that was made of exactly this, if the registry has one.
    pub(crate) fn by_key(&self, package: &PackageName, key: &str) -> Option<Record> {
        self.images(package).iter().rev().filter_map(|i| self.record(i)).find(|r| r.key == key)
    }

    /// The digest of an image: from its record, else of its bytes.
    pub(crate) fn digest(&self, image: &ImageName) -> Result<Record> {
        if let Some(record) = self.record(image) {
            return Ok(record);
        }
        let path = self.folder(&image.name).join(image.to_string());
        let (sha256, bytes) = digest_of(&path)?;
        Ok(Record { format: RECORD_FORMAT, image: image.clone(), sha256, bytes, key: String::new() })
    }

    /// The text of a version's manifest, where the version is published.
    pub(crate) fn manifest_text(&self, image: &ImageName) -> Option<String> {
        fs::read_to_string(self.folder(&image.name).join(format!("{}.toml", image.stem()))).ok()
    }

    /// The manifest of an image as published beside it.
    pub(crate) fn manifest(&self, image: &ImageName) -> Result<Manifest> {
        let path = self.folder(&image.name).join(format!("{}.toml", image.stem()));
        let text = fs::read_to_string(&path).map_err(ForgeError::file("cannot read", &path))?;
        Manifest::parse(&text, &path.display().to_string()).map_err(|e| ForgeError::Image(e.to_string()))
    }

    /// Publishes an image: moves it in, writes its manifest beside it, then the package's index. The catalog is written
    /// by [`Self::finish`].
    ///
    /// # Errors
    /// [`ForgeError::Published`] where the version is there with another manifest or other bytes.
    pub(crate) fn add(&self, minted: &Minted, key: &str) -> Result<PathBuf> {
        let folder = self.folder(&minted.image.name);
        let own = folder.join(OWN);
        fs::create_dir_all(&own).map_err(ForgeError::file("cannot create", &own))?;
        let path = folder.join(minted.image.to_string());
        let published = || ForgeError::Published { name: minted.image.to_string() };
        if path.exists() && self.digest(&minted.image)?.sha256 != minted.digest {
            return Err(published());
        }
        let manifest = folder.join(format!("{}.toml", minted.image.stem()));
        match fs::read_to_string(&manifest) {
            Ok(there) if there != minted.manifest_text => return Err(published()),
            Ok(_) => {}
            Err(_) => write_atomically(&manifest, minted.manifest_text.as_bytes())?,
        }
        if minted.path != path {
            fs::rename(&minted.path, &path).map_err(ForgeError::file("cannot write", &path))?;
            sync_dir(&folder)?;
        }
        let record = Record {
            format: RECORD_FORMAT,
            image: minted.image.clone(),
            sha256: minted.digest,
            bytes: minted.bytes,
            key: key.to_owned(),
        };
        let text = serde_json::to_vec_pretty(&record).map_err(|e| ForgeError::Image(e.to_string()))?;
        write_atomically(&own.join(format!("{}.json", minted.image)), &text)?;
        self.write_index(&minted.image.name)?;
        Ok(path)
    }

    /// `<name>/index.json`: the file names of images and manifests, sorted.
    fn write_index(&self, package: &PackageName) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        for image in self.images(package) {
            let manifest = format!("{}.toml", image.stem());
            if self.folder(package).join(&manifest).exists() && !names.contains(&manifest) {
                names.push(manifest);
            }
            names.push(image.to_string());
        }
        write_if_changed(&self.folder(package).join("index.json"), &pretty(&json!(names)))
    }

    /// Writes every index and the catalog from what is there.
    pub fn finish(&self) -> Result<()> {
        let mut packages = Vec::new();
        for name in self.packages()? {
            let images = self.images(&name);
            if images.is_empty() {
                continue;
            }
            self.write_index(&name)?;
            let mut versions = Vec::new();
            let mut newest: Option<Manifest> = None;
            for image in &images {
                let Ok(manifest) = self.manifest(image) else { continue };
                versions.push(catalog_version(&self.digest(image)?, &manifest));
                newest = Some(manifest);
            }
            let Some(newest) = newest else { continue };
            let mut entry = Map::new();
            entry.insert("name".into(), json!(name));
            entry.insert("type".into(), json!(if newest.kind() == Kind::App { "app" } else { "layer" }));
            for (key, text) in [
                ("description", &newest.package.description),
                ("license", &newest.package.license),
                ("homepage", &newest.package.homepage),
            ] {
                if let Some(text) = text {
                    entry.insert(key.into(), json!(text));
                }
            }
            entry.insert("versions".into(), Value::Array(versions));
            packages.push(Value::Object(entry));
        }
        write_if_changed(&self.dir.join("state.json"), &pretty(&json!({ "packages": packages })))
    }
}

/// One entry of the catalog: what the reference's catalog asks for, and the fields derived from the manifest.
fn catalog_version(record: &Record, manifest: &Manifest) -> Value {
    let mut entry = Map::new();
    entry.insert("version".into(), json!(record.image.version));
    entry.insert("arch".into(), json!(record.image.arch));
    entry.insert("img".into(), json!(record.image));
    entry.insert("sha256".into(), json!(record.sha256.hex()));
    entry.insert("bytes".into(), json!(record.bytes));
    let volumes: Vec<&str> = manifest.run.volumes.values().map(|v| v.path.as_str()).collect();
    if !volumes.is_empty() {
        entry.insert("volumes".into(), json!(volumes));
    }
    let mut wanted: BTreeMap<&PackageName, &Range> =
        manifest.build.dependencies.iter().map(|(name, d)| (name, &d.range)).collect();
    if let Some((name, dependency)) = &manifest.build.base {
        wanted.insert(name, &dependency.range);
    }
    if !wanted.is_empty() {
        let list: Vec<Value> =
            wanted.iter().map(|(n, r)| json!({ "name": n, "version": r.to_string() })).collect();
        entry.insert("dependencies".into(), Value::Array(list));
    }
    Value::Object(entry)
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) { Ok(()) } else { write_atomically(path, bytes) }
}

/// The sha256 and the size of a file.
fn digest_of(path: &Path) -> Result<(Digest, u64)> {
    let mut file = File::open(path).map_err(ForgeError::file("cannot read", path))?;
    let (mut hash, mut buffer, mut len) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut buffer).map_err(ForgeError::file("cannot read", path))? {
            0 => return Ok((Digest::from_bytes(hash.finalize().into()), len)),
            n => {
                hash.update(&buffer[..n]);
                len += n as u64;
            }
        }
    }
}

/// Takes what killed writers left out of a folder: small files, and images, `.<name>.<pid>.<n>.tmp`.
fn sweep(folder: &Path) {
    ply_image::sweep_pending(folder);
    let Ok(listed) = fs::read_dir(folder) else { return };
    for item in listed.filter_map(std::result::Result::ok) {
        let name = item.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix('.')?.strip_suffix(".tmp")) else {
            continue;
        };
        let pid = rest.rsplit('.').nth(1).and_then(|p| p.parse::<i32>().ok());
        if pid.is_some_and(|pid| !crate::download::is_alive(pid)) {
            let _ = fs::remove_file(item.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minted(dir: &Path, name: &str, version: &str, body: &[u8], description: &str) -> Minted {
        let manifest_text = format!(
            "[package]\nname = \"{name}\"\nversion = \"{version}\"\ndescription = \"{description}\"\n[build]\nbase = \"debian@13\"\n\
             dependencies = {{ zlib = \"1\" }}\n"
        );
        let image: ImageName = format!("{name}-{version}-linux-x64.img").parse().unwrap();
        let path = dir.join(image.to_string());
        fs::write(&path, body).unwrap();
        let (digest, bytes) = digest_of(&path).unwrap();
        Minted {
            image,
            digest,
            path,
            bytes,
            files: 1,
            manifest: Manifest::parse(&manifest_text, "ply.toml").unwrap(),
            manifest_text,
            packages: vec![],
            unresolved: vec![],
            notes: vec![],
        }
    }

    #[test]
    fn a_folder_becomes_a_registry_and_its_versions_never_change() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("reg");
        let registry = Registry::open(&out).unwrap();
        registry.add(&minted(dir.path(), "tool", "1.10.0", b"b", "d"), "k2").unwrap();
        registry.add(&minted(dir.path(), "tool", "1.2.0", b"a", "d"), "k1").unwrap();
        registry.finish().unwrap();
        let index: Vec<String> =
            serde_json::from_slice(&fs::read(out.join("tool/index.json")).unwrap()).unwrap();
        assert_eq!(
            index,
            ["tool-1.2.0.toml", "tool-1.2.0-linux-x64.img", "tool-1.10.0.toml", "tool-1.10.0-linux-x64.img"]
        );
        let text = fs::read_to_string(out.join("state.json")).unwrap();
        let state: Value = serde_json::from_str(&text).unwrap();
        let first = &state["packages"][0]["versions"][0];
        assert_eq!(first["img"], "tool-1.2.0-linux-x64.img");
        assert_eq!(first["sha256"], "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
        assert_eq!(
            first["dependencies"],
            json!([{"name": "debian", "version": "13"}, {"name": "zlib", "version": "1"}])
        );
        assert_eq!(first.get("src"), None, "a copy of the folder works from any place");
        assert_eq!(
            registry.by_key(&"tool".parse().unwrap(), "k1").unwrap().image.version.to_string(),
            "1.2.0"
        );
        assert!(registry.by_key(&"tool".parse().unwrap(), "k3").is_none());

        let again = registry.add(&minted(dir.path(), "tool", "1.2.0", b"a", "d"), "k1");
        assert!(again.is_ok(), "the same bytes again are no change");
        for changed in [
            minted(dir.path(), "tool", "1.2.0", b"other", "d"),
            minted(dir.path(), "tool", "1.2.0", b"a", "e"),
        ] {
            let error = registry.add(&changed, "k4").unwrap_err();
            assert!(matches!(error, ForgeError::Published { .. }), "{error}");
        }
        assert_eq!(fs::read(out.join("tool/tool-1.2.0-linux-x64.img")).unwrap(), b"a");
    }

    #[test]
    fn what_a_killed_forge_left_is_taken_away_and_what_a_living_one_writes_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("tool");
        fs::create_dir_all(&package).unwrap();
        let dead = package.join(".tool-1.0.0-linux-x64.img.2147483000.0.tmp");
        let living = package.join(format!(".tool-1.0.0-linux-x64.img.{}.0.tmp", std::process::id()));
        let foreign = package.join(".notes.tmp");
        for path in [&dead, &living, &foreign] {
            fs::write(path, "x").unwrap();
        }
        Registry::open(dir.path()).unwrap().finish().unwrap();
        assert!(!dead.exists() && living.exists() && foreign.exists());
    }
}
