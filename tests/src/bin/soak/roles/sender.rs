//! A source that sends: messages of all sizes, by all ways of sending, over one connection after the other, with new code
//! all along. Every answer is checked where it arrives; the ledger entry of the connection is closed at the end of each connection.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use ifunc_abi::slices::{self, RawSlice, Slices};
use ifunc_rt::{ByName, Call, Handle, Message, Source};

use super::random::Random;
use super::{Arguments, Result, connect, library, say};
use crate::hash;
use crate::ledger::{turn, words};

/// Where payloads are cut from. Longer than the longest of them.
const POOL: usize = 4 << 20;
/// Calls that are not waited for yet, at most.
const CALLS: usize = 32;
/// Builds of an ifunc that differ: more than a target of the soak keeps installed.
const VARIANTS: u64 = 400;
/// Stands in the images before the number that tells them apart.
const MARK: [u64; 2] = [0x5eed_c0de_0dd5_0a4b, 0x1f0c_5a1e_7a57_e9d3];

/// What to do until when.
struct Plan {
    messages: u64,
    until: Instant,
    /// Messages between two connections, on average.
    connection: u64,
    /// Messages between two new images, on average.
    code: u64,
}

/// A source, over all its connections.
struct Sender {
    source: u64,
    random: Random,
    pool: Vec<u8>,
    /// Libraries, and where in them a number tells one image from another.
    libraries: [Library; 2],
    sent: u64,
    bytes: u64,
    calls: u64,
    connections: u64,
    installs: u64,
    hash: u64,
    said: Instant,
}

/// An ifunc on a connection.
struct Code {
    loaded: Handle<ByName>,
    variant: u64,
    message: Option<Message<ByName>>,
}

/// A connection.
struct Session {
    source: Source,
    codes: Vec<Code>,
    count: u64,
    hash: u64,
    calls: VecDeque<(Call<Vec<u8>>, [u64; 3])>,
}

/// `source`, `messages`, `milliseconds`, `connection`, `code`, `seed`.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let source = args.number("source")?;
    let seed: u64 = args.number("seed")?;
    let mut random = Random::new(seed.wrapping_add(source));
    let plan = Plan {
        messages: args.number("messages")?,
        until: Instant::now() + Duration::from_millis(args.number("milliseconds")?),
        connection: args.number("connection")?,
        code: args.number("code")?,
    };
    let pool = (0..POOL / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut sender = Sender {
        source,
        random,
        pool,
        libraries: [marked(args, "t_soak")?, marked(args, "t_c_soak")?],
        sent: 0,
        bytes: 0,
        calls: 0,
        connections: 0,
        installs: 0,
        hash: 0,
        said: Instant::now(),
    };
    while sender.goes_on(&plan) {
        sender.session(args, &plan)?;
    }
    say(&format!(
        "done messages={} connections={} hash={} bytes={} calls={} installs={}",
        sender.sent, sender.connections, sender.hash, sender.bytes, sender.calls, sender.installs
    ));
    Ok(())
}

/// The library of an ifunc, and where in it the number is.
fn marked(args: &Arguments<'_>, name: &str) -> Result<Library> {
    let bytes = std::fs::read(library(args, name)?)?;
    let mark: Vec<u8> = MARK.iter().flat_map(|word| word.to_le_bytes()).collect();
    // Once in the image, and once in the library that was linked from the same objects.
    let places: Vec<usize> = (0..bytes.len() - mark.len() - 8)
        .filter(|&at| bytes[at..].starts_with(&mark))
        .map(|at| at + mark.len())
        .collect();
    let tables = (0..bytes.len())
        .filter(|&at| bytes[at..].starts_with(&slices::MAGIC) && is_of_images(&bytes[at..]))
        .collect();
    match places.is_empty() {
        false => Ok(Library {
            bytes,
            places,
            tables,
        }),
        true => Err(format!("`{name}.so` does not hold the mark").into()),
    }
}

/// A library whose code has a number that is changed.
struct Library {
    bytes: Vec<u8>,
    /// Where the number lies.
    places: Vec<usize>,
    /// Where the tables of its images begin, which state what an image is.
    tables: Vec<usize>,
}

impl Library {
    fn set(&mut self, number: u64) {
        for &at in &self.places {
            self.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for &table in &self.tables {
            let ids = Slices::parse_first(&self.bytes[table..]).map_or_else(
                |_| Vec::new(),
                |slices| slices.all().map(|slice| blake3::hash(slice.bytes)).collect(),
            );
            for (index, id) in ids.into_iter().enumerate() {
                let at = table + 8 + index * size_of::<RawSlice>() + offset_of!(RawSlice, id);
                self.bytes[at..at + 32].copy_from_slice(id.as_bytes());
            }
        }
    }
}

/// Whether a table of slices begins these bytes, and holds images: those of debug objects state the ids of others.
fn is_of_images(bytes: &[u8]) -> bool {
    Slices::parse_first(bytes).is_ok_and(|slices| {
        let mut all = slices.all();
        all.all(|slice| *blake3::hash(slice.bytes).as_bytes() == slice.id)
    })
}

impl Sender {
    fn goes_on(&self, plan: &Plan) -> bool {
        self.sent < plan.messages && Instant::now() < plan.until
    }

