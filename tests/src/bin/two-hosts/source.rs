//! The source: sends numbered messages, calls and sends mixed, and compares what comes back.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use ifunc_rt::{ByName, Call, Error, Handle, Source, SourceOptions};

use crate::Failure;
use crate::target::Ledger;

/// How many calls are under way at a time.
const AT_A_TIME: usize = 32;
/// The last line, before the connection is closed: what was run is what was sent.
pub(crate) const RIGHT: &str = "what was run is what was sent";
/// No wait is longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends `messages` messages of which the largest have `largest` bytes.
///
/// # Errors
/// What was lost or repeated, changed or out of order; a connection that ended and did not come back.
pub(crate) fn run(address: &str, libraries: &Path, messages: u64, largest: usize) -> Result<(), Failure> {
    let options = SourceOptions::default()
        .timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        .reconnect(TIMEOUT);
    let began = Instant::now();
    let source = Source::connect_with(address, options)?;
    println!("connected in {} ms", began.elapsed().as_millis());
    let load = |name: &str| -> Result<Handle<ByName>, Failure> {
        let library = std::fs::read(libraries.join(name).with_extension("so"))?;
        Ok(source.load_bytes(&library)?)
    };
    let (follow, ledger) = (load("t_follow")?, load("t_ledger")?);
    let mut sender = Sender {
        follow,
        under_way: VecDeque::new(),
        answers: 0,
        wrong: 0,
        unknown: 0,
        bytes: 0,
    };
    let began = Instant::now();
    let mut number = 0;
    while number < messages {
        let (outcome, before) = (sender.send(number, largest), Instant::now());
        if let Err(error) = outcome {
            // What was sent and is not answered may have run; the ledger knows.
            eprintln!("at {number}: {error}");
            println!("lost at {number}");
            sender.forget()?;
            number = read(&ledger)?.next;
            println!("again at {number} after {} ms", before.elapsed().as_millis());
            continue;
        }
        number += 1;
        if number % 100 == 0 {
            println!("at {number}");
        }
    }
    while let Err(error) = sender.finish(&source) {
        eprintln!("at the end: {error}");
        println!("lost at {messages}");
        sender.forget()?;
    }
    let time = began.elapsed();
    let ledger = read(&ledger)?;
    let Ledger {
        executed,
        repeated,
        skipped,
        wrong,
        ..
    } = ledger;
    let Sender {
        answers,
        wrong: wrong_answers,
        unknown,
        bytes,
        ..
    } = sender;
    println!(
        "sent {messages} executed {executed} repeated {repeated} skipped {skipped} wrong {wrong} answers {answers} wrong-answers {wrong_answers} unknown {unknown} bytes {bytes} ms {}",
        time.as_millis()
    );
    // Nothing is lost but what was said to be lost, and that is at most what was under route.
    if repeated != 0
        || wrong != 0
        || wrong_answers != 0
        || executed + skipped != messages
        || skipped > unknown
    {
        return Err("what was run is not what was sent".into());
    }
    println!("{RIGHT}");
    Ok(())
}

struct Sender {
    follow: Handle<ByName>,
    /// Calls that are not answered, and what they must answer.
    under_way: VecDeque<(u64, Call<Vec<u8>>)>,
    /// Right ones, and others.
    answers: u64,
    wrong: u64,
    /// Messages of which it was said that they may or may not have run.
    unknown: u64,
    bytes: u64,
}

impl Sender {
    fn send(&mut self, number: u64, largest: usize) -> Result<(), Failure> {
        let message = message(number, largest);
        self.bytes += message.len() as u64;
        // Every third asks for nothing.
        if number % 3 == 2 {
            self.follow.send(&message)?;
        } else {
            self.under_way
                .push_back((answer(&message), self.follow.call(&message)?));
        }
        while self.under_way.len() >= AT_A_TIME {
            self.hear()?;
        }
        Ok(())
    }

    fn finish(&mut self, source: &Source) -> Result<(), Failure> {
        while !self.under_way.is_empty() {
            self.hear()?;
        }
        Ok(source.flush()?)
    }

    fn hear(&mut self) -> Result<(), Failure> {
        let Some((expected, call)) = self.under_way.pop_front() else {
            return Ok(());
        };
        let waited = call.wait();
        if matches!(waited, Err(Error::Indeterminate { .. })) {
            self.unknown += 1;
        }
        let said = waited?;
        self.count(expected, &said);
        Ok(())
    }

    fn count(&mut self, expected: u64, said: &[u8]) {
        let right = said == expected.to_le_bytes();
        self.answers += u64::from(right);
        self.wrong += u64::from(!right);
    }

    /// Hears the end of everything under way, after a connection was lost.
    fn forget(&mut self) -> Result<(), Failure> {
        // The one at which it was noticed, and those sent without asking for an answer.
        self.unknown += 1 + AT_A_TIME as u64 / 2;
        while let Some((expected, call)) = self.under_way.pop_front() {
            match call.wait() {
                Ok(said) => self.count(expected, &said),
                Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) => self.unknown += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Asks what was run. Asked again where the asking was lost: it changes nothing.
fn read(ledger: &Handle<ByName>) -> Result<Ledger, Failure> {
    let deadline = Instant::now() + TIMEOUT;
    let said = loop {
        match ledger.call(b"").and_then(Call::wait) {
            Ok(said) => break said,
            Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) if Instant::now() < deadline => {}
            Err(error) => return Err(error.into()),
        }
    };
    let (words, []) = said.as_chunks::<8>() else {
        return Err("the ledger is cut off".into());
    };
    let [next, executed, repeated, skipped, wrong] = words else {
        return Err("the ledger has five numbers".into());
    };
    let [next, executed, repeated, skipped, wrong] =
        [next, executed, repeated, skipped, wrong].map(|word| u64::from_le_bytes(*word));
    Ok(Ledger {
        next,
        executed,
        repeated,
        skipped,
        wrong,
    })
}

/// The message of this number: the number, and bytes that follow from it. Most are short; one in fifty is as large as can be.
fn message(number: u64, largest: usize) -> Vec<u8> {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = match number % 50 {
        49 => largest,
        n if n % 10 == 9 => 4096.min(largest),
        _ => (scattered >> 56) as usize,
    };
    let mut message = number.to_le_bytes().to_vec();
    message.extend((0..len).map(|at| (scattered >> 32) as u8 ^ at as u8));
    message
}

/// What `t_follow` answers to it.
fn answer(message: &[u8]) -> u64 {
    message.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
