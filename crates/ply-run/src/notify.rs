//! What a supervisor of services is told of a run: that it is ready, how it is, that it still works, that it stops.
//! Source: sd_notify(3). Silent where nobody listens.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The listener, and what it was told.
pub(crate) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the run parent still works: half of the time after which it gives it up.
    every: Option<Duration>,
    next: Instant,
    ready: bool,
    stopping: bool,
    status: String,
}

impl Notify {
    /// From `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub(crate) fn from_env() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let address = text("NOTIFY_SOCKET").and_then(|path| match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(path).ok(),
        });
        let number = |name: &str| text(name).and_then(|n| n.parse::<u64>().ok());
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        Self::to(address, number("WATCHDOG_USEC").filter(|_| mine).map(Duration::from_micros))
    }

    fn to(address: Option<SocketAddr>, watchdog: Option<Duration>) -> Self {
        let to = address.and_then(|a| {
            let socket = UnixDatagram::unbound().ok()?;
            // A listener that doesn't listen must not hold the run up.
            socket.set_nonblocking(true).ok()?;
            Some((socket, a))
        });
        let every = watchdog.map(|w| (w / 2).max(Duration::from_millis(1))).filter(|_| to.is_some());
        Self { to, every, next: Instant::now(), ready: false, stopping: false, status: String::new() }
    }

    fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.to {
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }

    /// When it wants to be called at the latest.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.every.map(|_| self.next)
    }

    /// Tells what has changed: `ready` stays so, `status` is one line.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        ready: bool,
        stopping: bool,
        status: impl FnOnce() -> String,
    ) {
        if self.to.is_none() {
            return;
        }
        if let Some(every) = self.every
            && now >= self.next
        {
            self.next = now + every;
            self.tell("WATCHDOG=1");
        }
        let status = status();
        let mut news = Vec::new();
        if ready && !std::mem::replace(&mut self.ready, true) {
            news.push("READY=1".to_owned());
        }
        if stopping && !std::mem::replace(&mut self.stopping, true) {
            news.push("STOPPING=1".to_owned());
        }
        if status != self.status {
            news.push(format!("STATUS={status}"));
            self.status = status;
        }
        if !news.is_empty() {
            self.tell(&news.join("\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_the_watchdog_is_fed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let heard = || {
            let mut all = Vec::new();
            let mut buffer = [0; 512];
            while let Ok(n) = listener.recv(&mut buffer) {
                all.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
            all
        };
        let mut notify = Notify::to(SocketAddr::from_pathname(&path).ok(), Some(Duration::from_secs(20)));
        let start = Instant::now();
        let status = |text: &'static str| move || text.to_owned();
        notify.update(start, false, false, status("0 of 2"));
        assert_eq!(heard(), ["WATCHDOG=1", "STATUS=0 of 2"]);
        assert_eq!(notify.wake(), Some(start + Duration::from_secs(10)));
        notify.update(start + Duration::from_secs(9), true, false, status("2 of 2"));
        assert_eq!(heard(), ["READY=1\nSTATUS=2 of 2"]);
        notify.update(start + Duration::from_secs(10), true, false, status("2 of 2"));
        assert_eq!(heard(), ["WATCHDOG=1"]);
        notify.update(start + Duration::from_secs(11), true, true, status("2 of 2"));
        notify.update(start + Duration::from_secs(12), true, true, status("2 of 2"));
        assert_eq!(heard(), ["STOPPING=1"]);
        // Nobody listens any more: nothing fails.
        drop(listener);
        notify.update(start + Duration::from_secs(30), true, true, status("gone"));
        assert_eq!(Notify::to(None, Some(Duration::from_secs(2))).wake(), None);
    }
}
