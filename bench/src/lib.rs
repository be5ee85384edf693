//! Measuring beside a peer: both run in turns in the same minutes, medians are compared, and a ratio comes out.
//!
//! A single run says little on a machine that does other things too. Turns share whatever disturbs them, and a
//! median forgets the worst of it.

use std::fmt;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many turns each side gets, unless told otherwise.
pub const ROUNDS: usize = 7;

/// What one run took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// From start to exit.
    pub wall: Duration,
    /// Processor time of the process and its children, user and system.
    pub cpu: Duration,
    /// The largest resident size of the process or one of its children, in bytes. The kernel counts what the
    /// measuring process itself held before the start, so that one must stay small.
    pub peak: u64,
}

/// Runs a command to its end and measures it. Its output is discarded.
///
/// # Errors
/// Where it can't be started, or ends with anything but 0.
pub fn measure(command: &mut Command) -> io::Result<Sample> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let child =
        command.spawn().map_err(|e| io::Error::new(e.kind(), format!("{name} can't be started: {e}")))?;
    let mut status = 0;
    // SAFETY: all zeros is a value of this plain struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values; the child is ours and nobody else waits for it.
    let pid = unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut usage) };
    let wall = start.elapsed();
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        return Err(io::Error::other(format!("{name} ended with status {status:#x}")));
    }
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    let (cpu, peak) = (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_maxrss as u64 * 1024);
    Ok(Sample { wall, cpu, peak })
}

/// One side of a duel: makes the command of a turn; what it does before it returns is not measured.
pub type Turn<'a> = &'a mut dyn FnMut() -> io::Result<Command>;

/// The medians of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Duel {
    /// Ours.
    pub ours: Sample,
    /// The peer's.
    pub peer: Sample,
}

/// Runs both sides in turns, each `rounds` times after one turn that doesn't count. Who goes first changes.
///
/// # Errors
/// Of either command.
pub fn duel(rounds: usize, ours: Turn<'_>, peer: Turn<'_>) -> io::Result<Duel> {
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut turn = |mine: bool| -> io::Result<()> {
            let sample = if mine { measure(&mut ours()?)? } else { measure(&mut peer()?)? };
            if round > 0 {
                if mine { us.push(sample) } else { them.push(sample) }
            }
            Ok(())
        };
        turn(round % 2 == 0)?;
        turn(round % 2 != 0)?;
    }
    Ok(Duel { ours: median(&us), peer: median(&them) })
}

/// The median of each measure on its own.
pub fn median(samples: &[Sample]) -> Sample {
    fn middle<T: Ord + Copy + Default>(values: impl Iterator<Item = T>) -> T {
        let mut values: Vec<T> = values.collect();
        values.sort();
        values.get(values.len() / 2).copied().unwrap_or_default()
    }
    Sample {
        wall: middle(samples.iter().map(|s| s.wall)),
        cpu: middle(samples.iter().map(|s| s.cpu)),
        peak: middle(samples.iter().map(|s| s.peak)),
    }
}

/// One line of the result.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Our value with its unit.
    pub ours: String,
    /// The peer and its value; empty where a target stands alone.
    pub peer: String,
    /// Ours divided by the peer's, or by the target itself where there is no peer.
    pub ratio: f64,
    /// The most that the ratio may be; none where the line only informs.
    pub target: Option<f64>,
}

impl Row {
    /// A line that compares times.
    pub fn time(
        what: impl Into<String>,
        ours: Duration,
        peer: &str,
        theirs: Duration,
        target: Option<f64>,
    ) -> Self {
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        let peer = format!("{peer} {}", seconds(theirs));
        Self { what: what.into(), ours: seconds(ours), peer, ratio, target }
    }

    /// A line that compares sizes in bytes.
    pub fn size(what: impl Into<String>, ours: u64, peer: &str, theirs: u64, target: Option<f64>) -> Self {
        let ratio = ours as f64 / theirs as f64;
        let peer = format!("{peer} {}", megabytes(theirs));
        Self { what: what.into(), ours: megabytes(ours), peer, ratio, target }
    }

    /// A line about a time that has a limit and no peer.
    pub fn at_most(what: impl Into<String>, ours: Duration, limit: Duration) -> Self {
        let ratio = ours.as_secs_f64() / limit.as_secs_f64();
        let peer = format!("limit {}", seconds(limit));
        Self { what: what.into(), ours: seconds(ours), peer, ratio, target: Some(1.0) }
    }

    /// A line about a size in bytes that has a limit and no peer.
    pub fn size_at_most(what: impl Into<String>, ours: u64, limit: u64) -> Self {
        let ratio = ours as f64 / limit as f64;
        let peer = format!("limit {}", megabytes(limit));
        Self { what: what.into(), ours: megabytes(ours), peer, ratio, target: Some(1.0) }
    }

    /// Whether it is within its target.
    pub fn holds(&self) -> bool {
        self.target.is_none_or(|target| self.ratio <= target)
    }
}

/// The lines as a table for people.
pub struct Table<'a>(pub &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &dyn Fn(&Row) -> usize, least: usize| {
            self.0.iter().map(text).chain([least]).max().unwrap_or(least)
        };
        let (a, b, c) =
            (width(&|r| r.what.len(), 4), width(&|r| r.ours.len(), 4), width(&|r| r.peer.len(), 4));
        writeln!(f, "{:a$}  {:>b$}  {:>c$}  {:>6}  {:>6}", "what", "ours", "peer", "ratio", "target")?;
        for row in self.0 {
            let target = row.target.map_or_else(String::new, |t| format!("{t:.2}"));
            let word = if row.holds() { "" } else { "  missed" };
            let (what, ours, peer, ratio) = (&row.what, &row.ours, &row.peer, row.ratio);
            writeln!(f, "{what:a$}  {ours:>b$}  {peer:>c$}  {ratio:>6.3}  {target:>6}{word}")?;
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.2} s"),
        s => format!("{:.2} ms", s * 1000.0),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
