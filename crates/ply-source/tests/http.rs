//! Servers that behave and servers that don't: what is fetched is what was meant, or one sentence says why not.

mod support;

use ply_manifest::{Bytes, Digest};
use ply_source::{Entry, FetchOptions, Fetcher, Mode, SourceError};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::server::{Request, Server, answer, claim, rest};
use support::{Notes, World, lines, manifest, noise};

const NAME: &str = "tool-1.2.0-linux-x64.img";

/// A world whose server gives `tool 1.2.0` in the way that `give` says; everything else is answered as it should.
struct Hostile {
    world: World,
    server: Server,
    notes: Notes,
}

type Give = dyn Fn(&[u8], &Request, usize, &mut TcpStream) + Send + Sync;

impl Hostile {
    fn new(give: impl Fn(&[u8], &Request, usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let world = World::new();
        let path = world.publish_for("tool 1.2.0", "", ply_manifest::Arch::X64, &noise(300_000));
        let image = std::fs::read(path).unwrap();
        let give: Box<Give> = Box::new(give);
        let server = Server::start(move |request, before, stream| match request.path.as_str() {
            "/index.json" => answer(stream, "200 OK", "", format!("[\"{NAME}\"]").as_bytes()),
            path if path.ends_with(NAME) => give(&image, request, before, stream),
            _ => answer(stream, "404 Not Found", "", b""),
        });
        Self { world, server, notes: Notes::default() }
    }

    fn options(&self) -> FetchOptions {
        FetchOptions { progress: Arc::new(self.notes.clone()), ..self.world.options(&self.server.url()) }
    }

    fn get(&self) -> Result<Entry, SourceError> {
        self.get_with(|_| {})
    }

    fn get_with(&self, change: impl FnOnce(&mut FetchOptions)) -> Result<Entry, SourceError> {
        let mut options = self.options();
        change(&mut options);
        let result = Fetcher::new(options).lookup(&"tool".parse().unwrap());
        // Whatever happened, nothing half is left, and what is in the store is right.
        assert!(self.world.leftovers().is_empty(), "{:?}", self.world.leftovers());
        let report = self.world.store().verify(1).unwrap();
        assert!(report.wrong.is_empty());
        assert_eq!(report.good, usize::from(result.is_ok()));
        result
    }

    fn whole(&self) -> Entry {
        let entry = self.get().unwrap();
        assert_eq!(std::fs::read(&entry.image).unwrap(), self.bytes());
        entry
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.world.folder().join(NAME)).unwrap()
    }

    fn url(&self) -> String {
        format!("{}/{NAME}", self.server.url())
    }

    fn asked(&self) -> usize {
        self.server.paths().iter().filter(|p| p.ends_with(NAME)).count()
    }

    fn ranges(&self) -> Vec<Option<String>> {
        let requests = self.server.requests().into_iter().filter(|r| r.path.ends_with(NAME));
        requests.map(|r| r.header("range").map(str::to_owned)).collect()
    }
}

#[test]
fn a_file_comes_once_and_is_then_remembered_by_its_place() {
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "", image));
    let entry = h.whole();
    assert_eq!(h.get().unwrap().digest, entry.digest);
    assert_eq!(h.asked(), 1);
    let size = h.bytes().len();
    assert_eq!(h.notes.all(), [format!("start {NAME} Some({size})"), "finish".to_owned()]);
}

#[test]
fn a_transfer_that_breaks_is_resumed_where_it_broke() {
    let etag = "ETag: \"v1\"\r\n";
    let h = Hostile::new(move |image, request, before, stream| match before {
        0 => claim(stream, image.len() as u64, etag, &image[..100_000]),
        _ => rest(stream, request, etag, image),
    });
    h.whole();
    assert_eq!(h.ranges(), [None, Some("bytes=100000-".to_owned())]);
    let second = &h.server.requests().into_iter().filter(|r| r.path.ends_with(NAME)).nth(1).unwrap();
    assert_eq!(second.header("if-range"), Some("\"v1\""));
    assert_eq!(h.notes.all()[1], "retry the connection broke at 100000");
}

