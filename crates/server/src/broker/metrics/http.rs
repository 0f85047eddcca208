//! HTTP server of the metrics endpoint: limits and request parsing.
//!
//! Nothing of a caller is kept: it gets one answer, and the connection ends. At most a few are answered at a
//! time, and one that sends or takes nothing is hung up on, so that a hostile one costs a thread for seconds.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_sync::threads;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::text::{CONTENT_TYPE, Page};

/// Callers that are answered at the same time; more are hung up on.
const MAX_CONNECTIONS: usize = 16;

/// How long a caller may take to ask, and again to take its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request in bytes, headers included.
const MAX_REQUEST_BYTES: usize = 8 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// How long accepting pauses when the system has no descriptors left.
const ACCEPT_RETRY_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Answers a caller who asks for a path.
pub type Respond = dyn Fn(&str) -> Response + Send + Sync;

/// Answers callers at a non-blocking socket until the other end of `stopped` is closed.
pub fn serve(listener: &TcpListener, stopped: &UnixStream, respond: &Arc<Respond>) {
    let requests = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waiting_for = [PollFd::new(stopped, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, None);
        if !waiting_for[0].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => respond_in_thread(stream, &requests, respond),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                let _ = poll(&mut waiting_for[..1], Some(&ACCEPT_RETRY_DELAY));
            }
        }
    }
}

fn respond_in_thread(stream: TcpStream, requests: &Arc<AtomicUsize>, respond: &Arc<Respond>) {
    if requests.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
        requests.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (own, count) = (Arc::clone(respond), Arc::clone(requests));
    let started = threads::spawn("metrics", move || {
        // A caller that has gone, or takes too long, gets no answer.
        let _ = answer(stream, &*own);
        count.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = started {
        requests.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("cannot serve metrics: starting a thread failed: {error}");
    }
}

fn answer(mut stream: TcpStream, respond: &Respond) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let parsed = read(&mut stream)?;
    let answer = match &parsed {
        HttpRequest::Nothing => return Ok(()),
        HttpRequest::Bad(why) => Response::plain(400, why),
        HttpRequest::TooLong => Response::plain(431, "the request is longer than 8 KiB"),
        HttpRequest::Path { is_head, path } => Response { has_body: !is_head, ..respond(path) },
    };
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let bytes = answer.to_bytes();
    for piece in bytes.chunks(64 << 10) {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// What a caller has sent.
#[derive(Debug, PartialEq, Eq)]
enum HttpRequest {
    /// It has gone before it asked.
    Nothing,
    /// A whole request for a path.
    Path { is_head: bool, path: String },
    /// No request that is understood here.
    Bad(&'static str),
    /// More than a request has.
    TooLong,
}

fn read(stream: &mut TcpStream) -> io::Result<HttpRequest> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut bytes = Vec::new();
    loop {
        if let Some(parsed) = parse(&bytes) {
            return Ok(parsed);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match stream.read(&mut piece)? {
            0 => return Ok(HttpRequest::Nothing),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// What the bytes ask for, once that is known.
fn parse(bytes: &[u8]) -> Option<HttpRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_REQUEST_BYTES => Some(HttpRequest::TooLong),
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(length)) if length > MAX_REQUEST_BYTES => Some(HttpRequest::TooLong),
        Ok(httparse::Status::Complete(_)) => Some(match (request.method, request.path) {
            (Some(method @ ("GET" | "HEAD")), Some(path)) => {
                let path = path.split('?').next().unwrap_or_default().to_owned();
                HttpRequest::Path { is_head: method == "HEAD", path }
            }
            _ => HttpRequest::Bad("only GET and HEAD are answered here"),
        }),
        Err(_) => Some(HttpRequest::Bad("this is not an HTTP request")),
    }
}

/// One answer.
#[derive(Debug)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    body: String,
    has_body: bool,
}

impl Response {
    /// A page of metrics.
    pub fn metrics(page: Page) -> Self {
        Self { status: 200, content_type: CONTENT_TYPE, body: page.finish(), has_body: true }
    }

    /// A line of text with a status of HTTP: 200, 400, 404, 431 or 503.
    pub fn plain(status: u16, text: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n"), has_body: true }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let (status, kind, length) = (self.status, self.content_type, self.body.len());
        let mut bytes = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\n\r\n"
        )
        .into_bytes();
        if self.has_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str, is_head: bool) -> Option<HttpRequest> {
        Some(HttpRequest::Path { is_head, path: text.to_owned() })
    }

    #[test]
    fn a_request_is_answered_when_it_is_whole() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end} bytes");
        }
        assert_eq!(parse(whole), path("/metrics", false));
        assert_eq!(parse(b"HEAD / HTTP/1.0\r\n\r\n"), path("/", true));
    }

    #[test]
    fn what_is_no_request_is_known_as_such() {
        assert!(matches!(parse(b"POST / HTTP/1.1\r\n\r\n"), Some(HttpRequest::Bad(_))));
        assert!(matches!(parse(b"CSWY\0\0\0\0"), Some(HttpRequest::Bad(_))));
        let mut long = b"GET / HTTP/1.1\r\nA: ".to_vec();
        long.resize(MAX_REQUEST_BYTES, b'a');
        assert_eq!(parse(&long), Some(HttpRequest::TooLong));
        let mut many = b"GET / HTTP/1.1\r\n".to_vec();
        (0..=MAX_HEADERS).for_each(|_| many.extend(b"a: b\r\n"));
        many.extend(b"\r\n");
        assert!(matches!(parse(&many), Some(HttpRequest::Bad(_))));
    }
}
