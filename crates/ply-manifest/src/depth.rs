//! How deep a TOML text nests, before it is read into nested values.
//!
//! The TOML library bounds brackets and the parts of one dotted key, but not their product: 80 brackets of 80
//! parts make 6,400 tables in each other, and dropping those overflows the stack. So the events of the same
//! parser are counted first.

use std::ops::Range;
use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, parse_document};
use toml_parser::{ErrorSink, Source, Span};

/// The most brackets in each other, and the most parts of one dotted key. No format of ply has more than five.
pub(crate) const MOST: usize = 16;

/// Where a text first nests deeper than [`MOST`], if it does.
pub(crate) fn too_deep(text: &str) -> Option<Range<usize>> {
    let tokens = Source::new(text).lex().into_vec();
    let mut depth = Depth::default();
    parse_document(&tokens, &mut depth, &mut ());
    depth.found
}

#[derive(Default)]
struct Depth {
    brackets: usize,
    parts: usize,
    found: Option<Range<usize>>,
}

impl Depth {
    fn open(&mut self, span: Span) -> bool {
        self.brackets += 1;
        self.parts = 0;
        self.check(self.brackets, span);
        self.found.is_none()
    }

    fn close(&mut self) {
        self.brackets = self.brackets.saturating_sub(1);
        self.parts = 0;
    }

    fn check(&mut self, count: usize, span: Span) {
        if count > MOST && self.found.is_none() {
            self.found = Some(span.start()..span.end());
        }
    }
}

impl EventReceiver for Depth {
    fn std_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.parts = 0;
    }

    fn array_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.parts = 0;
    }

    fn inline_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(span)
    }

    fn inline_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close();
    }

    fn array_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(span)
    }

    fn array_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close();
    }

    fn simple_key(&mut self, span: Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        self.parts += 1;
        self.check(self.parts, span);
    }

    fn key_val_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.parts = 0;
    }

    fn value_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.parts = 0;
    }

    fn newline(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.parts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_dots_count_and_what_stands_beside_each_other_does_not() {
        let fine = [
            "a.b.c = 1\n".repeat(100),
            "a = [[], [], [{}, {b.c = 1}]]\n".to_owned(),
            "[a.b]\n[c.d]\n".repeat(40),
        ];
        for text in fine {
            assert_eq!(too_deep(&text), None, "{text}");
        }
        let dots = |n: usize| vec!["a"; n].join(".");
        assert_eq!(too_deep(&format!("{} = 1", dots(MOST))), None);
        let found = [
            format!("{} = 1", dots(MOST + 1)),
            format!("[{}]", dots(MOST + 1)),
            format!("[[{}]]", dots(MOST + 1)),
            format!("a = {}", "[".repeat(MOST + 1)),
            format!("a = {}", "{a=".repeat(MOST + 1)),
            format!("a = {{ {} = 1 }}", dots(MOST + 1)),
        ];
        for text in found {
            assert!(too_deep(&text).is_some(), "{text}");
        }
    }
}
