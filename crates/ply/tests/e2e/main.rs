//! The whole program, black box: files are made, ply is run, what a user sees is compared. Rootful and rootless
//! are one product, so most tests run as both.

mod build;
mod deploy;
mod harness;
mod inside;
mod kill;
mod life;
mod messages;
mod publish;
mod real;
mod sources;
mod store;
mod terminal;
