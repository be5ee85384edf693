//! One GET: over http, https or from a folder (`file://`), with the machine's proxies and certificate authorities.

use crate::error::{ForgeError, Result};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// How often a request is tried where the fault may pass.
const TRIES: u32 = 3;

/// Where certificate authorities stand on common systems; `SSL_CERT_FILE` comes first.
const CA_FILES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Two agents, since apt may name a proxy for each scheme.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    plain: ureq::Agent,
    secure: ureq::Agent,
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
    pub(crate) fn new(http_proxy: Option<&str>, https_proxy: Option<&str>) -> Result<Self> {
        let agent = |proxy: Option<&str>| {
            let mut config = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .user_agent(concat!("ply/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .timeout_connect(Some(Duration::from_secs(20)))
                .timeout_recv_response(Some(Duration::from_secs(60)))
                .tls_config(TlsConfig::builder().root_certs(roots()).build());
            if let Some(proxy) = proxy {
                let parsed = ureq::Proxy::new(proxy).map_err(|e| ForgeError::Fetch {
                    url: proxy.to_owned(),
                    why: format!("apt names it as a proxy, and it is none: {e}"),
                })?;
                config = config.proxy(Some(parsed));
            }
            Ok::<_, ForgeError>(config.build().new_agent())
        };
        Ok(Self { plain: agent(http_proxy)?, secure: agent(https_proxy)? })
    }

    /// Asks for a URL, with the validator of an older copy. Any answer of the server's is a reply; tried again where
    /// the fault may pass (5xx, 429, a broken connection).
    pub(crate) fn get(&self, url: &str, validator: Option<&str>) -> Result<Reply> {
        let failed = |why: String| ForgeError::Fetch { url: url.to_owned(), why };
        if let Some(path) = url.strip_prefix("file://").or_else(|| url.strip_prefix("copy:")) {
            return match File::open(path) {
                Ok(file) => Ok(Reply { status: 200, validator: None, body: Box::new(file) }),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    Ok(Reply { status: 404, validator: None, body: Box::new(std::io::empty()) })
                }
                Err(e) => Err(failed(e.to_string())),
            };
        }
        let agent = if url.starts_with("https://") {
            &self.secure
        } else if url.starts_with("http://") {
            &self.plain
        } else {
            return Err(failed("its scheme is none of http, https and file".to_owned()));
        };
        let mut pause = Duration::from_millis(300);
        for attempt in 1.. {
            let mut request = agent.get(url);
            if let Some(validator) = validator {
                // An ETag is quoted; a date is not.
                let header = if validator.ends_with('"') { "If-None-Match" } else { "If-Modified-Since" };
                request = request.header(header, validator);
            }
            let why = match request.call() {
                Ok(reply) if reply.status().is_server_error() || reply.status() == 429 => {
                    format!("the server answered {}", reply.status().as_u16())
                }
                Ok(reply) => {
                    let text =
                        |name| reply.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
                    let validator = text("etag").or_else(|| text("last-modified"));
                    let status = reply.status().as_u16();
                    return Ok(Reply { status, validator, body: Box::new(reply.into_body().into_reader()) });
                }
                Err(e) => e.to_string(),
            };
            if attempt == TRIES {
                return Err(failed(why));
            }
            std::thread::sleep(pause);
            pause *= 3;
        }
        unreachable!("the loop returns at its last attempt")
    }
}

/// The machine's certificate authorities, else Mozilla's as compiled in.
fn roots() -> RootCerts {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|v| !v.is_empty()).map(Into::into);
    let files = named.into_iter().chain(CA_FILES.iter().map(std::path::PathBuf::from));
    for file in files {
        let Ok(pem) = std::fs::read(&file) else { continue };
        let certificates: Vec<_> = ureq::tls::parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if !certificates.is_empty() {
            return RootCerts::Specific(Arc::new(certificates));
        }
    }
    RootCerts::WebPki
}
