//! Reading the files: TOML in, values out, every fault with its place. One file a format.

mod build;
mod composition;
mod config;
mod lock;
mod overlay;
mod package;
mod run;

pub use package::variable_name;

use crate::walk::{Entry, Faults, Section, document};
use crate::{Composition, Diagnostics, Manifest, nearest};

/// The most bytes of a manifest, a composition, an overlay, a config or a policy.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// What a `ply.toml` is: one package, or several apps wired.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// An app, a layer or a base.
    Package(Box<Manifest>),
    /// `[[service]]` blocks (legacy `[[app]]` with `[stack]`).
    Composition(Composition),
}

impl Document {
    /// Reads a `ply.toml` of either kind. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            if composition::is_one(root) {
                composition::read(root, faults).map(Self::Composition)
            } else {
                package::read(root, faults).map(|m| Self::Package(Box::new(m)))
            }
        })
    }
}

impl Manifest {
    /// Reads the `ply.toml` of an app, a layer or a base, grouped or flat, and checks all that can be
    /// checked without looking at other packages. `file` is the name that errors show.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        document(text, file, MOST_BYTES, |root, faults| {
            if composition::is_one(root) {
                root.all();
                faults.add(
                    None,
                    "it is a composition, not an app",
                    Some("`ply up` starts a composition".to_owned()),
                );
                return None;
            }
            package::read(root, faults)
        })
    }
}

/// The tables in which a key of the manifest may stand: grouped under `[build]` and `[run]`, or flat under
/// `[package]` and at the top.
struct Places<'s, 't> {
    root: &'s mut Section<'t>,
    package: Section<'t>,
    build: Option<Section<'t>>,
    run: Option<Section<'t>>,
    /// Where the entrypoint stands, once it was read.
    entrypoint: Option<std::ops::Range<usize>>,
}

/// Which group a key belongs to.
#[derive(Clone, Copy)]
enum Group {
    Build,
    Run,
}

impl<'t> Places<'_, 't> {
    fn group(&mut self, group: Group) -> &mut Option<Section<'t>> {
        match group {
            Group::Build => &mut self.build,
            Group::Run => &mut self.run,
        }
    }

    /// A key that stands in its group or, flat, under `[package]`.
    fn key(&mut self, group: Group, key: &'static str, faults: &mut Faults<'_>) -> Option<Entry<'t>> {
        let grouped = self.group(group).as_mut().and_then(|s| s.take(key));
        let flat = self.package.take(key);
        one_of(grouped, flat, faults)
    }

    /// A table that stands in its group or, flat, at the top.
    fn table(&mut self, group: Group, key: &'static str, faults: &mut Faults<'_>) -> Option<Section<'t>> {
        let grouped = self.group(group).as_mut().and_then(|s| s.take(key));
        let flat = self.root.take(key);
        one_of(grouped, flat, faults)?.table(faults)
    }
}

/// The one of two places that is used; both is a fault that names both lines.
fn one_of<'t>(a: Option<Entry<'t>>, b: Option<Entry<'t>>, faults: &mut Faults<'_>) -> Option<Entry<'t>> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (first, second) = if a.key_span.start < b.key_span.start { (a, b) } else { (b, a) };
            let (one, two) = (faults.line(first.key_span.start), faults.line(second.key_span.start));
            faults.at_hint(
                &second.key_span,
                format!("{} on line {one} is given again on line {two}, as {}", first.label, second.label),
                "keep one of them",
            );
            Some(first)
        }
        (a, b) => a.or(b),
    }
}

/// Says that `[package]` is missing, at the table that may be meant by it, and nothing else: what else stands
/// there may well be right.
fn no_header(root: &mut Section<'_>, hint: &str, faults: &mut Faults<'_>) {
    let meant = root.all().into_iter().find(|e| nearest(e.key, ["package"]).is_some());
    match meant {
        Some(entry) => faults.at_hint(
            &entry.key_span,
            format!("it has no [package], and there is a {:?}", entry.key),
            "did you mean \"package\"?",
        ),
        None => faults.add(None, "it has no [package]", Some(hint.to_owned())),
    }
}
