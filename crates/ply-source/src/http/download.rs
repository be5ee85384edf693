//! A whole file over connections that break: resumed where they broke, tried again after pauses that grow, never longer
//! than was announced or allowed.

use super::client::{Client, Reply, read};
use super::retry::{pause, retry_after};
use crate::{FileProgress, Progress, SourceError};
use ply_manifest::Bytes;
use std::io::Write;
use std::time::SystemTime;
use ureq::http::header;

/// A piece that is read at once, in bytes.
const PIECE: usize = 256 << 10;
/// How many new bytes make an attempt count as progress, so that a long file over a bad line ends, and a server that gives a byte
/// each time does not hold anyone for ever.
const PROGRESS: u64 = 1 << 20;

/// What is being fetched, for messages.
pub(crate) struct Wanted<'a> {
    /// The file or package.
    pub(crate) what: &'a str,
    /// Its URL.
    pub(crate) url: &'a str,
    /// The source's template.
    pub(crate) origin: &'a str,
}

impl Wanted<'_> {
    fn not_there(&self) -> SourceError {
        SourceError::NotThere {
            what: self.what.to_owned(),
            place: self.url.to_owned(),
            origin: self.origin.to_owned(),
            asks: Vec::new(),
        }
    }
}

/// What has come so far.
struct Transfer<W> {
    sink: W,
    done: u64,
    total: Option<u64>,
    /// A strong ETag, or the date of the last change: what makes sure that a rest belongs to its beginning.
    validator: Option<String>,
    /// Whether any part came by a Range request.
    resumed: bool,
}

/// Fetches a file into what `open` gives; `open` is called again where a transfer has to start anew. Gives the filled sink, the
/// bytes in it, and whether it was put together from several answers.
pub(crate) fn download<W: Write>(
    client: &Client,
    wanted: &Wanted<'_>,
    progress: &dyn Progress,
    mut open: impl FnMut() -> Result<W, SourceError>,
) -> Result<(W, bool), SourceError> {
    let options = client.options();
    let mut transfer = Transfer { sink: open()?, done: 0, total: None, validator: None, resumed: false };
    let mut shown: Option<Box<dyn FileProgress>> = None;
    let (mut failed, mut may_resume) = (0, true);
    loop {
        let before = transfer.done;
        let result = attempt(client, wanted, &mut transfer, may_resume, &mut open, &mut shown, progress);
        let error = match result {
            Ok(()) => {
                if let Some(shown) = shown {
                    shown.finish();
                }
                return Ok((transfer.sink, transfer.resumed));
            }
            // The server has nothing behind what came: begin again.
            Err(SourceError::Status { status: 416, .. }) if transfer.done > 0 && may_resume => {
                may_resume = false;
                continue;
            }
            Err(error) => error,
        };
        failed = if transfer.done >= before.saturating_add(PROGRESS) { 1 } else { failed + 1 };
        let Some(wait) = pause(&error, failed, options) else {
            return Err(last_word(error, &transfer, failed));
        };
        if let Some(shown) = &mut shown {
            shown.retry(&short(&error), wait, transfer.done);
        }
        std::thread::sleep(wait);
    }
}

/// One request and what comes of it.
fn attempt<W: Write>(
    client: &Client,
    wanted: &Wanted<'_>,
    transfer: &mut Transfer<W>,
    may_resume: bool,
    open: &mut impl FnMut() -> Result<W, SourceError>,
    shown: &mut Option<Box<dyn FileProgress>>,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let options = client.options();
    let mut headers = Vec::new();
    if transfer.done > 0 && may_resume {
        headers.push((header::RANGE, format!("bytes={}-", transfer.done)));
        headers.extend(transfer.validator.clone().map(|v| (header::IF_RANGE, v)));
    }
    let reply = client.get(wanted.url, &headers)?;
    let encoding = reply.header(header::CONTENT_ENCODING).unwrap_or("identity");
    if encoding != "identity" {
        let why = format!("it sends the file encoded as {encoding:?}, which nobody asked for");
        return Err(SourceError::Protocol { why, url: reply.url });
    }
    match reply.status {
        200 => {
            if transfer.done > 0 {
                *transfer = Transfer { sink: open()?, done: 0, total: None, validator: None, resumed: false };
            }
            transfer.total = length(&reply);
        }
        206 if transfer.done > 0 && may_resume => {
            if !continues(&reply, transfer) {
                // Another file stands there now, or the server counts wrong: nothing of this can be trusted.
                *transfer = Transfer { sink: open()?, done: 0, total: None, validator: None, resumed: false };
                return Err(SourceError::BrokenOff { got: 0, of: None, attempts: 1, url: reply.url });
            }
            transfer.resumed = true;
        }
        404 | 410 => return Err(wanted.not_there()),
        _ => return Err(status_error(&reply)),
    }
    let limit = options.largest_image;
    if transfer.total.is_some_and(|total| total > limit.0) {
        return Err(SourceError::TooLarge { limit, url: reply.url });
    }
    transfer.validator = validator(&reply);
    let shown = shown.get_or_insert_with(|| progress.start(wanted.what, wanted.url, transfer.total));
    let Reply { url, body, .. } = reply;
    let mut body = body.into_with_config().limit(u64::MAX).reader();
    let mut piece = vec![0; PIECE];
    loop {
        let got = read(&mut body, &mut piece, &url, options)?;
        if got == 0 {
            break;
        }
        transfer.done += got as u64;
        if transfer.done > limit.0 || transfer.total.is_some_and(|total| transfer.done > total) {
            let limit = Bytes(transfer.total.map_or(limit.0, |total| total.min(limit.0)));
            return Err(SourceError::TooLarge { limit, url });
        }
        transfer
            .sink
            .write_all(&piece[..got])
            .map_err(|error| SourceError::Write { what: wanted.what.to_owned(), error })?;
        shown.advance(got as u64);
    }
    match transfer.total {
        Some(total) if transfer.done < total => {
            Err(SourceError::BrokenOff { got: transfer.done, of: Some(total), attempts: 1, url })
        }
        _ => Ok(()),
    }
}

