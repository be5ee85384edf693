//! Tables and JSON on standard output, and the one-line notices on standard error.

use crate::failure::Failure;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::io::Write;

/// Prints rows under headings, columns two spaces apart, no rules. Nothing where there are no rows.
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)).collect::<Vec<_>>());
    }
    let columns = headings.len();
    for column in 0..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 2));
        }
    }
    for line in table.lines() {
        put(line.trim_end());
    }
}

/// Prints a value as JSON, two spaces a level.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|why| Failure::new(format!("the result can't be written as JSON: {why}")))?;
    put(&escaped(&text));
    Ok(())
}

/// JSON whose strings hold no character that steers a terminal: the format lets some stand as they are.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && steers(c) {
            out.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints one line. A reader that went away ends the program in silence, as a pipe does; any other fault of
/// standard output is an error, since the result is then not where it was asked for.
pub(crate) fn put(line: &str) {
    put_raw(&format!("{line}\n"));
}

/// The same for text that is no line, such as a terminal's codes.
pub(crate) fn put_raw(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(why) => {
            eprintln!("error: the result can't be written to standard output: {why}");
            std::process::exit(1);
        }
    }
}

/// Text from outside without control characters, so that a name can't steer the terminal (CVE-2023-28101).
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Control characters, and the marks that turn the direction of writing, which make one text look like another.
fn steers(c: char) -> bool {
    c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
}

/// The same for a text of several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    text.split('\n').map(|line| clean(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A size for people: one decimal, powers of 1000.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match UNITS.iter().find(|(_, factor)| bytes as f64 >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / factor),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_500), "1.5 kB");
        assert_eq!(size(61_000_000), "61.0 MB");
    }

    #[test]
    fn control_codes_never_reach_a_terminal() {
        assert_eq!(clean("a\x1b[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(clean_lines("a\x1b\n\tb\u{202e}"), "a\u{fffd}\n    b\u{fffd}");
        assert_eq!(escaped("{\n \"a\": \"\u{9b}31m\u{202e}é\"}"), "{\n \"a\": \"\\u009b31m\\u202eé\"}");
    }

    #[test]
    fn one_is_one() {
        assert_eq!([0, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
    }
}
