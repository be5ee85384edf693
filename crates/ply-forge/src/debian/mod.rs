//! Debian as an archive of files: its indexes, signatures, versions and relations. Nothing here installs
//! anything, and no maintainer script is ever looked at.

pub(crate) mod apt;
pub(crate) mod control;
pub(crate) mod index;
pub(crate) mod relation;
pub(crate) mod release;
pub(crate) mod signature;
pub(crate) mod suite;
pub(crate) mod version;
