//! Walking a TOML document with the place of every key and value, and gathering faults instead of stopping
//! at the first one.
//!
//! A reader takes the keys that it knows out of a [`Section`]; what is left at the end is unknown, and the
//! nearest key that was asked for is the hint. Nothing here knows a manifest.

use crate::diagnostic::floor_boundary;
use crate::noun::{NounError, elide};
use crate::{Diagnostic, Diagnostics, FaultKind, Place, depth, nearest};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with the bytes at which it stands.
pub(crate) type Value<'t> = &'t Spanned<DeValue<'t>>;

/// The most faults that are told of one file.
const MOST_FAULTS: usize = 50;

/// The faults of one file, gathered while it is read.
pub(crate) struct Faults<'t> {
    text: &'t str,
    file: &'t str,
    found: Vec<(Option<usize>, Diagnostic)>,
    untold: usize,
}

impl<'t> Faults<'t> {
    pub(crate) fn new(text: &'t str, file: &'t str) -> Self {
        Self { text, file, found: Vec::new(), untold: 0 }
    }

    /// One fault at a byte range, or of the whole file.
    pub(crate) fn add(
        &mut self,
        span: Option<&Range<usize>>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        if self.found.len() >= MOST_FAULTS {
            self.untold += 1;
            return;
        }
        let offset = span.map(|s| s.start);
        let (message, hint) = (elide(message.into()), hint.map(elide));
        let (file, kind) = (self.file.to_owned(), FaultKind::Rule);
        let diagnostic = Diagnostic { file, place: None, message, hint, kind };
        self.found.push((offset, diagnostic));
    }

    /// A value of another type than its key takes.
    fn of_type(&mut self, span: &Range<usize>, message: String, hint: Option<String>) {
        let before = self.found.len();
        self.add(Some(span), message, hint);
        if let Some((_, diagnostic)) = self.found.get_mut(before) {
            diagnostic.kind = FaultKind::Type;
        }
    }

    /// A fault without a hint.
    pub(crate) fn at(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.add(Some(span), message, None);
    }

    /// A fault with a hint.
    pub(crate) fn at_hint(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(Some(span), message, Some(hint.into()));
    }

    /// What a noun said of its text.
    pub(crate) fn noun(&mut self, span: &Range<usize>, error: NounError) {
        self.add(Some(span), error.message, error.hint);
    }

    /// The nearest of the first thousand candidates, unless so much is wrong already that nobody will read
    /// it: each search costs the number of candidates, and a file may hold many of both.
    pub(crate) fn near<'c>(
        &self,
        word: &str,
        candidates: impl IntoIterator<Item = &'c str>,
    ) -> Option<&'c str> {
        if self.found.len() < MOST_FAULTS { nearest(word, candidates.into_iter().take(1_000)) } else { None }
    }

    /// How many were found so far.
    pub(crate) fn len(&self) -> usize {
        self.found.len() + self.untold
    }

    /// The 1-based line of a byte offset, for a message that names two places.
    pub(crate) fn line(&self, offset: usize) -> usize {
        Place::of(self.text, offset).line
    }

    /// The value, if nothing was wrong with it.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Diagnostics> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(self.into_diagnostics()),
        }
    }

    pub(crate) fn into_diagnostics(mut self) -> Diagnostics {
        self.found.sort_by_key(|(offset, _)| *offset);
        let starts: Vec<usize> =
            std::iter::once(0).chain(self.text.match_indices('\n').map(|(n, _)| n + 1)).collect();
        let place = |offset: usize| {
            let end = floor_boundary(self.text, offset);
            let line = starts.partition_point(|start| *start <= end);
            Place { line, column: self.text[starts[line - 1]..end].chars().count() + 1 }
        };
        let mut all: Vec<Diagnostic> = Vec::with_capacity(self.found.len() + 1);
        for (offset, mut diagnostic) in self.found {
            diagnostic.place = offset.map(place);
            if all.last() != Some(&diagnostic) {
                all.push(diagnostic);
            }
        }
        let file = self.file.to_owned();
        if self.untold > 0 {
            let message = format!("{} more faults are not shown", self.untold);
            all.push(Diagnostic { file, place: None, message, hint: None, kind: FaultKind::Rule });
        } else if all.is_empty() {
            let message = "it could not be read".to_owned();
            all.push(Diagnostic { file, place: None, message, hint: None, kind: FaultKind::Rule });
        }
        Diagnostics(all)
    }
}

/// Reads `text` as TOML and gives its root to `read`. A file over `most` bytes is refused before it is read.
pub(crate) fn document<'t, T>(
    text: &'t str,
    file: &'t str,
    most: usize,
    read: impl FnOnce(&mut Section<'_>, &mut Faults<'_>) -> Option<T>,
) -> Result<T, Diagnostics> {
    let mut faults = Faults::new(text, file);
    let Some(root) = parse_toml(text, most, &mut faults) else { return faults.finish(None) };
    let value = {
        let span = 0..0;
        let mut section = Section::new(root.get_ref(), String::new(), span);
        let value = read(&mut section, &mut faults);
        section.finish(&mut faults);
        value
    };
    faults.finish(value)
}

