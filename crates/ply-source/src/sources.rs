//! What a source says of itself: its listing and its catalog, each read once by a fetcher.

use crate::catalog::{self, Said};
use crate::fetcher::Fetcher;
use crate::http::document;
use crate::listing::Index;
use crate::place::Place;
use crate::{SourceError, parallel};
use ply_manifest::{Catalog, ImageName, Owner, PackageName, Range, SourceSpec, nearest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What was read of sources so far.
#[derive(Default)]
pub(crate) struct Known {
    indexes: Mutex<BTreeMap<Place, Option<Arc<Index>>>>,
    catalogs: Mutex<BTreeMap<Place, Option<Arc<Catalog>>>>,
}

fn remembered<T: Clone>(kept: &Mutex<BTreeMap<Place, T>>, place: &Place) -> Option<T> {
    kept.lock().unwrap_or_else(|e| e.into_inner()).get(place).cloned()
}

fn remember<T>(kept: &Mutex<BTreeMap<Place, T>>, place: &Place, value: T) {
    kept.lock().unwrap_or_else(|e| e.into_inner()).insert(place.clone(), value);
}

/// Fails where a source is a folder that is not there.
pub(crate) fn present(source: &SourceSpec) -> Result<(), SourceError> {
    match source.root() {
        Some(path) if !path.exists() => Err(SourceError::NoFolder { origin: source.to_string(), path }),
        _ => Ok(()),
    }
}

impl Fetcher {
    /// The folder or `index.json` at a place; none where there is none.
    fn index(&self, place: &Place) -> Result<Option<Arc<Index>>, SourceError> {
        if let Some(index) = remembered(&self.known.indexes, place) {
            return Ok(index);
        }
        let index = match place {
            Place::File(path) => Index::read_folder(path)?,
            Place::Url(url) => match document(self.client(), url)? {
                Some(text) => Some(Index::parse(&text, place)?),
                None => None,
            },
        };
        let index = index.map(Arc::new);
        remember(&self.known.indexes, place, index.clone());
        Ok(index)
    }

    /// The catalog of a source; none where it has none.
    pub(crate) fn catalog(
        &self,
        source: &SourceSpec,
        owner: &Owner,
    ) -> Result<Option<Arc<Catalog>>, SourceError> {
        let Some(place) = Place::catalog(source, owner) else { return Ok(None) };
        if let Some(catalog) = remembered(&self.known.catalogs, &place) {
            return Ok(catalog);
        }
        let text = match &place {
            Place::File(path) => match std::fs::read(path) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(SourceError::Read { path: path.clone(), error }),
            },
            Place::Url(url) => document(self.client(), url)?,
        };
        let catalog = text.map(|text| catalog::parse(&text, &place)).transpose()?.map(Arc::new);
        remember(&self.known.catalogs, &place, catalog.clone());
        Ok(catalog)
    }

    /// What the catalog says of an image, if anything. A catalog that can't be understood or is refused says nothing, with a notice: a
    /// fetch doesn't need one. A source that can't be reached is an error: its image could not be either.
    pub(crate) fn said(
        &self,
        source: &SourceSpec,
        owner: &Owner,
        image: &ImageName,
    ) -> Result<Said, SourceError> {
        match self.catalog(source, owner) {
            Ok(catalog) => Ok(catalog.and_then(|c| catalog::says(&c, owner, image)).unwrap_or_default()),
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                self.options().progress.notice(&format!("the catalog of {source} is not used: {error}"));
                if let Some(place) = Place::catalog(source, owner) {
                    remember(&self.known.catalogs, &place, None);
                }
                Ok(Said::default())
            }
        }
    }

    /// The images of a package that a source lists, lowest version first; empty where it has none. `range` is for the message of
    /// a source that can't list.
    pub(crate) fn images(
        &self,
        source: &SourceSpec,
        owner: &Owner,
        name: &PackageName,
        range: &Range,
    ) -> Result<Vec<ImageName>, SourceError> {
        let Some(place) = Place::listing(source, owner, name) else {
            return Err(SourceError::CantList {
                origin: source.to_string(),
                name: name.clone(),
                range: range.clone(),
            });
        };
        if let Some(index) = self.index(&place)? {
            return Ok(index.images(name));
        }
        // A catalog lists versions too.
        let images = match self.catalog(source, owner)? {
            Some(catalog) => catalog::images(&catalog, owner, name),
            None => Vec::new(),
        };
        match place {
            _ if !images.is_empty() => Ok(images),
            // A folder a package: this one is not there.
            Place::File(_) => present(source).map(|()| images),
            Place::Url(url) => Err(SourceError::NoIndex {
                name: name.clone(),
                url,
                nearest: self.nearest_name(source, owner, name),
                asks: Vec::new(),
            }),
        }
    }

    /// Reads the listings of several packages at once, so that [`Self::images`] then answers from memory. What goes wrong is said
    /// there.
    pub(crate) fn read_listings(&self, wanted: &[(PackageName, SourceSpec)], owner: &Owner) {
        let places: BTreeSet<Place> =
            wanted.iter().filter_map(|(name, source)| Place::listing(source, owner, name)).collect();
        let places: Vec<Place> =
            places.into_iter().filter(|place| remembered(&self.known.indexes, place).is_none()).collect();
        if places.len() > 1 {
            parallel::each(self.options().network.parallel, &places, |place| {
                let _ = self.index(place);
            });
        }
    }

    /// Every name that a source is known to have, from its catalog and its listing.
    pub(crate) fn names(&self, source: &SourceSpec, owner: &Owner) -> BTreeSet<PackageName> {
        let mut names = self.listed(source, owner);
        if let Ok(Some(catalog)) = self.catalog(source, owner) {
            names.extend(catalog::names(&catalog, owner));
        }
        names
    }

    /// Every name that a source lists, whatever its catalog says.
    pub(crate) fn listed(&self, source: &SourceSpec, owner: &Owner) -> BTreeSet<PackageName> {
        let mut names = BTreeSet::new();
        if let SourceSpec::Folder(template) = source {
            match template.strip_suffix("/{package}") {
                // A folder a package: their names are the names.
                Some(above) if !above.contains("{package}") => {
                    let above = above.replace("{owner}", owner.as_str());
                    let entries = std::fs::read_dir(above.strip_prefix("file://").unwrap_or(&above));
                    let names_there = entries.into_iter().flatten().flatten().map(|e| e.file_name());
                    names.extend(names_there.filter_map(|n| n.to_str()?.parse::<PackageName>().ok()));
                }
                _ => names.extend(self.common_index(source, owner).map(|i| i.names()).unwrap_or_default()),
            }
        } else if !source.template().contains("{package}") {
            names.extend(self.common_index(source, owner).map(|i| i.names()).unwrap_or_default());
        }
        names
    }

    /// The one index of a source that has no place for a package's name.
    pub(crate) fn common_index(&self, source: &SourceSpec, owner: &Owner) -> Option<Arc<Index>> {
        let any: PackageName = "any".parse().ok()?;
        let place =
            Place::listing(source, owner, &any).filter(|_| !source.template().contains("{package}"))?;
        self.index(&place).ok().flatten()
    }

    /// The name that is nearest to a mistyped one.
    pub(crate) fn nearest_name(
        &self,
        source: &SourceSpec,
        owner: &Owner,
        name: &PackageName,
    ) -> Option<String> {
        let names = self.names(source, owner);
        let others = names.iter().filter(|n| *n != name).map(PackageName::as_str);
        nearest(name.as_str(), others).map(str::to_owned)
    }
}