#[test]
fn a_server_without_ranges_starts_again() {
    let h = Hostile::new(|image, _, before, stream| match before {
        0 => claim(stream, image.len() as u64, "", &image[..100_000]),
        _ => answer(stream, "200 OK", "", image),
    });
    h.whole();
}

#[test]
fn a_rest_that_does_not_belong_to_the_beginning_is_thrown_away() {
    // Another version of the file, a rest that begins elsewhere, a rest of another length, no range at all.
    let heads: [&str; 4] = [
        "ETag: \"v2\"\r\nContent-Range: bytes 100000-{last}/{len}\r\n",
        "ETag: \"v1\"\r\nContent-Range: bytes 99999-{last}/{len}\r\n",
        "ETag: \"v1\"\r\nContent-Range: bytes 100000-{last}/999\r\n",
        "ETag: \"v1\"\r\n",
    ];
    for head in heads {
        let h = Hostile::new(move |image, _, before, stream| match before {
            0 => claim(stream, image.len() as u64, "ETag: \"v1\"\r\n", &image[..100_000]),
            1 => {
                let head = head.replace("{last}", &(image.len() - 1).to_string());
                answer(
                    stream,
                    "206 Partial Content",
                    &head.replace("{len}", &image.len().to_string()),
                    &noise(image.len() - 100_000),
                );
            }
            _ => answer(stream, "200 OK", "", image),
        });
        h.whole();
        assert_eq!(h.asked(), 3, "{head}");
    }
}

#[test]
fn a_resumed_file_that_turns_out_wrong_is_fetched_whole_once_more() {
    let h = Hostile::new(|image, request, before, stream| match before {
        0 => claim(stream, image.len() as u64, "", &image[..100_000]),
        // The right place and length, from another file: only the digest of a catalog or a lock can tell.
        1 => rest(stream, request, "", &noise(image.len())),
        _ => answer(stream, "200 OK", "", image),
    });
    let digest: Digest = h
        .world
        .store()
        .insert_file(
            &h.world.folder().join(NAME),
            ply_image::Origin { source: None, image: NAME.parse().unwrap() },
        )
        .unwrap()
        .digest;
    h.world.store().remove(&digest).unwrap();
    let entry = h.get_digest(digest).unwrap();
    assert_eq!(std::fs::read(entry.image).unwrap(), h.bytes());
    assert_eq!(h.asked(), 3);
}

impl Hostile {
    fn get_digest(&self, digest: Digest) -> Result<Entry, SourceError> {
        Fetcher::new(self.options()).ensure_digest(&NAME.parse().unwrap(), digest, None)
    }
}

#[test]
fn wrong_bytes_are_deleted_and_reported_with_both_digests() {
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "", image));
    let other: Digest = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
    let wrong = h.get_digest(other).unwrap_err();
    let SourceError::WrongDigest { expected, got, url } = &wrong else { panic!("{wrong}") };
    assert_eq!((*expected, url.as_str()), (other, h.url().as_str()));
    let shown = wrong.to_string();
    assert!(shown.contains(&other.to_string()) && shown.contains(&got.to_string()), "{shown}");
    assert!(h.world.store().list().unwrap().is_empty());
    assert!(h.world.leftovers().is_empty());
    assert_eq!(h.asked(), 1, "wrong bytes are not asked for again");
}

