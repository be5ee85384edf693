//! Each noun: what it takes prints back to itself, no text panics, and orders are total.

use ply_manifest::*;
use proptest::prelude::*;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Whatever parses prints as something that parses to the same value; whatever doesn't says so in a line of
/// bounded length.
fn holds<T>(text: &str) -> Option<T>
where
    T: FromStr<Err = NounError> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(printed.parse::<T>().as_ref(), Ok(&value), "{text:?} printed as {printed:?}");
            Some(value)
        }
        Err(error) => {
            assert!(!error.message.is_empty() && error.message.len() < 500, "{error}");
            assert!(error.hint.is_none_or(|h| !h.is_empty() && h.len() < 500));
            None
        }
    }
}

/// Every noun on one text.
fn all(text: &str) {
    holds::<PackageName>(text);
    holds::<Owner>(text);
    holds::<RunName>(text);
    holds::<Version>(text);
    holds::<Range>(text);
    holds::<ImageName>(text);
    holds::<Arch>(text);
    holds::<Digest>(text);
    holds::<Bytes>(text);
    holds::<Span>(text);
    holds::<Cores>(text);
    holds::<Rate>(text);
    holds::<Capability>(text);
    holds::<Capabilities>(text);
    holds::<Signal>(text);
    holds::<UserSpec>(text);
    holds::<Publish>(text);
    holds::<EgressEntry>(text);
    holds::<SourceSpec>(text);
    holds::<Reference>(text);
    holds::<Target>(text);
    holds::<Condition>(text);
    if let Some(name) = PackageName::fold(text) {
        assert_eq!(name.to_string().parse::<PackageName>(), Ok(name.clone()));
        assert_eq!(
            PackageName::fold(name.as_str()),
            Some(name.clone()),
            "a name folds to itself, but for its end"
        );
        let run = RunName::from_package(&name);
        assert_eq!(run.to_string().parse::<RunName>(), Ok(run));
    }
}

