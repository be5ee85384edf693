//! Published ports: listeners on the host, bound before anything is launched, and for each connection a relay
//! to an instance. The socket towards the app is made inside the instance's network namespace, so what it
//! connects to is inside. One event loop, no thread and no buffer a connection: bytes go through one buffer on
//! the stack, and what the other side can't take yet stops the reading side (back-pressure). A half-close is
//! passed on as one.

use crate::RunError;
use crate::plan::PlannedPublish;
use ply_image::Dirs;
use ply_manifest::PublishAddress;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How many connections may wait in the kernel for the loop to take them.
const BACKLOG: i32 = 1024;

/// Binds every published port. Both families for `public`; a host without IPv6 has only the other.
pub(crate) fn bind(dirs: &Dirs, publish: &[PlannedPublish]) -> Result<Vec<(usize, OwnedFd)>, RunError> {
    let mut listeners = Vec::new();
    for (n, one) in publish.iter().enumerate() {
        let addresses: Vec<IpAddr> = match one.address.0 {
            PublishAddress::Ip(ip) => vec![ip],
            _ => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        };
        for (at, ip) in addresses.iter().enumerate() {
            match listen(SocketAddr::new(*ip, one.port)) {
                Ok(fd) => listeners.push((n, fd)),
                Err(e)
                    if at > 0
                        && matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {}
                Err(e) => return Err(refused(dirs, one, *ip, &e)),
            }
        }
    }
    Ok(listeners)
}

fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Why a port can't be had, with who holds it and one that is free.
fn refused(dirs: &Dirs, one: &PlannedPublish, ip: IpAddr, why: &io::Error) -> RunError {
    let port = one.port;
    // As the user has to write it, address and all.
    let address = match one.address.0 {
        PublishAddress::Ip(ip) if ip.is_unspecified() => String::new(),
        PublishAddress::Ip(IpAddr::V6(ip)) => format!("[{ip}]:"),
        PublishAddress::Ip(ip) => format!("{ip}:"),
        _ => String::new(),
    };
    match why.kind() {
        io::ErrorKind::AddrInUse => {
            let mine = |holder: &crate::ports::Holder| {
                let all = crate::state::instances(dirs).unwrap_or_default();
                all.into_iter().find(|s| s.parent.pid.cast_unsigned() == holder.pid).map(|s| s.app)
            };
            let holder = crate::ports::holder(port);
            let holder = match holder.as_ref().map(|h| (h, mine(h))) {
                Some((_, Some(app))) => format!(" by the app {app}"),
                Some((holder, None)) => format!(" by {} (process {})", holder.name, holder.pid),
                None => String::new(),
            };
            let free = crate::ports::free_near(port, ip);
            RunError::Refused {
                message: format!("port {port} is in use{holder}"),
                hint: free
                    .map(|free| format!("{free} is free: --publish {address}{free}:{}", one.instance_port)),
            }
        }
        io::ErrorKind::PermissionDenied => RunError::refused(
            format!("port {port} can't be opened by your account: ports below 1024 are root's"),
            format!(
                "publish one from 1024 up, as in --publish {address}{}:{}; or have it allowed: sudo sysctl net.ipv4.ip_unprivileged_port_start={port}",
                8000 + port % 1000,
                one.instance_port
            ),
        ),
        io::ErrorKind::AddrNotAvailable => RunError::refused(
            format!("this host doesn't have the address {ip}"),
            "leave it out for every address of the host, or write one of its own",
        ),
        _ => RunError::plain(format!("port {port} can't be opened: {why}")),
    }
}

/// Gives sockets inside a running instance, the next one in turn.
pub(crate) trait Backends {
    /// Held as long as a connection lasts.
    type Hold;
    /// The slot whose turn it is; none where nothing runs.
    fn next(&self) -> Option<(u32, Self::Hold)>;
    /// A new socket in the network namespace of a slot.
    fn socket(&self, slot: u32, ipv6: bool) -> io::Result<OwnedFd>;
    /// The port inside a slot that the `n`th published port leads to.
    fn port(&self, slot: u32, n: usize) -> Option<u16>;
    /// How many there are to choose from.
    fn count(&self) -> usize;
    /// A connection was taken on `port` in `slot`.
    fn connected(&self, slot: u32, port: u16);
    /// A connection found nobody listening on `port` in `slot`.
    fn refused(&self, slot: u32, port: u16);
}

