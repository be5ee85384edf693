//! Streams between the app and the caller: what the app writes goes to the log ring and to the caller's own
//! output, what the caller types goes in. Everything waits for the slower side; nothing is dropped.
//!
//! The app never gets a descriptor of the caller's: a terminal could be made to type (CVE-2017-5226), a folder
//! would be a way out (CVE-2024-21626). It gets pipes, or a terminal of its own. However much it writes, no more than one
//! buffer of it is in memory (CVE-2022-31030).

use crate::ring::{RingWriter, Stream};
use rustix::fs::{Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::SystemTime;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

/// How much is moved at once.
const CHUNK: usize = 16 * 1024;
/// The longest line that is held back for its prefix.
const LINE_MAX: usize = 64 * 1024;

/// A pipe for one of the app's streams: the end for ply, which doesn't block, and the end for the app. Anyone
/// inside may open it again as `/dev/stdout`, whatever user the app runs as.
pub(crate) fn app_pipe(app_writes: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::fs::fchmod(&read, Mode::from_raw_mode(0o666))?;
    let (ours, theirs) = if app_writes { (read, write) } else { (write, read) };
    set_nonblocking(&ours)?;
    Ok((ours, theirs))
}

/// The null device.
pub(crate) fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

fn register(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, (OwnedFd, io::Error)> {
    // SAFETY: the descriptor is owned by what is made here and stays open as long as that.
    unsafe { AsyncFd::register_with_interest(fd, interest) }
        .map_err(tokio::io::unix::AsyncFdRegisterError::into_parts)
}

/// A descriptor whose readiness to be read is waited for.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(fd, Interest::READABLE).map_err(|(_, e)| e)
}

/// The first line of what somebody else writes, or all of it where there is none.
pub(crate) async fn read_line(from: OwnedFd) -> io::Result<Vec<u8>> {
    let from = Waitable::new(from, Interest::READABLE)?;
    let (mut line, mut buffer) = (Vec::new(), [0_u8; 4096]);
    loop {
        let n = from.read(&mut buffer).await?;
        line.extend_from_slice(&buffer[..n]);
        if n == 0 || buffer[..n].contains(&b'\n') {
            return Ok(line);
        }
    }
}

/// A descriptor that is waited for where the kernel can tell, and taken as ready where it can't (files).
pub(crate) enum Waitable {
    /// With whether a read or write of it may block: then each is asked for first.
    Polled(AsyncFd<OwnedFd>, bool),
    Always(OwnedFd),
}

impl Waitable {
    pub(crate) fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let blocks = !rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::NONBLOCK);
        match register(fd, interest) {
            Ok(polled) => Ok(Self::Polled(polled, blocks)),
            Err((fd, e)) if e.raw_os_error() == Some(libc::EPERM) => Ok(Self::Always(fd)),
            Err((_, e)) => Err(e),
        }
    }

    /// Does `work` until it doesn't say that it would block.
    async fn ready<T>(
        &self,
        interest: Interest,
        mut work: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Always(fd) => work(fd.as_fd()),
            Self::Polled(polled, blocks) => {
                let careful = |fd: &OwnedFd| -> io::Result<T> {
                    if *blocks && !ready_now(fd.as_fd(), interest)? {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    work(fd.as_fd())
                };
                polled.async_io(interest, careful).await
            }
        }
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.ready(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut *buffer)?)).await
    }
}

