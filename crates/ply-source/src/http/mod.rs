//! Everything that opens a socket: the client, its resolver, whom it trusts, when it tries again.

mod address;
mod client;
mod dns;
mod dns_config;
#[cfg(test)]
mod dns_tests;
mod download;
mod proxy;
mod resolver;
mod retry;
mod roots;
mod web;

pub(crate) use client::Client;
pub(crate) use download::{Wanted, document, download};
pub use web::{Web, WebReply};
