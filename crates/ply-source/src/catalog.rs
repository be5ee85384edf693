//! What is asked of a catalog, `state.json`: where an image is, what its bytes are, what there is. It is never trusted further than the
//! source itself. Source: the registries reference, "Catalog".

use crate::place::Place;
use crate::{Found, SourceError};
use ply_manifest::{
    Arch, Catalog, CatalogPackage, Diagnostics, Digest, ImageName, Owner, PackageName, Version,
};
use std::collections::BTreeSet;

/// What a catalog says of one image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// Where it is, where that is not beside the index.
    pub(crate) src: Option<String>,
    /// What its bytes are.
    pub(crate) digest: Option<Digest>,
}

/// Reads a catalog. Errors: not JSON of its shape.
pub(crate) fn parse(text: &[u8], place: &Place) -> Result<Catalog, SourceError> {
    let url = place.to_string();
    Catalog::parse(&String::from_utf8_lossy(text), &url)
        .map_err(|found| bad_document(url, "a catalog", &found))
}

/// The error of a document that can't be understood.
pub(crate) fn bad_document(url: String, what: &'static str, found: &Diagnostics) -> SourceError {
    let why = found.0.first().map(|d| match d.place {
        Some(place) => format!("{} (line {}, column {})", d.message, place.line, place.column),
        None => d.message.clone(),
    });
    SourceError::BadDocument { url, what, why: why.unwrap_or_default() }
}

fn of<'c>(
    catalog: &'c Catalog,
    owner: &'c Owner,
    name: &'c PackageName,
) -> impl Iterator<Item = &'c CatalogPackage> {
    catalog
        .packages
        .iter()
        .filter(move |p| p.name == *name && p.namespace.as_ref().is_none_or(|o| o == owner))
}

/// What a catalog says of an image of `owner`.
pub(crate) fn says(catalog: &Catalog, owner: &Owner, image: &ImageName) -> Option<Said> {
    of(catalog, owner, &image.name)
        .flat_map(|package| &package.versions)
        .find(|v| v.version == image.version && v.arch == Some(image.arch))
        .map(|v| Said { src: v.src.clone(), digest: v.sha256 })
}

/// The images of a package that a catalog lists, lowest version first.
pub(crate) fn images(catalog: &Catalog, owner: &Owner, name: &PackageName) -> Vec<ImageName> {
    let image =
        |(version, arch): (&Version, Arch)| ImageName { name: name.clone(), version: version.clone(), arch };
    let versions = of(catalog, owner, name).flat_map(|package| &package.versions);
    let mut images: Vec<ImageName> = versions.filter_map(|v| Some(image((&v.version, v.arch?)))).collect();
    images.sort();
    images.dedup();
    images
}

/// The names that a catalog lists for an owner.
pub(crate) fn names(catalog: &Catalog, owner: &Owner) -> BTreeSet<PackageName> {
    let own = |p: &&CatalogPackage| p.namespace.as_ref().is_none_or(|o| o == owner);
    catalog.packages.iter().filter(own).map(|p| p.name.clone()).collect()
}

/// All packages of a catalog, as `search` shows them.
pub(crate) fn found(catalog: &Catalog) -> Vec<Found> {
    let one = |package: &CatalogPackage| {
        let mut versions: Vec<Version> = package.versions.iter().map(|v| v.version.clone()).collect();
        versions.sort_by(|a, b| b.cmp(a));
        versions.dedup();
        let newest = versions.first()?;
        let archs: BTreeSet<Arch> =
            package.versions.iter().filter(|v| v.version == *newest).filter_map(|v| v.arch).collect();
        let line = |text: &Option<String>| text.as_deref().map(one_line);
        Some(Found::new(
            package.namespace.clone(),
            package.name.clone(),
            line(&package.kind),
            line(&package.description),
            line(&package.license),
            versions,
            archs.into_iter().collect(),
        ))
    };
    catalog.packages.iter().filter_map(one).collect()
}

/// A text from outside as one line without control characters, which could steer a terminal (CVE-2023-28101 is one such case).
pub(crate) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { ' ' } else { c };
    text.chars().take(300).map(plain).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(text: &str) -> Catalog {
        parse(text.as_bytes(), &Place::Url("https://reg.example/state.json".into())).unwrap()
    }

    #[test]
    fn a_minimal_catalog_and_a_full_one_are_used_alike() {
        let sha = "0".repeat(64);
        let text = format!(
            r#"{{ "extra": 1, "packages": [
              {{ "name": "ffmpeg", "versions": [
                {{ "version": "6.1.1", "img": "ffmpeg-6.1.1-linux-x64.img" }},
                {{ "version": "6.1.1", "img": "ffmpeg-6.1.1-linux-arm64.img", "sha256": "{sha}" }},
                {{ "version": "6.1.2", "img": "other-6.1.2-linux-x64.img" }} ] }},
              {{ "namespace": "me", "name": "tool", "type": "app", "description": "a \u001b[31mred\ntool", "versions": [
                {{ "version": "1.0.0", "arch": "x64", "src": "https://else.example/t.img" }} ] }},
              {{ "namespace": "ply", "name": "umami", "type": "stack", "versions": [
                {{ "version": "3.0.0", "img": null, "src": "https://reg.example/umami-3.0.0.toml" }} ] }}
            ] }}"#
        );
        let catalog = catalog(&text);
        let (ply, me) = (Owner::default(), "me".parse().unwrap());
        let image = |text: &str| text.parse::<ImageName>().unwrap();
        assert_eq!(says(&catalog, &ply, &image("ffmpeg-6.1.1-linux-x64.img")), Some(Said::default()));
        let arm = says(&catalog, &ply, &image("ffmpeg-6.1.1-linux-arm64.img")).unwrap();
        assert_eq!(arm.digest.unwrap().hex(), sha);
        assert_eq!(images(&catalog, &ply, &"ffmpeg".parse().unwrap()).len(), 2);
        assert_eq!(says(&catalog, &ply, &image("tool-1.0.0-linux-x64.img")), None);
        let tool = says(&catalog, &me, &image("tool-1.0.0-linux-x64.img")).unwrap();
        assert_eq!(tool.src.as_deref(), Some("https://else.example/t.img"));
        let found = found(&catalog);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].description.as_deref(), Some("a  [31mred tool"));
        assert!(found[2].archs.is_empty());
    }

    #[test]
    fn what_is_no_catalog_is_said_to_be_none() {
        for text in
            ["", "[]x", "<html>", r#"{"packages": 3}"#, r#"{"packages": [{"name": "a", "versions": {}}]}"#]
        {
            let error = parse(text.as_bytes(), &Place::Url("https://r/state.json".into())).unwrap_err();
            assert!(error.to_string().starts_with("https://r/state.json is not a catalog: "), "{error}");
        }
    }
}