#[test]
fn five_hundred_and_then_two_hundred_is_two_hundred() {
    for status in ["500 Oops", "502 Bad Gateway", "503 Busy", "408 Slow"] {
        let h = Hostile::new(move |image, _, before, stream| match before {
            0 | 1 => answer(stream, status, "", b"sorry"),
            _ => answer(stream, "200 OK", "", image),
        });
        h.whole();
        assert_eq!(h.asked(), 3);
    }
    let h = Hostile::new(|_, _, _, stream| answer(stream, "500 Oops", "", b"sorry"));
    let wrong = h.get().unwrap_err();
    assert_eq!(wrong.to_string(), format!("the server answers 500: {}", h.url()));
    assert_eq!(h.asked(), 4);
}

#[test]
fn too_many_requests_waits_as_long_as_the_server_says_within_reason() {
    let h = Hostile::new(|image, _, before, stream| match before {
        0 => answer(stream, "429 Too Many Requests", "Retry-After: 1\r\n", b""),
        _ => answer(stream, "200 OK", "", image),
    });
    let start = Instant::now();
    h.whole();
    assert!(start.elapsed() >= Duration::from_secs(1));
    let h =
        Hostile::new(|_, _, _, stream| answer(stream, "429 Too Many Requests", "Retry-After: 3600\r\n", b""));
    let start = Instant::now();
    let wrong = h.get().unwrap_err();
    assert_eq!(
        wrong.to_string(),
        format!("the server wants fewer requests (429) and asks to wait 3600 s: {}", h.url())
    );
    // An hour it would be.
    assert!(start.elapsed() < Duration::from_secs(600));
    assert_eq!(h.asked(), 1);
}

#[test]
fn what_is_not_there_is_said_with_url_and_source() {
    let h = Hostile::new(|_, _, _, stream| answer(stream, "404 Not Found", "", b""));
    let wrong = h.get().unwrap_err();
    assert_eq!(wrong.to_string(), format!("{NAME} is not there: {} (source {})", h.url(), h.server.url()));
    assert!(wrong.hint().is_some());
    assert_eq!(h.asked(), 1);
    let h = Hostile::new(|_, _, _, stream| answer(stream, "403 Forbidden", "", b""));
    let wrong = h.get().unwrap_err();
    assert_eq!(wrong.to_string(), format!("the server answers 403: {}", h.url()));
    assert_eq!(wrong.hint().unwrap(), "ply sends no login: the files must be readable without one");
}

#[test]
fn a_silent_server_is_given_up_and_a_slow_one_is_not() {
    // A byte now and then, in all much longer than the limit between two bytes.
    let h = Hostile::new(|image, _, _, stream| {
        claim(stream, image.len() as u64, "", b"");
        for piece in image.chunks(image.len() / 8 + 1) {
            std::thread::sleep(Duration::from_millis(100));
            let _ = stream.write_all(piece);
        }
    });
    h.whole();
    assert_eq!(h.asked(), 1);
    // Nothing more after the first half, and nothing at all.
    for part in [1, 0] {
        let h = Hostile::new(move |image, _, _, stream| {
            if part > 0 {
                claim(stream, image.len() as u64, "", &image[..image.len() / 2]);
            }
            std::thread::sleep(Duration::from_secs(3));
        });
        let wrong = h.get_with(|o| o.network.attempts = 2).unwrap_err();
        assert_eq!(wrong.to_string(), format!("no byte came for 0.8 s: {}", h.url()));
        assert_eq!(h.asked(), 2);
    }
}

#[test]
fn a_claimed_length_is_only_a_claim() {
    // Ten gigabytes are announced: within the limit nothing is made so large, and the file is short; above it, not a byte is taken.
    let ten = 10 << 30;
    let h = Hostile::new(move |image, _, _, stream| claim(stream, ten, "", image));
    let wrong = h.get_with(|o| o.network.largest_image = Bytes(64 << 30)).unwrap_err();
    let size = h.bytes().len();
    assert_eq!(
        wrong.to_string(),
        format!("the transfer broke off after {size} of {ten} bytes, 4 times: {}", h.url())
    );
    let wrong = h.get().unwrap_err();
    assert_eq!(wrong.to_string(), format!("{} is larger than 64M", h.url()));
    // A file that goes on behind its length ends there, and is then no whole image or the wrong one.
    let h = Hostile::new(|image, _, _, stream| claim(stream, image.len() as u64 - 4096, "", image));
    assert!(matches!(h.get().unwrap_err(), SourceError::NoImage { .. }));
    // No length at all, and the end is the end.
    let h = Hostile::new(|image, _, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(image);
    });
    h.whole();
}

