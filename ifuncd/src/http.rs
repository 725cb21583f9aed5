//! The address of the metrics: HTTP/1.1, one request per connection, bounded in time and size.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::audit;

/// Longest head of a request.
const MAX_HEAD: usize = 8 << 10;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// How long a request and its answer may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Requests at a time.
const MAX_REQUESTS: usize = 16;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `200 OK`.
    pub status: &'static str,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// An answer of one line.
    #[must_use]
    pub fn text(status: &'static str, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{body}\n"),
        }
    }
}

/// Serves paths on a thread of its own, for as long as the process lives. Returns the address.
///
/// # Errors
/// The address is taken.
pub fn serve(
    address: SocketAddr,
    answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let (answer, running) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    thread::Builder::new().name("metrics".into()).spawn(move || {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, for example.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let Some(running) = Running::begin(&running) else {
                audit::request_refused(stream.peer_addr().ok(), "too many at a time");
                continue;
            };
            let answer = Arc::clone(&answer);
            let request = move || {
                let _running = running;
                if let Err(reason) = one(&stream, &*answer) {
                    audit::request_refused(stream.peer_addr().ok(), reason);
                }
            };
            // A request without a thread ends here.
            let _ = thread::Builder::new().name("metrics".into()).spawn(request);
        }
    })?;
    Ok(address)
}

/// A request that is answered; dropped, by a panic too, it is over.
struct Running(Arc<AtomicUsize>);

impl Running {
    /// `None`: as many are answered as may be.
    fn begin(running: &Arc<AtomicUsize>) -> Option<Self> {
        let this = Self(Arc::clone(running));
        (this.0.fetch_add(1, Ordering::AcqRel) < MAX_REQUESTS).then_some(this)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves one request.
///
/// # Errors
/// Why it was refused. One whose peer has gone was not.
fn one(stream: &TcpStream, answer: &impl Fn(&str) -> Option<Answer>) -> Result<(), &'static str> {
    let began = Instant::now();
    let answer = match read(stream, began, answer) {
        Ok(Some(answer)) => answer,
        Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            return Err("it did not arrive in time");
        }
        Ok(None) | Err(_) => return Ok(()),
    };
    let status = answer.status;
    // The peer learns of an error by the end of its connection.
    let _ = write(stream, began, answer);
    match status.starts_with('4') {
        true => Err(status),
        false => Ok(()),
    }
}

/// The time that a request has left.
fn left(began: Instant) -> io::Result<Option<Duration>> {
    let left = DEADLINE.checked_sub(began.elapsed());
    match left.filter(|left| !left.is_zero()) {
        None => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Reads a request. Returns its answer; `None`: the peer has gone.
fn read(
    mut stream: &TcpStream,
    began: Instant,
    answer: &impl Fn(&str) -> Option<Answer>,
) -> io::Result<Option<Answer>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        stream.set_read_timeout(left(began)?)?;
        let mut part = [0; 1024];
        let len = stream.read(&mut part)?;
        if len == 0 {
            return Ok(None);
        }
        head.extend_from_slice(&part[..len]);
        if let Some(answer) = answer_of(&head, answer) {
            return Ok(Some(answer));
        }
    }
}

/// Writes an answer.
fn write(mut stream: &TcpStream, began: Instant, answer: Answer) -> io::Result<()> {
    let Answer {
        status,
        content_type,
        body,
    } = answer;
    let len = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(left(began)?)?;
        let len = stream.write(rest)?;
        rest = &rest[len..];
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// The answer to what has arrived; `None`: the head is not complete.
fn answer_of(head: &[u8], answer: &impl Fn(&str) -> Option<Answer>) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() <= MAX_HEAD => None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => Some(Answer::text(
            "431 Request Header Fields Too Large",
            "the head is too long",
        )),
        Err(_) => Some(Answer::text("400 Bad Request", "this is no request of HTTP/1.1")),
        Ok(httparse::Status::Complete(_)) if request.method != Some("GET") => {
            Some(Answer::text("405 Method Not Allowed", "only GET is answered"))
        }
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            let found = answer(path);
            Some(found.unwrap_or_else(|| Answer::text("404 Not Found", "there are /metrics and /health")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let any = "127.0.0.1:0".parse().unwrap();
        let answer = |path: &str| {
            assert_ne!(path, "/panic");
            (path == "/health").then(|| Answer::text("200 OK", "ok"))
        };
        let address = serve(any, answer).unwrap();
        // Requests whose answer panics are over, too.
        for _ in 0..2 * MAX_REQUESTS {
            assert_eq!(ask(address, b"GET /panic HTTP/1.1\r\n\r\n"), "");
        }
        let found = ask(address, b"GET /health?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("\r\n\r\nok\n"),
            "{found}"
        );
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, b"POST /health HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(address, b"\x16\x03\x01\x02\x00\x01").starts_with("HTTP/1.1 400"));
        let many = [b"GET / HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(65), b"\r\n"].concat();
        assert!(ask(address, &many).starts_with("HTTP/1.1 431"));
        let long = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; MAX_HEAD]].concat();
        assert!(ask(address, &long).starts_with("HTTP/1.1 431"));
        // In pieces, too.
        let mut stream = TcpStream::connect(address).unwrap();
        for part in [b"GET /heal".as_slice(), b"th HTTP/1.1\r\n", b"\r\n"] {
            stream.write_all(part).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        let mut found = String::new();
        stream.read_to_string(&mut found).unwrap();
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    }
}
