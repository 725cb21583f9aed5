//! The measured paths: messages with a payload of 8 bytes whose code is installed, each in a frame of its own and many in a batch.
//! Source and target share one thread, over `shm`.

use std::error::Error;
use std::time::Duration;

use ifunc::payload::Ifunc;
use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageError, ImageFlags, ImageParts};
use ifunc_abi::text::Text;
use ifunc_rt::{Answers, Handle, Level, Policy, Source, Target};

use crate::clock;

mod handle {
    use ifunc::prelude::*;

    /// Counts, and loops as often as the payload says. The code that runs is [`BURN`](super::BURN).
    #[ifunc]
    pub(super) fn burn(turns: u64, count: &mut u64) {
        *count += std::hint::black_box(turns).min(1);
    }
}
use handle::burn;

/// `inc qword [rdx] ; mov rax, [rdi] ; again: dec rax ; jnz again ; xor eax, eax ; ret`, as bytes, so that
/// its instructions are known.
const BURN: &[u8] = &[
    0x48, 0xff, 0x02, 0x48, 0x8b, 0x07, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0x31, 0xc0, 0xc3,
];
/// Number of instructions of [`BURN`]; two of them are the loop's.
pub(crate) fn burned(turns: u64) -> u64 {
    4 + 2 * turns
}

/// Runs a batch, and does not loop: the payloads are not read, and the answers have no bytes.
/// `mov r8d, [rdi+32] ; xor eax, eax ; again: inc eax ; mov [rdi+36], eax ; inc qword [rdx] ; cmp eax, r8d ; jne again ;
/// xor eax, eax ; ret`
const BURN_BATCH: &[u8] = &[
    0x44, 0x8b, 0x47, 0x20, 0x31, 0xc0, 0xff, 0xc0, 0x89, 0x47, 0x24, 0x48, 0xff, 0x02, 0x44, 0x39, 0xc0,
    0x75, 0xf3, 0x31, 0xc0, 0xc3,
];
/// Number of instructions of [`BURN_BATCH`] for a batch of so many messages.
pub(crate) fn burned_together(messages: u64) -> u64 {
    4 + 5 * messages
}

/// The signal that marks the beginning and the end of a measurement.
pub(crate) const MARK: i32 = libc::SIGUSR1;
/// Messages sent before the target polls, for the path with several messages.
pub(crate) const BATCH: u64 = 8;
/// Messages that travel in one batch, for the paths of batches. A poll runs all of them.
pub(crate) const TOGETHER: u64 = 256;
/// Clock ticks in which each path is measured.
const TIMES: u64 = 3;
/// Measurements in each tick.
pub(crate) const EACH: usize = 3;
/// Quiet ticks, and calls in each of them.
const QUIET_TICKS: u64 = 6;
const FEW: u64 = 8;
/// Calls in a busy tick.
const MANY: u64 = 300;
/// Longer than a tick.
const TICKS: Duration = Duration::from_millis(20);
/// Ends the name of a path whose target contains faults.
pub(crate) const CONTAINED: &str = "-contained";
/// Images that a target keeps, by default.
const CACHED: u64 = 4096;
/// Bytes of a new image.
const IMAGE: usize = 512;
/// Maximum number of polls per message.
const MAX_POLLS: usize = 1 << 16;

/// Runs a path [`TIMES`] times [`EACH`], each between two marks.
pub(crate) fn run(what: &str, turns: u64) -> Result<(), Box<dyn Error>> {
    let (what, level) = match what.strip_suffix(CONTAINED) {
        Some(what) => (what, Level::Contained),
        None => (what, Level::default()),
    };
    let mut both = Both::new(level)?;
    // Warm-up: connects, installs, and runs past the invocations that are always timed.
    for _ in 0..128 {
        both.call(turns)?;
        both.send_together(turns)?;
        both.poll()?;
        let answers = both.call_together(turns)?;
        both.poll()?;
        end(answers)?;
    }
    if what == "arrival" {
        both.fill_cache(turns)?;
    }
    clock::stop()?;
    for _ in 0..TIMES {
        // A source that sends much in a tick does not read the clock for every frame of the next. After some quiet ticks it
        // does, and the first frame finds the new tick.
        for _ in 0..QUIET_TICKS {
            clock::pass(TICKS);
            (0..FEW).try_for_each(|_| both.call(turns))?;
        }
        // Once per clock tick, a source checks whether its target is alive, and a target checks for other
        // work.
        clock::pass(TICKS);
        once(&mut both, what, turns)?;
        (0..MANY).try_for_each(|_| both.call(turns))?;
        clock::pass(TICKS);
        (0..MANY).try_for_each(|_| both.call(turns))?;
        for _ in 1..EACH {
            once(&mut both, what, turns)?;
        }
    }
    Ok(())
}