/// The root table of a TOML text of at most `most` bytes, or `None` with the faults told.
pub(crate) fn parse_toml<'t>(
    text: &'t str,
    most: usize,
    faults: &mut Faults<'_>,
) -> Option<Spanned<DeTable<'t>>> {
    if text.len() > most {
        faults.add(None, format!("it has {} bytes, and the most is {most}", text.len()), None);
        return None;
    }
    if let Some(span) = depth::too_deep(text) {
        faults.at(&span, format!("it nests deeper than {} levels", depth::MOST));
        return None;
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(root);
    }
    for error in errors {
        faults.add(error.span().as_ref(), format!("it is no TOML: {}", error.message()), None);
    }
    None
}

/// One key with its value.
#[derive(Clone)]
pub(crate) struct Entry<'t> {
    /// The key as written.
    pub(crate) key: &'t str,
    /// Where the key stands.
    pub(crate) key_span: Range<usize>,
    /// The value.
    pub(crate) value: Value<'t>,
    /// How messages name it: `"mem" in [run.resources]`.
    pub(crate) label: String,
    /// The dotted path of the table that holds it, empty for the root.
    path: String,
    /// Whether this is one value of an array.
    item: bool,
}

impl<'t> Entry<'t> {
    /// Where the value stands.
    pub(crate) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// Says that the value has the wrong type.
    pub(crate) fn mistyped(&self, expected: &str, faults: &mut Faults<'_>) {
        let found = kind_of(self.value.get_ref());
        let hint = match self.value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if expected == "a string" => {
                plain_text(self.value.get_ref()).map(|text| format!("write {text:?}, in quotes"))
            }
            _ => None,
        };
        faults.of_type(&self.span(), format!("{} must be {expected}, not {found}", self.label), hint);
    }

    /// A string without NUL.
    pub(crate) fn string(&self, faults: &mut Faults<'_>) -> Option<&'t str> {
        match self.value.get_ref() {
            DeValue::String(text) => {
                if text.contains('\0') {
                    faults.at(&self.span(), format!("{} holds a NUL byte", self.label));
                    return None;
                }
                Some(text.as_ref())
            }
            _ => {
                self.mistyped("a string", faults);
                None
            }
        }
    }

    /// A string of one line: no control characters.
    pub(crate) fn line(&self, faults: &mut Faults<'_>) -> Option<&'t str> {
        let text = self.string(faults)?;
        if text.chars().any(char::is_control) {
            faults.at(&self.span(), format!("{} must be one line without control characters", self.label));
            return None;
        }
        Some(text)
    }

    /// A noun written as a string.
    pub(crate) fn noun<T: FromStr<Err = NounError>>(&self, faults: &mut Faults<'_>) -> Option<T> {
        let text = self.string(faults)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                faults.noun(&self.span(), error);
                None
            }
        }
    }

    /// A noun written as a string or as a bare number.
    pub(crate) fn noun_or_number<T: FromStr<Err = NounError>>(&self, faults: &mut Faults<'_>) -> Option<T> {
        let text = match self.value.get_ref() {
            number @ (DeValue::Integer(_) | DeValue::Float(_)) => plain_text(number)?,
            _ => return self.noun(faults),
        };
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                faults.noun(&self.span(), error);
                None
            }
        }
    }

    /// A boolean.
    pub(crate) fn boolean(&self, faults: &mut Faults<'_>) -> Option<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => {
                self.mistyped("true or false", faults);
                None
            }
        }
    }

    /// An integer from `least` to `most`.
    pub(crate) fn integer(&self, least: i64, most: i64, faults: &mut Faults<'_>) -> Option<i64> {
        let DeValue::Integer(number) = self.value.get_ref() else {
            self.mistyped("an integer", faults);
            return None;
        };
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) if (least..=most).contains(&value) => Some(value),
            _ => {
                let label = &self.label;
                faults.at(&self.span(), format!("{label} must be from {least} to {most}, not {number}"));
                None
            }
        }
    }

    /// The values of an array, each as an entry whose label says its number.
    pub(crate) fn array(&self, faults: &mut Faults<'_>) -> Option<Vec<Entry<'t>>> {
        let DeValue::Array(values) = self.value.get_ref() else {
            self.mistyped("an array", faults);
            return None;
        };
        let entries = values.iter().enumerate().map(|(n, value)| Entry {
            key: self.key,
            key_span: value.span(),
            value,
            label: format!("value {} of {}", n + 1, self.label),
            path: self.path.clone(),
            item: true,
        });
        Some(entries.collect())
    }

    /// The strings of an array.
    pub(crate) fn strings(&self, faults: &mut Faults<'_>) -> Option<Vec<String>> {
        let entries = self.array(faults)?;
        let texts: Vec<_> = entries.iter().map(|e| e.string(faults).map(str::to_owned)).collect();
        texts.into_iter().collect()
    }

    /// A table of keys that are known.
    pub(crate) fn table(&self, faults: &mut Faults<'_>) -> Option<Section<'t>> {
        self.table_or("a table", faults)
    }

    /// A table, where something else would do too: `expected` says what.
    pub(crate) fn table_or(&self, expected: &str, faults: &mut Faults<'_>) -> Option<Section<'t>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            self.mistyped(expected, faults);
            return None;
        };
        let path =
            if self.path.is_empty() { self.key.to_owned() } else { format!("{}.{}", self.path, self.key) };
        let path = if self.item { format!("[{path}]") } else { path };
        Some(Section::new(table, path, self.key_span.clone()))
    }

    /// Whether the value is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }
}