    /// One connection, from hello to goodbye.
    fn session(&mut self, args: &Arguments<'_>, plan: &Plan) -> Result {
        let source = connect(args)?;
        // SAFETY: built from this checkout.
        let opened = unsafe {
            [
                source.load_path(library(args, "t_soak")?)?,
                source.load_path(library(args, "t_c_soak")?)?,
            ]
        };
        // SAFETY: as above.
        let ledger = unsafe { source.load_path(library(args, "t_soak_turn")?)? };
        let codes = opened.into_iter().map(|loaded| Code {
            loaded,
            variant: 0,
            message: None,
        });
        let mut session = Session {
            source,
            codes: codes.collect(),
            count: 0,
            hash: 0,
            calls: VecDeque::new(),
        };
        for which in 0..2 {
            let code = self.new_code(&session.source, which)?;
            session.codes.push(code);
        }
        ledger.send(&turn::payload(turn::HELLO, self.source, 0))?;

        // The rest of it, or as many as this connection is good for.
        let most = 1 + self.random.below(2 * plan.connection);
        while session.count < most && self.sent < plan.messages {
            if session.count.is_multiple_of(64) && !self.goes_on(plan) {
                break;
            }
            self.message(&mut session)?;
            if self.random.once_in(plan.code) {
                let which = self.random.below(2) as usize;
                session.codes[2 + which] = self.new_code(&session.source, which)?;
            }
            self.progress();
        }
        while let Some((call, expected)) = session.calls.pop_front() {
            check(call, expected)?;
        }
        let goodbye = turn::payload(turn::GOODBYE, session.count, session.hash);
        // Leaving with everything under way is as good as leaving when all is done.
        match self.random.below(3) {
            0 => drop(ledger.call(&goodbye)?.wait()?),
            1 => {
                ledger.send(&goodbye)?;
                session.source.flush()?;
            }
            _ => ledger.send(&goodbye)?,
        }
        self.hash = self.hash.wrapping_add(hash::mix(session.count, session.hash));
        self.connections += 1;
        Ok(())
    }

    /// An image that differs from the others in a number, in Rust (0) or in C (1).
    fn new_code(&mut self, source: &Source, which: usize) -> Result<Code> {
        let variant = 1 + self.random.below(VARIANTS);
        let library = &mut self.libraries[which];
        library.set(variant);
        self.installs += 1;
        Ok(Code {
            loaded: source.load_bytes(&library.bytes)?,
            variant,
            message: None,
        })
    }

    /// One message, or a few of the same object.
    fn message(&mut self, session: &mut Session) -> Result {
        let len = self.random.message();
        let at = self.random.below((POOL - len) as u64) as usize;
        let which = self.random.below(session.codes.len() as u64) as usize;
        let wants = self.random.once_in(8);
        // An object is made, or made anew, and sent several times with another number in it.
        let object = self.random.once_in(12);
        let times = if object { 1 + self.random.below(4) } else { 1 };
        for again in 0..times {
            let payload = &mut self.pool[at..at + len];
            write_number(payload, session.count);
            let code = &mut session.codes[which];
            let variant = code.variant;
            let call = if object {
                match &mut code.message {
                    Some(message) if again > 0 => write_number(message.payload_mut(), session.count),
                    Some(message) => message.set(payload)?,
                    none => *none = Some(code.loaded.message(payload)?),
                }
                let message = code.message.as_ref().ok_or("it was made above")?;
                match wants {
                    true => Some(message.call()?),
                    false => message.send().map(|()| None)?,
                }
            } else {
                match wants {
                    true => Some(code.loaded.call(payload)?),
                    false => code.loaded.send(payload).map(|()| None)?,
                }
            };
            self.sent(session, at, len, variant, call)?;
        }
        Ok(())
    }

    /// Records what was sent.
    fn sent(
        &mut self,
        session: &mut Session,
        at: usize,
        len: usize,
        variant: u64,
        call: Option<Call<Vec<u8>>>,
    ) -> Result {
        session.hash = hash::mix(session.hash, hash::bytes(&self.pool[at..at + len]));
        let expected = [session.count, session.hash, variant];
        session.count += 1;
        self.sent += 1;
        self.bytes += len as u64;
        if let Some(call) = call {
            self.calls += 1;
            session.calls.push_back((call, expected));
            // Now and then all of them, so that the source waits for its own last one.
            let left = if self.random.once_in(16) { 0 } else { CALLS };
            while session.calls.len() > left
                && let Some((call, expected)) = session.calls.pop_front()
            {
                check(call, expected)?;
            }
        }
        Ok(())
    }

    fn progress(&mut self) {
        if self.sent.is_multiple_of(64) && self.said.elapsed() > Duration::from_millis(500) {
            self.said = Instant::now();
            say(&format!("at {}", self.sent));
        }
    }
}

/// The first bytes of a payload are its number.
fn write_number(payload: &mut [u8], number: u64) {
    let len = payload.len().min(8);
    payload[..len].copy_from_slice(&number.to_le_bytes()[..len]);
}

/// Waits for an answer, which must be this.
fn check(call: Call<Vec<u8>>, expected: [u64; 3]) -> Result {
    let answer = call.wait()?;
    match words::<3>(&answer) {
        Some(came) if came == expected => Ok(()),
        came => Err(format!("the answer [number, hash, variant] is {came:x?}, not {expected:x?}").into()),
    }
}