#[test]
fn an_endless_body_is_stopped_at_the_limit() {
    let h = Hostile::new(|_, _, _, stream| {
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        let chunk = [b"10000\r\n".as_slice(), &[0; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    });
    let wrong = h.get_with(|o| o.network.largest_image = Bytes(2 << 20)).unwrap_err();
    assert_eq!(wrong.to_string(), format!("{} is larger than 2M", h.url()));
    assert_eq!(h.asked(), 1);
}

#[test]
fn what_is_not_http_is_said_to_be_none() {
    for garbage in [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n".as_slice(),
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/9.9 nonsense\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
    ] {
        let h = Hostile::new(move |_, _, _, stream| {
            let _ = stream.write_all(garbage);
        });
        let wrong = h.get().unwrap_err();
        assert!(matches!(wrong, SourceError::Protocol { .. } | SourceError::BrokenOff { .. }), "{wrong}");
    }
    // A head that never ends.
    let h = Hostile::new(|_, _, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X-More: more of the same and then some\r\n").is_ok() {}
    });
    let wrong = h.get().unwrap_err();
    assert!(matches!(wrong, SourceError::Protocol { .. }), "{wrong}");
    // An encoding that nobody asked for.
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "Content-Encoding: br\r\n", image));
    let wrong = h.get().unwrap_err();
    assert!(wrong.to_string().contains("encoded as \"br\""), "{wrong}");
}

#[test]
fn redirects_are_followed_and_end() {
    let h = Hostile::new(|image, request, _, stream| match request.path.as_str() {
        "/far/away/tool-1.2.0-linux-x64.img" => answer(stream, "200 OK", "", image),
        _ => answer(stream, "302 Found", "Location: far/away/tool-1.2.0-linux-x64.img\r\n", b"elsewhere"),
    });
    h.whole();
    let h = Hostile::new(|_, request, before, stream| {
        let to = format!("Location: /{before}{}\r\n", request.path);
        answer(stream, "307 Temporary Redirect", &to, b"");
    });
    let wrong = h.get().unwrap_err();
    assert!(matches!(wrong, SourceError::Redirects { limit: 10, .. }), "{wrong}");
    for location in ["ftp://example.org/x", "http://user:pw@127.0.0.1/x", "http://", ""] {
        let h = Hostile::new(move |_, _, _, stream| {
            answer(stream, "301 Moved", &format!("Location: {location}\r\n"), b"");
        });
        let wrong = h.get().unwrap_err();
        assert!(matches!(wrong, SourceError::BadRedirect { .. }), "{location}: {wrong}");
    }
    // Each hop is held to what the first is held to: plain http stays near.
    let h = Hostile::new(|_, _, _, stream| {
        answer(stream, "302 Found", "Location: http://93.184.215.14/tool-1.2.0-linux-x64.img\r\n", b"");
    });
    let wrong = h.get().unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "plain http is only for this machine and private networks: http://93.184.215.14/tool-1.2.0-linux-x64.img"
    );
}

