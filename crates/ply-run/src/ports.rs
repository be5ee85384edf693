//! Who holds a port on this host, and who listens in a box: from the tables of `/proc` (proc(5)).

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// A listening socket, as `/proc/<pid>/net/tcp` and `tcp6` list it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listening {
    loopback: bool,
    port: u16,
    inode: u64,
}

/// The listening sockets of the network namespace of the process whose proc folder this is.
fn listening(process: &Path) -> Vec<Listening> {
    let mut all = Vec::new();
    for file in ["net/tcp", "net/tcp6"] {
        let text = std::fs::read_to_string(process.join(file)).unwrap_or_default();
        all.extend(text.lines().skip(1).filter_map(parse_line));
    }
    all
}

/// One line of the table; none where the socket doesn't listen (state 0A).
fn parse_line(line: &str) -> Option<Listening> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != "0A" {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    // The words of an address are in the machine's byte order: 127.0.0.1 is 0100007F, ::1 ends in 01000000.
    let loopback = match address.len() {
        8 => address.ends_with("7F"),
        _ => {
            address == "00000000000000000000000001000000"
                || address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F")
        }
    };
    Some(Listening { loopback, port: u16::from_str_radix(port, 16).ok()?, inode })
}

/// What listens on a port inside a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// Nothing.
    Nothing,
    /// Only on the loopback address: other apps and machines will not reach it there.
    Loopback,
    /// On an address that others reach.
    Open,
}

/// What listens on `port` in the box of the process `pid`.
pub(crate) fn inside(pid: i32, port: u16) -> Inside {
    let sockets = listening(Path::new(&format!("/proc/{pid}")));
    let mut found = sockets.iter().filter(|s| s.port == port).peekable();
    if found.peek().is_none() {
        Inside::Nothing
    } else if found.all(|s| s.loopback) {
        Inside::Loopback
    } else {
        Inside::Open
    }
}

/// The ports that anything listens on in the box of the process `pid`, sorted.
pub(crate) fn open_inside(pid: i32) -> Vec<u16> {
    let mut ports: Vec<u16> = listening(Path::new(&format!("/proc/{pid}"))).iter().map(|s| s.port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The process that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its name, cleaned of what could steer a terminal.
    pub(crate) name: String,
    /// Its number.
    pub(crate) pid: u32,
}

/// Who listens on `port` on this host, as far as this user may see.
pub(crate) fn holder(port: u16) -> Option<Holder> {
    let inodes: Vec<u64> =
        listening(Path::new("/proc/self")).iter().filter(|s| s.port == port).map(|s| s.inode).collect();
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(fds) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for fd in fds.flatten() {
            let Ok(link) = std::fs::read_link(fd.path()) else { continue };
            let inode =
                link.to_str().and_then(|l| l.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if inode.is_some_and(|i: u64| inodes.contains(&i)) {
                let comm = std::fs::read(process.path().join("comm")).unwrap_or_default();
                let name = crate::ring::clean(comm.strip_suffix(b"\n").unwrap_or(&comm));
                return Some(Holder { name, pid });
            }
        }
    }
    None
}

/// The next port above `port` that can be bound on `ip` right now.
pub(crate) fn free_near(port: u16, ip: IpAddr) -> Option<u16> {
    (port.checked_add(1)?..=u16::MAX)
        .take(200)
        .find(|p| std::net::TcpListener::bind(SocketAddr::new(ip, *p)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_and_told_apart() {
        let pid = std::process::id().cast_signed();
        let local = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = |l: &std::net::TcpListener| l.local_addr().unwrap().port();
        assert_eq!(inside(pid, port(&local)), Inside::Loopback);
        assert_eq!(inside(pid, port(&open)), Inside::Open);
        assert!(open_inside(pid).contains(&port(&open)));
        let closed = port(&local);
        drop(local);
        assert_eq!(inside(pid, closed), Inside::Nothing);
        assert!(free_near(port(&open), "0.0.0.0".parse().unwrap()).is_some());
    }

    #[test]
    fn lines_of_the_tables_are_read() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 123 1 x";
        assert_eq!(parse_line(v4), Some(Listening { loopback: true, port: 8080, inode: 123 }));
        let v6 = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9 1";
        assert_eq!(parse_line(v6), Some(Listening { loopback: false, port: 80, inode: 9 }));
        let connected = v4.replace(" 0A ", " 01 ");
        assert_eq!(parse_line(&connected), None);
        for junk in ["", "a b", "0: x 0 0A"] {
            assert_eq!(parse_line(junk), None);
        }
    }
}
