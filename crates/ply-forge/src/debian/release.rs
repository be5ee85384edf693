//! A suite's release file: what it is, how long it holds, and the digests of its package lists.

use super::control;
use crate::download::Expected;

/// What a release file says.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    /// `Origin`: "Debian" for the archive itself.
    pub(crate) origin: String,
    /// `Version`: the point release, as in `13.8`; a suite in testing has none.
    pub(crate) version: Option<String>,
    /// `Valid-Until` as written, and in seconds since 1970.
    pub(crate) valid_until: Option<(String, u64)>,
    /// Whether files can be asked for by their digest.
    pub(crate) by_hash: bool,
    files: Vec<(String, Expected, u64)>,
}

impl Release {
    /// Reads the signed text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let paragraph = control::paragraphs(text).next().ok_or("it is empty")?;
        let mut files = Vec::new();
        for line in paragraph.get("SHA256").ok_or("it lists no sha256")?.lines() {
            let mut words = line.split_whitespace();
            if let (Some(hash), Some(size), Some(name)) = (words.next(), words.next(), words.next()) {
                let expected = Expected::sha256_hex(hash).ok_or_else(|| format!("{hash:?} is no sha256"))?;
                let size = size.parse().map_err(|_| format!("{size:?} is no size"))?;
                files.push((name.to_owned(), expected, size));
            }
        }
        let valid_until = match paragraph.get("Valid-Until") {
            None => None,
            Some(date) => {
                Some((date.to_owned(), seconds(date).ok_or_else(|| format!("{date:?} is no date"))?))
            }
        };
        Ok(Self {
            origin: paragraph.get("Origin").unwrap_or_default().to_owned(),
            version: paragraph.get("Version").map(str::to_owned),
            valid_until,
            by_hash: paragraph.get("Acquire-By-Hash").is_some_and(|v| v.eq_ignore_ascii_case("yes")),
            files,
        })
    }

    /// The package list of a component and an arch in the best form that is listed: its name, digest and size.
    pub(crate) fn packages(&self, component: &str, arch: &str) -> Option<(&str, &Expected, u64)> {
        // The security archive names its components "updates/main" and lists them as "main".
        let component = component.rsplit('/').next().unwrap_or(component);
        [".xz", ".gz", ""].into_iter().find_map(|ending| {
            let name = format!("{component}/binary-{arch}/Packages{ending}");
            let found = self.files.iter().find(|(listed, _, _)| *listed == name)?;
            Some((found.0.as_str(), &found.1, found.2))
        })
    }
}

/// Seconds since 1970 of a date such as `Sat, 05 Dec 2026 14:09:31 UTC` (RFC 5322 with a zone of UTC).
fn seconds(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = date.split_once(',')?.1.split_whitespace();
    let day: i64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|m| *m == month)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|n| n.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !matches!(words.next()?, "UTC" | "GMT" | "+0000")
        || !(1..=31).contains(&day)
        || !(1970..10_000).contains(&year)
    {
        return None;
    }
    u64::try_from(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

/// Days from 1970-01-01 in the Gregorian calendar, by counting years from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The day of a time in UTC, as `20261115`.
pub(crate) fn day(seconds: u64) -> String {
    let mut left = (seconds / 86_400) as i64;
    let mut year = 1970 + left / 366;
    while days(year + 1, 1, 1) <= left {
        year += 1;
    }
    let mut month = 12;
    while days(year, month, 1) > left {
        month -= 1;
    }
    left -= days(year, month, 1);
    format!("{year:04}{month:02}{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_counted_both_ways() {
        let table = [
            ("Thu, 01 Jan 1970 00:00:00 UTC", 0, "19700101"),
            ("Thu, 29 Feb 2024 23:59:59 UTC", 1_709_251_199, "20240229"),
            ("Sat, 05 Dec 2026 14:09:31 UTC", 1_796_479_771, "20261205"),
            ("Fri, 31 Dec 2100 00:00:00 +0000", 4_133_894_400, "21001231"),
        ];
        for (text, count, short) in table {
            assert_eq!(seconds(text), Some(count), "{text}");
            assert_eq!(day(count), short);
        }
        for wrong in
            ["", "Sat, 05 Dec 2026 14:09:31 PST", "Sat, 05 Foo 2026 1:1:1 UTC", "x, 40 Dec 2026 1:1:1 UTC"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_best_listed_form_is_chosen() {
        let hash = "ab".repeat(32);
        let text = format!(
            "Origin: Debian\nVersion: 13.8\nAcquire-By-Hash: yes\nMD5Sum:\n 00 1 main/binary-amd64/Packages.xz\nSHA256:\n \
             {hash} 10 main/binary-amd64/Packages\n {hash} 5 main/binary-amd64/Packages.gz\n"
        );
        let release = Release::parse(&text).unwrap();
        assert_eq!(release.version.as_deref(), Some("13.8"));
        assert_eq!(release.packages("updates/main", "amd64").unwrap().2, 5);
        assert!(release.packages("main", "arm64").is_none());
        assert!(Release::parse("Origin: x\n").is_err());
        assert!(Release::parse("SHA256:\n zz 1 main/x\n").is_err());
    }
}
