//! The log ring of an instance: two files of at most 512 KiB, `<app>.<n>.log` and `.log.1`, with times. What
//! was taken from the app is in the file with one write, so that a killed run parent tears no record.
//!
//! A record is one text line: milliseconds since 1970, the stream (`o`, `e`), the part, a space, the bytes.
//! The part says how much of a line the record is: `=` all of it, `<` its beginning, `-` more, `>` its end.
//! Each file begins with a line that carries the format's number.

use crate::RunError;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most that one of the two files holds, in bytes.
pub const RING_FILE_BYTES: u64 = 512 * 1024;
const HEADER: &str = "ply-log 1\n";
/// The most that one record holds of a line; a longer line takes several.
const RECORD_MAX: usize = 16 * 1024;

/// Which of the app's two outputs a line came from; a terminal's one stream counts as `Out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn byte(self) -> u8 {
        match self {
            Self::Out => b'o',
            Self::Err => b'e',
        }
    }

    /// `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// The writing end. One exists an instance, in its run parent.
pub struct RingWriter {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    /// Whether the last record of each stream left its line open.
    open: [bool; 2],
}

impl RingWriter {
    /// Opens (or makes) the ring whose newer file is `path`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        Self::with_limit(path, RING_FILE_BYTES)
    }

    fn with_limit(path: &Path, limit: u64) -> Result<Self, RunError> {
        let mut file = open_new(path).map_err(RunError::io("the log can't be written", path))?;
        let mut size = file.metadata().map(|m| m.len()).unwrap_or(0);
        // A record that a crash of the whole machine cut short ends here, not in the next one.
        let torn = size > 0 && {
            let mut last = [0];
            let at_end = File::open(path)
                .and_then(|mut f| f.seek(SeekFrom::End(-1)).and_then(|_| f.read_exact(&mut last)));
            at_end.is_ok() && last != *b"\n"
        };
        if torn && file.write_all(b"\n").is_ok() {
            size += 1;
        }
        Ok(Self { path: path.to_owned(), file, size, limit, open: [false; 2] })
    }

    /// Records `bytes` of `stream` at `now`. A failing disk is reported and stops nothing.
    pub fn write(&mut self, stream: Stream, bytes: &[u8], now: SystemTime) -> std::io::Result<()> {
        let ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
        let slot = usize::from(stream == Stream::Err);
        let mut out = Vec::with_capacity(bytes.len() + 64);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let (mut body, ends) = match line.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (line, false),
            };
            loop {
                let (piece, rest) = body.split_at(body.len().min(RECORD_MAX));
                let last = ends && rest.is_empty();
                let part = match (self.open[slot], last) {
                    (false, true) => b'=',
                    (false, false) => b'<',
                    (true, false) => b'-',
                    (true, true) => b'>',
                };
                let before = out.len();
                let _ = write!(out, "{ms} ");
                out.extend_from_slice(&[stream.byte(), part, b' ']);
                out.extend_from_slice(piece);
                out.push(b'\n');
                if self.size + out.len() as u64 > self.limit {
                    let record = out.split_off(before);
                    self.append(&out)?;
                    self.rotate()?;
                    out = record;
                }
                self.open[slot] = !last;
                body = rest;
                if body.is_empty() {
                    break;
                }
            }
        }
        self.append(&out)
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.size += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        if self.size <= HEADER.len() as u64 {
            return Ok(());
        }
        std::fs::rename(&self.path, older(&self.path))?;
        self.file = open_new(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }
}

/// Opens the newer file for appending; a new one gets its header.
fn open_new(path: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() == 0 {
        file.write_all(HEADER.as_bytes())?;
    }
    Ok(file)
}

/// The older file of the ring.
pub(crate) fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When its end was taken from the app.
    pub time: SystemTime,
    /// Where it came from.
    pub stream: Stream,
    /// Its bytes, without the newline.
    pub bytes: Vec<u8>,
    /// Whether the app has not (yet) ended it with a newline.
    pub open: bool,
}

/// The reading end: lines in order, and with [`RingReader::read`] again what has come since.
pub struct RingReader {
    path: PathBuf,
    file: Option<(File, u64)>,
    /// Bytes of a record that is not whole yet.
    rest: Vec<u8>,
    lines: [Option<LogLine>; 2],
}

impl RingReader {
    /// A reader from the oldest line that the ring still holds.
    pub fn open(path: &Path) -> Self {
        let file = [older(path), path.to_owned()].iter().find_map(|p| open_read(p));
        Self { path: path.to_owned(), file, rest: Vec::new(), lines: [None, None] }
    }

