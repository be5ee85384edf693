//! One file a verb: arguments in, one call down, a table or JSON out.

pub(crate) mod add;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod exec;
pub(crate) mod fetch;
pub(crate) mod forge;
pub(crate) mod gc;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod outdated;
pub(crate) mod ps;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod store;
pub(crate) mod tree;
pub(crate) mod update;
pub(crate) mod verify;
pub(crate) mod volume;