#[test]
fn plain_http_to_a_public_host_needs_the_flag() {
    let world = World::new();
    let reference = "tool@1.2.0".parse().unwrap();
    let get = |options: FetchOptions| Fetcher::new(options).lookup(&reference).unwrap_err();
    let wrong = get(world.options("http://203.0.113.1/{package}"));
    assert!(matches!(wrong, SourceError::PlainHttp { .. }), "{wrong}");
    assert_eq!(wrong.hint().unwrap(), "use https, or allow it with --insecure-source");
    // A name is judged by the addresses that it stands for.
    let hosts = world.temp.path().join("hosts");
    std::fs::write(&hosts, "203.0.113.1 far.example\n127.0.0.1 near.example\n203.0.113.1 near.example\n")
        .unwrap();
    let with_hosts = |source: &str, insecure: bool| {
        let mut options = world.options(source);
        options.network.hosts_file = hosts.clone();
        options.network.connect = Duration::from_millis(200);
        options.insecure = insecure;
        options
    };
    let wrong = get(with_hosts("http://far.example/{package}", false));
    assert!(matches!(wrong, SourceError::PlainHttp { .. }), "{wrong}");
    let wrong = get(with_hosts("http://near.example:1/{package}", false));
    assert!(matches!(wrong, SourceError::Connection { .. }), "{wrong}");
    let wrong = get(with_hosts("http://far.example:1/{package}", true));
    assert!(!matches!(wrong, SourceError::PlainHttp { .. }), "{wrong}");
}

#[test]
fn a_listing_that_lies_does_no_harm() {
    let world = World::new();
    world.publish("tool 1.2.0", "");
    let image = std::fs::read(world.folder().join(NAME)).unwrap();
    let huge = format!("[\"{}\"]", "x".repeat(2 << 20));
    let table: Vec<(String, &str)> = vec![
        ("<html>not here</html>".into(), "is not an array of file names"),
        ("{\"tool\": 1}".into(), "is not an array of file names"),
        ("[\"tool-1.2.0-linux-x64.img\"".into(), "is not an array of file names"),
        (huge, "is larger than 1M"),
        // A version that is not there, a file that is another, names that would lead elsewhere.
        ("[\"tool-9.9.9-linux-x64.img\"]".into(), "is not there"),
        ("[\"tool-1.3.0-linux-x64.img\"]".into(), "is named tool 1.3.0 and says inside to be tool 1.2.0"),
        (
            "[\"../tool-1.2.0-linux-x64.img\", \"/tool-1.2.0-linux-x64.img\", 7, null, \"tool\"]".into(),
            "no package tool",
        ),
        ("[]".into(), "no package tool"),
    ];
    for (index, expected) in table {
        let (text, image) = (index.clone(), image.clone());
        let server = Server::start(move |request, _, stream| match request.path.as_str() {
            "/index.json" => answer(stream, "200 OK", "", text.as_bytes()),
            "/tool-1.2.0-linux-x64.img" | "/tool-1.3.0-linux-x64.img" => answer(stream, "200 OK", "", &image),
            _ => answer(stream, "404 Not Found", "", b""),
        });
        let wrong = world.fetcher(&server.url()).lookup(&"tool".parse().unwrap()).unwrap_err();
        assert!(wrong.to_string().contains(expected), "{:.60}: {wrong}", index);
        assert!(world.store().list().unwrap().is_empty());
    }
}

