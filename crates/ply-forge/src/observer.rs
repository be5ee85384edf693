//! Who is told what minting does: the command line draws it, tests collect it, a library user may ignore it.

/// Hears of notable facts, one sentence each. Called from several threads.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Something that a person should know: what was left out, what stood in for what.
    fn note(&self, text: &str);

    /// A step that takes a while has begun, as in "unpacking 61 packages".
    fn step(&self, text: &str) {
        let _ = text;
    }
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn note(&self, _: &str) {}
}
