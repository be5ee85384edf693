//! The socket pair between the launcher and the child: a byte that releases, descriptors that go in or out,
//! and one fixed record that says what failed.

use crate::error::Step;
use crate::sys::{Sys, borrow};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// How many descriptors one message can carry (the kernel's SCM_MAX_FD).
pub(crate) const MAX_FDS: usize = 253;
const SPACE: usize = rustix::cmsg_space!(ScmRights(253), ScmCredentials(1));

/// What is sent, besides descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Parent to child: go on. Child to parent: here are descriptors.
    Go,
    /// The app's process has this number; with 0 it is the sender itself, whose number the kernel adds.
    App(i32),
    /// A step failed.
    Failed(Failure),
}

/// A failed step: which, at which item of the spec's list, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) index: u32,
    pub(crate) errno: i32,
}

/// Names the step of a system call that failed.
pub(crate) trait At<T> {
    /// At this step.
    fn at(self, step: Step) -> Result<T, Failure>;
    /// At this step, for the item with this index.
    fn at_item(self, step: Step, index: usize) -> Result<T, Failure>;
}

impl<T> At<T> for Sys<T> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.at_item(step, 0)
    }

    fn at_item(self, step: Step, index: usize) -> Result<T, Failure> {
        self.map_err(|errno| Failure { step, index: index as u32, errno: errno.raw_os_error() })
    }
}

/// The length of a record. The stub that runs between us and the app writes this layout too.
pub(crate) const RECORD: usize = 12;

impl Message {
    pub(crate) fn encode(self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        match self {
            Self::Go => record[0] = 1,
            Self::App(pid) => {
                record[0] = 2;
                record[8..].copy_from_slice(&pid.to_ne_bytes());
            }
            Self::Failed(failure) => {
                record[0] = 3;
                record[1] = failure.step as u8;
                record[4..8].copy_from_slice(&failure.index.to_ne_bytes());
                record[8..].copy_from_slice(&failure.errno.to_ne_bytes());
            }
        }
        record
    }

    fn decode(record: [u8; RECORD]) -> Option<Self> {
        let [kind, step, _, _, a, b, c, d, e, f, g, h] = record;
        let number = i32::from_ne_bytes([e, f, g, h]);
        match kind {
            1 => Some(Self::Go),
            2 => Some(Self::App(number)),
            3 => Some(Self::Failed(Failure {
                step: Step::from_byte(step)?,
                index: u32::from_ne_bytes([a, b, c, d]),
                errno: number,
            })),
            _ => None,
        }
    }
}

/// A connected pair, close-on-exec: ours, which learns who sends, and the child's.
pub(crate) fn pair() -> Sys<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, message: Message, fds: &[BorrowedFd<'_>]) -> Sys<()> {
    let record = message.encode();
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    sendmsg(socket, &[IoSlice::new(&record)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What was received.
pub(crate) struct Received {
    /// The message; nothing when the other side is gone.
    pub(crate) message: Option<Message>,
    /// The sender's number as seen from here.
    pub(crate) pid: Option<i32>,
}

/// Receives a message. Descriptors are handed to `take`, one by one. Nothing is allocated here.
pub(crate) fn receive(socket: BorrowedFd<'_>, mut take: impl FnMut(usize, OwnedFd)) -> Sys<Received> {
    let mut record = [0u8; RECORD];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut record)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            // A peer that died with bytes unread resets the pair, which is said once, before what it had sent itself:
            // why it died may be among that.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?.bytes,
        }
    };
    let (mut pid, mut fds) = (None, 0);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(list) => {
                for fd in list {
                    take(fds, fd);
                    fds += 1;
                }
            }
            RecvAncillaryMessage::ScmCredentials(who) => pid = Some(who.pid.as_raw_nonzero().get()),
            _ => {}
        }
    }
    let message = if got == RECORD { Message::decode(record) } else { None };
    Ok(Received { message, pid })
}

/// Tells the launcher what failed and ends this process. For children only.
pub(crate) fn report_and_exit(socket: RawFd, failure: Failure) -> ! {
    let _ = send(borrow(socket), Message::Failed(failure), &[]);
    crate::sys::exit_now(125)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_a_peer_said_before_it_died_is_heard() {
        let (ours, theirs) = pair().unwrap();
        let failure = Failure { step: Step::Device, index: 7, errno: 19 };
        send(ours.as_fd(), Message::Go, &[]).unwrap();
        send(theirs.as_fd(), Message::Failed(failure), &[]).unwrap();
        drop(theirs);
        let heard = || receive(ours.as_fd(), |_, _| ()).unwrap().message;
        assert_eq!(heard(), Some(Message::Failed(failure)));
        assert_eq!(heard(), None);
    }
}