#[test]
fn a_catalog_says_where_and_what() {
    let world = World::new();
    world.publish("tool 1.2.0", "");
    let image = std::fs::read(world.folder().join(NAME)).unwrap();
    let digest = world
        .store()
        .insert_file(
            &world.folder().join(NAME),
            ply_image::Origin { source: None, image: NAME.parse().unwrap() },
        )
        .unwrap()
        .digest;
    world.store().remove(&digest).unwrap();
    let run = |catalog: &str| {
        let (catalog, image) = (catalog.to_owned(), image.clone());
        let server = Server::start(move |request, _, stream| match request.path.as_str() {
            "/state.json" => answer(stream, "200 OK", "", catalog.as_bytes()),
            "/elsewhere" => answer(stream, "200 OK", "", &image),
            _ => answer(stream, "404 Not Found", "", b""),
        });
        let catalog = server.url();
        let result = world.fetcher(&catalog).lookup(&"tool".parse().unwrap());
        let found = result.map(|entry| {
            world.store().remove(&entry.digest).unwrap();
            entry.digest
        });
        (found, server.url())
    };
    let entry = |sha: &str, src: &str| {
        format!(
            r#"{{"packages":[{{"name":"tool","versions":[{{"version":"1.2.0","arch":"x64","sha256":"{sha}","src":"{src}"}}]}}]}}"#
        )
    };
    // `src` wins; it is a full URL, so the server has to know itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let src = format!("http://127.0.0.1:{port}/elsewhere");
    let far = Server::start({
        let image = image.clone();
        move |_, _, stream| answer(stream, "200 OK", "", &image)
    });
    let far_src = format!("{}/elsewhere", far.url());
    assert_eq!(run(&entry(&digest.hex(), &far_src)).0.unwrap(), digest);
    assert_eq!(far.paths(), ["/elsewhere"]);
    let wrong = run(&entry(&"0".repeat(64), &far_src)).0.unwrap_err();
    assert!(matches!(wrong, SourceError::WrongDigest { .. }), "{wrong}");
    let wrong = run(&entry(&digest.hex(), &src)).0.unwrap_err();
    assert!(matches!(wrong, SourceError::Connection { .. }), "{wrong}");
    let wrong = run(&entry(&digest.hex(), "file:///etc/passwd")).0.unwrap_err();
    assert!(matches!(wrong, SourceError::BadUrl { .. }), "{wrong}");
    // Without catalog and index a range has nothing to go by.
    let (wrong, url) = run("{\"packages\": []}");
    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.to_string(), format!("no index.json that lists the versions of tool: {url}/index.json"));
}

#[test]
fn a_url_names_its_image_or_the_image_names_itself() {
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "", image));
    let fetcher = Fetcher::new(h.options());
    let entry = fetcher.url(&h.url()).unwrap();
    assert_eq!(fetcher.url(&h.url()).unwrap().digest, entry.digest);
    assert_eq!(h.asked(), 1);
    let image = h.bytes();
    let server = Server::start(move |_, _, stream| answer(stream, "200 OK", "", &image));
    let latest = format!("{}/latest?token=1", server.url());
    let same = fetcher.url(&latest).unwrap();
    assert_eq!((same.digest, same.name.to_string()), (entry.digest, NAME.to_owned()));
    fetcher.url(&latest).unwrap();
    assert_eq!(server.paths().len(), 2, "what may change is fetched each time");
    assert!(h.world.leftovers().is_empty(), "{:?}", h.world.leftovers());
    for wrong in ["ftp://x/y.img", "https://user:pw@x/y.img", "nonsense", "http://"] {
        assert!(matches!(fetcher.url(wrong).unwrap_err(), SourceError::BadUrl { .. }), "{wrong}");
    }
}

#[test]
fn several_files_come_at_once_and_no_more_than_allowed() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let world = World::new();
    let mut dependencies = String::from("[build.dependencies]\n");
    for i in 0..8 {
        world.publish(&format!("p{i} 1.0.0"), "");
        dependencies += &format!("p{i} = \"1.0.0\"\n");
    }
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let folder = world.folder();
    let (at_once, peak) = (now.clone(), most.clone());
    let server = Server::start(move |request, _, stream| {
        let Ok(image) = std::fs::read(folder.join(request.path.trim_start_matches('/'))) else {
            return answer(stream, "404 Not Found", "", b"");
        };
        peak.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        at_once.fetch_sub(1, Ordering::SeqCst);
        answer(stream, "200 OK", "", &image);
    });
    let mut options = world.options(&server.url());
    options.network.parallel = 3;
    let found =
        Fetcher::new(options).resolve(&manifest("app 1.0.0", &dependencies), None, Mode::Keep).unwrap();
    assert_eq!(lines(&found.lock).len(), 8);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[test]
