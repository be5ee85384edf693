//! Units of systemd for apps: the run parent as a service that says when it is ready and that it still works. Pure:
//! values in, the text of a unit out. Source: systemd.service(5), systemd.exec(5), "systemd" of the host's spec.

use ply_manifest::RunName;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// After how long without a sign of life systemd kills a run parent and starts it again.
const WATCHDOG: Duration = Duration::from_secs(30);
/// What a run parent needs beyond the time that its app has to stop.
const STOP_MARGIN: Duration = Duration::from_secs(10);
/// What a rootful run parent needs of root's rights. (An app's own come from its user namespace, not from here.)
const CAPABILITIES: &str = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_MKNOD \
CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SETFCAP CAP_SETGID CAP_SETPCAP CAP_SETUID CAP_SYS_ADMIN \
CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_RESOURCE";

/// Whose systemd it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// The machine's.
    System,
    /// The user's own.
    User,
}

/// A unit that runs an installed app.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The app.
    pub name: RunName,
    /// What it is, in one line; empty where nothing says so.
    pub description: String,
    /// The `ply` that runs it.
    pub program: PathBuf,
    /// The flags of `ply run`, a word each.
    pub flags: Vec<String>,
    /// Arguments of the app.
    pub args: Vec<String>,
    /// `PLY_*` variables that say where its folders are.
    pub env: Vec<(String, String)>,
    /// For whom.
    pub manager: Manager,
    /// How long the app may take to stop.
    pub stop_timeout: Duration,
    /// Whether its end is the end of it, whatever its exit code.
    pub never_again: bool,
    /// Whether the app keeps every right.
    pub privileged: bool,
}

impl Unit {
    /// The file name of the unit.
    pub fn file_name(&self) -> String {
        format!("ply-{}.service", self.name)
    }

    /// The unit as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let description = match self.description.trim() {
            "" => format!("{} (ply)", self.name),
            text => format!("{} (ply): {}", self.name, text.replace('%', "%%").replace(['\n', '\\'], " ")),
        };
        let _ = writeln!(out, "[Unit]\nDescription={description}");
        if self.manager == Manager::System {
            out.push_str("Wants=network-online.target\nAfter=network-online.target\n");
        }
        // It never gives up: what is wrong now may not be so later.
        out.push_str("StartLimitIntervalSec=0\n");
        out.push_str("\n[Service]\nType=notify\nNotifyAccess=main\n");
        for (name, value) in &self.env {
            let _ = writeln!(out, "Environment={}", quoted(&format!("{name}={value}"), false));
        }
        let run = ["run".to_owned(), "--installed".to_owned(), self.name.to_string()];
        let mut words = vec![self.program.display().to_string()];
        words.extend(run);
        words.extend(self.flags.iter().cloned());
        if !self.args.is_empty() {
            words.push("--".to_owned());
            words.extend(self.args.iter().cloned());
        }
        let words: Vec<String> = words.iter().map(|w| quoted(w, true)).collect();
        let _ = writeln!(out, "ExecStart={}", words.join(" "));
        let _ = write!(
            out,
            "# The run parent alone is asked to stop, and stops its instances; what is left then is killed.\n\
             KillMode=mixed\nTimeoutStopSec={}\n\
             # It says by itself when it is ready, and gives up by itself.\nTimeoutStartSec=infinity\n\
             WatchdogSec={}\nRestart={}\nRestartSec=1\n\
             # Its instances' limits are its own to set; one that runs out of memory is its own to judge.\n\
             Delegate=yes\nOOMPolicy=continue\nTasksMax=infinity\nKeyringMode=private\n",
            (self.stop_timeout + STOP_MARGIN).as_secs(),
            WATCHDOG.as_secs(),
            if self.never_again { "on-abnormal" } else { "on-failure" },
        );
        if self.manager == Manager::System {
            out.push_str("LimitNOFILE=1048576\nNoNewPrivileges=yes\n");
            if !self.privileged {
                let _ = writeln!(out, "CapabilityBoundingSet={CAPABILITIES}");
            }
            out.push_str(
                "# No option that gives the unit mounts of its own (ProtectSystem, PrivateTmp and the like): other ply\n\
                 # commands would not see its layers. Its app is in a box of its own.\n",
            );
        }
        let target = if self.manager == Manager::System { "multi-user.target" } else { "default.target" };
        let _ = write!(out, "\n[Install]\nWantedBy={target}\n");
        out
    }
}

/// A word as systemd reads it back: quoted where it must be; `%` and, on a command line, `$` mean themselves.
fn quoted(word: &str, command: bool) -> String {
    let mut out = String::new();
    let mut plain = !word.is_empty();
    for c in word.chars() {
        plain &= c.is_ascii_alphanumeric() || "/._-+=:,@%$[]{}".contains(c);
        match c {
            '%' => out.push_str("%%"),
            '$' if command => out.push_str("$$"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    if plain { out } else { format!("\"{out}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        Unit {
            name: "web".parse().unwrap(),
            description: "A page, 100% static".into(),
            program: "/usr/local/bin/ply".into(),
            flags: vec!["--publish=80:3000".into(), "--env=GREETING=Hello, $USER".into()],
            args: vec!["--color=a b".into(), String::new()],
            env: vec![("PLY_DATA_DIR".into(), "/srv/my data".into())],
            manager: Manager::System,
            stop_timeout: Duration::from_secs(10),
            never_again: false,
            privileged: false,
        }
    }

    #[test]
    fn a_system_unit_is_whole() {
        insta::assert_snapshot!(unit().text());
    }

    #[test]
    fn a_users_unit_takes_nothing_that_its_manager_lacks() {
        let user = Unit { manager: Manager::User, never_again: true, ..unit() };
        let text = user.text();
        assert!(text.contains("WantedBy=default.target") && text.contains("Restart=on-abnormal"), "{text}");
        // newuidmap is a set-uid program.
        for not in ["NoNewPrivileges", "CapabilityBoundingSet", "network-online"] {
            assert!(!text.contains(not), "{text}");
        }
    }

    #[test]
    fn words_mean_themselves() {
        for (word, written) in [
            ("plain-word_1.2:3", "plain-word_1.2:3"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("50%", "50%%"),
            ("$HOME", "$$HOME"),
            ("say \"hi\"\\", "\"say \\\"hi\\\"\\\\\""),
            ("two\nlines", "\"two\\nlines\""),
            ("semi;colon", "\"semi;colon\""),
            ("\u{1}", "\"\\x01\""),
            ("ä", "\"ä\""),
        ] {
            assert_eq!(quoted(word, true), written, "{word:?}");
        }
        assert_eq!(quoted("A=$b", false), "A=$b");
    }
}