    /// Every line that ended since the last call. A line that is still open is kept back: see
    /// [`RingReader::take_open`].
    pub fn read(&mut self, each: &mut dyn FnMut(LogLine)) -> std::io::Result<()> {
        loop {
            let Some((file, inode)) = &mut self.file else {
                self.file = open_read(&self.path);
                if self.file.is_none() {
                    return Ok(());
                }
                continue;
            };
            let inode = *inode;
            // Asked before the last read: what is written between the two belongs to the file that was found.
            let now = std::fs::metadata(&self.path).ok().map(|m| m.ino());
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let n = file.read(&mut buffer)?;
                if n == 0 {
                    break;
                }
                let chunk = std::mem::take(&mut self.rest);
                let mut chunk = [chunk.as_slice(), &buffer[..n]].concat();
                let whole = chunk.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                self.rest = chunk.split_off(whole);
                for record in chunk.split(|b| *b == b'\n').filter(|r| !r.is_empty()) {
                    take_record(&mut self.lines, record, each);
                }
            }
            if now == Some(inode) || now.is_none() {
                return Ok(());
            }
            // The ring turned: what follows is in the older file if that is not the one just read.
            self.rest.clear();
            let next = open_read(&older(&self.path)).filter(|(_, i)| *i != inode);
            self.file = next.or_else(|| open_read(&self.path));
            if self.file.as_ref().is_none_or(|(_, i)| *i == inode) {
                return Ok(());
            }
        }
    }

    /// The lines that the app has begun and not ended, standard output's first.
    pub fn take_open(&mut self) -> impl Iterator<Item = LogLine> {
        std::mem::take(&mut self.lines).into_iter().flatten().filter(|l| !l.bytes.is_empty())
    }
}

fn open_read(path: &Path) -> Option<(File, u64)> {
    let file = File::open(path).ok()?;
    let inode = file.metadata().ok()?.ino();
    Some((file, inode))
}

/// Takes one record; what is no record (the header, a torn end) is passed over.
fn take_record(lines: &mut [Option<LogLine>; 2], record: &[u8], each: &mut dyn FnMut(LogLine)) {
    let Some(space) = record.iter().position(|b| *b == b' ') else { return };
    let ms = std::str::from_utf8(&record[..space]).ok().and_then(|t| t.parse::<u64>().ok());
    let (Some(ms), [stream @ (b'o' | b'e'), part, b' ', body @ ..]) = (ms, &record[space + 1..]) else {
        return;
    };
    let stream = if *stream == b'o' { Stream::Out } else { Stream::Err };
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    let slot = &mut lines[usize::from(stream == Stream::Err)];
    match part {
        b'=' | b'<' => {
            // The parent of an open line died before its end: it is a line all the same.
            if let Some(line) = slot.take() {
                each(line);
            }
            let line = LogLine { time, stream, bytes: body.to_vec(), open: *part == b'<' };
            if line.open { *slot = Some(line) } else { each(line) }
        }
        b'-' | b'>' => {
            // Without its beginning it is the oldest edge of the ring: no part of a line passes for a line.
            let Some(mut line) = slot.take() else { return };
            line.bytes.extend_from_slice(body);
            line.time = time;
            line.open = *part == b'-';
            if line.open { *slot = Some(line) } else { each(line) }
        }
        _ => {}
    }
}

