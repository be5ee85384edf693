//! One GET: over the network with ply's own client and apt's proxies, or from a folder (`file://`, apt's `copy:`).

use crate::error::{ForgeError, Result};
use ply_source::{NetworkOptions, Web};
use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// How often a request is tried where the fault may pass.
const TRIES: u32 = 3;

/// The client.
#[derive(Debug)]
pub(crate) struct Client {
    web: Web,
}

/// What came back, before its body is read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// `ETag` or `Last-Modified`, to ask again with.
    pub(crate) validator: Option<String>,
    body: Box<dyn Read + Send>,
}

impl Reply {
    /// The body of a good answer; any other status is an error.
    pub(crate) fn body(self, url: &str) -> Result<Box<dyn Read + Send>> {
        match self.status {
            200 => Ok(self.body),
            status => {
                Err(ForgeError::Fetch { url: url.to_owned(), why: format!("the server answered {status}") })
            }
        }
    }
}

impl Client {
    /// A client that goes through apt's proxies, else through those of the environment.
    pub(crate) fn new(http_proxy: Option<&str>, https_proxy: Option<&str>) -> Self {
        let mut options = NetworkOptions::from_env();
        if let Some(proxy) = http_proxy {
            options.http_proxy = Some(proxy.to_owned());
        }
        if let Some(proxy) = https_proxy {
            options.https_proxy = Some(proxy.to_owned());
        }
        Self { web: Web::new(options) }
    }

    /// Asks for a URL, with the validator of an older copy. Any answer of the server's is a reply; tried again where
    /// the fault may pass (5xx, 429, a broken connection).
    pub(crate) fn get(&self, url: &str, validator: Option<&str>) -> Result<Reply> {
        let failed = |why: String| ForgeError::Fetch { url: url.to_owned(), why };
        if let Some(path) = url
            .strip_prefix("file://")
            .or_else(|| url.strip_prefix("file:"))
            .or_else(|| url.strip_prefix("copy:"))
        {
            return match File::open(path) {
                Ok(file) => Ok(Reply { status: 200, validator: None, body: Box::new(file) }),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    Ok(Reply { status: 404, validator: None, body: Box::new(std::io::empty()) })
                }
                Err(e) => Err(failed(e.to_string())),
            };
        }
        let mut pause = Duration::from_millis(300);
        let mut attempt = 1;
        loop {
            let error = match self.web.get(url, validator) {
                Ok(reply) if reply.status >= 500 || reply.status == 429 => {
                    failed(format!("the server answered {}", reply.status))
                }
                Ok(reply) => {
                    return Ok(Reply { status: reply.status, validator: reply.validator, body: reply.body });
                }
                Err(
                    e
                    @ (ply_source::SourceError::Connection { .. } | ply_source::SourceError::Stalled { .. }),
                ) => ForgeError::Network(Box::new(e)),
                Err(e) => return Err(ForgeError::Network(Box::new(e))),
            };
            if attempt == TRIES {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause *= 3;
            attempt += 1;
        }
    }
}
