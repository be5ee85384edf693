//! The packages of a suite: the newest of each name over the suite, its updates and its security archive, and
//! what is needed to install one.

use super::control::{self, Paragraph};
use super::relation::{self, Relation};
use super::version;
use crate::download::{Expected, Wanted};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A package list with the place that its file names are relative to.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) uri: String,
    pub(crate) text: String,
}

/// A package as its list describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    paragraph: Paragraph<'a>,
    uri: &'a str,
}

impl<'a> Package<'a> {
    /// A field of its paragraph, `""` where there is none.
    pub(crate) fn field(&self, name: &str) -> &'a str {
        self.paragraph.get(name).unwrap_or_default()
    }

    /// `all` or an arch.
    pub(crate) fn arch(&self) -> &'a str {
        self.field("Architecture")
    }

    /// The source package's name.
    pub(crate) fn source(&self) -> &'a str {
        match self.field("Source").split_whitespace().next() {
            Some(source) => source,
            None => self.name,
        }
    }

    /// `Pre-Depends` and `Depends`.
    pub(crate) fn depends(&self) -> Vec<Vec<Relation<'a>>> {
        let mut all = relation::parse(self.field("Pre-Depends"));
        all.extend(relation::parse(self.field("Depends")));
        all
    }

    /// The names that it provides, with the version of each that has one.
    fn provides(&self) -> Vec<Relation<'a>> {
        relation::parse(self.field("Provides")).into_iter().flatten().collect()
    }

    /// Its sha256 in hex, as the signed list says.
    pub(crate) fn sha256(&self) -> &'a str {
        self.field("SHA256")
    }

    /// The `.deb` to fetch.
    pub(crate) fn wanted(&self) -> Result<Wanted, String> {
        let file = self.field("Filename");
        if file.is_empty() || file.split('/').any(|part| part == "..") {
            return Err(format!("the package {:?} has the file name {file:?}", self.name));
        }
        let expected = Expected::sha256_hex(self.sha256())
            .ok_or_else(|| format!("the package {:?} has no sha256", self.name))?;
        let url = format!("{}/{}", self.uri, file.trim_start_matches("./"));
        Ok(Wanted { url, expected, bytes: self.field("Size").parse().ok() })
    }
}

/// Where a paragraph stands: the list, and its bytes there.
type Spot = (usize, usize, usize);

/// All packages of a suite for one arch.
#[derive(Debug)]
pub(crate) struct Index {
    lists: Vec<List>,
    newest: HashMap<String, Spot>,
    /// Who provides a name that is not its own.
    providers: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    /// The newest version of each name in the lists; among equal versions the earlier list's.
    pub(crate) fn new(lists: Vec<List>) -> Self {
        let mut newest: HashMap<String, Spot> = HashMap::new();
        let mut providers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (i, list) in lists.iter().enumerate() {
            for paragraph in control::paragraphs(&list.text) {
                let (Some(name), Some(version)) = (paragraph.get("Package"), paragraph.get("Version")) else {
                    continue;
                };
                let start = paragraph.0.as_ptr() as usize - list.text.as_ptr() as usize;
                let spot = (i, start, start + paragraph.0.len());
                match newest.get(name) {
                    Some(old) => {
                        let old =
                            Paragraph(&lists[old.0].text[old.1..old.2]).get("Version").unwrap_or_default();
                        if version::compare(version, old) == Ordering::Greater {
                            newest.insert(name.to_owned(), spot);
                        }
                    }
                    None => drop(newest.insert(name.to_owned(), spot)),
                }
                for provided in
                    paragraph.get("Provides").map(relation::parse).unwrap_or_default().into_iter().flatten()
                {
                    providers.entry(provided.name.to_owned()).or_default().insert(name.to_owned());
                }
            }
        }
        Self { lists, newest, providers }
    }

