//! A name server that answers as it is told, by UDP and TCP on one port.

use super::dns::resolve;
use super::dns_config::DnsConfig;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the server does with a question: any number of raw datagrams.
type Reply = dyn Fn(&Message, bool) -> Vec<Vec<u8>> + Send + Sync;

struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    fn start(reply: impl Fn(&Message, bool) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let reply: Arc<Reply> = Arc::new(reply);
        let (seen, say) = (asked.clone(), reply.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((got, from)) = udp.recv_from(&mut buffer) {
                let Ok(question) = Message::from_vec(&buffer[..got]) else { continue };
                seen.lock().unwrap().push(label(&question, "udp"));
                for datagram in say(&question, false) {
                    let _ = udp.send_to(&datagram, from);
                }
            }
        });
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut question).unwrap();
                let question = Message::from_vec(&question).unwrap();
                seen.lock().unwrap().push(label(&question, "tcp"));
                for answer in reply(&question, true) {
                    let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&answer);
                }
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn label(question: &Message, how: &str) -> String {
    let query = &question.queries[0];
    format!("{how} {} {}", query.name(), query.query_type())
}

/// An answer to `question` with these records and code.
fn answer(question: &Message, code: ResponseCode, records: Vec<Record>) -> Message {
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata.response_code = code;
    message.add_queries(question.queries.clone());
    message.add_answers(records);
    message
}

fn record(name: &str, data: RData) -> Record {
    Record::from_rdata(Name::from_ascii(name).unwrap(), 60, data)
}

fn is(question: &Message, name: &str, kind: RecordType) -> bool {
    let query = &question.queries[0];
    query.query_type() == kind && query.name().to_ascii() == name
}

fn config(servers: &[SocketAddr], text: &str) -> DnsConfig {
    DnsConfig { servers: servers.to_vec(), timeout: Duration::from_millis(300), ..DnsConfig::parse(text) }
}

fn ask(config: &DnsConfig, host: &str) -> Result<Vec<String>, String> {
    let found = resolve(config, host, Instant::now() + Duration::from_secs(5))?;
    Ok(found.iter().map(ToString::to_string).collect())
}

fn bytes(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

#[test]
fn both_kinds_of_address_are_found_through_aliases_and_search_domains() {
    let server = NameServer::start(|question, _| {
        let records = if is(question, "reg.corp.example.", RecordType::A) {
            vec![
                record("reg.corp.example.", RData::CNAME(CNAME(Name::from_ascii("Host.Example.").unwrap()))),
                record("host.example.", RData::A(A::new(10, 0, 0, 7))),
                record("stranger.example.", RData::A(A::new(6, 6, 6, 6))),
            ]
        } else if is(question, "reg.corp.example.", RecordType::AAAA) {
            vec![record("reg.corp.example.", RData::AAAA(AAAA("2001:db8::7".parse().unwrap())))]
        } else {
            return vec![bytes(&answer(question, ResponseCode::NXDomain, Vec::new()))];
        };
        vec![bytes(&answer(question, ResponseCode::NoError, records))]
    });
    let config = config(&[server.address], "search none.example corp.example");
    assert_eq!(ask(&config, "reg").unwrap(), ["10.0.0.7", "2001:db8::7"]);
    assert!(server.asked().iter().all(|q| q.starts_with("udp")));
    assert_eq!(ask(&config, "reg.").unwrap_err(), "no such name");
    assert_eq!(ask(&config, "not a name \u{7f}..").unwrap_err(), "not a name that a name server can know");
}

#[test]
fn an_answer_that_was_cut_is_asked_for_by_tcp() {
    let server = NameServer::start(|question, tcp| {
        let mut records = Vec::new();
        if is(question, "big.example.", RecordType::A) && tcp {
            records = (1..=30).map(|i| record("big.example.", RData::A(A::new(10, 0, 0, i)))).collect();
        }
        let mut message = answer(question, ResponseCode::NoError, records);
        message.metadata.truncation = !tcp && is(question, "big.example.", RecordType::A);
        vec![bytes(&message)]
    });
    assert_eq!(ask(&config(&[server.address], ""), "big.example").unwrap().len(), 16);
    assert!(server.asked().contains(&"tcp big.example. A".to_owned()));
}

#[test]
fn forged_and_broken_answers_are_not_listened_to() {
    let server = NameServer::start(|question, _| {
        let good = |address: [u8; 4]| match question.queries[0].query_type() {
            RecordType::A => {
                let [a, b, c, d] = address;
                vec![record("reg.example.", RData::A(A::new(a, b, c, d)))]
            }
            _ => Vec::new(),
        };
        let mut other_id = answer(question, ResponseCode::NoError, good([6, 6, 6, 6]));
        other_id.metadata.id = question.metadata.id.wrapping_add(1);
        let mut no_answer = answer(question, ResponseCode::NoError, good([6, 6, 6, 6]));
        no_answer.metadata.message_type = MessageType::Query;
        let mut other_name = answer(question, ResponseCode::NoError, good([6, 6, 6, 6]));
        other_name.queries[0].set_name(Name::from_ascii("else.example.").unwrap());
        let mut cut = bytes(&answer(question, ResponseCode::NoError, good([6, 6, 6, 6])));
        cut.truncate(14);
        let right = answer(question, ResponseCode::NoError, good([10, 0, 0, 1]));
        vec![vec![0xff; 3], cut, bytes(&other_id), bytes(&no_answer), bytes(&other_name), bytes(&right)]
    });
    assert_eq!(ask(&config(&[server.address], ""), "reg.example").unwrap(), ["10.0.0.1"]);
}

#[test]
fn a_server_that_is_silent_or_in_trouble_gives_way_to_the_next() {
    let silent = NameServer::start(|_, _| Vec::new());
    let troubled =
        NameServer::start(|question, _| vec![bytes(&answer(question, ResponseCode::ServFail, Vec::new()))]);
    let good = NameServer::start(|question, _| {
        let records = match question.queries[0].query_type() {
            RecordType::A => vec![record("reg.example.", RData::A(A::new(10, 0, 0, 1)))],
            _ => return Vec::new(),
        };
        vec![bytes(&answer(question, ResponseCode::NoError, records))]
    });
    // The last one never answers for AAAA: what it gave for A is enough.
    let config_all = config(&[silent.address, troubled.address, good.address], "");
    assert_eq!(ask(&config_all, "reg.example").unwrap(), ["10.0.0.1"]);
    let why = ask(&config(&[troubled.address], "options attempts:1"), "reg.example").unwrap_err();
    assert_eq!(why, "the name server 127.0.0.1 says Server Failure");
    let before = silent.asked().len();
    let why = ask(&config(&[silent.address], "options attempts:1"), "reg.example").unwrap_err();
    assert_eq!(why, "the name server 127.0.0.1 does not answer: no answer in time");
    // Once for each kind of address, and not again.
    assert_eq!(silent.asked().len() - before, 2, "{:?}", silent.asked());
}
