//! Progress on standard error: one bar a file on a terminal, one line a file elsewhere.

use crate::output::{clean, size};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use ply_source::{FileProgress, Progress};
use std::io::IsTerminal;
use std::time::Duration;

/// Draws the fetches of one command.
pub(crate) struct Bars {
    quiet: bool,
    bars: Option<MultiProgress>,
}

impl Bars {
    /// Bars where standard error is a terminal that can draw them; nothing where `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal() && !dumb && !quiet;
        Self { quiet, bars: terminal.then(MultiProgress::new) }
    }
}

impl Progress for Bars {
    fn start(&self, name: &str, _url: &str, bytes: Option<u64>) -> Box<dyn FileProgress> {
        let name = clean(name);
        let Some(bars) = &self.bars else {
            return Box::new(Line { name, bytes: 0, quiet: self.quiet });
        };
        let template = match bytes {
            Some(_) => "{msg:40!} {bar:24} {bytes:>10} of {total_bytes:>10}, {eta} left",
            None => "{msg:40!} {spinner} {bytes:>10}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = match bytes {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let bar = bars.add(bar.with_style(style).with_message(name));
        Box::new(Bar(bar))
    }

    fn notice(&self, line: &str) {
        if self.quiet {
            return;
        }
        match &self.bars {
            Some(bars) => drop(bars.println(clean(line))),
            None => eprintln!("{}", clean(line)),
        }
    }
}

struct Bar(ProgressBar);

impl FileProgress for Bar {
    fn advance(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn retry(&mut self, why: &str, pause: Duration, done: u64) {
        self.0.set_position(done);
        let message = self.0.message();
        self.0.println(format!("{message}: {}, again in {:.1} s", clean(why), pause.as_secs_f64()));
    }

    fn finish(self: Box<Self>) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

struct Line {
    name: String,
    bytes: u64,
    quiet: bool,
}

impl FileProgress for Line {
    fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    fn retry(&mut self, why: &str, pause: Duration, done: u64) {
        self.bytes = done;
        if !self.quiet {
            eprintln!("{}: {}, again in {:.1} s", self.name, clean(why), pause.as_secs_f64());
        }
    }

    fn finish(self: Box<Self>) {
        if !self.quiet {
            eprintln!("fetched {} ({})", self.name, size(self.bytes));
        }
    }
}
