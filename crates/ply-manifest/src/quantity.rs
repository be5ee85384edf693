//! Quantities: sizes, durations, cores and rates. Each prints in the largest unit that loses nothing.

use crate::noun::{NounError, serde_by_text};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A size in bytes: `512K`, `512M`, `2G` and `KiB`, `MiB`, `GiB`, all powers of 1024; a bare number is bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const SIZE_UNITS: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl FromStr for Bytes {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a size"))
                .hint("write a size as \"512K\", \"512M\" or \"2G\"")
        };
        let digits = s.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(s.len());
        let number: u64 = s[..digits].parse().map_err(|_| wrong())?;
        let unit = &s[digits..];
        let factor = match unit {
            "" | "B" => 1,
            _ => SIZE_UNITS
                .iter()
                .find(|(u, _)| unit == *u || unit.strip_suffix("iB") == Some(u))
                .map(|(_, f)| *f)
                .ok_or_else(wrong)?,
        };
        number.checked_mul(factor).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in SIZE_UNITS {
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A span of time: `500ms`, `30s`, `1m30s`, `10m`, `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl FromStr for Span {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a duration"))
                .hint("write a duration as \"500ms\", \"30s\", \"1m30s\" or \"2h\"")
        };
        let mut rest = s;
        let mut total: u64 = 0;
        let mut last = u64::MAX;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().position(|b| !b.is_ascii_digit()).ok_or_else(wrong)?;
            let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let letters = rest.bytes().position(|b| b.is_ascii_digit()).unwrap_or(rest.len());
            let unit = rest.get(..letters).ok_or_else(wrong)?;
            let (_, factor) = TIME_UNITS.iter().find(|(u, _)| *u == unit).ok_or_else(wrong)?;
            if *factor >= last {
                return Err(wrong());
            }
            last = *factor;
            total = number.checked_mul(*factor).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
            rest = &rest[letters..];
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if left == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in TIME_UNITS {
            if left >= factor {
                write!(f, "{}{unit}", left / factor)?;
                left %= factor;
            }
        }
        Ok(())
    }
}

/// A share of processors, in thousandths of a core: `"1.5"` is 1500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cores {
    /// Thousandths of a core; never 0.
    pub millis: u32,
}

impl FromStr for Cores {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a number of cores"))
                .hint("write cores as \"0.5\", \"1.5\" or \"2\"")
        };
        let (whole, part) = s.split_once('.').unwrap_or((s, "0"));
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 3 {
            return Err(wrong());
        }
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let part: u32 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
        let millis = whole.checked_mul(1000).and_then(|w| w.checked_add(part)).ok_or_else(wrong)?;
        if millis == 0 { Err(wrong()) } else { Ok(Self { millis }) }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.millis / 1000, self.millis % 1000);
        if part == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
        }
    }
}

/// A rate in bytes a second: `40MB/s`, powers of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

const RATE_UNITS: [(&str, u64); 4] =
    [("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("kB/s", 1_000), ("B/s", 1)];

impl FromStr for Rate {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || NounError::new(format!("{s:?} is not a rate")).hint("write a rate as \"40MB/s\"");
        let digits = s.bytes().position(|b| !b.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = s[..digits].parse().map_err(|_| wrong())?;
        let unit = if &s[digits..] == "KB/s" { "kB/s" } else { &s[digits..] };
        let (_, factor) = RATE_UNITS.iter().find(|(u, _)| *u == unit).ok_or_else(wrong)?;
        number.checked_mul(*factor).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) =
            RATE_UNITS.iter().find(|(_, f)| self.0 != 0 && self.0.is_multiple_of(*f)).unwrap_or(&("B/s", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

serde_by_text!(Bytes, Span, Cores, Rate);