fn whoever_has_the_digest_serves() {
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "", image));
    let app = manifest("app 1.0.0", "[build.dependencies]\ntool = \"1\"");
    let mut lock = Fetcher::new(h.options()).resolve(&app, None, Mode::Keep).unwrap().lock;
    let digest = *lock.packages[0].digest.values().next().unwrap();
    // The lock's own source has gone; `--source` and the default are asked too, in this order.
    let empty = Server::start(|_, _, stream| answer(stream, "404 Not Found", "", b""));
    lock.packages[0].source = format!("{}/gone", empty.url()).parse().unwrap();
    for (source, default, works) in [
        (Some(h.server.url()), empty.url(), true),
        (None, h.server.url(), true),
        (Some(empty.url()), empty.url(), false),
    ] {
        h.world.store().remove(&digest).ok();
        let mut options = h.world.options(&default);
        options.source = source.map(|s| s.parse().unwrap());
        match Fetcher::new(options).ensure_lock(&lock) {
            Ok(entries) => assert!(works && entries[0].digest == digest),
            Err(wrong) => {
                assert!(!works && matches!(wrong, SourceError::Missing { .. }), "{wrong}");
                assert!(wrong.to_string().contains("/gone/"), "{wrong}");
            }
        }
    }
}

#[test]
fn a_proxy_is_gone_through_and_a_loop_back_is_not() {
    let h = Hostile::new(|image, _, _, stream| answer(stream, "200 OK", "", image));
    let proxy = Server::start(|_, _, stream| answer(stream, "403 Forbidden", "", b""));
    // This machine is always reached directly.
    h.get_with(|o| o.network.http_proxy = Some(proxy.url())).unwrap();
    assert!(proxy.paths().is_empty());
    let world = World::new();
    let mut options = world.options("https://reg.example/{package}");
    options.network.https_proxy = Some(proxy.url());
    let wrong = Fetcher::new(options.clone()).lookup(&"tool@1.0.0".parse().unwrap()).unwrap_err();
    assert_eq!(proxy.paths(), ["reg.example:443"], "{wrong}");
    assert!(wrong.to_string().starts_with("no connection (the proxy refuses"), "{wrong}");
    options.network.https_proxy = Some("socks5://127.0.0.1:9".to_owned());
    let wrong = Fetcher::new(options).lookup(&"tool@1.0.0".parse().unwrap()).unwrap_err();
    assert!(wrong.to_string().starts_with("HTTPS_PROXY: \"socks5://127.0.0.1:9\" is not a proxy"), "{wrong}");
}

#[test]
fn the_static_server_of_python_is_a_registry() {
    let world = World::new();
    world.publish("debian 13.0.0", "[build]\nbase = true");
    world.publish("node 22.6.0+3.deb13u2", "");
    world.publish("node 22.6.0+3.deb13u10", "");
    let names: Vec<String> = std::fs::read_dir(world.folder())
        .unwrap()
        .map(|e| format!("{:?}", e.unwrap().file_name().into_string().unwrap()))
        .collect();
    std::fs::write(world.folder().join("index.json"), format!("[{}]", names.join(","))).unwrap();
    let mut python = std::process::Command::new("python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(world.folder())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(python.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    let port: u16 = line.split("port ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let app = manifest(
        "app 1.0.0",
        "[build]\nbase = \"debian@13\"\n[build.dependencies]\nnode = \"22\"\n[run]\nentrypoint = [\"node\"]",
    );
    let fetcher = world.fetcher(&format!("http://localhost:{port}"));
    let found = fetcher.resolve(&app, None, Mode::Keep);
    let newest = fetcher.lookup(&"node".parse().unwrap());
    python.kill().unwrap();
    python.wait().unwrap();
    assert_eq!(lines(&found.unwrap().lock), ["node 22.6.0+3.deb13u2", "debian 13.0.0"]);
    assert_eq!(newest.unwrap().name.version.to_string(), "22.6.0+3.deb13u10");
}