fn once(both: &mut Both, what: &str, turns: u64) -> Result<(), Box<dyn Error>> {
    match what {
        "nothing" => marked(|| Ok::<_, Box<dyn Error>>(())),
        "send" => {
            marked(|| both.burn.send(&turns))?;
            both.sent += 1;
            both.poll()
        }
        "poll" => {
            both.send(turns)?;
            marked(|| both.poll())
        }
        "poll-many" => {
            (0..BATCH).try_for_each(|_| both.send(turns))?;
            marked(|| both.poll())
        }
        "call" => marked(|| both.call(turns)),
        // No budget is of these: images have other lengths, and a hash takes other instructions on other processors.
        "carrying" => {
            both.carry(turns)?;
            marked(|| both.carrying.send(&turns))?;
            both.sent += 1;
            both.poll()
        }
        "carried" => {
            both.carry(turns)?;
            both.carrying.send(&turns)?;
            both.sent += 1;
            marked(|| both.poll())
        }
        "arrival" => {
            let new = both.new_image()?;
            marked(|| {
                let call = new.call(&turns)?;
                both.sent += 1;
                both.poll()?;
                Ok::<_, Box<dyn Error>>(call.wait()?)
            })
        }
        "batch-send" => {
            marked(|| both.send_together(turns))?;
            both.poll()
        }
        "batch-poll" => {
            both.send_together(turns)?;
            marked(|| both.poll())
        }
        "batch-call" => {
            let mut answers = None;
            marked(|| both.call_together(turns).map(|called| answers = Some(called)))?;
            both.poll()?;
            end(answers.into_iter().flatten())
        }
        "batch-answer" => {
            let answers = both.call_together(turns)?;
            marked(|| both.poll())?;
            end(answers)
        }
        "batch-receive" => {
            let answers = both.call_together(turns)?;
            both.poll()?;
            marked(|| end(answers))
        }
        _ => Err(format!("`{what}` is not a path").into()),
    }
}

/// Receives the answers of a batch.
fn end(answers: impl Iterator<Item = Result<(), ifunc_rt::Error>>) -> Result<(), Box<dyn Error>> {
    for answer in answers {
        answer?;
    }
    Ok(())
}

#[inline(never)]
fn marked<E: Into<Box<dyn Error>>>(work: impl FnOnce() -> Result<(), E>) -> Result<(), Box<dyn Error>> {
    mark();
    let result = work();
    mark();
    result.map_err(E::into)
}

/// Stops this thread if it is traced; otherwise the signal ends the process.
fn mark() {
    // SAFETY: raises a signal in this thread.
    unsafe { libc::raise(MARK) };
}

/// Source and target.
struct Both {
    target: Target,
    /// The target's data, which ifuncs increment.
    count: u64,
    sent: u64,
    /// Images beside that of `burn`.
    images: u64,
    burn: Handle<burn>,
    source: Source,
    /// Its invocations travel in batches.
    aggregated: Handle<burn>,
    /// Its invocations carry the image.
    carrying: Handle<burn>,
}

