//! The source's role: does what it reads on its standard input, one line after the other, and says before each attempt
//! to send what it is about to send (`~`), and afterwards what became of it (`=`). What it has said is its record, which
//! outlives it in the pipe.
//!
//! ```text
//! arm POINTS                      = armed
//! connect NAME ADDRESS MS MS      = connected NAME          (deadline of waits; how long to try to connect again)
//! send NAME IFUNC ID STAND SIZE   ~ ID send NAME …          = sent ID OUTCOME
//! call NAME IFUNC ID STAND SIZE   ~ ID call NAME …          = called ID OUTCOME
//! tour NAME ID STAND ROUTE MS     ~ ID tour NAME …          = called ID OUTCOME   (visit that stands still; nodes; deadline)
//! wait ID MS                      = done ID OUTCOME
//! group NAME                      = group NAME slots N outbox N
//! flush NAME                      = flushed NAME OUTCOME
//! drop NAME                       = dropped NAME
//! ```

use std::collections::HashMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use ifunc_rt::{ByName, Call, Error, Handle, Source, SourceOptions, failpoints};

use super::role::{IFUNCS, TOUR, answer, begin, say};

type Failure = Box<dyn std::error::Error>;

/// A connection and what is sent over it.
struct Line {
    source: Source,
    ifuncs: HashMap<&'static str, Handle<ByName>>,
}

#[derive(Default)]
struct Role {
    lines: HashMap<String, Line>,
    calls: HashMap<u64, Call<Vec<u8>>>,
}

/// Does what it reads until that ends.
///
/// # Errors
/// Something that it was told makes no sense.
pub fn run() -> Result<(), Failure> {
    begin()?;
    let mut role = Role::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let said = role.obey(&line).map_err(|error| format!("`{line}`: {error}"))?;
        say(&format!("= {said}"));
    }
    Ok(())
}

impl Role {
    fn obey(&mut self, line: &str) -> Result<String, Failure> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["arm", points] => {
                failpoints::arm(points)?;
                Ok("armed".into())
            }
            ["connect", name, address, timeout, reconnect] => {
                let milliseconds = |text: &str| text.parse().map(Duration::from_millis);
                let options = SourceOptions::default()
                    .timeout(milliseconds(timeout)?)
                    .reconnect(milliseconds(reconnect)?)
                    .connect_timeout(super::TIMEOUT);
                let source = match Source::connect_with(address, options) {
                    Ok(source) => source,
                    Err(error) => return Ok(format!("not connected: {error}")),
                };
                let ifuncs = IFUNCS
                    .iter()
                    .chain(&[TOUR])
                    .map(|&name| Ok((name, load(&source, name)?)))
                    .collect::<Result<_, Failure>>()?;
                self.lines.insert(name.into(), Line { source, ifuncs });
                Ok(format!("connected {name}"))
            }
            [kind @ ("send" | "call"), name, ifunc, id, stand, size] => {
                let number: u64 = id.parse()?;
                let line = self.lines.get(name).ok_or("no such connection")?;
                let ifunc = line.ifuncs.get(ifunc).ok_or("no such ifunc")?;
                let mut payload = number.to_le_bytes().to_vec();
                payload.push(u8::from(stand == "stand"));
                payload.resize(size.parse()?, 0x5a);
                say(&format!("~ {id} {kind} {name}"));
                if kind == "send" {
                    return Ok(format!(
                        "sent {id} {}",
                        outcome(ifunc.send(&payload).map(|()| "ok".into()))
                    ));
                }
                let called = ifunc.call(&payload).map(|call| {
                    self.calls.insert(number, call);
                    "ok".into()
                });
                Ok(format!("called {id} {}", outcome(called)))
            }
            ["tour", name, id, stand, route, timeout] => {
                let number: u64 = id.parse()?;
                let line = self.lines.get(name).ok_or("no such connection")?;
                let tour = line.ifuncs.get(TOUR).ok_or("no such ifunc")?;
                let route: Vec<u32> = route.split(',').map(str::parse).collect::<Result<_, _>>()?;
                // As the struct `FaultTour`.
                let mut payload = number.to_le_bytes().to_vec();
                let nodes = route.iter().copied().chain(std::iter::repeat(0)).take(4);
                for word in nodes.chain([0, route.len() as u32, stand.parse()?, 0]) {
                    payload.extend_from_slice(&word.to_le_bytes());
                }
                say(&format!("~ {id} tour {name}"));
                let timeout = Duration::from_millis(timeout.parse()?);
                let called = tour.with_timeout(timeout).call(&payload).map(|call| {
                    self.calls.insert(number, call);
                    "ok".into()
                });
                Ok(format!("called {id} {}", outcome(called)))
            }
            ["group", name] => {
                let line = self.lines.get(name).ok_or("no such connection")?;
                let stats = line.source.target_stats(super::TIMEOUT)?;
                let group = stats.group.ok_or("it is no node")?;
                Ok(format!(
                    "group {name} slots {} outbox {}",
                    group.slots, group.outbox_bytes
                ))
            }
            ["wait", id, timeout] => {
                let number = id.parse()?;
                let call = self.calls.get_mut(&number).ok_or("no such call")?;
                let result = call.wait_timeout(Duration::from_millis(timeout.parse()?));
                if !matches!(result, Err(Error::Timeout { .. })) {
                    self.calls.remove(&number);
                }
                let result = result.map(|bytes| match answer(&bytes) {
                    Some((of, sender)) if of == number => format!("executed {sender}"),
                    _ => format!("wrong answer {bytes:?}"),
                });
                Ok(format!("done {id} {}", outcome(result)))
            }
            ["flush", name] => {
                let line = self.lines.get(name).ok_or("no such connection")?;
                let flushed = line.source.flush().map(|()| "ok".into());
                Ok(format!("flushed {name} {}", outcome(flushed)))
            }
            ["drop", name] => {
                self.lines.remove(name).ok_or("no such connection")?;
                Ok(format!("dropped {name}"))
            }
            _ => Err("no such command".into()),
        }
    }
}

fn load(source: &Source, name: &str) -> Result<Handle<ByName>, Failure> {
    let folder = std::env::var_os("FAULT_LIBRARIES").ok_or("FAULT_LIBRARIES is not set")?;
    let path = PathBuf::from(folder).join(name).with_extension("so");
    let bytes = std::fs::read(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    Ok(source.load_bytes(&bytes)?)
}

/// In one word, if it is one of those that matter here.
fn outcome(result: Result<String, Error>) -> String {
    match result {
        Ok(said) => said,
        Err(Error::Timeout { .. }) => "timeout".into(),
        Err(Error::PeerGone { .. }) => "peer-gone".into(),
        Err(Error::Indeterminate { .. }) => "indeterminate".into(),
        Err(Error::Earlier(error)) => format!("earlier {}", outcome(Err(*error))),
        Err(error) => format!("error {error}"),
    }
}