/// Whether a descriptor of the caller's, which can't be made not to block, takes or gives something right now.
fn ready_now(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let wanted = if interest.is_readable() { PollFlags::IN } else { PollFlags::OUT };
    let mut polled = [PollFd::from_borrowed_fd(fd, wanted)];
    Ok(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// One of the caller's own outputs, shared by every stream that goes there. Writes are whole: two streams never
/// mix within one.
pub(crate) struct Sink {
    out: Mutex<Waitable>,
    /// The most that may be written at once without blocking, once it is ready.
    step: usize,
    socket: bool,
}

impl Sink {
    /// The caller's descriptor `fd`, opened once more where that is possible: the flag not to block would else
    /// be seen by everyone who shares it.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        use rustix::fs::FileType;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let again = || {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
        };
        let (own, step) = match kind {
            FileType::Fifo | FileType::CharacterDevice => match again() {
                Ok(own) => (own, CHUNK),
                // Somebody else's terminal (after su). A ready pipe takes 4096 bytes, a terminal at least some.
                Err(_) => (rustix::io::fcntl_dupfd_cloexec(fd, 3)?, 256),
            },
            _ => (rustix::io::fcntl_dupfd_cloexec(fd, 3)?, CHUNK),
        };
        let out = Mutex::new(Waitable::new(own, Interest::WRITABLE)?);
        Ok(Self { out, step, socket: kind == FileType::Socket })
    }

    /// Writes all of it, waiting for whoever reads.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let out = self.out.lock().await;
        while !bytes.is_empty() {
            let part = &bytes[..bytes.len().min(self.step)];
            let socket = self.socket;
            let written = out.ready(Interest::WRITABLE, |fd| {
                if socket {
                    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                    return Ok(rustix::net::send(fd, part, flags)?);
                }
                Ok(rustix::io::write(fd, part)?)
            });
            match written.await {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What stands in front of each line of an instance as soon as several share the output.
#[derive(Clone)]
pub(crate) struct Prefix {
    pub(crate) text: String,
    pub(crate) several: Rc<Cell<bool>>,
}

/// Where a stream of an instance goes.
pub(crate) struct Outlet {
    /// The ring of the instance.
    pub(crate) ring: Option<Rc<RefCell<RingWriter>>>,
    /// The caller's output; none in the background.
    pub(crate) sink: Option<Rc<Sink>>,
    /// What stands in front of each line.
    pub(crate) prefix: Option<Prefix>,
    /// A failing log is said once.
    pub(crate) log_failed: Rc<dyn Fn(io::Error)>,
}

/// Moves what the app writes, until it ends or the caller's reader is gone: then the app's writes fail, as in a pipe.
pub(crate) async fn pump_out(from: OwnedFd, stream: Stream, outlet: Outlet) -> io::Result<()> {
    let from = Waitable::new(from, Interest::READABLE)?;
    let mut line: Vec<u8> = Vec::new();
    loop {
        let (n, chunk) = match from.ready(Interest::READABLE, |fd| take(fd, &outlet, stream)).await {
            Ok(taken) => taken,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A terminal whose last user has gone.
            Err(e) if e.raw_os_error() == Some(libc::EIO) => (0, Vec::new()),
            Err(e) => return Err(e),
        };
        let end = n == 0;
        let Some(sink) = &outlet.sink else {
            if end {
                return Ok(());
            }
            continue;
        };
        match outlet.prefix.as_ref().filter(|p| p.several.get()) {
            None => sink.write_all(&chunk).await?,
            Some(prefix) => {
                line.extend_from_slice(&chunk);
                drop(chunk);
                let whole = match line.iter().rposition(|b| *b == b'\n') {
                    _ if end || line.len() > LINE_MAX => line.len(),
                    Some(at) => at + 1,
                    None => 0,
                };
                let rest = line.split_off(whole);
                sink.write_all(&prefixed(&line, &prefix.text)).await?;
                line = rest;
            }
        }
        if end {
            return Ok(());
        }
    }
}

/// Reads once, and puts what came into the ring before anything else. The buffer is on the stack: a stream that
/// says nothing holds none.
fn take(fd: BorrowedFd<'_>, outlet: &Outlet, stream: Stream) -> io::Result<(usize, Vec<u8>)> {
    let mut buffer = [0_u8; CHUNK];
    let n = rustix::io::read(fd, &mut buffer)?;
    if let Some(ring) = &outlet.ring
        && let Err(e) = ring.borrow_mut().write(stream, &buffer[..n], SystemTime::now())
    {
        (outlet.log_failed)(e);
    }
    Ok((n, if outlet.sink.is_some() { buffer[..n].to_vec() } else { Vec::new() }))
}

/// Whole lines, each behind its prefix.
fn prefixed(lines: &[u8], prefix: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 64);
    for line in lines.split_inclusive(|b| *b == b'\n') {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    out
}

/// Moves what the caller gives into the app, until either end closes. `each` sees every chunk first and may end
/// it all by `false`.
pub(crate) async fn pump_in(
    from: OwnedFd,
    to: OwnedFd,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let from = Waitable::new(from, Interest::READABLE)?;
    let to = Waitable::new(to, Interest::WRITABLE)?;
    loop {
        let mut buffer = vec![0; 4096];
        let n = match from.read(&mut buffer).await {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        buffer.truncate(n);
        if !each(&buffer) {
            return Ok(());
        }
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            match to.ready(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, rest)?)).await {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::Duration;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work)
    }

    fn outlet(sink: Option<Rc<Sink>>, prefix: Option<&str>) -> Outlet {
        let log_failed = Rc::new(|e: io::Error| panic!("{e}"));
        let several = Rc::new(Cell::new(true));
        let prefix = prefix.map(|text| Prefix { text: text.to_owned(), several });
        Outlet { ring: None, sink, prefix, log_failed }
    }

    #[test]
    fn what_the_app_writes_comes_out_whole_and_waits_for_a_slow_reader() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (ours, theirs) = app_pipe(true).unwrap();
        let app = std::thread::spawn(move || {
            let mut app = std::fs::File::from(theirs);
            for n in 0..20_000 {
                writeln!(app, "line {n}").unwrap();
            }
        });
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            let mut all = String::new();
            std::fs::File::from(read).read_to_string(&mut all).unwrap();
            all
        });
        run(async {
            let sink = Rc::new(Sink::new(write.as_fd()).unwrap());
            drop(write);
            pump_out(ours, Stream::Out, outlet(Some(sink), None)).await.unwrap();
        });
        app.join().unwrap();
        let all = reader.join().unwrap();
        assert!(all.lines().eq((0..20_000).map(|n| format!("line {n}"))));
    }

    #[test]
    fn a_stuck_reader_holds_up_nobody_else() {
        let (_stuck_read, stuck_write) = rustix::pipe::pipe().unwrap();
        let (free_read, free_write) = rustix::pipe::pipe().unwrap();
        let (ours_a, theirs_a) = app_pipe(true).unwrap();
        let (ours_b, theirs_b) = app_pipe(true).unwrap();
        std::thread::spawn(move || {
            let _ = std::fs::File::from(theirs_a).write_all(&vec![b'x'; 1 << 20]);
        });
        std::fs::File::from(theirs_b).write_all(b"hello\n").unwrap();
        run(async {
            let stuck = Rc::new(Sink::new(stuck_write.as_fd()).unwrap());
            let free = Rc::new(Sink::new(free_write.as_fd()).unwrap());
            let blocked = tokio::task::spawn_local(pump_out(ours_a, Stream::Out, outlet(Some(stuck), None)));
            tokio::time::sleep(Duration::from_millis(50)).await;
            let other = pump_out(ours_b, Stream::Err, outlet(Some(free), Some("b.2 | ")));
            tokio::time::timeout(Duration::from_secs(5), other).await.unwrap().unwrap();
            assert!(!blocked.is_finished());
            blocked.abort();
        });
        drop(free_write);
        let mut all = String::new();
        std::fs::File::from(free_read).read_to_string(&mut all).unwrap();
        assert_eq!(all, "b.2 | hello\n");
    }

    #[test]
    fn a_reader_that_went_away_ends_the_app_as_a_pipe_does() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (ours, theirs) = app_pipe(true).unwrap();
        let app = std::thread::spawn(move || std::fs::File::from(theirs).write_all(&vec![b'x'; 1 << 20]));
        run(async {
            let sink = Rc::new(Sink::new(write.as_fd()).unwrap());
            drop(read);
            let ended = pump_out(ours, Stream::Out, outlet(Some(sink), None)).await;
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
        assert_eq!(app.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_file_as_input_and_as_output_works() {
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in"), dir.path().join("out"));
        let text = "some text\n".repeat(10_000);
        std::fs::write(&input, &text).unwrap();
        let (ours, theirs) = app_pipe(false).unwrap();
        let target = std::fs::File::create(&output).unwrap();
        run(async {
            let sink = Rc::new(Sink::new(target.as_fd()).unwrap());
            let file = std::fs::File::open(&input).unwrap();
            let give = pump_in(file.into(), ours, |_| true);
            set_nonblocking(&theirs).unwrap();
            let take = pump_out(theirs, Stream::Out, outlet(Some(sink), None));
            let (give, take) = tokio::join!(give, take);
            give.unwrap();
            take.unwrap();
        });
        assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
    }
}
