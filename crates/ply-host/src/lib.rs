//! Many apps on one host: who needs which image, what can go, and the units that start them.

mod collect;
mod unit;

pub use collect::{Collected, collect, needed_by, remove_image};
pub use unit::{Manager, Unit};
