//! Two calls to the user's systemd: a scope of its own for this process, delegated, so that boxes get real limits; and
//! to be moved into one. They are spoken in D-Bus's wire format (the D-Bus specification, "Message Protocol") over the manager's own socket
//! or the user's bus. Two methods and four properties need no library: those that exist bring an event loop, or
//! older twins of crates that are here already.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long systemd may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest message that is read: answers are some hundred bytes.
const LONGEST: usize = 1 << 20;

/// Where the user's systemd can be reached: itself first, which needs no bus, then the bus.
fn sockets(uid: u32) -> [(PathBuf, bool); 2] {
    let run = PathBuf::from(format!("/run/user/{uid}"));
    [(run.join("systemd/private"), false), (run.join("bus"), true)]
}

/// Whether there is a systemd of this user's to ask.
pub(crate) fn is_there(uid: u32) -> bool {
    sockets(uid).iter().any(|(path, _)| path.exists())
}

/// Asks for a delegated scope with this process in it. systemd does it after it has answered.
pub(crate) fn start_scope(uid: u32, unit: &str) -> io::Result<()> {
    manager(uid, "StartTransientUnit", "ssa(sv)a(sa(sv))", scope(unit, std::process::id()))
}

/// Asks to be moved into a folder of a delegated unit; it is done with the answer. A process of the same user outside of
/// that user's systemd (in its login session) may not go there by itself.
pub(crate) fn attach(uid: u32, unit: &str, folder: &str) -> io::Result<()> {
    let mut body = Bytes::default();
    body.text(unit);
    body.text(folder);
    body.array(4, |list| list.number(std::process::id()));
    manager(uid, "AttachProcessesToUnit", "ssau", body.0)
}

/// One call to the manager of a user's systemd (org.freedesktop.systemd1(5)).
fn manager(uid: u32, member: &'static str, signature: &'static str, body: Vec<u8>) -> io::Result<()> {
    let call = Call {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member,
        signature,
        body,
    };
    let mut last = io::Error::other("no systemd of this user's runs");
    for (path, is_bus) in sockets(uid) {
        match UnixStream::connect(&path) {
            Ok(stream) => return ask(stream, uid, is_bus, &call),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn ask(mut stream: UnixStream, uid: u32, is_bus: bool, call: &Call) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let name: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {name}\r\n").as_bytes())?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.len() > 256 {
            return Err(unexpected());
        }
    }
    if !line.starts_with(b"OK ") {
        return Err(io::Error::other("the user's systemd refused the connection"));
    }
    stream.write_all(b"BEGIN\r\n")?;
    if is_bus {
        let hello = Call {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
            body: Vec::new(),
        };
        stream.write_all(&hello.message(1))?;
        answer(&mut stream, 1)?;
    }
    stream.write_all(&call.message(2))?;
    answer(&mut stream, 2)
}

fn unexpected() -> io::Error {
    io::Error::other("the user's systemd answered something unexpected")
}

/// The arguments of StartTransientUnit (org.freedesktop.systemd1(5)): name, mode, properties, no further units.
fn scope(unit: &str, pid: u32) -> Vec<u8> {
    let mut body = Bytes::default();
    body.text(unit);
    body.text("fail");
    body.array(8, |list| {
        for (name, signature) in
            [("Description", "s"), ("CollectMode", "s"), ("Delegate", "b"), ("PIDs", "au")]
        {
            list.align(8);
            list.text(name);
            list.signature(signature);
            match name {
                "Description" => list.text("ply: a run parent and its instances"),
                // Gone for good when it is empty, however it ended.
                "CollectMode" => list.text("inactive-or-failed"),
                "Delegate" => list.number(1),
                _ => list.array(4, |list| list.number(pid)),
            }
        }
    });
    body.array(8, |_| ());
    body.0
}

/// A method call.
struct Call {
    destination: &'static str,
    path: &'static str,
    interface: &'static str,
    member: &'static str,
    signature: &'static str,
    body: Vec<u8>,
}

impl Call {
    fn message(&self, serial: u32) -> Vec<u8> {
        // Little-endian, a method call, no flags, version 1.
        let mut head = Bytes(vec![b'l', 1, 0, 1]);
        head.number(u32::try_from(self.body.len()).unwrap_or(u32::MAX));
        head.number(serial);
        head.array(8, |fields| {
            let texts = [(1, "o", self.path), (2, "s", self.interface), (3, "s", self.member)];
            for (code, kind, text) in texts.into_iter().chain([(6, "s", self.destination)]) {
                fields.align(8);
                fields.0.push(code);
                fields.signature(kind);
                fields.text(text);
            }
            if !self.signature.is_empty() {
                fields.align(8);
                fields.0.push(8);
                fields.signature("g");
                fields.signature(self.signature);
            }
        });
        head.align(8);
        head.0.extend_from_slice(&self.body);
        head.0
    }
}

/// Values in the wire format, each aligned to its own size.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    /// An array of elements that are aligned to `to`; its length counts from the first of them.
    fn array(&mut self, to: usize, fill: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(to);
        let start = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Reads until the answer to `serial` is there. What else comes (signals) is passed over.
fn answer(stream: &mut impl Read, serial: u32) -> io::Result<()> {
    for _ in 0..64 {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let little = match head[0] {
            b'l' => true,
            b'B' => false,
            _ => return Err(unexpected()),
        };
        let number = |bytes: &[u8]| {
            let bytes = <[u8; 4]>::try_from(bytes).unwrap_or_default();
            if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
        };
        let (body, fields) = (number(&head[4..8]) as usize, number(&head[12..16]) as usize);
        if body > LONGEST || fields > LONGEST {
            return Err(unexpected());
        }
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        stream.read_exact(&mut rest)?;
        let (fields, body) = (&rest[..fields], &rest[fields.next_multiple_of(8)..]);
        let (kind, replies_to) = (head[1], reply_serial(fields, &number));
        match (kind, replies_to) {
            (2, Some(to)) if to == serial => return Ok(()),
            (3, Some(to)) if to == serial => {
                let length = body.get(..4).map_or(0, |bytes| number(bytes) as usize);
                let said = body.get(4..).and_then(|text| text.get(..length)).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "the user's systemd refused: {}",
                    String::from_utf8_lossy(said).escape_debug()
                )));
            }
            _ => {}
        }
    }
    Err(unexpected())
}

