//! Redis: `GET` and `SET`, and scripts for the scan and the read-modify-write. Keys and records are the bytes of their words.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::operation::{Answer, Operation, filled, first_amount, words};
use super::{Connections, address, clients, work};
use crate::kv::{Kind, Listening, RECORDS};
use crate::program::Starter;

/// Counts the records of a range whose amount is large enough: `KEYS` are none, `ARGV` the words of [`Scan`].
///
/// [`Scan`]: ifunc_bench_ifuncs::kv::Scan
const SCAN: &str = "local keys = {} \
    for key = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do keys[#keys + 1] = struct.pack('<I8', key) end \
    local least, records, sum = tonumber(ARGV[3]), 0, 0 \
    for _, record in ipairs(redis.call('MGET', unpack(keys))) do \
        local amount = struct.unpack('<I8', record) \
        if amount >= least then records = records + 1; sum = sum + amount end \
    end \
    return {records, sum}";

/// Adds to an amount, up to a limit: the key, what is added, and the limit.
const ADD: &str = "local record = redis.call('GET', KEYS[1]) \
    if not record then return false end \
    local amount = math.min(struct.unpack('<I8', record) + tonumber(ARGV[1]), tonumber(ARGV[2])) \
    redis.call('SETRANGE', KEYS[1], 0, struct.pack('<I8', amount)) \
    return amount";

