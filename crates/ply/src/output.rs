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
    put(&text);
    Ok(())
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
    // The marks that turn the direction of writing make one text look like another.
    let turns = |c: char| ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
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
    }
}