/// Takes connections of the listener of the `n`th published port for ever. Each is its own task on this thread.
pub(crate) async fn serve<B: Backends + 'static>(
    listener: OwnedFd,
    n: usize,
    backends: std::rc::Rc<B>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener.into())?;
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let backends = std::rc::Rc::clone(&backends);
                tokio::task::spawn_local(async move {
                    // Dropping the client closes it: a reset-free refusal, as an empty pool gives.
                    if let Some((app, _hold)) = connect(&*backends, n).await {
                        relay(&client, &app).await;
                    }
                });
            }
            // Out of descriptors, or a client that went away meanwhile: neither ends the listener.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
                ) =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(_) => {}
        }
    }
}

/// Connects to the next instance that answers. A dead one is passed over.
async fn connect<B: Backends>(backends: &B, n: usize) -> Option<(TcpStream, B::Hold)> {
    for _ in 0..backends.count() {
        let (slot, hold) = backends.next()?;
        let Some(port) = backends.port(slot, n) else { continue };
        if let Some(stream) = connect_to(backends, slot, port).await {
            backends.connected(slot, port);
            return Some((stream, hold));
        }
        backends.refused(slot, port);
    }
    None
}

/// A connection to a port of an instance: on its loopback, IPv4 first, then IPv6.
async fn connect_to<B: Backends>(backends: &B, slot: u32, port: u16) -> Option<TcpStream> {
    for to in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()] {
        let Ok(socket) = backends.socket(slot, to.is_ipv6()) else { continue };
        if let Ok(stream) = connect_on(socket, to).await {
            return Some(stream);
        }
    }
    None
}

/// Whether an instance takes a connection on `port`, within a second.
pub(crate) async fn answers<B: Backends>(backends: &B, slot: u32, port: u16) -> bool {
    let asked = tokio::time::timeout(Duration::from_secs(1), connect_to(backends, slot, port));
    matches!(asked.await, Ok(Some(_)))
}

async fn connect_on(socket: OwnedFd, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    tokio::net::TcpSocket::from_std_stream(stream).connect(to).await
}

/// Both directions until each has ended.
async fn relay(client: &TcpStream, app: &TcpStream) {
    let _ = (client.set_nodelay(true), app.set_nodelay(true));
    let (up, down) = (one_way(client, app), one_way(app, client));
    let (up, down) = tokio::join!(up, down);
    // An error on one way ended that way only; by now both have ended, and dropping closes them.
    let _ = (up, down);
}

/// Moves bytes one way until the end, and passes the end on. Nothing is held between two waits but what the
/// other side has not taken.
async fn one_way(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let moved = move_all(from, to).await;
    let how = if moved.is_ok() { Shutdown::Write } else { Shutdown::Both };
    let _ = sock(to).shutdown(how);
    if moved.is_err() {
        let _ = sock(from).shutdown(Shutdown::Both);
    }
    moved
}

