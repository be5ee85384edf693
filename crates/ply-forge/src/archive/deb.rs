//! A `.deb` (deb(5)): its control file and its data, without ever looking at a maintainer script.

use super::{Compression, Limits, ar, decompressor, tarball};
use crate::error::{ForgeError, Result};
use crate::files::{Files, Spool};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// One package's file.
#[derive(Debug)]
pub(crate) struct Deb {
    path: PathBuf,
    /// What messages call it.
    name: String,
}

impl Deb {
    /// The `.deb` at `path`, called `name` in messages. Nothing is read yet.
    pub(crate) fn new(path: &Path, name: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), name: name.into() }
    }

    fn refused(&self, why: String) -> ForgeError {
        ForgeError::Archive { archive: self.name.clone(), why }
    }

    /// Unpacks the data into `files`. Entries for which `wanted` says no (names without a leading slash) are
    /// left out. Returns the date of the package, in seconds since 1970: the container's own, which dpkg-deb takes
    /// from the changelog.
    pub(crate) fn unpack(
        &self,
        files: &mut Files,
        spool: &Spool,
        wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64> {
        let file = File::open(&self.path).map_err(ForgeError::file("cannot read", &self.path))?;
        self.unpack_from(BufReader::new(file), files, spool, wanted).map_err(|why| self.refused(why))
    }

    fn unpack_from(
        &self,
        mut from: impl Read + Send,
        files: &mut Files,
        spool: &Spool,
        wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64, String> {
        ar::open(&mut from)?;
        let mut date = None;
        while let Some(member) = ar::next(&mut from)? {
            let mut body = (&mut from).take(member.size);
            if date.is_none() {
                if member.name != "debian-binary" {
                    return Err(format!("its first member is {:?}, not \"debian-binary\"", member.name));
                }
                let mut format = String::new();
                let read = (&mut body).take(16).read_to_string(&mut format);
                if read.is_err() || !format.starts_with("2.") {
                    return Err("it has a format other than 2".to_owned());
                }
                date = Some(member.mtime);
            } else if let Some(ending) = member.name.strip_prefix("data.tar") {
                let compression =
                    if ending.is_empty() { Some(Compression::Plain) } else { Compression::of(ending) };
                let compression =
                    compression.ok_or_else(|| format!("its data is compressed as {ending:?}"))?;
                let stream = decompressor(compression, &mut body).map_err(|e| e.to_string())?;
                let place = |name: &[u8]| wanted(name).then(|| name.to_vec());
                tarball::unpack(stream, Limits::default(), spool, files, &place)?;
                return date.ok_or_else(|| "it has no date".to_owned());
            } else if !member.name.starts_with("control.tar") && !member.name.starts_with('_') {
                // deb(5): members whose name begins with _ may be ignored, others not.
                return Err(format!("it has an unknown member {:?}", member.name));
            }
            let left = body.limit();
            let skipped = std::io::copy(&mut body, &mut std::io::sink()).map_err(|e| e.to_string())?;
            if skipped < left {
                return Err(format!("its member {:?} ends early", member.name));
            }
            if member.size % 2 == 1 && from.read(&mut [0]).map_err(|e| e.to_string())? == 0 {
                break;
            }
        }
        Err("it has no data".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn header(name: &str, size: usize) -> Vec<u8> {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 1_700_000_000, 0, 0, 100_644).into_bytes()
    }

    fn deb(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = b"!<arch>\n".to_vec();
        for (name, body) in members {
            out.extend(header(name, body.len()));
            out.extend_from_slice(body);
            if body.len() % 2 == 1 {
                out.push(b'\n');
            }
        }
        out
    }

    struct Made<'a> {
        name: &'a str,
        kind: tar::EntryType,
        body: &'a [u8],
        link: &'a str,
    }

    fn entry<'a>(name: &'a str, body: &'a [u8]) -> Made<'a> {
        Made { name, kind: tar::EntryType::Regular, body, link: "" }
    }

    fn special<'a>(name: &'a str, kind: tar::EntryType, link: &'a str) -> Made<'a> {
        Made { name, kind, body: b"", link }
    }

    /// A tar whose names are written raw, as a hostile one would.
    fn tarball(entries: &[Made<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for made in entries {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..made.name.len()].copy_from_slice(made.name.as_bytes());
            header.as_old_mut().linkname[..made.link.len()].copy_from_slice(made.link.as_bytes());
            header.set_entry_type(made.kind);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(made.body.len() as u64);
            header.set_cksum();
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(made.body);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.resize(out.len() + 1024, 0);
        out
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(bytes: &[u8]) -> Result<(Files, u64), String> {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path()).unwrap();
        let path = dir.path().join("x.deb");
        std::fs::write(&path, bytes).unwrap();
        let mut files = Files::default();
        let date =
            Deb::new(&path, "x.deb").unpack(&mut files, &spool, &|_| true).map_err(|e| e.to_string())?;
        let mut whole = Files::default();
        for (path, entry) in files.iter() {
            let entry = match entry {
                Entry::File(meta, data) => Entry::File(*meta, data.read().unwrap().into()),
                other => other.clone(),
            };
            whole.put(path, entry).unwrap();
        }
        Ok((whole, date))
    }

    use crate::files::Entry;

    #[test]
    fn an_honest_deb_is_unpacked_with_its_date_and_hard_links() {
        let big = vec![7; 100_000];
        let data = tarball(&[
            special("./", tar::EntryType::Directory, ""),
            entry("./usr/bin/a", &big),
            special("./usr/bin/b", tar::EntryType::Link, "./usr/bin/a"),
            special("./usr/bin/c", tar::EntryType::Symlink, "../../../../etc/passwd"),
        ]);
        let members = [("debian-binary", &b"2.0\n"[..]), ("control.tar.xz", b"odd"), ("_gpgorigin", b"x")];
        for (name, body) in [("data.tar.gz", gzip(&data)), ("data.tar", data.clone())] {
            let mut all = members.to_vec();
            all.push((name, &body));
            let (files, date) = unpack(&deb(&all)).unwrap();
            assert_eq!(date, 1_700_000_000);
            for path in ["usr/bin/a", "usr/bin/b"] {
                let Some(Entry::File(_, data)) = files.get(path.as_bytes()) else { panic!("{path}") };
                assert_eq!(data.read().unwrap(), big);
            }
            assert!(files.follow(b"usr/bin/c").is_none(), "the link stays inside the tree");
        }
    }

    #[test]
    fn hostile_data_is_refused_with_the_entry_named() {
        let table: &[(&str, Vec<u8>)] = &[
            ("climbs out with ..", tarball(&[entry("./a/../../etc/passwd", b"x")])),
            ("is absolute", tarball(&[entry("/etc/passwd", b"x")])),
            ("a device", tarball(&[special("./dev/sda", tar::EntryType::Block, "")])),
            ("a device", tarball(&[special("./run/f", tar::EntryType::Fifo, "")])),
            ("leads to no file", tarball(&[special("./x", tar::EntryType::Link, "etc/shadow")])),
            ("climbs out", tarball(&[special("./x", tar::EntryType::Link, "../etc/shadow")])),
            ("leads nowhere", tarball(&[special("./x", tar::EntryType::Symlink, "")])),
            ("where a folder stands", tarball(&[entry("./d/x", b""), entry("./d", b"")])),
            (
                "circle of links",
                tarball(&[
                    special("./a", tar::EntryType::Symlink, "b"),
                    special("./b", tar::EntryType::Symlink, "a"),
                    entry("./a/x", b"y"),
                ]),
            ),
        ];
        for (words, data) in table {
            let refused =
                unpack(&deb(&[("debian-binary", b"2.0\n"), ("data.tar.gz", &gzip(data))])).unwrap_err();
            assert!(
                refused.starts_with("x.deb is refused: ") && refused.contains(words),
                "{refused} for {words}"
            );
        }
    }

    #[test]
    fn long_names_are_read_and_endless_ones_are_not() {
        let long = format!("./{}/file", "d".repeat(120));
        let extension = |kind, body: &[u8]| -> Vec<u8> {
            let made = Made { name: "x", kind, body, link: "" };
            let mut made = tarball(&[made]);
            made.truncate(made.len() - 1024);
            made
        };
        let pax_line = |key: &str, value: &str| {
            let rest = format!(" {key}={value}\n");
            let len = (rest.len() + 2..).find(|n| n.to_string().len() + rest.len() == *n).unwrap();
            format!("{len}{rest}").into_bytes()
        };
        let after = tarball(&[entry("short", b"x")]);
        let unpack_data = |data: &[u8]| unpack(&deb(&[("debian-binary", b"2.0\n"), ("data.tar", data)]));
        for extension in [
            extension(tar::EntryType::GNULongName, format!("{long}\0").as_bytes()),
            extension(tar::EntryType::XHeader, &pax_line("path", &long)),
        ] {
            let (files, _) = unpack_data(&[extension, after.clone()].concat()).unwrap();
            assert!(files.get(&long.as_bytes()[2..]).is_some());
        }
        let table = [
            ("endless", extension(tar::EntryType::GNULongName, &vec![b'a'; 70 << 10])),
            ("endless", extension(tar::EntryType::XHeader, &vec![b'a'; 2 << 20])),
            ("size twice", extension(tar::EntryType::XHeader, &pax_line("size", "9999999999999"))),
            ("climbs out", extension(tar::EntryType::XHeader, &pax_line("path", "../../x"))),
        ];
        for (words, extension) in table {
            let refused = unpack_data(&[extension, after.clone()].concat()).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn odd_containers_are_refused() {
        let data = gzip(&tarball(&[entry("./a", b"x")]));
        let good = deb(&[("debian-binary", b"2.0\n"), ("data.tar.gz", &data)]);
        let table: &[(&str, Vec<u8>)] = &[
            ("too short", b"!<ar".to_vec()),
            ("does not begin as", b"PK\x03\x04----".to_vec()),
            ("first member is \"data.tar.gz\"", deb(&[("data.tar.gz", &data)])),
            ("format other than 2", deb(&[("debian-binary", b"3.0\n"), ("data.tar.gz", &data)])),
            ("unknown member", deb(&[("debian-binary", b"2.0\n"), ("evil", b"x"), ("data.tar.gz", &data)])),
            ("compressed as", deb(&[("debian-binary", b"2.0\n"), ("data.tar.lzma", &data)])),
            ("has no data", deb(&[("debian-binary", b"2.0\n"), ("control.tar.gz", &data)])),
            ("within a member's header", good[..100].to_vec()),
            ("where a number belongs", {
                let mut bad = good.clone();
                bad[8 + 48..8 + 58].copy_from_slice(b"-1        ");
                bad
            }),
        ];
        for (words, bytes) in table {
            let refused = unpack(bytes).unwrap_err();
            assert!(refused.contains(words), "{refused} for {words}");
        }
        assert!(unpack(&good[..good.len() - 20]).is_err(), "a cut file");
    }

    #[test]
    fn a_bomb_stops_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path()).unwrap();
        let body = vec![0; 1 << 20];
        let bomb = tarball(&[entry("a", &body), entry("b", &body)]);
        let try_with =
            |limits| tarball::unpack(&bomb[..], limits, &spool, &mut Files::default(), &|n| Some(n.to_vec()));
        use super::super::tarball;
        assert!(try_with(Limits { entries: 2, bytes: 2 << 20 }).is_ok());
        assert!(try_with(Limits { entries: 2, bytes: 1 << 20 }).unwrap_err().contains("bytes"));
        assert!(try_with(Limits { entries: 1, bytes: 2 << 20 }).unwrap_err().contains("entries"));
        let mut lying = bomb.clone();
        lying.truncate(2000);
        let cut = tarball::unpack(&lying[..], Limits::default(), &spool, &mut Files::default(), &|n| {
            Some(n.to_vec())
        });
        assert!(cut.is_err(), "a size that the stream does not hold");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let _ = unpack(&bytes);
            let _ = unpack(&deb(&[("debian-binary", b"2.0\n"), ("data.tar", &bytes)]));
        }
    }
}
