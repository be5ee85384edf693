//! One plain GET for those who fetch something that is no package of ply's: the archives that packages are made from.
//! Their bytes are checked by digests and signatures of their own, so http to any host is fine here.

use super::Client;
use crate::{NetworkOptions, SourceError};
use std::io::Read;
use ureq::http::header;

/// A client for files that are checked by somebody else. Nothing is opened before the first request.
pub struct Web(Client);

/// An answer whose body is still to be read.
pub struct WebReply {
    /// The status, after redirects.
    pub status: u16,
    /// `ETag`, else `Last-Modified`: what to ask again with.
    pub validator: Option<String>,
    /// The body. Reading it may stall or break off, which is an I/O error.
    pub body: Box<dyn Read + Send>,
}

impl Web {
    /// A client with these timeouts and proxies.
    pub fn new(options: NetworkOptions) -> Self {
        Self(Client::new(options, true))
    }

    /// GETs a URL. With the validator of an older copy, 304 says that the copy is still good. Any status but a redirect is an
    /// answer, and nothing is tried twice.
    pub fn get(&self, url: &str, validator: Option<&str>) -> Result<WebReply, SourceError> {
        // An ETag ends in a quote; a date does not.
        let ask = validator.map(|v| match v.ends_with('"') {
            true => (header::IF_NONE_MATCH, v.to_owned()),
            false => (header::IF_MODIFIED_SINCE, v.to_owned()),
        });
        let reply = self.0.get(url, ask.as_slice())?;
        let validator = reply.header(header::ETAG).or_else(|| reply.header(header::LAST_MODIFIED));
        Ok(WebReply {
            status: reply.status,
            validator: validator.map(str::to_owned),
            body: Box::new(reply.body.into_reader()),
        })
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Web").finish_non_exhaustive()
    }
}
