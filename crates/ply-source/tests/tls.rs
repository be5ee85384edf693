//! TLS with an authority of one's own: trusted when named, refused when not, never left for plain http.

mod support;

use ply_source::{Fetcher, SourceError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use support::World;
use support::server::{Server, answer};

const IMAGE: &str = "tool-1.2.0-linux-x64.img";

/// A TLS server for `localhost`, and the PEM of the authority that signed it. `handle` gets the path and the connection.
fn secure(handle: impl Fn(&str, &mut dyn Write) + Send + Sync + 'static) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&server_key, &issuer)
        .unwrap();
    let chain = vec![CertificateDer::from(leaf.der().to_vec())];
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, handle) = (config.clone(), handle.clone());
            std::thread::spawn(move || {
                let Ok(connection) = ServerConnection::new(config) else { return };
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let mut text = Vec::new();
                let mut byte = [0];
                while !text.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut byte) {
                        Ok(1) => text.push(byte[0]),
                        _ => return,
                    }
                }
                let text = String::from_utf8_lossy(&text).into_owned();
                handle(text.split(' ').nth(1).unwrap_or("/"), &mut stream);
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    (port, authority.pem())
}

/// An answer through a writer that is not sized.
fn tell(mut stream: &mut dyn Write, status: &str, headers: &str, body: &[u8]) {
    answer(&mut stream, status, headers, body);
}

fn fetch(world: &World, source: &str, authority: Option<&str>) -> Result<(), SourceError> {
    let mut options = world.options(source);
    options.network.certificates = authority.map(|pem| {
        let path = world.temp.path().join("authority.pem");
        std::fs::write(&path, pem).unwrap();
        path
    });
    Fetcher::new(options).lookup(&"tool@1.2.0".parse().unwrap()).map(|_| ())
}

#[test]
fn an_authority_counts_when_it_is_named_and_for_the_name_that_it_signed() {
    let world = World::new();
    world.publish("tool 1.2.0", "");
    let image = std::fs::read(world.folder().join(IMAGE)).unwrap();
    let (port, authority) = secure(move |path, stream| match path.ends_with(IMAGE) {
        true => tell(stream, "200 OK", "", &image),
        false => tell(stream, "404 Not Found", "", b""),
    });
    let source = format!("https://localhost:{port}");
    let wrong = fetch(&world, &source, None).unwrap_err();
    assert!(matches!(wrong, SourceError::Tls { .. }), "{wrong}");
    let wrong = fetch(&world, &format!("https://127.0.0.1:{port}"), Some(&authority)).unwrap_err();
    assert!(matches!(wrong, SourceError::Tls { .. }), "{wrong}");
    assert!(wrong.hint().unwrap().contains("SSL_CERT_FILE"));
    let wrong = fetch(&world, &source, Some("nothing")).unwrap_err();
    assert!(wrong.to_string().starts_with("no safe connection (no certificate in "), "{wrong}");
    fetch(&world, &source, Some(&authority)).unwrap();
}

#[test]
fn nothing_leads_from_https_to_plain_http() {
    let world = World::new();
    let plain = Server::start(|_, _, stream| answer(stream, "200 OK", "", b"never"));
    let url = format!("{}/{IMAGE}", plain.url());
    // Neither a redirect …
    let to = format!("Location: {url}\r\n");
    let (port, authority) = secure(move |path, stream| match path.ends_with(IMAGE) {
        true => tell(stream, "302 Found", &to, b""),
        false => tell(stream, "404 Not Found", "", b""),
    });
    let source = format!("https://localhost:{port}");
    let wrong = fetch(&world, &source, Some(&authority)).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        format!("{source}/{IMAGE} redirects to plain http, which is refused: {url}")
    );
    // … nor a catalog.
    let catalog = format!(
        r#"{{"packages":[{{"name":"tool","versions":[{{"version":"1.2.0","arch":"x64","src":"{url}"}}]}}]}}"#
    );
    let (port, authority) = secure(move |_, stream| tell(stream, "200 OK", "", catalog.as_bytes()));
    let wrong = fetch(&world, &format!("https://localhost:{port}"), Some(&authority)).unwrap_err();
    assert!(matches!(wrong, SourceError::Downgrade { .. }), "{wrong}");
    assert!(plain.paths().is_empty());
}