/// Timeout of an answer, and of the server's start.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts `redis-server` at `BENCH_ADDRESS`: `unix:PATH` or `HOST:0`.
pub(in crate::roles) fn server(mut starter: Starter) -> Result<()> {
    let address = address()?;
    let mut redis = Command::new("setpriv");
    // It must not outlive this program, whose core it shares.
    redis.args([
        "--pdeathsig",
        "KILL",
        "redis-server",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    redis.args(["--daemonize", "no", "--loglevel", "warning", "--dir"]);
    redis.arg(std::env::temp_dir());
    let address = match address.strip_prefix("unix:") {
        Some(path) => {
            redis.args(["--port", "0", "--unixsocket", path]);
            address.clone()
        }
        None => {
            let free = TcpListener::bind(&address).context("looking for a free port")?;
            let free = free.local_addr()?;
            redis.args([
                "--bind",
                &free.ip().to_string(),
                "--port",
                &free.port().to_string(),
            ]);
            free.to_string()
        }
    };
    let mut child = redis
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("starting redis-server; help: apt-get install redis-server")?;
    let until = Instant::now() + TIMEOUT;
    let mut connection = loop {
        match Connection::connect(&address) {
            Ok(connection) => break connection,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        if let Some(status) = child.try_wait()? {
            bail!("redis-server ended: {status}");
        }
    };
    connection.fill()?;
    starter.reply(&Listening {
        address,
        process: child.id(),
    })?;
    starter.wait_for_end()?;
    bail!("redis-server ended: {}", child.wait()?)
}

/// A connected socket.
trait Stream: Read + Write + AsFd {}

impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A client's connection.
struct Connection {
    socket: Box<dyn Stream>,
    /// A request.
    request: Vec<u8>,
    /// What has been read of its answer.
    received: Vec<u8>,
    /// The operation under way.
    kind: Kind,
    /// The names of the scripts.
    scripts: [String; 2],
}

impl Connection {
    fn connect(address: &str) -> Result<Self> {
        let socket: Box<dyn Stream> = match address.strip_prefix("unix:") {
            Some(path) => Box::new(UnixStream::connect(Path::new(path))?),
            None => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
        };
        let mut connection = Self {
            socket,
            request: Vec::new(),
            received: Vec::new(),
            kind: Kind::Get,
            scripts: Default::default(),
        };
        connection.scripts = [connection.load(SCAN)?, connection.load(ADD)?];
        Ok(connection)
    }

    /// Loads a script. Returns its name.
    fn load(&mut self, script: &str) -> Result<String> {
        self.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        self.send()?;
        self.answer(|value| match value {
            Value::Bytes(name) => Ok(std::str::from_utf8(name)?.to_owned()),
            other => bail!("redis-server answered {other:?} to a script"),
        })
    }

    /// Stores all records.
    fn fill(&mut self) -> Result<()> {
        for key in 0..RECORDS {
            let record = bytes(&words(&filled(first_amount(key), key)));
            self.command(&[b"SET", &key.to_le_bytes(), &record]);
            self.send()?;
            self.answer(|value| match value {
                Value::Status => Ok(()),
                other => bail!("redis-server answered {other:?} to a record"),
            })?;
        }
        Ok(())
    }

    /// Appends a command to the request.
    fn command(&mut self, parts: &[&[u8]]) {
        let request = &mut self.request;
        // Writing to a vector cannot fail.
        let _ = write!(request, "*{}\r\n", parts.len());
        for part in parts {
            let _ = write!(request, "${}\r\n", part.len());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) -> Result<()> {
        self.socket.write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    fn start(&mut self, operation: &Operation) -> Result<()> {
        self.kind = operation.kind();
        let [scan, add] = std::mem::take(&mut self.scripts);
        let text = |number: u64| number.to_string().into_bytes();
        match operation {
            Operation::Get(key) => self.command(&[b"GET", &key.to_le_bytes()]),
            Operation::Put(put) => {
                let record = bytes(&words(&put.record));
                self.command(&[b"SET", &put.key.to_le_bytes(), &record]);
            }
            Operation::Scan(of) => {
                let [first, end, least] = [of.first, of.end, of.least].map(text);
                self.command(&[b"EVALSHA", scan.as_bytes(), b"0", &first, &end, &least]);
            }
            Operation::Add(of) => {
                let (key, [more, most]) = (of.key.to_le_bytes(), [of.more, of.most].map(text));
                self.command(&[b"EVALSHA", add.as_bytes(), b"1", &key, &more, &most]);
            }
        }
        self.scripts = [scan, add];
        self.send()
    }

    /// Waits for the answer of the operation under way.
    fn finish(&mut self) -> Result<Answer> {
        let kind = self.kind;
        self.answer(|value| match (kind, value) {
            (Kind::Get, Value::Nothing) => Ok(Answer::Record(None)),
            (Kind::Get, Value::Bytes(record)) => {
                let (words, rest) = record.as_chunks::<8>();
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                ensure!(rest.is_empty(), "a record of {} bytes", record.len());
                Answer::read(kind, &words)
            }
            (Kind::Put, Value::Status) => Ok(Answer::Stored),
            (Kind::Scan, Value::Numbers(numbers)) => Answer::read(kind, &numbers),
            (Kind::Add, Value::Nothing) => Answer::read(kind, &[]),
            (Kind::Add, Value::Number(amount)) => Answer::read(kind, &[amount]),
            (_, other) => bail!("redis-server answered {other:?} to {kind:?}"),
        })
    }

    /// Waits for an answer.
    fn answer<T>(&mut self, of: impl FnOnce(Value<'_>) -> Result<T>) -> Result<T> {
        loop {
            if let Some((value, len)) = Value::read(&self.received)? {
                ensure!(
                    len == self.received.len(),
                    "redis-server answered more than one request"
                );
                let answer = of(value);
                self.received.clear();
                return answer;
            }
            let mut buffer = [0; 4096];
            let len = match self.socket.read(&mut buffer) {
                Ok(0) => bail!("redis-server hung up"),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.received.extend_from_slice(&buffer[..len]);
        }
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What Redis answers.
#[derive(Debug, PartialEq, Eq)]
enum Value<'a> {
    Status,
    Number(u64),
    Bytes(&'a [u8]),
    Nothing,
    Numbers(Vec<u64>),
}

impl<'a> Value<'a> {
    /// A value and its length; `None`: more of it is to come.
    fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let (line, mut len) = (std::str::from_utf8(&bytes[..end])?, end + 2);
        let Some((kind, line)) = line.split_at_checked(1) else {
            bail!("redis-server answered an empty line")
        };
        let value = match kind {
            "+" => Self::Status,
            ":" => Self::Number(line.parse()?),
            "$" if line == "-1" => Self::Nothing,
            "$" => {
                let size: usize = line.parse()?;
                let Some(value) = bytes.get(len..len + size) else {
                    return Ok(None);
                };
                len += size + 2;
                Self::Bytes(value)
            }
            "*" => {
                let mut numbers = Vec::new();
                for _ in 0..line.parse()? {
                    match Value::read(&bytes[len..])? {
                        Some((Value::Number(number), more)) => {
                            numbers.push(number);
                            len += more;
                        }
                        Some(other) => bail!("redis-server answered {other:?} in a list"),
                        None => return Ok(None),
                    }
                }
                Self::Numbers(numbers)
            }
            _ => bail!("redis-server answered {kind}{line}"),
        };
        Ok((len <= bytes.len()).then_some((value, len)))
    }
}

struct Redis(Vec<Connection>);

impl Connections for Redis {
    fn start(&mut self, client: usize, operation: &Operation) -> Result<()> {
        self.0[client].start(operation)
    }

    fn answers(&mut self, into: &mut Vec<(usize, Answer)>) -> Result<()> {
        if let [alone] = self.0.as_mut_slice() {
            into.push((0, alone.finish()?));
            return Ok(());
        }
        let sockets = self
            .0
            .iter()
            .map(|connection| PollFd::new(&connection.socket, PollFlags::IN));
        let mut sockets: Vec<_> = sockets.collect();
        let timeout = Timespec {
            tv_sec: TIMEOUT.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let ready = poll(&mut sockets, Some(&timeout))?;
        ensure!(
            ready > 0,
            "redis-server has not answered for {} s",
            TIMEOUT.as_secs()
        );
        let ready: Vec<bool> = sockets
            .iter()
            .map(|socket| !socket.revents().is_empty())
            .collect();
        for (client, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            into.push((client, self.0[client].finish()?));
        }
        Ok(())
    }
}

/// Connects to the server at `BENCH_ADDRESS`.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let address = address()?;
    let connections = (0..clients()?).map(|_| Connection::connect(&address));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let carried_by = match address.starts_with("unix:") {
        true => "a Unix socket",
        false => "TCP",
    };
    starter.reply(&carried_by)?;
    work(starter, Redis(connections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let answers = [
            (&b"+OK\r\n"[..], Value::Status),
            (b":17\r\n", Value::Number(17)),
            (b"$-1\r\n", Value::Nothing),
            (b"$4\r\na\r\nb\r\n", Value::Bytes(b"a\r\nb")),
            (b"*2\r\n:1\r\n:22\r\n", Value::Numbers(vec![1, 22])),
        ];
        for (bytes, value) in answers {
            for len in 0..bytes.len() {
                assert_eq!(Value::read(&bytes[..len]).unwrap(), None, "{len} of {bytes:?}");
            }
            assert_eq!(Value::read(bytes).unwrap(), Some((value, bytes.len())));
        }
        assert!(
            Value::read(b"-ERR no\r\n")
                .unwrap_err()
                .to_string()
                .contains("-ERR no")
        );
    }
}