/// A table whose keys are taken one by one.
pub(crate) struct Section<'t> {
    table: &'t DeTable<'t>,
    path: String,
    /// Where the table's own key stands; empty at the root.
    pub(crate) span: Range<usize>,
    known: Vec<&'static str>,
    silent: bool,
}

impl<'t> Section<'t> {
    fn new(table: &'t DeTable<'t>, path: String, span: Range<usize>) -> Self {
        Self { table, path, span, known: Vec::new(), silent: false }
    }

    /// How messages name this table: `[run.env]`, or `the file`.
    pub(crate) fn title(&self) -> String {
        if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) }
    }

    fn entry(&self, key: &'t Spanned<std::borrow::Cow<'t, str>>, value: Value<'t>) -> Entry<'t> {
        let name = key.get_ref().as_ref();
        let label =
            if self.path.is_empty() { format!("{name:?}") } else { format!("{name:?} in [{}]", self.path) };
        Entry { key: name, key_span: key.span(), value, label, path: self.path.clone(), item: false }
    }

    /// The value of a key that this table may have.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Entry<'t>> {
        self.known.push(key);
        let (key, value) = self.table.get_key_value(key)?;
        Some(self.entry(key, value))
    }

    /// Whether a key is there, without taking it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key that this table must have.
    pub(crate) fn need(
        &mut self,
        key: &'static str,
        hint: &str,
        faults: &mut Faults<'_>,
    ) -> Option<Entry<'t>> {
        let found = self.take(key);
        if found.is_none() {
            faults.at_hint(&self.span, format!("{} has no {key:?}", self.title()), hint);
        }
        found
    }

    /// Every entry, in the order of the file: the keys are the user's own.
    pub(crate) fn all(&mut self) -> Vec<Entry<'t>> {
        self.silent = true;
        self.peek()
    }

    /// Every entry, in the order of the file, without taking any.
    pub(crate) fn peek(&self) -> Vec<Entry<'t>> {
        let mut entries: Vec<Entry<'t>> = self.table.iter().map(|(k, v)| self.entry(k, v)).collect();
        entries.sort_by_key(|e| e.key_span.start);
        entries
    }

    /// Says of every key that nobody took that it is unknown, with the nearest that somebody would have.
    pub(crate) fn finish(self, faults: &mut Faults<'_>) {
        if self.silent {
            return;
        }
        let title = self.title();
        let mut unknown: BTreeMap<usize, (&str, Range<usize>, bool)> = BTreeMap::new();
        for (key, value) in self.table {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                let table = value.get_ref().is_table() && self.path.is_empty();
                unknown.insert(key.span().start, (name, key.span(), table));
            }
        }
        for (name, span, table) in unknown.into_values() {
            let message = if table {
                format!("unknown table [{}]", shown(name))
            } else if self.path.is_empty() {
                format!("unknown key {name:?} at the top")
            } else {
                format!("unknown key {name:?} in {title}")
            };
            let hint = match faults.near(name, self.known.iter().copied()) {
                Some(near) => Some(format!("did you mean {near:?}?")),
                None if self.known.is_empty() => None,
                None => Some(format!("known here: {}", list(&self.known))),
            };
            faults.add(Some(&span), message, hint);
        }
    }
}

/// A key as it stands in a table header.
fn shown(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}

/// Words with commas, each once, in their order.
pub(crate) fn list<T: Display + PartialEq>(words: &[T]) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in words {
        let word = word.to_string();
        if !out.contains(&word) {
            out.push(word);
        }
    }
    out.join(", ")
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// A scalar as a person would write it in quotes.
pub(crate) fn plain_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(n) => Some(i64::from_str_radix(n.as_str(), n.radix()).ok()?.to_string()),
        DeValue::Float(f) => Some(f.as_str().to_owned()),
        DeValue::Boolean(b) => Some(b.to_string()),
        _ => None,
    }
}

/// An absolute path without `..` and without control characters, with `.`, doubled and trailing slashes
/// taken out; else the reason.
pub(crate) fn absolute_path(text: &str) -> Result<String, &'static str> {
    if !text.starts_with('/') {
        return Err("it is not absolute");
    }
    if text.chars().any(char::is_control) {
        return Err("it holds a control character");
    }
    let parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.contains(&"..") {
        return Err("it holds ..");
    }
    if text.len() > 4095 || parts.iter().any(|p| p.len() > 255) {
        return Err("it is longer than Linux allows");
    }
    Ok(format!("/{}", parts.join("/")))
}