/// Texts that come near to some noun.
fn near() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9._+-]{0,70}",
        "[0-9]{1,3}(\\.[0-9]{1,22}){0,3}([-+][0-9a-z.-]{0,12}){0,2}",
        "[a-z][a-z0-9.+-]{0,8}-[0-9]{1,3}\\.[0-9]\\.[0-9]([+-][a-z0-9.]{1,8})?-linux-(x64|arm64|arm)\\.img",
        "sha256:[0-9a-f]{62,65}",
        "([0-9]{1,20}(ms|s|m|h|d)){1,4}",
        "[0-9]{1,21}(B|K|M|G|T|KiB|iB|MB/s|kB/s|GB/s|B/s)?",
        "[0-9]{0,11}\\.?[0-9]{0,4}",
        "(CAP_|cap_)?(chown|net_raw|sys_admin|bpf)(,(chown|NET_RAW))*",
        "(SIG|sig)?(TERM|quit|RTMIN|RTMIN\\+[0-9]{1,3}|WINCH)",
        "[a-z_][a-z0-9_-]{0,33}:[0-9]{1,6}:[0-9]{1,6}",
        "((public|internal|[0-9.]{7,12}|\\[[0-9a-f:]{2,12}\\]):)?[0-9]{1,6}(:[0-9]{1,6})?(/(tcp|udp|sctp))?",
        "(\\*\\.)?[a-zA-Z0-9_-]{1,12}(\\.[a-z0-9-]{1,12}){0,3}\\.?",
        "[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,3})?",
        "[0-9a-f]{0,4}(:[0-9a-f]{0,4}){1,8}(/[0-9]{1,3})?",
        "(https?|file|ftp)://[a-z0-9./{}@:-]{0,20}",
        "(github|gitlab):[a-z/.]{0,12}(\\{package\\}|\\{owner\\})?",
        "([a-z]{1,5}/)?[a-z0-9-]{1,8}(@[0-9.*+a-z-]{0,8})?",
        "(\\./|\\.\\./|/|~|docker://|git\\+https://)[a-z0-9./:-]{0,12}(\\.img)?",
        "[a-z]{1,4}(\\.[a-z]{1,4})?( ?== ?'[a-z']{0,3}')?",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        all(&text);
    }

    #[test]
    fn what_is_near_a_noun_prints_as_it_parses(text in near()) {
        all(&text);
    }

    #[test]
    fn quantities_print_as_they_parse(n in any::<u64>(), small in 1u32..) {
        prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
        prop_assert_eq!(Rate(n).to_string().parse(), Ok(Rate(n)));
        let span = Span(std::time::Duration::from_millis(n));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        let cores = Cores { millis: small };
        prop_assert_eq!(cores.to_string().parse(), Ok(cores));
    }

    #[test]
    fn a_digest_prints_as_it_parses(bytes in any::<[u8; 32]>()) {
        let digest = Digest::from_bytes(bytes);
        prop_assert_eq!(digest.to_string().parse(), Ok(digest));
    }

    #[test]
    fn versions_are_in_one_total_order(texts in prop::collection::vec(
        "[0-2]\\.[0-2]\\.[01](-(a|b|rc\\.1|1))?(\\+(0?[0-9]|1[0-9]|deb[0-9]{1,2}u[0-9]|a|[0-9]\\.[a-z][0-9]?|01)(\\.[0-9]{1,2})?)?", 3)
    ) {
        let versions: Vec<Version> = texts.iter().filter_map(|t| t.parse().ok()).collect();
        for a in &versions {
            for b in &versions {
                prop_assert_eq!(a.cmp(b), b.cmp(a).reverse());
                prop_assert_eq!(a.cmp(b).is_eq(), a == b);
                for c in &versions {
                    if a <= b && b <= c {
                        prop_assert!(a <= c, "{} {} {}", a, b, c);
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_that_would_do_does(text in any::<String>()) {
        if let Err(error) = text.parse::<PackageName>()
            && let Some(hint) = error.hint
        {
            let name = hint.split('"').nth(1).unwrap_or_default();
            prop_assert!(name.parse::<PackageName>().is_ok(), "{}", hint);
        }
    }
}

#[test]
fn the_edges_of_each_noun() {
    fn takes<T: FromStr<Err = NounError> + Display + PartialEq + Debug>(texts: &[&str]) {
        for text in texts {
            assert!(holds::<T>(text).is_some(), "{text:?} is refused");
        }
    }
    fn refuses<T: FromStr<Err = NounError> + Display + PartialEq + Debug>(texts: &[&str]) {
        for text in texts {
            assert!(holds::<T>(text).is_none(), "{text:?} is taken");
        }
    }
    let long = "a".repeat(64);
    takes::<PackageName>(&["a", "0", "g++", "libc6.1", "a_b", "7zip", &long]);
    refuses::<PackageName>(&["", "A", "-a", "+", ".", "a-1", "a b", "é", "a/b", &format!("{long}a")]);
    assert_eq!(PackageName::fold("My App 2!"), Some("my-app2".parse().unwrap()));
    assert_eq!(PackageName::fold("a--1"), Some("a1".parse().unwrap()));
    assert_eq!(PackageName::fold("Café Ünïon"), Some("cafe-union".parse().unwrap()));
    for nothing in ["", "-", "+++", "日本", "...", " "] {
        assert_eq!(PackageName::fold(nothing), None, "{nothing:?}");
    }
    assert_eq!(RunName::from_package(&"g++".parse().unwrap()).as_str(), "g");
    assert_eq!(RunName::from_package(&"boost1.84".parse().unwrap()).as_str(), "boost1-84");
    takes::<RunName>(&["a", "my-app", "a-1", &"a".repeat(63)]);
    refuses::<RunName>(&["", "-a", "a-", "a.b", "A", "a_b", &long]);
    takes::<Version>(&["0.0.0", "1.2.3+4.deb13u2", "1.0.0-rc.1", "18446744073709551615.0.0"]);
    refuses::<Version>(&[
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "01.0.0",
        "v1.0.0",
        "1.0.0-",
        "1.0.0+",
        "18446744073709551616.0.0",
    ]);
    refuses::<Version>(&[&format!("1.0.0+{}", "a".repeat(200))]);
    refuses::<Range>(&["", "01", "1.", "^1", "1.2.3+", "1.x", " 1", "99999999999999999999"]);
    takes::<ImageName>(&[
        "node-22.6.0-linux-x64.img",
        "a-1.0.0-x64-linux-arm64.img",
        "g++-1.0.0+1-linux-x64.img",
    ]);
    refuses::<ImageName>(&[
        "node-linux-x64.img",
        "node-22.6.0-linux-x64",
        "../a-1.0.0-linux-x64.img",
        "a-1.0.0-darwin-x64.img",
        "-1.0.0-linux-x64.img",
    ]);
    takes::<Bytes>(&["0", "512K", "2GiB", "16777215T", "18446744073709551615"]);
    refuses::<Bytes>(&[
        "",
        "M",
        "-1",
        "+1",
        "1.5G",
        "512m",
        "16777216T",
        "18446744073709551616",
        "1 K",
        "iB",
    ]);
    takes::<Span>(&["0s", "500ms", "1m30s", "2h", "213503982334d"]);
    refuses::<Span>(&["", "30", "s", "-1s", "1s1s", "30s1m", "1.5s", "213503982335d", "1M", "1s "]);
    takes::<Cores>(&["0.001", "1", "1.5", "4294967.295"]);
    refuses::<Cores>(&["0", "0.0", ".5", "1.", "1.2345", "4294968", "-1", "1,5"]);
    takes::<Rate>(&["40MB/s", "0B/s", "1KB/s", "18446744073GB/s"]);
    refuses::<Rate>(&["40", "40MB", "40Mb/s", "18446744074GB/s", "MB/s"]);
    takes::<Signal>(&["quit", "SIGQUIT", "sigquit", "rtmin", "SIGRTMIN+30"]);
    refuses::<Signal>(&["", "SIG", "15", "RTMIN+31", "RTMIN-1", "RTMIN++3", "RTMIN+", "SIGSIGTERM"]);
    takes::<UserSpec>(&["app:0:0", "_a-b:65535:1"]);
    refuses::<UserSpec>(&[
        "app",
        "app:1",
        "app:1:2:3",
        "App:1:1",
        "1a:1:1",
        "a:-1:0",
        "a:+1:0",
        "a:65536:0",
        ":1:1",
        "a:1:",
    ]);
    takes::<Publish>(&[
        "80",
        "8080:80",
        "127.0.0.1:80",
        "[::1]:80:81",
        "public:80",
        "internal:80:81/udp",
        "80/tcp",
    ]);
    refuses::<Publish>(&[
        "", "0", "65536", "1:2:3", "+80", "80/sctp", "::1:80", "[::1]80", "host:80", "80:", ":80",
    ]);
    takes::<EgressEntry>(&[
        "*",
        "a",
        "A.example.",
        "*.b.c",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::1",
        "_srv.a",
    ]);
    refuses::<EgressEntry>(&[
        "",
        ".",
        "*.",
        "**",
        "*.*",
        "a..b",
        "-a",
        "1.2.3",
        "1.2.3.4.",
        "1.2.3.4/33",
        "10.0.0.1/8",
        "a b",
        "http://a",
        "a:80",
        "é.com",
        "10.0.0.0/+8",
    ]);
    takes::<SourceSpec>(&[
        "/srv",
        "file:///srv/{package}",
        "https://x/{owner}/{package}",
        "http://[::1]:80/",
        "github:a/b",
        "gitlab:a/b/c",
    ]);
    refuses::<SourceSpec>(&[
        "",
        "srv",
        "file://srv",
        "https://",
        "https://u@h/",
        "https://{package}/",
        "github:a",
        "github:a/b/c",
        "gitlab:../a",
        "https://x/{x}",
        "/a\nb",
        "https://a b/",
    ]);
    takes::<Target>(&[
        ".",
        "./a",
        "~",
        "a.img",
        "https://x",
        "docker://redis:8",
        "git+https://x/y.git",
        "redis@8",
        "a/b@1.2",
    ]);
    refuses::<Target>(&["", "A", "https://", "docker://", "ftp://x", "a@", "a/b/c", "https://x y"]);
    takes::<Condition>(&["db", "server.ready", "server.ready == 'ok'", "server.ready=='a b'"]);
    refuses::<Condition>(&[
        "",
        "a.b.c",
        "db == 'x'",
        "a.b == x",
        "a.b == \"x\"",
        "a.b != 'x'",
        "a && b",
        "a.b == 'x' || c",
    ]);
}

#[test]
fn the_longest_image_name_fits_a_file_name() {
    let name = ImageName {
        name: "a".repeat(64).parse().unwrap(),
        version: format!("1.0.0+{}", "b".repeat(122)).parse().unwrap(),
        arch: Arch::Arm64,
    };
    assert!(name.to_string().len() <= 255);
}
