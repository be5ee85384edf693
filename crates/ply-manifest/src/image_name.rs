//! An image's file name, `<name>-<version>-<os>-<arch>.img`, parsed from the right.

use crate::noun::{NounError, serde_by_text};
use crate::{PackageName, Version};
use std::fmt;
use std::str::FromStr;

/// A processor architecture that ply has images for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// x86-64.
    X64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// Every architecture, in the order in which they are listed.
    pub const ALL: [Self; 2] = [Self::X64, Self::Arm64];

    /// The architecture that this ply was compiled for.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::X64 };

    /// The name in file names and manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
        }
    }
}

impl FromStr for Arch {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        Self::ALL
            .into_iter()
            .find(|a| a.as_str() == s)
            .ok_or_else(|| NounError::new(format!("{s:?} is not an arch")).hint("write x64 or arm64"))
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The file name of an image. Prints and parses as `<name>-<version>-linux-<arch>.img`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    /// The package.
    pub name: PackageName,
    /// Its version.
    pub version: Version,
    /// What it was built for.
    pub arch: Arch,
}

impl ImageName {
    /// `<name>-<version>`: the folder of a layer under `/opt`, and the stem of a published manifest.
    pub fn stem(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

impl FromStr for ImageName {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not an image's file name: {why}"))
                .hint("an image is named NAME-VERSION-linux-ARCH.img, as in node-22.6.0-linux-x64.img")
        };
        let stem = s.strip_suffix(".img").ok_or_else(|| wrong("it does not end in .img"))?;
        let (rest, arch) = stem.rsplit_once('-').ok_or_else(|| wrong("it names no arch"))?;
        let arch = arch.parse().map_err(|_| wrong("its arch is neither x64 nor arm64"))?;
        let rest = rest.strip_suffix("-linux").ok_or_else(|| wrong("its system is not linux"))?;
        let split = rest
            .as_bytes()
            .windows(2)
            .position(|w| w[0] == b'-' && w[1].is_ascii_digit())
            .ok_or_else(|| wrong("it has no version"))?;
        let name = rest[..split].parse().map_err(|e: NounError| wrong(&e.message))?;
        let version = rest[split + 1..].parse().map_err(|e: NounError| wrong(&e.message))?;
        Ok(Self { name, version, arch })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-linux-{}.img", self.name, self.version, self.arch)
    }
}

serde_by_text!(Arch, ImageName);
