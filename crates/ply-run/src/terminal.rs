//! The caller's terminal under `-t`: raw mode with a way back on every exit, sizes, and the three keys that stop.

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The terminal as it was, for whoever leaves first: the guard, a panic, a signal.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode of standard input; the terminal is as it was when this is dropped.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Switches to raw mode; none where standard input is no terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        let stdin = rustix::stdio::stdin();
        if !isatty(stdin) {
            return Ok(None);
        }
        let before = tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        if let Ok(mut kept) = BEFORE.lock() {
            *kept = Some(before);
        }
        tcsetattr(stdin, OptionalActions::Drain, &raw)?;
        Ok(Some(Self(())))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back as it was; nothing happens where it was never taken.
pub fn restore() {
    let before = BEFORE.lock().ok().and_then(|mut kept| kept.take());
    if let Some(before) = before {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before);
    }
}

/// The size of the caller's terminal: of whichever of the three streams is one, else 80 by 24.
pub(crate) fn size() -> ply_sandbox::WindowSize {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let found = streams.iter().find_map(|s| tcgetwinsize(s).ok()).filter(|s| s.ws_col > 0 && s.ws_row > 0);
    match found {
        Some(s) => ply_sandbox::WindowSize { rows: s.ws_row, columns: s.ws_col },
        None => ply_sandbox::WindowSize { rows: 24, columns: 80 },
    }
}

/// Tells the app's terminal the caller's size.
pub(crate) fn follow_size(terminal: BorrowedFd<'_>) {
    let size = size();
    let size =
        rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let _ = tcsetwinsize(terminal.as_fd(), size);
}

/// Sees Ctrl-] three times within a second.
#[derive(Debug, Default)]
pub(crate) struct StopKeys {
    pressed: Vec<Instant>,
}

impl StopKeys {
    const KEY: u8 = 0x1d;
    const WITHIN: Duration = Duration::from_secs(1);

    /// Whether the third one is in `bytes`, typed at `now`. Any other key between them starts anew.
    pub(crate) fn typed(&mut self, bytes: &[u8], now: Instant) -> bool {
        for byte in bytes {
            if *byte != Self::KEY {
                self.pressed.clear();
                continue;
            }
            self.pressed.retain(|then| now.duration_since(*then) <= Self::WITHIN);
            self.pressed.push(now);
            if self.pressed.len() >= 3 {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_within_a_second_stop_and_nothing_else_does() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut keys = StopKeys::default();
        assert!(!keys.typed(b"\x1d", at(0)) && !keys.typed(b"\x1d", at(400)) && keys.typed(b"\x1d", at(900)));
        let mut keys = StopKeys::default();
        assert!(
            !keys.typed(b"\x1d", at(0)) && !keys.typed(b"\x1d", at(900)) && !keys.typed(b"\x1d", at(1500))
        );
        assert!(keys.typed(b"\x1d", at(1600)));
        let mut keys = StopKeys::default();
        assert!(!keys.typed(b"\x1d\x1da\x1d", at(0)));
        assert!(keys.typed(b"\x1d\x1d", at(1)));
        assert!(StopKeys::default().typed(b"\x1d\x1d\x1d", at(0)));
    }
}
