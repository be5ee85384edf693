//! One GET, with its redirects followed by hand, so that each hop is checked like the first.

use super::address::{is_localhost, is_near};
use super::proxy::{is_direct, proxy};
use super::resolver::{HostError, OwnResolver};
use super::roots::root_certificates;
use crate::{NetworkOptions, SourceError};
use std::error::Error as _;
use std::io::{self, Read};
use std::sync::OnceLock;
use ureq::http::{HeaderMap, Response, header};
use ureq::tls::{TlsConfig, TlsProvider};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, Proxy};
use url::{Host, Url};

/// The most redirects that one request may take.
const MOST_REDIRECTS: usize = 10;
/// What servers see.
const USER_AGENT: &str = concat!("ply/", env!("CARGO_PKG_VERSION"));

/// The HTTP client. Nothing is read or opened before the first request.
pub(crate) struct Client {
    options: NetworkOptions,
    insecure: bool,
    agents: OnceLock<Result<Agents, SetUp>>,
}

/// Connections by the way they take.
struct Agents {
    direct: Agent,
    http: Option<Agent>,
    https: Option<Agent>,
}

/// Why no request can be made at all.
enum SetUp {
    Proxy { variable: &'static str, text: String },
    Roots(String),
}

/// An answer: the head is here, the body comes by reading.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// The URL that answered, after redirects.
    pub(super) url: String,
    pub(super) body: Body,
}

impl Reply {
    /// One header as text.
    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    pub(crate) fn new(options: NetworkOptions, insecure: bool) -> Self {
        Self { options, insecure, agents: OnceLock::new() }
    }

    pub(super) fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// GETs a URL with some headers. Any status but a redirect is an answer.
    pub(super) fn get(
        &self,
        url: &str,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Reply, SourceError> {
        let mut at = parse(url)?;
        for _ in 0..=MOST_REDIRECTS {
            let response = self.one(&at, headers)?;
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                let (parts, body) = response.into_parts();
                return Ok(Reply { status, headers: parts.headers, url: at.into(), body });
            }
            at = next_hop(&at, response.headers())?;
        }
        Err(SourceError::Redirects { limit: MOST_REDIRECTS, last: at.into(), url: url.to_owned() })
    }

    /// One request without redirects.
    fn one(
        &self,
        url: &Url,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Response<Body>, SourceError> {
        let agents = self.agents(url)?;
        let through = match url.scheme() {
            "https" => &agents.https,
            _ => &agents.http,
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(443);
        let through = through.as_ref().filter(|_| !is_direct(self.options.no_proxy.as_deref(), host, port));
        self.check_plain(url, through.is_some())?;
        let mut request = through.unwrap_or(&agents.direct).get(url.as_str());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.call().map_err(|error| explain(error, url.as_str(), &self.options))
    }

    /// Refuses plain http to a public host. A host that is only a name is checked by the resolver, on the addresses that are
    /// connected to; behind a proxy that is not possible, and the name is not enough.
    fn check_plain(&self, url: &Url, through_proxy: bool) -> Result<(), SourceError> {
        if self.insecure || url.scheme() == "https" {
            return Ok(());
        }
        let near = match url.host() {
            Some(Host::Ipv4(v4)) => is_near(v4.into()),
            Some(Host::Ipv6(v6)) => is_near(v6.into()),
            Some(Host::Domain(name)) => is_localhost(name) || !through_proxy,
            None => false,
        };
        if near { Ok(()) } else { Err(SourceError::PlainHttp { url: url.to_string() }) }
    }

    fn agents(&self, url: &Url) -> Result<&Agents, SourceError> {
        self.agents.get_or_init(|| self.set_up()).as_ref().map_err(|why| match why {
            SetUp::Roots(why) => SourceError::Tls { why: why.clone(), url: url.to_string() },
            SetUp::Proxy { variable, text } => proxy(variable, text).expect_err("it was refused before"),
        })
    }

    fn set_up(&self) -> Result<Agents, SetUp> {
        let roots = root_certificates(self.options.certificates.as_deref()).map_err(SetUp::Roots)?;
        let agent = |through: Option<Proxy>| {
            let o = &self.options;
            // Behind a proxy only the proxy's own name is looked up here, and that may be anywhere.
            let keep_near = !self.insecure && through.is_none();
            let resolver = OwnResolver::new(o.hosts_file.clone(), o.resolver_file.clone(), keep_near);
            let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots.clone()).build();
            let config = Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent(USER_AGENT)
                .accept_encoding("identity")
                .tls_config(tls)
                .proxy(through)
                .timeout_resolve(Some(o.connect))
                .timeout_connect(Some(o.connect))
                .timeout_recv_response(Some(o.stall))
                .timeout_per_read(Some(o.stall))
                .timeout_per_write(Some(o.stall))
                .max_idle_connections_per_host(o.parallel.max(1))
                .build();
            Agent::with_parts(config, DefaultConnector::default(), resolver)
        };
        let through = |variable, text: &Option<String>| match text {
            Some(text) => match proxy(variable, text) {
                Ok(proxy) => Ok(Some(agent(Some(proxy)))),
                Err(_) => Err(SetUp::Proxy { variable, text: text.clone() }),
            },
            None => Ok(None),
        };
        Ok(Agents {
            direct: agent(None),
            http: through("HTTP_PROXY", &self.options.http_proxy)?,
            https: through("HTTPS_PROXY", &self.options.https_proxy)?,
        })
    }
}

fn parse(url: &str) -> Result<Url, SourceError> {
    let wrong = || SourceError::BadUrl { url: url.to_owned() };
    let parsed = Url::parse(url).map_err(|_| wrong())?;
    let login = !parsed.username().is_empty() || parsed.password().is_some();
    let known = matches!(parsed.scheme(), "http" | "https") && parsed.has_host();
    if known && !login { Ok(parsed) } else { Err(wrong()) }
}

/// Where a redirect leads. From https it never leads to http, and it never carries a login.
fn next_hop(from: &Url, headers: &HeaderMap) -> Result<Url, SourceError> {
    let location = headers.get(header::LOCATION).map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
    let location = location.unwrap_or_default();
    let wrong = || SourceError::BadRedirect { url: from.to_string(), location: location.clone() };
    if location.is_empty() {
        return Err(wrong());
    }
    let to = from.join(&location).map_err(|_| wrong())?;
    let to = parse(to.as_str()).map_err(|_| wrong())?;
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err(SourceError::Downgrade { from: from.to_string(), to: to.to_string() });
    }
    Ok(to)
}