impl Both {
    fn new(level: Level) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the only source sends the image of this file.
        let policy = unsafe { Policy::trust_every_peer() }.level(level);
        let builder = Target::builder().policy(policy);
        let mut target = builder.listen(&format!("shm:ifunc-instructions-{}", std::process::id()))?;
        let source = Source::connect(&target.address())?;
        let mut count = 0;
        // Another thread accepts it. On a busy machine that may take longer than all polls of a message.
        while target.connections() == 0 {
            std::thread::sleep(Duration::from_millis(1));
            target.poll(&mut count);
        }
        let burn = source.register_bytes(&image(0)?)?;
        Ok(Self {
            target,
            count,
            sent: 0,
            images: 0,
            aggregated: burn.aggregated(),
            carrying: burn.carrying_code(),
            burn,
            source,
        })
    }

    fn send(&mut self, turns: u64) -> Result<(), Box<dyn Error>> {
        self.burn.send(&turns)?;
        self.sent += 1;
        Ok(())
    }

    /// Sends a batch.
    fn send_together(&mut self, turns: u64) -> Result<(), Box<dyn Error>> {
        self.aggregated.send_many(payloads(turns))?;
        self.sent += TOGETHER;
        Ok(self.source.push()?)
    }

    /// Sends a batch of calls.
    fn call_together(&mut self, turns: u64) -> Result<Answers<()>, Box<dyn Error>> {
        let answers = self.aggregated.call_many(payloads(turns));
        self.sent += TOGETHER;
        self.source.push()?;
        Ok(answers)
    }

    /// Sends an invocation that carries its code: the next one of this kind sends the image again, the first one does not.
    fn carry(&mut self, turns: u64) -> Result<(), Box<dyn Error>> {
        self.carrying.send(&turns)?;
        self.sent += 1;
        self.poll()
    }

    /// An image that the target does not have.
    fn new_image(&mut self) -> Result<Handle<burn>, Box<dyn Error>> {
        self.images += 1;
        Ok(self.source.register_bytes(&image(self.images)?)?)
    }

    /// Lets the target have as many images as it keeps.
    fn fill_cache(&mut self, turns: u64) -> Result<(), Box<dyn Error>> {
        for _ in 0..=CACHED {
            let new = self.new_image()?;
            new.send(&turns)?;
            self.sent += 1;
            self.poll()?;
        }
        Ok(())
    }

    /// Polls until the target has run every message sent.
    fn poll(&mut self) -> Result<(), Box<dyn Error>> {
        for _ in 0..MAX_POLLS {
            self.target.poll(&mut self.count);
            if self.count == self.sent {
                return Ok(());
            }
        }
        Err(format!("{} messages were sent, {} were run", self.sent, self.count).into())
    }

    fn call(&mut self, turns: u64) -> Result<(), Box<dyn Error>> {
        let call = self.burn.call(&turns)?;
        self.sent += 1;
        self.poll()?;
        Ok(call.wait()?)
    }
}

/// The payloads of a batch.
fn payloads(turns: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(turns, TOGETHER as usize)
}

/// The image, and others that differ in a number, of [`IMAGE`] bytes.
fn image(number: u64) -> Result<Vec<u8>, ImageError> {
    let of_number = number.to_le_bytes();
    let more = if number == 0 { 0 } else { IMAGE };
    let fingerprint = |text: &Text| ifunc_abi::fingerprint(blake3::hash(text.as_str().as_bytes()).as_bytes());
    let mut image = ImageParts {
        entries: vec![EntryPart {
            payload: fingerprint(burn::PAYLOAD),
            target: fingerprint(burn::TARGET),
            answer: fingerprint(burn::ANSWER),
            payload_align_log2: 3,
            batch: Some(BURN.len() as u32),
            ..EntryPart::new(burn::NAME)
        }],
        arch: ARCH_X86_64,
        // As the builder says of all code that does not write the control of floats.
        flags: ImageFlags::KEEPS_FLOAT_CONTROL,
        rx_align_log2: 4,
        rx: [BURN, BURN_BATCH].concat(),
        ..ImageParts::default()
    };
    let encoded = image.encode()?;
    let Some(padding) = more.checked_sub(encoded.len() + of_number.len()) else {
        return Ok(encoded);
    };
    image.rx.resize(image.rx.len() + padding, 0x5a);
    image.rx.extend(of_number);
    image.encode()
}
