//! Env files: `KEY=VALUE` lines. `#` at the start of a line is a comment; the first `=` splits; one matched
//! pair of quotes is removed; CRLF and a BOM are tolerated; nothing is expanded. Source: `spec` on `ply run`.

use crate::Diagnostics;
use crate::parse::variable_name;
use crate::walk::Faults;

/// The most bytes of an env file.
const MOST_BYTES: usize = 1 << 20;

/// The grammar of an env file.
#[derive(Debug, Clone, Copy)]
pub struct EnvFile;

impl EnvFile {
    /// The variables of an env file, in the order of the file; a name that stands there twice keeps its
    /// first place and its last value. `file` is the name that errors show; they never show a value.
    pub fn parse(text: &str, file: &str) -> Result<Vec<(String, String)>, Diagnostics> {
        let mut faults = Faults::new(text, file);
        if text.len() > MOST_BYTES {
            faults.add(None, format!("it has {} bytes, and the most is {MOST_BYTES}", text.len()), None);
            return faults.finish(None);
        }
        let mut variables: Vec<(String, String)> = Vec::new();
        let mut places = std::collections::BTreeMap::new();
        let mut offset = 0;
        for whole in text.split_inclusive('\n') {
            let start = offset;
            offset += whole.len();
            let line = whole.strip_suffix('\n').unwrap_or(whole);
            let line = line.strip_suffix('\r').unwrap_or(line);
            let bom = if start == 0 && line.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
            let (line, start) = (&line[bom..], start + bom);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let span = start..start + line.len();
            if line.starts_with("export ") || line.starts_with("export\t") {
                faults.at_hint(
                    &span,
                    "a line begins with export, and an env file is no shell script",
                    "write KEY=VALUE",
                );
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                faults.at_hint(&span, "a line has no =", "write KEY=VALUE, or # in front of a comment");
                continue;
            };
            if let Err(why) = variable_name(key) {
                faults.at_hint(
                    &span,
                    format!("{key:?} is not the name of a variable: {why}"),
                    "write KEY=VALUE",
                );
                continue;
            }
            if value.contains('\0') {
                faults.at(&(start + key.len() + 1..span.end), format!("the value of {key} holds a NUL byte"));
                continue;
            }
            let value = unquoted(value).to_owned();
            match places.get(key) {
                Some(place) => {
                    let slot: &mut (String, String) = &mut variables[*place];
                    slot.1 = value;
                }
                None => {
                    places.insert(key, variables.len());
                    variables.push((key.to_owned(), value));
                }
            }
        }
        faults.finish(Some(variables))
    }
}

/// A value without its one matched pair of quotes.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}
