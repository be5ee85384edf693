//! How a fetch tells what it does, without knowing about terminals.

use std::time::Duration;

/// What draws the progress of fetches. Called from several threads at once; every method does nothing by default.
pub trait Progress: Send + Sync {
    /// A file begins to come: its name, where from, and its size in bytes where the server said one.
    fn start(&self, name: &str, url: &str, bytes: Option<u64>) -> Box<dyn FileProgress> {
        let _ = (name, url, bytes);
        Box::new(Silent)
    }

    /// One line for the person at the terminal, such as that a reference was answered from the store alone.
    fn notice(&self, line: &str) {
        let _ = line;
    }
}

/// The progress of one file. Dropped without [`FileProgress::finish`] when the fetch ended with an error.
pub trait FileProgress: Send {
    /// So many more bytes have come.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The transfer broke off and is tried again after `pause`; `done` bytes are kept (0 where it starts anew).
    fn retry(&mut self, why: &str, pause: Duration, done: u64) {
        let _ = (why, pause, done);
    }

    /// The file is in the store.
    fn finish(self: Box<Self>) {}
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
impl FileProgress for Silent {}
