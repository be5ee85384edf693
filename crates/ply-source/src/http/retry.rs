//! When a request is worth another try, and after which pause.

use crate::{NetworkOptions, SourceError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a connection that was never made is tried: a host that is down stays down, and whoever is offline should hear
/// it soon.
const CONNECT_ATTEMPTS: u32 = 2;

/// The pause before the next attempt, where another is worth it: what passes by itself are silence, broken transfers, 408,
/// 429 and most 5xx. `failed` counts the attempts without progress so far, from 1. A server that wants a longer pause than
/// the longest is not asked again.
pub(super) fn pause(error: &SourceError, failed: u32, options: &NetworkOptions) -> Option<Duration> {
    let limit = match error {
        SourceError::Stalled { .. } | SourceError::BrokenOff { .. } | SourceError::TooMany { .. } => {
            options.attempts
        }
        SourceError::Status { status: 408 | 425 | 500 | 502 | 503 | 504 | 520..=530, .. } => options.attempts,
        SourceError::Connection { passes: true, .. } => options.attempts.min(CONNECT_ATTEMPTS),
        _ => return None,
    };
    if failed >= limit {
        return None;
    }
    let grown = options.first_pause.saturating_mul(1 << (failed - 1).min(16)).min(options.longest_pause);
    match error {
        SourceError::TooMany { wait: Some(wait), .. } if *wait > options.longest_pause => None,
        SourceError::TooMany { wait: Some(wait), .. } => Some(grown.max(*wait)),
        _ => Some(grown),
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3). None where it is neither.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = UNIX_EPOCH + Duration::from_secs(http_date(value)?);
    Some(at.duration_since(now).unwrap_or_default())
}

/// The seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that servers may send today.
fn http_date(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split([' ', ':']).filter(|w| !w.is_empty()).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = words[..] else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|m| *m == month)? as u64;
    let number = |text: &str, most: u64| text.parse::<u64>().ok().filter(|n| *n <= most);
    let (day, year) = (number(day, 31)?.max(1), number(year, 9999)?.max(1970));
    let (hour, minute, second) = (number(hour, 23)?, number(minute, 59)?, number(second, 60)?);
    // Days from 1970 in the Gregorian calendar, counting years from March.
    let (y, m) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let since_1970 = days.checked_sub(719_468)?;
    Some(since_1970 * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 90);
        let table = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(90)),
            ("Sat, 01 Jan 1994 00:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("", None),
            ("Sun, 06 Nov 1994 99:49:37 GMT", None),
        ];
        for (text, expected) in table {
            assert_eq!(retry_after(text, now), expected.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Tue, 29 Feb 2028 12:00:00 GMT"), Some(1_835_438_400));
    }

    #[test]
    fn pauses_grow_and_end() {
        let options = NetworkOptions::default();
        let url = || "https://example.org".to_owned();
        let stalled = SourceError::Stalled { after: Duration::from_secs(1), url: url() };
        let pauses: Vec<Option<u64>> =
            (1..=5).map(|n| pause(&stalled, n, &options).map(|p| p.as_millis() as u64)).collect();
        assert_eq!(pauses, [Some(500), Some(1000), Some(2000), Some(4000), None]);
        let wait = |seconds| SourceError::TooMany { wait: Some(Duration::from_secs(seconds)), url: url() };
        assert_eq!(pause(&wait(7), 1, &options), Some(Duration::from_secs(7)));
        assert_eq!(pause(&wait(61), 1, &options), None);
        let status = |status| SourceError::Status { status, url: url() };
        assert!(pause(&status(503), 1, &options).is_some());
        assert_eq!(pause(&status(501), 1, &options), None);
        assert_eq!(pause(&status(403), 1, &options), None);
        let refused = SourceError::Connection { why: String::new(), passes: false, url: url() };
        assert_eq!(pause(&refused, 1, &options), None);
    }
}