/// An error of the client, in the user's words.
pub(super) fn explain(error: ureq::Error, url: &str, options: &NetworkOptions) -> SourceError {
    let url = url.to_owned();
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => SourceError::Connection {
            why: format!("no answer within {} s", options.connect.as_secs_f32()),
            passes: true,
            url,
        },
        ureq::Error::Timeout(_) => SourceError::Stalled { after: options.stall, url },
        ureq::Error::Other(other) => match other.downcast::<HostError>() {
            Ok(host) => match *host {
                HostError::NoAddress(why) => {
                    let host = Url::parse(&url).ok().and_then(|u| u.host_str().map(str::to_owned));
                    SourceError::NoAddress { host: host.unwrap_or_default(), why, url }
                }
                HostError::Public => SourceError::PlainHttp { url },
            },
            Err(other) => SourceError::Connection { why: other.to_string(), passes: false, url },
        },
        ureq::Error::HostNotFound => {
            SourceError::Connection { why: "the host has no address".to_owned(), passes: false, url }
        }
        ureq::Error::Io(error) => explain_io(error, url),
        ureq::Error::Tls(why) => SourceError::Tls { why: why.to_owned(), url },
        ureq::Error::Rustls(error) => SourceError::Tls { why: error.to_string(), url },
        ureq::Error::Pem(error) => SourceError::Tls { why: error.to_string(), url },
        ureq::Error::BadUri(_) => SourceError::BadUrl { url },
        ureq::Error::ConnectProxyFailed(why) => {
            SourceError::Connection { why: format!("the proxy refuses: {why}"), passes: false, url }
        }
        other => SourceError::Protocol { why: other.to_string(), url },
    }
}

fn explain_io(error: io::Error, url: String) -> SourceError {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return SourceError::Tls { why: tls.to_string(), url };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => SourceError::BrokenOff { got: 0, of: None, attempts: 1, url },
        io::ErrorKind::TimedOut => SourceError::Connection { why: "no answer".to_owned(), passes: true, url },
        _ => SourceError::Connection {
            why: error.source().map_or_else(|| error.to_string(), ToString::to_string),
            passes: false,
            url,
        },
    }
}

/// Reads a body, telling silence from a broken transfer.
pub(super) fn read(
    body: &mut impl Read,
    buffer: &mut [u8],
    url: &str,
    options: &NetworkOptions,
) -> Result<usize, SourceError> {
    loop {
        match body.read(buffer) {
            Ok(got) => return Ok(got),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(match explain(error.into(), url, options) {
                    stalled @ SourceError::Stalled { .. } => stalled,
                    _ => SourceError::BrokenOff { got: 0, of: None, attempts: 1, url: url.to_owned() },
                });
            }
        }
    }
}