/// A small document: `index.json`, `state.json`. None where it is not there.
pub(crate) fn document(client: &Client, url: &str) -> Result<Option<Vec<u8>>, SourceError> {
    let options = client.options();
    let mut failed = 0;
    loop {
        let error = match document_once(client, url) {
            Err(error) => error,
            found => return found,
        };
        failed += 1;
        match pause(&error, failed, options) {
            Some(wait) => std::thread::sleep(wait),
            None => return Err(error),
        }
    }
}

fn document_once(client: &Client, url: &str) -> Result<Option<Vec<u8>>, SourceError> {
    let options = client.options();
    let limit = options.largest_document;
    let reply = client.get(url, &[])?;
    match reply.status {
        200 => {}
        404 | 410 => return Ok(None),
        _ => return Err(status_error(&reply)),
    }
    let total = length(&reply);
    let too_large = || SourceError::TooLarge { limit, url: url.to_owned() };
    if total.is_some_and(|total| total > limit.0) {
        return Err(too_large());
    }
    let mut body = reply.body.into_with_config().limit(u64::MAX).reader();
    let (mut text, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let got = read(&mut body, &mut piece, &reply.url, options)?;
        if got == 0 {
            break;
        }
        if (text.len() + got) as u64 > limit.0 {
            return Err(too_large());
        }
        text.extend_from_slice(&piece[..got]);
    }
    match total {
        Some(total) if (text.len() as u64) < total => Err(SourceError::BrokenOff {
            got: text.len() as u64,
            of: Some(total),
            attempts: 1,
            url: reply.url,
        }),
        _ => Ok(Some(text)),
    }
}

fn status_error(reply: &Reply) -> SourceError {
    let url = reply.url.clone();
    match reply.status {
        429 => {
            let wait = reply.header(header::RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
            SourceError::TooMany { wait, url }
        }
        status => SourceError::Status { status, url },
    }
}

/// `Content-Length`, as a claim: nothing is made so large for it.
fn length(reply: &Reply) -> Option<u64> {
    reply.header(header::CONTENT_LENGTH)?.trim().parse().ok()
}

/// What a later request can name the same bytes by (RFC 9110, 13.1.5): never a weak ETag.
fn validator(reply: &Reply) -> Option<String> {
    let etag = reply.header(header::ETAG).filter(|tag| tag.starts_with('"'));
    etag.or_else(|| reply.header(header::LAST_MODIFIED)).map(str::to_owned)
}

/// Whether a 206 is the rest of what came: it begins there, ends where the whole was said to end, and is of the same version.
fn continues<W>(reply: &Reply, transfer: &Transfer<W>) -> bool {
    let Some(range) = reply.header(header::CONTENT_RANGE).and_then(|v| v.trim().strip_prefix("bytes "))
    else {
        return false;
    };
    let Some((span, total)) = range.split_once('/') else { return false };
    let Some((first, last)) = span.split_once('-') else { return false };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let total = if total == "*" { transfer.total } else { number(total) };
    let whole = total.is_some() && (transfer.total.is_none() || total == transfer.total);
    let ends = number(last).and_then(|last| last.checked_add(1)) == total;
    let same =
        validator(reply).is_none() || transfer.validator.is_none() || validator(reply) == transfer.validator;
    number(first) == Some(transfer.done) && whole && ends && same
}

/// The error of a transfer that is given up, with how far it came.
fn last_word<W>(error: SourceError, transfer: &Transfer<W>, failed: u32) -> SourceError {
    match error {
        SourceError::BrokenOff { url, .. } => {
            SourceError::BrokenOff { got: transfer.done, of: transfer.total, attempts: failed, url }
        }
        other => other,
    }
}

/// Why an attempt ended, for the line beside a progress bar.
fn short(error: &SourceError) -> String {
    match error {
        SourceError::Stalled { after, .. } => format!("no byte for {} s", after.as_secs_f32()),
        SourceError::BrokenOff { .. } => "the connection broke".to_owned(),
        SourceError::Status { status, .. } => format!("the server answers {status}"),
        SourceError::TooMany { .. } => "the server wants fewer requests".to_owned(),
        other => other.to_string(),
    }
}