async fn move_all(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let mut held: Vec<u8> = Vec::new();
    loop {
        if held.is_empty() {
            held = Vec::new();
            from.readable().await?;
            // On the stack and gone before the next wait: an idle connection holds no buffer.
            let mut buffer = [0_u8; 16 * 1024];
            match from.try_read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    let written = match to.try_write(&buffer[..n]) {
                        Ok(written) => written,
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
                        Err(e) => return Err(e),
                    };
                    held.extend_from_slice(&buffer[written..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        } else {
            to.writable().await?;
            match to.try_write(&held) {
                Ok(n) => {
                    held.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }
}

fn sock(stream: &TcpStream) -> SockRef<'_> {
    SockRef(stream)
}

/// Shuts one way of a stream down without taking the stream.
struct SockRef<'a>(&'a TcpStream);

impl SockRef<'_> {
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        Ok(rustix::net::shutdown(self.0, how)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ShownAddress;
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::rc::Rc;

    /// Instances that are this process's own network: their sockets are ordinary ones.
    struct Here {
        count: usize,
        port: u16,
        at: Cell<u32>,
        refusals: Cell<usize>,
    }

    impl Backends for Here {
        type Hold = ();
        fn next(&self) -> Option<(u32, ())> {
            self.at.set(self.at.get() + 1);
            Some((self.at.get(), ()))
        }
        fn port(&self, _: u32, _: usize) -> Option<u16> {
            Some(self.port)
        }
        fn connected(&self, _: u32, _: u16) {}
        fn socket(&self, _: u32, ipv6: bool) -> io::Result<OwnedFd> {
            let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
            Ok(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
        }
        fn count(&self) -> usize {
            self.count
        }
        fn refused(&self, _: u32, _: u16) {
            self.refusals.set(self.refusals.get() + 1);
        }
    }

    /// Runs a relay in front of `port` on a thread of its own, and gives the port that it listens on.
    fn relay_to(port: u16) -> u16 {
        let fd = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let std: std::net::TcpListener = fd.into();
        let own = std.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            let here = Rc::new(Here { count: 1, port, at: Cell::new(0), refusals: Cell::new(0) });
            local.block_on(&runtime, serve(std.into(), 0, here)).unwrap();
        });
        own
    }

    fn server(each: impl Fn(std::net::TcpStream) + Send + 'static) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || listener.incoming().flatten().for_each(each));
        port
    }

    #[test]
    fn a_half_close_is_passed_on_as_one() {
        // The server answers only after it has seen the client's end.
        let port = relay_to(server(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(format!("got {}", all.len()).as_bytes()).unwrap();
        }));
        for round in 1..20_usize {
            let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.write_all(&vec![b'x'; round * 1000]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, format!("got {}", round * 1000));
        }
    }

    #[test]
    fn bytes_pass_whole_and_a_slow_side_stops_the_other() {
        // More than the buffers of four sockets can grow to.
        const SIZE: usize = 64 << 20;
        let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = std::sync::Arc::clone(&sent);
        let port = relay_to(server(move |mut stream| {
            let chunk: Vec<u8> = (0..=255).cycle().take(64 * 1024).collect();
            for _ in 0..SIZE / chunk.len() {
                if stream.write_all(&chunk).is_err() {
                    return;
                }
                counter.fetch_add(chunk.len(), std::sync::atomic::Ordering::SeqCst);
            }
        }));
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut first = [0; 1];
        client.read_exact(&mut first).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let early = sent.load(std::sync::atomic::Ordering::SeqCst);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len() + 1, SIZE);
        assert!(rest.iter().enumerate().all(|(n, b)| *b == ((n + 1) % 256) as u8));
        assert!(early < SIZE, "the server sent all of it to a client that read nothing");
    }

    #[test]
    fn a_client_of_an_app_that_does_not_listen_sees_the_end() {
        let port = relay_to(1);
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut answer = Vec::new();
        let ended = client.read_to_end(&mut answer);
        assert!(ended.is_err() || answer.is_empty());
    }

    #[test]
    fn a_port_in_use_names_its_owner_and_a_free_one() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let address = ShownAddress(PublishAddress::Ip(Ipv4Addr::LOCALHOST.into()));
        let root = tempfile::tempdir().unwrap();
        let dirs = crate::state::tests::dirs(root.path());
        let error = bind(&dirs, &[PlannedPublish { address, port, instance_port: 80 }]).unwrap_err();
        let pid = std::process::id();
        let message = error.to_string();
        assert!(message.starts_with(&format!("port {port} is in use by ")), "{message}");
        assert!(message.contains(&format!("(process {pid})")), "{message}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("--publish 127.0.0.1:") && hint.contains("is free"), "{hint}");
    }
}
