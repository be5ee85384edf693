//! Paragraphs of `Field: value` lines, as in release files, package lists and apt's own `.sources`
//! (deb822(5)).

/// One paragraph; fields in the order of the file, names as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paragraph<'a>(pub(crate) &'a str);

impl<'a> Paragraph<'a> {
    /// The value of a field whose name is compared without case, continuation lines included (with their line
    /// breaks and leading blanks). `None` where there is no such field.
    pub(crate) fn get(&self, field: &str) -> Option<&'a str> {
        let text = self.0;
        let mut start = 0;
        while start < text.len() {
            let end = end_of_field(text, start);
            let whole = &text[start..end];
            if let Some((name, value)) = whole.split_once(':')
                && name.eq_ignore_ascii_case(field)
            {
                return Some(value.trim());
            }
            start = end;
        }
        None
    }
}

/// Where the field that starts at `start` ends: after its continuation lines and the comments among them.
fn end_of_field(text: &str, start: usize) -> usize {
    let mut end = start;
    loop {
        end = text[end..].find('\n').map_or(text.len(), |n| end + n + 1);
        if !text[end..].starts_with([' ', '\t', '#']) {
            return end;
        }
    }
}

/// The paragraphs of a text, separated by empty lines; lines that begin with `#` don't end one.
pub(crate) fn paragraphs(text: &str) -> impl Iterator<Item = Paragraph<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(['\n', '\r']);
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\n\n").map_or(rest.len(), |n| n + 1);
        let (paragraph, after) = rest.split_at(end);
        rest = after;
        Some(Paragraph(paragraph))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_without_case_and_keep_their_continuations() {
        let text = "Package: a\nDescription: one\n two\n .\n three\nDepends: b (>= 1), c\n\n\nPackage: d\n";
        let all: Vec<_> = paragraphs(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("description"), Some("one\n two\n .\n three"));
        assert_eq!(all[0].get("Depends"), Some("b (>= 1), c"));
        assert_eq!(all[0].get("Pack"), None);
        assert_eq!(all[1].get("Package"), Some("d"));
    }

    #[test]
    fn comments_are_no_fields() {
        let text = "Types: deb\n# http://x\nURIs: http://y\nSigned-By:\n # key\n -----BEGIN\n";
        let one = paragraphs(text).next().unwrap();
        assert_eq!(one.get("URIs"), Some("http://y"));
        assert_eq!(one.get("Types").map(|t| t.lines().next().unwrap()), Some("deb"));
    }
}
