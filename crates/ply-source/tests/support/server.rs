//! A server that misbehaves as it is told. Each request is remembered; one thread a connection, one request a connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A request: the path, and its headers as they came.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

type Handler = dyn Fn(&Request, usize, &mut TcpStream) + Send + Sync;

pub struct Server {
    pub address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server on a port of its own. The handler gets the request, how often this path was asked before, and
    /// the connection.
    pub fn start(handler: impl Fn(&Request, usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let ended = Arc::new(AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(handler);
        let (seen, over) = (requests.clone(), ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(mut stream), handler, seen) = (stream, handler.clone(), seen.clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let Some(request) = read_request(&mut stream) else { return };
                    let before = {
                        let mut seen = seen.lock().unwrap();
                        let before = seen.iter().filter(|r| r.path == request.path).count();
                        seen.push(request.clone());
                        before
                    };
                    handler(&request, before, &mut stream);
                });
            }
        });
        Self { address, requests, ended }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|r| r.path).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn read_request(stream: &mut impl Read) -> Option<Request> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).ok()?;
    let mut lines = text.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    Some(Request { path, headers })
}

/// A whole answer.
pub fn answer(stream: &mut impl Write, status: &str, headers: &str, body: &[u8]) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    let _ = stream.write_all(body);
    let _ = stream.flush();
}

/// A head that promises `claimed` bytes, and then these.
pub fn claim(stream: &mut impl Write, claimed: u64, headers: &str, body: &[u8]) {
    let _ =
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {claimed}\r\n{headers}\r\n");
    let _ = stream.write_all(body);
    let _ = stream.flush();
}

/// The rest of `body` that a Range request asks for, as 206.
pub fn rest(stream: &mut impl Write, request: &Request, headers: &str, body: &[u8]) {
    let range = request
        .header("range")
        .and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    match range {
        Some(from) if from < body.len() => {
            let span = format!("Content-Range: bytes {from}-{}/{}\r\n{headers}", body.len() - 1, body.len());
            answer(stream, "206 Partial Content", &span, &body[from..]);
        }
        Some(_) => answer(stream, "416 Range Not Satisfiable", headers, b""),
        None => answer(stream, "200 OK", headers, body),
    }
}