/// The field of a header that says what is answered: code 5, a number.
fn reply_serial(fields: &[u8], number: &dyn Fn(&[u8]) -> u32) -> Option<u32> {
    let mut at = 0usize;
    while at < fields.len() {
        // A struct of a code and a variant: the signature's length, its one letter, its end.
        let (code, kind) = (*fields.get(at)?, *fields.get(at + 2)?);
        if *fields.get(at + 1)? != 1 {
            return None;
        }
        at += 4;
        match kind {
            b'g' => at += 2 + usize::from(*fields.get(at)?),
            b'u' | b's' | b'o' => {
                at = at.next_multiple_of(4);
                let value = number(fields.get(at..at + 4)?);
                at += 4;
                if kind == b'u' && code == 5 {
                    return Some(value);
                }
                if kind != b'u' {
                    at = at.checked_add(value as usize)?.checked_add(1)?;
                }
            }
            _ => return None,
        }
        at = at.next_multiple_of(8);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_bytes_of_the_specification() {
        let call = Call {
            destination: "a.b",
            path: "/p",
            interface: "c.d",
            member: "M",
            signature: "",
            body: Vec::new(),
        };
        let expected: &[u8] = b"l\x01\0\x01\0\0\0\0\x07\0\0\0\x3c\0\0\0\
            \x01\x01o\0\x02\0\0\0/p\0\0\0\0\0\0\
            \x02\x01s\0\x03\0\0\0c.d\0\0\0\0\0\
            \x03\x01s\0\x01\0\0\0M\0\0\0\0\0\0\0\
            \x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0";
        assert_eq!(call.message(7), expected);
    }

    #[test]
    fn a_scope_names_its_process_and_is_delegated() {
        let body = scope("ply-web.scope", 258);
        let has = |bytes: &[u8]| body.windows(bytes.len()).any(|window| window == bytes);
        assert!(body.starts_with(b"\x0d\0\0\0ply-web.scope\0"));
        assert!(has(b"\x08\0\0\0Delegate\0\x01b\0\x01\0\0\0"));
        assert!(has(b"\x04\0\0\0PIDs\0\x02au\0\0\0\0\x04\0\0\0\x02\x01\0\0"));
        assert!(body.ends_with(&[0; 4]));
    }

    /// An answer as it would come: its kind, what it answers, and a text.
    fn reply(kind: u8, serial: u32, text: &str) -> Vec<u8> {
        let mut body = Bytes::default();
        body.text(text);
        let mut message = Bytes(vec![b'l', kind, 0, 1]);
        message.number(u32::try_from(body.0.len()).unwrap());
        message.number(9);
        message.array(8, |fields| {
            fields.0.push(6);
            fields.signature("s");
            fields.text(":1.5");
            fields.align(8);
            fields.0.push(8);
            fields.signature("g");
            fields.signature("s");
            fields.align(8);
            fields.0.push(5);
            fields.signature("u");
            fields.number(serial);
        });
        message.align(8);
        message.0.extend_from_slice(&body.0);
        message.0
    }

    #[test]
    fn the_answer_is_found_among_others() {
        let stream = [reply(4, 2, "a signal"), reply(2, 1, "another's"), reply(2, 2, "/job/1")].concat();
        answer(&mut stream.as_slice(), 2).unwrap();
        let refused = reply(3, 2, "Unit exists.");
        let why = answer(&mut refused.as_slice(), 2).unwrap_err();
        assert_eq!(why.to_string(), "the user's systemd refused: Unit exists.");
    }

    /// A conversation with somebody who answers as the specification says.
    #[test]
    fn the_conversation_begins_with_who_we_are() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut read = vec![0; "\0AUTH EXTERNAL 34373131\r\n".len()];
            theirs.read_exact(&mut read).unwrap();
            assert_eq!(read, b"\0AUTH EXTERNAL 34373131\r\n");
            theirs.write_all(b"OK 1234\r\n").unwrap();
            theirs.write_all(&[reply(2, 1, ":1.5"), reply(3, 2, "not yours")].concat()).unwrap();
            let mut rest = Vec::new();
            theirs.read_to_end(&mut rest).unwrap();
            rest
        });
        let call = Call {
            destination: "d.e",
            path: "/",
            interface: "i.f",
            member: "Do",
            signature: "u",
            body: 7u32.to_le_bytes().to_vec(),
        };
        let why = ask(ours, 4711, true, &call).unwrap_err();
        assert_eq!(why.to_string(), "the user's systemd refused: not yours");
        let said = server.join().unwrap();
        assert!(said.starts_with(b"BEGIN\r\nl\x01"), "{said:?}");
        assert!(said.ends_with(&[7, 0, 0, 0]), "{said:?}");
    }

    #[test]
    fn torn_and_hostile_answers_are_errors() {
        let whole = reply(2, 2, "x");
        for cut in 0..whole.len() {
            assert!(answer(&mut &whole[..cut], 2).is_err());
            let mut changed = whole.clone();
            changed[cut] = 0xff;
            let _ = answer(&mut changed.as_slice(), 2);
        }
        assert!(answer(&mut [b'l'; 64].as_slice(), 2).is_err());
    }
}