    /// A package by its name.
    pub(crate) fn get(&self, name: &str) -> Option<Package<'_>> {
        let (list, start, end) = *self.newest.get(name)?;
        let list = &self.lists[list];
        let paragraph = Paragraph(&list.text[start..end]);
        Some(Package {
            name: paragraph.get("Package")?,
            version: paragraph.get("Version")?,
            paragraph,
            uri: &list.uri,
        })
    }

    /// Every name, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.newest.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Who satisfies one term: the first alternative that some package satisfies; a real package before a
    /// provider, providers by name. A package of `chosen` is taken before others.
    pub(crate) fn satisfier(
        &self,
        alternatives: &[Relation<'_>],
        chosen: &BTreeSet<String>,
    ) -> Option<Package<'_>> {
        let real = |relation: &Relation<'_>| self.get(relation.name).filter(|p| relation.accepts(p.version));
        let provider = |relation: &Relation<'_>| {
            self.providers.get(relation.name).into_iter().flatten().filter_map(|name| self.get(name)).find(
                |package| {
                    package.provides().iter().any(|p| {
                        p.name == relation.name
                            && match (relation.version, p.version) {
                                (None, _) => true,
                                (Some(_), Some((_, version))) => relation.accepts(version),
                                (Some(_), None) => false,
                            }
                    })
                },
            )
        };
        let already = alternatives.iter().find_map(|relation| {
            real(relation).filter(|p| chosen.contains(p.name)).or_else(|| {
                let names = self.providers.get(relation.name)?;
                names.iter().find(|n| chosen.contains(*n)).and_then(|n| self.get(n))
            })
        });
        already.or_else(|| {
            alternatives.iter().find_map(|relation| real(relation).or_else(|| provider(relation)))
        })
    }

    /// The packages that `seeds` need, themselves included, sorted by name. Whatever `without` names is neither taken
    /// nor followed. Breadth first, in the order of the fields, so that the choice among providers never depends
    /// on anything else.
    ///
    /// # Errors
    /// The asking package and the term that nothing satisfies.
    pub(crate) fn closure(
        &self,
        seeds: &[&str],
        without: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Package<'_>>, (String, String)> {
        let mut chosen: BTreeSet<String> = BTreeSet::new();
        let mut queue: VecDeque<Package<'_>> = VecDeque::new();
        for seed in seeds {
            let package =
                self.get(seed).ok_or_else(|| ("the list of packages".to_owned(), (*seed).to_owned()))?;
            if chosen.insert(package.name.to_owned()) {
                queue.push_back(package);
            }
        }
        while let Some(package) = queue.pop_front() {
            for alternatives in package.depends() {
                if alternatives.iter().any(|relation| without(relation.name)) {
                    continue;
                }
                let Some(found) = self.satisfier(&alternatives, &chosen) else {
                    let words: Vec<&str> = alternatives.iter().map(|r| r.name).collect();
                    return Err((package.name.to_owned(), words.join(" | ")));
                };
                if !without(found.name) && chosen.insert(found.name.to_owned()) {
                    queue.push_back(found);
                }
            }
        }
        Ok(chosen.iter().filter_map(|name| self.get(name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(lists: &[&str]) -> Index {
        Index::new(lists.iter().map(|t| List { uri: "http://m".to_owned(), text: (*t).to_owned() }).collect())
    }

    fn closure(index: &Index, seed: &str, without: &[&str]) -> Vec<String> {
        let found = index.closure(&[seed], &|n| without.contains(&n)).unwrap();
        found.iter().map(|p| p.name.to_owned()).collect()
    }

    #[test]
    fn the_newest_of_all_lists_wins() {
        let index = index(&[
            "Package: a\nVersion: 1-1\nFilename: pool/a.deb\n\nPackage: b\nVersion: 2\n",
            "Package: a\nVersion: 1-1+deb13u1\nFilename: pool/a2.deb\nSource: src (1)\n\nPackage: b\nVersion: 1\n",
        ]);
        assert_eq!(index.get("a").unwrap().version, "1-1+deb13u1");
        assert_eq!(index.get("a").unwrap().source(), "src");
        assert_eq!(index.get("b").unwrap().version, "2");
        assert!(index.get("c").is_none());
    }

    #[test]
    fn closures_choose_the_first_alternative_and_then_providers_by_name() {
        let index = index(&[
            "Package: app\nVersion: 1\nPre-Depends: libc\nDepends: none | mta, old (>= 5)\n\n\
             Package: libc\nVersion: 2\n\nPackage: mail-b\nVersion: 1\nProvides: mta\n\n\
             Package: mail-a\nVersion: 1\nProvides: mta\nDepends: debconf | debconf-2.0\n\n\
             Package: old-new\nVersion: 1\nProvides: old (= 6)\n\nPackage: debconf\nVersion: 1\nDepends: perl\n",
        ]);
        assert_eq!(closure(&index, "app", &["debconf"]), ["app", "libc", "mail-a", "old-new"]);
        let missing = index.closure(&["debconf"], &|_| false).unwrap_err();
        assert_eq!(missing, ("debconf".to_owned(), "perl".to_owned()));
    }

    #[test]
    fn a_circle_ends_and_file_names_stay_in_the_pool() {
        let index = index(&["Package: a\nVersion: 1\nDepends: b\nFilename: ../../etc/x\nSHA256: aa\n\n\
             Package: b\nVersion: 1\nDepends: a\n"]);
        assert_eq!(closure(&index, "a", &[]), ["a", "b"]);
        assert!(index.get("a").unwrap().wanted().is_err());
    }
}