/// A line as it may be shown on a terminal: escape sequences and control characters are left out, a tab stays.
/// The kinds of harm are those of CVE-2023-28101: what an app prints never steers the reader's terminal.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' | '\u{9b}' => {
                let kind = if c == '\u{9b}' { Some('[') } else { chars.next() };
                match kind {
                    // CSI: parameters, then one final character.
                    Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                    // OSC, DCS, SOS, PM, APC: up to BEL or ST.
                    Some(']' | 'P' | 'X' | '^' | '_') => {
                        while let Some(c) = chars.next() {
                            if c == '\u{7}' || c == '\u{9c}' {
                                break;
                            }
                            if c == '\u{1b}' {
                                chars.next_if_eq(&'\\');
                                break;
                            }
                        }
                    }
                    Some(' '..='/') => {
                        chars.next();
                    }
                    _ => {}
                }
            }
            '\t' => out.push('\t'),
            // Also the marks that turn the direction of writing: they make one text look like another.
            c if c.is_control()
                || ('\u{202a}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c) => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn all(path: &Path) -> Vec<LogLine> {
        let mut reader = RingReader::open(path);
        let mut lines = Vec::new();
        reader.read(&mut |l| lines.push(l)).unwrap();
        lines.extend(reader.take_open());
        lines
    }

    fn texts(path: &Path) -> Vec<String> {
        all(path).into_iter().map(|l| String::from_utf8(l.bytes).unwrap()).collect()
    }

    #[test]
    fn lines_come_back_with_time_and_stream_however_they_were_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.1.log");
        let mut ring = RingWriter::open(&path).unwrap();
        ring.write(Stream::Out, b"one\ntw", at(1)).unwrap();
        ring.write(Stream::Err, b"err\n", at(2)).unwrap();
        ring.write(Stream::Out, b"o", at(3)).unwrap();
        ring.write(Stream::Out, b"\n\nlast", at(4)).unwrap();
        let lines = all(&path);
        let got: Vec<_> = lines
            .iter()
            .map(|l| (l.time, l.stream, String::from_utf8_lossy(&l.bytes).into_owned()))
            .collect();
        let expected = [
            (at(1), Stream::Out, "one"),
            (at(2), Stream::Err, "err"),
            (at(4), Stream::Out, "two"),
            (at(4), Stream::Out, ""),
            (at(4), Stream::Out, "last"),
        ];
        assert_eq!(got, expected.map(|(t, s, l)| (t, s, l.to_owned())));
        assert!(lines[4].open);
    }

    #[test]
    fn a_new_parent_does_not_glue_its_line_to_an_open_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.1.log");
        RingWriter::open(&path).unwrap().write(Stream::Out, b"cut sho", at(1)).unwrap();
        RingWriter::open(&path).unwrap().write(Stream::Out, b"next\n", at(2)).unwrap();
        assert_eq!(texts(&path), ["cut sho", "next"]);
    }

    #[test]
    fn a_torn_record_is_passed_over_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.1.log");
        RingWriter::open(&path).unwrap().write(Stream::Out, b"first\n", at(1)).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"17 o").unwrap();
        RingWriter::open(&path).unwrap().write(Stream::Out, b"second\n", at(2)).unwrap();
        assert_eq!(texts(&path), ["first", "second"]);
    }

    #[test]
    fn the_ring_turns_without_tearing_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.1.log");
        let mut ring = RingWriter::with_limit(&path, 1000).unwrap();
        let mut follower = RingReader::open(&path);
        let mut followed = Vec::new();
        for n in 0..500 {
            ring.write(Stream::Out, format!("line {n:04}\n").as_bytes(), at(n)).unwrap();
            if n % 20 == 0 {
                follower.read(&mut |l| followed.push(String::from_utf8(l.bytes).unwrap())).unwrap();
            }
        }
        follower.read(&mut |l| followed.push(String::from_utf8(l.bytes).unwrap())).unwrap();
        assert_eq!(followed, (0..500).map(|n| format!("line {n:04}")).collect::<Vec<_>>());
        for file in [path.clone(), older(&path)] {
            assert!(std::fs::metadata(file).unwrap().len() <= 1000);
        }
        let kept = texts(&path);
        let first: usize = kept[0][5..].parse().unwrap();
        assert_eq!(kept, (first..500).map(|n| format!("line {n:04}")).collect::<Vec<_>>());
        assert!(kept.len() >= 40, "{}", kept.len());
    }

    #[test]
    fn a_line_longer_than_a_record_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.1.log");
        let long = "x".repeat(100_000);
        RingWriter::open(&path)
            .unwrap()
            .write(Stream::Err, format!("{long}\nend\n").as_bytes(), at(1))
            .unwrap();
        assert_eq!(texts(&path), [long, "end".to_owned()]);
    }

    #[test]
    fn what_steers_a_terminal_is_left_out() {
        let cases = [
            ("plain\ttext é", "plain\ttext é"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]52;c;ZXZpbA==\u{1b}\\after", "after"),
            ("a\rb\u{8}c\u{0}d", "abcd"),
            ("\u{1b}(Bx\u{9b}2Jy", "xy"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}Pq", ""),
            ("abc\u{202e}txt", "abctxt"),
        ];
        for (dirty, expected) in cases {
            assert_eq!(clean(dirty.as_bytes()), expected, "{dirty:?}");
        }
        assert_eq!(clean(b"\xff\xfeok"), "\u{fffd}\u{fffd}ok");
    }

    proptest! {
        #[test]
        fn every_byte_comes_back_in_order(
            chunks in proptest::collection::vec((any::<bool>(), proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b' '), any::<u8>()], 0..60)), 0..60),
            reopen in any::<u8>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("p.1.log");
            let mut ring = RingWriter::with_limit(&path, 1 << 20).unwrap();
            let mut sent = [Vec::new(), Vec::new()];
            for (n, (err, bytes)) in chunks.iter().enumerate() {
                let stream = if *err { Stream::Err } else { Stream::Out };
                ring.write(stream, bytes, at(n as u64)).unwrap();
                sent[usize::from(*err)].extend_from_slice(bytes);
                if n == usize::from(reopen) && sent.iter().all(|s| s.last().is_none_or(|b| *b == b'\n')) {
                    ring = RingWriter::with_limit(&path, 1 << 20).unwrap();
                }
            }
            let mut got = [Vec::new(), Vec::new()];
            for line in all(&path) {
                let out = &mut got[usize::from(line.stream == Stream::Err)];
                out.extend_from_slice(&line.bytes);
                if !line.open {
                    out.push(b'\n');
                }
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn a_ring_cut_anywhere_still_gives_whole_lines(cut in 0usize..4000) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("p.1.log");
            let mut ring = RingWriter::open(&path).unwrap();
            for n in 0..100 {
                ring.write(Stream::Out, format!("{n} {}\n", "y".repeat(20)).as_bytes(), at(n)).unwrap();
            }
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..cut.min(bytes.len())]).unwrap();
            for (n, line) in texts(&path).iter().enumerate() {
                prop_assert_eq!(line, &format!("{n} {}", "y".repeat(20)));
            }
        }

        #[test]
        fn clean_leaves_no_control_character(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(clean(&bytes).chars().all(|c| c == '\t' || !c.is_control()));
        }
    }
}
