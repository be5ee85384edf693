//! Asking name servers: one question for A and one for AAAA, by UDP, by TCP where the answer was cut. The messages are written
//! and read by hickory-proto; what comes from the network is never parsed by hand.

use super::dns_config::DnsConfig;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The most addresses that are kept of one name.
const MOST_ADDRESSES: usize = 16;
/// How long the second of the two answers is waited for once the first gave addresses.
const PATIENCE: Duration = Duration::from_secs(1);

/// What one server says of one name.
enum Answer {
    Addresses(Vec<IpAddr>),
    /// The name does not exist, or has no address.
    Nothing,
    /// The server can't say.
    Refused(ResponseCode),
}

/// The addresses of `host`, IPv4 first, or why there are none. Nothing takes longer than until `deadline`.
pub(super) fn resolve(config: &DnsConfig, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, String> {
    let mut why = "no such name".to_owned();
    for candidate in config.candidates(host) {
        let Ok(name) = Name::from_ascii(format!("{candidate}.")) else {
            why = "not a name that a name server can know".to_owned();
            continue;
        };
        match ask_all(config, &name, deadline) {
            Ok(addresses) if !addresses.is_empty() => return Ok(addresses),
            Ok(_) => {}
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Asks each server in turn, as often as the configuration says. An empty answer is one: the name has no address.
fn ask_all(config: &DnsConfig, name: &Name, deadline: Instant) -> Result<Vec<IpAddr>, String> {
    let mut why = String::new();
    for _ in 0..config.attempts {
        for server in &config.servers {
            let until = deadline.min(Instant::now() + config.timeout);
            match ask(*server, name, until, config.tcp_only) {
                Ok(Answer::Addresses(addresses)) => return Ok(addresses),
                Ok(Answer::Nothing) => return Ok(Vec::new()),
                Ok(Answer::Refused(code)) => why = format!("the name server {} says {code}", server.ip()),
                Err(error) => why = format!("the name server {} does not answer: {error}", server.ip()),
            }
            if Instant::now() >= deadline {
                return Err(why);
            }
        }
    }
    Err(why)
}

/// Both questions to one server.
fn ask(server: SocketAddr, name: &Name, until: Instant, tcp_only: bool) -> io::Result<Answer> {
    let questions = [RecordType::A, RecordType::AAAA].map(|kind| question(name, kind));
    let answers = if tcp_only {
        [by_tcp(server, &questions[0], until).map(Some)?, by_tcp(server, &questions[1], until).map(Some)?]
    } else {
        by_udp(server, &questions, until)?
    };
    let mut addresses = Vec::new();
    let mut refused = None;
    for (question, answer) in questions.iter().zip(answers) {
        let Some(mut message) = answer else { continue };
        if message.metadata.truncation {
            message = by_tcp(server, question, until)?;
        }
        match message.metadata.response_code {
            ResponseCode::NoError => collect(&message, name, &mut addresses),
            ResponseCode::NXDomain => {}
            code => refused = Some(code),
        }
    }
    addresses.truncate(MOST_ADDRESSES);
    Ok(match refused {
        _ if !addresses.is_empty() => Answer::Addresses(addresses),
        Some(code) => Answer::Refused(code),
        None => Answer::Nothing,
    })
}

fn question(name: &Name, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    message
}

/// Whether `answer` belongs to `question`: a stranger who guesses the port must guess the id too.
fn belongs(answer: &Message, question: &Message) -> bool {
    let (a, q) = (&answer.metadata, &question.metadata);
    let same = |a: &Query, q: &Query| a.query_type() == q.query_type() && a.name() == q.name();
    a.id == q.id
        && a.message_type == MessageType::Response
        && a.op_code == OpCode::Query
        && answer.queries.len() == 1
        && same(&answer.queries[0], &question.queries[0])
}

/// The addresses that `message` gives for `name`, through its aliases.
fn collect(message: &Message, name: &Name, addresses: &mut Vec<IpAddr>) {
    let mut names = vec![name.clone()];
    while let Some(alias) = message.answers.iter().find_map(|record| match &record.data {
        RData::CNAME(to) if names.contains(&record.name) && !names.contains(&to.0) => Some(to.0.clone()),
        _ => None,
    }) {
        names.push(alias);
    }
    for record in message.answers.iter().filter(|record| names.contains(&record.name)) {
        let address = match &record.data {
            RData::A(a) => IpAddr::V4(a.0),
            RData::AAAA(aaaa) => IpAddr::V6(aaaa.0),
            _ => continue,
        };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")) } else { Ok(left) }
}

fn bytes(message: &Message) -> io::Result<Vec<u8>> {
    message.to_vec().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
}

/// Sends both questions from one port and waits for both answers; where one came with addresses, the other may stay away.
fn by_udp(server: SocketAddr, questions: &[Message; 2], until: Instant) -> io::Result<[Option<Message>; 2]> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    for question in questions {
        socket.send(&bytes(question)?)?;
    }
    let mut answers = [None, None];
    let mut until = until;
    let mut buffer = [0; 4096];
    while answers.iter().any(Option::is_none) {
        let wait = match left(until) {
            Ok(wait) => wait,
            Err(_) if answers.iter().any(Option::is_some) => break,
            Err(late) => return Err(late),
        };
        socket.set_read_timeout(Some(wait))?;
        let got = match socket.recv(&mut buffer) {
            Ok(got) => got,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let Ok(message) = Message::from_vec(&buffer[..got]) else { continue };
        if let Some(at) = questions.iter().position(|question| belongs(&message, question)) {
            if !message.answers.is_empty() {
                until = until.min(Instant::now() + PATIENCE);
            }
            answers[at] = Some(message);
        }
    }
    Ok(answers)
}

/// One question by TCP: each message behind its length in two bytes (RFC 1035, 4.2.2).
fn by_tcp(server: SocketAddr, question: &Message, until: Instant) -> io::Result<Message> {
    let mut stream = TcpStream::connect_timeout(&server, left(until)?)?;
    let out = bytes(question)?;
    let length = u16::try_from(out.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(&[&length.to_be_bytes(), out.as_slice()].concat())?;
    let mut length = [0; 2];
    read_until(&mut stream, &mut length, until)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    read_until(&mut stream, &mut answer, until)?;
    match Message::from_vec(&answer) {
        Ok(message) if belongs(&message, question) => Ok(message),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is to another question")),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
    }
}

/// Fills `buffer`, in the time that is left in all, however slowly it comes.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
